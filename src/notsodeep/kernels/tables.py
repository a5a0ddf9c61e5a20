"""Per-sample tables for the compiled passes: the dual of each activation and what it needs of each sample."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from notsodeep.activations import Activation, HermiteSeries, PiecewiseLinear, Smooth
from notsodeep.gaussian import hermite_coefficients, hermite_table, moments
from notsodeep.kernels.arc import Arc
from notsodeep.kernels.closed import COS, ERF, GAUSSIAN, GELU, SIN
from notsodeep.kernels.duals import ARC, EPSILON, NEAR, PIECES, SERIES
from notsodeep.kernels.pieces import MARGINS, ORDERS, add_kink
from notsodeep.kernels.smooth import SMOOTH
from notsodeep.kernels.tabulate import pointwise, tabulate

__all__ = ["Dual", "dual", "on_slices", "significant_terms"]

Array: TypeAlias = NDArray[Any]

_MAX_ENTRIES = 8_000_000  # of a table of Hermite coefficients
# variance above which a closed form, entry by entry, is faster than the long series: summed by entry, or on row slices
_LARGE, _LARGE_ON_SLICES = 4.0, 400.0
_TINY = 1e-200  # smallest variance of rows that are not zero, there
_LOSSY = (
    1e-12  # largest rounding of the terms of a piecewise-linear φ, relative to G, for which they are summed on slices
)
_RESOLVED = 1e-2  # smallest share of the terms' squares for which E[φ²] is summed from the orders kept
_STRIPS = 40.0  # largest ratio of signal to strip half-width of a smooth φ for which integrals are affordable
_CLOSED = {"erf": ERF, "sin": SIN, "cos": COS, "gaussian": GAUSSIAN, "gelu": GELU}


@dataclass(frozen=True)
class Dual:
    """One level: its type, its constants, and one table per group of samples.

    Attributes
    ----------
    limits : pair of float
        How fast Ġ can change: with the angle arccos ρ (kinks), and relatively with ρ (series).
    series : Series, optional
        For the type SERIES.
    bends : tuple of arrays
        For the series of a kinked φ: how fast Ġ changes with the angle for two samples is at most the product of their
        numbers; one array per group.
    """

    type: int
    constants: Array
    tables: tuple[Array, ...]
    limits: tuple[float, float]
    series: Series | None = None
    replaceable: bool = False  # by a closed form, which a call without `on_slices` would choose
    bends: tuple[Array, ...] = ()

    @property
    def terms(self) -> int:
        return self.series.terms if self.series else 0


@dataclass(frozen=True)
class Series:
    """A Hermite series Σ a_k(i) a_k(j) ρᵏ: how long it is and what it leaves out.

    Attributes
    ----------
    squares : array
        a_k² at the largest variance, for the orders kept and those computed beyond them.
    missing, missing_slope : float
        What the orders left out hold of Σ a_k² and of Σ k a_k² at the largest variance, relative to Σ a_k².
    order : float
        Σ k a_k² / Σ a_k² there: how fast G changes with ρ.
    error : float
        Of a coefficient, relative to √Σ a_k² at the worst sample.
    reach : float
        Largest |ρ| for which the series suffices; pairs beyond it are integrated where φ has a compiled form.
    """

    terms: int
    squares: Array
    missing: float
    missing_slope: float
    order: float
    error: float
    reach: float

    def truncation(self, correlation: float) -> tuple[float, float]:
        """Errors of G and of Ġ while |ρ| ≤ `correlation`, relative to their values at ρ = 1."""
        fading = correlation ** (self.terms - 1)
        return self.missing * fading, self.missing_slope / max(self.order, 1e-300) * fading


def dual(phi: Activation, *variances: Array, single: bool = False) -> Dual:
    """Choose the dual of φ and tabulate it for several groups of samples with variances q."""
    shape = phi.shape
    if isinstance(shape, PiecewiseLinear) and shape.homogeneous:
        return _arc(phi, shape, variances)
    if isinstance(shape, PiecewiseLinear):
        return _pieces(phi, shape, variances)
    if isinstance(shape, Smooth) and shape.name in _CLOSED and not _short(phi, variances, _LARGE):
        return _closed(phi, shape.name, variances)
    return _series(phi, variances, single)


def on_slices(
    phi: Activation, *variances: Array, single: bool = False, bounded: bool = False
) -> tuple[Dual, Dual] | None:
    """A series that is summed for many pairs at a time, and the dual of the pairs beyond its reach.

    `bounded` asks for a reach also where that dual is only the same series, pair by pair. None where every pair has to
    be treated by itself.
    """
    shape = phi.shape
    if isinstance(shape, PiecewiseLinear):
        return _piece_series(phi, shape, variances)
    if isinstance(shape, Smooth) and shape.name in _CLOSED:
        if not _short(phi, variances, _LARGE_ON_SLICES):
            return None
        found = _series(phi, variances, single, integrable=True)
        return replace(found, replaceable=not _short(phi, variances, _LARGE)), _closed(phi, shape.name, variances)
    found = _series(phi, variances, single, integrable=bounded)
    return found, found


def _short(phi: Activation, variances: tuple[Array, ...], limit: float) -> bool:
    return phi.stretch**2 * max(float(q.max()) for q in variances) <= limit


def _arc(phi: Activation, shape: PiecewiseLinear, variances: tuple[Array, ...]) -> Dual:
    arc, shift = Arc.of(phi, 0.0), phi.shift
    high, low = (phi.scale * phi.stretch * shape.slopes[k] for k in (-1, 0))
    constants = [arc.power, arc.bend, shift**2, high * low, (high + low) ** 2 / 2]
    constants.append(shift**2 * (arc.power - arc.mean**2))
    tables = tuple((-shift * arc.mean * np.sqrt(q))[None] for q in variances)
    return Dual(ARC, np.array(constants), tables, (arc.bend, 0.0))


def _closed(phi: Activation, name: str, variances: tuple[Array, ...]) -> Dual:
    constants = np.array([phi.scale, phi.stretch, phi.shift**2, phi.shift])
    tables = tuple(np.zeros((1, q.size)) for q in variances)
    if phi.shift:
        base = Activation(Smooth(name), phi.scale, phi.stretch)
        means = [[moments(base, math.sqrt(x)).mean if x else base(0.0) for x in q.tolist()] for q in variances]
        tables = tuple(-phi.shift * np.array([mean]) for mean in means)
    return Dual(_CLOSED[name], constants, tables, (0.0, 0.0))


def _piece_series(phi: Activation, shape: PiecewiseLinear, variances: tuple[Array, ...]) -> tuple[Dual, Dual] | None:
    """`on_slices` for a piecewise-linear φ: its Hermite series, cut where memory ends, and its closed form."""
    smallest = min(float(q[q > 0].min(initial=1.0)) for q in variances)
    terms = int(np.clip(_MAX_ENTRIES // sum(q.size for q in variances) // 4 * 4, 128, 512))
    whole, height = _pieces(phi, shape, variances, terms), 3 * len(shape.kinks)
    if smallest < _TINY or (lost := whole.constants[3 + height]) > _LOSSY:
        return None
    # what is left out: by Cauchy and Schwarz at most |ρ|ᵏ√(G_ii G_jj) of G and |ρ|ᵏ⁻¹√(Ġ_ii Ġ_jj) of Ġ, k = terms
    series = Series(terms, np.empty(0), 1.0, 1.0, 1.0, math.sqrt(lost * EPSILON), 1e-16 ** (1 / (terms - 1)))
    orders = tuple(table[height : height + terms] for table in whole.tables)
    bends = tuple(table[-1] for table in whole.tables)
    found = Dual(SERIES, np.empty(0), orders, whole.limits, series, replaceable=True, bends=bends)
    if shape.homogeneous:
        return found, _arc(phi, shape, variances)
    tables = tuple(np.concatenate([table[:height], table[-ORDERS - MARGINS :]]) for table in whole.tables)
    return found, replace(whole, tables=tables)


def _pieces(phi: Activation, shape: PiecewiseLinear, variances: tuple[Array, ...], orders: int = ORDERS) -> Dual:
    kinks = np.asarray(shape.kinks) / phi.stretch
    slopes = phi.scale * phi.stretch * np.asarray(shape.slopes)
    origin = int(np.searchsorted(kinks, 0.0))  # the piece that contains 0
    signs = np.where(np.arange(kinks.size) >= origin, 1.0, -1.0)
    distances = signs * kinks
    constants = np.concatenate([[-phi.shift, slopes[origin], kinks.size], distances, np.diff(slopes), signs])
    bends = np.abs(np.diff(slopes))
    tables, worst, steepest = [], 0.0, 0.0
    for q in variances:
        root = np.sqrt(q)
        table = np.zeros((3 * kinks.size + orders + MARGINS, q.size))
        falling = table[3 * kinks.size : -MARGINS]  # …, a_1, a_0
        falling[-1], falling[-2] = -phi.shift, slopes[origin] * root
        # terms of G and Ġ are at most of size m_i m_j; e^{−(h²+k²)/4} is above every bivariate density of h and k
        terms, slope_terms, fall = abs(phi.shift) + abs(slopes[origin]) * root, abs(slopes[origin]), np.zeros(q.size)
        for a, distance in enumerate(distances):
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                position = np.where(root > 0, distance / root, np.inf if distance else 0.0)
            position = np.minimum(position, 40.0)
            above = special.ndtr(-position)
            table[3 * a], table[3 * a + 1] = position, above
            density = root * np.exp(-(position**2) / 2) / math.sqrt(2 * math.pi)
            table[3 * a + 2] = density - distance * above
            bend, sign = constants[3 + kinks.size + a], signs[a]
            falling[-1] += bend * table[3 * a + 2]
            falling[-2] += bend * sign * root * above
            add_kink(falling, position, bend * density, sign)
            rounded = above * (1 + position**2 / 4)  # rounding of p changes e^{−p²/2} by p² times as much
            terms = terms + bends[a] * np.sqrt((q + distance**2) * rounded)
            slope_terms = slope_terms + bends[a] * np.sqrt(rounded)
            fall += bends[a] * np.exp(-(position**2) / 4)
        tables.append(table)
        power: Array = np.einsum("kn,kn->n", falling, falling)
        few = (power < _RESOLVED * terms**2) & (q > 0)  # kinks far outside: most of φ² is in the orders left out
        if few.any():
            found, _ = tabulate(
                pointwise(lambda x: np.log(max(moments(phi, math.sqrt(x)).power, 1e-300))), q[few], 1e-3
            )
            power[few] = np.exp(found[0])
        ratio = np.divide(terms, np.sqrt(power), out=np.zeros_like(q), where=power > 0)
        table[-3], table[-2], table[-1] = np.maximum(ratio, 1.0), slope_terms, fall / math.sqrt(2 * math.pi)
        worst, steepest = max(worst, float(table[-3].max())), max(steepest, float(table[-2].max()))
    # rounding of G where terms larger than it cancel, relative to √(G_ii G_jj), and of Ġ: of the worst pair
    bounds = [6 * EPSILON * worst**2, 6 * EPSILON * steepest**2, NEAR]
    constants = np.concatenate([constants, bounds, kinks, phi(kinks), slopes])
    return Dual(PIECES, constants, tuple(tables), (1.0, 0.0))


@lru_cache(maxsize=64)
def significant_terms(phi: Activation, variance: float, single: bool, most: int) -> tuple[int, Array]:
    """How many Hermite orders matter at this variance (at most `most`), and the squares a_k² computed on the way."""
    goal = 1e-9 if single else 1e-17
    count = min(128, most)
    while True:
        squares = hermite_coefficients(phi, math.sqrt(variance), count - 1) ** 2
        weight = np.arange(count) * squares  # Ġ sees k·a_k², G less
        remaining = np.cumsum(weight[::-1])[::-1]
        below = np.flatnonzero(remaining <= goal * remaining[0])
        # a tail that is small for an eighth of the orders has really ended; it does not just pass through zeros
        if below.size > count // 8:
            return int(below[0]), squares
        if count == most:
            return most, squares
        count = min(4 * count, most)


def _extent(phi: Activation, variances: tuple[Array, ...]) -> tuple[float, int]:
    """The largest variance, and the most terms that a table may have."""
    largest, size = max(float(q.max()) for q in variances), sum(q.size for q in variances)
    # kinks make the tail algebraic, where more terms help little; otherwise memory is the limit
    algebraic = phi.kinks or isinstance(phi.shape, HermiteSeries)  # which is straight beyond a radius
    return largest or 1.0, 512 if algebraic else int(np.clip(_MAX_ENTRIES // size // 4 * 4, 512, 4096))


def _series(phi: Activation, variances: tuple[Array, ...], single: bool, *, integrable: bool = False) -> Dual:
    everything = np.concatenate(variances)
    largest, most = _extent(phi, variances)
    terms, tail = significant_terms(phi, largest, single, most)
    terms = 4 * -(-max(terms, 4) // 4)

    through_zero = float(phi(0.0)) == 0.0
    # where φ(0) = 0 the coefficients vanish with √q, and so must their error
    scale = np.sqrt(everything) if through_zero else np.ones_like(everything)

    def coefficients(points: Array) -> Array:
        found = np.zeros((terms, points.size))
        found[0] = phi(0.0)  # a row of zeros: u = 0
        if points.any():
            roots = np.sqrt(points[points > 0])
            found[:, points > 0] = hermite_table(phi, roots, terms - 1) / (roots if through_zero else 1.0)
        return found

    known = 1e-13 if isinstance(phi.shape, HermiteSeries) else 2e-15  # its values are sums of many
    table, error = tabulate(coefficients, everything, tolerance=1e-8 if single else known, joint=True)
    table = np.ascontiguousarray(table[::-1] * scale)  # highest order first, for Horner
    size: Array = np.sqrt(np.einsum("kn,kn->n", table, table))
    ratio: Array = size[size > 0] / scale[size > 0]  # the interpolation's error is relative to the largest
    error = 4 * EPSILON + error * (float(ratio.max()) / float(ratio.min()) if ratio.size else 0.0)
    series = _lengths(phi, largest, terms, tail, error, single)
    code, strip = SMOOTH.get(phi.shape.name, (-1, 1.0)) if isinstance(phi.shape, Smooth) else (-1, 1.0)
    if phi.stretch * math.sqrt(largest) > _STRIPS * strip:
        code = -1
    if code < 0 and not integrable:  # `integrable`: another method treats the pairs beyond the reach
        series = replace(series, reach=1.0)
    offset = phi.shift - phi.scale * phi.shape.origin if code >= 0 else 0.0
    constants = [terms, series.reach, code, strip, phi.scale, phi.stretch, offset]
    constants += [error, series.missing, series.missing_slope, series.order]
    groups = np.split(table, np.cumsum([q.size for q in variances])[:-1], axis=1)
    return Dual(SERIES, np.array(constants, dtype=np.float64), tuple(groups), (0.0, _steepness(tail)), series)


def _steepness(squares: Array) -> float:
    """Σ k² a_k² / Σ k a_k²: how fast Ġ changes with ρ, relatively."""
    order = np.arange(squares.size)
    return float(order**2 @ squares) / max(float(order @ squares), 1e-300)


def _lengths(phi: Activation, variance: float, terms: int, squares: Array, error: float, single: bool) -> Series:
    """The remainder after `terms` orders at this variance, and the correlation up to which it is negligible."""
    order = np.arange(squares.size)
    power, slope = float(squares.sum()), float(order @ squares)
    missing, missing_slope = float(squares[terms:].sum()), float(order[terms:] @ squares[terms:])
    if terms >= squares.size:  # the series was truncated: the remainder follows from the moments
        m = moments(phi, math.sqrt(variance))
        missing = max(m.power - power, 0.0) + 1e-15 * m.power
        missing_slope = max(variance * m.slope_power - slope, 0.0) + 1e-15 * variance * m.slope_power
        power, slope = m.power, variance * m.slope_power
    lost = missing_slope / max(slope, 1e-300)
    goal = 1e-9 if single else 1e-16
    reach = 1.0 if lost <= goal else (goal / lost) ** (1 / (terms - 1))
    return Series(terms, squares, missing / power, missing_slope / power, slope / power, error, reach)
