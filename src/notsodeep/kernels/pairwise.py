"""Plans that solve every pair of samples: by Hermite series on row slices, or layer by layer with error bounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.kernels.duals import EPSILON, SERIES
from notsodeep.kernels.forward import Stack, Stages, forward_pass
from notsodeep.kernels.hermite import (
    BUCKETS,
    Equation,
    Expansion,
    hermite_pass,
    largest_squares,
    remaining_pass,
    steepness_of,
)
from notsodeep.kernels.layers import LOOP, OPEN, SINGLE, Chain, Signals, layered_pass
from notsodeep.kernels.plans import Plan, Summary, sides
from notsodeep.kernels.samples import Levels, Samples, exact_diagonal
from notsodeep.kernels.tables import Dual, Series, dual, on_slices
from notsodeep.kinds import Kind, kind_codes
from notsodeep.recursion import Recursion

__all__ = ["Tabulated", "pairwise_plan", "recomputed_below"]

Array: TypeAlias = NDArray[Any]

_TINY = {"float32": 1e-36, "float64": 1e-300}  # variances below: 1/√(q_i q_j) could overflow on row slices
# error of series on row slices above which pairs are treated one by one, which takes long for many pairs
_ACCEPTED, _ACCEPTED_FOR_MANY, _ACCEPTED_SINGLE = 5e-13, 1e-10, 1e-4
# the largest norm of ordinary rows, and their largest error, that of the diagonal included
_ORDINARY, _ACCEPTED_ORDINARY = 3.1, 1e-12
_MANY, _MANY_ORDINARY = 2048, 20_000  # pairs
_LARGEST = 2.0  # error of a series: |K_ij| ≤ √(K_ii K_jj), as computed and in truth
_COARSE = 0.05  # error of ρ from which few orders suffice


@dataclass(frozen=True)
class Tabulated:
    """The arguments of :mod:`notsodeep.kernels.layers` for a recursion and one or two groups of samples."""

    chain: Chain
    groups: tuple[Signals, ...]
    duals: tuple[Dual, ...]

    @staticmethod
    def of(
        recursion: Recursion, samples: Sequence[Samples], levels: Sequence[Levels], kinds: tuple[str, ...],
        duals: Sequence[Dual] = (),
    ) -> Tabulated:  # fmt: skip
        single = samples[0].rows.dtype == np.float32
        layers = recursion.layers
        duals = duals or [found for (found,) in _of_each(recursion, levels, lambda *q: (dual(*q, single=single),))]
        width = max(d.constants.size for d in duals)
        height = max(len(d.tables[0]) for d in duals)
        end = OPEN if not recursion.closed else SINGLE if recursion.equilibrium else LOOP
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
            groups.append(_signals(recursion, sample, level, kinds, tables))
        return Tabulated(chain, tuple(groups), tuple(duals))


def _of_each(
    recursion: Recursion, levels: Sequence[Levels], tabulated: Callable[..., tuple[Dual, ...] | None]
) -> list[tuple[Dual, ...]]:
    """What `tabulated` gives for each level; none if it gives nothing for one of them."""
    layers, duals = recursion.layers, []
    for phi, group in itertools.groupby(range(len(layers)), lambda k: layers[k].activation):
        alike = list(group)  # neighbours with one φ share one tabulation
        found = tabulated(phi, *(level.variance[k] for level in levels for k in alike))
        if found is None:
            return []
        size = len(alike)
        duals += [
            tuple(replace(d, tables=d.tables[n::size], bends=d.bends[n::size]) for d in found) for n in range(size)
        ]
    return duals


def _signals(recursion: Recursion, sample: Samples, level: Levels, kinds: tuple[str, ...], tables: Array) -> Signals:
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


def pairwise_plan(
    recursion: Recursion, left: Samples, right: Samples, levels: Sequence[Levels], kinds: tuple[str, ...]
) -> Plan:
    """The plan for any network and any samples."""
    samples = (left,) if left is right else (left, right)
    codes = np.array(kind_codes(kinds))
    added = _diagonal_error(recursion, levels, kinds, left.rows.dtype)
    tiny = _TINY[left.rows.dtype.name]
    slices = not any(bool(np.any((level.variance > 0) & (level.variance < tiny))) for level in levels)
    if slices and (only := recursion.equilibrium) is not None:
        variances = [levels[g].variance[0] for g in range(len(samples))]
        found = on_slices(only.activation, *variances, single=left.rows.dtype == np.float32)
        if found is not None and (plan := _hermite(recursion, (left, right), levels, *found, kinds, added)):
            return plan
    if slices and not recursion.closed and not any(layer.normalize for layer in recursion.layers):
        tabulated = partial(on_slices, single=left.rows.dtype == np.float32, bounded=True)
        both = _of_each(recursion, levels[: len(samples)], tabulated)
        if both and (plan := _forward(recursion, (left, right), levels, both, kinds, added)):
            return plan
    network = Tabulated.of(recursion, samples, levels[: len(samples)], kinds)
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


def recomputed_below(left: Samples, right: Samples) -> tuple[float, float]:
    """The distance from ±1 below which a cosine is recomputed from differences, and its error elsewhere."""
    return 1e-2 if left.rows.dtype == np.float32 else 1e-4, max(left.rounding, right.rounding)


def _layered(left: Samples, right: Samples, chain: Chain, first: Signals, last: Signals, codes: Array) -> Any:
    """Arguments of `layered_pass`."""
    return (*sides(left.exact, right.exact, axis=0), chain, *sides(first, last), codes, *recomputed_below(left, right))


def _shares(table: Array, order: Array, slope: Array) -> Array:
    """The largest k a_k²/Σ k a_k² of any sample, for each order k: by Cauchy and Schwarz a bound for every pair."""
    size = np.divide(1, slope, out=np.zeros_like(slope), where=slope > 0)
    return np.asarray(order * largest_squares(table, size))


def _skippable(shares: Array, order: Array, goal: float) -> Array:
    """How many of the highest orders are negligible for |ρ| ≤ b/BUCKETS, b = 0…BUCKETS; `goal`: relative to Ġ."""
    counts = []
    for correlation in np.linspace(0, 1, BUCKETS + 1):
        remaining = np.cumsum(shares * correlation ** np.maximum(order - 1, 0))  # highest order first
        counts.append(int(np.count_nonzero(remaining <= goal)))
    return np.minimum(np.array(counts), order.size - 4) // 4 * 4


def _taylor_steps(shares: Array, order: Array, goal: float, least: float) -> Array:
    """The largest step δ for which ½ δ² d³G/dρ³ is below `goal`, relative to dG/dρ, for |ρ| ≤ b/BUCKETS."""
    third = (order - 1) * (order - 2) * shares / 2
    sums = [float(third @ correlation ** np.maximum(order - 3, 0)) for correlation in np.linspace(0, 1, BUCKETS + 1)]
    return np.maximum(np.sqrt(goal / np.maximum(sums, 1e-3)), least)


def _first_stages(shares: Array, order: Array, loop: float, near: Array) -> Array:
    """The stage of Newton after a guess with the four lowest orders, for |ρ| ≤ b/BUCKETS; loop: σ_a²Ġ at most."""
    left_out, power = shares[:-4], order[:-4]
    sizes = [
        loop / max(1 - loop, EPSILON) * float((left_out / power) @ correlation**power)
        for correlation in np.linspace(0, 1, BUCKETS + 1)
    ]
    return np.where(np.array(sizes) <= near, 2, np.where(np.array(sizes) <= _COARSE, 1, 0))


def _expansion(sample: Samples, variance: Array, table: Array, odd: bool) -> tuple[Expansion, Array]:
    """The arguments of one group of samples, and the order of each row of the table; highest order first."""
    order = np.arange(len(table))[::-1].astype(np.float64)
    if odd:
        table, order = table[::2], order[::2]  # an even number of terms: odd orders are at even positions
    missing = -len(table) % 4
    table = np.concatenate([np.zeros((missing, table.shape[1])), table])
    order = np.concatenate([np.full(missing, order[0]), order])
    dtype = sample.rows.dtype
    root = np.sqrt(variance)
    inverse = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
    numbers = (sample.factor, inverse, root, table)
    return Expansion(*(np.ascontiguousarray(array, dtype=dtype) for array in numbers)), order


def _hermite(
    recursion: Recursion,
    samples: tuple[Samples, Samples],
    levels: Sequence[Levels],
    found: Dual,
    beyond: Dual,
    kinds: tuple[str, ...],
    added: float,
) -> Plan | None:
    """By series on row slices; None where pair by pair far fewer digits are lost, at a cost that can be afforded."""
    model, codes = recursion.layers[0], np.array(kind_codes(kinds))
    series = _series_of(found)
    dtype = samples[0].rows.dtype
    single = dtype == np.float32
    odd = model.activation.odd and float(model.activation(0.0)) == 0.0
    expansions, order, shares = [], np.zeros(0), np.zeros(1)
    for sample, level, table in zip(samples, levels, found.tables, strict=False):  # one table if X is Y
        expansion, order = _expansion(sample, level.variance[0], table, odd)
        expansions.append(expansion)
        shares = np.maximum(shares, _shares(expansion.terms, order, level.variance[0] * level.slope[0]))
    rising = [np.ascontiguousarray(expansion.terms[::-1].T) for expansion in expansions]
    # error of the drive, relative to √(q_i q_j), from the cosine's rounding and the variances' residual
    lengths = np.concatenate([s.factor * s.norm for s in samples])
    total = np.concatenate([level.variance[0] for level in levels])
    share = np.divide(model.input * lengths**2, total, where=total > 0, out=np.zeros_like(lengths))
    known = max(level.residual for level in levels) + 2 * share * max(sample.rounding for sample in samples)
    unit = float(np.finfo(dtype).eps)
    known += 4 * unit if single else unit
    goals = (1e-2, 1e-4, 1e-8) if single else (1e-3, 1e-8, 1e-17)
    near = _taylor_steps(shares, order, *((3e-8, 2e-6) if single else (1e-16, 1e-14)))
    slopes = np.concatenate([level.slope[0] for level in levels])
    equation = Equation(
        dtype.type(model.recurrent),
        dtype.type(model.input),
        dtype.type(model.bias),
        odd,
        np.ascontiguousarray(order[::-1], dtype=dtype),
        np.stack([_skippable(shares, order, goal) for goal in goals]),
        _first_stages(shares, order, model.recurrent * float(slopes.max()), near),
        near.astype(dtype),
        series.reach,
    )
    rates, tangent = _Rates(levels, found), any(Kind.of(kind).is_tangent for kind in kinds)
    # 1/(1 − σ_a²Ġ) of a pair is at most the root of the product of those of its rows
    gains = 1 / np.maximum(1 - model.recurrent * slopes, EPSILON)

    def lost_with(gain: Any, residual: float, nearest: float) -> tuple[float, Array]:
        """Error of the kernels, and of Ġ for each sample, if no pair has a larger gain."""
        value, further = series.truncation(nearest)
        # of Λ relative to √(q_i q_j), then of Ġ relative to √(Ġ_ii Ġ_jj)
        covariance = gain * (known + residual + series.error + value)
        slope = further + rates.steepness(nearest) * covariance + series.error + max(16 * EPSILON, 4 * unit)
        return float(np.max(rates.growth * covariance + (gain * slope if tangent else 0.0))), slope

    def lost(residual: float, nearest: float, steepest: float) -> float:
        """Error of the kernels while |ρ| ≤ `nearest` and Ġ ≤ `steepest` as computed."""
        error, doubt = lost_with(gains, residual, nearest)
        most = 1 / max(1 - model.recurrent * (steepest + float(np.max(doubt * slopes))), EPSILON)
        return min(error, lost_with(most, residual, nearest)[0])

    # pair by pair, the loss is that of each pair: better with a closed form, and for few pairs if no order is missing
    integrable = beyond.type == SERIES and beyond.constants[2] >= 0
    few = len(samples[0]) * len(samples[1]) < _MANY and (integrable or series.truncation(1.0)[1] <= EPSILON)
    if (found.replaceable or few) and lost(0.0, series.reach, float(slopes.max())) > _accepted(samples, added):
        return None

    def summarise(results: list[Any]) -> Summary:
        reports = [r[0] for r in results]
        residual, nearest, steepest, most = (max(r[k] for r in reports) for k in range(4))
        error = lost(residual, nearest, steepest) if nearest >= 0 else 0.0  # < 0: no pair was left to the series
        return Summary(residual, added + max(min(error, _LARGEST), *(r[1] for r in results)), iterations=most)

    return Plan(
        "hermite newton",
        hermite_pass,
        (*sides(expansions[0], expansions[-1]), *sides(rising[0], rising[-1], axis=0), equation, codes),
        summarise,
        degree=series.terms,
        rest=_integrated(recursion, samples, levels, beyond, kinds),
    )


def _forward(
    recursion: Recursion,
    samples: tuple[Samples, Samples],
    levels: Sequence[Levels],
    both: Sequence[tuple[Dual, ...]],
    kinds: tuple[str, ...],
    added: float,
) -> Plan | None:
    """A network of finite depth, all levels by their series; `both`: the series and the other method of each level.

    None where pair by pair far fewer digits are lost.
    """
    dtype = samples[0].rows.dtype
    single, codes = dtype == np.float32, np.array(kind_codes(kinds))
    depth, several = len(both), samples[0] is not samples[1]
    odd = [layer.activation.odd and float(layer.activation(0.0)) == 0.0 for layer in recursion.layers]
    height = max(-(-found.terms // (4 * (1 + odd[k]))) * 4 for k, (found, _) in enumerate(both))
    tables = [np.zeros((depth, height, len(sample)), dtype) for sample in samples[: 1 + several]]
    inverses = [np.zeros((depth, len(sample)), dtype) for sample in samples[: 1 + several]]
    orders, skip = np.zeros((depth, height)), np.zeros((depth, BUCKETS + 1), np.int64)
    for k, (found, _) in enumerate(both):
        shares = np.zeros(1)
        for g in range(1 + several):
            level = levels[g]
            expansion, order = _expansion(samples[g], level.variance[k], found.tables[g], odd[k])
            tables[g][k, height - order.size :], inverses[g][k] = expansion.terms, expansion.inverse
            shares = np.maximum(shares, _shares(expansion.terms, order, level.variance[k] * level.slope[k]))
        orders[k, : order.size] = order[::-1]
        skip[k] = _skippable(shares, order, 1e-8 if single else 1e-17) + height - order.size
    stacks = [Stack(np.ascontiguousarray(samples[g].factor, dtype), inverses[g], tables[g]) for g in range(1 + several)]
    rising = [np.ascontiguousarray(table[:, ::-1].transpose(2, 0, 1)) for table in tables]
    stages = Stages(
        np.array([[layer.recurrent, layer.input, layer.bias] for layer in recursion.layers], dtype),
        np.array(odd),
        orders.astype(dtype),
        skip,
        np.array([_series_of(found).reach for found, _ in both]),
    )
    rates = [_Rates(levels, found, k) for k, (found, _) in enumerate(both)]
    passed = [np.zeros(1), *(_passed_on(recursion.layers[k].recurrent, levels, k) for k in range(1, depth))]
    network = Tabulated.of(
        recursion, samples[: 1 + several], levels[: 1 + several], kinds, [other for _, other in both]
    )
    arguments = _layered(*samples, network.chain, network.groups[0], network.groups[-1], codes)
    rounding = max(sample.rounding for sample in samples) + max(level.error for level in levels)

    def lost(nearest: Array) -> float:
        """Error of the kernels while |ρ| is at most `nearest` at each level."""
        power = tangent = frozen = np.zeros(1)  # errors of G, T and F, relative to √ of both diagonals; for each sample
        for k, (found, _) in enumerate(both):
            series = _series_of(found)
            noise = series.error + 4 * float(np.finfo(dtype).eps)
            value, beyond = series.truncation(float(nearest[k]))
            covariance = passed[k] * power + rounding + noise
            power = rates[k].growth * covariance + noise + value
            slope = beyond + rates[k].steepness(float(nearest[k])) * covariance + noise
            injected = np.maximum(covariance, tangent)
            tangent = 1.01 * (slope + injected)
            frozen = np.maximum(power, 1.01 * (slope + frozen))
        worst = {Kind.CK: power, Kind.NNGP: covariance, Kind.NTK_FROZEN_INPUT: frozen}
        worst[Kind.NTK] = np.maximum(power, tangent)
        return max(float(np.max(worst.get(Kind.of(kind), injected))) for kind in kinds)

    if lost(stages.reach) > _accepted(samples, added):
        return None

    def summarise(results: list[Any]) -> Summary:
        error = lost(np.max([r[0][0] for r in results], axis=0))
        return Summary(0.0, added + max(min(error, _LARGEST), *(r[1] for r in results)))

    return Plan(
        "hermite series",
        forward_pass,
        (*sides(stacks[0], stacks[-1]), *sides(rising[0], rising[-1], axis=0), stages, codes),
        summarise,
        degree=max(found.terms for found, _ in both),
        rest=Plan("layer by layer", remaining_pass, arguments, lambda results: Summary(0.0, max(results))),
    )


def _accepted(samples: tuple[Samples, Samples], added: float) -> float:
    """The largest error for which series on row slices are preferred to pairs one by one; `added`: of the diagonal."""
    if samples[0].rows.dtype == np.float32:
        return _ACCEPTED_SINGLE
    pairs = len(samples[0]) * len(samples[1])
    if pairs < _MANY:
        return _ACCEPTED
    ordinary = max(float((sample.factor * sample.norm).max()) for sample in samples) <= _ORDINARY
    if ordinary and pairs < _MANY_ORDINARY:
        return max(_ACCEPTED_ORDINARY - added, 0.6 * _ACCEPTED_ORDINARY)
    return _ACCEPTED_FOR_MANY


def _passed_on(recurrent: float, levels: Sequence[Levels], k: int) -> Array:
    """The share of the former level's output in the variance q = σ_a² E[φ²] + … of level k, for each sample."""
    shares = [
        np.divide(recurrent * level.power[k - 1], q, out=np.ones_like(q), where=q > 0)
        for level in levels
        for q in (level.variance[k],)
    ]
    return np.concatenate(shares)


