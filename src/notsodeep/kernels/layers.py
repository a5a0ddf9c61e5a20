"""Kernels pair by pair, with a running error bound: explicit, finite-depth and implicit networks, deep cells.

A covariance is represented by its distances √(q_i q_j) ∓ Λ from both ends; the smaller one has full relative accuracy,
because a kinked activation takes its square root. Every number comes with a bound of its error: rounding, tables and
truncation add to it at each level, and later levels amplify it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from notsodeep import compilation
from notsodeep.kernels.closed import closed_steepness
from notsodeep.kernels.duals import EPSILON, SERIES, bend_of_pair, dual_of_pair
from notsodeep.kinds import CK, FROZEN, NNGP, NTK

__all__ = [
    "LOOP",
    "OPEN",
    "SINGLE",
    "STATE",
    "Chain",
    "Pair",
    "Signals",
    "ends_of_rows",
    "layered_pass",
    "layered_points",
    "solve_pair",
    "value_and_error",
]

# how the chain of levels ends: open, a single level, or a loop back to the first
OPEN, SINGLE, LOOP = 0, 1, 2

# results of a pair, and the error of each: G, Λ, then the tangents S = Λ + σ² T, T = Ġ S, and F = G + σ² Ġ F
_G, _COVARIANCE, _INJECTED, _TANGENT, _FROZEN, STATE = 0, 1, 2, 3, 4, 5


class Chain(NamedTuple):
    """Levels of a network: quantities shared by all samples."""

    end: int  # OPEN, SINGLE or LOOP
    numbers: Any  # (levels, 3): σ_a², σ_b², σ_0²
    types: Any  # (levels,): code of the dual
    constants: Any  # (levels, width): of the duals
    limits: Any  # (levels, 2): how fast Ġ changes with the angle, and relatively with ρ
    normalized: Any  # (levels,) of bool: whether the output is divided by `scale`
    relative: float  # error of variances and powers


class Signals(NamedTuple):
    """Levels of a network: quantities of each sample, samples along the last axis."""

    factor: Any  # (n,): sample = factor · row
    norm: Any  # (n,): of the sample
    root: Any  # (kinds, n): √ of the kernel's diagonal
    variance: Any  # (levels, n): what enters φ
    power: Any  # (levels, n): E[φ²]
    slope: Any  # (levels, n): E[φ'²]
    mean: Any  # (levels, n): subtracted by a normalisation
    scale: Any  # (levels, n): and divided by
    tables: Any  # (levels, height, n): of the duals


class Pair(NamedTuple):
    """x·y, ‖x‖‖y‖ ∓ x·y, and the error of the smaller of these."""

    product: float
    near: float
    far: float
    error: float


_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})
# passing named tuples of arrays for every pair would cost a third of the time
_inline = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"}, inline="always")


@_jit
def _radial(
    recurrent: float, gain: float, bias: float, relative: float,
    q: float, r: float, vi: float, vj: float, nx: float, ny: float,
) -> tuple[float, float]:  # fmt: skip
    """√(qr) − σ_a²√(G_ii G_jj) − σ_b²‖x‖‖y‖ − σ_0² and its error, where q = σ_a² G_ii + σ_b²‖x‖² + σ_0², r likewise.

    |A||B| − A·B of two vectors (σ_a√G, σ_b‖x‖, σ_0), by Lagrange's identity; the error is that of its differences.
    `relative`: error of the variances and powers.
    """
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
    type_: int, constants: Any, bend: float, relative: float, noise: float, distance: float, error: float,
    q: float, r: float, si: float, sj: float,
) -> float:  # fmt: skip
    """Error of Ġ; bend, relative: how fast it changes with the angle (kinks), and relatively with ρ (series)."""
    if type_ > SERIES:
        steepness = closed_steepness(type_, constants, q, r, max(distance - error, 0.0))
    else:
        steepness = relative * math.sqrt(si * sj)
    return noise + bend * _angle_error(distance, error) + steepness * error


@_inline
def _implicit_pair(chain: Any, left: Any, i: int, right: Any, j: int, pair: Any, result: Any, errors: Any) -> float:
    """Solve Λ = σ_a² G(Λ) + σ_b² x·y + σ_0² for one pair, by Newton on the smaller of √(q_i q_j) ∓ Λ.

    Returns the residual.
    """
    recurrent, gain, bias = chain.numbers[0, 0], chain.numbers[0, 1], chain.numbers[0, 2]
    type_, constants = chain.types[0], chain.constants[0]
    q, r, vi, vj = left.variance[0, i], right.variance[0, j], left.power[0, i], right.power[0, j]
    root, size = math.sqrt(q) * math.sqrt(r), math.sqrt(vi) * math.sqrt(vj)
    radial, rough = _radial(recurrent, gain, bias, chain.relative, q, r, vi, vj, left.norm[i], right.norm[j])
    drives = (gain * pair.near + radial, gain * pair.far + radial + 2 * bias)
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
            type_, constants, q, r, vi, vj, left.tables[0], i, right.tables[0], j, eta, zeta
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
    amplified = 1 / (1 - recurrent * slope)
    known, moved = 0.0, slope_noise
    if root > 0:
        known = (gain * pair.error + rough + recurrent * noise * size) / root + residual + 4 * EPSILON * distance
        known *= amplified
        bend = bend_of_pair(type_, constants, chain.limits[0, 0], left.tables[0], i, right.tables[0], j)
        moved = _slope_error(
            type_, constants, bend, chain.limits[0, 1], slope_noise, distance, known,
            q, r, left.slope[0, i], right.slope[0, j],
        )  # fmt: skip
        growth = 1 + recurrent * amplified * moved  # the error changes the slope, and with it the gain
        known, moved = known * growth, moved * growth
    covariance = recurrent * G + gain * pair.product + bias
    d_power, d_covariance = size * (noise + 4 * EPSILON) + root * abs(slope) * known, root * (known + 4 * EPSILON)
    steep = amplified * amplified * moved
    result[_G], errors[_G] = G, d_power
    result[_COVARIANCE], errors[_COVARIANCE] = covariance, d_covariance
    result[_INJECTED] = covariance * amplified
    errors[_INJECTED] = amplified * d_covariance + recurrent * abs(covariance) * steep
    result[_TANGENT] = covariance * slope * amplified
    errors[_TANGENT] = amplified * abs(slope) * d_covariance + abs(covariance) * steep
    result[_FROZEN] = G * amplified
    errors[_FROZEN] = amplified * d_power + recurrent * abs(G) * steep
    return residual


@_inline
def _sweep(
    chain: Any, left: Any, i: int, right: Any, j: int, pair: Any, below: float, above: float, known: float, result: Any,
    errors: Any,
) -> tuple[float, float, float, float, float]:  # fmt: skip
    """Pass a state's covariance K through all levels, from its distances √(v_i v_j) ∓ K known to `known`.

    Tangents start at 0. Returns the distances of what leaves, their error, the loop's gain Π σ² Ġ and its error.
    """
    state, d_state = (above - below) / 2, known
    vi = vj = 0.0
    if chain.end == LOOP:
        vi, vj = _power_left(chain, left, -1, i), _power_left(chain, right, -1, j)
        d_state += 2 * EPSILON * (above + below)
    tangent = d_tangent = frozen = d_frozen = 0.0
    loop = loop_at_most = 1.0
    for level in range(chain.types.size):
        recurrent, gain, bias = chain.numbers[level, 0], chain.numbers[level, 1], chain.numbers[level, 2]
        q, r = left.variance[level, i], right.variance[level, j]
        radial = rough = 0.0
        if recurrent * gain + recurrent * bias + gain * bias > 0:
            radial, rough = _radial(recurrent, gain, bias, chain.relative, q, r, vi, vj, left.norm[i], right.norm[j])
        near = recurrent * below + gain * pair.near + radial
        far = recurrent * above + gain * pair.far + radial + 2 * bias
        error = recurrent * known + gain * pair.error + rough
        covariance = recurrent * state + gain * pair.product + bias
        d_covariance = recurrent * d_state + gain * pair.error + 4 * EPSILON * abs(covariance)
        vi, vj = left.power[level, i], right.power[level, j]
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
        state, slope, below, above, noise, slope_noise = dual_of_pair(
            chain.types[level], chain.constants[level], q, r, vi, vj, left.tables[level], i, right.tables[level], j,
            eta, zeta,
        )  # fmt: skip
        bend = bend_of_pair(
            chain.types[level], chain.constants[level], chain.limits[level, 0],
            left.tables[level], i, right.tables[level], j,
        )  # fmt: skip
        d_slope = _slope_error(
            chain.types[level], chain.constants[level], bend, chain.limits[level, 1], slope_noise, min(eta, zeta),
            relative, q, r, left.slope[level, i], right.slope[level, j],
        )  # fmt: skip
        steepest = abs(slope) + d_slope
        known = size * noise + steepest * error
        d_state = known + 4 * EPSILON * size
        injected, d_injected = covariance + recurrent * tangent, d_covariance + recurrent * d_tangent
        tangent, d_tangent = slope * injected, d_slope * abs(injected) + steepest * d_injected  # T = Ġ (Λ + σ² T)
        d_frozen = d_state + recurrent * (d_slope * abs(frozen) + steepest * d_frozen)
        frozen = state + recurrent * slope * frozen
        loop, loop_at_most = loop * recurrent * slope, loop_at_most * recurrent * steepest
        if chain.normalized[level]:
            si, sj = left.scale[level, i], right.scale[level, j]
            state, below, above, known, d_state = _centred(
                chain.relative,
                left.mean[level, i],
                right.mean[level, j],
                si,
                sj,
                size,
                state,
                below,
                above,
                known,
                d_state,
            )
            inverse, vi, vj = 1 / (si * sj), 1.0, 1.0
            doubt = 4 * (chain.relative + EPSILON)
            state, below, above = state * inverse, below * inverse, above * inverse
            known, d_state = known * inverse + doubt * min(below, above), d_state * inverse + doubt * abs(state)
            tangent, d_tangent = tangent * inverse, (d_tangent + doubt * abs(tangent)) * inverse
            loop, loop_at_most = loop * inverse, loop_at_most * inverse * (1 + doubt)
        result[_G], errors[_G] = state, d_state
        result[_COVARIANCE], errors[_COVARIANCE] = covariance, d_covariance
        result[_INJECTED], errors[_INJECTED] = injected, d_injected
        result[_TANGENT], errors[_TANGENT] = tangent, d_tangent
        result[_FROZEN], errors[_FROZEN] = frozen, d_frozen
    return below, above, known, loop, loop_at_most - abs(loop)


@_jit
def _power_left(chain: Any, signals: Any, level: int, i: int) -> float:
    """E[z²] of the output of a level."""
    return 1.0 if chain.normalized[level] else signals.power[level, i]


@_jit
def _centred(
    relative: float, mi: float, mj: float, si: float, sj: float, size: float,
    state: float, below: float, above: float, known: float, d_state: float,
) -> tuple[float, float, float, float, float]:  # fmt: skip
    """Covariance, distances and their errors after the means are subtracted; si, sj: standard deviations.

    √(v_i v_j) − m_i m_j − s_i s_j is |A||B| − A·B of (s, m), by Lagrange's identity.
    """
    if mi == 0 and mj == 0:
        return state, below, above, known, d_state
    mixed, total, doubt = si * mj - sj * mi, size + mi * mj + si * sj, 4 * (relative + EPSILON)
    d_mixed = doubt * (abs(si * mj) + abs(sj * mi))
    state, d_state = state - mi * mj, d_state + doubt * (abs(mi * mj) + size)
    below = max(below - mixed * mixed / total, 0.0)
    if below <= si * sj:
        known += (d_mixed * (2 * abs(mixed) + d_mixed) + doubt * mixed * mixed) / total
        return state, below, 2 * si * sj - below, known, d_state
    above = max(si * sj + state, 0.0)
    return state, 2 * si * sj - above, above, d_state, d_state


@_jit
def _loop_pair(chain: Any, left: Any, i: int, right: Any, j: int, pair: Any, result: Any, errors: Any) -> float:
    """Solve K_0 = K_L for one pair, by Newton on the smaller of √(v_i v_j) ∓ K. Returns the residual."""
    size = math.sqrt(_power_left(chain, left, -1, i)) * math.sqrt(_power_left(chain, right, -1, j))
    lengths = left.norm[i] * right.norm[j]
    side = 0 if pair.near <= pair.far else 1
    part = size * min(pair.near, pair.far) / lengths if lengths > 0 else size
    excess = loop = 0.0
    known, before = 0.0, math.inf
    for iteration in range(200):
        below, above = (part, 2 * size - part) if side == 0 else (2 * size - part, part)
        below, above, known, loop, _ = _sweep(chain, left, i, right, j, pair, below, above, 0.0, result, errors)
        excess = part - (below if side == 0 else above)
        proposal = min(max(part - excess / (1 - loop), 0.0), 2 * size)
        change = abs(proposal - part)
        if change <= 1e-15 * part or (iteration > 8 and change >= before / 2):
            break
        before = change
        part = proposal
        if part > size:
            part, side = 2 * size - part, 1 - side
    # an error bound e of the state that one more pass reproduces
    residual, error = abs(excess), 0.0
    rounding = 2 * EPSILON * part
    error = 1.01 * (known + residual + rounding) / max(1 - abs(loop), EPSILON)
    below, above = (part, 2 * size - part) if side == 0 else (2 * size - part, part)
    spread = 0.0
    for _ in range(40):
        _b, _a, known, loop, spread = _sweep(chain, left, i, right, j, pair, below, above, error, result, errors)
        if known + residual + rounding <= error:
            break
        error *= 1.5
    else:
        errors[:] = math.inf
    rest = max(1 - loop - spread, EPSILON)
    result[_TANGENT] /= 1 - loop  # T_L = T + Π σ² Ġ T_L
    errors[_TANGENT] = (errors[_TANGENT] + abs(result[_TANGENT]) * spread) / rest
    return residual / size if size > 0 else 0.0


@_inline
def solve_pair(chain: Any, left: Any, i: int, right: Any, j: int, pair: Any, result: Any, errors: Any) -> float:
    """Fill result and errors for one pair; returns the residual of its fixed point."""
    if chain.end == SINGLE:
        return _implicit_pair(chain, left, i, right, j, pair, result, errors)
    if chain.end == LOOP:
        return _loop_pair(chain, left, i, right, j, pair, result, errors)
    _sweep(chain, left, i, right, j, pair, 0.0, 0.0, 0.0, result, errors)
    return 0.0


@_jit
def value_and_error(code: int, result: Any, errors: Any) -> tuple[float, float]:
    """The kernel of one kind and the bound of its error."""
    if code == CK:
        return result[_G], errors[_G]
    if code == NNGP:
        return result[_COVARIANCE], errors[_COVARIANCE]
    if code == NTK:
        return result[_G] + result[_TANGENT], errors[_G] + errors[_TANGENT]
    if code == FROZEN:
        return result[_FROZEN], errors[_FROZEN]
    return result[_INJECTED], errors[_INJECTED]


@_jit
def layered_points(
    chain: Any, signals: Any, codes: Any, square: float, eta: Any, zeta: Any, out: Any, lost: Any
) -> float:
    """out[k, m] of sample 0 (‖x‖² = `square`) with a rotated copy, and its error: the univariate function on a sphere.

    Returns the worst residual.
    """
    result, errors = np.zeros(STATE), np.zeros(STATE)
    worst = 0.0
    for m in range(eta.size):
        rho = 1.0 - eta[m] if eta[m] <= 1.0 else zeta[m] - 1.0
        pair = Pair(square * rho, square * eta[m], square * zeta[m], 0.0)
        worst = max(worst, solve_pair(chain, signals, 0, signals, 0, pair, result, errors))
        for k in range(codes.size):
            out[k, m], lost[k, m] = value_and_error(codes[k], result, errors)
    return worst


@_inline
def ends_of_rows(
    X: Any, Y: Any, left: Any, i: int, right: Any, j: int, product: float, cut: float, rounding: float
) -> tuple[Any, int]:
    """The pair of two samples with the inner product x·y, and whether it was computed again.

    If 1 ∓ cos is below `cut`, it is recomputed from the unit vectors; otherwise its error is `rounding`.
    """
    lengths = left.norm[i] * right.norm[j]
    near, far = lengths - product, lengths + product
    side = 1.0 if near <= far else -1.0
    if not min(near, far) < cut * lengths:
        return Pair(product, near, far, rounding * lengths), 0
    left_unit, right_unit = left.factor[i] / left.norm[i], right.factor[j] / right.norm[j]
    total = 0.0
    for k in range(X.shape[1]):
        difference = left_unit * np.float64(X[i, k]) - side * right_unit * np.float64(Y[j, k])
        total += difference * difference
    small = lengths * total / 2
    # each unit vector is known to rounding, and so is the length of their difference
    error = lengths * 4 * EPSILON * (math.sqrt(total) + 4 * EPSILON)
    if side > 0:
        return Pair(lengths - small, small, 2 * lengths - small, error), 1
    return Pair(small - lengths, 2 * lengths - small, small, error), 1


@_jit
def layered_pass(
    out: Any, X: Any, Y: Any, chain: Any, left: Any, right: Any, codes: Any, cut: float, rounding: float,
    i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> tuple[float, float, int]:  # fmt: skip
    """Turn Gram entries in out[0] into kernels, one pair at a time; cut, rounding: see `ends_of_rows`.

    Returns the worst residual, the worst error relative to √(K_ii K_jj), and how many inner products were recomputed.
    """
    result, errors = np.zeros(STATE), np.zeros(STATE)
    worst, most, recomputed = 0.0, 0.0, 0
    for i in range(i0, i1):
        for j in range(max(j0, i + 1) if symmetric else j0, j1):
            product = np.float64(out[0, i, j]) * left.factor[i] * right.factor[j]
            pair, again = ends_of_rows(X, Y, left, i, right, j, product, cut, rounding)
            recomputed += again
            worst = max(worst, solve_pair(chain, left, i, right, j, pair, result, errors))
            for k in range(codes.size):
                out[k, i, j], lost = value_and_error(codes[k], result, errors)
                scale = left.root[k, i] * right.root[k, j]
                if lost != lost:
                    most = math.inf
                elif scale > 0:
                    most = max(most, lost / scale)
    return worst, most, recomputed
