"""The fixed point of a DEQ on row slices, from Hermite series that LLVM turns into SIMD code.

A slice of 256 pairs (one row, neighbouring columns) is solved together. The first steps of Newton's method sum only the
orders that their accuracy needs; the last one also sums the second derivative, so that G and Ġ at the solution follow
from a Taylor step. Few pairs of a slice have a large |ρ|, which needs many orders: they are solved one by one, with
SIMD along the orders.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from notsodeep import compilation
from notsodeep.kernels.layers import STATE, ends_of_rows, solve_pair, value_and_error
from notsodeep.kernels.passes import compiled_combine

__all__ = [
    "BUCKETS",
    "CHUNK",
    "Equation",
    "Expansion",
    "bucket_of",
    "hermite_pass",
    "largest_squares",
    "remaining_pass",
    "set_apart",
    "steepness_of",
    "sums",
    "sums_alone",
]

BUCKETS = 64  # intervals of |ρ|
CHUNK = 256  # columns treated at a time: a few buffers of this length stay in the first-level cache
# cost of a pair that is solved alone, in sums of one order of one pair of a slice: per order, and at least
_ALONE, _LEAST = 5, 600
_STEPS = 60
_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz", "nnan", "reassoc"})
_precise = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})


class Expansion(NamedTuple):
    """Numbers of each sample, in the dtype of the tile."""

    factor: Any  # (n,): sample = factor · row
    inverse: Any  # (n,): 1/√q, 0 for q = 0
    root: Any  # (n,): √q
    terms: Any  # (terms, n): Hermite coefficients, highest order first, a multiple of 4; for an odd φ the odd orders


class Equation(NamedTuple):
    """The equation of `hermite_pass`, and how to solve it; the variances in the dtype of the tile."""

    recurrent: float
    input: float
    bias: float
    odd: bool  # φ
    orders: Any  # (terms,): of `rising`, in the dtype of the tile
    skip: Any  # (3, BUCKETS + 1): leading terms that are negligible for |ρ| ≤ b/BUCKETS, in each stage of Newton
    begin: Any  # (BUCKETS + 1,): the stage that follows the first guess
    near: Any  # (BUCKETS + 1,): the largest step for which a Taylor step replaces another evaluation
    reach: float  # the largest |ρ| of the series


@_jit
def largest_squares(table: Any, weight: Any) -> Any:
    """max over i of table[k, i]² weight[i], for each k."""
    found = np.zeros(table.shape[0])
    for k in range(table.shape[0]):
        row, most = table[k], 0.0
        for i in range(row.shape[0]):
            value = np.float64(row[i])
            most = max(most, value * value * weight[i])
        found[k] = most
    return found


@_jit
def steepness_of(table: Any) -> Any:
    """Σ k² a_k² / Σ k a_k² of each column, highest order first; at least 1."""
    terms, count = table.shape
    first, second = np.zeros(count), np.zeros(count)
    for row in range(terms - 1):
        values, order = table[row], np.float64(terms - 1 - row)
        for i in range(count):
            share = order * values[i] * values[i]
            first[i] += share
            second[i] += order * share
    for i in range(count):
        second[i] = max(second[i] / first[i], 1.0) if first[i] > 0 else 1.0
    return second


@_jit
def bucket_of(close: float) -> int:
    return min(int(close * BUCKETS) + 1, BUCKETS)


@_jit
def sums(A: Any, B: Any, i: int, start: int, first: int, z: Any, value: Any, slope: Any) -> None:
    """value = p(z) and slope = p'(z) of p = Σ A_k(i) B_k(j) zᵏ, without the first terms."""
    count = z.shape[0]
    stop = start + count
    for j in range(count):
        value[j] = slope[j] = 0
    for k in range(first, A.shape[0], 4):
        a0, a1, a2, a3 = A[k, i], A[k + 1, i], A[k + 2, i], A[k + 3, i]
        b0, b1, b2, b3 = B[k, start:stop], B[k + 1, start:stop], B[k + 2, start:stop], B[k + 3, start:stop]
        for j in range(count):
            x, p, d = z[j], value[j], slope[j]
            d = d * x + p
            p = p * x + a0 * b0[j]
            d = d * x + p
            p = p * x + a1 * b1[j]
            d = d * x + p
            p = p * x + a2 * b2[j]
            d = d * x + p
            p = p * x + a3 * b3[j]
            value[j], slope[j] = p, d


