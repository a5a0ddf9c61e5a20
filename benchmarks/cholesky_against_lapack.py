"""The factorisation in place against LAPACK's, as SciPy calls it, in both precisions.

Each size is a process of its own: OpenBLAS' threaded factorisation may end it with a segmentation fault. Ours, which
calls it for at most 8192 rows, is then measured alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import common
import numpy as np
import scipy.linalg

from notsodeep.solvers import CholeskyFactor

AREA = "solvers"
COSTS = ("ratio",)
SIZES = (8000, 16_000)
TARGET = 1.05


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    rows = [apart(n, dtype) for n in ((1000, 2000) if quick else SIZES) for dtype in ("float64", "float32")]
    worst = {
        dtype: max((row["ratio"] for row in rows if row["dtype"] == dtype and row["ratio"]), default=float("nan"))
        for dtype in ("float64", "float32")
    }
    wrong = [row for row in rows if row["backward error"] > 100 * np.finfo(row["dtype"]).eps]
    crashed = [f"{row['dtype']} at n = {row['n']}" for row in rows if row["ratio"] is None]
    met = max(worst.values()) <= TARGET and not wrong
    return {
        "question": "How long does the Cholesky factorisation take, relative to LAPACK through SciPy? Ours keeps the "
        "kernel above the diagonal; beyond 8192 rows it goes by panels, reports progress and can be interrupted",
        "target": f"ratio ≤ {TARGET} wherever LAPACK runs; backward error at rounding level",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}: worst ratio "
        + ", ".join(f"{ratio:.2f} ({dtype})" for dtype, ratio in worst.items())
        + (f"; LAPACK on two threads crashed the process: {', '.join(crashed)}" if crashed else ""),
    }


def apart(n: int, dtype: str) -> dict[str, Any]:
    """One row from a process of its own; without LAPACK if that ended it."""
    command = [sys.executable, __file__, "--measure", str(n), dtype]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode < 0:
        found = subprocess.run([*command, "alone"], stdout=subprocess.PIPE, text=True, check=True)
    found.check_returncode()
    return json.loads(found.stdout.splitlines()[-1])


def measure(n: int, dtype: str, alone: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, 64)).astype(dtype)
    K = rows @ rows.T
    np.fill_diagonal(K, K.diagonal() + 50)
    potrf = scipy.linalg.get_lapack_funcs("potrf", dtype=dtype)
    work = np.empty_like(K)

    def ours() -> None:
        np.copyto(work, K)
        CholeskyFactor.of(work, progress=False)

    def lapack() -> None:
        np.copyto(work, K)
        potrf(work.T, lower=0, overwrite_a=1, clean=0)  # the same triangle of the same memory

    candidates = {"ours": ours, "copy": lambda: np.copyto(work, K)} | ({} if alone else {"lapack": lapack})
    times = common.best_times(candidates, repeats=5 if n < 10_000 else 2, warmups=int(n < 10_000))
    seconds = {name: seconds - times["copy"] for name, seconds in times.items()}
    factor = CholeskyFactor.of(K.copy(), progress=False)
    some = rng.choice(n, 200, replace=False)
    L = np.tril(factor._storage)[some].astype(np.float64)
    error = np.abs(L @ L.T - K[np.ix_(some, some)]).max() / K.diagonal().max()
    return {
        "n": n,
        "dtype": dtype,
        "LAPACK s": None if alone else seconds["lapack"],
        "ours s": seconds["ours"],
        "ratio": None if alone else seconds["ours"] / seconds["lapack"],
        "GFLOP/s": n**3 / 3 / seconds["ours"] / 1e9,
        "backward error": float(error),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(int(sys.argv[2]), sys.argv[3], sys.argv[4:] == ["alone"])))
    else:
        common.main(__file__, run)
