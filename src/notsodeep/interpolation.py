"""Polynomials through Chebyshev nodes, for tables of functions on short intervals."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

__all__ = ["CHEBYSHEV", "DEGREE", "beyond_cubic", "chebyshev", "monomials"]

Array: TypeAlias = NDArray[Any]

DEGREE = 15

# row j: the monomials of T_j
_MONOMIALS = np.stack(
    [
        np.pad(np.polynomial.chebyshev.cheb2poly(unit[: j + 1]), (0, DEGREE - j))
        for j, unit in enumerate(np.eye(DEGREE + 1))
    ]
)
CHEBYSHEV = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
# values at the nodes → the nearest Σ_j a_j y⁴ T_j(y), j ≤ 11, in powers of y from the fourth on
_BEYOND = (
    np.linalg.pinv(CHEBYSHEV[:, None] ** 4 * np.polynomial.chebyshev.chebvander(CHEBYSHEV, DEGREE - 4)).T
    @ _MONOMIALS[: DEGREE - 3, : DEGREE - 3]
)


def chebyshev(values: Array) -> Array:
    """Coefficients of T_0 … T_15, one row for each row of values at the Chebyshev nodes."""
    fitted = dct(values, type=2, axis=1) / (DEGREE + 1)
    fitted[:, 0] /= 2
    return np.asarray(fitted)


def monomials(fitted: Array) -> Array:
    """The same polynomials in powers of y, lowest first."""
    return np.asarray(fitted @ _MONOMIALS)


def beyond_cubic(values: Array) -> Array:
    """Powers 4 … 15 of the polynomial y⁴p(y) that is nearest to the values at the Chebyshev nodes."""
    return np.asarray(values @ _BEYOND)
