"""Leave-one-out errors, evidence and posterior variances, from one factorisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import InputError, matrix, nonnegative
from notsodeep.kernels import KernelMatrix
from notsodeep.resources import available_memory, readable
from notsodeep.solvers.cholesky import NotPositiveDefiniteError
from notsodeep.solvers.system import Factorization, Solution, diagonal_shift

__all__ = [
    "RidgePath",
    "generalized_cross_validation",
    "leave_one_out",
    "log_marginal_likelihood",
    "posterior_variance",
    "ridge_path",
]

Array: TypeAlias = NDArray[Any]

_ROWS = 1024


def leave_one_out(solution: Solution) -> Array:
    """y_i − f₋ᵢ(x_i) = α_i / ((K + ridge·W⁻¹)⁻¹)_ii for every sample, as if it had been left out of the fit.

    Returns
    -------
    array, shape of the targets

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep.kernels import MatrixBlocks
    >>> from notsodeep.solvers import leave_one_out, solve
    >>> leave_one_out(solve(MatrixBlocks(np.eye(2)), np.array([1.0, 2.0]), ridge=1.0))
    array([1., 2.])
    """
    return (solution.coefficients.T / solution.required_factor.inverse_diagonal(progress=False)).T


def generalized_cross_validation(solution: Solution) -> Array:
    """n Σ α_i²/w_i ÷ (Σ ((K + ridge·W⁻¹)⁻¹)_ii/w_i)²: leave-one-out with every sample's leverage replaced by the mean.

    Returns
    -------
    array ()  or (k,)
    """
    inverse = solution.required_factor.inverse_diagonal(progress=False)
    weight = solution.weight
    return len(inverse) * np.sum((solution.coefficients**2).T / weight, axis=-1) / np.sum(inverse / weight) ** 2


def log_marginal_likelihood(solution: Solution, targets: ArrayLike) -> Array:
    """−½ yᵀα − ½ log det(K + ridge·W⁻¹) − ½ n log 2π: the evidence of a Gaussian process with noise variance ridge/w.

    Returns
    -------
    array () or (k,), one for each column of the targets
    """
    y = matrix(targets, "targets", rank=np.ndim(solution.coefficients))
    if y.shape != solution.coefficients.shape:
        raise InputError(
            f"targets has shape {y.shape}, the solution {solution.coefficients.shape}; pass the same targets"
        )
    fit = np.sum(y.astype(np.float64) * solution.coefficients, axis=0)
    return -0.5 * (fit + solution.required_factor.logdet() + len(y) * math.log(2 * math.pi))


def posterior_variance(factor: Factorization, cross: KernelMatrix, prior: ArrayLike) -> Array:
    """K(x, x) − k(x)ᵀ(K + ridge·W⁻¹)⁻¹k(x) for each row x of `cross`, a few rows at a time.

    Parameters
    ----------
    factor : Factorization
        Of the samples that were fitted.
    cross : KernelMatrix (m, n)
        Kernel of new samples (rows) with fitted ones (columns).
    prior : array (m,)
        K(x, x) of the new samples.

    Returns
    -------
    array (m,); values that rounding makes negative are set to zero
    """
    m, n = cross.shape
    before = matrix(prior, "prior", rank=1).astype(np.float64)
    if n != factor.shape[0] or len(before) != m:
        raise InputError(
            f"cross has shape {cross.shape}, the factor {factor.shape}, prior {before.shape}; "
            "they must be (m, n), (n, n) and (m,)"
        )
    for start in range(0, m, _ROWS):
        rows = slice(start, min(start + _ROWS, m))
        half = factor.half_solve(np.ascontiguousarray(cross.block(rows, slice(None)).T))
        before[rows] -= np.einsum("ij,ij->j", half, half)
    return np.maximum(before, 0.0)


@dataclass(frozen=True)
class RidgePath:
    """Errors and coefficients for each ridge, from one eigendecomposition.

    Attributes
    ----------
    ridges : array (r,)
    leave_one_out : array (r,)
        Mean squared error (weighted, over samples and columns) on samples left out.
    gcv : array (r,)
        Generalised cross-validation, mean over columns.
    log_marginal_likelihood : array (r,)
        Sum over columns.
    coefficients : array (r, n) or (r, n, k)
    eigenvalues : array (n,)
        Of W^½ K W^½, ascending.
    """

    ridges: Array
    leave_one_out: Array
    gcv: Array
    log_marginal_likelihood: Array
    coefficients: Array = field(repr=False)
    eigenvalues: Array = field(repr=False)

    @property
    def best(self) -> int:
        """Index of the ridge with the smallest leave-one-out error."""
        return int(np.argmin(self.leave_one_out))


def ridge_path(
    K: KernelMatrix, targets: ArrayLike, ridges: Sequence[float] | Array, *, weights: ArrayLike | None = None
) -> RidgePath:
    """Fit every ridge from one eigendecomposition W^½ K W^½ = Q Λ Qᵀ in float64.

    About ten times the cost of one Cholesky factor, and n² operations for each ridge afterwards. A ridge too small to
    make the matrix numerically positive definite gets infinite errors and NaN coefficients; the call raises if all do.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep.kernels import MatrixBlocks
    >>> from notsodeep.solvers import ridge_path
    >>> x = np.linspace(0, 1, 40)
    >>> K = np.exp(-8 * (x[:, None] - x) ** 2)
    >>> noisy = np.sin(6 * x) + 0.1 * np.random.default_rng(0).standard_normal(40)
    >>> path = ridge_path(MatrixBlocks(K), noisy, np.logspace(-6, 2, 9))
    >>> 0 < path.best < 8, path.coefficients.shape
    (True, (9, 40))
    """
    n = K.shape[0]
    values = matrix(targets, "targets", rank=1 if np.ndim(targets) == 1 else 2)
    if not K.symmetric or len(values) != n:
        raise InputError(f"K has shape {K.shape} and targets {values.shape}; pass (n, n) and n rows")
    candidates = np.array([nonnegative(ridge, "ridges") for ridge in ridges])
    if not len(candidates):
        raise InputError("ridges is empty; pass at least one value")
    if 24 * n * n > (free := available_memory()):
        raise InputError(f"an eigendecomposition of n = {n} needs {readable(24 * n * n)}, {readable(free)} are free")
    weight = diagonal_shift(1.0, weights, n)[1]
    root = np.sqrt(weight)
    A = np.array(K.astype("float64").block(slice(None), slice(None)))
    A *= root[:, None] * root
    eigenvalues, Q = scipy.linalg.eigh(A, overwrite_a=True, check_finite=False, driver="evd")
    rounding = n * float(np.finfo(np.float64).eps) * float(np.abs(eigenvalues).max())
    valid = eigenvalues[0] + candidates > rounding
    if not valid.any():
        raise NotPositiveDefiniteError(0, float(eigenvalues[0]), 2 * (rounding - eigenvalues[0]), "float64")
    Y = root[:, None] * values.reshape(n, -1)
    inverse = np.where(valid[:, None], 1 / np.where(valid[:, None], eigenvalues + candidates[:, None], 1.0), np.nan)
    projected = Q.T @ Y
    diagonal = np.empty((n, len(candidates)))  # ((W^½KW^½ + ridge)⁻¹)_ii
    for start in range(0, n, _ROWS):
        diagonal[start : start + _ROWS] = Q[start : start + _ROWS] ** 2 @ inverse.T
    coefficients = np.stack([Q @ (row[:, None] * projected) for row in inverse])  # (r, n, k)
    left_out = coefficients / diagonal.T[:, :, None]  # √w_i (y_i − f₋ᵢ(x_i))
    k = Y.shape[1]
    fit = np.einsum("rnk,nk->r", coefficients, Y)
    logdet = -np.log(inverse).sum(axis=1) - np.log(weight).sum()
    return RidgePath(
        candidates,
        np.where(valid, (left_out**2).sum(axis=(1, 2)) / (weight.sum() * k), np.inf),
        np.where(valid, n * (coefficients**2).mean(axis=2).sum(axis=1) / diagonal.sum(axis=0) ** 2, np.inf),
        np.where(valid, -0.5 * (fit + k * (logdet + n * math.log(2 * math.pi))), -np.inf),
        (root[:, None] * coefficients).reshape(len(candidates), *values.shape),
        eigenvalues,
    )
