"""Smooth activations without a closed dual, as compiled functions, and their duals by quadrature.

A Hermite series is long for large signals and nearly equal rows. In that case the double integral

    E[f(u, v)] = Σ_a Σ_b w_a w_b f(√q_i ξ_a, √q_j (ρ ξ_a + √(1 − ρ²) ξ_b))

by the trapezoidal rule, which converges like e^{−2πd/h} for a function analytic in a strip of half-width d, costs less.
"""

from __future__ import annotations

import math
from typing import Any

from notsodeep import compilation

__all__ = ["SMOOTH", "quadrature_dual"]

_TANH, _SIGMOID, _SOFTPLUS, _SWISH, _ARCTAN = 0, 1, 2, 3, 4
# name → (code, half-width of the strip in which it is analytic)
SMOOTH = {
    "tanh": (_TANH, math.pi / 2),
    "sigmoid": (_SIGMOID, math.pi),
    "softplus": (_SOFTPLUS, math.pi),
    "swish": (_SWISH, math.pi),
    "arctan": (_ARCTAN, 1.0),
}
_REACH = 8.8  # e^{−8.8²/2} = 2e-17
_GAUSSIAN = 0.65  # step that integrates the Gaussian itself to e^{−2π²/h²} = 5e-21
_PER_STRIP = (
    0.125  # step over half-width of the strip, at whose edge φ'(u)φ'(v) has a pole of order 4: x³e^{−x}, x = 50
)

_LOG_2 = math.log(2)

_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})


@_jit
def _value_and_slope(code: int, x: float) -> tuple[float, float]:
    """φ₀(x) − φ₀(0) and φ₀'(x)."""
    if code == _ARCTAN:
        return math.atan(x), 1 / (1 + x * x)
    if code == _TANH:
        e = math.exp(-2 * abs(x))
        return math.copysign(-math.expm1(-2 * abs(x)) / (1 + e), x), 4 * e / ((1 + e) * (1 + e))
    e = math.exp(-abs(x))
    upper, lower = 1 / (1 + e), e / (1 + e)
    logistic, other = (upper, lower) if x >= 0 else (lower, upper)
    if code == _SIGMOID:
        return math.copysign(-math.expm1(-abs(x)) / (2 * (1 + e)), x), logistic * other
    if code == _SOFTPLUS:
        if abs(x) < 1:
            half = math.sinh(x / 2)
            return x / 2 + math.log1p(half * half) / 2, logistic
        return max(x, 0.0) + math.log1p(e) - _LOG_2, logistic
    return x * logistic, logistic * (1 + x * other)


@_jit
def quadrature_dual(
    code: int, strip: float, numbers: Any, qi: float, qj: float, vi: float, vj: float, eta: float, zeta: float
) -> tuple[float, float, float, float]:
    """G, Ġ, √(v_i v_j) − G and √(v_i v_j) + G for 1 ∓ ρ = η, ζ; numbers = (scale, stretch, shift − scale·φ₀(0))."""
    scale, stretch, shift = numbers[0], numbers[1], numbers[2]
    rho = 1.0 - eta if eta <= 1.0 else zeta - 1.0
    root_i, root_j = math.sqrt(qi), math.sqrt(qj)
    spread = root_j * math.sqrt(eta * zeta)
    step = min(_GAUSSIAN, _PER_STRIP * strip / (stretch * max(root_i, root_j)))
    inner = min(_GAUSSIAN, _PER_STRIP * strip / (stretch * spread)) if spread > 0 else _GAUSSIAN
    outer_count, inner_count = int(_REACH / step) + 1, int(_REACH / inner) + 1
    size_i, size_j = math.sqrt(vi), math.sqrt(vj)
    G = slope = near = far = 0.0
    for a in range(-outer_count, outer_count):
        xi = (a + 0.5) * step
        weight = step * math.exp(-xi * xi / 2)
        value, gradient = _value_and_slope(code, stretch * root_i * xi)
        value = (scale * value - shift) / size_i
        sums = other = less = more = 0.0
        for b in range(-inner_count, inner_count):
            x = (b + 0.5) * inner
            mass = inner * math.exp(-x * x / 2)
            second, second_slope = _value_and_slope(code, stretch * (root_j * rho * xi + spread * x))
            second = (scale * second - shift) / size_j
            sums += mass * second
            other += mass * second_slope
            less += mass * (value - second) * (value - second)
            more += mass * (value + second) * (value + second)
        G += weight * value * sums
        slope += weight * gradient * other
        near += weight * less
        far += weight * more
    front = 1 / (2 * math.pi)
    size = size_i * size_j
    gain = scale * stretch
    return front * size * G, front * gain * gain * slope, front * size * near / 2, front * size * far / 2
