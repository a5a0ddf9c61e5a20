"""Kernels that are a function of the cosine of unit rows: a polynomial and its derivative, nothing to solve.

    K(x, y) = r_x r_y k(t),   t = x̂·ŷ

For a homogeneous φ the unit rows are those of (√input·x, √bias), and any norms are allowed; ∂k/∂recurrent at fixed t is
a polynomial of the same variable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from notsodeep import compilation
from notsodeep.kernels.arc import Arc, lens_of
from notsodeep.kernels.passes import _horner
from notsodeep.kernels.piecewise import fit_pieces
from notsodeep.kernels.polynomial import GROUP, Polynomial, Variable, fit
from notsodeep.kernels.univariate import cosine_function
from notsodeep.kinds import Kind
from notsodeep.nn.cosines import Ends, near_end
from notsodeep.recursion import Recursion
from notsodeep.threads import lasting_pool, thread_count

__all__ = ["Zonal", "arc_function", "recursion_function"]

Array: TypeAlias = NDArray[Any]

_ACCEPTED = 1e-11  # error of polynomials on intervals, relative to the diagonal
_BLOCK = 256
_CHUNK = 1 << 17  # entries of a polynomial evaluated at a time, so that they stay in the cache


@dataclass(frozen=True)
class Zonal:
    """k(t) by polynomials.

    Attributes
    ----------
    rows : tuple of callables
        k, and ∂k/∂recurrent where it is known: each maps 1 − t, 1 + t and whether dk/dt is wanted to a tensor.
    tangent : bool
        Whether k goes like √(1 − t) near t = 1.
    """

    rows: tuple[Callable[[Tensor, Tensor, bool], Tensor], ...]
    tangent: bool

    def __call__(self, t: Ends, recurrent: Tensor | None = None) -> Tensor:
        """k at the cosines of unit rows, differentiable once."""
        result: Tensor = _Function.apply(t.value, t.below, t.above, recurrent, self.rows)
        return result

    def gradient(
        self, t: Tensor, weight: Tensor, r: Tensor, s: Tensor, rows: tuple[Tensor, Tensor] | None, turned: bool
    ) -> tuple[Tensor, Tensor, float] | None:
        """The gradient of Σ w_ij r_i s_j k(t_ij) on a processor: in t, in place; in r, s and, if `turned`, recurrent.

        None where the compiled pass does not apply.
        """
        if t.device.type != "cpu" or t.ndim > 2 or not isinstance(self.rows[0], _Single):
            return None
        single, dtype = self.rows[0], t.numpy().dtype
        code, numbers = single.numbers(dtype)
        lists = [*single.coefficients, *([self.rows[1].coefficients[0]] if turned else [])]  # type: ignore[attr-defined]
        size = max(map(len, lists))
        tables = np.stack([padded(one, dtype, size) for one in lists])
        left, right = (np.zeros((1, 0), dtype),) * 2 if rows is None else (x.detach().numpy() for x in rows)
        cut = 0.0 if rows is None else near_end(t)
        arrays = [x.detach().contiguous().numpy() for x in (t, weight, r, s)]
        spans = np.array_split(np.arange(len(t)), min(len(t), thread_count(), 1 + t.numel() // _CHUNK))
        to_r, to_s = np.zeros(t.shape[0], dtype), np.zeros((len(spans), t.shape[1]), dtype)

        def work(k: int) -> float:
            part = slice(spans[k][0], spans[k][-1] + 1)
            mine = left if rows is None else left[part]
            return _gradient_pass(
                arrays[0][part], arrays[1][part], arrays[2][part], arrays[3], mine, right, cut,
                code, numbers, tables, to_r[part], to_s[k],
            )  # fmt: skip

        by_recurrent = sum(_shared(work, list(range(len(spans)))))
        return torch.from_numpy(to_r), torch.from_numpy(to_s.sum(0)), by_recurrent


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, below: Tensor, above: Tensor, recurrent: Tensor | None, rows: Any) -> Tensor:
        ctx.save_for_backward(below, above)
        ctx.rows = rows
        return _evaluate(rows[0], below, above)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        # differentiable in `gradient` alone: second derivatives are computed pair by pair
        (below, above), rows = ctx.saved_tensors, ctx.rows
        slope = turned = None
        if ctx.needs_input_grad[0]:
            slope = _evaluate(rows[0], below, above, slope=True) * gradient
        if ctx.needs_input_grad[3]:
            turned = (_evaluate(rows[1], below, above) * gradient).sum()
        return slope, None, None, turned, None


def _shared(work: Callable[[Any], Any], tasks: list[Any]) -> list[Any]:
    """Results of all tasks; the threads share them where there are several."""
    return list(lasting_pool().map(work, tasks) if len(tasks) > 1 else map(work, tasks))


def _evaluate(row: Any, below: Tensor, above: Tensor, *, slope: bool = False) -> Tensor:
    out = torch.empty_like(below, memory_format=torch.contiguous_format)
    parts = list(zip(*(x.reshape(-1).split(_CHUNK) for x in (out, below, above)), strict=True))
    if isinstance(row, _Single) and out.device.type == "cpu":
        arrays: list[Any] = [[x.detach().numpy() for x in part] for part in parts]
        _shared(lambda part: row.compiled(part[0], part[1], part[2], slope), arrays)
        return out
    for total, near, far in parts:
        total.copy_(row(near, far, slope))
    return out


@dataclass(frozen=True)
class _Single:
    """One polynomial in y = slope·variable + offset."""

    polynomial: Polynomial
    row: int

    @cached_property
    def coefficients(self) -> tuple[list[float], list[float]]:
        """Of k and dk/dy, highest power first, without the zeros in front."""
        found = np.trim_zeros(self.polynomial.coefficients[self.row], "f").tolist() or [0.0]
        return found, [c * (len(found) - 1 - k) for k, c in enumerate(found[:-1])] or [0.0]

    def compiled(self, out: Array, near: Array, far: Array, slope: bool) -> None:
        """The same on a processor, in one pass."""
        code, numbers = self.numbers(out.dtype)
        _pass(out, near, far, code, numbers, padded(self.coefficients[slope], out.dtype), slope)

    def numbers(self, dtype: Any) -> tuple[int, Array]:
        """The variable, and what the compiled loops need to compute it."""
        p, variable = self.polynomial, self.polynomial.variable
        return variable.code, np.array([p.slope, p.offset, variable.branch, variable.branch - variable.largest], dtype)

    def __call__(self, near: Tensor, far: Tensor, slope: bool) -> Tensor:
        y, rate = self._variable(near, far, slope)
        first, *others = self.coefficients[slope]
        total = torch.full_like(y, first)
        for c in others:
            total.mul_(y).add_(c)
        return total if rate is None else total.mul_(rate)

    def _variable(self, near: Tensor, far: Tensor, slope: bool) -> tuple[Tensor, Tensor | None]:
        """y, and dy/dt: 0 at a branch point, where it is infinite."""
        variable, factor, offset = self.polynomial.variable, self.polynomial.slope, self.polynomial.offset
        if variable.name == "t":
            t = torch.where(near <= far, 1 - near, far - 1)
            return t.mul_(factor).add_(offset), torch.full_like(near, factor) if slope else None
        u = near.sqrt()
        if variable.name == "u":
            w, turn = u, -2 * u
        elif variable.name == "above":
            w = far.div(u + math.sqrt(2)).add_(variable.branch - variable.largest).sqrt_()
            turn = 4 * u * w
        else:
            w = (u + variable.branch).sqrt_()
            turn = -4 * u * w
        rate = torch.where(turn == 0, 0.0, factor / turn) if slope else None
        return w.mul(factor).add_(offset), rate


def padded(coefficients: list[float], dtype: Any, size: int = 0) -> Array:
    """Zeros in front, up to GROUP·m + 1 coefficients."""
    found = np.zeros(1 + GROUP * -(-(max(len(coefficients), size) - 1) // GROUP), dtype)
    found[found.size - len(coefficients) :] = coefficients
    return found


_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz", "nnan", "reassoc"})


@_jit
def _fill_variable(y: Any, turn: Any, near: Any, far: Any, variable: int, numbers: Any) -> None:
    """The polynomial's variable, and the factor/(dy/dt) that its derivative is divided by."""
    factor, offset, branch, excess = numbers[0], numbers[1], numbers[2], numbers[3]
    one, two = y.dtype.type(1), y.dtype.type(2)
    diagonal = y.dtype.type(np.sqrt(2.0))
    if variable == 0:
        for j in range(y.size):
            y[j] = one - near[j] if near[j] <= far[j] else far[j] - one
            turn[j] = one
    else:
        for j in range(y.size):
            u = np.sqrt(near[j])
            y[j], turn[j] = u, -two * u
        if variable == 2:
            for j in range(y.size):
                u = y[j]
                y[j] = np.sqrt(far[j] / (u + diagonal) + excess)
                turn[j] = two * two * u * y[j]
        elif variable == 3:
            for j in range(y.size):
                u = y[j]
                y[j] = np.sqrt(u + branch)
                turn[j] = -two * two * u * y[j]
    for j in range(y.size):
        y[j] = factor * y[j] + offset


