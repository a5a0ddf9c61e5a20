"""A whole fit of the kernel machine against its kernel matrix alone, on real images in float32.

The parts of a fit are timed inside it, so they add up to its total. Images are those of `notsodeep data fetch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import common
import numpy as np
from sklearn.base import clone

from notsodeep import data
from notsodeep.kernels import KernelBlocks
from notsodeep.learn import DEQKernelClassifier
from notsodeep.solvers import CG, methods
from notsodeep.solvers.conjugate_gradients import ConjugateGradients
from notsodeep.solvers.system import System

AREA = "solvers"
TARGET = 1.7
# data, (σ_a², σ_b², σ_0²) as in full_data_sets_on_one_machine.py, samples, rounds
SETTINGS = (
    ("mnist", (0.25, 0.25, 0.5), 10_000, 5),
    ("cifar10", (0.6, 0.4, 0.0), 10_000, 5),
    ("mnist", (0.25, 0.25, 0.5), 20_000, 2),
    ("cifar10", (0.6, 0.4, 0.0), 20_000, 2),
)
QUICK = (("digits", (0.25, 0.25, 0.5), 1200, 1),)
TOLERANCE = 1e-3  # enough for classes


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    rows = [measure(*setting) for setting in (QUICK if quick else SETTINGS)]
    worst = max(row["fit / kernel"] for row in rows)
    return {
        "question": "How much longer than its kernel matrix does a fit of DEQKernelClassifier take, with conjugate "
        f"gradients to a residual of {TOLERANCE:g}, in float32 (`refined=False`), without ridge? `rest` is the "
        "preparation of the rows, the search for duplicates and the estimate of the condition number. `refined` "
        "solves the equations of the float64 kernel, which is computed once more for the residual",
        "target": f"fit / kernel ≤ {TARGET}",
        "rows": rows,
        "verdict": f"{'met' if worst <= TARGET else 'missed'}: "
        + ", ".join(f"{row['fit / kernel']:.2f} ({row['data']}, n = {row['n']})" for row in rows),
    }


def measure(source: str, variances: tuple[float, ...], n: int, rounds: int) -> dict[str, Any]:
    loaded = data.load(source)
    X, y = loaded.X[:n].astype(np.float32), loaded.labels[:n]
    recurrent, drive, bias = variances
    machine = DEQKernelClassifier(
        "normalized_relu", recurrent, drive, bias, kind="ntk_injected", ridge=0.0, normalize="unit", dtype="float32",
        solver=CG(tol=TOLERANCE, refined=False), progress=False,
    )  # fmt: skip
    refined = clone(machine).set_params(solver=CG(tol=TOLERANCE))
    fits: list[dict[str, float]] = []
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)

    def kernel() -> None:
        KernelBlocks(machine._model(), rows, kind="ntk_injected").block(slice(None), slice(None))

    candidates = {
        "kernel": kernel,
        "fit": lambda: fits.append(timed(machine, X, y)),
        "refined": lambda: refined.fit(X, y),
    }
    times = common.best_times(candidates, repeats=rounds, warmups=int(n < 20_000))
    best = min(fits, key=lambda fit: fit["fit s"])
    solution = machine.solution_
    return {
        "data": source,
        "n": n,
        "p": X.shape[1],
        "kernel s": times["kernel"],
        **best,
        "iterations": solution.iterations,
        "residual": solution.residual,
        "fit / kernel": best["fit s"] / times["kernel"],
        "refined / kernel": times["refined"] / times["kernel"],
    }


def timed(machine: DEQKernelClassifier, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """One fit and the seconds of its parts."""
    parts = dict.fromkeys(("kernel", "set-up", "iterations", "residual"), 0.0)

    running: list[str] = []

    def clock(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def clocked(*arguments: Any, **options: Any) -> Any:
            if name == "kernel" and running:  # a few of its rows, for another part
                return function(*arguments, **options)
            running.append(name)
            began = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                parts[name] += time.perf_counter() - began
                running.pop()

        return clocked

    with (
        mock.patch.object(KernelBlocks, "block", clock("kernel", KernelBlocks.block)),
        mock.patch.object(methods, "precondition", clock("set-up", methods.precondition)),
        mock.patch.object(ConjugateGradients, "step", clock("iterations", ConjugateGradients.step)),
        mock.patch.object(System, "iterate", clock("residual", System.iterate)),
    ):
        began = time.perf_counter()
        machine.fit(X, y)
        total = time.perf_counter() - began
    parts["residual"] -= parts["iterations"]  # what a solve does besides its steps
    return {
        "fit s": total,
        "its kernel s": parts["kernel"],
        "set-up s": parts["set-up"],
        "iterations s": parts["iterations"],
        "true residual s": parts["residual"],
        "rest s": total - sum(parts.values()),
    }


if __name__ == "__main__":
    common.main(__file__, run)
