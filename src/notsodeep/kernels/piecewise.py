"""A function of the cosine on short intervals, for kernels that one polynomial does not approximate well.

The variable is √(1 − |t|), separately for t ≥ 0 and t < 0, which removes the branch points at t = ±1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep import compilation
from notsodeep.kernels.layers import ends_of_rows

__all__ = ["Radii", "fit_pieces", "piecewise_pass"]

Array: TypeAlias = NDArray[Any]
Function: TypeAlias = Callable[[Array, Array], Array]

_DEGREE = 12
_HOPELESS = {16: 1e-2, 64: 1e-5, 256: 0.0}  # numbers of intervals; give up if the error is larger than this
_GOAL = 2e-13  # more intervals until the error is at most this
_NODES = np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
_WORST = np.cos(np.pi * np.array([0, 3, 6, 9, _DEGREE + 1]) / (_DEGREE + 1))  # between nodes, and both ends
_MONOMIALS = np.linalg.inv(np.vander(_NODES, increasing=True))
_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})


def fit_pieces(function: Function, accept: float) -> tuple[Array, float] | None:
    """Interpolate `function` of (u, √2 − u), u = √(1 − t), with values (kinds, points).

    Returns
    -------
    coefficients : array (kinds, 2, intervals, degree + 1)
        Of y ∈ [−1, 1], highest power first; index 1: t ≥ 0 or t < 0.
    error : float
        Between the nodes, relative to the value at t = 1: at most 2e-13 if a moderate number of intervals reaches it,
        else at most `accept`. None where none reaches that.
    """
    best: tuple[Array, float] | None = None
    for count, hopeless in _HOPELESS.items():
        middles = (2 * np.arange(count) + 1)[:, None]
        parts, error = [], 0.0
        for sign in (1, -1):
            roots = (middles + _NODES) / (2 * count)
            values = _at(function, roots.ravel(), sign).reshape(-1, count, _DEGREE + 1)
            middle = values[
                ..., _DEGREE // 2, None
            ]  # at y = 0; the matrix is large, so its rounding should meet little
            monomials = (values - middle) @ _MONOMIALS.T
            monomials[..., :1] += middle
            parts.append(monomials[:, :, ::-1])
            truth = _at(function, ((middles + _WORST) / (2 * count)).ravel(), sign).reshape(-1, count, _WORST.size)
            found = parts[-1] @ np.vander(_WORST, _DEGREE + 1).T
            if sign > 0:
                top = np.abs(_at(function, np.zeros(1), 1))
            error = max(error, float(np.max(np.abs(found - truth).reshape(len(top), -1) / top)))
        if error <= accept and (best is None or error < best[1]):
            best = np.ascontiguousarray(np.stack(parts, axis=1)), error
        if error <= _GOAL or error > hopeless:
            break
    return best


def _at(function: Function, root: Array, sign: int) -> Array:
    """The function where 1 − sign·t = root²."""
    if sign > 0:
        return function(root, math.sqrt(2) - root)
    u = np.sqrt(2 - root**2)
    return function(u, root**2 / (math.sqrt(2) + u))


class Radii(NamedTuple):
    """Per-sample arguments of `piecewise_pass`: x = factor · row, ‖x‖, and the factor of its kernel."""

    factor: Any
    norm: Any
    radius: Any


@_jit
def piecewise_pass(
    out: Any, X: Any, Y: Any, left: Any, right: Any, coefficients: Any, cut: float, rounding: float,
    i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> int:  # fmt: skip
    """Turn Gram entries in out[0] into kernels r_i r_j F_k(t); cut, rounding: see `ends_of_rows`."""
    intervals, degree = coefficients.shape[2], coefficients.shape[3] - 1
    recomputed = 0
    for i in range(i0, i1):
        for j in range(max(j0, i + 1) if symmetric else j0, j1):
            product, lengths = np.float64(out[0, i, j]) * left.factor[i] * right.factor[j], left.norm[i] * right.norm[j]
            small, side = 1.0, 0
            if lengths > 0:
                pair, again = ends_of_rows(X, Y, left, i, right, j, product, cut, rounding)
                recomputed += again
                side = 0 if pair.near <= pair.far else 1
                small = min(max(min(pair.near, pair.far) / lengths, 0.0), 1.0)
            place = math.sqrt(small) * intervals
            piece = min(int(place), intervals - 1)
            y = 2.0 * (place - piece) - 1.0
            for k in range(coefficients.shape[0]):
                row = coefficients[k, side, piece]
                total = row[0]
                for d in range(1, degree + 1):
                    total = total * y + row[d]
                out[k, i, j] = left.radius[i] * right.radius[j] * total
    return recomputed
