"""Dual activations entry by entry, and the networks made of them: explicit, finite-depth, implicit.

Everything is expressed in the angular part √(q_i q_j) − Λ_ij = √(q_i q_j)(1 − ρ) of a covariance, which keeps its
digits where ρ ≈ 1. It is the gap ½(q_i + q_j) − Λ_ij = ½E(u − v)² without ½(√q_i − √q_j)². There are several ways
to evaluate G = E[φ(u)φ(v)] and Ġ = E[φ'(u)φ'(v)]:

- ARC: kinks only at 0, closed form in the angle;
- ERF, SIN, COS, GAUSSIAN: closed forms, used where a series would be long;
- PIECES: any piecewise-linear φ, a series or a closed form through the bivariate normal distribution;
- SERIES: Hermite series, for everything else.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from notsodeep import compilation
from notsodeep.kernels.arc import lens
from notsodeep.kernels.kinds import combine_compiled
from notsodeep.kernels.pieces import NEAR, pieces_dual, pieces_loss

__all__ = [
    "ARC",
    "COS",
    "ERF",
    "EXPLICIT",
    "FINITE",
    "GAUSSIAN",
    "IMPLICIT",
    "PIECES",
    "SERIES",
    "SIN",
    "layered_pass",
    "layered_points",
]

ARC, PIECES, SERIES, ERF, SIN, COS, GAUSSIAN = 0, 1, 2, 3, 4, 5, 6
EXPLICIT, FINITE, IMPLICIT = 0, 1, 2

_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})


@_jit
def _dual(
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
    angular: float,
) -> tuple[float, float, float]:
    """(G, Ġ, √(G_ii G_jj) − G) at √(q_i q_j)(1 − ρ) = `angular`.

    vi, vj = E[φ²] of the two samples; left, right: their tables.
    """
    root = math.sqrt(qi) * math.sqrt(qj)
    difference = math.sqrt(qi) - math.sqrt(qj)
    eta = 1.0
    if root > 0:
        eta = min(max(angular / root, 0.0), 2.0)
    if type_ == ARC:
        power, bend, square = constants[0], constants[1], constants[2]
        theta = 2.0 * math.asin(math.sqrt(eta / 2.0))
        loss = power * eta - bend * lens(theta)
        G = root * (power - loss) + left[0, i] + right[0, j] + square
        if square == 0:  # homogeneous: nothing cancels
            return G, power - bend * theta, root * loss
        gap = power * difference * difference / 2 + root * loss
        return G, power - bend * theta, _angular(gap, G, vi, vj)
    if type_ == SERIES:
        rho, G, d = 1.0 - eta, 0.0, 0.0
        for k in range(int(constants[0])):
            d = d * rho + G
            G = G * rho + left[k, i] * right[k, j]
        slope = d / root if root > 0 else 0.0
    elif type_ == PIECES:
        G, slope = pieces_dual(constants, qi, qj, left, i, right, j, eta)
        if eta <= NEAR:
            gap = pieces_loss(constants, qi, qj, left, i, right, j, eta)
            return G, slope, _angular(gap, G, vi, vj)
    else:
        G, slope = _closed(type_, constants, qi, qj, root * eta)
        G += left[0, i] + right[0, j] + constants[2]
    return G, slope, math.sqrt(vi) * math.sqrt(vj) - G


@_jit
def _alike(a: float, b: float) -> bool:
    """Whether ½(√a − √b)² is no larger than √(ab), so that the gap may be used in place of the angular part."""
    return a <= 4.0 * b and b <= 4.0 * a


@_jit
def _angular(gap: float, G: float, vi: float, vj: float) -> float:
    """√(G_ii G_jj) − G, from the gap where that keeps more digits."""
    if _alike(vi, vj):
        return gap - (math.sqrt(vi) - math.sqrt(vj)) ** 2 / 2
    return math.sqrt(vi) * math.sqrt(vj) - G


@_jit
def _radial(numbers: Any, q: float, r: float, vi: float, vj: float, nx: float, ny: float) -> float:
    """√(qr) − σ_a²√(G_ii G_jj) − σ_b²‖x‖‖y‖ − σ_0², where q = σ_a² G_ii + σ_b²‖x‖² + σ_0² and r likewise."""
    recurrent, gain, bias = numbers[0], numbers[1], numbers[2]
    if _alike(q, r):
        spread = recurrent * (math.sqrt(vi) - math.sqrt(vj)) ** 2 + gain * (nx - ny) ** 2
        return (spread - (math.sqrt(q) - math.sqrt(r)) ** 2) / 2
    return math.sqrt(q) * math.sqrt(r) - recurrent * math.sqrt(vi) * math.sqrt(vj) - gain * nx * ny - bias


@_jit
def _closed(type_: int, constants: Any, qi: float, qj: float, angular: float) -> tuple[float, float]:
    """scale²·E[φ₀φ₀] and its slope for φ₀ = erf, sin, cos, e^{−x²/2}; constants = (scale, stretch, shift²)."""
    scale2, stretch2 = constants[0] * constants[0], constants[1] * constants[1]
    p, r, part = stretch2 * qi, stretch2 * qj, stretch2 * angular
    root = math.sqrt(p) * math.sqrt(r)
    if type_ in (SIN, COS):
        # E[cos(u − v)] = e^{−h}, E[cos(u + v)] = e^{−(q_i + q_j) + h}
        h = part + (math.sqrt(p) - math.sqrt(r)) ** 2 / 2
        near, far = math.exp(-h), math.exp(h - p - r)
        total, difference = scale2 * (near + far) / 2, scale2 * (near - far) / 2
        if type_ == SIN:
            return difference, stretch2 * total
        return total, stretch2 * difference
    covariance = root - part
    product = part * (2 * root - part)  # q_i q_j − Λ², without cancellation
    if type_ == ERF:
        rest = math.sqrt(max(1 + 2 * (p + r) + 4 * product, 1.0))  # √((1+2q_i)(1+2q_j) − 4Λ²)
        return scale2 * 2 / math.pi * math.atan2(2 * covariance, rest), stretch2 * scale2 * 4 / (math.pi * rest)
    rest = max(1 + p + r + product, 1.0)  # (1+q_i)(1+q_j) − Λ²
    return scale2 / math.sqrt(rest), stretch2 * scale2 * covariance / (rest * math.sqrt(rest))


@_jit
def _entry(
    mode: int, numbers: Any, types: Any, constants: Any,
    Q: Any, V: Any, left: Any, i: int, R: Any, W: Any, right: Any, j: int,
    product: float, angular: float, result: Any,
) -> float:  # fmt: skip
    """result = (G, Ġ, Λ, Θ, Ψ, largest |ρ|, largest −ρ) of one pair from x·y and ‖x‖‖y‖ − x·y; returns the residual."""
    recurrent, gain, bias = numbers[0], numbers[1], numbers[2]
    levels = types.size
    if mode == IMPLICIT:
        q, r = Q[0, i], R[0, j]
        root = math.sqrt(q) * math.sqrt(r)
        drive = gain * angular + _radial(numbers, q, r, V[0, i], W[0, j], Q[1, i], R[1, j])  # row 1 holds ‖x‖
        part = min(max(drive, 0.0), 2 * root)
        G, slope, residual = 0.0, 0.0, 0.0
        for _ in range(100):
            G, slope, loss = _dual(types[0], constants[0], q, r, V[0, i], W[0, j], left[0], i, right[0], j, part)
            excess = part - drive - recurrent * loss
            residual = abs(excess) / root if root > 0 else 0.0
            proposal = min(max(part - excess / (1 - recurrent * slope), 0.0), 2 * root)
            change = abs(proposal - part)
            part = proposal
            if change <= 4e-16 * (part + 1e-3 * root):
                break
        rho = 1 - part / root if root > 0 else 0.0
        result[5], result[6] = abs(rho), -rho
        result[0], result[1], result[2] = G, slope, recurrent * G + gain * product + bias
        return residual
    covariance, part, tangent, frozen = product, angular, product, 0.0
    result[5], result[6] = 0.0, -1.0
    for level in range(levels):
        root = math.sqrt(Q[level, i]) * math.sqrt(R[level, j])
        if root > 0:
            rho = min(max(1 - part / root, -1.0), 1.0)
            result[5], result[6] = max(result[5], abs(rho)), max(result[6], -rho)
        G, slope, loss = _dual(
            types[level], constants[level], Q[level, i], R[level, j], V[level, i], W[level, j],
            left[level], i, right[level], j, part,
        )  # fmt: skip
        result[0], result[1], result[2] = G, slope, covariance
        if mode == EXPLICIT:
            tangent = G + slope * tangent  # Θˡ = Gˡ + Ġˡ Θˡ⁻¹
            covariance, part = G, loss
        else:
            frozen = G + recurrent * slope * frozen if level else G
            result[3], result[4] = tangent, frozen
            covariance = recurrent * G + gain * product + bias
            if level + 1 < levels:
                part = recurrent * loss + gain * angular + _radial(
                    numbers, Q[level + 1, i], R[level + 1, j], V[level, i], W[level, j],
                    math.sqrt(Q[0, i]), math.sqrt(R[0, j]),
                )  # fmt: skip
            tangent = covariance + recurrent * slope * tangent  # Θ⁽ʰ⁾ = Λ⁽ʰ⁾ + σ_a² Ġ⁽ʰ⁾ Θ⁽ʰ⁻¹⁾ [FK20, Thm 1]
    if mode == EXPLICIT:
        result[3] = tangent
    return 0.0


@_jit
def _value(mode: int, code: int, result: Any, recurrent: float) -> float:
    if mode == IMPLICIT:
        return combine_compiled(code, result[0], result[1], result[2], recurrent, 1.0)
    if code == 0:
        return result[0]
    if mode == EXPLICIT:
        return result[3]
    if code == 1:
        return result[2]
    if code == 2:
        return result[0] + result[1] * result[3]
    return result[4] if code == 3 else result[3]


@_jit
def layered_points(
    mode: int,
    numbers: Any,
    types: Any,
    constants: Any,
    Q: Any,
    V: Any,
    left: Any,
    codes: Any,
    product: Any,
    angular: Any,
    out: Any,
) -> float:
    """out[k, m] of sample 0 with itself turned: the univariate function on the sphere. Returns the worst residual."""
    result = np.zeros(7)
    worst = 0.0
    for m in range(product.size):
        residual = _entry(mode, numbers, types, constants, Q, V, left, 0, Q, V, left, 0, product[m], angular[m], result)
        worst = max(worst, residual)
        for k in range(codes.size):
            out[k, m] = _value(mode, codes[k], result, numbers[0])
    return worst


@_jit
def layered_pass(
    out: Any, X: Any, Y: Any, fx: Any, fy: Any, nx: Any, ny: Any, cut: float,
    mode: int, numbers: Any, types: Any, constants: Any, Q: Any, V: Any, left: Any, R: Any, W: Any, right: Any,
    codes: Any, i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> tuple[float, float, float, int]:  # fmt: skip
    """Turn Gram entries in out[0] into kernels, one pair at a time.

    fx, fy: factors of the rows; nx, ny: norms of the scaled samples. Where 1 − cos falls below `cut` it is
    recomputed from the difference of the unit vectors. Returns the worst residual,
    the largest |ρ|, the largest −ρ, and how many were recomputed.
    """
    result = np.zeros(7)
    worst, nearest, opposite, recomputed = 0.0, 0.0, -1.0, 0
    for i in range(i0, i1):
        for j in range(max(j0, i + 1) if symmetric else j0, j1):
            product = np.float64(out[0, i, j]) * fx[i] * fy[j]
            lengths = nx[i] * ny[j]
            angular = lengths - product
            if angular < cut * lengths:
                recomputed += 1
                total, left_unit, right_unit = 0.0, fx[i] / nx[i], fy[j] / ny[j]
                for k in range(X.shape[1]):
                    difference = left_unit * np.float64(X[i, k]) - right_unit * np.float64(Y[j, k])
                    total += difference * difference
                angular = lengths * total / 2
            residual = _entry(mode, numbers, types, constants, Q, V, left, i, R, W, right, j, product, angular, result)
            worst, nearest, opposite = max(worst, residual), max(nearest, result[5]), max(opposite, result[6])
            for k in range(codes.size):
                out[k, i, j] = _value(mode, codes[k], result, numbers[0])
    return worst, nearest, opposite, recomputed
