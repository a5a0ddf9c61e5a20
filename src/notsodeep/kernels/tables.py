"""Per-sample tables for the compiled passes: which dual an activation uses and what it needs to know of each sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from notsodeep.activations import Activation, PiecewiseLinear, Smooth
from notsodeep.gaussian import hermite_coefficients, hermite_polynomials, hermite_table, moments
from notsodeep.kernels.arc import Arc
from notsodeep.kernels.layers import ARC, COS, ERF, GAUSSIAN, PIECES, SERIES, SIN
from notsodeep.kernels.pieces import ORDERS, REACH
from notsodeep.kernels.tabulate import tabulate

__all__ = ["Dual", "dual"]

Array: TypeAlias = NDArray[Any]

_MAX_ENTRIES = 8_000_000  # of a table of Hermite coefficients
_LARGE = 4.0  # variance beyond which a closed form, entry by entry, beats the long series
_CLOSED = {"erf": ERF, "sin": SIN, "cos": COS, "gaussian": GAUSSIAN}


@dataclass(frozen=True)
class Dual:
    """One level: its type, its constants, and one table per group of samples."""

    type: int
    constants: Array
    tables: tuple[Array, ...]
    error: float = 0.0
    tail: Array | None = None  # SERIES: a_k² at the largest variance, for the truncation estimate
    terms: int = 0
    cancelled: float = 0.0  # PIECES: what rounding costs where terms larger than G cancel, relative to √(G_ii G_jj)

    def rounding(self, correlation: float) -> float:
        """Relative error of G by cancellation while |ρ| ≤ `correlation`: the series loses half of the digits only."""
        if correlation > REACH:
            return self.cancelled
        return math.sqrt(self.cancelled * float(np.finfo(np.float64).eps))


def dual(phi: Activation, *variances: Array, single: bool = False) -> Dual:
    """Choose the dual of φ and tabulate it for several groups of samples with variances q."""
    shape = phi.shape
    if isinstance(shape, PiecewiseLinear) and shape.homogeneous:
        arc = Arc.of(phi, 0.0)
        constants = np.array([arc.power, arc.bend, phi.shift**2])
        return Dual(ARC, constants, tuple((-phi.shift * arc.mean * np.sqrt(q))[None] for q in variances))
    if isinstance(shape, PiecewiseLinear):
        return _pieces(phi, shape, variances)
    if isinstance(shape, Smooth) and shape.name in _CLOSED:
        largest = phi.stretch**2 * max(float(q.max()) for q in variances)
        if largest > _LARGE:
            return _closed(phi, shape.name, variances)
    return _series(phi, variances, single)


def _closed(phi: Activation, name: str, variances: tuple[Array, ...]) -> Dual:
    constants = np.array([phi.scale, phi.stretch, phi.shift**2])
    base = Activation(Smooth(name), phi.scale, phi.stretch)
    means = [[moments(base, math.sqrt(x)).mean if x else base(0.0) for x in q.tolist()] for q in variances]
    return Dual(_CLOSED[name], constants, tuple(-phi.shift * np.array([mean]) for mean in means))


def _pieces(phi: Activation, shape: PiecewiseLinear, variances: tuple[Array, ...]) -> Dual:
    kinks = np.asarray(shape.kinks) / phi.stretch
    slopes = phi.scale * phi.stretch * np.asarray(shape.slopes)
    origin = int(np.searchsorted(kinks, 0.0))  # the piece that contains 0
    signs = np.where(np.arange(kinks.size) >= origin, 1.0, -1.0)
    distances = signs * kinks
    constants = np.concatenate([[-phi.shift, slopes[origin], kinks.size], distances, np.diff(slopes), signs])
    order = np.arange(2, ORDERS)[:, None]
    total = np.abs(slopes[origin]) + np.abs(np.diff(slopes)).sum()  # terms are of size (total²)√(q_i q_j)
    tables, worst = [], 0.0
    for q in variances:
        root = np.sqrt(q)
        table = np.empty((3 * kinks.size + ORDERS, q.size))
        series = np.zeros((ORDERS, q.size))  # a_0, a_1, …
        series[0], series[1] = -phi.shift, slopes[origin] * root
        for a, distance in enumerate(distances):
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                position = np.where(root > 0, distance / root, np.inf if distance else 0.0)
            position = np.minimum(position, 40.0)
            above = special.ndtr(-position)
            table[3 * a], table[3 * a + 1] = position, above
            density = root * np.exp(-(position**2) / 2) / math.sqrt(2 * math.pi)
            table[3 * a + 2] = density - distance * above
            bend, sign = constants[3 + kinks.size + a], signs[a]
            series[0] += bend * table[3 * a + 2]
            series[1] += bend * sign * root * above
            # E[(ξ − p)₊ h_k(ξ)] = h_{k−2}(p) e^{−p²/2}/√(2π k(k−1))
            higher = hermite_polynomials(position, ORDERS - 3, density) / np.sqrt(order * (order - 1))
            series[2:] += bend * sign**order * higher
        table[3 * kinks.size :] = series[::-1]
        tables.append(table)
        power = np.sum(series**2, axis=0)
        ratio = np.divide(total**2 * q, power, out=np.zeros_like(q), where=power > 0)
        worst = max(worst, float(ratio.max()))
    return Dual(PIECES, constants, tuple(tables), cancelled=worst * float(np.finfo(np.float64).eps))


@lru_cache(maxsize=64)
def _terms(phi: Activation, variance: float, single: bool, most: int) -> tuple[int, Array]:
    """How many Hermite orders matter at this variance (at most `most`), and the squares a_k² computed on the way."""
    goal = 1e-9 if single else 1e-17
    count = min(128, most)
    while True:
        squares = hermite_coefficients(phi, math.sqrt(variance), count - 1) ** 2
        weight = np.arange(count) * squares  # Ġ sees k·a_k², G less
        remaining = np.cumsum(weight[::-1])[::-1]
        below = np.flatnonzero(remaining <= goal * remaining[0])
        # a tail that is small for an eighth of the orders is over, not passing through zeros
        if below.size > count // 8:
            return int(below[0]), squares
        if count == most:
            return most, squares
        count = min(4 * count, most)


def _series(phi: Activation, variances: tuple[Array, ...], single: bool) -> Dual:
    everything = np.concatenate(variances)
    positive = everything[everything > 0]
    largest = float(positive.max()) if positive.size else 1.0
    # kinks make the tail algebraic, where more terms help little; otherwise memory is the limit
    most = 512 if phi.kinks else int(np.clip(_MAX_ENTRIES // everything.size // 4 * 4, 512, 4096))
    terms, tail = _terms(phi, largest, single, most)
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

    table, error = tabulate(coefficients, everything, tolerance=1e-8 if single else 2e-15, joint=True)
    table = np.ascontiguousarray(table[::-1] * scale)  # highest order first, for Horner
    groups = np.split(table, np.cumsum([q.size for q in variances])[:-1], axis=1)
    return Dual(SERIES, np.array([float(terms)]), tuple(groups), error, tail, terms)
