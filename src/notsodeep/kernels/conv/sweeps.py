"""Compiled sweeps over the positions of one pair of images.

An image is one flat array: its rows follow each other with a margin of zeros between them, so that a window sum is a
sum of shifted slices and every sweep is a single long loop, which LLVM turns into SIMD code. The weights are zero on
the margin and keep it zero. The arrays of one pair stay in the first-level cache.

`at` is the slice from the first pixel to the last, `around` the same widened by half a filter; `taps` is a tuple with
one entry per column of the filter: only its length is used, and it is known at compile time. `t` holds vertical sums,
whose sum over the taps is the window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload

from notsodeep import compilation

__all__ = [
    "TERMS",
    "add",
    "balance",
    "columns",
    "distance",
    "dual",
    "extremes",
    "finish",
    "guess",
    "jit",
    "layer",
    "momentum",
    "rescaled_columns",
    "rescaled_window",
    "residual",
    "right_hand_side",
    "slide",
    "total",
    "wrap_rows",
    "wrap_sides",
]

TERMS = {"float32": 8, "float64": 24}  # of the polynomials in `dual`

jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz", "nnan", "reassoc"})


@jit
def wrap_rows(z: Any, rows: int, width: int, half: int, stride: int, start: int) -> None:
    """Fill the margins above and below from the opposite sides (circular padding)."""
    for i in range(half):
        first, last = start + i * stride, start + (rows - 1 - i) * stride
        above, below = last - rows * stride, first + rows * stride
        for k in range(width):
            z[below + k] = z[first + k]
            z[above + k] = z[last + k]


@jit
def wrap_sides(t: Any, rows: int, width: int, half: int, stride: int, start: int) -> None:
    """The same on the left and on the right, for vertical sums."""
    for i in range(rows):
        first = start + i * stride
        for j in range(half):
            t[first - 1 - j] = t[first + width - 1 - j]
            t[first + width + j] = t[first + j]


@jit
def columns(z: Any, t: Any, stride: int, around: Any, taps: Any) -> None:
    """t = sums of `len(taps)` vertical neighbours of z."""
    half = len(taps) // 2
    begin, end = around.start & -16, around.stop  # aligned stores
    o, a = t[begin:end], z[begin:end]
    if half == 0:
        for k in range(o.shape[0]):
            o[k] = a[k]
        return
    b, c = z[begin - stride : end - stride], z[begin + stride : end + stride]
    if half == 1:
        for k in range(o.shape[0]):
            o[k] = a[k] + b[k] + c[k]
        return
    d, e = z[begin - 2 * stride : end - 2 * stride], z[begin + 2 * stride : end + 2 * stride]
    for k in range(o.shape[0]):
        o[k] = a[k] + b[k] + c[k] + d[k] + e[k]
    for i in range(3, half + 1):
        b, c = z[begin - i * stride : end - i * stride], z[begin + i * stride : end + i * stride]
        for k in range(o.shape[0]):
            o[k] += b[k] + c[k]


@jit
def _window(tt, k, taps):  # type: ignore[no-untyped-def]
    s = tt[k]
    for j in range(1, len(taps)):
        s += tt[k + j]
    return s


@jit
def _eight(p, x, c0, c1, c2, c3, c4, c5, c6, c7):  # type: ignore[no-untyped-def]
    return (((((((p * x + c0) * x + c1) * x + c2) * x + c3) * x + c4) * x + c5) * x + c6) * x + c7


def _horner(c: Any, x: float) -> float:
    """c[0] x^(n−1) + … + c[n−1], unrolled: n is 8 or 24."""
    raise NotImplementedError("for compiled code only")


@overload(_horner)
def _horner_compiled(c, x):  # type: ignore[no-untyped-def]
    if len(c) == 8:
        return lambda c, x: _eight(c[0] - c[0], x, c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7])

    def long(c, x):  # type: ignore[no-untyped-def]
        p = _eight(c[0] - c[0], x, c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7])
        p = _eight(p, x, c[8], c[9], c[10], c[11], c[12], c[13], c[14], c[15])
        return _eight(p, x, c[16], c[17], c[18], c[19], c[20], c[21], c[22], c[23])

    return long


@jit
def guess(
    t: Any,
    w: Any,
    border: Any,
    g: Any,
    h: Any,
    dense: Any,
    rest: float,
    largest: float,
    at: Any,
    around: Any,
    taps: Any,
) -> None:
    """g = w·(window + border), and a first h ≥ g that assumes equal g in the window: a polynomial in √(g·rest)."""
    zero, two = g.dtype.type(0), g.dtype.type(2)
    ww, bb, gg, hh, tt = w[at], border[at], g[at], h[at], t[around]
    for k in range(gg.shape[0]):
        x = max(ww[k] * (_window(tt, k, taps) + bb[k]), zero)
        gg[k] = x
        u = np.sqrt(min(x * rest, largest))
        hh[k] = min(max(x * _horner(dense, u), x), two)


@jit
def balance(s: Any, r: Any, up: Any, down: Any, at: Any) -> None:
    """λ = √(r/s) and 1/λ, which make λs and r/λ equal; both 0 where one of them is."""
    zero, one = s.dtype.type(0), s.dtype.type(1)
    ss, rr, uu, dd = s[at], r[at], up[at], down[at]
    for k in range(ss.shape[0]):
        scale = np.sqrt(rr[k] / ss[k]) if ss[k] * rr[k] > 0 else zero
        uu[k] = scale
        dd[k] = one / scale if scale > 0 else zero


@jit
def distance(x: Any, y: Any, up: Any, down: Any, before: float, factor: float, e: Any, at: Any) -> None:
    """e ← before·e + factor·(up x − down y)²."""
    ee, xx, yy, uu, dd = e[at], x[at], y[at], up[at], down[at]
    for k in range(ee.shape[0]):
        difference = uu[k] * xx[k] - dd[k] * yy[k]
        ee[k] = before * ee[k] + factor * difference * difference


@jit
def rescaled_columns(e: Any, s: Any, r: Any, up: Any, down: Any, t: Any, stride: int, at: Any, taps: Any) -> None:
    """t = vertical sums of e = |λx − y/λ|²/2, each converted from its own balanced λ to that of the middle.

    s, r : |x|/√2 and |y|/√2.  up, down : λ and 1/λ of the middle.

    For any other λ, e is larger by (λs − r/λ)², again a square, so nothing cancels.
    """
    half = len(taps) // 2
    tt, uu, dd = t[at], up[at], down[at]
    for k in range(tt.shape[0]):
        tt[k] = 0
    for i in range(-half, half + 1):
        begin, end = at.start + i * stride, at.stop + i * stride
        ee, ss, rr = e[begin:end], s[begin:end], r[begin:end]
        for k in range(tt.shape[0]):
            difference = uu[k] * ss[k] - dd[k] * rr[k]
            tt[k] += ee[k] + difference * difference


@jit
def rescaled_window(t: Any, s: Any, r: Any, up: Any, down: Any, out: Any, at: Any, around: Any, taps: Any) -> None:
    """out = horizontal sums of t, converted in the same way; s and r of whole columns."""
    tt, ss, rr, uu, dd, oo = t[around], s[around], r[around], up[at], down[at], out[at]
    for k in range(oo.shape[0]):
        value = t.dtype.type(0)
        for j in range(len(taps)):
            difference = uu[k] * ss[k + j] - dd[k] * rr[k + j]
            value += tt[k + j] + difference * difference
        oo[k] = value


@jit
def dual(h: Any, c: Any, loss: Any, d: Any, angle: Any, lens: Any, power: float, bend: float, at: Any) -> float:
    """loss = c·(v − κ) and d = c·Ġ at gaps h = 1 − ρ; returns Σ d.

    With y = min(h, 2 − h) and u = √y: arccos(1 − y) = u·angle(y), its lens sin θ − θ cos θ = u³·lens(y).
    """
    zero, one, two, pi = h.dtype.type(0), h.dtype.type(1), h.dtype.type(2), h.dtype.type(np.pi)
    hh, cc, ll, dd = h[at], c[at], loss[at], d[at]
    total = zero
    for k in range(hh.shape[0]):
        x = hh[k]
        y = min(x, two - x)
        u = np.sqrt(y)
        theta = u * _horner(angle, y)
        theta = theta if x <= one else pi - theta
        bow = u * y * _horner(lens, y) + pi * max(x - one, zero)
        slope = cc[k] * (power - bend * theta)
        dd[k] = slope
        ll[k] = cc[k] * (power * x - bend * bow)
        total += slope
    return total


@jit
def residual(
    t: Any,
    w: Any,
    g: Any,
    h: Any,
    c: Any,
    d: Any,
    f: Any,
    p: Any,
    m: Any,
    recurrent: float,
    at: Any,
    around: Any,
    taps: Any,
) -> tuple[float, float]:
    """f = g + σ_a² w·window − h with t from the loss; p = d f, m = d w. Returns Σ c f²/(h + |f|) and Σ c h.

    An error f in h is an error f/√(2h) in the angle, or √(2|f|) where h = 0; the error in the angle must be small.
    """
    ww, gg, hh, cc, dd, tt = w[at], g[at], h[at], c[at], d[at], t[around]
    ff, pp, mm = f[at], p[at], m[at]
    tiny = g.dtype.type(1e-30)
    total = size = g.dtype.type(0)
    for k in range(ff.shape[0]):
        r = gg[k] + recurrent * ww[k] * _window(tt, k, taps) - hh[k]
        ff[k] = r
        pp[k] = dd[k] * r
        mm[k] = dd[k] * ww[k]
        total += cc[k] * r * (r / (hh[k] + abs(r) + tiny))
        size += cc[k] * hh[k]
    return total, size


@jit
def momentum(
    t: Any, m: Any, p: Any, z: Any, y: Any, a: float, b: float, e: float, o: Any, at: Any, around: Any, taps: Any
) -> None:
    """y ← a m·window + b p + e z + o y; without the last term if o is None."""
    mm, pp, zz, yy, tt = m[at], p[at], z[at], y[at], t[around]
    for k in range(yy.shape[0]):
        value = a * mm[k] * _window(tt, k, taps) + b * pp[k] + e * zz[k]
        yy[k] = value if o is None else value + o * yy[k]


@jit
def slide(z: Any, m: Any, p: Any, y: Any, a: float, b: float, e: float, o: Any, stride: int, at: Any) -> None:
    """`columns` of z and `momentum` in one pass, for filters of 3×3.

    Two vertical sums pass on from one position to the next, in registers, so that t is neither written nor read.
    """
    begin, end = at.start, at.stop
    mm, pp, zz, yy = m[at], p[at], z[at], y[at]
    over, beside, under = (
        z[begin - stride + 1 : end - stride + 1],
        z[begin + 1 : end + 1],
        z[begin + stride + 1 : end + stride + 1],
    )
    before = z[begin - stride - 1] + z[begin - 1] + z[begin + stride - 1]
    here = z[begin - stride] + z[begin] + z[begin + stride]
    for k in range(yy.shape[0]):
        after = over[k] + beside[k] + under[k]
        window = before + here + after
        before, here = here, after
        value = a * mm[k] * window + b * pp[k] + e * zz[k]
        yy[k] = value if o is None else value + o * yy[k]


@jit
def add(t: Any, w: Any, f: Any, h: Any, recurrent: float, at: Any, around: Any, taps: Any) -> None:
    """h ← h + f + σ_a² w·window, kept in [0, 2]: the Newton step."""
    zero, two = h.dtype.type(0), h.dtype.type(2)
    hh, ff, ww, tt = h[at], f[at], w[at], t[around]
    for k in range(hh.shape[0]):
        hh[k] = min(max(hh[k] + ff[k] + recurrent * ww[k] * _window(tt, k, taps), zero), two)


@jit
def right_hand_side(f: Any, c: Any, d: Any, p: Any, z: Any, recurrent: float, at: Any) -> None:
    """p = d f and z = p/(1 − σ_a² Ġ), the solution if d is constant."""
    tiny = f.dtype.type(1e-30)
    ff, cc, dd, pp, zz = f[at], c[at], d[at], p[at], z[at]
    for k in range(pp.shape[0]):
        value = dd[k] * ff[k]
        pp[k] = value
        zz[k] = value * cc[k] / (cc[k] - recurrent * dd[k] + tiny)


@jit
def finish(
    t: Any, m: Any, p: Any, z: Any, c: Any, d: Any, spread: Any, recurrent: float, at: Any, around: Any, taps: Any
) -> tuple[float, float, float]:
    """Σ z and Σ spread·z at the solution, and Σ |r| for the residual r of z.

    Both sums are linear in the solution, which differs from z by (I − M)⁻¹ r. Weighting r by 1/(1 − σ_a² Ġ), the
    adjoint solution for constant d, leaves only a product of two small errors.
    """
    tiny = d.dtype.type(1e-30)
    mm, pp, zz, cc, dd, aa, tt = m[at], p[at], z[at], c[at], d[at], spread[at], t[around]
    plain = weighted = size = d.dtype.type(0)
    for k in range(zz.shape[0]):
        r = recurrent * mm[k] * _window(tt, k, taps) + pp[k] - zz[k]
        value = zz[k] + r * cc[k] / (cc[k] - recurrent * dd[k] + tiny)
        plain += value
        weighted += aa[k] * value
        size += abs(r)
    return plain, weighted, size


@jit
def total(c: Any, loss: Any, g: Any, h: Any, f: Any, power: float, at: Any) -> tuple[float, float, float]:
    """f = ρ; returns Σ c κ, Σ c ρ and Σ c g."""
    one = c.dtype.type(1)
    cc, ll, gg, hh, ff = c[at], loss[at], g[at], h[at], f[at]
    dual = covariance = drive = c.dtype.type(0)
    for k in range(cc.shape[0]):
        rho = one - hh[k]
        ff[k] = rho
        dual += power * cc[k] - ll[k]
        covariance += cc[k] * rho
        drive += cc[k] * gg[k]
    return dual, covariance, drive


@jit
def extremes(h: Any, c: Any, limit: int, none: int, at: Any) -> tuple[int, int]:
    """The smallest h where c > limit (`none` if nowhere), and the largest, all as bits.

    Non-negative floats are ordered like their bit patterns, and LLVM vectorises the minimum of integers only.
    """
    hh, cc = h[at], c[at]
    low, high = none, none - none
    for k in range(hh.shape[0]):
        low = min(low, hh[k] if cc[k] > limit else none)
    for k in range(hh.shape[0]):
        high = max(high, hh[k] if cc[k] > limit else none - none)
    return low, high


@jit
def layer(t: Any, w: Any, g: Any, out: Any, recurrent: float, at: Any, around: Any, taps: Any) -> None:
    """out = g + σ_a² w·window."""
    ww, gg, oo, tt = w[at], g[at], out[at], t[around]
    for k in range(oo.shape[0]):
        oo[k] = gg[k] + recurrent * ww[k] * _window(tt, k, taps)