@_jit
def _three_sums(A: Any, B: Any, i: int, start: int, first: int, z: Any, value: Any, slope: Any, bend: Any) -> None:
    """The same with bend = p''(z)/2."""
    count = z.shape[0]
    stop = start + count
    for j in range(count):
        value[j] = slope[j] = bend[j] = 0
    for k in range(first, A.shape[0], 4):
        a0, a1, a2, a3 = A[k, i], A[k + 1, i], A[k + 2, i], A[k + 3, i]
        b0, b1, b2, b3 = B[k, start:stop], B[k + 1, start:stop], B[k + 2, start:stop], B[k + 3, start:stop]
        for j in range(count):
            x, p, d, e = z[j], value[j], slope[j], bend[j]
            e = e * x + d
            d = d * x + p
            p = p * x + a0 * b0[j]
            e = e * x + d
            d = d * x + p
            p = p * x + a1 * b1[j]
            e = e * x + d
            d = d * x + p
            p = p * x + a2 * b2[j]
            e = e * x + d
            d = d * x + p
            p = p * x + a3 * b3[j]
            value[j], slope[j], bend[j] = p, d, e


@_jit
def sums_alone(product: Any, power: Any, order: Any, odd: bool, used: int, rho: float) -> tuple[float, float, float]:
    """G, dG/dρ and ½ d²G/dρ² of one pair, SIMD along the orders; product: A_k(i) B_k(j), lowest order first."""
    factor = rho * rho if odd else rho
    power[0] = 1
    done = 1
    while done < used:  # powers by doubling
        extra = min(done, used - done)
        for k in range(extra):
            power[done + k] = power[k] * factor
        factor *= factor
        done += extra
    value = slope = bend = power.dtype.type(0)
    for k in range(used):
        term = product[k] * power[k]
        value += term
        term *= order[k]
        slope += term
        bend += term * order[k]
    bend = (bend - slope) / (rho + rho)
    if odd:
        return value * rho, slope, bend
    return value, slope / rho, bend / rho


@_jit
def _solve_alone(a: Any, b: Any, norm: float, equation: Any, drive: float, rho: float, work: Any) -> Any:
    """(ρ, G, Ġ, residual, steps) of one pair; a, b: its coefficients, lowest order first, and norm = 1/√(q_i q_j)."""
    one = work.dtype.type(1)
    terms, recurrent = work.shape[1], equation.recurrent
    product, power = work[0], work[1]
    for k in range(terms):
        product[k] = a[k] * b[k]
    value = slope = bend = step = rest = work.dtype.type(0)
    iterations = 0
    for iteration in range(_STEPS):
        bucket = bucket_of(abs(rho))
        used = terms - equation.skip[2, bucket]
        value, slope, bend = sums_alone(product, power, equation.orders, equation.odd, used, rho)
        rest = one - recurrent * slope * norm
        step = -(rho - recurrent * value * norm - drive) / rest
        iterations = iteration + 1
        if abs(step) <= equation.near[bucket]:
            break
        rho = min(max(rho + step, -one), one)
    step += recurrent * norm * bend * step * step / rest
    moved = min(max(rho + step, -one), one)
    step = moved - rho
    value += (slope + bend * step) * step
    slope += (bend + bend) * step
    return moved, value, slope * norm, abs(moved - recurrent * value * norm - drive), iterations


@_jit
def set_apart(rho: Any, drive: Any, terms: int, skip: Any, chosen: Any, kept: Any) -> int:
    """Move the pairs whose |ρ| needs many more orders than the others to `chosen`, with (drive, ρ) in `kept`.

    Returns how many these are. The slice solves ρ = 0 in their place.
    """
    count = rho.shape[0]
    zero, one = rho.dtype.type(0), rho.dtype.type(1)
    close = zero
    for j in range(count):
        close = max(close, abs(rho[j]))
    highest = bucket = limit = bucket_of(close)
    best, alone, counted = (terms - skip[highest]) * count, 0, 0
    while alone <= best:
        lower = bucket - 1
        while lower > 0 and skip[lower] == skip[bucket]:
            lower -= 1
        if lower <= 0:
            break
        edge, beyond = rho.dtype.type(lower / BUCKETS), zero
        for j in range(count):
            beyond += one if abs(rho[j]) >= edge else zero
        alone += (int(beyond) - counted) * (_ALONE * (terms - skip[bucket]) + _LEAST)
        if (terms - skip[lower]) * count + alone < best:
            best, limit = (terms - skip[lower]) * count + alone, lower
        counted, bucket = int(beyond), lower
    if limit == highest:
        return 0
    found = 0
    for j in range(count):
        if bucket_of(abs(rho[j])) > limit:
            chosen[found], kept[0, found], kept[1, found] = j, drive[j], rho[j]
            rho[j] = drive[j] = 0
            found += 1
    return found


