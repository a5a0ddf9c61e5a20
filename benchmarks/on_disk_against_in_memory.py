"""A kernel and a linear system on disk against the same in memory, and the memory each size takes.

Times compare inside one process, interleaved; the stores are new each time and stay in the page cache. Peaks are those
of a process of its own for each n, Python and the samples included.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
from kernel_cost_by_samples import resident
from kernel_reference import samples

import notsodeep as nsd
from notsodeep.kernels import kernel_matrix
from notsodeep.scale import compute
from notsodeep.solvers import CholeskyFactor, StoredFactor

AREA = "scale"
COSTS = ("ratio",)
FEATURES = 784
RIDGE = 0.1
OVERHEAD, PEAK = 1.3, 1000.0  # of the time, and MB
DEQ = nsd.DEQ("normalized_relu", recurrent=0.25, input=0.25, bias=0.5)


def in_new(folder: Path, call: Callable[[Path], Any]) -> Callable[[], None]:
    """Call with a directory that does not exist."""

    def run() -> None:
        path = folder / "work"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        call(path)

    return run


def times(n: int, repeats: int, folder: Path) -> list[dict[str, Any]]:
    X, y = samples(n, FEATURES), np.ones((n, 1))
    source = kernel_matrix(DEQ, X, kind="ntk")

    def solve_inside() -> None:  # in place; LAPACK's own, with two threads, crashes at this size
        K = DEQ.kernel(X, kind="ntk")
        K[np.diag_indices(n)] += RIDGE
        CholeskyFactor.of(K, progress=False).solve(y)

    def solve_outside(path: Path) -> None:
        StoredFactor.of(source, RIDGE, path / "L.zarr").solve(y)

    rows = []
    for job, inside, outside in (
        ("kernel", lambda: DEQ.kernel(X, kind="ntk"), lambda path: compute(source, path / "K.zarr")),
        ("kernel, factor and solution", solve_inside, solve_outside),
    ):
        found = common.best_times({"memory": inside, "disk": in_new(folder, outside)}, repeats=repeats, warmups=1)
        ratio = common.ratios(found, "memory")["disk"]
        seconds = {"in memory s": found["memory"], "on disk s": found["disk"]}
        rows.append({"job": job, "n": n, **seconds, "ratio": ratio, "peak MB": None})
    return rows


def peak(job: str, n: int, folder: Path) -> dict[str, Any]:
    """Inside a process of its own."""
    source = kernel_matrix(DEQ, samples(n, FEATURES), kind="ntk")
    if job == "factor":
        StoredFactor.of(source, RIDGE, folder / "L.zarr").solve(np.ones((n, 1)))
    else:
        compute(source, folder / "K.zarr").product(np.ones((n, 1)))
    return {"job": f"peak memory: {job}", "n": n, "peak MB": resident("VmHWM")}


def run(quick: bool = False) -> dict[str, Any]:
    size, sizes = (2000, (1000, 2000)) if quick else (20_000, (10_000, 20_000, 40_000))
    rows = []
    with tempfile.TemporaryDirectory() as name:
        rows += times(size, 1 if quick else 3, Path(name))
    for job in ("kernel and product", "factor"):
        for n in sizes:
            with tempfile.TemporaryDirectory() as name:
                command = [sys.executable, __file__, "--peak", job, str(n), name]
                found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            empty = dict.fromkeys(("in memory s", "on disk s", "ratio"))
            row = json.loads(found.splitlines()[-1])
            rows.append({"job": row["job"], "n": n, **empty, "peak MB": row["peak MB"]})
    worst = max(row["ratio"] for row in rows if row["ratio"] is not None)
    most = max(row["peak MB"] for row in rows if row["peak MB"] is not None)
    met = worst <= OVERHEAD and most <= PEAK
    return {
        "question": "How much longer does a kernel, or a whole linear system, take on disk (page cache warm) than in "
        "memory?",
        "target": f"≤ {OVERHEAD}× at n = 20 000 with a warm page cache; at most {PEAK:.0f} MB up to n = 40 000",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}: {worst:.2f}×, {most:.0f} MB",
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        print(json.dumps(peak(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))))
    else:
        common.main(__file__, run)