@_jit
def _pass(out: Any, near: Any, far: Any, variable: int, numbers: Any, coefficients: Any, slope: bool) -> None:
    """Σ c_k yᵏ, times dy/dt where the slope is wanted, in blocks that stay in the first-level cache."""
    factor, zero = numbers[0], out.dtype.type(0)
    buffer = np.empty((2, _BLOCK), out.dtype)
    for start in range(0, out.size, _BLOCK):
        total = out[start : start + _BLOCK]
        y, turn = buffer[0, : total.size], buffer[1, : total.size]
        _fill_variable(y, turn, near[start : start + _BLOCK], far[start : start + _BLOCK], variable, numbers)
        _horner(total, y, coefficients, coefficients.size)
        if slope:
            for j in range(total.size):
                total[j] = total[j] * factor / turn[j] if turn[j] != zero else zero


@_jit
def _gradient_pass(
    t: Any, weight: Any, r: Any, s: Any, left: Any, right: Any, cut: float,
    variable: int, numbers: Any, tables: Any, to_r: Any, to_s: Any,
) -> float:  # fmt: skip
    """The gradient of Σ w_ij r_i s_j k(t_ij): in t in place of the cosines, in r and s, and in the recurrent variance.

    left, right: unit rows, from which distances below `cut` are computed again. tables: k, dk/dy, and ∂k/∂recurrent
    unless that is left out.
    """
    factor = numbers[0]
    zero, one, two = t.dtype.type(0), t.dtype.type(1), t.dtype.type(2)
    buffer = np.empty((6, _BLOCK), t.dtype)
    by_recurrent = 0.0
    for i in range(t.shape[0]):
        ri, sums = r[i], 0.0
        for start in range(0, t.shape[1], _BLOCK):
            row = t[i, start : start + _BLOCK]
            count = row.size
            near, far, y, turn = buffer[0, :count], buffer[1, :count], buffer[2, :count], buffer[3, :count]
            value, slope = buffer[4, :count], buffer[5, :count]
            closest = one
            for j in range(count):
                near[j], far[j] = max(one - row[j], zero), max(one + row[j], zero)
                closest = min(closest, min(near[j], far[j]))
            if closest < cut:
                for j in range(count):
                    if near[j] < cut or far[j] < cut:
                        sign = one if near[j] < cut else -one
                        total = zero
                        for k in range(left.shape[1]):
                            difference = left[i, k] - sign * right[start + j, k]
                            total += difference * difference
                        total /= two
                        near[j], far[j] = (total, two - total) if sign > zero else (two - total, total)
            _fill_variable(y, turn, near, far, variable, numbers)
            _horner(value, y, tables[0], tables.shape[1])
            _horner(slope, y, tables[1], tables.shape[1])
            w, sj, out = weight[i, start : start + _BLOCK], s[start : start + _BLOCK], to_s[start : start + _BLOCK]
            part = zero
            for j in range(count):
                product = w[j] * value[j]
                part += product * sj[j]
                out[j] += product * ri
                rate = slope[j] * factor / turn[j] if turn[j] != zero else zero
                row[j] = w[j] * ri * sj[j] * rate
            sums += part
            if tables.shape[0] > 2:
                _horner(value, y, tables[2], tables.shape[1])
                part = zero
                for j in range(count):
                    part += w[j] * value[j] * sj[j]
                by_recurrent += part * ri
        to_r[i] = sums
    return by_recurrent


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Polynomials on short intervals of √(1 − |t|), as :mod:`notsodeep.kernels.piecewise` fits them."""

    coefficients: Array  # (2, intervals, degree + 1)

    def __call__(self, near: Tensor, far: Tensor, slope: bool) -> Tensor:
        intervals, degree = self.coefficients.shape[1], self.coefficients.shape[2] - 1
        table = self.coefficients
        if slope:
            table = table[..., :-1] * np.arange(degree, 0, -1)
        rows = torch.as_tensor(table.reshape(2 * intervals, -1).T.copy(), dtype=near.dtype, device=near.device)
        opposite = near > far
        small = torch.minimum(near, far).clamp_(max=1).sqrt_()
        place = small * intervals
        piece = place.long().clamp_(max=intervals - 1)
        y, piece = 2 * (place - piece) - 1, piece + intervals * opposite
        total = rows[0][piece]
        for row in rows[1:]:
            total.mul_(y).add_(row[piece])
        if not slope:
            return total
        # √(1 ∓ t) falls or grows by 1/(2√(1 ∓ t)), y by 2·intervals times that
        rate = torch.where(small == 0, 0.0, intervals / small)
        return total.mul_(torch.where(opposite, rate, -rate))


# --- the two functions ---------------------------------------------------------------------------


@lru_cache(maxsize=128)
def arc_function(arc: Arc, kind: str, dtype: str) -> Zonal | None:
    """k and ∂k/∂recurrent of a DEQ with a homogeneous φ, for unit variances."""
    if not arc.bend:  # a linear φ: k(t) = t does not depend on σ_a²
        return None
    largest = math.sqrt(2)

    def values(u: Array, beyond: Array) -> Array:
        theta = arc.angle(u, (arc.largest**2 - largest**2) + beyond * (2 * largest - beyond))
        return np.stack([arc.kernel(kind, theta), _by_recurrent(arc, kind, theta)])

    polynomial = fit(values, arc.variables(largest), dtype)
    if polynomial is None:
        return None
    return Zonal((_Single(polynomial, 0), _Single(polynomial, 1)), Kind.of(kind).is_tangent)


def _by_recurrent(arc: Arc, kind: str, theta: Array) -> Array:
    """∂k/∂σ_a² at fixed t: dθ = −lens(θ) dg/(sin θ (1 + gθ)), dg = e dσ_a²/(1 − σ_a² v)²."""
    bent = lens_of(theta)
    turn = bent / (1 + arc.g * theta) * arc.bend / arc.rest**2  # dρ
    over_sine = np.divide(turn, np.sin(theta), out=np.zeros_like(turn), where=theta > 0)
    rho, power, slope = np.cos(theta), arc.power * np.cos(theta) + arc.bend * bent, arc.power - arc.bend * theta
    gain = arc.gain(theta)
    d_power, d_slope = slope * turn, arc.bend * over_sine
    d_gain = gain**2 * (slope + arc.recurrent * d_slope)
    forms: dict[Kind, Callable[[], Array]] = {
        Kind.CK: lambda: d_power,
        Kind.NNGP: lambda: turn,
        Kind.NTK: lambda: d_power + turn * slope * gain + rho * d_slope * gain + rho * slope * d_gain,
        Kind.NTK_FROZEN_INPUT: lambda: d_power * gain + power * d_gain,
        Kind.NTK_INJECTED: lambda: turn * gain + rho * d_gain,
    }
    return forms[Kind.of(kind)]()


@lru_cache(maxsize=128)
def recursion_function(recursion: Recursion, length: float, kind: str, dtype: str) -> Zonal | None:
    """k of any recursion for rows of this norm."""
    function = cosine_function(recursion, length, (kind,))
    smooth = all(not phi.kinks for phi in recursion.activations)
    largest = math.sqrt(2)
    variables = [Variable("t", largest)] if smooth else [Variable("u", largest), Variable("above", largest, largest)]
    tangent = Kind.of(kind).is_tangent and not smooth
    polynomial = fit(lambda u, beyond: function(u, beyond)[0], variables, dtype)
    if polynomial is not None:
        return Zonal((_Single(polynomial, 0),), tangent)
    pieces = fit_pieces(lambda u, beyond: function(u, beyond)[0], _ACCEPTED)
    return None if pieces is None else Zonal((_Pieces(pieces[0][0]),), tangent)
