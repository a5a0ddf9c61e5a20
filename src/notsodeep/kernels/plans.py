"""Which pass computes a kernel: one plan per case, each with its arrays, its pass and its stated error."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from notsodeep.kernels.arc import Arc
from notsodeep.kernels.kinds import kind_codes
from notsodeep.kernels.layers import EXPLICIT, FINITE, IMPLICIT, SERIES, layered_pass, layered_points
from notsodeep.kernels.passes import arc_pass, hermite_pass, polynomial_pass
from notsodeep.kernels.polynomial import Polynomial, Variable, fit
from notsodeep.kernels.samples import Levels, Samples, deq_levels, explicit_levels
from notsodeep.kernels.tables import Dual, dual
from notsodeep.models import DEQ, Explicit

__all__ = ["Plan", "choose"]

Array: TypeAlias = NDArray[Any]


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
    values: Array
    axis: int = -1

    def part(self, spans: tuple[slice, slice]) -> Array:
        span = spans[self.side]
        return np.ascontiguousarray(self.values[span] if self.axis == 0 else self.values[..., span])


def _sides(left: Array, right: Array, *, axis: int = -1) -> tuple[PerSample, PerSample]:
    return PerSample(0, left, axis), PerSample(1, right, axis)


@dataclass(frozen=True)
class Plan:
    """A pass with its arguments between `out` and the tile's ranges, and how to read what it returns.

    Arrays with an entry per sample are marked (:class:`PerSample`): a plan made for all samples serves any part.
    """

    method: str
    function: Any
    arguments: tuple[Any, ...]
    summarise: Callable[[list[Any]], Summary]
    variable: str = ""
    degree: int = 0

    def over(self, rows: slice, columns: slice) -> Callable[[Array, int, int, int, int, bool], Any]:
        """Return the pass for a rectangle; its tiles are counted from the rectangle's corner."""
        arguments = self.bound(rows, columns)
        return lambda out, *tile: self.function(out, *arguments, *tile)

    def bound(self, rows: slice, columns: slice) -> tuple[Any, ...]:
        """Return the arguments with what belongs to other samples cut off."""
        return tuple(a.part((rows, columns)) if isinstance(a, PerSample) else a for a in self.arguments)

    def compile(self, out: Array) -> float:
        """Compile (or load) the pass for these arguments; return the seconds it took."""
        began = time.perf_counter()
        arguments = self.bound(slice(0, 1), slice(0, 1))
        self.function.compile(tuple(numba.typeof(a) for a in (out, *arguments, 0, 0, 0, 0, True)))
        return time.perf_counter() - began


def choose(
    model: DEQ | Explicit,
    left: Samples,
    right: Samples,
    levels: Sequence[Levels],
    kinds: tuple[str, ...],
    depth: int | None,
) -> Plan:
    """Return the fastest plan that is accurate for this model and these samples."""
    if isinstance(model, DEQ) and depth is None and model.activation.shape.homogeneous:
        return _homogeneous(model, left, right, levels, kinds)
    return _cosine(model, left, right, levels, kinds, depth) or _general(model, left, right, levels, kinds, depth)


# --- one univariate function ------------------------------------------------------------


def _rounding(left: Samples) -> float:
    """A typical error of a computed cosine."""
    return float(np.finfo(left.rows.dtype).eps) * (4 + math.sqrt(left.rows.shape[1]) / 8)


def _cut(left: Samples, kinds: tuple[str, ...]) -> float:
    """Gap 1 − t below which differences are used: tangent kernels go like √(1 − t) there."""
    if all(kind in ("ck", "nngp") for kind in kinds):
        return -1.0
    return 4e-3 if left.rows.dtype == np.float32 else 1e-4


