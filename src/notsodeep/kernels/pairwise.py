"""Plans that solve every pair of samples: by Hermite series on row slices, or layer by layer with error bounds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.kernels.duals import EPSILON, SERIES
from notsodeep.kernels.hermite import Equation, Expansion, hermite_pass, integrated_pass
from notsodeep.kernels.layers import LOOP, OPEN, SINGLE, Chain, Signals, layered_pass
from notsodeep.kernels.plans import Plan, Summary, sides
from notsodeep.kernels.samples import Levels, Samples, exact_diagonal
from notsodeep.kernels.tables import Dual, Series, dual
from notsodeep.kinds import Kind, kind_codes
from notsodeep.recursion import Recursion

__all__ = ["Tabulated", "pairwise_plan", "recomputed_below"]

Array: TypeAlias = NDArray[Any]

_USEFUL = 5e-13  # error of a series on row slices above which a closed form, entry by entry, is preferred


@dataclass(frozen=True)
class Tabulated:
    """The arguments of :mod:`notsodeep.kernels.layers` for a recursion and one or two groups of samples."""

    chain: Chain
    groups: tuple[Signals, ...]
    duals: tuple[Dual, ...]

    @staticmethod
    def of(
        recursion: Recursion, samples: Sequence[Samples], levels: Sequence[Levels], kinds: tuple[str, ...]
    ) -> Tabulated:
        single = samples[0].rows.dtype == np.float32
        layers = recursion.layers
        duals: list[Dual] = []
        for phi, group in itertools.groupby(range(len(layers)), lambda k: layers[k].activation):
            alike = list(group)  # neighbours with one φ share one tabulation
            found = dual(phi, *(level.variance[k] for level in levels for k in alike), single=single)
            duals += [replace(found, tables=found.tables[n :: len(alike)]) for n in range(len(alike))]
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
    if (only := recursion.equilibrium) is not None:
        found = dual(
            only.activation,
            *(levels[g].variance[0] for g in range(len(samples))),
            single=left.rows.dtype == np.float32,
            on_slices=True,
        )
        if found.type == SERIES and (plan := _hermite(recursion, (left, right), levels, found, kinds, added)):
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


def recomputed_below(left: Samples) -> tuple[float, float]:
    """The distance from ±1 below which a cosine is recomputed from differences, and its error elsewhere."""
    return 1e-2 if left.rows.dtype == np.float32 else 1e-4, left.rounding


def _layered(left: Samples, right: Samples, chain: Chain, first: Signals, last: Signals, codes: Array) -> Any:
    """Arguments of `layered_pass`."""
    return (*sides(left.exact, right.exact, axis=0), chain, *sides(first, last), codes, *recomputed_below(left))


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
) -> Plan | None:
    """By series on row slices; None where a closed form, entry by entry, would lose far fewer digits."""
    model, codes = recursion.layers[0], np.array(kind_codes(kinds))
    series = found.series
    assert series is not None
    dtype = samples[0].rows.dtype
    odd = model.activation.odd and float(model.activation(0.0)) == 0.0
    expansions = []
    for sample, level, table in zip(samples, levels, (found.tables[0], found.tables[-1]), strict=True):
        if odd:  # highest order first and an even number of terms: odd orders sit at even positions
            table = table[::2]
            table = np.concatenate([np.zeros((-len(table) % 4, table.shape[1])), table])
        root = np.sqrt(level.variance[0])
        inverse = np.divide(1, root, out=np.zeros_like(root), where=root > 0)
        numbers = (sample.factor, inverse, root, table)
        expansions.append(Expansion(*(np.ascontiguousarray(array, dtype=dtype) for array in numbers)))
    tolerance = 4e-7 if dtype == np.float32 else 2e-15
    single = dtype == np.float32
    variances = np.array([[model.recurrent, model.input, model.bias]])
    # error of the drive, relative to √(q_i q_j), from the cosine's rounding and the variances' residual
    lengths = np.concatenate([s.factor * s.norm for s in samples])
    total = np.concatenate([level.variance[0] for level in levels])
    share = float(np.max(np.divide(model.input * lengths**2, total, where=total > 0, out=np.zeros_like(lengths))))
    known = max(level.residual for level in levels) + 2 * share * samples[0].rounding
    known += float(np.finfo(dtype).eps)
    padding = len(expansions[0].terms) - series.terms // (1 + odd)
    skip = (_skippable(series, single) // (1 + odd) + padding) // 4 * 4
    equation = Equation(
        dtype.type(model.recurrent), dtype.type(model.input), dtype.type(model.bias), odd, skip, tolerance, series.reach
    )
    constants = found.constants.copy()
    constants[1] = -1.0  # reach: never the series
    chain = Chain(
        SINGLE, variances, np.array([found.type]), constants[None], np.array([found.limits]), np.array([False]),
        max(level.error for level in levels) + 4 * EPSILON,
    )  # fmt: skip
    first, last = (
        _signals(recursion, sample, level, kinds, np.zeros((1, 1, len(sample))))
        for sample, level in zip(samples, levels, strict=True)
    )

    def lost(residual: float, nearest: float, steepest: float) -> float:
        """Error of the kernels while |ρ| ≤ `nearest` and Ġ ≤ `steepest`."""
        gain = 1 / max(1 - model.recurrent * steepest, EPSILON)
        value, slope = series.truncation(nearest)
        # of Λ relative to √(q_i q_j), then of Ġ relative to √(Ġ_ii Ġ_jj)
        covariance = gain * (known + residual + series.error + value)
        slope += found.limits[1] * covariance + series.error + 16 * EPSILON
        tangent = any(Kind.of(kind).is_tangent for kind in kinds)
        return max(series.order, 1.0) * covariance + (gain * slope if tangent else 0.0)

    if not single and found.replaceable and lost(0.0, 1.0, max(float(level.slope.max()) for level in levels)) > _USEFUL:
        return None

    def summarise(results: list[Any]) -> Summary:
        reports = [r[0] for r in results]
        residual, nearest, steepest, most = (max(r[k] for r in reports) for k in range(4))
        error = lost(residual, nearest, steepest) if nearest >= 0 else 0.0  # < 0: no pair was left to the series
        return Summary(residual, added + max(error, *(r[1] for r in results)), iterations=most)

    rest = Plan(
        "integrals",
        integrated_pass,
        _layered(*samples, chain, first, last, codes),
        lambda results: Summary(0.0, max(results)),
    )
    return Plan(
        "hermite newton",
        hermite_pass,
        (*sides(*expansions), equation, codes),
        summarise,
        degree=series.terms,
        rest=rest,
    )
