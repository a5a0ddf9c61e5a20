"""Choose the pass that computes a kernel: one plan per case, each with its arrays, its pass and its stated error."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from notsodeep.activations import Activation, HermiteSeries
from notsodeep.gaussian import moments
from notsodeep.kernels.arc import Arc
from notsodeep.kernels.duals import EPSILON, NEAR, PIECES, SERIES
from notsodeep.kernels.hermite import hermite_pass, integrated_pass
from notsodeep.kernels.kinds import kind_codes
from notsodeep.kernels.layers import LOOP, OPEN, SINGLE, Chain, Signals, layered_pass, layered_points
from notsodeep.kernels.passes import arc_pass, polynomial_pass
from notsodeep.kernels.piecewise import Radii, fit_pieces, piecewise_pass
from notsodeep.kernels.polynomial import Polynomial, Variable, fit
from notsodeep.kernels.power_series import PowerSeries
from notsodeep.kernels.samples import Levels, Samples, exact_diagonal, levels_of
from notsodeep.kernels.tables import Dual, Series, dual
from notsodeep.kinds import Kind
from notsodeep.recursion import Layer, Recursion

__all__ = ["Plan", "choose", "cosine_function"]

Array: TypeAlias = NDArray[Any]

CosineFunction: TypeAlias = Callable[[Array, Array], tuple[Array, float, Array]]

_ACCEPTED = 1e-11  # error of a piecewise polynomial, relative to the diagonal
_SENSITIVE, _WIDEST = 4e-13, 3e-2  # error by a cosine's rounding that widens the cut, and the widest one
_PROBES = 8  # rows whose inner products are also computed exactly


@dataclass(frozen=True)
class Summary:
    """What the tiles of a finished plan reported."""

    residual: float
    error: float
    recomputed: int = 0
    iterations: int = 0

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both; a NaN stays one."""
        return Summary(
            float(np.maximum(self.residual, other.residual)),
            float(np.maximum(self.error, other.error)),
            self.recomputed + other.recomputed,
            max(self.iterations, other.iterations),
        )


class PerSample(NamedTuple):
    """An argument with one entry per row (side 0) or column (side 1) of the kernel, along `axis`."""

    side: int
    values: Any  # an array, or a named tuple of arrays
    axis: int = -1

    def part(self, spans: tuple[slice, slice]) -> Any:
        span = spans[self.side]
        if isinstance(self.values, tuple):
            return type(self.values)(*(np.ascontiguousarray(a[..., span]) for a in self.values))
        return np.ascontiguousarray(self.values[span] if self.axis == 0 else self.values[..., span])


def _sides(left: Any, right: Any, *, axis: int = -1) -> tuple[PerSample, PerSample]:
    return PerSample(0, left, axis), PerSample(1, right, axis)


@dataclass(frozen=True)
class Plan:
    """A pass with its arguments between `out` and the tile's ranges, and how to read what it returns.

    Arrays with an entry per sample are marked (:class:`PerSample`), so a plan for all samples serves any subset.
    A pass may leave entries at infinity; the last number it returns is their count, and `rest` solves them. A tile then
    reports a pair.
    """

    method: str
    function: Any
    arguments: tuple[Any, ...]
    summarise: Callable[[list[Any]], Summary]
    variable: str = ""
    degree: int = 0
    rest: Plan | None = None
    polynomial: Polynomial | None = None

    def over(self, rows: slice, columns: slice) -> Callable[[Array, int, int, int, int, bool], Any]:
        """Return the pass for a rectangle; its tiles are counted from the rectangle's corner."""
        arguments = self.bound(rows, columns)
        if self.rest is None:
            return lambda out, *tile: self.function(out, *arguments, *tile)
        rest = self.rest.over(rows, columns)

        def both(out: Array, *tile: Any) -> Any:
            report = self.function(out, *arguments, *tile)
            return report, rest(out, *tile) if report[-1] else 0.0

        return both

    def bound(self, rows: slice, columns: slice) -> tuple[Any, ...]:
        """Return the arguments restricted to these samples."""
        return tuple(a.part((rows, columns)) if isinstance(a, PerSample) else a for a in self.arguments)

    def compile(self, out: Array) -> float:
        """Compile (or load) the pass for these arguments; return the seconds it took."""
        began = time.perf_counter()
        arguments = self.bound(slice(0, 1), slice(0, 1))
        self.function.compile(tuple(numba.typeof(a) for a in (out, *arguments, 0, 0, 0, 0, True)))
        return time.perf_counter() - began


