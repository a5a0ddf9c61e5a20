"""Plans for kernels that are one function of one variable per pair: homogeneous φ, or samples on one sphere.

The function becomes a polynomial, several on short intervals, or Newton's method in the angle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.activations import Activation, HermiteSeries
from notsodeep.gaussian import moments
from notsodeep.kernels.arc import Arc
from notsodeep.kernels.duals import NEAR, PIECES
from notsodeep.kernels.layers import layered_points
from notsodeep.kernels.pairwise import Tabulated, recomputed_below
from notsodeep.kernels.passes import NO_SHIFT, SHIFT_BY_ONE, Angles, Evaluation, Gaps, Rows, arc_pass, polynomial_pass
from notsodeep.kernels.piecewise import Radii, fit_pieces, piecewise_pass
from notsodeep.kernels.plans import Plan, Summary, sides
from notsodeep.kernels.polynomial import Polynomial, Variable, fit
from notsodeep.kernels.power_series import PowerSeries
from notsodeep.kernels.samples import Levels, Samples, levels_of
from notsodeep.kinds import Kind, kind_codes
from notsodeep.recursion import Layer, Recursion

__all__ = ["cosine_function", "cosine_plan", "homogeneous_plan"]

Array: TypeAlias = NDArray[Any]

CosineFunction: TypeAlias = Callable[[Array, Array], tuple[Array, float, Array]]

_ACCEPTED = 1e-11  # error of a piecewise polynomial, relative to the diagonal
_SENSITIVE, _WIDEST = 4e-13, 3e-2  # error by a cosine's rounding that widens the cut, and the widest one


def _cut(left: Samples, kinds: tuple[str, ...]) -> float:
    """Gap 1 − t below which differences are used: tangent kernels go like √(1 − t) there."""
    if not any(Kind.of(kind).is_tangent for kind in kinds):
        return -1.0
    return 4e-3 if left.rows.dtype == np.float32 else 1e-4


def homogeneous_plan(
    model: Layer, left: Samples, right: Samples, levels: Sequence[Levels], kinds: tuple[str, ...]
) -> Plan:
    """φ positively homogeneous up to a constant shift: the angle solves one equation for all pairs."""
    arc, shift = Arc.of(model.activation, model.recurrent), model.activation.shift
    dtype = left.rows.dtype
    turned = bool(shift and model.recurrent)  # in this case t is not the cosine of the drives
    exact = []
    for samples, level in zip((left, right), levels, strict=True):
        radius = np.sqrt(level.variance[0])  # r = √q
        if not shift:  # the same without squares, which could underflow
            length = math.sqrt(model.input) * samples.factor * samples.norm
            radius = np.hypot(length, math.sqrt(model.bias)) / math.sqrt(arc.rest)
        inverse = np.divide(1, radius, out=np.zeros_like(radius), where=radius > 0)
        scale = math.sqrt(arc.rest)
        a = math.sqrt(model.input) * samples.factor * inverse / scale
        b = math.sqrt(model.bias + model.recurrent * shift**2) * inverse / scale
        e = -model.recurrent * shift * arc.mean / arc.rest * inverse
        alpha = math.sqrt(model.input) * samples.factor if turned else a
        exact.append(Rows(a, b, e, radius, -shift * arc.mean * radius, alpha, b, radius))
    largest = math.sqrt(2)
    level_error = max(level.error for level in levels)
    rounding = max(left.rounding, right.rounding)
    if turned:  # t is a sum of larger terms, divided by √(q_i q_j); bound it from below using the data
        reach = [float(np.max(r.a * s.norm, initial=0.0)) for r, s in zip(exact, (left, right), strict=True)]
        lowest = -reach[0] * reach[1] + min(0.0, float(exact[0].e.min() + exact[1].e.min()))
        largest = min(arc.largest, math.sqrt(max(1 - lowest, 1.0)))
        terms = math.prod(reach) + math.prod(float(r.b.max()) for r in exact)
        terms += sum(float(abs(r.e).max()) for r in exact)
        rounding = max(terms, 1.0) * (rounding + level_error)

    def values(u: Array) -> Array:
        theta = arc.angle(u)
        return np.stack([arc.kernel(kind, theta) for kind in kinds])

    cut, sensitivity = _widened(values, _cut(left, kinds), rounding, largest, opposite=not turned)
    common = _common(left, right, exact, Gaps(arc.rest if turned else 0.0, cut))
    polynomial = _arc_polynomial(
        arc, round(largest * 64 + 0.5) / 64 if turned else largest, kinds, bool(shift), dtype.name
    )
    residual = _arc_residual(arc, largest)
    gain = 1 / (1 - model.recurrent * arc.power)
    error = level_error + gain * residual + sensitivity
    if polynomial is None:
        angles = Angles(*map(float, (arc.g, arc.power, arc.bend, arc.recurrent, shift**2)))
        return Plan(
            "newton in the angle",
            arc_pass,
            (*common, angles, np.array(kind_codes(kinds))),
            lambda results: Summary(residual, error, recomputed=sum(results)),
        )
    return _polynomial_plan(polynomial, common, kinds, shift, largest, residual, error)


def _common(left: Samples, right: Samples, rows: Sequence[Rows], gaps: Gaps) -> tuple[Any, ...]:
    """The arguments of both passes, from rows in float64."""
    dtype = left.rows.dtype
    rounded = [Rows._make((*(array.astype(dtype) for array in row[:5]), *row[5:])) for row in rows]
    return (*sides(left.exact, right.exact, axis=0), *sides(*rounded), gaps)


def _shifts(kinds: tuple[str, ...]) -> list[int]:
    """How a shift of φ enters each kind: through G alone, through G/(1 − σ_a²Ġ) (the row after those of the kinds)."""
    found = {Kind.CK: SHIFT_BY_ONE, Kind.NTK: SHIFT_BY_ONE, Kind.NTK_FROZEN_INPUT: len(kinds)}
    return [found.get(Kind.of(kind), NO_SHIFT) for kind in kinds]


@lru_cache(maxsize=128)
def _arc_residual(arc: Arc, largest: float) -> float:
    return arc.residual(np.linspace(0, largest, 400))


@lru_cache(maxsize=128)
def _arc_polynomial(arc: Arc, largest: float, kinds: tuple[str, ...], shifted: bool, dtype: str) -> Polynomial | None:
    largest = min(largest, arc.largest)

    def values(u: Array, beyond: Array) -> Array:
        theta = arc.angle(u, (arc.largest**2 - largest**2) + beyond * (2 * largest - beyond))
        found = [arc.kernel(kind, theta) for kind in kinds]
        if shifted and Kind.NTK_FROZEN_INPUT.label in kinds:
            found.append(arc.gain(theta))
        return np.stack(found)

    return fit(values, arc.variables(largest), dtype)


def _widened(
    values: Callable[[Array], Array], cut: float, rounding: float, largest: float, *, opposite: bool
) -> tuple[float, float]:
    """The cut, wider where rounding of the cosine would matter most, and the sensitivity that is left."""
    left = _sensitivity(values, cut, rounding, largest, opposite=opposite)
    while left > _SENSITIVE and 0 < 4 * cut <= _WIDEST:  # it falls like 1/√cut
        less = _sensitivity(values, 4 * cut, rounding, largest, opposite=opposite)
        if less > 0.8 * left:
            break
        cut, left = 4 * cut, less
    return cut, left


def _sensitivity(
    values: Callable[[Array], Array], cut: float, rounding: float, largest: float, *, opposite: bool
) -> float:
    """Effect of a rounding error in 1 − t, relative to the value at t = 1.

    At the smallest gap that is not recomputed from differences, and at the other end, where nearly opposite rows are
    also recomputed if t is a cosine (`opposite`).
    """
    near = max(cut, 16 * rounding)
    # without a cosine the far end is a bound that no pair attains
    far = max(cut, 16 * rounding) if opposite else 1e-3
    gaps = np.array([0.0, near, 1.1 * near, largest**2 - far, largest**2 - 1.1 * far])
    probe = values(np.sqrt(gaps))
    slopes = np.abs(probe[:, [2, 4]] - probe[:, [1, 3]]) / np.array([0.1 * near, 0.1 * far])
    return float(np.max(slopes * rounding / (np.abs(probe[:, :1]) + 1e-300)))


def _polynomial_plan(
    polynomial: Polynomial,
    common: tuple[Any, ...],
    kinds: tuple[str, ...],
    shift: float,
    largest: float,
    residual: float,
    error: float,
) -> Plan:
    real = polynomial.coefficients.dtype.type
    curve = Evaluation(
        variable=polynomial.variable.code,
        slope=real(polynomial.slope),
        offset=real(polynomial.offset),
        branch=real(polynomial.variable.branch),
        largest=real(largest**2),
        coefficients=polynomial.coefficients,
        constant=real(shift**2),
        shifts=np.array(_shifts(kinds) if shift else [NO_SHIFT] * len(kinds)),
    )
    total = error + float(polynomial.error.max())
    return Plan(
        "polynomial",
        polynomial_pass,
        (*common, curve),
        lambda results: Summary(residual, total, recomputed=sum(results)),
        variable=str(polynomial.variable),
        degree=polynomial.degree,
        polynomial=polynomial,
    )


def cosine_plan(
    recursion: Recursion, left: Samples, right: Samples, levels: Sequence[Levels], kinds: tuple[str, ...]
) -> Plan | None:
    """Samples on one sphere, or a network homogeneous throughout: a function of the cosine, or None."""
    lengths = [samples.factor * samples.norm for samples in (left, right)]
    low, high = min(x.min() for x in lengths), max(x.max() for x in lengths)
    homogeneous = recursion.homogeneous
    spread = (high - low) / high if high > 0 else math.inf
    equal = spread <= 8 * max(float(np.finfo(samples.exact.dtype).eps) for samples in (left, right))
    if not (homogeneous or equal) or high == 0:
        return None
    dtype = left.rows.dtype
    unit = 1.0 if homogeneous else float(np.mean(lengths[0]))
    function = cosine_function(recursion, unit, kinds)
    smooth = all(not phi.kinks for phi in recursion.activations)
    largest = math.sqrt(2)
    variables = [Variable("t", largest)] if smooth else [Variable("u", largest), Variable("above", largest, largest)]
    polynomial = fit(lambda u, beyond: function(u, beyond)[0], variables, dtype)
    if polynomial is None:
        return _in_pieces(function, left, right, levels, lengths if homogeneous else None, spread)
    rows = []
    for samples, length in zip((left, right), lengths, strict=True):
        a = np.divide(1, samples.norm, out=np.zeros_like(length), where=samples.norm > 0)
        zero = np.zeros_like(a)
        radius = length if homogeneous else np.ones_like(a)
        rows.append(Rows(a, zero, zero, radius, zero, a, zero, radius))
    cut, rounding = -1.0 if smooth else _cut(left, kinds), max(left.rounding, right.rounding)
    u = np.linspace(0, largest, 200)
    found, residual, lost = function(u, largest - u)
    cut, sensitivity = _widened(lambda u: function(u, largest - u)[0], cut, rounding, largest, opposite=cut > 0)
    error = max(level.error for level in levels) + float(np.max(lost / found[:, :1])) + sensitivity
    common = _common(left, right, rows, Gaps(0.0, cut))
    return _polynomial_plan(polynomial, common, kinds, 0.0, largest, residual, error + (0 if homogeneous else spread))


def _in_pieces(
    function: CosineFunction,
    left: Samples,
    right: Samples,
    levels: Sequence[Levels],
    radii: list[Array] | None,
    spread: float,
) -> Plan | None:
    """The same on short intervals of √(1 − |t|), if one polynomial is not enough; None if these are not either."""
    fitted = fit_pieces(lambda u, beyond: function(u, beyond)[0], _ACCEPTED)
    if fitted is None:
        return None
    coefficients, error = fitted
    u = np.linspace(0, math.sqrt(2), 200)
    found, residual, lost = function(u, math.sqrt(2) - u)
    cut, rounding = recomputed_below(left, right)
    cut, sensitivity = _widened(lambda u: function(u, math.sqrt(2) - u)[0], cut, rounding, math.sqrt(2), opposite=True)
    error += max(level.error for level in levels) + float(np.max(lost / found[:, :1])) + sensitivity
    error += spread if radii is None else 0.0
    error += float(np.finfo(left.rows.dtype).eps)
    radial = [
        Radii(samples.factor, samples.factor * samples.norm, np.ones(len(samples)) if radii is None else radii[side])
        for side, samples in enumerate((left, right))
    ]
    return Plan(
        "piecewise polynomial",
        piecewise_pass,
        (*sides(left.exact, right.exact, axis=0), *sides(*radial), coefficients, cut, rounding),
        lambda results: Summary(residual, error, recomputed=sum(results)),
        degree=coefficients.shape[-1] - 1,
    )


def cosine_function(recursion: Recursion, length: float, kinds: tuple[str, ...]) -> CosineFunction:
    """Return (u, √2 − u), u = √(1 − cos) ↦ kernels of two samples of this length, worst residual, bounds of errors."""
    if not recursion.closed and len(recursion.layers) == 1 and not recursion.layers[0].bias:
        phi = recursion.activations[0]
        if isinstance(phi.shape, HermiteSeries) and abs(phi.stretch * length - 1) <= 1e-12:
            return _series_function(phi, kinds)
    sample = Samples.of(np.array([[length]]), np.dtype(np.float64))
    network = Tabulated.of(recursion, (sample,), (levels_of(recursion, sample),), kinds)
    codes = np.array(kind_codes(kinds))
    for k, found in enumerate(network.duals):
        if found.type == PIECES:  # a few thousand points: digits count more than time
            network.chain.constants[k, 5 + 3 * int(found.constants[2])] = 10 * NEAR

    def values(u: Array, beyond: Array) -> tuple[Array, float, Array]:
        near = np.asarray(u, dtype=np.float64) ** 2
        far = np.asarray(beyond) * (2 * math.sqrt(2) - beyond)  # 1 + cos
        gap, rest = np.where(near <= far, near, 2 - far), np.where(near <= far, 2 - near, far)
        out, lost = np.empty((2, codes.size, gap.size))
        residual = layered_points(network.chain, network.groups[0], codes, length**2, gap, rest, out, lost)
        return out, float(residual), lost

    return values


def _series_function(phi: Activation, kinds: tuple[str, ...]) -> CosineFunction:
    """The kernels of one layer with a Hermite series, on the sphere where its coefficients are the kernel's."""
    shape = phi.shape
    assert isinstance(shape, HermiteSeries)
    series = PowerSeries.of(shape)
    constant = phi.shift * (phi.shift - 2 * phi.scale * shape.order(1)[0])
    m = moments(Activation(shape), 1.0)  # error of the function itself: the difference is the loss by table and tail

    def values(u: Array, beyond: Array) -> tuple[Array, float, Array]:
        near, far = np.asarray(u, dtype=np.float64) ** 2, np.asarray(beyond) * (2 * math.sqrt(2) - beyond)
        power, slope = np.empty_like(near), np.empty_like(near)
        for sign in (1.0, -1.0):
            mine = (near <= far) == (sign > 0)
            power[mine], slope[mine] = series((near if sign > 0 else far)[mine], sign)
        cosine = np.where(near <= far, 1 - near, far - 1)
        ck = phi.scale**2 * power + constant
        found = np.stack([ck if kind == "ck" else ck + phi.scale**2 * cosine * slope for kind in kinds])
        top, steepest = (float(at[0]) for at in series(np.zeros(1), 1.0))
        rest = np.array([[abs(top - m.power) + (kind != "ck") * abs(steepest - m.slope_power)] for kind in kinds])
        return found, 0.0, phi.scale**2 * rest + 4e-15 * np.abs(found)

    return values