def _homogeneous(model: DEQ, left: Samples, right: Samples, levels: Sequence[Levels], kinds: tuple[str, ...]) -> Plan:
    """φ positively homogeneous up to a constant shift: the angle solves one equation for all pairs."""
    arc, shift = Arc.of(model.activation, model.recurrent), model.activation.shift
    dtype = left.rows.dtype
    turned = bool(shift and model.recurrent)  # then t is not the cosine of the drives
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
    if turned:  # bound t from below by what the data allows
        reach = [float(np.max(r[0] * s.norm, initial=0.0)) for r, s in zip(rows, (left, right), strict=True)]
        lowest = -reach[0] * reach[1] + min(0.0, float(rows[0][2].min() + rows[1][2].min()))
        largest = min(arc.largest, math.sqrt(max(1 - lowest, 1.0)))
    cut = _cut(left, kinds)
    common = (
        *_sides(left.exact, right.exact, axis=0), *_sides(*(array.astype(dtype) for array in rows)), *_sides(*exact),
        arc.rest if turned else 0.0, cut,
    )  # fmt: skip
    polynomial = _arc_polynomial(
        arc, round(largest * 64 + 0.5) / 64 if turned else largest, kinds, bool(shift), dtype.name
    )
    level_error = max(level.error for level in levels)

    def values(u: Array) -> Array:
        theta = arc.angle(u)
        return np.stack([arc.kernel(kind, theta) for kind in kinds])

    residual = arc.residual(np.linspace(0, largest, 400))
    gain = 1 / (1 - model.recurrent * arc.power)
    error = level_error + gain * residual + _sensitivity(values, cut, _rounding(left), largest, opposite=not turned)
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

    def values(u: Array) -> Array:
        theta = arc.angle(u)
        found = [arc.kernel(kind, theta) for kind in kinds]
        if shifted and "ntk_frozen_input" in kinds:  # row max(len(kinds), 2) of the coefficients
            found += [arc.gain(theta)] * (1 + (len(kinds) < 2))
        return np.stack(found)

    return fit(values, largest, arc.variables(), dtype)


