"""Duals of piecewise-linear activations, in closed form through the bivariate normal distribution.

φ(x) = c₀ + s₀x + Σ bend (x − kink)₊, stored as constants = (c₀, s₀, number of kinks, kinks…, bends…). The
table of a sample has three rows per kink: kink/√q, P(u > kink) and E[(u − kink)₊].
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

__all__ = ["NEAR", "pieces_dual", "pieces_loss"]

NEAR = 1e-3  # 1 − ρ below which ½(G_ii + G_jj) − G is integrated instead of subtracted
_jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz"})
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_INV_2PI = 1 / (2 * math.pi)
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)


@_jit
def _tail(x: float) -> float:
    """P(ξ > x)."""
    return 0.5 * math.erfc(x * 0.7071067811865476)


@_jit
def _orthant(h: float, k: float, eta: float) -> float:
    """P(X > h, Y > k) for standard normals of correlation 1 − η.

    From the ρ = 1 end: Φ(−max(h, k)) − (1/2π) ∫₀^θ exp(−(h−k)²/(2 sin²x) − hk/(2 cos²(x/2))) dx, θ = arccos ρ,
    on panels that shrink geometrically towards the layer at x ~ |h − k|.
    """
    if eta > 1.0:  # negative correlation: reflect
        return max(_tail(h) - _orthant_positive(h, -k, 2.0 - eta), 0.0)
    return _orthant_positive(h, k, eta)


@_jit
def _orthant_positive(h: float, k: float, eta: float) -> float:
    theta = 2.0 * math.asin(math.sqrt(max(eta, 0.0) / 2.0))
    d = h - k
    distance = abs(d)
    low = 0.0
    if distance > 0:
        low = max(distance / 9.0, 1e-18)
    total = 0.0
    high = theta
    while high > low:
        left = low if low == 0.0 or high < 2.2 * low else high / 2.0
        half = (high - left) / 2.0
        middle = (high + left) / 2.0
        for n in range(_NODES.size):
            x = middle + half * _NODES[n]
            sine, cosine = math.sin(x), math.cos(x / 2.0)
            total += half * _WEIGHTS[n] * math.exp(-(d * d) / (2.0 * sine * sine) - h * k / (2.0 * cosine * cosine))
        high = left
    return max(_tail(max(h, k)) - _INV_2PI * total, 0.0)


@_jit
def pieces_dual(
    constants: Any, qi: float, qj: float, left: Any, i: int, right: Any, j: int, eta: float
) -> tuple[float, float]:
    """E[φ(u)φ(v)] and E[φ'(u)φ'(v)] for variances q_i, q_j and correlation 1 − η."""
    root = math.sqrt(qi) * math.sqrt(qj)
    rho = 1.0 - eta
    spread = math.sqrt(eta * (2.0 - eta))  # √(1 − ρ²)
    covariance = root * rho
    base, slope0, kinks = constants[0], constants[1], int(constants[2])
    G = base * base + slope0 * slope0 * covariance
    slope = slope0 * slope0
    for a in range(kinks):
        bend = constants[3 + kinks + a]
        # per kink: standardised position, P(u > kink), E[(u − kink)₊]
        G += bend * (
            base * (left[3 * a + 2, i] + right[3 * a + 2, j])
            + slope0 * covariance * (left[3 * a + 1, i] + right[3 * a + 1, j])
        )
        slope += slope0 * bend * (left[3 * a + 1, i] + right[3 * a + 1, j])
        for b in range(kinks):
            ka, kb = constants[3 + a], constants[3 + b]
            weight = bend * constants[3 + kinks + b]
            h, k = left[3 * a, i], right[3 * b, j]
            both = _orthant(h, k, eta)
            if spread > 0:
                # E[(u−a)₊(v−b)₊] = (Λ + ab)P − a√q_j φ(k)Φ(·) − b√q_i φ(h)Φ(·) + √(q_i q_j)(1−ρ²)φ₂(h, k)
                density = math.exp(-((h - k) ** 2) / (2 * spread * spread) - h * k / (1.0 + rho)) if rho > -1.0 else 0.0
                lifted = (
                    (covariance + ka * kb) * both
                    - ka * math.sqrt(qj) * _INV_SQRT_2PI * math.exp(-k * k / 2) * _tail((h - rho * k) / spread)
                    - kb * math.sqrt(qi) * _INV_SQRT_2PI * math.exp(-h * h / 2) * _tail((k - rho * h) / spread)
                    + root * spread * _INV_2PI * density
                )
            elif rho > 0:  # v = u √(q_j/q_i): one variable
                top = max(h, k)
                at = _INV_SQRT_2PI * math.exp(-top * top / 2)
                lifted = root * (both + top * at) - (ka * math.sqrt(qj) + kb * math.sqrt(qi)) * at + ka * kb * both
            else:  # v = −u √(q_j/q_i)
                inside = max(0.5 * (math.erf(-k * 0.7071067811865476) - math.erf(h * 0.7071067811865476)), 0.0)
                lifted = 0.0
                if -k > h:
                    at_h, at_k = _INV_SQRT_2PI * math.exp(-h * h / 2), _INV_SQRT_2PI * math.exp(-k * k / 2)
                    second = inside + h * at_h + k * at_k
                    first = at_h - at_k
                    lifted = -root * second + first * (ka * math.sqrt(qj) - kb * math.sqrt(qi)) + ka * kb * inside
            G += weight * lifted
            slope += weight * both
    return G, slope


@_jit
def _slope(constants: Any, left: Any, i: int, right: Any, j: int, eta: float) -> float:
    """E[φ'(u)φ'(v)] alone."""
    slope0, kinks = constants[1], int(constants[2])
    slope = slope0 * slope0
    for a in range(kinks):
        bend = constants[3 + kinks + a]
        slope += slope0 * bend * (left[3 * a + 1, i] + right[3 * a + 1, j])
        for b in range(kinks):
            slope += bend * constants[3 + kinks + b] * _orthant(left[3 * a, i], right[3 * b, j], eta)
    return slope


@_jit
def _value(constants: Any, x: float) -> float:
    """φ(x) without its constant."""
    kinks = int(constants[2])
    total = constants[1] * x
    for a in range(kinks):
        total += constants[3 + kinks + a] * max(x - constants[3 + a], 0.0)
    return total


@_jit
def pieces_loss(constants: Any, qi: float, qj: float, left: Any, i: int, right: Any, j: int, eta: float) -> float:
    """½E(φ(u) − φ(v))² for small η, with all its digits.

    At ρ = 1 it is ½E(φ(√q_i ξ) − φ(√q_j ξ))², a one-dimensional integral of a difference; from there it grows by
    √(q_i q_j) ∫₀^η Ġ, because ∂G/∂Λ = Ġ (Price). The substitution η' = ηs² removes the root at 0.
    """
    root_i, root_j = math.sqrt(qi), math.sqrt(qj)
    kinks = int(constants[2])
    total = 0.0
    if root_i != root_j:
        edges = np.empty(10 + 2 * kinks)
        for a in range(10):
            edges[a] = -9.0 + 2.0 * a
        for a in range(kinks):
            edges[10 + 2 * a] = min(max(left[3 * a, i], -9.0), 9.0)
            edges[11 + 2 * a] = min(max(right[3 * a, j], -9.0), 9.0)
        edges.sort()
        for a in range(edges.size - 1):
            half = (edges[a + 1] - edges[a]) / 2
            middle = (edges[a + 1] + edges[a]) / 2
            if half > 0:
                for n in range(_NODES.size):
                    x = middle + half * _NODES[n]
                    difference = _value(constants, root_i * x) - _value(constants, root_j * x)
                    total += half * _WEIGHTS[n] * _INV_SQRT_2PI * math.exp(-x * x / 2) * difference * difference / 2
    growth = 0.0
    for n in range(_NODES.size):
        s = (1 + _NODES[n]) / 2
        growth += _WEIGHTS[n] * s * _slope(constants, left, i, right, j, eta * s * s)
    return total + root_i * root_j * eta * growth
