"""Two functions that bend at 0, sharply or softly, with Hermite coefficients of all orders in closed form:

    B_λ(x) = E|rx + sξ|,    L_λ(x) = E[(rx + sξ) log|rx + sξ|],    r = e^{−λ},  s² = 1 − r²,  ξ ~ N(0, 1).

They are |x| and x log|x| after the Ornstein–Uhlenbeck semigroup, which multiplies the coefficient of order k by
e^{−λk} and rounds the bend off over a width of s. With z = rx/s and Λ(z) = E log|z + ξ|,

    B_λ = s (z erf(z/√2) + 2 pdf(z)),                    B_λ' = r erf(z/√2),
    L_λ = s (z (log s + Λ(z)) + √2 D(z/√2)),             L_λ' = r (1 + log s + Λ(z)),    D: Dawson's function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from notsodeep.interpolation import CHEBYSHEV, DEGREE, chebyshev, monomials

__all__ = [
    "TINY",
    "Bends",
    "bend_coefficients",
    "log_coefficients",
    "size_squared",
]

Array: TypeAlias = NDArray[Any]

TINY = 1e-13  # log|x| stays at log(TINY) below: the slope of x log|x| is bounded
_OCTAVES = 44  # of a graded table
_FAR = 12.0  # Λ(z) is its asymptotic series beyond, to 1e-16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


# --- Hermite coefficients -----------------------------------------------------------------------------------------


def bend_coefficients(count: int) -> Array:
    """E[|ξ| h_k(ξ)], k < count: √(2/π) Π_{i<k/2} (1 − 2i)/√k! for even k."""
    found = np.zeros(count)
    found[::2] = math.sqrt(2 / math.pi) * _products(0, found[::2].size)
    return found


def log_coefficients(count: int) -> Array:
    """E[ξ log|ξ| h_k(ξ)], k < count: (2 − γ − log 2)/2 for k = 1, and ±2·4·…·(k − 3)/√k! for odd k ≥ 3."""
    found = np.zeros(count)
    found[1:2] = (2 - np.euler_gamma - math.log(2)) / 2
    found[3::2] = _products(3, found[3::2].size) / math.sqrt(6)
    return found


def _products(first: int, count: int) -> Array:
    """1, then every step from order k to k + 2 multiplies by (1 − k)/√((k+1)(k+2)), from k = `first` on."""
    k = first + 2.0 * np.arange(max(count - 1, 0))
    return np.concatenate([[1.0], np.cumprod((1 - k) / np.sqrt((k + 1) * (k + 2)))])[:count]


def size_squared(k: Array) -> Array:
    """E[|ξ| h_k(ξ)]² = Γ((k−1)/2)/(π^{3/2} (k − 1) Γ(k/2 + 1)), for real k > 1; for odd k that of (2/π) x log|x|."""
    # with w = k/2 − 1/4 the ratio is w^{−3/2} times a series in 1/w²; differences of large logarithms lose digits
    w = np.maximum(k, 100.0) / 2 - 0.25
    square = 1 / (w * w)
    series = w**-1.5 * (1 + square * (5 / 64 + square * (21 / 8192 + square * 715 / 524288)))
    near = np.exp(special.gammaln((k - 1) / 2) - special.gammaln(k / 2 + 1))
    return np.asarray(np.where(k < 100, near, series) / (math.pi**1.5 * (k - 1)))


# --- values -------------------------------------------------------------------------------------------------------


def _mean_log(z: Array) -> Array:
    """Λ(z) = E log|z + ξ| for z ≥ 0: Λ' = √2 D(z/√2), and log z − Σ (2n−1)!!/(2n z^{2n}) far out."""
    near = np.minimum(z, _FAR)[..., None] / 2
    grown = near[..., 0] * (special.dawsn(near * (1 + _NODES) / math.sqrt(2)) @ _WEIGHTS) * math.sqrt(2)
    inverse, far = 1 / np.maximum(z, _FAR) ** 2, np.log(np.maximum(z, _FAR))
    term = np.ones_like(far)
    for n in range(1, 14):
        term = term * (2 * n - 1) * inverse
        far = far - term / (2 * n)
    return np.asarray(np.where(z < _FAR, grown - (np.euler_gamma + math.log(2)) / 2, far))


