"""The DEQ-NTK against the same kernel as a 50-layer input-injected network in neural-tangents.

neural-tangents is archived and needs an older JAX, so it lives in an environment of its own, made on the first run
below the user's cache directory. Both packages take turns in one run. Theirs is compiled once for the data at hand,
which is reported apart. Exact values have thirty-five digits; `depth 50` compares the two packages at the same finite
depth.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import common
import numpy as np
from kernel_reference import error, pairs, samples

import notsodeep as nsd

AREA = "kernels"
GAINS = ("factor",)
TARGET = 50.0
DEPTH = 50
ROUNDING = {"float64": 1e-14, "float32": 1e-6}  # errors below are equally good
KIND = "ntk_injected"
# jax and its companions with numpy as one set that works together; neural-tangents without its TensorFlow
PINS = ("jax==0.5.3", "jaxlib==0.5.3", "numpy==2.2.6", "scipy==1.15.3", "ml_dtypes==0.5.1", "opt_einsum==3.4.0")
ALONE = ("neural-tangents==0.6.5", "frozendict==2.4.6")
MODELS = (
    (0.25, 0.25, 0.5, "float64"),
    (0.6, 0.4, 0.0, "float64"),
    (0.6, 0.4, 0.0, "float32"),
    (0.95, 0.05, 0.0, "float64"),
)


def environment() -> Path:
    """The interpreter of an environment with neural-tangents, made if it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "notsodeep"
    folder = cache / f"neural-tangents-py{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    complete, pins = folder / "complete", "\n".join(PINS + ALONE)
    if complete.is_file() and complete.read_text(encoding="utf-8") == pins:
        return python
    print(f"making an environment for neural-tangents in {folder}", file=sys.stderr)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [*install, *PINS],
        [*install, "--no-deps", *ALONE],
    ):
        subprocess.run(command, check=True, stdout=sys.stderr)
    complete.write_text(pins, encoding="utf-8")
    return python


class Peer:
    """The other package in a process of its own, asked over a pipe."""

    def __init__(self, python: Path, dtype: str) -> None:
        script = str(Path(__file__).with_name("neural_tangents_peer.py"))
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        clean["JAX_ENABLE_X64"] = str(int(dtype == "float64"))
        self.process = subprocess.Popen(
            [str(python), script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean
        )

    def ask(self, **request: Any) -> float:
        """Seconds the request took on the other side."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"neural-tangents stopped with exit code {self.process.wait()}")
        return float(json.loads(answer)["seconds"])

    def prepare(self, network: str, model: Mapping[str, float], *data: np.ndarray) -> tuple[np.ndarray, float]:
        """The kernel of `data` there, and the seconds its compilation took."""
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(Path(folder, f"{k}.npy")) for k in range(len(data))]
            for path, array in zip(paths, data, strict=True):
                np.save(path, array)
            result = str(Path(folder, "K.npy"))
            task = {"network": network, "model": model, "data": paths, "result": result}
            seconds = self.ask(prepare=task)
            return np.load(result), seconds

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    n, p = 500 if quick else 2000, 784
    head = {
        "question": f"How much faster and how much more accurate is the equilibrium kernel than a {DEPTH}-layer "
        f"injected network in neural-tangents (n={n}, p={p}, both compiled; errors relative to √(K_ii K_jj), equal "
        "where they are rounding)?",
        "target": f"≥ {TARGET:g} times faster, smaller errors",
    }
    try:
        python = environment()
    except (OSError, subprocess.CalledProcessError) as reason:
        return {**head, "rows": [], "verdict": f"not measured: no environment for neural-tangents ({reason})"}
    rows = [measure(python, n, p, *model, quick) for model in (MODELS[2:] if quick else MODELS)]
    least = min(row["factor"] for row in rows)
    closer = all(
        row[ours] <= max(row[f"{ours} NT"], ROUNDING[row["dtype"]]) for row in rows for ours in ("error", "diagonal")
    )
    return {
        **head,
        "rows": rows,
        "verdict": f"{'met' if least >= TARGET and closer else 'missed'}; {least:.0f} to "
        f"{max(row['factor'] for row in rows):.0f} times faster, {'closer' if closer else 'not always closer'} "
        "to the exact value",
    }


def measure(
    python: Path, n: int, p: int, recurrent: float, input: float, bias: float, dtype: str, quick: bool
) -> dict[str, Any]:
    deq = nsd.DEQ("normalized_relu", recurrent, input, bias)
    X = samples(n, p, "unit", dtype)
    model = {"recurrent": recurrent, "input": input, "bias": bias, "depth": DEPTH}
    with Peer(python, dtype) as peer:
        theirs, compiling = peer.prepare("dense", model, X)
        times = common.best_times(
            {"notsodeep": lambda: deq.kernel(X, kind=KIND), "neural-tangents": lambda: peer.ask(evaluate=True)},
            repeats=3,
        )
    ours, same = deq.kernel(X, kind=KIND), deq.kernel(X, kind=KIND, depth=DEPTH)
    assert theirs.dtype == ours.dtype == dtype
    where = [pair for pair in pairs(n, 30 if quick else 200) if pair[0] != pair[1] and sum(pair) != n - 1]
    diagonal = [(i, i) for i in range(10)]
    apart = np.abs(same - theirs)[tuple(np.array(where).T)] / same[0, 0]
    return {
        "σ²": f"{recurrent:g}/{input:g}/{bias:g}",
        "dtype": dtype,
        "notsodeep s": times["notsodeep"],
        "neural-tangents s": times["neural-tangents"],
        "factor": times["neural-tangents"] / times["notsodeep"],
        "compile NT s": compiling,
        "error": error(ours, deq, KIND, X, where),
        "error NT": error(theirs, deq, KIND, X, where),
        "diagonal": error(ours, deq, KIND, X, diagonal),
        "diagonal NT": error(theirs, deq, KIND, X, diagonal),
        f"depth {DEPTH}": float(apart.max()),
    }


if __name__ == "__main__":
    common.main(__file__, run)
