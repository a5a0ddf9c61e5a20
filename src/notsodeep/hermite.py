"""A function given by its Hermite coefficients, with what bends at 0 add to all orders:

    φ₀(x) = Σ_{k<K} c_k h_k(x) + Σ_i bend_i B_{λ_i}(x) + Σ_i log_i L_{λ_i}(x),    |x| ≤ R,

continued by straight lines beyond R = 7.5, where a standard Gaussian has 6e-14 of its mass. h_k are the orthonormal
Hermite polynomials; B_λ and L_λ are |x| and x log|x|, sharp for λ = 0 and rounded off otherwise
(:mod:`notsodeep.bends`). Their coefficients of order k fall like e^{−λk} k^{−5/4}, so the series has a tail of any
smooth shape and still is a short list of numbers. Values come from tables of polynomials on short intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep import compilation
from notsodeep.bends import Bends, bend_coefficients, log_coefficients
from notsodeep.checks import InputError
from notsodeep.interpolation import CHEBYSHEV, DEGREE, beyond_cubic, chebyshev, monomials

__all__ = ["RADIUS", "HermiteSeries", "hermite_sum"]

Array: TypeAlias = NDArray[Any]

RADIUS = 7.5
_MOST_COEFFICIENTS = 1 << 16
_MOST_BENDS = 128
_BLOCK = 256  # points at a time
_FEWEST, _MOST_INTERVALS = 31, 4095  # odd: one of them has its middle at 0
_FAR = 13.0  # a line times a Gaussian is below 1e-35 here
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_EPSILON = float(np.finfo(np.float64).eps)
_PLACES = np.geomspace(1e-12, RADIUS, 400)  # where the size of the terms is known
_SIGNALS = (np.arange(104) + 0.5) / 8  # half of a trapezoidal rule for a standard Gaussian
_DENSITY = np.exp(-(_SIGNALS**2) / 2) / math.sqrt(32 * math.pi)


class HermiteTable(NamedTuple):
    """A function on intervals of [−R, R]: polynomials of y ∈ [−1, 1], lowest order first, and their error."""

    coefficients: Array  # (intervals, degree + 1)
    error: float

    def __call__(self, x: Array, constant: float = 0.0) -> Array:
        """The function minus a constant, which costs no digits near 0 if it is the value there."""
        count = len(self.coefficients)
        rows = np.clip(((x / RADIUS + 1) * (count / 2)).astype(np.intp), 0, count - 1)
        # the middle of the middle interval is exactly 0, so small x keep their digits
        y = x * (count / RADIUS) - (2 * rows + 1 - count)
        total = np.zeros_like(y)
        for j in range(DEGREE, 0, -1):
            total = (total + self.coefficients[rows, j]) * y
        return total + (self.coefficients[rows, 0] - constant)


@dataclass(frozen=True)
class HermiteSeries:
    """The function above.

    Parameters
    ----------
    coefficients : tuple of float
        c_0 … c_{K−1}.
    bends, logs : tuple of float
        Factors of B_λ and of L_λ.
    decays : tuple of float
        λ of each of them.
    """

    coefficients: tuple[float, ...]
    bends: tuple[float, ...] = ()
    logs: tuple[float, ...] = ()
    decays: tuple[float, ...] = ()

    homogeneous = False

    def __post_init__(self) -> None:
        for name, most in (("coefficients", _MOST_COEFFICIENTS), ("bends", _MOST_BENDS), ("logs", _MOST_BENDS)):
            if len(getattr(self, name)) > most:
                raise InputError(f"{name} has {len(getattr(self, name))} entries; at most {most} are possible")
        if not len(self.bends) == len(self.logs) == len(self.decays):
            sizes = len(self.bends), len(self.logs), len(self.decays)
            raise InputError("bends, logs and decays have {}, {} and {} entries; pass as many of each".format(*sizes))
        for k, decay in enumerate(self.decays):
            if not 0 <= decay <= 1:
                raise InputError(f"decays[{k}]={decay!r} must lie between 0 and 1")
        if not any((*self.coefficients[1:], *self.bends, *self.logs)):
            raise InputError(f"coefficients={self.coefficients!r} make a constant; pass one of order 1 or more")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.coefficients, self.bends, self.logs, self.decays))

    # values -----------------------------------------------------------------------------------------------------

    def value(self, x: Array) -> Array:
        near = np.clip(x, -RADIUS, RADIUS).astype(np.float64)
        beyond = x - near
        total = self._inner(near) + np.where(beyond > 0, self._ends[0], self._ends[1]) * beyond + self.origin
        return np.asarray(total, dtype=np.result_type(x, np.float32))

    def departure(self, x: Array) -> tuple[Array, Array]:
        """g(x) = φ₀(x) − φ₀(0) and its even part."""
        size = np.minimum(np.abs(x), RADIUS).astype(np.float64)
        beyond = np.abs(x) - size
        forward, backward = (self._inner(sign * size) for sign in (1.0, -1.0))
        up, down = self._ends
        forward, backward = forward + up * beyond, backward - down * beyond
        return np.where(x >= 0, forward, backward), (forward + backward) / 2

    def derivative(self, x: Array) -> Array:
        near = np.clip(x, -RADIUS, RADIUS).astype(np.float64)
        result = np.where(x > RADIUS, self._ends[0], np.where(x < -RADIUS, self._ends[1], self._slope(near)))
        return result.astype(np.result_type(x, np.float32))

    def _inner(self, x: Array) -> Array:
        """φ₀(x) − φ₀(0) for |x| ≤ R."""
        return self.table(x, self._middle) + self.bent(x)

    def _slope(self, x: Array) -> Array:
        return np.asarray(self.slopes(x) + self.bent.derivative(x))

    @cached_property
    def bent(self) -> Bends:
        return Bends(self.bends, self.logs, self.decays, RADIUS)

    @cached_property
    def table(self) -> HermiteTable:
        """Σ c_k h_k."""
        return tabulated(np.asarray(self.coefficients))

    @cached_property
    def slopes(self) -> HermiteTable:
        """Σ c_k h_k', with h_k' = √k h_{k−1}."""
        return tabulated(_differentiated(np.asarray(self.coefficients)))

    @cached_property
    def _ends(self) -> tuple[float, float]:
        """The slopes at R and −R."""
        ends = np.array([RADIUS, -RADIUS])
        slopes = hermite_sum(_differentiated(np.asarray(self.coefficients)), ends) + self.bent.derivative(ends)
        return float(slopes[0]), float(slopes[1])

    # what others want to know -----------------------------------------------------------------------------------

    @cached_property
    def origin(self) -> float:
        """φ₀(0)."""
        return self._middle + self.bent.origin

    @property
    def _middle(self) -> float:
        return float(self.table.coefficients[len(self.table.coefficients) // 2, 0])

    @property
    def kinks(self) -> tuple[float, ...]:
        return (0.0,) if self.bends or self.logs else ()

    @property
    def breaks(self) -> tuple[float, ...]:
        """Where an integral over φ₀ should be split."""
        return (-RADIUS, 0.0, RADIUS)

    @cached_property
    def lipschitz(self) -> float:
        x = np.concatenate([np.linspace(0, RADIUS, 6001), [2 * RADIUS], 10.0 ** np.arange(-14, -3, 0.5)])
        return float(np.max(np.abs(self.derivative(np.concatenate([-x, x])))))

    @property
    def odd(self) -> bool:
        return not any(self.bends) and not any(self.coefficients[2::2])

    def order(self, count: int) -> Array:
        """E[φ₀(ξ) h_k(ξ)] for k < count: the coefficients with those of the bends, less what the straight ends lose."""
        total = np.zeros(count)
        for known in (np.asarray(self.coefficients[:count]), self._lost[:count]):
            total[: known.size] += known
        if self.decays:
            fading = np.exp(-np.multiply.outer(np.arange(count), self.decays))
            total += bend_coefficients(count) * (fading @ self.bends) + log_coefficients(count) * (fading @ self.logs)
        return total

    @cached_property
    def _lost(self) -> Array:
        """E[(φ₀ − Σ − bends)(ξ) h_k(ξ)], k < `orders`: the difference is 0 for |ξ| ≤ R."""
        coefficients = np.asarray(self.coefficients)
        waves = (math.sqrt(coefficients.size) + math.sqrt(self.orders)) / (2 * math.pi)
        panels = math.ceil(RADIUS * (1 + waves / 4))
        inner = np.linspace(0, RADIUS, panels + 1)
        edges = np.concatenate([inner, np.linspace(RADIUS, _FAR, panels + 1)[1:]])
        half = np.diff(edges)[:, None] / 2
        x = (edges[:-1, None] + half + half * _NODES).ravel()
        weight = (half * _WEIGHTS).ravel() * np.exp(-(x**2) / 4) / math.sqrt(2 * math.pi)
        outer = x > RADIUS
        both = []
        for sign, end in ((1.0, self._ends[0]), (-1.0, self._ends[1])):
            values = hermite_sum(coefficients, sign * np.where(outer, RADIUS, x))
            start = self.bent.beyond(np.array([sign * RADIUS]))
            values[outer] += sign * end * (x[outer] - RADIUS) + start - self.bent.beyond(sign * x[outer])
            both.append(weight * values)
        found = np.zeros(self.orders)
        _projected(np.sqrt(np.arange(self.orders + 1.0)), x, both[0] + both[1], both[0] - both[1], found)
        found[: coefficients.size] -= coefficients
        return found

    @property
    def orders(self) -> int:
        """Beyond these the bends alone are left; straight ends spread what they lose of a series with bends."""
        return max((4 if self.kinks else 1) * len(self.coefficients), 256)

    def noise(self, tau: Array) -> tuple[Array, Array]:
        """√E[δ²] at τξ, δ being the rounding of φ₀ − φ₀(0), and of φ₀'.

        Both are sums of terms h_k that grow like e^{x²/4} and may cancel; the table loses no more than the recurrence.
        """
        unit = self._unit_noise
        x = np.multiply.outer(tau, _SIGNALS)
        near = np.minimum(x, RADIUS)
        value, slope = (np.exp(np.interp(near, _PLACES, logarithm)) for logarithm in self._terms)
        value = np.minimum(value, near * slope) + (x - near) * slope  # exact at 0, straight beyond R
        return unit * np.sqrt(value**2 @ _DENSITY), unit * np.sqrt(slope**2 @ _DENSITY)

    @property
    def noise_at_zero(self) -> float:
        """The rounding of φ₀(0)."""
        return self._unit_noise * math.exp(float(self._terms[0][0]))

    @property
    def _unit_noise(self) -> float:
        """Rounding of a sum of terms, relative to the root of their squares."""
        return _EPSILON * (4 + math.sqrt(len(self.coefficients)) / 4)

    @cached_property
    def _terms(self) -> tuple[Array, Array]:
        """log √Σ(c_k h_k)² at `_PLACES`, and the same for the slope; the bends are two more terms."""
        last, current = np.zeros_like(_PLACES), np.ones_like(_PLACES)
        value, slope = self.bent(_PLACES) ** 2, self.bent.derivative(_PLACES) ** 2
        for k, coefficient in enumerate(self.coefficients):
            value = value + (coefficient * current) ** 2
            slope = slope + k * (coefficient * last) ** 2
            last, current = current, (_PLACES * current - math.sqrt(k) * last) / math.sqrt(k + 1)
        return np.log(value) / 2, np.log(slope) / 2

    def text(self, x: str) -> str:
        bends = f", {len(self.decays)} bends" if self.kinks else ""
        return f"hermite({x}; {len(self.coefficients)} orders{bends})"

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": "hermite",
            "coefficients": list(self.coefficients),
            "bends": list(self.bends),
            "logs": list(self.logs),
            "decays": list(self.decays),
        }


def tabulated(coefficients: Array) -> HermiteTable:
    """Chebyshev interpolation of Σ c_k h_k, on as many intervals as it needs."""
    count = _FEWEST
    while 2.5 * count < RADIUS * math.sqrt(coefficients.size) and 2 * count + 1 <= _MOST_INTERVALS:
        count = 2 * count + 1  # h_k has waves of length 2π/√k: fewer intervals cannot do
    while True:
        middles = (2 * np.arange(count) + 1 - count)[:, None]
        values = hermite_sum(coefficients, (middles + CHEBYSHEV) * (RADIUS / count))
        fitted = chebyshev(values)
        # h_k grows like e^{x²/4}, and rounding with the values
        size = np.linalg.norm(coefficients) * np.exp(((middles[:, 0] * RADIUS / count) ** 2) / 4)
        largest = np.abs(values).max(1)
        error = float(np.max(np.abs(fitted[:, -2:]) / (size + largest + 1e-300)[:, None]))
        fitted[np.abs(fitted) < 4e-16 * largest[:, None]] = 0.0  # rounding
        if error <= 2e-15 or 2 * count + 1 > _MOST_INTERVALS:
            break
        count = 2 * count + 1
    powers = monomials(fitted)
    rest, middle = values[count // 2], powers[count // 2]
    derivative, unit = coefficients, 1.0
    for j in range(4):  # the digits of small x
        middle[j] = unit * hermite_sum(derivative, np.zeros(1))[0]
        rest = rest - middle[j] * CHEBYSHEV**j
        derivative, unit = _differentiated(derivative), unit * (RADIUS / count) / (j + 1)
    middle[4:] = beyond_cubic(rest)
    return HermiteTable(powers, error)


def _differentiated(coefficients: Array) -> Array:
    """Of Σ c_k h_k': √k c_k for the order k − 1."""
    return coefficients[1:] * np.sqrt(np.arange(1, max(coefficients.size, 1)))


