"""Dual activations of one pair: G = E[φ(u)φ(v)] and Ġ = E[φ'(u)φ'(v)], with bounds of their rounding errors.

A correlation is given by its distances from both ends, η = 1 − ρ and ζ = 1 + ρ; the smaller one has full relative
accuracy. The next layer needs the same of its own input, so a dual also returns

    near = √(G_ii G_jj) − G,    far = √(G_ii G_jj) + G,

again the smaller one with full relative accuracy. At ρ = ±1 they are ½√(G_ii G_jj) E(φ(u)/√G_ii ∓ φ(v)/√G_jj)² of two
collinear signals, an integral of a square; away from the end they change by as much as G. There are several methods:

- ARC: kinks only at 0, closed form in the angle;
- ERF, SIN, COS, GAUSSIAN, GELU: closed forms (:mod:`notsodeep.kernels.closed`), used where a series would be long;
- PIECES: any piecewise-linear φ (:mod:`notsodeep.kernels.pieces`);
- SERIES: Hermite series for everything else, and quadrature (:mod:`notsodeep.kernels.smooth`) where that is too short.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from notsodeep import compilation
from notsodeep.kernels.arc import lens
from notsodeep.kernels.closed import COS, GELU, SIN, closed_drop, closed_dual, closed_value
from notsodeep.kernels.pieces import (
    ORDERS,
    pieces_drop,
    pieces_dual,
    pieces_integrated,
    pieces_left_out,
    pieces_summed,
    pieces_value,
)
from notsodeep.kernels.smooth import quadrature_dual

__all__ = ["ARC", "EPSILON", "NEAR", "PIECES", "SERIES", "bend_of_pair", "dual_of_pair"]

ARC, PIECES, SERIES = 0, 1, 2
EPSILON = float(np.finfo(np.float64).eps)
NEAR = 1e-3  # distance from an end below which near and far are integrated instead of subtracted
# rounding of the closed form of a piecewise-linear φ above which it is integrated, and the error of the integrals
_LOSSY, _INTEGRATED = 1e-10, 1e-13
_WIDE, _WIDER = 72.0, 80.0  # variances from which the mean of sin and cos is below rounding, and panels are too wide
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)

_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})


@_jit
def dual_of_pair(
    type_: int,
    constants: Any,
    qi: float,
    qj: float,
    vi: float,
    vj: float,
    left: Any,
    i: int,
    right: Any,
    j: int,
    eta: float,
    zeta: float,
) -> tuple[float, float, float, float, float, float]:
    """(G, Ġ, near, far, noise, slope noise) at variances q_i, q_j with powers v_i, v_j = E[φ²]; left, right: tables.

    noise: error of the smaller of near and far relative to √(v_i v_j); G itself is known to that and rounding.
    slope noise: error of Ġ.
    """
    if type_ == ARC:
        return _arc(constants, qi, qj, vi, vj, left, i, right, j, eta, zeta)
    if type_ == SERIES:
        return _series(constants, qi, qj, vi, vj, left, i, right, j, eta, zeta)
    root, size, phase = math.sqrt(qi) * math.sqrt(qj), math.sqrt(vi) * math.sqrt(vj), 1.0
    if type_ == PIECES:
        margin = 3 * int(constants[2]) + ORDERS
        lost = 6 * EPSILON * left[margin, i] * right[margin, j]
        lossy = lost > _LOSSY and not pieces_summed(root, eta, zeta)
        if lossy and size > 0:
            missed = pieces_left_out(constants, qi, vi) + pieces_left_out(constants, qj, vj)
            if missed < _LOSSY:
                G, slope, near, far = pieces_integrated(constants, qi, qj, vi, vj, eta, zeta)
                small = math.sqrt(max(min(near, far), 0.0) / size)
                return G, slope, near, far, _INTEGRATED * small * (1 + small) + missed, _INTEGRATED * abs(slope)
        G, slope = pieces_dual(constants, qi, qj, left, i, right, j, eta, zeta)
        slope_noise = 6 * EPSILON * left[margin + 1, i] * right[margin + 1, j]
        if pieces_summed(root, eta, zeta):  # only the coefficients of each sample lose digits
            lost = 1.5 * EPSILON * (left[margin, i] + right[margin, j])
    else:
        G, slope = closed_dual(type_, constants, qi, qj, eta, zeta)
        G += left[0, i] + right[0, j] + constants[2]
        lost = 8 * EPSILON * (1 + (abs(left[0, i]) + abs(right[0, j]) + constants[2]) / max(size, 1e-300))
        slope_noise = 8 * EPSILON * abs(slope)
        if type_ in (SIN, COS):  # they depend on the last digits of the norms
            phase = 1 + constants[1] * math.sqrt(max(qi, qj))
            lost += 4 * EPSILON * phase
            slope_noise += 4 * EPSILON * phase * (constants[0] * constants[1]) ** 2
    G = min(max(G, -size), size)
    near, far = size - G, size + G
    side = 1 if eta <= zeta else -1
    distance = min(eta, zeta)
    if (
        distance > (constants[5 + 3 * int(constants[2])] if type_ == PIECES else NEAR)
        or size == 0
        or min(near, far) > 0.1 * size
    ):
        return G, slope, near, far, min(lost, 2.0), slope_noise
    known = 8 * EPSILON
    if type_ == PIECES:
        drop = pieces_drop(constants, root, left, i, right, j, distance, side)
        rough = slope_noise * root * distance
    else:
        drop = closed_drop(type_, constants, qi, qj, distance, side)
        rough = 8 * EPSILON * abs(drop)
        if type_ == GELU:  # its terms grow like √q and cancel
            rough *= 1 + constants[1] * math.sqrt(max(qi, qj))
        elif type_ in (SIN, COS):
            known *= phase
    sign = 1.0 if G > 0 else -1.0
    start = size * _collinear(type_, constants, qi, qj, vi, vj, left, i, right, j, side, sign)
    if start < 0:
        return G, slope, near, far, min(lost, 2.0), slope_noise
    small = max(start + sign * drop, 0.0)
    noise = (rough + known * start) / size + known * (math.sqrt(start / size) + known)
    if sign > 0:
        return size - small, slope, small, 2 * size - small, noise, slope_noise
    return small - size, slope, 2 * size - small, small, noise, slope_noise


@_jit
def bend_of_pair(type_: int, constants: Any, limit: float, left: Any, i: int, right: Any, j: int) -> float:
    """How fast Ġ changes with the angle arccos ρ, at most; limit: for the worst pair, or 1 for the type PIECES."""
    if type_ != PIECES:
        return limit
    row = 3 * int(constants[2]) + ORDERS + 2
    return limit * left[row, i] * right[row, j]


@_jit
def _collinear(
    type_: int,
    constants: Any,
    qi: float,
    qj: float,
    vi: float,
    vj: float,
    left: Any,
    i: int,
    right: Any,
    j: int,
    side: int,
    sign: float,
) -> float:
    """½E(φ(√q_i ξ)/√v_i − sign·φ(side·√q_j ξ)/√v_j)²; negative where it is not known any better than from G."""
    root_i, root_j = math.sqrt(qi), side * math.sqrt(qj)
    if root_i == root_j and vi == vj and sign > 0:
        return 0.0
    kinks = int(constants[2]) if type_ == PIECES else 0
    levels = 0
    if type_ != PIECES:
        scale = constants[1] * max(root_i, abs(root_j))
        if type_ in (SIN, COS) and scale * scale > _WIDER:
            if (constants[1] * min(root_i, abs(root_j))) ** 2 <= _WIDE:
                return -1.0
            # v = a²/2 + c², E[φφ] = parity·a² e^{−h}/2 + c²: only the difference of the frequencies counts
            parity = float(side) if type_ == SIN else 1.0
            h = (constants[1] * (root_i - abs(root_j))) ** 2 / 2
            waves = constants[0] ** 2 * (-math.expm1(-h) if sign * parity > 0 else 1 + math.exp(-h)) / 2
            return (waves + (0.0 if sign > 0 else 2 * constants[2])) / (math.sqrt(vi) * math.sqrt(vj))
        levels = max(0, int(math.log2(max(scale, 1.0))) + 2)
    edges = np.empty(19 + 2 * kinks + 2 * levels)
    for a in range(19):
        edges[a] = a - 9.0
    for a in range(kinks):
        place = constants[3 + 2 * kinks + a]
        edges[19 + 2 * a] = min(max(place * left[3 * a, i], -9.0), 9.0)
        edges[20 + 2 * a] = min(max(side * place * right[3 * a, j], -9.0), 9.0)
    for a in range(levels):
        edges[19 + 2 * kinks + 2 * a] = 2.0 ** -(a + 1)
        edges[20 + 2 * kinks + 2 * a] = -(2.0 ** -(a + 1))
    edges.sort()
    size_i, size_j = math.sqrt(vi), sign * math.sqrt(vj)
    total = 0.0
    for a in range(edges.size - 1):
        half, middle = (edges[a + 1] - edges[a]) / 2, (edges[a + 1] + edges[a]) / 2
        if half > 0:
            for n in range(_NODES.size):
                x = middle + half * _NODES[n]
                if type_ == PIECES:
                    first, second = pieces_value(constants, root_i * x), pieces_value(constants, root_j * x)
                else:
                    first = closed_value(type_, constants, root_i * x)
                    second = closed_value(type_, constants, root_j * x)
                difference = first / size_i - second / size_j
                total += half * _WEIGHTS[n] * math.exp(-x * x / 2) * difference * difference
    return _INV_SQRT_2PI * total / 2


@_jit
def _arc(
    constants: Any,
    qi: float,
    qj: float,
    vi: float,
    vj: float,
    left: Any,
    i: int,
    right: Any,
    j: int,
    eta: float,
    zeta: float,
) -> tuple[float, float, float, float, float, float]:
    """φ(x) = a·max(x, 0) + b·min(x, 0) − c. Constants: v, e, c², ab, (a + b)²/2, c²(v − E[φ]²) with v, e of `Arc`."""
    power, bend, square = constants[0], constants[1], constants[2]
    root = math.sqrt(qi) * math.sqrt(qj)
    if eta <= zeta:
        theta = 2.0 * math.asin(math.sqrt(eta / 2.0))
        curve = bend * lens(theta)
        near, far = power * eta - curve, power * zeta + curve
        slope = power - bend * theta
    else:  # the same with θ = π − θ'
        theta = 2.0 * math.asin(math.sqrt(zeta / 2.0))
        curve = bend * lens(theta)
        near = constants[4] - constants[3] * zeta - curve
        far = (2 * power - constants[4]) + constants[3] * zeta + curve
        slope = constants[3] + bend * theta
    G = root * (power - near if near <= far else far - power)
    slope_noise = 4 * EPSILON * power
    if square == 0:
        return G, slope, root * near, root * far, 8 * EPSILON * min(near, far) / power, slope_noise
    means = left[0, i] + right[0, j]
    G += means + square
    size = math.sqrt(vi) * math.sqrt(vj)
    lost = 4 * EPSILON * (root * power + abs(means) + square) / size
    far = size + G
    aligned = root * power + means + square  # G at ρ = 1
    if aligned <= 0:
        return G, slope, size - G, far, lost, slope_noise
    # √(G_ii G_jj) − G at ρ = 1 is a Gram determinant of φ(ξ) and 1
    difference = math.sqrt(qi) - math.sqrt(qj)
    start = constants[5] * difference * difference / (size + aligned)
    near = start + root * near
    noise = lost if far < near else 8 * EPSILON * (near / size + math.sqrt(start / size))
    return G, slope, near, far, noise, slope_noise


@_jit
def _series(
    constants: Any,
    qi: float,
    qj: float,
    vi: float,
    vj: float,
    left: Any,
    i: int,
    right: Any,
    j: int,
    eta: float,
    zeta: float,
) -> tuple[float, float, float, float, float, float]:
    """G = √(v_i v_j) Σ a_k b_k ρᵏ with normalised coefficients: Σ a_k² = Σ b_k² = 1.

    1 − Σ a_k b_k ρᵏ = ½Σ(a_k − b_k)² + η Σ_j ρʲ Σ_{k>j} a_k b_k: nothing cancels. For ρ < 0 the coefficients of v are
    those of φ(−v). Constants: terms, largest |ρ|, code and strip of the function, scale, stretch, shift, error of the
    table, and what the orders left out hold of Σ a_k² and of Σ k a_k² at the worst sample.
    """
    terms = int(constants[0])
    root, size = math.sqrt(qi) * math.sqrt(qj), math.sqrt(vi) * math.sqrt(vj)
    distance, flip = (eta, 1.0) if eta <= zeta else (zeta, -1.0)
    rho = 1.0 - distance
    table = constants[7]
    if rho > constants[1] and constants[2] >= 0 and root > 0:
        G, slope, near, far = quadrature_dual(
            int(constants[2]), constants[3], constants[4:7], qi, qj, vi, vj, eta, zeta
        )
        small = min(near, far) / size
        return G, slope, near, far, 1e-15 * (small + math.sqrt(small)), 1e-15 * slope
    sign = flip if (terms - 1) % 2 else 1.0
    value = derivative = beyond = rest = minus = plus = 0.0
    for k in range(terms):
        a, b = left[k, i], sign * right[k, j]
        sign *= flip
        derivative = derivative * rho + value
        value = value * rho + a * b
        rest = rest * rho + beyond
        beyond += a * b
        minus += (a - b) * (a - b)
        plus += (a + b) * (a + b)
    fading = 2 * rho ** max(terms - 1, 0)
    slope = size / root if root > 0 else 0.0
    slope_noise = slope * (constants[10] * (16 * EPSILON + table) + constants[9] * fading)
    slope *= flip * derivative
    direct = 16 * EPSILON + table + constants[8] * fading
    if abs(value) < 0.9:
        return size * value, slope, size * (1.0 - value), size * (1.0 + value), direct, slope_noise
    # not 1 − Σ over the orders kept: the powers v count all orders
    small = minus / 2 + distance * rest if value > 0 else plus / 2 - distance * rest
    noise = 16 * EPSILON * small + table * (math.sqrt(2 * small) + table)
    noise += 2 * min(distance * constants[9], constants[8])
    noise += min(min(minus, plus) * terms * constants[9], 2 * constants[8])  # ½Σ(a_k − b_k)² ≤ Σ(a_k² + b_k²)
    if direct < noise:  # the orders left out fade before the ends are reached
        return size * value, slope, size * (1.0 - value), size * (1.0 + value), direct, slope_noise
    if value > 0:
        return size * (1.0 - small), slope, size * small, size * (2.0 - small), noise, slope_noise
    return size * (small - 1.0), slope, size * (2.0 - small), size * small, noise, slope_noise
