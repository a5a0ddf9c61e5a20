"""The NTK of a DEQ against NumPy's symmetric ``X @ X.T`` of the same data.

Both sides once into fresh memory, as a user calls them, and once into memory that exists already. The error is
measured on a sample of entries, near-duplicates included, against thirty-five-digit values.
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np
from kernel_reference import error, pairs, samples

import notsodeep as nsd

AREA = "kernels"
COSTS = ("fresh", "into out")
TARGETS = {3072: 1.15, 784: 1.15, 64: 1.05}
ERRORS = {"float64": 1e-12, "float32": 2e-6}
KIND = "ntk"


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    n = 2000 if quick else 10_000
    relu = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    rows = [
        measure(relu, n, p, dtype, norms, quick) for p in TARGETS for dtype in ERRORS for norms in ("unit", "arbitrary")
    ]
    slow = [row for row in rows if max(row["fresh"], row["into out"]) > row["target"]]
    wrong = [row for row in rows if row["error"] > ERRORS[row["dtype"]]]
    summary = ", ".join(f"p={p}: {max(row['fresh'] for row in rows if row['p'] == p):.2f}" for p in TARGETS)
    return {
        "question": f"How long does the DEQ-NTK of {n} samples take, relative to their Gram matrix `X @ X.T` in "
        "NumPy? `fresh` and `into out` are time ratios with new and with existing memory for both sides; `error` is "
        "relative to √(K_ii K_jj)",
        "target": "ratio ≤ 1.15 at p=3072, ≤ 1.15 at p=784, ≤ 1.05 at p=64; error ≤ 1e-12 (float64), ≤ 2e-6 (float32)",
        "rows": rows,
        "verdict": f"{'met' if not slow and not wrong else f'missed in {len(slow)} ratios, {len(wrong)} errors'}; "
        f"worst fresh ratio {summary}",
    }


def measure(deq: nsd.DEQ, n: int, p: int, dtype: str, norms: str, quick: bool) -> dict[str, Any]:
    X = samples(n, p, norms, dtype)
    out = np.empty((n, n), dtype)
    deq.kernel(X[:64], kind=KIND)  # compiled once, here
    times = common.best_times(
        {
            "gram": lambda: X @ X.T,
            "kernel": lambda: deq.kernel(X, kind=KIND),
            "gram into out": lambda: np.matmul(X, X.T, out=out),
            "kernel into out": lambda: deq.kernel(X, kind=KIND, out=out),
        },
        repeats=5,
        warmups=0,
    )
    K, info = deq.kernel(X, kind=KIND, out=out, return_info=True)
    return {
        "processor": common.processor(),
        "activation": str(deq.activation),
        "σ²": f"{deq.recurrent:g}/{deq.input:g}/{deq.bias:g}",
        "p": p,
        "dtype": dtype,
        "norms": norms,
        "gram s": times["gram"],
        "kernel s": times["kernel"],
        "fresh": times["kernel"] / times["gram"],
        "into out": times["kernel into out"] / times["gram into out"],
        "target": TARGETS[p],
        "method": f"{info.method} {info.degree}".strip(),
        "error": error(K, deq, KIND, X, pairs(n, 20 if quick else 60)),
        "stated error": info.error,
    }


if __name__ == "__main__":
    common.main(__file__, run)
