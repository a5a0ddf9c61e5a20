"""Spectral norms of symmetric matrices, and distances measured in them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse.linalg import eigsh

__all__ = ["distance", "rescaled_distance", "spectral_norm"]

Array = NDArray[Any]


def spectral_norm(matrix: Array) -> float:
    """‖M‖ of a symmetric matrix, by Lanczos.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep.norms import spectral_norm
    >>> round(spectral_norm(np.diag([1.0, -5.0, 2.0])), 12)
    5.0
    """
    if not matrix.any():
        return 0.0  # Lanczos cannot start
    if len(matrix) < 3:
        return float(np.linalg.norm(matrix, 2))
    start = np.random.default_rng(0).normal(size=len(matrix))
    value = eigsh(matrix, k=1, which="LM", v0=start, return_eigenvectors=False, tol=1e-8)
    return float(np.abs(value[0]))


def distance(exact: Array, other: Array) -> float:
    """‖M − N‖/‖M‖ of two symmetric matrices."""
    return spectral_norm(exact - other) / spectral_norm(exact)


def rescaled_distance(exact: Array, other: Array) -> float:
    """min_s ‖M − sN‖/‖M‖.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep.norms import distance, rescaled_distance
    >>> M, N = np.diag([2.0, 4.0, 6.0]), np.diag([1.0, 2.0, 3.0])
    >>> round(distance(M, N), 12), rescaled_distance(M, N) < 1e-4
    (0.5, True)
    """
    norm = spectral_norm(exact)

    def error(factor: float) -> float:
        return spectral_norm(exact - factor * other) / norm

    # convex in the factor; the least-squares one is close to the best
    start = float(np.vdot(exact, other) / np.vdot(other, other))
    bracket = (min(start, 1.0) * 0.98, max(start, 1.0) * 1.02)
    best = minimize_scalar(error, bracket=bracket, tol=1e-4, options={"maxiter": 12})
    return min(error(1.0), error(start), float(best.fun))
