"""The blocked factorisation in place against LAPACK's, as SciPy calls it, in both precisions."""

from __future__ import annotations

from typing import Any

import common
import numpy as np
import scipy.linalg

from notsodeep.learn.cholesky import factorize

AREA = "solvers"
SIZES = (8000, 16_000)


def run(quick: bool = False) -> dict[str, Any]:
    """Return the claim, its rows and the verdict."""
    rows = [measure(n, dtype) for n in ((1000, 2000) if quick else SIZES) for dtype in ("float64", "float32")]
    worst = max(row["ratio"] for row in rows if row["dtype"] == "float64")
    wrong = [row for row in rows if row["backward error"] > 100 * np.finfo(row["dtype"]).eps]
    return {
        "claim": "The blocked Cholesky factorisation, which reports progress, can be interrupted and keeps the kernel "
        "above the diagonal, takes no longer than LAPACK through SciPy (time ratio)",
        "target": "float64: ratio ≤ 1 at every size; backward error at rounding level",
        "rows": rows,
        "verdict": f"{'met' if worst <= 1 and not wrong else 'missed'}: worst float64 ratio {worst:.2f}, "
        f"float32 up to {max(row['GFLOP/s'] for row in rows):.0f} GFLOP/s",
    }


def measure(n: int, dtype: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, 64)).astype(dtype)
    K = rows @ rows.T
    np.fill_diagonal(K, K.diagonal() + 50)
    potrf = scipy.linalg.get_lapack_funcs("potrf", dtype=dtype)
    work = np.empty_like(K)

    def ours() -> None:
        np.copyto(work, K)
        factorize(work, progress=False)

    def lapack() -> None:
        np.copyto(work, K)
        potrf(work.T, lower=0, overwrite_a=1, clean=0)  # the same triangle of the same memory

    times = common.best_times(
        {"ours": ours, "lapack": lapack, "copy": lambda: np.copyto(work, K)}, repeats=3, warmups=1
    )
    seconds = {name: times[name] - times["copy"] for name in ("ours", "lapack")}
    factor = factorize(K.copy(), progress=False)
    some = rng.choice(n, 200, replace=False)
    L = np.tril(factor._storage)[some].astype(np.float64)
    error = np.abs(L @ L.T - K[np.ix_(some, some)]).max() / K.diagonal().max()
    return {
        "n": n,
        "dtype": dtype,
        "LAPACK s": seconds["lapack"],
        "blocked s": seconds["ours"],
        "ratio": seconds["ours"] / seconds["lapack"],
        "GFLOP/s": n**3 / 3 / seconds["ours"] / 1e9,
        "backward error": float(error),
    }


if __name__ == "__main__":
    common.main(__file__, run)