def hermite_sum(coefficients: Array, x: Array) -> Array:
    """Σ c_k h_k(x)."""
    places = np.ascontiguousarray(x, dtype=np.float64)
    total = np.zeros(places.shape)
    if coefficients.size:
        roots = np.sqrt(np.arange(coefficients.size + 1.0))
        _hermite_sum(np.ascontiguousarray(coefficients, dtype=np.float64), roots, places.reshape(-1), total.reshape(-1))
    return total


@compilation.jit(nogil=True, error_model="numpy")
def _hermite_sum(coefficients: Any, roots: Any, x: Any, total: Any) -> None:
    """By the recurrence √k h_k = x h_{k−1} − √(k−1) h_{k−2}, on blocks of points that stay in the cache."""
    last, current = np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, x.size, _BLOCK):
        part, result = x[start : start + _BLOCK], total[start : start + _BLOCK]
        last[:], current[:], result[:] = 0.0, 1.0, coefficients[0]
        for k in range(1, coefficients.size):
            before, inverse, coefficient = roots[k - 1], 1 / roots[k], coefficients[k]
            for j in range(part.size):
                following = (part[j] * current[j] - before * last[j]) * inverse
                last[j] = current[j]
                current[j] = following
                result[j] += coefficient * following


@compilation.jit(nogil=True, error_model="numpy")
def _projected(roots: Any, x: Any, even: Any, odd: Any, found: Any) -> None:
    """Σ_j h_k(x_j) e^{−x_j²/4} times `even` or `odd`, as k is."""
    last, current = np.zeros(x.size), np.exp(-x * x / 4)
    for k in range(found.size):
        found[k] = np.dot(current, odd if k % 2 else even)
        before, inverse = roots[k], 1 / roots[k + 1]
        for j in range(x.size):
            following = (x[j] * current[j] - before * last[j]) * inverse
            last[j] = current[j]
            current[j] = following
