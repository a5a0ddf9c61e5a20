"""Networks pair by pair: explicit, finite-depth, implicit, with a running bound of the error.

A covariance is carried as the distances √(q_i q_j) ∓ Λ from both ends, the smaller one with all its digits, because a
kinked activation takes its root. Beside every number goes a bound of its error: what rounding, tables and truncation
add at a level, and what later levels make of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from notsodeep import compilation
from notsodeep.kernels.closed import closed_steepness
from notsodeep.kernels.duals import EPSILON, SERIES, dual_of_pair
from notsodeep.kernels.kinds import combine_compiled

__all__ = [
    "EXPLICIT",
    "FINITE",
    "IMPLICIT",
    "STATE",
    "ends_of_rows",
    "implicit_pair",
    "layered_pass",
    "layered_points",
    "value_and_error",
]

EXPLICIT, FINITE, IMPLICIT = 0, 1, 2

# what a pair is made of, and the error of each
_G, _SLOPE, _COVARIANCE, _TANGENT, _FROZEN, STATE = 0, 1, 2, 3, 4, 5

_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})


@_jit
def _radial(numbers: Any, q: float, r: float, vi: float, vj: float, nx: float, ny: float) -> tuple[float, float]:
    """√(qr) − σ_a²√(G_ii G_jj) − σ_b²‖x‖‖y‖ − σ_0² and its error, where q = σ_a² G_ii + σ_b²‖x‖² + σ_0², r likewise.

    |A||B| − A·B of two vectors (σ_a√G, σ_b‖x‖, σ_0), by Lagrange's identity; the error is that of its differences.
    """
    recurrent, gain, bias, relative = numbers[0], numbers[1], numbers[2], numbers[3]
    si, sj = math.sqrt(vi), math.sqrt(vj)
    size = math.sqrt(q) * math.sqrt(r) + recurrent * si * sj + gain * nx * ny + bias
    if size == 0:
        return 0.0, 0.0
    mixed, powers, norms = si * ny - sj * nx, si - sj, nx - ny
    total = recurrent * gain * mixed * mixed + bias * (recurrent * powers * powers + gain * norms * norms)
    d_mixed, d_powers = relative * (si * ny + sj * nx), relative * (si + sj)
    d_norms = 4 * EPSILON * (nx + ny)
    error = recurrent * gain * d_mixed * (2 * abs(mixed) + d_mixed)
    error += bias * recurrent * d_powers * (2 * abs(powers) + d_powers)
    error += bias * gain * d_norms * (2 * abs(norms) + d_norms)
    return total / size, (error + relative * total) / size


@_jit
def _angle_error(distance: float, error: float) -> float:
    """How much arccos ρ changes when its distance from the end, 1 − |ρ|, changes by `error`."""
    return 2 * error / math.sqrt(2 * distance + 2 * error) if error > 0 else 0.0


@_jit
def _slope_error(
    type_: int, constants: Any, limits: Any, noise: float, distance: float, error: float,
    q: float, r: float, si: float, sj: float,
) -> float:  # fmt: skip
    """Error of Ġ; limits: how fast it changes with the angle (kinks), and relatively with ρ (series)."""
    if type_ > SERIES:
        steepness = closed_steepness(type_, constants, q, r, max(distance - error, 0.0))
    else:
        steepness = limits[1] * math.sqrt(si * sj)
    return noise + limits[0] * _angle_error(distance, error) + steepness * error


@_jit
def implicit_pair(
    numbers: Any, type_: int, constants: Any, limits: Any,
    Q: Any, V: Any, S: Any, left: Any, i: int, R: Any, W: Any, T: Any, right: Any, j: int,
    product: float, near: float, far: float, error: float, result: Any, errors: Any,
) -> float:  # fmt: skip
    """Solve Λ = σ_a² G(Λ) + σ_b² x·y + σ_0² for one pair, by Newton on the smaller of √(q_i q_j) ∓ Λ.

    near, far = ‖x‖‖y‖ ∓ x·y, the smaller known to `error`; row 1 of Q and R holds the norms. Returns the residual.
    """
    recurrent, gain, bias = numbers[0], numbers[1], numbers[2]
    q, r, vi, vj = Q[0, i], R[0, j], V[0, i], W[0, j]
    root, size = math.sqrt(q) * math.sqrt(r), math.sqrt(vi) * math.sqrt(vj)
    radial, rough = _radial(numbers, q, r, vi, vj, Q[1, i], R[1, j])
    drives = (gain * near + radial, gain * far + radial + 2 * bias)
    side = 0 if drives[0] <= drives[1] else 1
    part = min(drives[side], 2 * root)
    G = slope = noise = slope_noise = residual = eta = zeta = 1.0
    before = math.inf
    for iteration in range(100):
        if root > 0:
            eta, zeta = part / root, 2.0 - part / root
            if side == 1:
                eta, zeta = zeta, eta
        G, slope, below, above, noise, slope_noise = dual_of_pair(
            type_, constants, q, r, vi, vj, left, i, right, j, eta, zeta
        )
        excess = part - drives[side] - recurrent * (below if side == 0 else above)
        residual = abs(excess) / root if root > 0 else 0.0
        proposal = min(max(part - excess / (1 - recurrent * slope), 0.0), 2 * root)
        change = abs(proposal - part)
        if change <= 1e-15 * part or (iteration > 8 and change >= before / 2):
            break
        before = change
        part = proposal
        if part > root:
            part, side = 2 * root - part, 1 - side
    distance = min(eta, zeta)
    gain_of_error = 1 / (1 - recurrent * slope)
    known, moved = 0.0, slope_noise
    if root > 0:
        known = (gain * error + rough + recurrent * noise * size) / root + residual + 4 * EPSILON * distance
        known *= gain_of_error
        moved = _slope_error(type_, constants, limits, slope_noise, distance, known, q, r, S[0, i], T[0, j])
        growth = 1 + recurrent * gain_of_error * moved  # the error may move the slope, and with it the gain
        known, moved = known * growth, moved * growth
    result[_G], result[_SLOPE], result[_COVARIANCE] = G, slope, recurrent * G + gain * product + bias
    errors[_G] = size * (noise + 4 * EPSILON) + root * abs(slope) * known
    errors[_SLOPE] = moved
    errors[_COVARIANCE] = root * (known + 4 * EPSILON)
    return residual


@_jit
def _layers(
    mode: int, numbers: Any, types: Any, constants: Any, limits: Any,
    Q: Any, V: Any, S: Any, left: Any, i: int, R: Any, W: Any, T: Any, right: Any, j: int,
    product: float, near: float, far: float, error: float, result: Any, errors: Any,
) -> None:  # fmt: skip
    """Explicit and finite-depth networks, level by level."""
    recurrent, gain, bias = numbers[0], numbers[1], numbers[2]
    levels = types.size
    nx, ny = math.sqrt(Q[0, i]), math.sqrt(R[0, j])
    near0, far0, error0 = near, far, error
    covariance, tangent, frozen = product, product, 0.0
    d_covariance = d_tangent = error + 2 * EPSILON * abs(product)
    d_frozen = 0.0
    for level in range(levels):
        q, r, vi, vj = Q[level, i], R[level, j], V[level, i], W[level, j]
        root, size = math.sqrt(q) * math.sqrt(r), math.sqrt(vi) * math.sqrt(vj)
        eta = zeta = 1.0
        relative = 0.0
        if root > 0:
            if near <= far:
                eta = min(max(near / root, 0.0), 1.0)
                zeta = 2.0 - eta
            else:
                zeta = min(max(far / root, 0.0), 1.0)
                eta = 2.0 - zeta
            relative = error / root
        G, slope, below, above, noise, slope_noise = dual_of_pair(
            types[level], constants[level], q, r, vi, vj, left[level], i, right[level], j, eta, zeta
        )
        d_slope = _slope_error(
            types[level], constants[level], limits[level], slope_noise, min(eta, zeta), relative,
            q, r, S[level, i], T[level, j],
        )  # fmt: skip
        moved = (abs(slope) + d_slope) * error
        d_power = size * (noise + 4 * EPSILON) + moved
        result[_G], result[_SLOPE], result[_COVARIANCE] = G, slope, covariance
        errors[_G], errors[_SLOPE], errors[_COVARIANCE] = d_power, d_slope, d_covariance
        if mode == EXPLICIT:
            d_tangent = d_power + d_slope * abs(tangent) + (abs(slope) + d_slope) * d_tangent
            tangent = G + slope * tangent  # Θˡ = Gˡ + Ġˡ Θˡ⁻¹
            covariance, near, far, d_covariance = G, below, above, d_power
            error = size * noise + moved
        else:
            d_frozen = d_power + recurrent * (d_slope * abs(frozen) + (abs(slope) + d_slope) * d_frozen)
            frozen = G + recurrent * slope * frozen if level else G
            result[_TANGENT], result[_FROZEN] = tangent, frozen
            errors[_TANGENT], errors[_FROZEN] = d_tangent, d_frozen
            covariance = recurrent * G + gain * product + bias
            d_covariance = recurrent * d_power + gain * error0 + 4 * EPSILON * abs(covariance)
            if level + 1 < levels:
                q, r = Q[level + 1, i], R[level + 1, j]
                radial, rough = _radial(numbers, q, r, vi, vj, nx, ny)
                near = recurrent * below + gain * near0 + radial
                far = recurrent * above + gain * far0 + radial + 2 * bias
                error = recurrent * (size * noise + moved) + gain * error0 + rough
            d_tangent = d_covariance + recurrent * (d_slope * abs(tangent) + (abs(slope) + d_slope) * d_tangent)
            tangent = covariance + recurrent * slope * tangent  # Θ⁽ʰ⁾ = Λ⁽ʰ⁾ + σ_a² Ġ⁽ʰ⁾ Θ⁽ʰ⁻¹⁾ [FK20, Thm 1]
    if mode == EXPLICIT:
        result[_TANGENT], errors[_TANGENT] = tangent, d_tangent


@_jit
def _entry(
    mode: int, numbers: Any, types: Any, constants: Any, limits: Any,
    Q: Any, V: Any, S: Any, left: Any, i: int, R: Any, W: Any, T: Any, right: Any, j: int,
    product: float, near: float, far: float, error: float, result: Any, errors: Any,
) -> float:  # fmt: skip
    """Fill result and errors for one pair; returns the residual of its fixed point."""
    if mode == IMPLICIT:
        return implicit_pair(
            numbers, types[0], constants[0], limits[0], Q, V, S, left[0], i, R, W, T, right[0], j,
            product, near, far, error, result, errors,
        )  # fmt: skip
    _layers(
        mode, numbers, types, constants, limits, Q, V, S, left, i, R, W, T, right, j,
        product, near, far, error, result, errors,
    )  # fmt: skip
    return 0.0


@_jit
def value_and_error(mode: int, code: int, result: Any, errors: Any, recurrent: float) -> tuple[float, float]:
    """The kernel of one kind and the bound of its error."""
    G, slope, covariance = result[_G], result[_SLOPE], result[_COVARIANCE]
    if mode == IMPLICIT:
        value = combine_compiled(code, G, slope, covariance, recurrent, 1.0)
        if code == 0:
            return value, errors[_G]
        if code == 1:
            return value, errors[_COVARIANCE]
        gain = 1 / (1 - recurrent * slope)
        steep = gain * gain * errors[_SLOPE]
        if code == 2:
            return value, errors[_G] + gain * abs(slope) * errors[_COVARIANCE] + abs(covariance) * steep
        if code == 3:
            return value, gain * errors[_G] + recurrent * abs(G) * steep
        return value, gain * errors[_COVARIANCE] + recurrent * abs(covariance) * steep
    if code == 0:
        return G, errors[_G]
    if mode == EXPLICIT:
        return result[_TANGENT], errors[_TANGENT]
    if code == 1:
        return covariance, errors[_COVARIANCE]
    if code == 2:
        tangent = result[_TANGENT]
        return G + slope * tangent, errors[_G] + abs(tangent) * errors[_SLOPE] + abs(slope) * errors[_TANGENT]
    if code == 3:
        return result[_FROZEN], errors[_FROZEN]
    return result[_TANGENT], errors[_TANGENT]


@_jit
def layered_points(
    mode: int,
    numbers: Any,
    types: Any,
    constants: Any,
    limits: Any,
    Q: Any,
    V: Any,
    S: Any,
    left: Any,
    codes: Any,
    square: float,
    eta: Any,
    zeta: Any,
    out: Any,
    lost: Any,
) -> float:
    """out[k, m] of sample 0 (‖x‖² = `square`) with itself turned, and its error: the univariate function on a sphere.

    Returns the worst residual.
    """
    result, errors = np.zeros(STATE), np.zeros(STATE)
    worst = 0.0
    for m in range(eta.size):
        rho = 1.0 - eta[m] if eta[m] <= 1.0 else zeta[m] - 1.0
        residual = _entry(
            mode, numbers, types, constants, limits, Q, V, S, left, 0, Q, V, S, left, 0,
            square * rho, square * eta[m], square * zeta[m], 0.0, result, errors,
        )  # fmt: skip
        worst = max(worst, residual)
        for k in range(codes.size):
            out[k, m], lost[k, m] = value_and_error(mode, codes[k], result, errors, numbers[0])
    return worst


@_jit
def ends_of_rows(
    X: Any, Y: Any, i: int, j: int, product: float, lengths: float, left_unit: float, right_unit: float, cut: float,
    rounding: float,
) -> tuple[float, float, float, int]:  # fmt: skip
    """(‖x‖‖y‖ − x·y, ‖x‖‖y‖ + x·y, error of the smaller, recomputed): near an end from unit vectors."""
    near, far = lengths - product, lengths + product
    side = 1.0 if near <= far else -1.0
    small = min(near, far)
    if not small < cut * lengths:
        return near, far, rounding * lengths, 0
    total = 0.0
    for k in range(X.shape[1]):
        difference = left_unit * np.float64(X[i, k]) - side * right_unit * np.float64(Y[j, k])
        total += difference * difference
    small = lengths * total / 2
    # each unit vector is known to rounding, and so is the length of their difference
    error = lengths * 4 * EPSILON * (math.sqrt(total) + 4 * EPSILON)
    if side > 0:
        return small, 2 * lengths - small, error, 1
    return 2 * lengths - small, small, error, 1


@_jit
def layered_pass(
    out: Any, X: Any, Y: Any, fx: Any, fy: Any, nx: Any, ny: Any, cut: float, rounding: float,
    mode: int, numbers: Any, types: Any, constants: Any, limits: Any,
    Q: Any, V: Any, S: Any, left: Any, R: Any, W: Any, T: Any, right: Any,
    codes: Any, Dx: Any, Dy: Any, i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> tuple[float, float, int]:  # fmt: skip
    """Turn Gram entries in out[0] into kernels, one pair at a time.

    fx, fy: factors of the rows; nx, ny: norms of the scaled samples; Dx, Dy: roots of the diagonals (kinds, n).
    Where 1 ∓ cos falls below `cut` it is recomputed from the unit vectors, otherwise it is known to `rounding`.
    Returns the worst residual, the worst error relative to √(K_ii K_jj), and how many were recomputed.
    """
    result, errors = np.zeros(STATE), np.zeros(STATE)
    worst, most, recomputed = 0.0, 0.0, 0
    for i in range(i0, i1):
        left_unit = fx[i] / nx[i] if nx[i] > 0 else 0.0
        for j in range(max(j0, i + 1) if symmetric else j0, j1):
            right_unit = fy[j] / ny[j] if ny[j] > 0 else 0.0
            product, lengths = np.float64(out[0, i, j]) * fx[i] * fy[j], nx[i] * ny[j]
            near, far, error, again = ends_of_rows(X, Y, i, j, product, lengths, left_unit, right_unit, cut, rounding)
            if again:
                recomputed += 1
                product = lengths - near if near <= far else far - lengths
            residual = _entry(
                mode, numbers, types, constants, limits, Q, V, S, left, i, R, W, T, right, j,
                product, near, far, error, result, errors,
            )  # fmt: skip
            worst = max(worst, residual)
            for k in range(codes.size):
                out[k, i, j], lost = value_and_error(mode, codes[k], result, errors, numbers[0])
                scale = Dx[k, i] * Dy[k, j]
                if lost != lost:
                    most = math.inf
                elif scale > 0:
                    most = max(most, lost / scale)
    return worst, most, recomputed
