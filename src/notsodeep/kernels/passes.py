"""Compiled passes over one tile: Gram entries in, kernel entries out, in place.

Each function releases the interpreter lock and handles one tile, the columns of a panel of rows, so
a pool of threads can run several. Inner loops run over a row slice with unit stride and no branches,
so that LLVM can turn them into SIMD code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from notsodeep import compilation
from notsodeep.kernels.arc import lens
from notsodeep.kernels.polynomial import ABOVE, COSINE, GROUP, ROOT
from notsodeep.kinds import combine

__all__ = [
    "NO_SHIFT",
    "SHIFT_BY_ONE",
    "Angles",
    "Evaluation",
    "Gaps",
    "Rows",
    "arc_pass",
    "compiled_combine",
    "mirror",
    "polynomial_pass",
    "row_statistics",
    "summed_squares",
]

assert GROUP == 4  # the unrolled Horner steps below
_CHUNK = 256  # columns treated at a time: a few buffers of this length stay in the first-level cache
_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz", "nnan", "reassoc"})
compiled_combine = numba.njit(inline="always")(combine)


# H_k in `polynomial_pass`: zero, one, or (not negative) the row of the coefficients that has its polynomial
NO_SHIFT, SHIFT_BY_ONE = -2, -1


class Rows(NamedTuple):
    """Numbers of each sample, (n,): t = g·a_i·a_j + b_i·b_j + e_i + e_j for the Gram entry g.

    The first five have the dtype of the tile. The others are in float64, for 1 − t from differences (:class:`Gaps`).
    """

    a: Any
    b: Any
    e: Any
    radius: Any  # r in r_i r_j F(t)
    shift: Any  # s in (s_i + s_j + s₀) H(t)
    alpha: Any
    beta: Any
    length: Any


class Gaps(NamedTuple):
    """How 1 − t is recomputed from differences where it is below `cut`.

    rest = 0: 1 − t = ½‖α_i x_i − α_j y_j‖² + ½(β_i − β_j)². Otherwise, for a shifted φ,
    1 − t = (½‖α_i x_i − α_j y_j‖² − ½ rest (l_i − l_j)²)/(rest l_i l_j), l the lengths.
    """

    rest: float
    cut: float


class Evaluation(NamedTuple):
    """A :class:`~notsodeep.kernels.polynomial.Polynomial` for `polynomial_pass`; numbers in the dtype of the tile."""

    variable: int
    slope: float
    offset: float
    branch: float
    largest: float  # gap
    coefficients: Any  # (functions, terms)
    constant: float  # s₀
    shifts: Any  # (kinds,): NO_SHIFT, SHIFT_BY_ONE or the row of H_k


class Angles(NamedTuple):
    """`arc_pass` solves 2 sin²(θ/2) + g lens(θ) = 1 − t; then G = v cos θ + e lens(θ), lens(θ) = sin θ − θ cos θ."""

    g: float
    power: float  # v
    bend: float  # e
    recurrent: float
    constant: float  # s₀


@compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
def _peak_and_square(row: Any, start: int, stop: int) -> tuple[float, float]:
    peak, total = 0.0, 0.0
    for k in range(start, stop):
        value = np.float64(row[k])
        total += value * value
        peak = max(peak, abs(value))
    return peak, total


@compilation.jit(nogil=True, error_model="numpy")
def row_statistics(X: Any, largest: Any, square: Any) -> None:
    """max |x| and ‖x‖² of each row, in float64; NaN and infinity show in `largest`.

    Short sums are added with compensation for rounding: long rows of equal entries would otherwise lose a digit or two.
    """
    for i in range(X.shape[0]):
        row = X[i]
        peak, total, lost = 0.0, 0.0, 0.0
        for start in range(0, row.shape[0], 8):
            highest, part = _peak_and_square(row, start, min(start + 8, row.shape[0]))
            peak = max(peak, highest)
            together = total + part
            lost += (total - together) + part if total >= part else (part - together) + total
            total = together
        largest[i] = peak if total == total else np.nan
        square[i] = total + lost if total < np.inf else total


@compilation.jit(nogil=True, error_model="numpy", fastmath={"contract"})
def summed_squares(X: Any, square: Any) -> None:
    """‖x‖² of each row, term after term in the precision of X as BLAS adds them; four rows at a time."""
    n, p = X.shape
    for i in range(0, n, 4):
        j, k, last = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
        a, b, c, d = X[i], X[j], X[k], X[last]
        first = second = third = fourth = X.dtype.type(0)
        for m in range(p):
            first += a[m] * a[m]
            second += b[m] * b[m]
            third += c[m] * c[m]
            fourth += d[m] * d[m]
        square[i], square[j], square[k], square[last] = first, second, third, fourth


@_jit
def mirror(out: Any, kinds: int, i0: int, i1: int, j0: int, j1: int) -> None:
    """Copy the strictly upper part of rows i0…i1, columns j0…j1 below the diagonal."""
    for k in range(kinds):
        plane = out[k]
        for start in range(i0, i1, 32):
            stop = min(start + 32, i1)
            for j in range(max(j0, start + 1), j1):
                for i in range(start, min(stop, j)):
                    plane[j, i] = plane[i, j]


@_jit
def _distance(X: Any, i: int, Y: Any, j: int, left: float, right: float) -> float:
    """½‖left·X_i − right·Y_j‖² in float64: 1 − t where the inner product would cancel."""
    total = 0.0
    for k in range(X.shape[1]):
        difference = left * np.float64(X[i, k]) - right * np.float64(Y[j, k])
        total += difference * difference
    return total / 2


@_jit
def _fill_gaps(gap: Any, row: Any, X: Any, Y: Any, i: int, start: int, left: Any, right: Any, gaps: Any) -> int:
    """gap = 1 − t for one row slice; entries below the cut from differences. Returns how many these are."""
    count = row.shape[0]
    one = gap.dtype.type(1)
    ai, bi, ei = left.a[i], left.b[i], left.e[i]
    a, b, e = right.a[start : start + count], right.b[start : start + count], right.e[start : start + count]
    smallest = one
    for j in range(count):
        value = one - (row[j] * (ai * a[j]) + bi * b[j] + (ei + e[j]))
        gap[j] = value
        smallest = min(smallest, value)
    recomputed = 0
    if smallest < gaps.cut:
        zero = gap.dtype.type(0)
        for j in range(count):
            if gap[j] < gaps.cut:
                column = start + j
                recomputed += 1
                value64 = _distance(X, i, Y, column, left.alpha[i], right.alpha[column])
                product = left.length[i] * right.length[column]
                if gaps.rest == 0:
                    value64 += (left.beta[i] - right.beta[column]) ** 2 / 2
                elif product > 0:
                    value64 = (value64 / gaps.rest - (left.length[i] - right.length[column]) ** 2 / 2) / product
                gap[j] = max(gap.dtype.type(value64), zero)
    return recomputed


@_jit
def _fill_opposites(y: Any, X: Any, Y: Any, i: int, start: int, left: Any, right: Any, cut: float, curve: Any) -> int:
    """Rows that are nearly opposite, 1 + t < cut: √2 − u = (1 + t)/(√2 + u) with 1 + t from sums of the rows."""
    slope, offset, excess = np.float64(curve.slope), np.float64(curve.offset), np.float64(curve.branch) - np.sqrt(2.0)
    limit = y.dtype.type(slope * np.sqrt(max(excess, 0.0) + cut / (2 * np.sqrt(2.0))) + offset)
    smallest = y[0]
    for j in range(y.shape[0]):
        smallest = min(smallest, y[j])
    if smallest >= limit:
        return 0
    recomputed = 0
    for j in range(y.shape[0]):
        if y[j] < limit:
            column = start + j
            sum_ = _distance(X, i, Y, column, left.alpha[i], -right.alpha[column])
            sum_ += (left.beta[i] + right.beta[column]) ** 2 / 2
            beyond = max(excess, 0.0) + sum_ / (np.sqrt(2.0) + np.sqrt(max(2.0 - sum_, 0.0)))
            y[j] = slope * np.sqrt(beyond) + offset
            recomputed += 1
    return recomputed


@_jit
def polynomial_pass(
    out: Any, X: Any, Y: Any, left: Any, right: Any, gaps: Any, curve: Any,
    i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> int:  # fmt: skip
    """Turn Gram entries in out[0] into kernels out[k] = r_i r_j F_k(t) + (s_i + s_j + s₀) H_k(t).

    left, right : :class:`Rows`; gaps : :class:`Gaps`; curve : :class:`Evaluation`.
    """
    kinds = curve.shifts.size
    coefficients = curve.coefficients
    terms = coefficients.shape[1]
    slope, offset, branch, largest = curve.slope, curve.offset, curve.branch, curve.largest
    zero, one = out.dtype.type(0), out.dtype.type(1)
    buffer = np.empty((3, _CHUNK), out.dtype)
    recomputed = 0
    for i in range(i0, i1):
        begin = max(j0, i + 1) if symmetric else j0
        for start in range(begin, j1, _CHUNK):
            stop = min(start + _CHUNK, j1)
            y, value, extra = buffer[0, : stop - start], buffer[1, : stop - start], buffer[2, : stop - start]
            recomputed += _fill_gaps(y, out[0, i, start:stop], X, Y, i, start, left, right, gaps)
            if curve.variable == COSINE:
                for j in range(y.shape[0]):
                    y[j] = slope * (one - y[j]) + offset
            else:
                for j in range(y.shape[0]):
                    y[j] = np.sqrt(min(max(y[j], zero), largest))
                if curve.variable == ROOT:
                    for j in range(y.shape[0]):
                        y[j] = slope * y[j] + offset
                elif curve.variable == ABOVE:
                    for j in range(y.shape[0]):
                        y[j] = slope * np.sqrt(max(branch - y[j], zero)) + offset
                    if gaps.rest == 0 and gaps.cut > 0:
                        recomputed += _fill_opposites(y, X, Y, i, start, left, right, gaps.cut, curve)
                else:
                    for j in range(y.shape[0]):
                        y[j] = slope * np.sqrt(branch + y[j]) + offset
            ri, si = left.radius[i], left.shift[i] + curve.constant
            r, s = right.radius[start:stop], right.shift[start:stop]
            for k in range(kinds):
                _horner(value, y, coefficients[k], terms)
                target = out[k, i, start:stop]
                shift = curve.shifts[k]
                if shift == NO_SHIFT:
                    for j in range(y.shape[0]):
                        target[j] = value[j] * (ri * r[j])
                elif shift == SHIFT_BY_ONE:
                    for j in range(y.shape[0]):
                        target[j] = value[j] * (ri * r[j]) + (si + s[j])
                else:
                    _horner(extra, y, coefficients[shift], terms)
                    for j in range(y.shape[0]):
                        target[j] = value[j] * (ri * r[j]) + (si + s[j]) * extra[j]
    return recomputed


@_jit
def _horner(value: Any, y: Any, c: Any, terms: int) -> None:
    first = c[0]
    for j in range(y.shape[0]):
        value[j] = first
    for k in range(1, terms, 4):  # four steps a sweep keep the buffers in registers
        c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
        for j in range(y.shape[0]):
            x = y[j]
            value[j] = (((value[j] * x + c0) * x + c1) * x + c2) * x + c3


@_jit
def _angle(gap: float, g: float) -> float:
    """θ with 2 sin²(θ/2) + g (sin θ − θ cos θ) = gap; Newton kept inside a bracket."""
    if gap <= 0:
        return 0.0
    low, high = 0.0, np.pi
    theta = 2 * np.arcsin(min(np.sqrt(gap / 2), 1.0))
    for _ in range(80):
        sine = np.sin(theta)
        half = np.sin(theta / 2)
        excess = 2 * half * half + g * lens(theta) - gap
        if excess > 0:
            high = theta
        else:
            low = theta
        slope = sine * (1 + g * theta)
        proposal = theta - excess / slope if slope > 1e-300 else (low + high) / 2
        if not low <= proposal <= high:
            proposal = (low + high) / 2
        change = abs(proposal - theta)
        theta = proposal
        if change <= 4e-16 * theta:
            break
    return theta


@_jit
def arc_pass(
    out: Any, X: Any, Y: Any, left: Any, right: Any, gaps: Any, angles: Any, codes: Any,
    i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> int:  # fmt: skip
    """`polynomial_pass` by Newton in the angle, entry by entry; angles : :class:`Angles`."""
    g, power, bend, recurrent = angles.g, angles.power, angles.bend, angles.recurrent
    buffer = np.empty(_CHUNK, out.dtype)
    recomputed = 0
    for i in range(i0, i1):
        begin = max(j0, i + 1) if symmetric else j0
        for start in range(begin, j1, _CHUNK):
            stop = min(start + _CHUNK, j1)
            gap = buffer[: stop - start]
            recomputed += _fill_gaps(gap, out[0, i, start:stop], X, Y, i, start, left, right, gaps)
            for j in range(stop - start):
                theta = _angle(np.float64(gap[j]), g)
                rho = np.cos(theta)
                scale = np.float64(left.radius[i]) * right.radius[start + j]
                shift = np.float64(left.shift[i]) + right.shift[start + j] + angles.constant
                dual = scale * (power * rho + bend * lens(theta)) + shift
                for k in range(codes.size):
                    out[k, i, start + j] = compiled_combine(
                        codes[k], dual, power - bend * theta, scale * rho, recurrent, 1.0
                    )
    return recomputed
