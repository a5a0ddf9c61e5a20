"""The fixed point of a smooth DEQ on row slices, from Hermite series that LLVM turns into SIMD code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from notsodeep import compilation
from notsodeep.kernels.layers import STATE, ends_of_rows, implicit_pair, value_and_error
from notsodeep.kernels.passes import compiled_combine

__all__ = ["Equation", "Expansion", "hermite_pass", "integrated_pass"]

_CHUNK = 256  # columns treated at a time: a few buffers of this length stay in the first-level cache
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
    skip: Any  # skip[b]: leading terms that are negligible for |ρ| ≤ b/(len(skip) − 1)
    tolerance: float
    reach: float  # the largest |ρ| of the series


@_jit
def hermite_pass(
    out: Any, left: Any, right: Any, equation: Any, codes: Any, i0: int, i1: int, j0: int, j1: int, symmetric: bool
) -> tuple[float, float, float, int, int]:
    """Solve Λ = σ_a² G(Λ) + σ_b² x·y + σ_0² by Newton on row slices, with G = Σ A_k(i) B_k(j) ρᵏ.

    left, right : :class:`Expansion`; equation : :class:`Equation`.

    Pairs with |ρ| > reach are left at infinity for :func:`integrated_pass`. Returns the largest residual relative to
    √(q_i q_j), the largest |ρ| of the others (−1 if there are none), the largest Ġ, the largest number of iterations,
    and how many are left.
    """
    recurrent, gain, bias = equation.recurrent, equation.input, equation.bias
    odd, skip, reach, A, B = equation.odd, equation.skip, equation.reach, left.terms, right.terms
    zero, one, two = out.dtype.type(0), out.dtype.type(1), out.dtype.type(2)
    terms = A.shape[0]
    worst, nearest, steepest, most, remaining = 0.0, -1.0, 0.0, 0, 0
    buffer = np.empty((7, _CHUNK), out.dtype)
    for i in range(i0, i1):
        begin = max(j0, i + 1) if symmetric else j0
        scale_i, root_i = left.factor[i], left.inverse[i]
        for start in range(begin, j1, _CHUNK):
            count = min(_CHUNK, j1 - start)
            drive, rho, G, slope = buffer[0, :count], buffer[1, :count], buffer[2, :count], buffer[3, :count]
            norm, z, derivative = buffer[4, :count], buffer[5, :count], buffer[6, :count]
            row = out[0, i, start : start + count]
            scale, root = right.factor[start : start + count], right.inverse[start : start + count]
            for j in range(count):
                norm[j] = root_i * root[j]  # 1/√(q_i q_j)
                drive[j] = (gain * row[j] * (scale_i * scale[j]) + bias) * norm[j]
                rho[j] = min(max(drive[j], -one), one)
            for iteration in range(60):
                close = zero
                for j in range(count):
                    close = max(close, abs(rho[j]))
                begin_k = skip[min(int(close * (skip.size - 1)) + 1, skip.size - 1)]
                for j in range(count):
                    z[j] = rho[j] * rho[j] if odd else rho[j]
                    G[j] = zero
                    derivative[j] = zero
                for k in range(begin_k, terms, 4):
                    a0, a1, a2, a3 = A[k, i], A[k + 1, i], A[k + 2, i], A[k + 3, i]
                    b0, b1 = B[k, start : start + count], B[k + 1, start : start + count]
                    b2, b3 = B[k + 2, start : start + count], B[k + 3, start : start + count]
                    for j in range(count):
                        x, p, d = z[j], G[j], derivative[j]
                        d = d * x + p
                        p = p * x + a0 * b0[j]
                        d = d * x + p
                        p = p * x + a1 * b1[j]
                        d = d * x + p
                        p = p * x + a2 * b2[j]
                        d = d * x + p
                        p = p * x + a3 * b3[j]
                        G[j], derivative[j] = p, d
                largest = zero
                if odd:  # G = ρ p(ρ²), dG/dρ = p + 2ρ² p'
                    for j in range(count):
                        p = G[j]
                        G[j] = rho[j] * p
                        derivative[j] = p + two * z[j] * derivative[j]
                for j in range(count):
                    slope[j] = derivative[j] * norm[j]  # Ġ = (dG/dρ)/√(q_i q_j)
                    excess = rho[j] - recurrent * G[j] * norm[j] - drive[j]
                    step = excess / (one - recurrent * slope[j])
                    largest = max(largest, abs(excess))
                    z[j] = min(max(rho[j] - step, -one), one)
                most = max(most, iteration + 1)
                if largest <= equation.tolerance or iteration == 59:
                    worst = max(worst, np.float64(largest))
                    break
                for j in range(count):
                    rho[j] = z[j]
            for k in range(codes.size):
                target = out[k, i, start : start + count]
                code = codes[k]
                size_i, size = left.root[i], right.root[start : start + count]
                for j in range(count):
                    covariance = rho[j] * (size_i * size[j])
                    target[j] = compiled_combine(code, G[j], slope[j], covariance, recurrent, one)
            largest = zero
            for j in range(count):
                largest = max(largest, abs(slope[j]))
            steepest = max(steepest, np.float64(largest))
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
def integrated_pass(
    out: Any, X: Any, Y: Any, chain: Any, left: Any, right: Any, codes: Any, cut: float, rounding: float,
    i0: int, i1: int, j0: int, j1: int, symmetric: bool,
) -> float:  # fmt: skip
    """Solve the pairs that `hermite_pass` left at infinity, with integrals in place of the series.

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
            implicit_pair(chain, left, i, right, j, pair, result, errors)
            for k in range(codes.size):
                out[k, i, j], lost = value_and_error(codes[k], result, errors)
                most = max(most, lost / (left.root[k, i] * right.root[k, j])) if lost == lost else np.inf
    return most
