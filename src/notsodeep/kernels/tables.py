"""Per-sample tables for the compiled passes: which dual an activation uses and what it needs to know of each sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from notsodeep.activations import Activation, PiecewiseLinear
from notsodeep.gaussian import hermite_coefficients, hermite_polynomials
from notsodeep.kernels.arc import Arc
from notsodeep.kernels.layers import ARC, PIECES, SERIES
from notsodeep.kernels.tabulate import tabulate

__all__ = ["Dual", "dual"]

Array: TypeAlias = NDArray[Any]

MAX_TERMS = 512
_CUT = 13.0  # |h_k(ξ)|e^{−ξ²/4} ≤ 1.09 (Cramér), and e^{−13²/4} = 4e-19


@dataclass(frozen=True)
class Dual:
    """One level: its type, its constants, and one table per group of samples."""

    type: int
    constants: Array
    tables: tuple[Array, ...]
    error: float = 0.0
    tail: Array | None = None  # SERIES: a_k² at the largest variance, for the truncation estimate
    terms: int = 0


def dual(phi: Activation, *variances: Array, single: bool = False) -> Dual:
    """Choose the dual of φ and tabulate it for several groups of samples with variances q."""
    shape = phi.shape
    if isinstance(shape, PiecewiseLinear) and shape.homogeneous:
        arc = Arc.of(phi, 0.0)
        constants = np.array([arc.power, arc.bend, phi.shift**2])
        return Dual(ARC, constants, tuple((-phi.shift * arc.mean * np.sqrt(q))[None] for q in variances))
    if isinstance(shape, PiecewiseLinear):
        return _pieces(phi, shape, variances)
    return _series(phi, variances, single)


def _pieces(phi: Activation, shape: PiecewiseLinear, variances: tuple[Array, ...]) -> Dual:
    kinks = np.asarray(shape.kinks) / phi.stretch
    slopes = phi.scale * phi.stretch * np.asarray(shape.slopes)
    bends = np.diff(slopes)
    # φ(x) = c₀ + s₀x + Σ bend (x − kink)₊
    base = -float(bends @ np.maximum(-kinks, 0)) - phi.shift
    constants = np.concatenate([[base, slopes[0], len(kinks)], kinks, bends])
    tables = []
    for q in variances:
        root = np.sqrt(q)
        table = np.empty((3 * len(kinks), q.size))
        for a, kink in enumerate(kinks):
            with np.errstate(divide="ignore", invalid="ignore"):
                position = np.where(root > 0, kink / root, np.sign(kink) * np.inf if kink else 0.0)
            position = np.clip(position, -40.0, 40.0)
            above = special.ndtr(-position)
            table[3 * a], table[3 * a + 1] = position, above
            table[3 * a + 2] = root * np.exp(-(position**2) / 2) / math.sqrt(2 * math.pi) - kink * above
        tables.append(table)
    return Dual(PIECES, constants, tuple(tables))


@lru_cache(maxsize=64)
def series_terms(phi: Activation, variance: float, single: bool) -> tuple[int, tuple[float, ...]]:
    """Hermite orders needed at this variance, and the squared coefficients k·a_k² beyond which nothing matters."""
    coefficients = hermite_table(phi, np.array([variance]), MAX_TERMS)[:, 0]
    weight = np.arange(MAX_TERMS) * coefficients**2  # Ġ sees k·a_k², G less
    remaining = np.cumsum(weight[::-1])[::-1]
    goal = (1e-9 if single else 1e-17) * remaining[0]
    below = np.flatnonzero(remaining <= goal)
    return int(below[0]) if below.size else MAX_TERMS, tuple(coefficients)


def hermite_table(phi: Activation, variances: Array, terms: int) -> Array:
    """a_k(q) = E[φ(√q ξ) h_k(ξ)] for k < terms and every q: shape (terms, len(variances)).

    The trapezoidal rule of :func:`notsodeep.gaussian.hermite_coefficients` on one grid for all variances, so that
    the polynomials are evaluated once.
    """
    table = np.zeros((terms, variances.size))
    table[0, variances == 0] = float(phi(0.0))
    where = np.flatnonzero(variances)
    roots = np.sqrt(variances[where])
    if not roots.size:
        return table
    steps = 0.25 / max(1.0, phi.stretch * float(roots.max())) / 2.0 ** np.arange(1, 6)
    done = np.zeros(roots.size, dtype=bool)
    previous: Array | None = None
    for step in steps if not phi.kinks else ():
        if _CUT / step * terms > 2e7:
            break
        xi = np.arange(0.5, _CUT / step) * step
        xi = np.concatenate([-xi[::-1], xi])
        weight = np.exp(-(xi**2) / 4)
        basis = hermite_polynomials(xi, terms - 1, weight) * (step / math.sqrt(2 * math.pi) * weight)
        current = np.empty((terms, roots.size))
        for start in range(0, roots.size, 128):
            current[:, start : start + 128] = basis @ phi(xi[:, None] * roots[start : start + 128])
        if previous is not None:
            change = np.max(np.abs(current - previous), axis=0)
            done = change <= 1e-15 * np.linalg.norm(current, axis=0)
        previous = current
        if done.all():
            break
    if previous is not None:
        table[:, where] = previous
    for column in np.flatnonzero(~done):
        table[:, where[column]] = hermite_coefficients(phi, float(roots[column]), terms - 1)
    return table


def _series(phi: Activation, variances: tuple[Array, ...], single: bool) -> Dual:
    everything = np.concatenate(variances)
    positive = everything[everything > 0]
    largest = float(positive.max()) if positive.size else 1.0
    terms, tail = series_terms(phi, largest, single)
    terms = min(4 * -(-max(terms, 4) // 4), MAX_TERMS)
    tolerance = 1e-8 if single else 2e-15
    # highest order first, for Horner
    table, error = tabulate(lambda q: hermite_table(phi, q, terms)[::-1], everything, tolerance, joint=True)
    groups = np.split(table, np.cumsum([q.size for q in variances])[:-1], axis=1)
    return Dual(SERIES, np.array([float(terms)]), tuple(groups), error, np.square(tail), terms)
