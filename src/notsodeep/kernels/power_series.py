"""A power series with non-negative coefficients and an algebraic tail, k(t) = Σ b_k tᵏ on |t| ≤ 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from notsodeep import compilation
from notsodeep.hermite import HermiteSeries, bend_coefficients, log_coefficients

__all__ = ["PowerSeries"]

Array: TypeAlias = NDArray[Any]

_FADED = -600.0  # e^−600 is nothing, and no slow denormal number
_BLOCK = 256  # points at a time
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


@dataclass(frozen=True)
class PowerSeries:
    """b̂_k: known for k < K, and a power law beyond.

    Attributes
    ----------
    b : array (K,)
    law : array (2, terms)
        b̂_k = B_s(k) Σ_i law[k mod 2, i] (start/k)^i for k ≥ K, with B_s(k) the coefficient of tᵏ in (1 − t)^s.
    """

    b: Array
    law: Array
    exponent: float = math.inf
    start: float = 1.0

    @staticmethod
    def finite(b: Array) -> PowerSeries:
        return PowerSeries(b, np.zeros((2, 0)))

    @staticmethod
    def with_tail(b: Array, exponent: float, terms: int, start: int) -> PowerSeries:
        """Fit the law to the orders from `start` on, and blend from b to it; oscillations in √k average out."""
        K = b.size
        k = np.arange(start, K)
        fade = (np.sqrt(k) - math.sqrt(start)) / (math.sqrt(K) - math.sqrt(start))
        window = np.sin(np.pi * fade) ** 4
        law = np.zeros((2, terms))
        values = b.copy()
        for parity in (0, 1):
            mine = k % 2 == parity
            if b[k[mine]].max() < 1e-15 * b.sum():
                values[k[mine]] = 0.0
                continue
            powers = (start / k[mine][:, None]) ** np.arange(terms)
            front = _binomial(exponent, k[mine])
            law[parity] = np.linalg.lstsq(
                powers * window[mine][:, None], b[k[mine]] / front * window[mine], rcond=1e-10
            )[0]
            share = special.betainc(8, 8, fade[mine])
            values[k[mine]] += share * (front * (powers @ law[parity]) - b[k[mine]])
        return PowerSeries(np.maximum(values, 0.0), law, exponent, start)

    def tail(self, k: Array, parity: int) -> Array:
        """b̂_k of the law at (real) k."""
        powers = (self.start / k[:, None]) ** np.arange(self.law.shape[1])
        return _binomial(self.exponent, k) * np.maximum(powers @ self.law[parity], 0.0)

    def __call__(self, gap: Array, sign: float) -> tuple[Array, Array]:
        """k̂(t) and dk̂/dt for t = sign·(1 − gap), 0 ≤ gap ≤ 1."""
        t = sign * (1 - gap)
        total, slope = np.zeros_like(t), np.zeros_like(t)
        _horner(self.b, t, total, slope)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            rate = np.log1p(-gap)  # log |t|
            for parity in (0, 1):
                if self.law.shape[1] and self.law[parity].any():
                    value, lift = self._beyond(parity, rate)
                    total = total + sign**parity * value
                    slope = slope + sign ** (parity + 1) * lift / np.maximum(1 - gap, 1e-300)
        return total, slope

    def values(self, gap: Array, sign: float, tangent: bool = False) -> Array:
        """k̂(t), or Σ (1 + k) b̂_k tᵏ if `tangent`."""
        total, slope = self(gap, sign)
        return total + sign * (1 - gap) * slope if tangent else total

    def _beyond(self, parity: int, rate: Array) -> tuple[Array, Array]:
        """Σ b̂_k |t|ᵏ and Σ k b̂_k |t|ᵏ over k ≥ K of one parity, by Euler–Maclaurin on blocks of doubling length."""
        first = self.b.size + (self.b.size + parity) % 2
        edges = math.log(first) + math.log(2) * np.arange(64)
        half = np.diff(edges)[:, None] / 2
        k = np.exp((edges[:-1, None] + half) + half * _NODES).ravel()
        mass = self.tail(k, parity) * k * (half * _WEIGHTS).ravel() / 2
        fading = np.exp(np.maximum(np.multiply.outer(rate, k), _FADED))
        end = self.tail(np.array([float(first)]), parity)[0] * np.where(
            rate * first > _FADED, np.exp(rate * first), 0.0
        )
        growth = rate - (1 + self.exponent) / first  # f'/f at the first order
        edge = end * (0.5 - growth / 6 + growth**3 / 90)
        slope = end * (0.5 * first - (1 + growth * first) / 6)
        return fading @ mass + np.where(end > 0, edge, 0.0), fading @ (mass * k) + np.where(end > 0, slope, 0.0)

    @staticmethod
    def of(shape: HermiteSeries) -> PowerSeries:
        """E[φ₀(u)φ₀(v)] of standard normals with correlation t: the squares of the Hermite coefficients."""
        K = max(len(shape.coefficients), 256)
        if not shape.kinks:
            return PowerSeries.finite(shape.order(K) ** 2)
        start, most = K // 2, 32 * K
        law = np.zeros((2, 6))
        for parity, factors, known in ((0, shape.bends, bend_coefficients), (1, shape.logs, log_coefficients)):
            if any(factors):
                k = np.unique(np.geomspace(start, most - 2, 400).astype(int) // 2 * 2 + parity)
                total = sum(factor * known(j, most)[k] for j, factor in enumerate(factors))
                powers = (start / k[:, None]) ** np.arange(6)
                law[parity] = np.linalg.lstsq(powers, total**2 / _binomial(1.5, k), rcond=1e-14)[0]
        return PowerSeries(shape.order(K) ** 2, law, 1.5, start)


@compilation.jit(nogil=True, error_model="numpy")
def _horner(b: Any, t: Any, total: Any, slope: Any) -> None:
    """Σ b_k tᵏ and its derivative, on blocks of points that stay in the cache."""
    for start in range(0, t.size, _BLOCK):
        part = t[start : start + _BLOCK]
        value, change = total[start : start + _BLOCK], slope[start : start + _BLOCK]
        for k in range(b.size - 1, -1, -1):
            coefficient = b[k]
            for j in range(part.size):
                change[j] = change[j] * part[j] + value[j]
                value[j] = value[j] * part[j] + coefficient


def _binomial(s: float, k: Array) -> Array:
    """The size of the coefficient of tᵏ in (1 − t)^s, Γ(k − s)/(Γ(k + 1)|Γ(−s)|), for real k > s."""
    far = np.maximum(k, 1e4)  # differences of large logarithms lose digits
    series = 1 + s * (s + 1) / (2 * far) * (1 + (s + 2) * (3 * s + 1) / (12 * far))
    ratio = np.where(k < 1e4, np.exp(special.gammaln(k - s) - special.gammaln(k + 1)), far ** (-1 - s) * series)
    return ratio * abs(special.rgamma(-s))
