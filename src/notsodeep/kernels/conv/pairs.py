"""One pair of images at a time: the equilibrium by Newton, the tangent kernel by Chebyshev, all in gaps h = 1 − ρ.

With c = √q √q' (variances of the two images), w = 1/(S S' c), v = E[φ(ξ)²] and a window sum at each position:

    h = g + σ_a² w·Σ c(v − κ(h)),    g = w·Σ (σ_b² |λx − y/λ|² + σ_a² v (λ√q − √q'/λ)²)/2,   λ² = S'√q'/(S√q)
    z = p + σ_a² d w·Σ z,            p = d f,   d = c Ġ,   f = ρ:   Tr(Ġ Θ*) = Σ z

g and h are sums of squares, so nothing cancels for two images that differ only in brightness. λ is that of the window's
middle position; each term is formed with its own balanced λ, and changing to another λ adds a square. The operator
z ↦ d w·Σ z is similar to a symmetric one with spectrum in σ_a² max Ġ·[lowest, 1], which gives the Chebyshev
coefficients; its inverse is also the Newton step in h. The largest Ġ is estimated from the mean. Residuals, not this
estimate, decide when to stop: an eigenvalue outside the interval still converges, only more slowly.

The stated error. Let F bound |T(h) − h| for the exact map T (`doubt`), and gain = 1/(1 − σ_a² Ġ) at the smallest
angle. T is increasing and concave, so h is known to gain·F and the angle to gain·F/√(2h + gain·F). The tangent kernel
changes by Σ a δĠ Θ, where δĠ = e δθ, the adjoint solution a is at most border·gain, and Θ is at most c times the gain
of equal images.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from notsodeep.kernels.conv.sweeps import (
    add,
    balance,
    columns,
    distance,
    dual,
    extremes,
    finish,
    guess,
    jit,
    layer,
    momentum,
    rescaled_columns,
    rescaled_window,
    residual,
    right_hand_side,
    slide,
    total,
    wrap_rows,
    wrap_sides,
)
from notsodeep.kinds import FROZEN, INJECTED, NNGP, NTK

__all__ = ["BUFFERS", "INFO", "equilibrium_tile", "layered_tile"]

BUFFERS = 15
INFO = 4  # pairs, evaluations of the dual, linear steps, largest residual
_NEWTON, _STEPS = 20, 4000  # at most
_RELATIVE, _NOISE = 4.0, 1.5  # rounding of sums of positive numbers, and of vectors, in units of the last place
_ROOM = 1.5  # for residuals that are largest where they matter most
_SUMS = 4.0  # the same for what is summed over all positions
_DIM = 0.01  # times √eps: positions with a smaller fraction of Σ c are ignored


@jit
def _columns(z: Any, t: Any, shape: Any, taps: Any) -> None:
    rows, width, stride, at, around, circular = shape
    if circular:
        wrap_rows(z, rows, width, len(taps) // 2, stride, at.start)
    columns(z, t, stride, around, taps)
    if circular:
        wrap_sides(t, rows, width, len(taps) // 2, stride, at.start)


@jit
def _step(z: Any, y: Any, m: Any, p: Any, t: Any, weights: Any, last: Any, shape: Any, taps: Any) -> None:
    """y ← a m·Σ z + b p + e z + last·y with (a, b, e) = weights; y is only written if `last` is None."""
    real = y.dtype.type
    a, b, e = real(weights[0]), real(weights[1]), real(weights[2])
    o = None if last is None else real(last)
    if len(taps) == 3 and not shape[5]:
        slide(z, m, p, y, a, b, e, o, shape[2], shape[3])
    else:
        _columns(z, t, shape, taps)
        momentum(t, m, p, z, y, a, b, e, o, shape[3], shape[4], taps)


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
    a, b, e = omega * gamma * ra, omega * gamma, omega * (1 - gamma)
    _step(p, z, m, p, t, (a * gamma, b, e * gamma), None, shape, taps)
    for step in range(2, steps):
        omega = 1 / (1 - sigma * sigma * omega / 4)
        a, b, e, o = omega * gamma * ra, omega * gamma, omega * (1 - gamma), 1 - omega
        if step == 2:
            _step(z, y, m, p, t, (a, b + o * gamma, e), None, shape, taps)
        else:
            _step(z, y, m, p, t, (a, b, e), o, shape, taps)
        z, y = y, z
    _columns(z, t, shape, taps)
    add(t, w, f, h, recurrent, at, around, taps)


@jit
def _tangent(
    buffer: Any, counted: Any, spread: Any, chebyshev: Any, recurrent: float, goal: float, size: float,
    shape: Any, taps: Any,
) -> tuple[float, float, float, int]:  # fmt: skip
    """Σ counted·z and Σ spread·z for z = d f + σ_a² m·Σ z, the residual relative to `size`, the number of steps."""
    at, around = shape[3], shape[4]
    gamma, sigma, rate = chebyshev
    c, d, f, p = buffer[0], buffer[5], buffer[6], buffer[7]
    y, z, t, m = buffer[8], buffer[9], buffer[10], buffer[11]
    right_hand_side(f, c, d, p, z, recurrent, at)
    ra = np.float64(recurrent)
    more = _steps(0.03 / goal, rate)
    omega, done, previous = 2.0, 0, np.inf
    while True:
        for _ in range(more):
            if done == 0:
                _step(z, y, m, p, t, (gamma * ra, gamma, 1 - gamma), None, shape, taps)
            else:
                omega = 1 / (1 - sigma * sigma * omega / 4)
                a, b, e = omega * gamma * ra, omega * gamma, omega * (1 - gamma)
                _step(z, y, m, p, t, (a, b, e), 1 - omega, shape, taps)
            z, y = y, z
            done += 1
        _columns(z, t, shape, taps)
        plain, weighted, left = finish(t, m, p, z, c, d, spread, recurrent, at, around, taps)
        excess = np.float64(left) / size
        if excess <= goal or excess > previous / 2 or done >= _STEPS:
            if counted.size > 0:  # these weights instead of `spread`
                plain = finish(t, m, p, z, c, d, counted, recurrent, at, around, taps)[1]
            return plain, weighted, excess, done
        previous = excess
        more = min(_steps(excess / goal, rate), 2 * done)


@jit
def _angles(buffer: Any, bits: Any, limit: float, at: Any) -> tuple[float, float]:
    """The smallest and the largest angle where c > limit."""
    # two entries outside the image serve as a buffer, read both as floats and as bits
    buffer[12, 0], buffer[12, 1] = limit, 2
    bits[12, 0], bits[12, 1] = extremes(bits[3], bits[0], bits[12, 0], bits[12, 1], at)
    return (
        2 * np.arcsin(np.sqrt(np.float64(buffer[12, 0]) / 2)),
        2 * np.arcsin(np.sqrt(np.float64(buffer[12, 1]) / 2)),
    )


@jit
def _doubt(excess: float, gap: float, drive: float, high: float, eps: float) -> float:
    """F/√(2y), y = min(h, 2 − h), as a root mean square: the error of the map in the angle.

    F = |f| + relative·h + 2 noise·√(2g): the residual, rounding in sums of positive terms, and g, the square of a
    difference of vectors known to `noise`. √(g/h) is taken from the means, with some room. Near θ = π an h close to 2
    has few digits.
    """
    share = min(1.0, 3 * drive / gap) if gap > 0 else 1.0
    size = _ROOM * excess + eps * (_RELATIVE * np.sqrt(gap) + 2.83 * _NOISE * np.sqrt(share))
    return size / max(np.cos(high / 2), np.sqrt(size))


@jit
def _steepest(low: float, high: float, wrong: float, power: float, bend: float) -> float:
    """The largest |Ġ| for angles between `low` and `high` that are known to 2·wrong."""
    return max(power - bend * max(low - 2 * wrong, 0.0), bend * min(high + 2 * wrong, np.pi) - power)


@jit
def _solve(
    buffer: Any, bits: Any, counted: Any, spread: Any, angle: Any, lens: Any, dense: Any, numbers: Any, wants: Any,
    shape: Any, taps: Any, even: bool, size: float, scale: float, values: Any, info: Any,
) -> tuple[float, float]:  # fmt: skip
    """values = (ck, nngp, ntk, ntk_frozen_input, ntk_injected) of the pair that `_drive` prepared.

    Returns the errors of Σ cρ and of the tangent kernels, which bound the sums of |errors| over all positions: those of
    sums over some of them, too.

    counted : 1 at the positions that belong to the sums, 0 elsewhere; empty if all do.
    spread : Bᵀ counted, the weights with which these sums are made of z.
    even : whether row 9 still has to be summed over windows.
    size, scale : Σ c, and √(Σ q · Σ q'), to which residuals are relative: images that hardly overlap have a small Σ c.

    numbers : v, e, σ_a², 1/(1 − σ_a² v), largest g/(1 − σ_a² v) that `dense` knows, lowest eigenvalue, tolerances of h
        and of z, σ_b², border.
    wants : whether Θ* is needed, and whether its part from the recurrent weights alone is.
    """
    at, around = shape[3], shape[4]
    power, bend, recurrent = numbers[0], numbers[1], numbers[2]
    c, w, g, h, loss, d, f = buffer[0], buffer[1], buffer[2], buffer[3], buffer[4], buffer[5], buffer[6]
    p, z, t, m, missed = buffer[7], buffer[9], buffer[10], buffer[11], buffer[12]
    if even:
        _columns(z, t, shape, taps)
        guess(t, w, missed, g, h, dense, numbers[3], numbers[4], at, around, taps)
    else:
        guess(z, w, missed, g, h, dense, numbers[3], numbers[4], at, at, (0,))
    eps, v, ra = np.finfo(buffer.dtype).eps, np.float64(power), np.float64(recurrent)
    natural = np.float64(numbers[3])
    excess, previous, slope, mean, most = 0.0, np.inf, 0.0, 0.0, 1.0
    chebyshev = (1.0, 0.0, 0.0)
    for attempt in range(_NEWTON):
        slope = np.float64(dual(h, c, loss, d, angle, lens, power, bend, at)) / size
        chebyshev = _bounds(slope, v, ra, np.float64(numbers[5]))
        _columns(loss, t, shape, taps)
        left, gaps = residual(t, w, g, h, c, d, f, p, m, recurrent, at, around, taps)
        info[1] += 1
        mean = np.float64(gaps) / scale
        excess = np.sqrt(np.float64(left) / scale)
        # an error of the angle is amplified by this gain twice, K_ii once by that of equal images
        most = 1 / (1 - ra * (slope + 0.4 * (v - slope)))
        goal = max(np.float64(numbers[6]) * min(1.0, natural / (most * most)), eps * np.sqrt(mean))
        if excess <= goal or (attempt > 2 and excess > previous / 2):
            break
        previous = excess
        # Newton squares the error, so the linear system need not be solved more accurately
        steps = _steps(2 * excess / max(0.3 * goal, excess * excess), chebyshev[2])
        _newton_step(buffer, chebyshev, recurrent, steps, shape, taps)
        info[2] += steps
    both = total(c, loss, g, h, f, power, at)
    values[0], values[1] = both[0], both[1]
    if counted.size > 0:
        z[at], p[at] = counted[at] * c[at], counted[at] * loss[at]
        values[0], values[1], _ = total(z, p, g, h, f, power, at)
    e, border = np.float64(bend), np.float64(numbers[9])
    low, high = _angles(buffer, bits, _DIM * np.sqrt(eps) * size, at)
    doubt = _doubt(excess, mean, np.float64(both[2]) / scale, high, eps)
    gain = 1 / (1 - ra * _steepest(low, high, 0.0, v, e))
    gain = 1 / (1 - ra * _steepest(low, high, gain * doubt, v, e))
    wrong = gain * doubt + 1.5 * _NOISE * eps * np.sqrt(gain)
    plain_error = scale * (wrong * np.sqrt(2 * mean) + _SUMS * eps)
    tangent_error, unsolved = v * plain_error, 0.0
    if wants[0] or wants[1]:
        tangent_error += border * gain * min(border * gain, natural) * scale * (e * wrong + v * _SUMS * eps)
    if wants[0]:
        plain, weighted, left_over, steps = _tangent(
            buffer, counted, spread, chebyshev, recurrent, np.float64(numbers[7]), scale, shape, taps
        )
        values[2], values[4] = values[0] + plain, values[1] + recurrent * weighted
        info[2] += steps
        excess, unsolved = max(excess, left_over), max(unsolved, left_over)
    if wants[1]:
        z[at] = power * c[at] - loss[at]
        _columns(z, t, shape, taps)
        f[at] = 0
        layer(t, w, f, f, recurrent, at, around, taps)
        plain, weighted, left_over, steps = _tangent(
            buffer, counted, spread, chebyshev, recurrent, np.float64(numbers[7]), scale, shape, taps
        )
        values[3] = values[0] + plain
        info[2] += steps
        excess, unsolved = max(excess, left_over), max(unsolved, left_over)
    info[3] = max(info[3], excess)
    # where Ġ ≥ 0, the adjoint solution and the guess of it in `finish` exceed `counted` by border·gain − 1 at most
    most = border * gain - (1 if np.pi * e <= v else 0)
    return plain_error, tangent_error + most * unsolved * scale


@jit
def _drive(L: Any, R: Any, level: int, i: int, j: int, buffer: Any, at: Any) -> tuple[float, float, bool]:
    """c = √q √q', w, row 12 = what windows miss, rows 13 and 14 = λ and 1/λ (1 where c = 0).

    Returns Σ c, √(Σ q · Σ q') and whether q = q' and λ = 1 everywhere.
    """
    zero, one = buffer.dtype.type(0), buffer.dtype.type(1)
    cc, ww, up, down = buffer[0, at], buffer[1, at], buffer[13, at], buffer[14, at]
    s1, s2 = L[0, level, i, at], L[1, level, i, at]
    r1, r2 = R[0, level, j, at], R[1, level, j, at]
    total = first = second = odd = zero
    near = buffer.dtype.type(8 * np.finfo(buffer.dtype).eps)
    for k in range(cc.shape[0]):
        c = s1[k] * r1[k]
        cc[k] = c
        odd += one if abs(s1[k] - r1[k]) > near * s1[k] else zero
        total += c
        first += s1[k] * s1[k]
        second += r1[k] * r1[k]
    for k in range(cc.shape[0]):
        w = s2[k] * r2[k]
        ww[k] = w * w
        scale = s2[k] / r2[k] if w > 0 else one
        up[k] = scale
        down[k] = one / scale
        odd += one if abs(scale - one) > near else zero
    bb, s4, r4 = buffer[12, at], L[4, level, i, at], R[4, level, j, at]
    for k in range(cc.shape[0]):
        bb[k] = up[k] * up[k] * s4[k] + down[k] * down[k] * r4[k]
    return np.float64(total), np.sqrt(np.float64(first)) * np.sqrt(np.float64(second)), odd == 0


@jit
def _distance(x: Any, y: Any, buffer: Any, at: Any) -> None:
    """Row 9 = |x − y|²."""
    ee = buffer[9, at]
    a, b = x[0, at], y[0, at]
    for k in range(ee.shape[0]):
        difference = a[k] - b[k]
        ee[k] = difference * difference
    for channel in range(1, x.shape[0]):
        a, b = x[channel, at], y[channel, at]
        for k in range(ee.shape[0]):
            difference = a[k] - b[k]
            ee[k] += difference * difference


@jit
def _windows(
    x: Any, y: Any, L: Any, R: Any, level: int, before: int, i: int, j: int, numbers: Any,
    buffer: Any, shape: Any, taps: Any,
) -> None:  # fmt: skip
    """Row 9 = Σ (|λx − y/λ|² + σ_a² v (λ√q − √q'/λ)²/2) over windows, with the λ of their middle; uses rows 4 and 5."""
    rows, width, stride, at, around, circular = shape
    half, zero, one = len(taps) // 2, buffer.dtype.type(0), buffer.dtype.type(1)
    up, down, e, t = buffer[4], buffer[5], buffer[9], buffer[10]
    factor = numbers[0] * numbers[2] / buffer.dtype.type(2)
    s, r = L[2, level, i], R[2, level, j]
    balance(s, r, up, down, at)
    distance(L[0, before, i], R[0, before, j], up, down, zero, factor, e, at)
    for channel in range(x.shape[0]):
        distance(x[channel], y[channel], up, down, one, one, e, at)
    if circular:
        wrap_rows(e, rows, width, half, stride, at.start)
    left, right = L[3, level, i], R[3, level, j]
    balance(left, right, up, down, at)
    rescaled_columns(e, s, r, up, down, t, stride, at, taps)
    if circular:
        wrap_sides(t, rows, width, half, stride, at.start)
    rescaled_window(t, left, right, buffer[13], buffer[14], e, at, around, taps)


@jit
def equilibrium_tile(
    out: Any, trust: Any, X: Any, Y: Any, L: Any, R: Any, left: Any, right: Any, counted: Any, spread: Any,
    angle: Any, lens: Any, dense: Any, numbers: Any, codes: Any, wants: Any, shape: Any, taps: Any, buffer: Any,
    bits: Any, first: int, info: Any,
) -> None:  # fmt: skip
    """out[k, i, j] += kernel k of images X[i] and Y[j], for j ≥ i + first; trust[0 or 1, i, j] += errors of `_solve`.

    L, R : (√q, 1/√(S√q), √(source/2), the same of columns, what truncated windows miss) × levels × entries × length.
    left, right : which entry belongs to each image; all images of unit pixels share one.
    """
    values = np.zeros(5)
    at = shape[3]
    size, scale, even, a, b = 0.0, 0.0, True, -1, -1
    for i in range(X.shape[0]):
        for j in range(max(0, i + first), Y.shape[0]):
            if a != left[i] or b != right[j]:
                a, b = left[i], right[j]
                size, scale, even = _drive(L, R, 0, a, b, buffer, at)
            info[0] += 1
            if size <= 0:  # one of the images is black
                continue
            if even:
                _distance(X[i], Y[j], buffer, at)
            else:
                _windows(X[i], Y[j], L, R, 0, 0, a, b, numbers, buffer, shape, taps)
            errors = _solve(
                buffer, bits, counted, spread, angle, lens, dense, numbers, wants, shape, taps,
                even, size, scale, values, info,
            )  # fmt: skip
            trust[0, i, j] += errors[0]
            trust[1, i, j] += errors[1]
            for k in range(codes.size):
                out[k, i, j] += values[codes[k]]


@jit
def _start(x: Any, y: Any, L: Any, R: Any, i: int, j: int, drive: float, h: Any, k: Any, at: Any) -> None:
    """h = |x/√q − y/√q'|²/2 and k = 2 − h = |x/√q + y/√q'|²/2 with q = |x|²: sums of squares, nothing cancels."""
    zero, one, two = h.dtype.type(0), h.dtype.type(1), h.dtype.type(2)
    hh, kk, own, other = h[at], k[at], L[0, 0, i, at], R[0, 0, j, at]
    for n in range(hh.shape[0]):
        inside = own[n] * other[n] > 0
        up, down = (one / own[n], one / other[n]) if inside else (zero, zero)
        near = far = zero
        for channel in range(x.shape[0]):
            a, b = up * x[channel, at.start + n], down * y[channel, at.start + n]
            near += (a - b) * (a - b)
            far += (a + b) * (a + b)
        near, far = near / drive, far / drive
        hh[n] = min(near, one) if near <= far else two - min(far, one)
        kk[n] = far


@jit
def _antipodes(c: Any, d: Any, k: Any, power: float, bend: float, at: Any) -> None:
    """d = c Ġ from k = 1 + ρ where it is small: h = 2 − k has lost its digits."""
    two, pi = c.dtype.type(2), c.dtype.type(np.pi)
    cc, dd, kk = c[at], d[at], k[at]
    for n in range(cc.shape[0]):
        if kk[n] < 0.1:
            dd[n] = cc[n] * (power - bend * (pi - two * np.arcsin(np.sqrt(kk[n] / two))))


@jit
def layered_tile(
    out: Any, trust: Any, X: Any, Y: Any, L: Any, R: Any, left: Any, right: Any, counted: Any, spread: Any,
    angle: Any, lens: Any, dense: Any, numbers: Any, codes: Any, wants: Any, shape: Any, taps: Any, buffer: Any,
    bits: Any, first: int, info: Any,
) -> None:  # fmt: skip
    """The same after L.shape[1] − 1 layers from Σ⁰ = x·y, where h⁰ = (|x − y|²/2 − r)/c needs no window."""
    real = buffer.dtype.type
    at, around = shape[3], shape[4]
    power, bend, recurrent = numbers[0], numbers[1], numbers[2]
    zero, two, one = real(0), real(2), real(1)
    c, w, g, h, loss, d = buffer[0], buffer[1], buffer[2], buffer[3], buffer[4], buffer[5]
    tangent, own, f, z = buffer[6], buffer[7], buffer[8], buffer[9]
    t, missed, tiny = buffer[10], buffer[12], 1e-300
    eps, v, e = np.finfo(buffer.dtype).eps, np.float64(power), np.float64(bend)
    f[at] = zero
    for i in range(X.shape[0]):
        for j in range(max(0, i + first), Y.shape[0]):
            a, b = left[i], right[j]
            size, scale, even = _drive(L, R, 0, a, b, buffer, at)
            _start(X[i], Y[j], L, R, a, b, numbers[8], h, g, at)
            tangent[at] = one - h[at]
            own[at] = zero
            dual(h, c, loss, d, angle, lens, power, bend, at)
            _antipodes(c, d, g, power, bend, at)
            both = total(c, loss, g, h, f, power, at)
            # errors of the angle, of the tangent kernel by them, and by rounding
            wrong = 2 * _NOISE * eps
            bent, rounded, slope = wrong, 1.0, 1.0
            for level in range(1, L.shape[1]):
                # output of the previous layer, before c and w change
                f[at] = power * c[at] - loss[at] + d[at] * own[at]
                z[at] = d[at] * tangent[at]
                before = even
                size, scale, even = _drive(L, R, level, a, b, buffer, at)
                g[at] = zero
                _columns(z, t, shape, taps)
                layer(t, w, g, tangent, recurrent, at, around, taps)
                _columns(f, t, shape, taps)
                layer(t, w, g, own, recurrent, at, around, taps)
                _columns(loss, t, shape, taps)
                layer(t, w, g, h, recurrent, at, around, taps)
                if even and before:
                    _distance(X[i], Y[j], buffer, at)
                    _columns(z, t, shape, taps)
                    z[at] = w[at] * missed[at]
                    layer(t, w, z, g, one, at, around, taps)
                else:
                    _windows(X[i], Y[j], L, R, level, level - 1, a, b, numbers, buffer, shape, taps)
                    g[at] = w[at] * np.maximum(z[at] + missed[at], zero)
                h[at] = np.minimum(h[at] + g[at], two)
                tangent[at] += one - h[at]
                dual(h, c, loss, d, angle, lens, power, bend, at)
                f[at] = zero
                both = total(c, loss, g, h, f, power, at)
                low, high = _angles(buffer, bits, _DIM * np.sqrt(eps) * size, at)
                mean = max(size - np.float64(both[1]), 0.0) / max(scale, tiny)
                doubt = _doubt(0.0, mean, np.float64(both[2]) / max(scale, tiny), high, eps)
                wrong = wrong * np.sqrt(slope) + doubt + 1.5 * _NOISE * eps
                slope = _steepest(low, high, wrong, v, e) / v
                bent, rounded = bent * slope + wrong, rounded * slope + 1
            info[0] += 1
            if size <= 0:
                continue
            mean = max(size - np.float64(both[1]), 0.0) / scale
            plain_error = scale * (wrong * np.sqrt(2 * mean) + _SUMS * eps)
            trust[0, i, j] += plain_error
            trust[1, i, j] += v * plain_error
            if wants[0] or wants[1]:
                most = np.float64(numbers[9]) * min(np.float64(numbers[3]), rounded)
                trust[1, i, j] += most * scale * (e * bent + v * _SUMS * eps * rounded)
            if counted.size > 0:
                c[at], loss[at], d[at] = counted[at] * c[at], counted[at] * loss[at], counted[at] * d[at]
                both = total(c, loss, g, h, f, power, at)
            for k in range(codes.size):
                code = codes[k]
                value = np.float64(both[1] if code == NNGP else both[0])
                if code == NTK:
                    value += np.sum(d[at] * tangent[at])
                elif code == FROZEN:
                    value += np.sum(d[at] * own[at])
                elif code == INJECTED:
                    value = np.float64(np.sum(c[at] * tangent[at]))
                out[k, i, j] += value
