"""Scalar functions of a positive variable on many points, through Chebyshev interpolation in its logarithm.

A per-sample quantity (a variance, a Hermite coefficient) is an analytic function of the sample's norm.
A few dozen exact evaluations then serve any number of samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

__all__ = ["tabulate"]

Array: TypeAlias = NDArray[Any]

_FEW = 24  # below this many distinct points there is nothing to gain
_MAX_NODES = 192
_WIDEST = 1e12


def tabulate(
    function: Callable[[float], Any], x: Array, tolerance: float = 1e-14, *, joint: bool = False
) -> tuple[Array, float]:
    """f(x_i) for all i, shape (k, n) for a function with k values, and the estimated relative error.

    Parameters
    ----------
    function : callable
        Maps a positive (or zero) float to a number or a vector of k numbers; smooth in log x.
    x : array of shape (n,)
    tolerance : float
        Relative to max |f| over the range: of each component, or of all of them when `joint`.
    """
    unique, inverse = np.unique(x, return_inverse=True)
    span = unique[unique > 0]
    if unique.size <= _FEW or span[-1] / span[0] > _WIDEST:
        return _directly(function, unique)[:, inverse], 0.0
    low, high = np.log(span[0]), np.log(span[-1])
    nodes = 16
    while nodes <= min(_MAX_NODES, 2 * unique.size):
        points = chebyshev.chebpts1(nodes)
        values = _directly(function, np.exp(low + (high - low) * (points + 1) / 2))
        # discrete orthogonality of T_k at the Chebyshev points
        coefficients = chebyshev.chebvander(points, nodes - 1).T @ values.T * (2 / nodes)
        coefficients[0] /= 2
        scale = np.max(np.abs(values), axis=1) + 1e-300
        if joint:
            scale[:] = scale.max()
        tail = np.max(np.abs(coefficients[-4:]) / scale)
        if tail <= tolerance:
            where = 2 * (np.log(span) - low) / (high - low) - 1
            result = np.atleast_2d(chebyshev.chebval(where, coefficients))
            if unique.size > span.size:  # x = 0 has no logarithm
                result = np.concatenate([_directly(function, unique[:1]), result], axis=1)
            return result[:, inverse], float(tail)
        nodes *= 2
    return _directly(function, unique)[:, inverse], 0.0


def _directly(function: Callable[[float], Any], x: Array) -> Array:
    return np.stack([np.atleast_1d(function(float(point))) for point in x], axis=1)