class Graded(NamedTuple):
    """A function of x > 0 on intervals that halve towards 0: polynomials of y ∈ [−1, 1], lowest order first."""

    coefficients: Array  # (2 octaves, degree + 1)
    radius: float

    @staticmethod
    def of(function: Callable[[Array], Array], radius: float) -> Graded:
        """Two intervals an octave: a logarithm at 0 is interpolated to 1e-16."""
        low = np.repeat(0.5 ** np.arange(1, _OCTAVES + 1), 2) * np.tile([1.0, 1.5], _OCTAVES) * radius
        half = np.repeat(0.5 ** np.arange(1, _OCTAVES + 1), 2) * radius / 4
        return Graded(monomials(chebyshev(function((low + half)[:, None] + half[:, None] * CHEBYSHEV))), radius)

    def __call__(self, x: Array) -> Array:
        mantissa, exponent = np.frexp(np.clip(x / self.radius, 0.5**_OCTAVES, 1 - 1e-16))
        upper = mantissa >= 0.75
        rows = -2 * exponent + upper
        y = 8 * mantissa - 5 - 2 * upper
        total = np.zeros_like(y)
        for j in range(DEGREE, 0, -1):
            total = (total + self.coefficients[rows, j]) * y
        return np.asarray(total + self.coefficients[rows, 0])


class Bends:
    """Σ_i bends_i (B_{λ_i} − B_{λ_i}(0)) + Σ_i logs_i L_{λ_i} for |x| ≤ radius, and its derivative.

    The sharp bends, λ = 0, as they are; the soft ones from graded tables of the even and the odd part, divided by |x|
    and x so that small x keep their digits.
    """

    def __init__(self, bends: tuple[float, ...], logs: tuple[float, ...], decays: tuple[float, ...], radius: float):
        decay = np.asarray(decays, dtype=np.float64)
        soft = decay > 0
        self.sharp, self.sharp_log = (float(np.asarray(f)[~soft].sum()) for f in (bends, logs))
        self._bends, self._logs = np.asarray(bends)[soft], np.asarray(logs)[soft]
        self._r, self._s = np.exp(-decay[soft]), np.sqrt(-np.expm1(-2 * decay[soft]))
        self.origin = float(self._bends @ self._s) * math.sqrt(2 / math.pi)
        self._radius = radius

    @cached_property
    def _tables(self) -> list[Graded]:
        parts = (self._even, self._odd, self._even_slope, self._odd_slope)
        return [Graded.of(part, self._radius) for part in parts]

    def _even(self, x: Array) -> Array:
        z = x[..., None] * (self._r / self._s)
        rise = z * special.erf(z / math.sqrt(2)) + math.sqrt(2 / math.pi) * np.expm1(-z * z / 2)
        return np.asarray(rise @ (self._bends * self._s) / x)

    def _odd(self, x: Array) -> Array:
        z = x[..., None] * (self._r / self._s)
        slope = np.log(self._s) + _mean_log(z) + math.sqrt(2) * special.dawsn(z / math.sqrt(2)) / z
        return np.asarray(slope @ (self._logs * self._r))

    def _even_slope(self, x: Array) -> Array:
        return np.asarray(special.erf(x[..., None] * (self._r / self._s) / math.sqrt(2)) @ (self._bends * self._r))

    def _odd_slope(self, x: Array) -> Array:
        slope = 1 + np.log(self._s) + _mean_log(x[..., None] * (self._r / self._s))
        return np.asarray(slope @ (self._logs * self._r))

    def _soft(self, x: Array, first: int) -> tuple[Array | float, Array | float]:
        return (self._tables[first](x), self._tables[first + 1](x)) if self._r.size else (0.0, 0.0)

    def beyond(self, x: Array) -> Array:
        """The same, without the tables, for any x ≠ 0."""
        size = np.abs(x)
        return self._sum(x, size, self._even(size), self._odd(size))

    def __call__(self, x: Array) -> Array:
        """The sum, less its value at 0."""
        size = np.abs(x)
        return self._sum(x, size, *self._soft(size, 0))

    def _sum(self, x: Array, size: Array, even: Array | float, odd: Array | float) -> Array:
        return np.asarray(size * (self.sharp + even) + x * (self.sharp_log * np.log(np.maximum(size, TINY)) + odd))

    def derivative(self, x: Array) -> Array:
        size = np.abs(x)
        even, odd = self._soft(size, 2)
        logarithm = np.log(np.maximum(size, TINY)) + (size >= TINY)
        return np.asarray(np.where(x > 0, 1.0, -1.0) * (self.sharp + even) + self.sharp_log * logarithm + odd)
