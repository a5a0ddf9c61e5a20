"""One pair of images at a time: the equilibrium by Newton, the tangent kernel by Chebyshev, all in gaps h = 1 − ρ.

With c = √q √q' (variances of the two images), w = 1/(S² c), v = E[φ(ξ)²] and a window sum at each position:

    h = g + σ_a² w·Σ c(v − κ(h)),    g = w·Σ (σ_b² |x − y|²/2 + σ_a² v r) − r/c,   r = (√q − √q')²/2
    z = p + σ_a² d w·Σ z,            p = d f,   d = c Ġ,   f = ρ:   Tr(Ġ Θ*) = Σ z

g and h are sums of squares for pixels of equal norm: nothing cancels where two images nearly agree. The
operator z ↦ d w·Σ z is similar to a symmetric one with spectrum in σ_a² max Ġ·[lowest, 1], which gives the Chebyshev
coefficients; its inverse is also the Newton step in h. The largest Ġ is estimated from the mean, and residuals, not
this estimate, decide when to stop: an eigenvalue outside the interval still converges, only later.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from notsodeep.kernels.conv.sweeps import (
    add,
    columns,
    dual,
    finish,
    guess,
    jit,
    layer,
    momentum,
    relax,
    residual,
    right_hand_side,
    total,
    wrap_rows,
    wrap_sides,
)

__all__ = ["BUFFERS", "INFO", "equilibrium_tile", "layered_tile"]

BUFFERS = 14
INFO = 5  # pairs, evaluations of the dual, linear steps, largest residual, largest error
_NEWTON, _STEPS = 20, 4000  # at most


@jit
def _columns(z: Any, t: Any, shape: Any, taps: Any) -> None:
    rows, width, stride, at, around, circular = shape
    if circular:
        wrap_rows(z, rows, width, len(taps) // 2, stride, at.start)
    columns(z, t, stride, around, taps)
    if circular:
        wrap_sides(t, rows, width, len(taps) // 2, stride, at.start)


@jit
def _bounds(slope: float, power: float, recurrent: float, lowest: float) -> tuple[float, float, float]:
    """γ, σ and the convergence factor of the Chebyshev iteration for eigenvalues in top·[lowest, 1]."""
    top = recurrent * (slope + 0.4 * (power - slope))  # between the mean of Ġ and its largest value
    middle, half = top * (1 + lowest) / 2, top * (1 - lowest) / 2
    gamma = 1 / (1 - middle)
    sigma = half * gamma
    return gamma, sigma, sigma / (1 + np.sqrt(1 - sigma * sigma))


@jit
def _steps(ratio: float, rate: float) -> int:
    """How many steps divide an error by `ratio`."""
    if ratio <= 1 or rate <= 0:
        return 1
    return min(int(np.ceil(np.log(ratio) / -np.log(rate))), _STEPS)


@jit
def _newton_step(buffer: Any, chebyshev: Any, recurrent: float, steps: int, shape: Any, taps: Any) -> None:
    """h ← h + x with x = f + σ_a² w·Σ z, after `steps` Chebyshev steps for z = p + σ_a² m·Σ z from z = 0."""
    real = buffer.dtype.type
    at, around = shape[3], shape[4]
    gamma, sigma = chebyshev[0], chebyshev[1]
    w, h, f, p, m, t = buffer[1], buffer[3], buffer[6], buffer[7], buffer[11], buffer[10]
    y, z = buffer[8], buffer[9]
    ra = np.float64(recurrent)
    if steps < 2:  # z = p
        _columns(p, t, shape, taps)
        add(t, w, f, h, recurrent, at, around, taps)
        return
    # the first step gives γ p, which needs no array of its own
    omega = 1 / (1 - sigma * sigma / 2)
    _columns(p, t, shape, taps)
    a, b, e = omega * gamma * ra, omega * gamma, omega * (1 - gamma)
    relax(t, m, p, p, z, real(a * gamma), real(b), real(e * gamma), at, around, taps)
    for step in range(2, steps):
        omega = 1 / (1 - sigma * sigma * omega / 4)
        _columns(z, t, shape, taps)
        a, b, e, o = omega * gamma * ra, omega * gamma, omega * (1 - gamma), 1 - omega
        if step == 2:
            relax(t, m, p, z, y, real(a), real(b + o * gamma), real(e), at, around, taps)
        else:
            momentum(t, m, p, z, y, real(a), real(b), real(e), real(o), at, around, taps)
        z, y = y, z
    _columns(z, t, shape, taps)
    add(t, w, f, h, recurrent, at, around, taps)


@jit
def _tangent(
    buffer: Any, spread: Any, chebyshev: Any, recurrent: float, goal: float, size: float, shape: Any, taps: Any
) -> tuple[float, float, float, int]:
    """Σ z and Σ spread·z for z = d f + σ_a² m·Σ z, the residual relative to `size`, and the number of steps."""
    real = buffer.dtype.type
    at, around = shape[3], shape[4]
    gamma, sigma, rate = chebyshev
    c, d, f, p = buffer[0], buffer[5], buffer[6], buffer[7]
    y, z, t, m = buffer[8], buffer[9], buffer[10], buffer[11]
    right_hand_side(f, c, d, p, z, recurrent, at)
    ra = np.float64(recurrent)
    more = _steps(0.05 / goal, rate)
    omega, done, previous = 2.0, 0, np.inf
    while True:
        for _ in range(more):
            _columns(z, t, shape, taps)
            if done == 0:
                relax(t, m, p, z, y, real(gamma * ra), real(gamma), real(1 - gamma), at, around, taps)
            else:
                omega = 1 / (1 - sigma * sigma * omega / 4)
                a, b, e, o = omega * gamma * ra, omega * gamma, omega * (1 - gamma), 1 - omega
                momentum(t, m, p, z, y, real(a), real(b), real(e), real(o), at, around, taps)
            z, y = y, z
            done += 1
        _columns(z, t, shape, taps)
        plain, weighted, left = finish(t, m, p, z, c, d, spread, recurrent, at, around, taps)
        excess = np.float64(left) / size
        if excess <= goal or excess > previous / 2 or done >= _STEPS:
            return plain, weighted, excess, done
        previous = excess
        more = min(_steps(excess / goal, rate), 2 * done)


@jit
def _solve(
    buffer: Any, spread: Any, angle: Any, lens: Any, dense: Any, numbers: Any, wants: Any,
    shape: Any, taps: Any, size: float, scale: float, values: Any, info: Any,
) -> None:  # fmt: skip
    """values = (ck, nngp, ntk, ntk_frozen_input, ntk_injected) of the pair that `_drive` prepared.

    size, scale : Σ c, and √(Σ q · Σ q'), to which errors are relative: images that hardly overlap have a small Σ c.

    numbers : v, e, σ_a², 1/(1 − σ_a² v), largest g/(1 − σ_a² v) that `dense` knows, lowest eigenvalue, tolerances of h
        and of z, σ_b².
    wants : whether Θ* is needed, and whether its part from the recurrent weights alone is.
    """
    at, around = shape[3], shape[4]
    power, bend, recurrent = numbers[0], numbers[1], numbers[2]
    goal = np.float64(numbers[6])
    c, w, g, h, loss, d, f = buffer[0], buffer[1], buffer[2], buffer[3], buffer[4], buffer[5], buffer[6]
    p, z, t, m, border = buffer[7], buffer[9], buffer[10], buffer[11], buffer[12]
    _columns(z, t, shape, taps)
    guess(t, w, border, g, h, dense, numbers[3], numbers[4], at, around, taps)
    excess, previous, slope, mean = 0.0, np.inf, 0.0, 0.0
    chebyshev = (1.0, 0.0, 0.0)
    for attempt in range(_NEWTON):
        slope = np.float64(dual(h, c, loss, d, angle, lens, power, bend, at)) / size
        chebyshev = _bounds(slope, np.float64(power), np.float64(recurrent), np.float64(numbers[5]))
        _columns(loss, t, shape, taps)
        left, gaps = residual(t, w, g, h, c, d, f, p, m, recurrent, at, around, taps)
        info[1] += 1
        mean = np.float64(gaps) / scale
        excess = np.sqrt(np.float64(left) / scale)
        if excess <= goal or (attempt > 2 and excess > previous / 2):
            break
        previous = excess
        # Newton squares the error, so there is no point in solving more exactly than that
        steps = _steps(2 * excess / max(0.3 * goal, excess * excess), chebyshev[2])
        _newton_step(buffer, chebyshev, recurrent, steps, shape, taps)
        info[2] += steps
    gain = 1 / (1 - np.float64(recurrent) * slope)
    # rounding is amplified where the two images agree most, and Ġ is above its mean
    most = 1 / (1 - np.float64(recurrent) * (slope + 0.4 * (np.float64(power) - slope)))
    rounding = 4 * np.finfo(buffer.dtype).eps * most
    error, worst = gain * excess * np.sqrt(mean), excess
    both = total(c, loss, h, f, power, at)
    values[0], values[1] = both[0], both[1]
    if wants[0] or wants[1]:
        error += gain * gain * bend * excess / (1 + np.float64(numbers[3]))  # K_ii grows like 1/(1 − σ_a² v)
    if wants[0]:
        plain, weighted, left_over, steps = _tangent(
            buffer, spread, chebyshev, recurrent, np.float64(numbers[7]), scale, shape, taps
        )
        values[2], values[4] = values[0] + plain, values[1] + recurrent * weighted
        info[2] += steps
        worst, error = max(worst, left_over), max(error, left_over / 10)
    if wants[1]:
        z[at] = power * c[at] - loss[at]
        _columns(z, t, shape, taps)
        f[at] = 0
        layer(t, w, f, f, recurrent, at, around, taps)
        plain, weighted, left_over, steps = _tangent(
            buffer, spread, chebyshev, recurrent, np.float64(numbers[7]), scale, shape, taps
        )
        values[3] = values[0] + plain
        info[2] += steps
        worst, error = max(worst, left_over), max(error, left_over / 10)
    info[3], info[4] = max(info[3], worst), max(info[4], error + rounding)


@jit
def _drive(L: Any, R: Any, level: int, i: int, j: int, factor: float, buffer: Any, at: Any) -> tuple[float, float]:
    """c = √q √q', w, row 12 = (S√q − S'√q')²/2 less what windows miss, row 13 = factor (√q − √q')².

    Returns Σ c and √(Σ q · Σ q').
    """
    half = buffer.dtype.type(0.5)
    cc, ww, bb, ee = buffer[0, at], buffer[1, at], buffer[12, at], buffer[13, at]
    s1, s2, s3, s4 = L[0, level, i, at], L[1, level, i, at], L[2, level, i, at], L[3, level, i, at]
    r1, r2, r3, r4 = R[0, level, j, at], R[1, level, j, at], R[2, level, j, at], R[3, level, j, at]
    total = first = second = buffer.dtype.type(0)
    for k in range(cc.shape[0]):
        difference = s1[k] - r1[k]
        edge = s3[k] - r3[k]
        c = s1[k] * r1[k]
        cc[k] = c
        ww[k] = s2[k] * r2[k]
        bb[k] = half * edge * edge - s4[k] - r4[k]
        ee[k] = factor * difference * difference
        total += c
        first += s1[k] * s1[k]
        second += r1[k] * r1[k]
    return np.float64(total), np.sqrt(np.float64(first)) * np.sqrt(np.float64(second))


@jit
def _distance(x: Any, y: Any, buffer: Any, at: Any) -> None:
    """Row 9 = |x − y|² + row 13."""
    before, ee = buffer[13, at], buffer[9, at]
    a, b = x[0, at], y[0, at]
    for k in range(ee.shape[0]):
        difference = a[k] - b[k]
        ee[k] = before[k] + difference * difference
    for channel in range(1, x.shape[0]):
        a, b = x[channel, at], y[channel, at]
        for k in range(ee.shape[0]):
            difference = a[k] - b[k]
            ee[k] += difference * difference


@jit
def equilibrium_tile(
    out: Any, X: Any, Y: Any, L: Any, R: Any, left: Any, right: Any, spread: Any, angle: Any, lens: Any,
    dense: Any, numbers: Any, codes: Any, wants: Any, shape: Any, taps: Any, buffer: Any, first: int, info: Any,
) -> None:  # fmt: skip
    """out[k, i, j] += kernel k of images X[i] and Y[j], for j ≥ i + first.

    L, R : (√q, 1/(S√q), S√q, what truncated windows miss) × levels × entries × length.
    left, right : which entry belongs to each image; all images of unit pixels share one.
    """
    values = np.zeros(5)
    factor = numbers[0] * numbers[2] / buffer.dtype.type(2)
    at = shape[3]
    size, scale, a, b = 0.0, 0.0, -1, -1
    for i in range(X.shape[0]):
        for j in range(max(0, i + first), Y.shape[0]):
            if a != left[i] or b != right[j]:
                a, b = left[i], right[j]
                size, scale = _drive(L, R, 0, a, b, factor, buffer, at)
            info[0] += 1
            if size <= 0:  # one of the images is black
                continue
            _distance(X[i], Y[j], buffer, at)
            _solve(buffer, spread, angle, lens, dense, numbers, wants, shape, taps, size, scale, values, info)
            for k in range(codes.size):
                out[k, i, j] += values[codes[k]]


@jit
def layered_tile(
    out: Any, X: Any, Y: Any, L: Any, R: Any, left: Any, right: Any, spread: Any, angle: Any, lens: Any,
    dense: Any, numbers: Any, codes: Any, wants: Any, shape: Any, taps: Any, buffer: Any, first: int, info: Any,
) -> None:  # fmt: skip
    """The same after L.shape[1] − 1 layers from Σ⁰ = x·y, where h⁰ = (|x − y|²/2 − r)/c needs no window."""
    real = buffer.dtype.type
    at, around = shape[3], shape[4]
    power, bend, recurrent = numbers[0], numbers[1], numbers[2]
    factor = power * recurrent / real(2)
    zero, two, one, tiny = real(0), real(2), real(1), real(1e-36)
    c, w, g, h, loss, d = buffer[0], buffer[1], buffer[2], buffer[3], buffer[4], buffer[5]
    tangent, own, f, z = buffer[6], buffer[7], buffer[8], buffer[9]
    t, border, rough = buffer[10], buffer[12], buffer[13]
    for i in range(X.shape[0]):
        for j in range(max(0, i + first), Y.shape[0]):
            a, b = left[i], right[j]
            _drive(L, R, 0, a, b, -numbers[8] / two, buffer, at)
            _distance(X[i], Y[j], buffer, at)  # σ_b² times c h⁰
            gap = np.maximum(z[at], zero) / numbers[8]
            h[at] = np.minimum(gap / np.maximum(c[at], tiny), two)
            tangent[at] = one - h[at]
            own[at] = zero
            dual(h, c, loss, d, angle, lens, power, bend, at)
            for level in range(1, L.shape[1]):
                # what the last layer hands on, before c and w change
                f[at] = power * c[at] - loss[at] + d[at] * own[at]
                z[at] = d[at] * tangent[at]
                difference = L[0, level - 1, a, at] - R[0, level - 1, b, at]
                _drive(L, R, level, a, b, zero, buffer, at)
                rough[at] = factor * difference * difference
                g[at] = zero
                _columns(z, t, shape, taps)
                layer(t, w, g, tangent, recurrent, at, around, taps)
                _columns(f, t, shape, taps)
                layer(t, w, g, own, recurrent, at, around, taps)
                _columns(loss, t, shape, taps)
                layer(t, w, g, h, recurrent, at, around, taps)
                _distance(X[i], Y[j], buffer, at)
                _columns(z, t, shape, taps)
                g[at] = -w[at] * border[at]
                layer(t, w, g, z, one, at, around, taps)
                h[at] = np.minimum(h[at] + np.maximum(z[at], zero), two)
                tangent[at] += one - h[at]
                dual(h, c, loss, d, angle, lens, power, bend, at)
            info[0] += 1
            info[4] = 4 * np.finfo(buffer.dtype).eps * min(np.float64(L.shape[1]), np.float64(numbers[3]))
            both = total(c, loss, h, f, power, at)
            for k in range(codes.size):
                code = codes[k]
                value = np.float64(both[1] if code == 1 else both[0])
                if code == 2:
                    value += np.sum(d[at] * tangent[at])
                elif code == 3:
                    value += np.sum(d[at] * own[at])
                elif code == 4:
                    value = np.float64(np.sum(c[at] * tangent[at]))
                out[k, i, j] += value
