"""The out-of-core solver under its names of version 0.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from notsodeep.checks import choice, warn_deprecated
from notsodeep.kernels import KernelMatrix
from notsodeep.solvers import CG, OutOfCore, Solution
from notsodeep.solvers.conjugate_gradients import CHECKPOINT

__all__ = ["solve_out_of_core"]


def solve_out_of_core(
    blocks: KernelMatrix,
    targets: ArrayLike,
    *,
    directory: Any,
    ridge: float = 0.0,
    method: str = "cholesky",
    weights: ArrayLike | None = None,
    client: Any = None,
    progress: Any = None,
    **options: Any,
) -> Solution:
    """``OutOfCore(directory, client).solve(…)``, or ``CG(checkpoint=…, client=client, memory=0).solve(…)``."""
    warn_deprecated("solve_out_of_core goes with the next release; pass solver=OutOfCore(directory) or CG(memory=0)")
    if "max_iterations" in options:
        options["max_iter"] = options.pop("max_iterations")
    if choice(method, ("cholesky", "cg"), "method") == "cholesky":
        solver: OutOfCore | CG = OutOfCore(directory, client, **options)
    else:
        options.pop("tile", None)  # of a factor
        solver = CG(checkpoint=Path(directory) / CHECKPOINT, client=client, memory=0, **options)
    return solver.solve(blocks, targets, ridge=ridge, weights=weights, progress=progress)
