"""One analytic function of the correlation gap, as a short polynomial with a measured error.

The kernels of a data set on the sphere, or of a positively homogeneous activation on any data, are
functions of one variable t per pair. At t = 1 they have a square-root branch point, which u = √(1 − t)
removes. There may be up to two more on the real u axis just outside the range; one more root removes one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.fft import dct

__all__ = ["ABOVE", "BELOW", "COSINE", "ROOT", "Polynomial", "Variable", "fit"]

Array: TypeAlias = NDArray[Any]

_NODES = 96
_MAX_DEGREE = 48
COSINE, ROOT, ABOVE, BELOW = range(4)  # codes of the variables below, for the compiled pass
GROUP = 4  # the compiled pass evaluates this many Horner steps per sweep


@dataclass(frozen=True)
class Variable:
    """The polynomial's argument before it is mapped to [−1, 1], for u in [0, largest].

    ``"t"``: 1 − u²; ``"u"``: u; ``"above"``: √(branch − u); ``"below"``: √(branch + u). The distance from the other
    end, `beyond` = largest − u, is passed with u because it has full relative accuracy there.
    """

    name: str
    largest: float
    branch: float = 0.0

    @property
    def code(self) -> int:
        return {"t": COSINE, "u": ROOT, "above": ABOVE, "below": BELOW}[self.name]

    def __call__(self, u: Array, beyond: Array) -> Array:
        if self.name == "t":
            return 1 - u * u
        if self.name == "u":
            return u
        return np.sqrt((self.branch - self.largest) + beyond if self.name == "above" else self.branch + u)

    def inverse(self, value: Array) -> tuple[Array, Array]:
        """Return u and `beyond`."""
        if self.name == "above":
            beyond = np.clip(value**2 - (self.branch - self.largest), 0.0, self.largest)
            return self.largest - beyond, beyond
        if self.name == "t":
            value = np.sqrt(np.maximum(1 - value, 0))
        elif self.name == "below":
            value = value**2 - self.branch
        u = np.clip(value, 0.0, self.largest)
        return u, self.largest - u

    def __str__(self) -> str:
        return {"t": "t", "u": "√(1−t)", "above": "√(u₂−√(1−t))", "below": "√(u₁+√(1−t))"}[self.name]


@dataclass(frozen=True)
class Polynomial:
    """Σ c_k yᵏ with y = slope · variable + offset, for several functions at once.

    Attributes
    ----------
    coefficients : array (functions, GROUP·m + 1)
        Highest power first, zero-padded at the front.
    error : array (functions,)
        max |polynomial − function| / max |function| over a grid that shares no point with the fit,
        evaluated in the dtype of the computation.
    """

    variable: Variable
    slope: float
    offset: float
    coefficients: Array
    degree: int
    error: Array

    def __call__(self, u: Array, beyond: Array) -> Array:
        y = (self.slope * self.variable(u, beyond) + self.offset).astype(self.coefficients.dtype)
        total = np.zeros((len(self.coefficients), *np.shape(u)), self.coefficients.dtype)
        for column in self.coefficients.T:
            total = total * y + column[:, None]
        return total


def fit(function: Callable[[Array, Array], Array], variables: Sequence[Variable], dtype: Any) -> Polynomial | None:
    """Return the shortest polynomial for `function` on u ∈ [0, largest], or None where no moderate degree suffices.

    Parameters
    ----------
    function : callable
        Maps u and largest − u, both of shape (k,), to values of shape (functions, k), exact to rounding.
    variables : sequence of Variable
        Candidates with the same `largest`, √(1 − t) at the smallest t; the one of lowest degree wins.
    dtype : dtype
        Of the evaluation; decides degree and acceptance.
    """
    single = np.dtype(dtype) == np.float32
    target, accept = (2e-8, 5e-7) if single else (4e-16, 2e-13)
    best: tuple[int, Variable, float, float, Array] | None = None
    points = chebyshev.chebpts1(_NODES)
    largest = variables[0].largest
    for variable in variables:
        ends = variable(np.array([0.0, largest]), np.array([largest, 0.0]))
        low, high = float(ends.min()), float(ends.max())
        values = function(*variable.inverse(low + (high - low) * (points + 1) / 2))
        # at the Chebyshev points the coefficients are a discrete cosine transform
        coefficients = dct(values[:, ::-1], type=2, axis=1).T / _NODES
        coefficients[0] /= 2
        scale = np.max(np.abs(values), axis=1) + 1e-300
        # tails[k] = max |c_j| over j ≥ k, across the functions; its end is the noise of the samples
        tails = np.maximum.accumulate(np.abs(coefficients / scale).max(axis=1)[::-1])[::-1]
        noise = float(tails[_NODES // 2])
        degree = max(int(np.argmax(tails <= max(target, 2 * noise))) - 1, 1)
        if noise < accept and degree <= _MAX_DEGREE and (best is None or degree < best[0]):
            slope = 2 / (high - low)
            best = degree, variable, slope, -1 - slope * low, coefficients[: degree + 1]
    if best is None:
        return None
    degree, variable, slope, offset, coefficients = best
    padded = np.zeros((coefficients.shape[1], 1 + GROUP * -(-degree // GROUP)), dtype)
    for row, column in zip(padded, coefficients.T, strict=True):
        monomials = chebyshev.cheb2poly(column)
        row[row.size - monomials.size :] = monomials[::-1]
    candidate = Polynomial(variable, slope, offset, padded, degree, np.zeros(len(padded)))
    # evenly between the ends, and towards each of them in steps of its distance
    inner, towards = largest * (np.arange(600) + 1 / math.pi) / 600, largest * 10.0 ** -np.arange(1.0, 17.0, 0.37)
    u = np.concatenate([[0.0], towards, inner, largest - towards, [largest]])
    beyond = np.concatenate([[largest], largest - towards, largest - inner, towards, [0.0]])
    truth = function(u, beyond)
    error = np.max(np.abs(candidate(u, beyond) - truth), axis=1) / np.max(np.abs(truth), axis=1)
    if np.any(error > accept):
        return None
    return Polynomial(variable, slope, offset, padded, degree, error)
