"""The NTK of DEQs that are not positively homogeneous, on samples of unequal norms, against ``X @ X.T``.

Here no single function of x·y exists: every pair is solved by Newton on a Hermite series. It needs more terms the
larger the norms and the closer the samples, so there are several data sets: independent rows, whose cosines are small
as in high-dimensional mixtures, with norms exp(0.25 ξ) and exp(0.5 ξ), and correlated rows, whose cosines fill (−1, 1).
The error is measured on a sample of entries against the same fixed point by quadrature. Networks of two layers
(`Explicit`) are compared with the DEQ of the same activation.
"""

from __future__ import annotations

from typing import Any

import common
import numpy as np
from kernel_reference import error, pairs, samples

import notsodeep as nsd

AREA = "kernels"
COSTS = ("ratio", "two layers / DEQ")
ACTIVATIONS = ("hard_tanh", "tanh", "swish", "gelu")
DATA = {"independent 0.25": (False, 0.25), "independent 0.5": (False, 0.5), "correlated 0.25": (True, 0.25)}
TARGETS = {"independent 0.25": 2.5, "independent 0.5": 2.5, "correlated 0.25": 2.0}
HARD, TWO_LAYERS = 3.0, 1.5
ERRORS = {"float64": 1e-12, "float32": 2e-6}
KIND = "ntk"


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    n, p = 2000 if quick else 6000, 784
    cases = [(data, dtype) for data in DATA for dtype in ERRORS if data != "correlated 0.25" or dtype == "float64"]
    rows = [measure(name, n, p, dtype, data) for data, dtype in cases for name in ACTIVATIONS]
    slow = [row for row in rows if row["ratio"] > row["target"]]
    layers = [row["two layers / DEQ"] for row in rows if row["two layers / DEQ"] is not None]
    deeper = [ratio for ratio in layers if ratio > TWO_LAYERS]
    wrong = [row for row in rows if row["error"] > ERRORS[row["dtype"]]]
    worst = ", ".join(f"{max(row['ratio'] for row in rows if row['rows'] == data):.2f} ({data})" for data in DATA)
    missed = f"missed in {len(slow)} ratios, {len(deeper)} networks of two layers, {len(wrong)} errors"
    return {
        "question": "How long does the DEQ-NTK with an activation that is not positively homogeneous take on samples "
        f"of unequal norms exp(0.25 ξ) or exp(0.5 ξ), relative to a Gram matrix (n={n}, p={p}, memory allocated "
        "before)? And a network of two layers, relative to the DEQ?",
        "target": f"ratio ≤ 2.5 (independent rows), ≤ 2 (correlated), ≤ {HARD:g} (hard tanh); two layers ≤ "
        f"{TWO_LAYERS:g} DEQ; error ≤ 1e-12 (float64), ≤ 2e-6 (float32)",
        "rows": rows,
        "verdict": f"{missed if slow or deeper or wrong else 'met'}; worst ratio {worst}; two layers at most "
        f"{max(layers):.2f} DEQ; "
        f"worst error {max(row['error'] for row in rows if row['dtype'] == 'float64'):.1e} (float64), "
        f"{max(row['error'] for row in rows if row['dtype'] == 'float32'):.1e} (float32)",
    }


def measure(name: str, n: int, p: int, dtype: str, data: str) -> dict[str, Any]:
    deq, network = nsd.DEQ(name, recurrent=0.2, input=0.8), nsd.Explicit([name, name])
    correlated, spread = DATA[data]
    X = samples(n, p, "arbitrary", dtype, correlated=correlated, spread=spread)
    out = np.empty((n, n), dtype)
    for model in (deq, network):
        model.kernel(X[:64], kind=KIND)  # compiled once, here
    candidates = {
        "gram": lambda: np.matmul(X, X.T, out=out),
        "kernel": lambda: deq.kernel(X, kind=KIND, out=out),
    }
    if spread == 0.25:
        candidates["two layers"] = lambda: network.kernel(X, kind=KIND, out=out)
    times = common.best_times(candidates, repeats=5, warmups=0)
    K, info = deq.kernel(X, kind=KIND, out=out, return_info=True)
    return {
        "processor": common.processor(),
        "activation": name,
        "rows": data,
        "dtype": dtype,
        "gram s": times["gram"],
        "kernel s": times["kernel"],
        "ratio": times["kernel"] / times["gram"],
        "target": HARD if name == "hard_tanh" else TARGETS[data],
        "two layers / DEQ": times["two layers"] / times["kernel"] if "two layers" in times else None,
        "terms": info.degree,
        "steps": info.iterations,
        "error": error(K, deq, KIND, X, pairs(n, 20)),
        "stated error": info.error,
    }


if __name__ == "__main__":
    common.main(__file__, run)
