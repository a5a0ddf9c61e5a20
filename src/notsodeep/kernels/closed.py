"""Duals of smooth activations in closed form: erf, sin, cos, e^{−x²/2} and gelu, for any variances.

For φ₀ at variances p, r and covariance Λ; pr − Λ² is formed as pr(1 − ρ²), without cancellation:

    erf       G = (2/π) atan(2Λ/R),              R² = 1 + 2(p + r) + 4(pr − Λ²)
    sin, cos  G = ½ (e^{Λ − (p+r)/2} ∓ e^{−Λ − (p+r)/2})
    gaussian  G = 1/√X,                          X = 1 + p + r + (pr − Λ²)
    gelu      G = Λ/4 + (pr + wΛ²)/(2π√X) + Λ atan(Λ/√X)/(2π),    w = 1/(1+p) + 1/(1+r) − 1

Constants of a level: (scale, stretch, shift², shift); its tables hold −shift·E[φ] of each sample.
"""

from __future__ import annotations

import math
from typing import Any

from notsodeep import compilation

__all__ = ["COS", "ERF", "GAUSSIAN", "GELU", "SIN", "closed_drop", "closed_dual", "closed_steepness", "closed_value"]

ERF, SIN, COS, GAUSSIAN, GELU = 3, 4, 5, 6, 7

_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})
_INV_2PI = 1 / (2 * math.pi)


@_jit
def closed_value(type_: int, constants: Any, x: float) -> float:
    """φ(x)."""
    y = constants[1] * x
    if type_ == ERF:
        value = math.erf(y)
    elif type_ == SIN:
        value = math.sin(y)
    elif type_ == COS:
        half = math.sin(y / 2)
        return -2 * constants[0] * half * half + (constants[0] - constants[3])  # 1 − shift does not cancel
    elif type_ == GAUSSIAN:
        return constants[0] * math.expm1(-y * y / 2) + (constants[0] - constants[3])
    else:
        value = y * 0.5 * math.erfc(-y * 0.7071067811865476)
    return constants[0] * value - constants[3]


@_jit
def closed_dual(type_: int, constants: Any, qi: float, qj: float, eta: float, zeta: float) -> tuple[float, float]:
    """scale²·E[φ₀φ₀] and its slope for 1 − ρ = η and 1 + ρ = ζ."""
    scale2, stretch2 = constants[0] * constants[0], constants[1] * constants[1]
    p, r = stretch2 * qi, stretch2 * qj
    root = math.sqrt(p) * math.sqrt(r)
    covariance = root * (1.0 - eta if eta <= 1.0 else zeta - 1.0)
    if type_ in (SIN, COS):
        # e^{|Λ| − (p+r)/2}, from the distances to the nearer end
        near = math.exp(-root * min(eta, zeta) - (math.sqrt(p) - math.sqrt(r)) ** 2 / 2)
        far = math.exp(-2 * abs(covariance))
        total = scale2 * near * (1 + far) / 2
        difference = math.copysign(scale2 * near * -math.expm1(-2 * abs(covariance)) / 2, covariance)
        if type_ == SIN:
            return difference, stretch2 * total
        return total, stretch2 * difference
    product = root * root * eta * zeta  # pr − Λ²
    if type_ == ERF:
        spread = math.sqrt(1 + 2 * (p + r) + 4 * product)
        return scale2 * 2 / math.pi * math.atan2(2 * covariance, spread), stretch2 * scale2 * 4 / (math.pi * spread)
    X = 1 + p + r + product
    if type_ == GAUSSIAN:
        return scale2 / math.sqrt(X), stretch2 * scale2 * covariance / (X * math.sqrt(X))
    spread, angle = math.sqrt(X), math.atan2(covariance, math.sqrt(X))
    G = covariance / 4 + _INV_2PI * (_numerator(p, r, product) / spread + covariance * angle)
    slope = 0.25 + _INV_2PI * (angle + covariance * (1 / (1 + p) + 1 / (1 + r) + 1 / X) / spread)
    return scale2 * G, stretch2 * scale2 * slope


@_jit
def closed_steepness(type_: int, constants: Any, qi: float, qj: float, distance: float) -> float:
    """A bound of |dĠ/dρ| where ρ is at least `distance` from either end."""
    stretch2 = constants[1] * constants[1]
    front = constants[0] * constants[0] * stretch2
    p, r = stretch2 * qi, stretch2 * qj
    root = math.sqrt(p) * math.sqrt(r)
    if type_ in (SIN, COS):
        return front * root * math.exp(-root * distance)
    product = root * root * distance * (2 - distance)
    if type_ == ERF:
        R = 1 + 2 * (p + r) + 4 * product
        return front * 16 / math.pi * root * root / (R * math.sqrt(R))
    X = 1 + p + r + product
    if type_ == GAUSSIAN:
        return front * root * (1 + 3 * root * root / X) / (X * math.sqrt(X))
    weight = 1 / (1 + p) + 1 / (1 + r)
    return front * _INV_2PI * root * (1 + weight + 1 / X + root * root * (weight + 3 / X) / X) / math.sqrt(X)


@_jit
def _numerator(p: float, r: float, product: float) -> float:
    """pr + wΛ² with Λ² = pr − `product`: pr(1/(1+p) + 1/(1+r)) − w·product."""
    weight = 1 / (1 + p) + 1 / (1 + r)
    return p * r * weight - (weight - 1) * product


@_jit
def closed_drop(type_: int, constants: Any, qi: float, qj: float, eta: float, side: int) -> float:
    """|G(end) − G| from ρ = side to ρ = side(1 − η), to full relative accuracy: positive where G decreases.

    side = +1: G(1) − G(1 − η). side = −1: G(−1) − G(−1 + η).
    """
    scale2, stretch2 = constants[0] * constants[0], constants[1] * constants[1]
    p, r = stretch2 * qi, stretch2 * qj
    root = math.sqrt(p) * math.sqrt(r)
    t = root * eta
    product = t * (2 * root - t)
    if type_ in (SIN, COS):
        # e^{−h₀} with h₀ = ½(√p − √r)² at |Λ| = c
        front = math.exp(-((math.sqrt(p) - math.sqrt(r)) ** 2) / 2) * -math.expm1(-t) / 2
        if type_ == SIN:
            return side * scale2 * front * (1 + math.exp(t - 2 * root))
        return scale2 * front * -math.expm1(t - 2 * root)
    if type_ == ERF:
        first = math.sqrt(1 + 2 * (p + r))
        second = math.sqrt(1 + 2 * (p + r) + 4 * product)
        low = root - t
        turn = math.atan2(2 * (root * 4 * product / (first + second) + t * first), first * second + 4 * root * low)
        return side * scale2 * 2 / math.pi * turn
    start, X = 1 + p + r, 1 + p + r + product
    first, second = math.sqrt(start), math.sqrt(X)
    fall = product / ((first + second) * first * second)  # 1/√X₁ − 1/√X
    if type_ == GAUSSIAN:
        return scale2 * fall
    low = root - t
    weight = 1 / (1 + p) + 1 / (1 + r) - 1
    turn = math.atan2(root * product / (first + second) + t * first, first * second + root * low)
    even = weight * product / first + _numerator(p, r, product) * fall + root * turn + t * math.atan2(low, second)
    return scale2 * (side * t / 4 + _INV_2PI * even)
