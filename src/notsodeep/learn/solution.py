"""What a solver returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import InputError, matrix
from notsodeep.learn.cholesky import CholeskyFactor

__all__ = ["Solution", "diagonal_shift"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Solution:
    """Coefficients and how they were obtained.

    Attributes
    ----------
    coefficients : array (n,) or (n, k)
        α in float64; predictions are K(x, X) α.
    method : str
        ``"cholesky"``, ``"cholesky float32"``, ``"cg"`` or ``"nystrom"``.
    reason : str
        Why this method, in a sentence.
    ridge : float
        As used. Nothing else is ever added to the diagonal.
    residual : float
        Largest ‖Y − (K + ridge·W⁻¹)α‖/‖Y‖ over the columns, in float64 from the kernel.
    converged : bool
        Whether `residual` reached the tolerance.
    condition, condition_method : float, str
        Estimate of λ_max/λ_min of K + ridge·W⁻¹, and where it comes from.
    iterations : int
        Of conjugate gradients; for a Cholesky factor, steps of refinement.
    seconds : float
    bytes : int
        Memory planned for.
    regularisation : float
        What was added to the diagonal beyond the ridge: always 0.
    preconditioner : str
        What conjugate gradients used; empty for others.
    shift : array (n,)
        ridge/w_i, what was added to the diagonal.
    weight : array (n,)
        w_i.
    factor : CholeskyFactor or None
        For leave-one-out errors, determinants and posterior variances.
    """

    coefficients: Array = field(repr=False)
    method: str
    reason: str
    ridge: float
    residual: float
    converged: bool
    condition: float
    condition_method: str
    iterations: int
    seconds: float
    bytes: int
    regularisation: float = 0.0
    preconditioner: str = ""
    shift: Array = field(repr=False, default_factory=lambda: np.zeros(0))
    weight: Array = field(repr=False, default_factory=lambda: np.zeros(0))
    factor: CholeskyFactor | None = field(repr=False, default=None)


def diagonal_shift(ridge: float, weights: ArrayLike | None, n: int) -> tuple[Array, Array]:
    """ridge/w_i and w_i, after a look at the weights."""
    if weights is None:
        return np.full(n, ridge), np.ones(n)
    weight = matrix(weights, "weights", rank=1).astype(np.float64)
    if len(weight) != n:
        raise InputError(f"weights has {len(weight)} entries but there are {n} samples; pass one for each")
    if not (weight > 0).all():
        raise InputError(f"weights holds {weight.min():g}; weights must be positive, leave samples out instead")
    with np.errstate(over="ignore"):
        shift = ridge / weight
    if not np.isfinite(shift).all():
        raise InputError(f"weights holds {weight.min():g}; ridge/weight overflows, so leave such samples out")
    return shift, weight