@_jit
def _begin(A: Any, B: Any, i: int, start: int, equation: Any, norm: Any, drive: Any, rho: Any) -> None:
    """Where Newton begins: the solution with G up to its linear term, and one step with the four lowest orders."""
    one, two, low = rho.dtype.type(1), rho.dtype.type(2), rho.dtype.type(-1)
    odd, recurrent, terms, count = equation.odd, equation.recurrent, A.shape[0], rho.shape[0]
    stop = start + count
    a0, a1, a2, a3 = A[terms - 1, i], A[terms - 2, i], A[terms - 3, i], A[terms - 4, i]
    b0, b1 = B[terms - 1, start:stop], B[terms - 2, start:stop]
    b2, b3 = B[terms - 3, start:stop], B[terms - 4, start:stop]
    if odd:
        for j in range(count):
            weight = recurrent * norm[j]
            c0, c1, c2, c3 = a0 * b0[j], a1 * b1[j], a2 * b2[j], a3 * b3[j]
            x = min(max(drive[j] / (one - weight * c0), low), one)
            z = x * x
            p = ((c3 * z + c2) * z + c1) * z + c0
            d = two * z * ((c3 * z * (two + one) + two * c2) * z + c1) + p
            x += (weight * p * x + drive[j] - x) / (one - weight * d)
            rho[j] = min(max(x, low), one)
    else:
        for j in range(count):
            weight = recurrent * norm[j]
            c0, c1, c2, c3 = a0 * b0[j], a1 * b1[j], a2 * b2[j], a3 * b3[j]
            x = min(max((drive[j] + weight * c0) / (one - weight * c1), low), one)
            p = ((c3 * x + c2) * x + c1) * x + c0
            d = (c3 * x * (two + one) + two * c2) * x + c1
            x += (weight * p + drive[j] - x) / (one - weight * d)
            rho[j] = min(max(x, low), one)


