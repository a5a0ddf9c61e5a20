"""Choose the method, the precision and what is kept in memory, and give the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from notsodeep.checks import InputError
from notsodeep.kernels import KernelMatrix
from notsodeep.resources import readable

__all__ = ["Strategy", "strategy"]

Method: TypeAlias = Literal["auto", "cholesky", "cg"]

_MODERATE = 20_000  # n³/3 operations of a double-precision factor are seconds to tens of seconds up to here
_VECTORS = 40  # columns of length n that an iteration and its preconditioner's set-up keep, for each target
_LANDMARKS = 3.0  # copies of the preconditioner's features held at its set-up


@dataclass(frozen=True)
class Strategy:
    """The chosen `method` and precision, whether the matrix is stored, the bytes, and the reason."""

    method: str
    dtype: np.dtype[Any]
    stored: bool
    bytes: int
    reason: str


def strategy(
    K: KernelMatrix, k: int, solver: Method, budget: float, *, resumable: bool = False, refined: bool = True
) -> Strategy:
    """Choose by size, memory and what the caller wants; `k` targets."""
    n = K.shape[0]
    single, double = 4 * n * n, 8 * n * n
    theory = K.samples[0].shape[1] if K.samples is not None and K.samples[0].ndim == 2 else 0
    iteration = int(8 * n * (_VECTORS * k + _LANDMARKS * (9 * n**0.5 + theory)))
    operations = f"{n**3 / 3:.1e} operations"
    f32, f64 = np.dtype(np.float32), np.dtype(np.float64)
    needed = single if K.dtype == f32 else double
    factor_fits = needed <= budget
    if solver == "auto" and not resumable and factor_fits and n <= _MODERATE:
        solver, why = (
            "cholesky",
            f"n = {n} is moderate: a factor costs {operations} and gives errors and determinants too",
        )
    elif solver == "auto":
        instead = "so products with the kernel are iterated instead"
        if resumable:
            why = "iterations, unlike a factor, can be kept in a checkpoint"
        elif factor_fits:
            why = f"n = {n} would need {operations} for a factor, {instead}"
        else:
            why = f"a factor of {readable(needed)} exceeds {readable(budget)}, {instead}"
        solver = "cg"
    else:
        why = f"solver={solver!r} was chosen by the caller"
    if solver == "cholesky":
        if K.dtype == f64 and double <= budget:
            return Strategy("cholesky", f64, True, double, f"{why}; {readable(double)} of {readable(budget)} memory")
        if single <= budget:
            because = "the kernel is float32" if K.dtype == f32 else f"{readable(double)} exceed {readable(budget)}"
            how = "refined against the float64 kernel" if refined or K.dtype == f64 else "for its own entries"
            needs = f"a float32 factor of {readable(single)}, {how}"
            return Strategy("cholesky float32", f32, True, single, f"{why}; {because}, so {needs}")
        raise InputError(
            f"solver='cholesky' needs {readable(single)} in float32 but memory={readable(budget)}; use solver='cg'"
        )
    for dtype, size in ((f64, double), (f32, single)):
        if size + iteration <= budget and not (dtype == f64 and K.dtype == f32):
            kept = f"the {dtype.name} matrix is kept in {readable(size)} of {readable(budget)}"
            return Strategy("cg", dtype, True, size + iteration, f"{why}; {kept}")
    tiles = (
        f"the matrix and the vectors of an iteration ({readable(single + iteration)}) exceed {readable(budget)}, "
        f"so tiles are {'read again' if K.samples is None else 'computed anew'} in each iteration"
    )
    if iteration > budget:
        tiles += f"; these vectors alone take {readable(iteration)}"
    return Strategy("cg", K.dtype, False, iteration, f"{why}; {tiles}")