def _series_of(found: Dual) -> Series:
    assert found.series is not None
    return found.series


class _Rates:
    """How fast G and Ġ of each sample with itself change with ρ, relatively; of a pair at most the geometric mean.

    Errors that are bounded by √(e_i e_j) for every pair stay so when they are added, or multiplied by such a rate:
    by Cauchy and Schwarz √(a_i a_j) + √(b_i b_j) ≤ √((a_i + b_i)(a_j + b_j)).
    """

    def __init__(self, levels: Sequence[Levels], found: Dual, k: int = 0) -> None:
        power, slope, variance = (
            np.concatenate([getattr(level, name)[k] for level in levels]) for name in ("power", "slope", "variance")
        )
        ratio = np.divide(variance * slope, power, out=np.ones_like(power), where=power > 0)
        self.growth, self._slope, self._found = np.maximum(ratio, 1.0), slope, found
        self._samples = len(levels)

    def steepness(self, nearest: float) -> Array:
        """The rate of Ġ while |ρ| is at most `nearest`."""
        if not self._found.bends:
            return self._orders
        bends = self._of_both(self._found.bends)  # kinks: Ġ changes with the angle at a limited rate
        return bends**2 / np.maximum(self._slope * math.sqrt(1 - max(nearest, 0.0) ** 2), 1e-300)

    @cached_property
    def _orders(self) -> Array:
        """Σ k² a_k² / Σ k a_k²."""
        return self._of_both([steepness_of(table) for table in self._found.tables])

    def _of_both(self, groups: Sequence[Array]) -> Array:
        """One array for rows and columns, which may be the same samples."""
        return np.concatenate([groups[0], groups[-1]]) if self._samples == 2 else groups[0]


def _integrated(
    recursion: Recursion,
    samples: tuple[Samples, Samples],
    levels: Sequence[Levels],
    found: Dual,
    kinds: tuple[str, ...],
) -> Plan:
    """The plan of the pairs beyond the reach of a series."""
    model, constants, tables = recursion.layers[0], found.constants.copy(), list(found.tables)
    if found.type == SERIES:
        constants[1] = -1.0  # reach: never the series
        tables = [np.zeros((1, len(sample))) for sample in samples]
    chain = Chain(
        SINGLE,
        np.array([[model.recurrent, model.input, model.bias]]),
        np.array([found.type]),
        constants[None],
        np.array([found.limits]),
        np.array([False]),
        max(level.error for level in levels) + 4 * EPSILON,
    )
    first, last = (
        _signals(recursion, sample, level, kinds, np.ascontiguousarray(table)[None])
        for sample, level, table in zip(samples, levels, (tables[0], tables[-1]), strict=True)
    )
    return Plan(
        "integrals",
        remaining_pass,
        _layered(*samples, chain, first, last, np.array(kind_codes(kinds))),
        lambda results: Summary(0.0, max(results)),
    )
