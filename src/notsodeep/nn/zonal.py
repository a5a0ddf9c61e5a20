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

from notsodeep.kernels.arc import Arc, lens_of
from notsodeep.kernels.piecewise import fit_pieces
from notsodeep.kernels.polynomial import Polynomial, Variable, fit
from notsodeep.kernels.univariate import cosine_function
from notsodeep.kinds import Kind
from notsodeep.nn.cosines import Ends
from notsodeep.recursion import Recursion

__all__ = ["Zonal", "arc_function", "recursion_function"]

Array: TypeAlias = NDArray[Any]

_ACCEPTED = 1e-11  # error of polynomials on intervals, relative to the diagonal
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


def _evaluate(row: Any, below: Tensor, above: Tensor, *, slope: bool = False) -> Tensor:
    out = torch.empty_like(below, memory_format=torch.contiguous_format)
    for total, near, far in zip(*(x.reshape(-1).split(_CHUNK) for x in (out, below, above)), strict=True):
        total.copy_(row(near, far, slope))
    return out


@dataclass(frozen=True)
class _Single:
    """One polynomial in y = slope·variable + offset."""

    polynomial: Polynomial
    row: int

    @cached_property
    def _coefficients(self) -> tuple[list[float], list[float]]:
        """Of k and dk/dy, highest power first, without the zeros in front."""
        found = np.trim_zeros(self.polynomial.coefficients[self.row], "f").tolist() or [0.0]
        return found, [c * (len(found) - 1 - k) for k, c in enumerate(found[:-1])] or [0.0]

    def __call__(self, near: Tensor, far: Tensor, slope: bool) -> Tensor:
        y, rate = self._variable(near, far, slope)
        first, *others = self._coefficients[slope]
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
