"""Compiled passes over one tile: Gram entries in, kernel entries out, in place.

Each function releases the interpreter lock and handles one tile, the columns of a panel of rows, so
a pool of threads can run several. Inner loops run over a row slice with unit stride and no branches,
so that LLVM can turn them into SIMD code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from notsodeep import compilation
from notsodeep.kernels.arc import lens
from notsodeep.kernels.kinds import combine_compiled
from notsodeep.kernels.polynomial import GROUP

__all__ = ["arc_pass", "mirror", "polynomial_pass", "row_statistics"]

assert GROUP == 4  # the unrolled Horner steps below
_CHUNK = 256  # columns treated at a time: a few buffers of this length stay in the first-level cache
_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz", "nnan", "reassoc"})


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
def _fill_gaps(
    gap: Any,
    row: Any,
    X: Any,
    Y: Any,
    i: int,
    start: int,
    left: Any,
    right: Any,
    L: Any,
    R: Any,
    rest: float,
    cut: float,
) -> int:
    """gap = 1 − t for one row slice, with t = g·a_i·a_j + b_i·b_j + e_i + e_j; entries below `cut` from differences.

    left, right: rows (a, b, e, …) in the dtype of the tile. L, R: rows (α, β, r) in float64 for the
    differences: unshifted (rest = 0) 1 − t = ½‖α_i x_i − α_j y_j‖² + ½(β_i − β_j)²; shifted
    1 − t = (½‖α_i x_i − α_j y_j‖² − ½ rest (r_i − r_j)²)/(rest r_i r_j).
    """
    count = row.shape[0]
    one = gap.dtype.type(1)
    ai, bi, ei = left[0, i], left[1, i], left[2, i]
    a, b, e = right[0, start : start + count], right[1, start : start + count], right[2, start : start + count]
    smallest = one
    for j in range(count):
        value = one - (row[j] * (ai * a[j]) + bi * b[j] + (ei + e[j]))
        gap[j] = value
        smallest = min(smallest, value)
    recomputed = 0
    if smallest < cut:
        zero = gap.dtype.type(0)
        for j in range(count):
            if gap[j] < cut:
                column = start + j
                recomputed += 1
                value64 = _distance(X, i, Y, column, L[0, i], R[0, column])
                if rest == 0:
                    value64 += (L[1, i] - R[1, column]) ** 2 / 2
                elif L[2, i] * R[2, column] > 0:
                    value64 = (value64 / rest - (L[2, i] - R[2, column]) ** 2 / 2) / (L[2, i] * R[2, column])
                gap[j] = max(gap.dtype.type(value64), zero)
    return recomputed


@_jit
def _fill_opposites(y: Any, X: Any, Y: Any, i: int, start: int, L: Any, R: Any, cut: float, branch: Any) -> int:
    """Rows that are nearly opposite, 1 + t < cut: √2 − u = (1 + t)/(√2 + u) with 1 + t from sums of the rows."""
    slope, offset, excess = np.float64(branch[0]), np.float64(branch[1]), np.float64(branch[2]) - np.sqrt(2.0)
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
            sum_ = _distance(X, i, Y, column, L[0, i], -R[0, column]) + (L[1, i] + R[1, column]) ** 2 / 2
            beyond = max(excess, 0.0) + sum_ / (np.sqrt(2.0) + np.sqrt(max(2.0 - sum_, 0.0)))
            y[j] = slope * np.sqrt(beyond) + offset
            recomputed += 1
    return recomputed


@_jit
def polynomial_pass(
    out: Any, X: Any, Y: Any, left: Any, right: Any, L: Any, R: Any, rest: float, cut: float,
    variable: int, branch: Any, coefficients: Any, modes: Any,
    i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> int:  # fmt: skip
    """Turn Gram entries in out[0] into kernels out[k] = r_i r_j F_k(t) + (s_i + s_j + s₀) H_k(t).

    left, right : (5, n) rows a, b, e, r, s in the dtype of the tile.
    branch : (slope, offset, branch point, s₀, largest gap) of the polynomial's variable.
    modes : H_k per kind: 0 none, 1 the constant one, m ≥ 2 the polynomial in row m of `coefficients`.
    """
    kinds = modes.size
    terms = coefficients.shape[1]
    slope, offset, point, constant, largest = branch[0], branch[1], branch[2], branch[3], branch[4]
    zero, one = out.dtype.type(0), out.dtype.type(1)
    buffer = np.empty((3, _CHUNK), out.dtype)
    recomputed = 0
    for i in range(i0, i1):
        begin = max(j0, i + 1) if symmetric else j0
        for start in range(begin, j1, _CHUNK):
            stop = min(start + _CHUNK, j1)
            y, value, extra = buffer[0, : stop - start], buffer[1, : stop - start], buffer[2, : stop - start]
            recomputed += _fill_gaps(y, out[0, i, start:stop], X, Y, i, start, left, right, L, R, rest, cut)
            if variable == 0:
                for j in range(y.shape[0]):
                    y[j] = slope * (one - y[j]) + offset
            else:
                for j in range(y.shape[0]):
                    y[j] = np.sqrt(min(max(y[j], zero), largest))
                if variable == 1:
                    for j in range(y.shape[0]):
                        y[j] = slope * y[j] + offset
                elif variable == 2:
                    for j in range(y.shape[0]):
                        y[j] = slope * np.sqrt(max(point - y[j], zero)) + offset
                    if rest == 0 and cut > 0:
                        recomputed += _fill_opposites(y, X, Y, i, start, L, R, cut, branch)
                else:
                    for j in range(y.shape[0]):
                        y[j] = slope * np.sqrt(point + y[j]) + offset
            ri, si = left[3, i], left[4, i] + constant
            r, s = right[3, start:stop], right[4, start:stop]
            for k in range(kinds):
                _horner(value, y, coefficients[k], terms)
                target = out[k, i, start:stop]
                if modes[k] == 0:
                    for j in range(y.shape[0]):
                        target[j] = value[j] * (ri * r[j])
                elif modes[k] == 1:
                    for j in range(y.shape[0]):
                        target[j] = value[j] * (ri * r[j]) + (si + s[j])
                else:
                    _horner(extra, y, coefficients[modes[k]], terms)
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
    out: Any, X: Any, Y: Any, left: Any, right: Any, L: Any, R: Any, rest: float, cut: float,
    arc: Any, codes: Any, i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> int:  # fmt: skip
    """`polynomial_pass` by Newton in the angle, entry by entry; arc = (g, v, e, σ_a², s₀)."""
    g, power, bend, recurrent, constant = arc[0], arc[1], arc[2], arc[3], arc[4]
    buffer = np.empty(_CHUNK, out.dtype)
    recomputed = 0
    for i in range(i0, i1):
        begin = max(j0, i + 1) if symmetric else j0
        for start in range(begin, j1, _CHUNK):
            stop = min(start + _CHUNK, j1)
            gap = buffer[: stop - start]
            recomputed += _fill_gaps(gap, out[0, i, start:stop], X, Y, i, start, left, right, L, R, rest, cut)
            for j in range(stop - start):
                theta = _angle(np.float64(gap[j]), g)
                rho = np.cos(theta)
                scale = np.float64(left[3, i]) * right[3, start + j]
                shift = np.float64(left[4, i]) + right[4, start + j] + constant
                dual = scale * (power * rho + bend * lens(theta)) + shift
                for k in range(codes.size):
                    out[k, i, start + j] = combine_compiled(
                        codes[k], dual, power - bend * theta, scale * rho, recurrent, 1.0
                    )
    return recomputed