def choose(
    recursion: Recursion, left: Samples, right: Samples, levels: Sequence[Levels], kinds: tuple[str, ...]
) -> Plan:
    """Return the fastest plan that is accurate for this recursion and these samples."""
    single = _single(recursion)
    if single is not None and single.activation.shape.homogeneous:
        return _homogeneous(single, left, right, levels, kinds)
    return _cosine(recursion, left, right, levels, kinds) or _general(recursion, left, right, levels, kinds)


def _single(recursion: Recursion) -> Layer | None:
    """The layer of a plain DEQ."""
    first = recursion.layers[0]
    return first if recursion.closed and len(recursion.layers) == 1 and first.normalize is None else None


# --- one univariate function ------------------------------------------------------------


def _rounding(left: Samples) -> float:
    """The error of a computed cosine: the usual one for this many features, and twice the one seen on a few rows.

    BLAS adds products sequentially. Random terms lose about √p units in the last place; equal terms all round in the
    same direction and lose up to p/6.
    """
    rows = left.rows[:: max(1, len(left) // _PROBES)][:_PROBES]
    wide: Any = rows.astype(np.float64 if rows.dtype == np.float32 else np.longdouble)
    exact = np.einsum("ik,jk->ij", wide, wide)
    size = np.sqrt(np.diag(exact))
    scale = np.multiply.outer(size, size)
    seen = np.divide(np.abs(rows @ rows.T - exact), scale, out=np.zeros_like(scale), where=scale > 0)
    usual = float(np.finfo(rows.dtype).eps) * (4 + math.sqrt(rows.shape[1]) / 8)
    return usual + 2 * float(seen.max())


def _cut(left: Samples, kinds: tuple[str, ...]) -> float:
    """Gap 1 − t below which differences are used: tangent kernels go like √(1 − t) there."""
    if not any(Kind.of(kind).is_tangent for kind in kinds):
        return -1.0
    return 4e-3 if left.rows.dtype == np.float32 else 1e-4


def _homogeneous(model: Layer, left: Samples, right: Samples, levels: Sequence[Levels], kinds: tuple[str, ...]) -> Plan:
    """φ positively homogeneous up to a constant shift: the angle solves one equation for all pairs."""
    arc, shift = Arc.of(model.activation, model.recurrent), model.activation.shift
    dtype = left.rows.dtype
    turned = bool(shift and model.recurrent)  # in this case t is not the cosine of the drives
    rows, exact = [], []
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
        rows.append(np.stack([a, b, e, radius, -shift * arc.mean * radius]))
        alpha = math.sqrt(model.input) * samples.factor if turned else a
        exact.append(np.stack([alpha, b, radius]))
    largest = math.sqrt(2)
    level_error = max(level.error for level in levels)
    rounding = _rounding(left)
    if turned:  # t is a sum of larger terms, divided by √(q_i q_j); bound it from below using the data
        reach = [float(np.max(r[0] * s.norm, initial=0.0)) for r, s in zip(rows, (left, right), strict=True)]
        lowest = -reach[0] * reach[1] + min(0.0, float(rows[0][2].min() + rows[1][2].min()))
        largest = min(arc.largest, math.sqrt(max(1 - lowest, 1.0)))
        terms = (
            math.prod(reach) + math.prod(float(r[1].max()) for r in rows) + sum(float(abs(r[2]).max()) for r in rows)
        )
        rounding = max(terms, 1.0) * (rounding + level_error)

    def values(u: Array) -> Array:
        theta = arc.angle(u)
        return np.stack([arc.kernel(kind, theta) for kind in kinds])

    cut, sensitivity = _widened(values, _cut(left, kinds), rounding, largest, opposite=not turned)
    common = (
        *_sides(left.exact, right.exact, axis=0), *_sides(*(array.astype(dtype) for array in rows)), *_sides(*exact),
        arc.rest if turned else 0.0, cut,
    )  # fmt: skip
    polynomial = _arc_polynomial(
        arc, round(largest * 64 + 0.5) / 64 if turned else largest, kinds, bool(shift), dtype.name
    )
    residual = arc.residual(np.linspace(0, largest, 400))
    gain = 1 / (1 - model.recurrent * arc.power)
    error = level_error + gain * residual + sensitivity
    if polynomial is None:
        numbers = np.array([arc.g, arc.power, arc.bend, arc.recurrent, shift**2])
        return Plan(
            "newton in the angle",
            arc_pass,
            (*common, numbers, np.array(kind_codes(kinds))),
            lambda results: Summary(residual, error, recomputed=sum(results)),
        )
    modes = _shift_modes(kinds) if shift else np.zeros(len(kinds), dtype=np.int64)
    return _polynomial_plan(polynomial, common, modes, shift**2, largest, residual, error)


def _shift_modes(kinds: tuple[str, ...]) -> Array:
    """How a constant shift of φ enters each kind: through G alone (1), through G/(1 − σ_a²Ġ) (row index), or not."""
    modes = {"ck": 1, "ntk": 1, "nngp": 0, "ntk_injected": 0, "ntk_frozen_input": max(len(kinds), 2)}
    return np.array([modes[kind] for kind in kinds])


@lru_cache(maxsize=128)
def _arc_polynomial(arc: Arc, largest: float, kinds: tuple[str, ...], shifted: bool, dtype: str) -> Polynomial | None:
    largest = min(largest, arc.largest)

    def values(u: Array, beyond: Array) -> Array:
        theta = arc.angle(u, (arc.largest**2 - largest**2) + beyond * (2 * largest - beyond))
        found = [arc.kernel(kind, theta) for kind in kinds]
        if shifted and "ntk_frozen_input" in kinds:  # row max(len(kinds), 2) of the coefficients
            found += [arc.gain(theta)] * (1 + (len(kinds) < 2))
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
    modes: Array,
    constant: float,
    largest: float,
    residual: float,
    error: float,
) -> Plan:
    dtype = polynomial.coefficients.dtype
    branch = [polynomial.slope, polynomial.offset, polynomial.variable.branch, constant, largest**2]
    arguments = (*common, polynomial.variable.code, np.array(branch, dtype), polynomial.coefficients, modes)
    total = error + float(polynomial.error.max())
    return Plan(
        "polynomial",
        polynomial_pass,
        arguments,
        lambda results: Summary(residual, total, recomputed=sum(results)),
        variable=str(polynomial.variable),
        degree=polynomial.degree,
        polynomial=polynomial,
    )


def _cosine(
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
    rows, exact = [], []
    for samples, length in zip((left, right), lengths, strict=True):
        a = np.divide(1, samples.norm, out=np.zeros_like(length), where=samples.norm > 0)
        zero = np.zeros_like(a)
        radius = length if homogeneous else np.ones_like(a)
        rows.append(np.stack([a, zero, zero, radius, zero]).astype(dtype))
        exact.append(np.stack([a, zero, radius]))
    cut = -1.0 if smooth else _cut(left, kinds)
    u = np.linspace(0, largest, 200)
    found, residual, lost = function(u, largest - u)
    cut, sensitivity = _widened(lambda u: function(u, largest - u)[0], cut, _rounding(left), largest, opposite=cut > 0)
    error = max(level.error for level in levels) + float(np.max(lost / found[:, :1])) + sensitivity
    common = (*_sides(left.exact, right.exact, axis=0), *_sides(*rows), *_sides(*exact), 0.0, cut)
    modes = np.zeros(len(kinds), dtype=np.int64)
    return _polynomial_plan(polynomial, common, modes, 0.0, largest, residual, error + (0 if homogeneous else spread))


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
    cut, rounding = _known(left)
    cut, sensitivity = _widened(lambda u: function(u, math.sqrt(2) - u)[0], cut, rounding, math.sqrt(2), opposite=True)
    error += max(level.error for level in levels) + float(np.max(lost / found[:, :1])) + sensitivity
    error += spread if radii is None else 0.0
    error += float(np.finfo(left.rows.dtype).eps)
    sides = [
        Radii(samples.factor, samples.factor * samples.norm, np.ones(len(samples)) if radii is None else radii[side])
        for side, samples in enumerate((left, right))
    ]
    return Plan(
        "piecewise polynomial",
        piecewise_pass,
        (*_sides(left.exact, right.exact, axis=0), *_sides(*sides), coefficients, cut, rounding),
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
    network = Network.of(recursion, (sample,), (levels_of(recursion, sample),), kinds)
    codes = np.array(kind_codes(kinds))
    for k, found in enumerate(network.duals):
        if found.type == PIECES:  # a few thousand points: digits count more than time
            network.chain.constants[k, found.constants.size - 1] = 10 * NEAR

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
        tangent = np.where(near > 0, slope, m.slope_power)
        found = np.stack([ck if kind == "ck" else ck + phi.scale**2 * cosine * tangent for kind in kinds])
        lost = phi.scale**2 * abs(float(series(np.zeros(1), 1.0)[0][0]) - m.power) + 4e-15 * np.abs(found)
        return found, 0.0, lost

    return values


# --- pair by pair -----------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """The arguments of :mod:`notsodeep.kernels.layers` for a recursion and one or two groups of samples."""

    chain: Chain
    groups: tuple[Signals, ...]
    duals: tuple[Dual, ...]

    @staticmethod
    def of(
        recursion: Recursion, samples: Sequence[Samples], levels: Sequence[Levels], kinds: tuple[str, ...]
    ) -> Network:
        single = samples[0].rows.dtype == np.float32
        layers = recursion.layers
        duals: list[Dual] = []
        for phi, group in itertools.groupby(range(len(layers)), lambda k: layers[k].activation):
            alike = list(group)  # neighbours with one φ share one tabulation
            found = dual(phi, *(level.variance[k] for level in levels for k in alike), single=single)
            duals += [replace(found, tables=found.tables[n :: len(alike)]) for n in range(len(alike))]
        width = max(d.constants.size for d in duals)
        height = max(len(d.tables[0]) for d in duals)
        end = OPEN if not recursion.closed else SINGLE if _single(recursion) else LOOP
        chain = Chain(
            end=end,
            numbers=np.array([[layer.recurrent, layer.input, layer.bias] for layer in layers]),
            types=np.array([d.type for d in duals]),
            constants=np.stack([np.pad(d.constants, (0, width - d.constants.size)) for d in duals]),
            limits=np.array([d.limits for d in duals]),
            normalized=np.array([layer.normalize is not None for layer in layers]),
            relative=4 * EPSILON + max(level.error for level in levels),
        )
        groups = []
        for g, (sample, level) in enumerate(zip(samples, levels, strict=True)):
            tables = np.zeros((len(layers), height, len(sample)))
            for k, d in enumerate(duals):
                tables[k, : len(d.tables[g])] = d.tables[g]
                if d.type == SERIES:  # normalised
                    size = np.sqrt(level.power[k])
                    tables[k] *= np.divide(1, size, out=np.zeros_like(size), where=size > 0)
            groups.append(signals(recursion, sample, level, kinds, tables))
        return Network(chain, tuple(groups), tuple(duals))


def signals(recursion: Recursion, sample: Samples, level: Levels, kinds: tuple[str, ...], tables: Array) -> Signals:
    """Per-sample arguments of the compiled passes."""
    return Signals(
        factor=sample.factor,
        norm=sample.factor * sample.norm,
        root=np.sqrt(np.stack([exact_diagonal(recursion, kind, level) for kind in kinds])),
        variance=level.variance,
        power=level.power,
        slope=level.slope,
        mean=level.mean,
        scale=level.scale,
        tables=tables,
    )


def _general(
    recursion: Recursion, left: Samples, right: Samples, levels: Sequence[Levels], kinds: tuple[str, ...]
) -> Plan:
    samples = (left,) if left is right else (left, right)
    codes = np.array(kind_codes(kinds))
    added = _diagonal_error(recursion, levels, kinds, left.rows.dtype)
    if (single := _single(recursion)) is not None:
        found = dual(
            single.activation,
            *(levels[g].variance[0] for g in range(len(samples))),
            single=left.rows.dtype == np.float32,
        )
        if found.type == SERIES:
            return _hermite(recursion, (left, right), levels, found, kinds, added)
    network = Network.of(recursion, samples, levels[: len(samples)], kinds)
    arguments = _layered(left, right, network.chain, network.groups[0], network.groups[-1], codes)

    def summarise(results: list[Any]) -> Summary:
        residual, error = (max(r[k] for r in results) for k in range(2))
        return Summary(residual, added + error, recomputed=sum(r[2] for r in results))

    return Plan("layer by layer", layered_pass, arguments, summarise, degree=max(d.terms for d in network.duals))


def _diagonal_error(recursion: Recursion, levels: Sequence[Levels], kinds: tuple[str, ...], dtype: Any) -> float:
    """Relative error of K_ii, from that of the variances."""
    gain = 1.0
    if recursion.closed and any(Kind.of(kind).is_tangent for kind in kinds):
        recurrent = np.array([layer.recurrent for layer in recursion.layers])[:, None]
        loop = max(float(np.max(np.prod(recurrent * level.slope / level.scale**2, axis=0))) for level in levels)
        gain = max(1.0, 1 / max(1 - loop, EPSILON))
    return (1 + gain) * (max(level.error for level in levels) + float(np.finfo(dtype).eps))


def _known(left: Samples) -> tuple[float, float]:
    """The distance from ±1 below which a cosine is recomputed from differences, and its error elsewhere."""
    return 1e-2 if left.rows.dtype == np.float32 else 1e-4, _rounding(left)


def _layered(left: Samples, right: Samples, chain: Chain, first: Signals, last: Signals, codes: Array) -> Any:
    """Arguments of `layered_pass`."""
    return (*_sides(left.exact, right.exact, axis=0), chain, *_sides(first, last), codes, *_known(left))


def _skippable(series: Series, single: bool, buckets: int = 64) -> Array:
    """How many of the highest orders are negligible for |ρ| ≤ b/buckets, b = 0…buckets."""
    order = np.arange(series.terms)
    goal = 1e-8 if single else 1e-17
    counts = []
    for correlation in np.linspace(0, 1, buckets + 1):
        weight = order * series.squares[: series.terms] * correlation ** np.maximum(order - 1, 0)
        remaining = np.cumsum(weight[::-1])[::-1]
        # the first orders set the scale: Ġ ~ a_1² + …
        needed = max(int(np.count_nonzero(remaining > goal * remaining[0])), 8)
        counts.append(max(series.terms - needed, 0))
    return np.array(counts)


def _hermite(
    recursion: Recursion,
    samples: tuple[Samples, Samples],
    levels: Sequence[Levels],
    found: Dual,
    kinds: tuple[str, ...],
    added: float,
) -> Plan:
    model, codes = recursion.layers[0], np.array(kind_codes(kinds))
    series = found.series
    assert series is not None
    dtype = samples[0].rows.dtype
    odd = model.activation.odd and float(model.activation(0.0)) == 0.0
    tables, rows = [], []
    for sample, level, table in zip(samples, levels, (found.tables[0], found.tables[-1]), strict=True):
        if odd:  # highest order first and an even number of terms: odd orders sit at even positions
            table = table[::2]
            table = np.concatenate([np.zeros((-len(table) % 4, table.shape[1])), table])
        root = np.sqrt(level.variance[0])
        inverse = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
        tables.append(np.ascontiguousarray(table, dtype=dtype))
        rows.append(np.stack([sample.factor, inverse, root]).astype(dtype))
    tolerance = 4e-7 if dtype == np.float32 else 2e-15
    single = dtype == np.float32
    numbers = np.array([model.recurrent, model.input, model.bias])
    # error of the drive, relative to √(q_i q_j), from the cosine's rounding and the variances' residual
    lengths = np.concatenate([s.factor * s.norm for s in samples])
    variances = np.concatenate([level.variance[0] for level in levels])
    share = float(
        np.max(np.divide(model.input * lengths**2, variances, where=variances > 0, out=np.zeros_like(lengths)))
    )
    known = max(level.residual for level in levels) + 2 * share * _rounding(samples[0])
    known += float(np.finfo(dtype).eps)
    padding = len(tables[0]) - series.terms // (1 + odd)
    skip = (_skippable(series, single) // (1 + odd) + padding) // 4 * 4
    arguments = (
        *_sides(*rows), *_sides(*tables), skip, odd, numbers.astype(dtype), codes, tolerance, series.reach
    )  # fmt: skip
    constants = found.constants.copy()
    constants[1] = -1.0  # reach: never the series
    chain = Chain(
        SINGLE, numbers[None], np.array([found.type]), constants[None], np.array([found.limits]), np.array([False]),
        max(level.error for level in levels) + 4 * EPSILON,
    )  # fmt: skip
    first, last = (
        signals(recursion, sample, level, kinds, np.zeros((1, 1, len(sample))))
        for sample, level in zip(samples, levels, strict=True)
    )

    def summarise(results: list[Any]) -> Summary:
        reports = [r[0] for r in results]
        residual, nearest, steepest, most = (max(r[k] for r in reports) for k in range(4))
        gain = 1 / max(1 - model.recurrent * steepest, EPSILON)
        value, slope = series.truncation(max(nearest, 0.0))
        # of Λ relative to √(q_i q_j), then of Ġ relative to √(Ġ_ii Ġ_jj)
        covariance = gain * (known + residual + series.error + value)
        slope += found.limits[1] * covariance + series.error + 16 * EPSILON
        error = max(series.order, 1.0) * covariance + (
            gain * slope if any(Kind.of(kind).is_tangent for kind in kinds) else 0.0
        )
        if nearest < 0:  # no pair was left to the series
            error = 0.0
        error = added + max(error, *(r[1] for r in results))
        return Summary(residual, error, iterations=most)

    rest = Plan(
        "integrals",
        integrated_pass,
        _layered(*samples, chain, first, last, codes),
        lambda results: Summary(0.0, max(results)),
    )
    return Plan("hermite newton", hermite_pass, arguments, summarise, degree=series.terms, rest=rest)
