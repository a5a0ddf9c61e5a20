"""The DEQ-NTK against one call of ``scipy.optimize.root`` per pair, the way the literature computes it.

A sample of pairs is solved and its cost multiplied by the number of pairs i ≤ j; the inner products are given to it
for free. It uses one core, so the factor is also divided by the number of cores our call may use.
"""

from __future__ import annotations

import math
from typing import Any

import common
import numba
import numpy as np
from kernel_reference import samples
from scipy.optimize import root

import notsodeep as nsd

AREA = "kernels"
GAINS = ("factor",)
EXPECTED = 1e4
KIND = "ntk_injected"


def by_root(t: float, deq: nsd.DEQ) -> float:
    """Θ = Λ/(1 − σ_a² Ġ) for unit vectors with x·y = t and φ = √2·relu [FK20, Thm 2]."""

    def angle(rho: Any) -> Any:
        return np.arccos(np.clip(rho, -1.0, 1.0))

    def excess(rho: Any) -> Any:
        theta = angle(rho)
        return deq.recurrent * (np.sin(theta) + (math.pi - theta) * np.cos(theta)) / math.pi + deq.input * t - rho

    rho = float(root(excess, deq.input * t).x[0])
    return rho / (1 - deq.recurrent * float(math.pi - angle(rho)) / math.pi)


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    n, count = (2000, 200) if quick else (10_000, 2000)
    deq = nsd.DEQ("normalized_relu", recurrent=0.6, input=0.4)
    rows = []
    for p in (3072, 784, 64):
        X = samples(n, p)
        where = np.random.default_rng(1).integers(n, size=(2, count))
        t = np.einsum("ij,ij->i", X[where[0]], X[where[1]])
        results: dict[str, Any] = {}

        def ours(X: Any = X, results: dict[str, Any] = results) -> None:
            results["kernel"] = deq.kernel(X, kind=KIND)

        def theirs(t: Any = t, results: dict[str, Any] = results) -> None:
            results["roots"] = np.array([by_root(float(value), deq) for value in t])

        times = common.best_times({"kernel": ours, "roots": theirs}, repeats=3 if quick else 5)
        each = times["roots"] / count
        factor = each * n * (n + 1) / 2 / times["kernel"]
        distinct = where[0] != where[1]
        difference = np.abs(results["kernel"][where[0], where[1]] - results["roots"])[distinct].max()
        rows.append(
            {
                "p": p,
                "kernel s": times["kernel"],
                "µs per root": 1e6 * each,
                "all roots h": each * n * (n + 1) / 2 / 3600,
                "factor": factor,
                "factor per core": factor / numba.get_num_threads(),
                "difference": float(difference),
            }
        )
    least = min(row["factor"] for row in rows)
    return {
        "question": f"How much faster is the kernel of {n} samples than a general root-finder called for each pair "
        f"(extrapolated from {count} pairs)?",
        "target": "factor ≥ 10⁴",
        "rows": rows,
        "verdict": f"{'met' if least >= EXPECTED else 'missed'}; factors {least:.0f} to "
        f"{max(row['factor'] for row in rows):.0f}",
    }


if __name__ == "__main__":
    common.main(__file__, run)
