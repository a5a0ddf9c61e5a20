"""Duals of two samples of equal variance at a complex correlation, |ρ| ≤ 1: G(ρ) = Σ a_k(q)² ρᵏ with two derivatives.

A dual is a callable ρ ↦ (G, dG/dρ, d²G/dρ²) on arrays. Closed forms where they exist, the Hermite series otherwise. A
piecewise-linear φ with kinks away from 0 has a closed second derivative,

    G''(ρ) = q Σ_ab bend_a bend_b exp(−(h_a² + h_b² − 2ρ h_a h_b)/(2(1 − ρ²)))/(2π√(1 − ρ²)),   h = kink/√q,

which is integrated along the polygon of the given points: consecutive points should be close to each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.activations import Activation, HermiteSeries, PiecewiseLinear, Smooth
from notsodeep.gaussian import moments
from notsodeep.kernels.arc import Arc
from notsodeep.kernels.tables import significant_terms

__all__ = ["Dual", "complex_dual"]

Array: TypeAlias = NDArray[Any]
Triple: TypeAlias = tuple[Array, Array, Array]
Dual: TypeAlias = Callable[[Array], Triple]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_FINE, _FINE_WEIGHTS = np.polynomial.legendre.leggauss(20)
_PANELS = 40  # panels of a long step towards each end, each half as long as the previous one
_MOST_TERMS = 4096


def complex_dual(phi: Activation, variance: float) -> Dual:
    """Return the dual of φ for two samples of this variance."""
    shape, q = phi.shape, variance
    if isinstance(shape, PiecewiseLinear):
        return _arc(phi, q) if shape.homogeneous else _pieces(phi, shape, q)
    if isinstance(shape, Smooth) and shape.name in _CLOSED:
        base = Activation(shape, phi.scale, phi.stretch)
        constant = phi.shift * (phi.shift - 2 * moments(base, math.sqrt(q)).mean)
        closed, factor, spread = _CLOSED[shape.name], phi.scale**2, phi.stretch**2 * q

        def dual(rho: Array) -> Triple:
            with np.errstate(divide="ignore", invalid="ignore"):
                value, slope, curvature = closed(spread, rho)
            return factor * value + constant, factor * slope, factor * curvature

        return dual
    if isinstance(shape, HermiteSeries) and abs(phi.stretch * math.sqrt(q) - 1) <= 1e-12:  # its own variance
        coefficients = phi.scale * shape.order(1 << 14 if phi.kinks else len(shape.coefficients))
        coefficients[0] -= phi.shift
        return _polynomial(coefficients**2)
    most = 512 if phi.kinks else _MOST_TERMS
    count, squares = significant_terms(phi, q, False, most)
    return _polynomial(squares[: max(count, 2)])


def _polynomial(squares: Array) -> Dual:
    def dual(rho: Array) -> Triple:
        value, slope, half = np.zeros_like(rho), np.zeros_like(rho), np.zeros_like(rho)
        for square in squares[::-1]:
            half = half * rho + slope
            slope = slope * rho + value
            value = value * rho + square
        return value, slope, 2 * half

    return dual


def _arc(phi: Activation, q: float) -> Dual:
    arc, shift = Arc.of(phi, 0.0), phi.shift
    constant = shift * (shift - 2 * arc.mean * math.sqrt(q))

    def dual(rho: Array) -> Triple:
        theta, sine = np.arccos(rho), np.sqrt(1 - rho) * np.sqrt(1 + rho)
        value = q * (arc.power * rho + arc.bend * (sine - theta * rho)) + constant
        with np.errstate(divide="ignore", invalid="ignore"):
            curvature = q * arc.bend / sine if arc.bend else np.zeros_like(rho)
        return value, q * (arc.power - arc.bend * theta), curvature

    return dual


# --- closed forms at scale 1: p = stretch²·q, Λ = pρ --------------------------------------------------------------


def _erf(p: float, rho: Array) -> Triple:
    z = 2 * p / (1 + 2 * p)
    rest = 1 - (z * rho) ** 2
    front = 2 / math.pi
    return front * np.arcsin(z * rho), front * z / np.sqrt(rest), front * z**3 * rho * rest**-1.5


def _waves(p: float, rho: Array) -> tuple[Array, Array]:
    """e^{−p}·sinh(pρ) and e^{−p}·cosh(pρ)."""
    near, far = np.exp(-p * (1 - rho)) / 2, np.exp(-p * (1 + rho)) / 2
    return near - far, near + far


def _sin(p: float, rho: Array) -> Triple:
    odd, even = _waves(p, rho)
    return odd, p * even, p * p * odd


def _cos(p: float, rho: Array) -> Triple:
    odd, even = _waves(p, rho)
    return even, p * odd, p * p * even


def _gaussian(p: float, rho: Array) -> Triple:
    X = (1 + p) ** 2 - (p * rho) ** 2
    return X**-0.5, p * p * rho * X**-1.5, p * p * X**-1.5 + 3 * p**4 * rho**2 * X**-2.5


def _gelu(p: float, rho: Array) -> Triple:
    covariance, weight = p * rho, 2 / (1 + p)
    X = (1 + p) ** 2 - covariance**2
    root, angle = np.sqrt(X), np.arctan(covariance / np.sqrt(X))
    front = 1 / (2 * math.pi)
    value = covariance / 4 + front * ((p * p + (weight - 1) * covariance**2) / root + covariance * angle)
    slope = 0.25 + front * (angle + covariance * (weight + 1 / X) / root)
    bend = 1 + (weight + 1 / X) + covariance**2 * (weight + 3 / X) / X
    return value, p * slope, p * p * front * bend / root


_CLOSED: dict[str, Callable[[float, Array], Triple]] = {
    "erf": _erf,
    "sin": _sin,
    "cos": _cos,
    "gaussian": _gaussian,
    "gelu": _gelu,
}


# --- kinks away from 0 --------------------------------------------------------------------------------------------


def _pieces(phi: Activation, shape: PiecewiseLinear, q: float) -> Dual:
    """G'' along the polygon 0 → ρ_0 → ρ_1 → …, integrated twice."""
    root = math.sqrt(q)
    m = moments(phi, root)
    places = np.asarray(shape.kinks) / (phi.stretch * root)
    bends = phi.scale * phi.stretch * np.diff(shape.slopes)
    pairs = [
        ((2 if a > b else 1) * bends[a] * bends[b] * q / (2 * math.pi), places[a], places[b])
        for a in range(places.size)
        for b in range(a + 1)
    ]

    def density(below: Array, above: Array) -> Array:
        """G''·√(1 − ρ²) for 1 ∓ ρ."""
        total = np.zeros_like(below)
        with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
            for weight, h, k in pairs:
                # (h² + k² − 2ρhk)/(1 − ρ²) = (h − k)²/(1 − ρ²) + 2hk/(1 + ρ)
                exponent = -h * k / above - (h - k) ** 2 / (2 * below * above) if h != k else -h * k / above
                total = total + weight * np.nan_to_num(np.exp(exponent))
        return total

    def curvature(rho: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return density(1 - rho, 1 + rho) / (np.sqrt(1 - rho) * np.sqrt(1 + rho))

    def dual(rho: Array) -> Triple:
        flat = np.ravel(rho)
        if np.iscomplexobj(rho):  # a path
            starts = np.concatenate([[0.0], flat[:-1]])
        else:  # any points: on the way from the smallest to the largest
            order = np.argsort(flat)
            flat = flat[order]
            starts = np.concatenate([[0.0], flat[:-1]])
        first, second = _integrals(density, starts, flat, np.iscomplexobj(rho))
        # over the step from s to e: G' grows by ∫G'', G by (e − s)G'(s) + ∫(e − x)G''(x)
        slope = q * m.slope**2 + np.cumsum(first)
        before = np.concatenate([[q * m.slope**2], slope[:-1]])
        value = m.mean**2 + np.cumsum((flat - starts) * before + second)
        results = value, slope, curvature(flat)
        if not np.iscomplexobj(rho):
            back = np.empty_like(order)
            back[order] = np.arange(order.size)
            results = tuple(result[back] for result in results)  # type: ignore[assignment]
        return tuple(result.reshape(np.shape(rho)) for result in results)  # type: ignore[return-value]

    return dual


def _integrals(density: Callable[[Array, Array], Array], starts: Array, ends: Array, path: bool) -> tuple[Array, Array]:
    """∫ G''(x) dx and ∫ (e − x) G''(x) dx over every step from s to e, in ψ = arcsin x: dx/√(1 − x²) = dψ."""
    first, second = np.zeros_like(ends), np.zeros_like(ends)
    low, high = np.arcsin(starts), np.arcsin(ends)
    if path:  # short steps; only the first one needs more
        first[1:], second[1:] = _step(density, low[1:], high[1:], (_NODES + 1) / 2, _WEIGHTS / 2)
    graded = slice(0, 1) if path else slice(None)
    # towards both ends in panels that halve: the integrand changes fast near ±1
    halves = 2.0 ** -np.arange(_PANELS, 0.0, -1)
    edges = np.concatenate([[0.0], halves, 1 - halves[-2::-1], [1.0]])
    half = np.diff(edges) / 2
    nodes, weights = (edges[:-1] + half)[:, None] + half[:, None] * _FINE, half[:, None] * _FINE_WEIGHTS
    first[graded], second[graded] = _step(density, low[graded], high[graded], nodes.ravel(), weights.ravel())
    return first, second


def _step(
    density: Callable[[Array, Array], Array], low: Array, high: Array, nodes: Array, weights: Array
) -> tuple[Array, Array]:
    low, length = low[:, None], (high - low)[:, None]
    psi, rest = low + length * nodes, length * (1 - nodes) / 2
    turn = math.pi / 4 - psi / 2
    values = density(2 * np.sin(turn) ** 2, 2 * np.cos(turn) ** 2) * weights * length
    gap = 2 * np.sin(rest) * np.cos(psi + rest)  # e − x
    return values.sum(1), (gap * values).sum(1)