@_jit
def hermite_pass(
    out: Any, left: Any, right: Any, rising_left: Any, rising_right: Any, equation: Any, codes: Any,
    i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> tuple[float, float, float, int, int]:  # fmt: skip
    """Solve Λ = σ_a² G(Λ) + σ_b² x·y + σ_0² by Newton on row slices, with G = Σ A_k(i) B_k(j) ρᵏ.

    left, right : :class:`Expansion`; rising : their terms again, (n, terms), lowest order first;
    equation : :class:`Equation`.

    Pairs with |ρ| > reach are left at infinity for :func:`remaining_pass`. Returns the largest residual relative to
    √(q_i q_j), the largest |ρ| of the others (−1 if there are none), the largest Ġ, the largest number of iterations,
    and how many are left.
    """
    recurrent, weight, bias = equation.recurrent, equation.input, equation.bias
    odd, reach, A, B = equation.odd, equation.reach, left.terms, right.terms
    zero, one, two, three = out.dtype.type(0), out.dtype.type(1), out.dtype.type(2), out.dtype.type(3)
    terms = A.shape[0]
    worst, nearest, steepest, most, remaining = 0.0, -1.0, 0.0, 0, 0
    buffer = np.empty((8, CHUNK), out.dtype)
    kept, work = np.empty((2, CHUNK), out.dtype), np.empty((2, terms), out.dtype)
    chosen = np.empty(CHUNK, np.int64)
    for i in range(i0, i1):
        begin = max(j0, i + 1) if symmetric else j0
        scale_i, root_i = left.factor[i], left.inverse[i]
        for start in range(begin, j1, CHUNK):
            count = min(CHUNK, j1 - start)
            stop = start + count
            drive, rho, G, slope = buffer[0, :count], buffer[1, :count], buffer[2, :count], buffer[3, :count]
            norm, z, bend, gain = buffer[4, :count], buffer[5, :count], buffer[6, :count], buffer[7, :count]
            row = out[0, i, start:stop]
            scale, root = right.factor[start:stop], right.inverse[start:stop]
            for j in range(count):
                norm[j] = root_i * root[j]  # 1/√(q_i q_j)
                drive[j] = (weight * row[j] * (scale_i * scale[j]) + bias) * norm[j]
            _begin(A, B, i, start, equation, norm, drive, rho)
            apart = set_apart(rho, drive, terms, equation.skip[2], chosen, kept)
            stage = -1
            for iteration in range(_STEPS):
                close = zero
                for j in range(count):
                    close = max(close, abs(rho[j]))
                    z[j] = rho[j] * rho[j] if odd else rho[j]
                bucket = bucket_of(close)
                if stage < 0:
                    stage = equation.begin[bucket]
                if stage < 2:
                    sums(A, B, i, start, equation.skip[stage, bucket], z, G, slope)
                else:
                    _three_sums(A, B, i, start, equation.skip[2, bucket], z, G, slope, bend)
                if odd:  # G = ρ p(ρ²), dG/dρ = p + 2ρ² p', ½ d²G/dρ² = 3ρ p' + 2ρ³ p''
                    for j in range(count):
                        p, d = G[j], slope[j]
                        G[j] = rho[j] * p
                        slope[j] = p + two * z[j] * d
                        if stage == 2:
                            bend[j] = rho[j] * (three * d + two * two * z[j] * bend[j])
                largest = zero
                for j in range(count):
                    excess = rho[j] - recurrent * G[j] * norm[j] - drive[j]
                    gain[j] = one / (one - recurrent * slope[j] * norm[j])
                    z[j] = -excess * gain[j]
                    largest = max(largest, abs(z[j]))
                most = max(most, iteration + 1)
                if iteration == _STEPS - 1 or (stage == 2 and largest <= equation.near[bucket]):
                    break
                for j in range(count):
                    rho[j] = min(max(rho[j] + z[j], -one), one)
                if stage == 0 and largest <= 0.05:
                    stage = 1
                if stage > 0 and largest * largest <= 2 * equation.near[bucket]:
                    stage = 2
            residual = steep = close = zero
            for j in range(count):  # to second order: the step, G and dG/dρ
                step = z[j]
                step += recurrent * norm[j] * bend[j] * step * step * gain[j]
                moved = min(max(rho[j] + step, -one), one)
                step = moved - rho[j]
                rho[j] = moved
                G[j] += (slope[j] + bend[j] * step) * step
                slope[j] = (slope[j] + two * bend[j] * step) * norm[j]  # Ġ = (dG/dρ)/√(q_i q_j)
                residual = max(residual, abs(rho[j] - recurrent * G[j] * norm[j] - drive[j]))
                steep, close = max(steep, abs(slope[j])), max(close, abs(rho[j]))
            for m in range(apart):
                j = chosen[m]
                rho[j], G[j], slope[j], rest, steps = _solve_alone(
                    rising_left[i], rising_right[start + j], norm[j], equation, kept[0, m], kept[1, m], work
                )
                residual, most = max(residual, rest), max(most, steps)
                steep, close = max(steep, abs(slope[j])), max(close, abs(rho[j]))
            worst, steepest = max(worst, np.float64(residual)), max(steepest, np.float64(steep))
            size_i, size = left.root[i], right.root[start:stop]
            for k in range(codes.size):
                target = out[k, i, start:stop]
                code = codes[k]
                for j in range(count):
                    covariance = rho[j] * (size_i * size[j])
                    target[j] = compiled_combine(code, G[j], slope[j], covariance, recurrent, one)
            if close <= reach:
                nearest = max(nearest, np.float64(close))
                continue
            for j in range(count):
                if abs(rho[j]) <= reach:
                    nearest = max(nearest, np.float64(abs(rho[j])))
                else:
                    out[0, i, start + j] = np.inf
                    remaining += 1
    return worst, nearest, steepest, most, remaining


@_precise
def remaining_pass(
    out: Any, X: Any, Y: Any, chain: Any, left: Any, right: Any, codes: Any, cut: float, rounding: float,
    i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> float:  # fmt: skip
    """Solve the pairs that `hermite_pass` or `forward_pass` left at infinity, one by one.

    Arguments as in :func:`notsodeep.kernels.layers.layered_pass`. Returns their largest error relative to √(K_ii K_jj).
    """
    result, errors = np.zeros(STATE), np.zeros(STATE)
    most = 0.0
    for i in range(i0, i1):
        for j in range(max(j0, i + 1) if symmetric else j0, j1):
            if out[0, i, j] != np.inf:
                continue
            product = 0.0
            for k in range(X.shape[1]):
                product += np.float64(X[i, k]) * np.float64(Y[j, k])
            product *= left.factor[i] * right.factor[j]
            pair, _ = ends_of_rows(X, Y, left, i, right, j, product, cut, rounding)
            solve_pair(chain, left, i, right, j, pair, result, errors)
            for k in range(codes.size):
                out[k, i, j], lost = value_and_error(codes[k], result, errors)
                most = max(most, lost / (left.root[k, i] * right.root[k, j])) if lost == lost else np.inf
    return most
