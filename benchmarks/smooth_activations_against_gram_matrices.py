"""The NTK of DEQs with smooth activations on samples of unequal norms, against ``X @ X.T``.

Here no single function of x·y exists: every pair is solved by Newton on a Hermite series. It needs more terms the
larger the norms and the closer the samples, so there are two data sets: independent rows, whose cosines are small as in
high-dimensional mixtures, and correlated rows, whose cosines fill (−1, 1). The error is measured on a
sample of entries against the same fixed point with two-dimensional quadrature.
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np
from kernel_reference import error, pairs, samples

import notsodeep as nsd

AREA = "kernels"
COSTS = ("fresh", "into out")
ACTIVATIONS = ("tanh", "swish", "gelu")
TARGET = 3.0
ERRORS = {"float64": 1e-12, "float32": 2e-6}
KIND = "ntk"


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    n, p = 2000 if quick else 10_000, 784
    rows = [
        measure(name, n, p, dtype, rows, quick)
        for rows, dtype in (("independent", "float64"), ("independent", "float32"), ("correlated", "float64"))
        for name in ACTIVATIONS
    ]
    worst = {
        kind: max(max(row["fresh"], row["into out"]) for row in rows if row["rows"] == kind)
        for kind in {row["rows"] for row in rows}
    }
    accurate = all(row["error"] <= ERRORS[row["dtype"]] for row in rows)
    return {
        "question": "How long does the DEQ-NTK with a smooth activation and samples of unequal norms take, relative "
        f"to a Gram matrix (n={n}, p={p}, norms log-normal, mostly between 0.4 and 2.6)?",
        "target": f"ratio ≤ {TARGET:g}; error ≤ 1e-12 (float64), ≤ 2e-6 (float32)",
        "rows": rows,
        "verdict": f"{'met' if max(worst.values()) <= TARGET and accurate else 'missed'}; worst ratio "
        f"{', '.join(f'{ratio:.2f} ({kind})' for kind, ratio in worst.items())}; "
        f"worst error {max(row['error'] for row in rows if row['dtype'] == 'float64'):.1e} (float64), "
        f"{max(row['error'] for row in rows if row['dtype'] == 'float32'):.1e} (float32)",
    }


def measure(name: str, n: int, p: int, dtype: str, rows: str, quick: bool) -> dict[str, Any]:
    deq = nsd.DEQ(name, recurrent=0.2, input=0.8)
    X = samples(n, p, "arbitrary", dtype, correlated=rows == "correlated")
    out = np.empty((n, n), dtype)
    deq.kernel(X[:64], kind=KIND)  # compiled once, here
    times = common.best_times(
        {
            "gram": lambda: X @ X.T,
            "kernel": lambda: deq.kernel(X, kind=KIND),
            "gram into out": lambda: np.matmul(X, X.T, out=out),
            "kernel into out": lambda: deq.kernel(X, kind=KIND, out=out),
        },
        repeats=2,
        warmups=0,
    )
    K, info = deq.kernel(X, kind=KIND, out=out, return_info=True)
    return {
        "activation": name,
        "rows": rows,
        "dtype": dtype,
        "gram s": times["gram"],
        "kernel s": times["kernel"],
        "fresh": times["kernel"] / times["gram"],
        "into out": times["kernel into out"] / times["gram into out"],
        "method": info.method,
        "terms": info.degree,
        "steps": info.iterations,
        "error": error(K, deq, KIND, X, pairs(n, 20 if quick else 60)),
        "stated error": info.error,
    }


if __name__ == "__main__":
    common.main(__file__, run)