def _sensitivity(
    values: Callable[[Array], Array], cut: float, rounding: float, largest: float, *, opposite: bool
) -> float:
    """Effect of a rounding error in 1 − t, relative to the value at t = 1.

    At the least gap that is not recomputed from differences, and at the other end, where nearly opposite rows are
    recomputed too when t is a cosine (`opposite`).
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
    )


def _cosine(
    model: DEQ | Explicit,
    left: Samples,
    right: Samples,
    levels: Sequence[Levels],
    kinds: tuple[str, ...],
    depth: int | None,
) -> Plan | None:
    """Samples on one sphere, or a network homogeneous throughout: a function of the cosine, or None."""
    lengths = [samples.factor * samples.norm for samples in (left, right)]
    low, high = min(x.min() for x in lengths), max(x.max() for x in lengths)
    activations = (model.activation,) if isinstance(model, DEQ) else model.activations
    homogeneous = all(phi.homogeneous for phi in activations) and not (isinstance(model, DEQ) and model.bias)
    spread = (high - low) / high if high > 0 else math.inf
    equal = spread <= 8 * max(float(np.finfo(samples.exact.dtype).eps) for samples in (left, right))
    if not (homogeneous or equal) or high == 0:
        return None
    dtype = left.rows.dtype
    unit = 1.0 if homogeneous else float(np.mean(lengths[0]))
    function, cancelled = _cosine_function(model, unit, kinds, depth)
    smooth = all(not phi.kinks for phi in activations)
    variables = [Variable("t")] if smooth else [Variable("u"), Variable("above", math.sqrt(2))]
    polynomial = fit(lambda u: function(u)[0], math.sqrt(2), variables, dtype)
    if polynomial is None:
        return None
    rows, exact = [], []
    for samples, length in zip((left, right), lengths, strict=True):
        a = np.divide(1, samples.norm, out=np.zeros_like(length), where=samples.norm > 0)
        zero = np.zeros_like(a)
        radius = length if homogeneous else np.ones_like(a)
        rows.append(np.stack([a, zero, zero, radius, zero]).astype(dtype))
        exact.append(np.stack([a, zero, radius]))
    cut = -1.0 if smooth else _cut(left, kinds)
    residual = function(np.linspace(0, math.sqrt(2), 200))[1]
    sensitivity = _sensitivity(lambda u: function(u)[0], cut, _rounding(left), math.sqrt(2), opposite=cut > 0)
    error = max(level.error for level in levels) + cancelled + sensitivity
    common = (*_sides(left.exact, right.exact, axis=0), *_sides(*rows), *_sides(*exact), 0.0, cut)
    modes = np.zeros(len(kinds), dtype=np.int64)
    return _polynomial_plan(
        polynomial, common, modes, 0.0, math.sqrt(2), residual, error + (0 if homogeneous else spread)
    )


def _cosine_function(
    model: DEQ | Explicit, length: float, kinds: tuple[str, ...], depth: int | None
) -> tuple[Callable[[Array], tuple[Array, float]], float]:
    """Return u = √(1 − cos) ↦ kernels of two samples of this length, with the worst residual; and its rounding."""
    sample = Samples.of(np.array([[length]]), np.dtype(np.float64))
    network = Network.of(model, (sample,), (network_levels(model, sample, depth),), depth)
    codes = np.array(kind_codes(kinds))

    def values(u: Array) -> tuple[Array, float]:
        gap = np.asarray(u, dtype=np.float64) ** 2
        out = np.empty((codes.size, gap.size))
        residual = layered_points(
            *network.shared, *network.groups[0], codes, length**2 * (1 - gap), length**2 * gap, out
        )
        return out, float(residual)

    return values, max(d.rounding(1.0) for d in network.duals)


# --- pair by pair -----------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """The arrays of :mod:`notsodeep.kernels.layers` for a model and one or two groups of samples.

    Attributes
    ----------
    shared : tuple
        Mode; σ_a², σ_b², σ_0²; type of each level; constants of each level.
    groups : tuple of (variances, powers, tables)
        One per group, shapes (levels, n), (levels, n), (levels, height, n).
    duals : tuple of Dual
    """

    shared: tuple[Any, ...]
    groups: tuple[tuple[Array, Array, Array], ...]
    duals: tuple[Dual, ...]

    @staticmethod
    def of(model: DEQ | Explicit, samples: Sequence[Samples], levels: Sequence[Levels], depth: int | None) -> Network:
        single = samples[0].rows.dtype == np.float32
        count = len(levels[0].variance)
        if isinstance(model, DEQ):
            mode = IMPLICIT if depth is None else FINITE
            numbers = np.array([model.recurrent, model.input, model.bias])
            # one φ: its levels share one tabulation
            shared = dual(model.activation, *(v for level in levels for v in level.variance), single=single)
            duals = tuple(replace(shared, tables=shared.tables[k::count]) for k in range(count))
        else:
            mode, numbers = EXPLICIT, np.array([0.0, 1.0, 0.0])
            duals = tuple(
                dual(phi, *(level.variance[k] for level in levels), single=single)
                for k, phi in enumerate(model.activations)
            )
        width = max(d.constants.size for d in duals)
        constants = np.stack([np.pad(d.constants, (0, width - d.constants.size)) for d in duals])
        height = max(len(d.tables[0]) for d in duals)
        groups = []
        for g, (sample, level) in enumerate(zip(samples, levels, strict=True)):
            tables = np.zeros((count, height, len(sample)))
            for k, d in enumerate(duals):
                tables[k, : len(d.tables[g])] = d.tables[g]
            variances = level.variance
            if mode == IMPLICIT:  # row 1 carries ‖x‖ for the drive
                variances = np.concatenate([variances, (sample.factor * sample.norm)[None]])
            groups.append((variances, level.power, tables))
        return Network((mode, numbers, np.array([d.type for d in duals]), constants), tuple(groups), duals)


def network_levels(model: DEQ | Explicit, samples: Samples, depth: int | None) -> Levels:
    """Variances of the samples along the model."""
    return deq_levels(model, samples, depth) if isinstance(model, DEQ) else explicit_levels(model, samples)


def _general(
    model: DEQ | Explicit,
    left: Samples,
    right: Samples,
    levels: Sequence[Levels],
    kinds: tuple[str, ...],
    depth: int | None,
) -> Plan:
    samples = (left,) if left is right else (left, right)
    codes = np.array(kind_codes(kinds))
    level_error = max(level.error for level in levels)
    if isinstance(model, DEQ) and depth is None:
        found = dual(
            model.activation,
            *(levels[g].variance[0] for g in range(len(samples))),
            single=left.rows.dtype == np.float32,
        )
        if found.type == SERIES:
            return _hermite(model, samples, levels, found, codes, level_error)
    network = Network.of(model, samples, levels[: len(samples)], depth)
    first, last = network.groups[0], network.groups[-1]
    lengths = [s.factor * s.norm for s in (samples[0], samples[-1])]
    cut = 1e-2 if left.rows.dtype == np.float32 else 1e-4
    arguments = (
        *_sides(left.exact, right.exact, axis=0), *_sides(left.factor, right.factor), *_sides(*lengths), cut,
        *network.shared, *(PerSample(0, a) for a in first), *(PerSample(1, a) for a in last), codes,
    )  # fmt: skip
    duals = [replace(d, tables=()) for d in network.duals]  # the plan's arguments hold them
    error = level_error + max(d.error for d in duals) + 1e2 * _rounding(left)
    kinked = any(d.type != SERIES for d in duals) and codes.max() > 1

    def summarise(results: list[Any]) -> Summary:
        residual, nearest, opposite = (max(r[k] for r in results) for k in range(3))
        total = error + max(_truncation(d, nearest) + d.rounding(nearest) for d in duals)
        if kinked:  # slopes go like √(1 + ρ) for nearly opposite rows, whose 1 + ρ is only known to rounding
            total += _rounding(left) / math.sqrt(max(1 - opposite, _rounding(left)))
        return Summary(residual, total, recomputed=sum(r[3] for r in results))

    return Plan("layer by layer", layered_pass, arguments, summarise, degree=max(d.terms for d in duals))


def _skippable(found: Dual, single: bool, buckets: int = 64) -> Array:
    """How many of the highest orders change nothing while |ρ| ≤ b/buckets, for b = 0…buckets."""
    assert found.tail is not None
    order = np.arange(found.terms)
    goal = 1e-8 if single else 1e-17
    counts = []
    for correlation in np.linspace(0, 1, buckets + 1):
        weight = order * found.tail[: found.terms] * correlation ** np.maximum(order - 1, 0)
        remaining = np.cumsum(weight[::-1])[::-1]
        # the first orders decide the scale: Ġ ~ a_1² + …
        needed = max(int(np.count_nonzero(remaining > goal * remaining[0])), 8)
        counts.append(max(found.terms - needed, 0))
    return np.array(counts)


def _truncation(found: Dual, correlation: float) -> float:
    """Relative error of Ġ from a cut Hermite series at |ρ|; beyond the computed orders by extrapolation."""
    if found.tail is None:
        return 0.0
    order = np.arange(found.tail.size)
    weight = order * found.tail * correlation ** np.maximum(order - 1, 0)
    beyond = weight[-16:].mean() * found.tail.size if found.terms >= found.tail.size else 0.0  # slow algebraic tails
    return float((weight[found.terms :].sum() + beyond) / max(weight.sum(), 1e-300))


def _hermite(
    model: DEQ, samples: Sequence[Samples], levels: Sequence[Levels], found: Dual, codes: Array, level_error: float
) -> Plan:
    dtype = samples[0].rows.dtype
    odd = model.activation.odd and float(model.activation(0.0)) == 0.0
    tables, rows = [], []
    for sample, level, table in zip(samples, levels, found.tables, strict=False):
        if odd:  # highest order first and an even number of terms: odd orders sit at even positions
            table = table[::2]
            table = np.concatenate([np.zeros((-len(table) % 4, table.shape[1])), table])
        root = np.sqrt(level.variance[0])
        inverse = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
        tables.append(np.ascontiguousarray(table, dtype=dtype))
        rows.append(np.stack([sample.factor, inverse, root]).astype(dtype))
    tolerance = 4e-7 if dtype == np.float32 else 2e-15
    numbers = np.array([model.recurrent, model.input, model.bias], dtype)
    padding = len(tables[0]) - found.terms // (1 + odd)
    skip = (_skippable(found, dtype == np.float32) // (1 + odd) + padding) // 4 * 4
    arguments = (*_sides(rows[0], rows[-1]), *_sides(tables[0], tables[-1]), skip, odd, numbers, codes, tolerance)

    def summarise(results: list[Any]) -> Summary:
        residual, nearest = max(r[0] for r in results), max(r[1] for r in results)
        gain = 1 / (1 - model.recurrent * max(float(level.slope.max()) for level in levels))
        error = level_error + found.error + _truncation(found, nearest) + gain * (residual + 8 * _rounding(samples[0]))
        return Summary(residual, error, iterations=max(r[2] for r in results))

    return Plan("hermite newton", hermite_pass, arguments, summarise, degree=found.terms)
