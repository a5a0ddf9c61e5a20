"""Functions of a positive variable on many points, through Chebyshev interpolation in its logarithm.

A per-sample quantity (a variance, a Hermite coefficient) is an analytic function of the sample's norm.
A few dozen exact evaluations then serve any number of samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

__all__ = ["pointwise", "tabulate"]

Array: TypeAlias = NDArray[Any]

_FEW = 24  # for fewer distinct points interpolation does not pay
_MAX_NODES = 256
_WIDEST = 1e12
_CHUNK = 4096  # points evaluated at a time
_ROUNDING = 6 * float(np.finfo(np.float64).eps)  # of angles, cosines and their sum


def pointwise(function: Callable[[float], Any]) -> Callable[[Array], Array]:
    """Turn a function of one float with k values into one of an array (m,) with values (k, m)."""
    return lambda points: np.stack([np.atleast_1d(function(float(point))) for point in points], axis=1)


def tabulate(
    function: Callable[[Array], Array], x: Array, tolerance: float = 1e-14, *, joint: bool = False
) -> tuple[Array, float]:
    """f(x_i) for all i, shape (k, n) for a function with k values, and the estimated relative error.

    Parameters
    ----------
    function : callable
        Maps positive (or zero) points (m,) to values (k, m); smooth in log x. See :func:`pointwise`.
    x : array of shape (n,)
    tolerance : float
        Relative to max |f| over the range: of each component, or of all of them when `joint`.
    """
    unique, inverse = np.unique(x, return_inverse=True)
    span = unique[unique > 0]
    if unique.size <= _FEW or span[-1] / span[0] > _WIDEST:
        return function(unique)[:, inverse], 0.0
    low, high = np.log(span[0]), np.log(span[-1])

    def at(cosine: Array) -> Array:
        return function(np.exp(low + (high - low) * (cosine + 1) / 2))

    intervals = 16
    values = at(np.cos(np.pi * np.arange(intervals + 1) / intervals))
    while True:
        # f = Σ c_k T_k from its values at cos(πj/N), which are every other one of those for 2N
        coefficients = dct(values, type=1, axis=1) / intervals
        coefficients[:, [0, -1]] /= 2
        scale = np.max(np.abs(values), axis=1, keepdims=True) + 1e-300
        if joint:
            scale[:] = scale.max()
        tail = float(np.max(np.abs(coefficients[:, -4:]) / scale))
        if tail <= tolerance:
            break
        intervals *= 2
        if intervals > min(_MAX_NODES, 2 * unique.size):
            return function(unique)[:, inverse], 0.0
        finer = np.empty((len(values), intervals + 1))
        finer[:, ::2] = values
        finer[:, 1::2] = at(np.cos(np.pi * np.arange(1, intervals, 2) / intervals))
        values = finer
    positive = x > 0  # x = 0 has no logarithm
    where = np.log(x, where=positive, out=np.full(x.size, low))
    angle = np.arccos(np.clip(2 * (where - low) / (high - low) - 1, -1, 1))
    order = np.arange(intervals + 1)[:, None]
    result = np.empty((len(values), x.size))
    for start in range(0, x.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        np.matmul(coefficients, np.cos(order * angle[part]), out=result[:, part])
    if unique[0] == 0:
        result[:, ~positive] = function(unique[:1])
    return result, tail + _ROUNDING
