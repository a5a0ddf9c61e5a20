"""A power series with non-negative coefficients and an algebraic tail, k(t) = Σ b_k tᵏ on |t| ≤ 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from notsodeep import compilation
from notsodeep.bends import bend_coefficients, log_coefficients, size_squared
from notsodeep.hermite import HermiteSeries

__all__ = ["PowerSeries"]

Array: TypeAlias = NDArray[Any]

_FADED = -600.0  # e^−600 is nothing, and no slow denormal number
_BLOCK = 256  # points at a time
_OCTAVES = 90
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_GREGORY = (1 / 2, -1 / 12, 1 / 24, -19 / 720, 3 / 160)
_SPACING = 0.55  # of log λ: a power of k is a sum of e^{−λk} to 1e-8 of its size, and least squares do better
_ROUNDS, _FIRST = 16, 5  # most steps of Gauss–Newton, and those that may lead away


@dataclass(frozen=True)
class PowerSeries:
    """b̂_k: known for k < K, and beyond

        b̂_k = A(k)² (Σ_i factors[k mod 2, i] e^{−λ_i k})²,    A(k)² = E[|ξ| h_k(ξ)]² ~ k^{−5/2}.

    Attributes
    ----------
    b : array (K,)
    factors : array (2, terms)
    decays : array (terms,)
        λ_i ≥ 0.
    """

    b: Array
    factors: Array
    decays: Array

    @staticmethod
    def finite(b: Array) -> PowerSeries:
        return PowerSeries(b, np.zeros((2, 0)), np.zeros(0))

    @staticmethod
    def of(shape: HermiteSeries) -> PowerSeries:
        """E[φ₀(u)φ₀(v)] of standard normals with correlation t: the squares of the Hermite coefficients."""
        b = shape.order(shape.orders) ** 2
        # those of x log|x| are π/2 times as large
        factors = np.array([shape.bends, np.multiply(shape.logs, math.pi / 2)])
        return PowerSeries(b, factors, np.asarray(shape.decays))

    @staticmethod
    def fitted(b: Array, gap: Array, goals: Array, tangent: bool) -> PowerSeries:
        """Keep b_k, k < K, and fit the factors to k(±(1 − gap)) = goals (2, gaps) itself, by Gauss–Newton.

        Between K/16 and K the series passes from b to its law in equal steps of √k, so that oscillations in √k, which
        kinks away from 0 leave, average out.
        """
        K = b.size
        order, start = np.arange(K), K // 16
        fade = (np.sqrt(order) - math.sqrt(start)) / (math.sqrt(K) - math.sqrt(start))
        share = special.betainc(8, 8, np.clip(fade, 0, 1))
        fastest, slowest = math.log(min(4 / start, 1.0)), math.log(1e-12 if tangent else 1e-9)
        decays = np.concatenate([[0.0], np.exp(np.arange(fastest, slowest, -_SPACING))])
        factors, values = np.zeros((2, decays.size)), b.copy()
        with np.errstate(divide="ignore"):
            rate = np.log1p(-gap)
        for parity, sign in ((0, 1), (1, -1)):
            mine = np.arange(start + (start + parity) % 2, K, 2)
            if b[mine].max() < 1e-15 * b.sum():
                values[mine] = 0.0
                continue
            kept = np.where(order % 2 == parity, (1 - share) * b, 0.0)
            goal = (goals[0] + sign * goals[1]) / 2 - PowerSeries.finite(kept).values(gap, 1.0, tangent)
            beyond, weight = _rule(K + (K + parity) % 2)
            k, weight = np.concatenate([mine, beyond]), np.concatenate([share[mine], weight])
            weight = weight * size_squared(k) * (1 + k if tangent else 1.0)
            powers, fading = _powers(rate, k), np.exp(-np.multiply.outer(k, decays))
            upper = mine[mine >= K // 2]
            factors[parity] = _square_root_fit(
                powers * weight, fading, goal, math.sqrt(float(np.mean(b[upper] / size_squared(upper))))
            )
            law = size_squared(mine) * (fading[: mine.size] @ factors[parity]) ** 2
            values[mine] += share[mine] * (law - b[mine])
        return PowerSeries(values, factors, decays)

    @staticmethod
    def changes(shape: HermiteSeries, decays: Array, gap: Array, tangent: bool) -> tuple[Array, Array]:
        """dk̂/df for bends f |x| (even) and (2/π) f x log|x| (odd) with these decays that are added to the function.

        Two arrays (gaps, decays) for t = 1 − gap: 2 Σ c_k A(k) e^{−λk} tᵏ over even and over odd orders.
        """
        with np.errstate(divide="ignore"):
            rate = np.log1p(-gap)
        known = shape.order(shape.orders)
        found = []
        for parity, (factors, own) in enumerate(
            ((shape.bends, bend_coefficients(known.size)), (shape.logs, log_coefficients(known.size) * (2 / math.pi)))
        ):
            first = np.arange(parity, known.size, 2)
            beyond, weight = _rule(known.size + (known.size + parity) % 2)
            tail = (
                np.exp(-np.multiply.outer(beyond, shape.decays)) @ np.asarray(factors) * (math.pi / 2 if parity else 1)
            )
            k = np.concatenate([first, beyond])
            mass = 2 * np.concatenate([known[first] * own[first], weight * size_squared(beyond) * tail])
            mass *= 1 + k if tangent else 1.0
            found.append(_powers(rate, k) * mass @ np.exp(-np.multiply.outer(k, decays)))
        return found[0], found[1]

    def __call__(self, gap: Array, sign: float) -> tuple[Array, Array]:
        """k̂(t) and dk̂/dt for t = sign·(1 − gap), 0 ≤ gap ≤ 1."""
        t = sign * (1 - gap)
        total, slope = np.zeros_like(t), np.zeros_like(t)
        _horner(self.b, t, total, slope)
        with np.errstate(divide="ignore"):
            rate = np.log1p(-gap)  # log |t|
        for parity, factors in enumerate(self.factors):
            if factors.any():
                k, weight = _rule(self.b.size + (self.b.size + parity) % 2)
                mass = weight * size_squared(k) * (np.exp(-np.multiply.outer(k, self.decays)) @ factors) ** 2
                powers = _powers(rate, k)
                total = total + sign**parity * (powers @ mass)
                slope = slope + sign ** (parity + 1) * (powers @ (mass * k)) / np.maximum(1 - gap, 1e-30)
        return total, slope

    def values(self, gap: Array, sign: float, tangent: bool = False) -> Array:
        """k̂(t), or Σ (1 + k) b̂_k tᵏ if `tangent`."""
        total, slope = self(gap, sign)
        return total + sign * (1 - gap) * slope if tangent else total


def _rule(first: int) -> tuple[Array, Array]:
    """Orders and weights: Σ f(k) over k = first, first + 2, … for f smooth in log k, by Gregory's formula.

    The integral on octaves, and differences of the first orders for what the sum has more.
    """
    edges = math.log(first) + math.log(2) * np.arange(_OCTAVES + 1)
    half = math.log(2) / 2
    k = np.exp(np.add.outer(edges[:-1] + half, half * _NODES)).ravel()
    near = np.zeros(len(_GREGORY))
    for n, factor in enumerate(_GREGORY):
        near[: n + 1] += [factor * (-1) ** (n - j) * math.comb(n, j) for j in range(n + 1)]
    weight = k * np.tile(half * _WEIGHTS, _OCTAVES) / 2
    return np.concatenate([first + 2.0 * np.arange(near.size), k]), np.concatenate([near, weight])


def _powers(rate: Array, k: Array) -> Array:
    """|t|ᵏ for log |t| = rate, which may be −∞."""
    return np.asarray(np.exp(np.maximum(np.multiply.outer(rate, k), _FADED)))


def _square_root_fit(summed: Array, basis: Array, goal: Array, start: float) -> Array:
    """f with summed @ (basis @ f)² ≈ goal, from (start, 0, 0, …): Newton's square root of a function."""
    factors = np.zeros(basis.shape[1])
    factors[0] = start
    best, smallest = factors, math.inf
    for step in range(_ROUNDS):
        root = basis @ factors
        missing = goal - summed @ root**2
        size = float(np.abs(missing).max())
        if size < smallest:
            best = factors
        elif step > _FIRST:
            break
        smallest = min(size, smallest)
        factors = factors + np.linalg.lstsq(2 * (summed * root) @ basis, missing, rcond=1e-13)[0]
    return best


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
