"""Gaussian calculus of activations: moments, Hermite coefficients and expectations under N(0, τ²).

Closed forms where they exist, otherwise an adaptive panel quadrature split at the kinks.
Second derivatives always use Stein's identity, E[f''(τξ)] = E[(ξ²−1) f(τξ)]/τ², so kinks do
no harm. The integrand is g(x) = φ₀(x) − φ₀(0); constants are added back by algebra, so that
no moment at small τ is the difference of two large numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import minimize_scalar

from notsodeep.activations import Activation, Custom, HermiteSeries, PiecewiseLinear, Shape, Smooth
from notsodeep.bends import TINY
from notsodeep.checks import count, positive, warn_convergence
from notsodeep.hermite import RADIUS

__all__ = ["Moments", "expectation", "hermite_coefficients", "moments", "slope_power_supremum"]

Array: TypeAlias = NDArray[Any]

_CUT = 13.0  # e^{-13²/2} = 2e-37: the tail of any activation of moderate growth is below rounding
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_SQRT_2PI = math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class Moments:
    """Gaussian moments of φ at standard deviation τ.

    Attributes
    ----------
    mean : float
        E[φ].
    slope : float
        m₁ = E[φ'].
    curvature : float
        m₂ = E[φ''].
    power : float
        v = E[φ²].
    power_curvature : float
        w = E[(φ²)''].
    slope_power : float
        v' = E[φ'²].
    """

    mean: float
    slope: float
    curvature: float
    power: float
    power_curvature: float
    slope_power: float


def moments(activation: Activation, tau: float) -> Moments:
    """E[φ], E[φ'], E[φ''], E[φ²], E[(φ²)''], E[φ'²] at τξ, ξ ~ N(0, 1).

    Parameters
    ----------
    activation : Activation
    tau : float
        Standard deviation, > 0.

    Examples
    --------
    >>> import notsodeep as nsd
    >>> nsd.moments(nsd.activation("relu"), tau=2.0).power
    2.0
    """
    scale, stretch = activation.scale, activation.stretch
    if isinstance(activation.shape, PiecewiseLinear):
        return _piecewise_linear(activation.shape, scale, activation.shift, stretch, positive(tau, "tau"))
    base, level = _shape_moments(activation.shape, stretch * positive(tau, "tau"))
    # φ(x) = scale·g(stretch·x) − offset
    offset = activation.shift - scale * level
    mean = scale * base.mean - offset
    return Moments(
        mean=mean,
        slope=scale * stretch * base.slope,
        curvature=scale * stretch**2 * base.curvature,
        power=scale**2 * (base.power - base.mean**2) + mean**2,
        power_curvature=stretch**2 * (scale**2 * base.power_curvature - 2 * scale * offset * base.curvature),
        slope_power=(scale * stretch) ** 2 * base.slope_power,
    )


@lru_cache(maxsize=4096)
def _shape_moments(shape: Smooth | Custom | HermiteSeries, tau: float) -> tuple[Moments, float]:
    """Moments of g = φ₀ − level, shared by all scales and shifts, and the level: φ₀(0), or 0 where that is far away."""
    if isinstance(shape, Smooth) and shape.name == "gaussian" and tau > 1:
        return _far_gaussian(tau * tau), 0.0
    return _closed_form(shape, tau) or _by_quadrature(shape, tau), shape.origin


# --- closed forms -----------------------------------------------------------------------


def _closed_form(shape: Shape, tau: float) -> Moments | None:
    """Moments of g = φ₀ − φ₀(0)."""
    q = tau * tau
    if not isinstance(shape, Smooth):
        return None
    if shape.name == "sin":
        e1, e2 = math.exp(-q / 2), math.exp(-2 * q)
        return Moments(0.0, e1, 0.0, -math.expm1(-2 * q) / 2, 2 * e2, (1 + e2) / 2)
    if shape.name == "cos":
        a, mean = math.exp(-q / 2), math.expm1(-q / 2)
        return Moments(
            mean=mean,
            slope=0.0,
            curvature=-a,
            power=mean**2 * (a * a + 2 * a + 3) / 2,
            power_curvature=-2 * a * math.expm1(-3 * q / 2),
            slope_power=-math.expm1(-2 * q) / 2,
        )
    if shape.name == "erf":
        root = math.sqrt(1 + 4 * q)
        return Moments(
            mean=0.0,
            slope=2 / math.sqrt(math.pi * (1 + 2 * q)),
            curvature=0.0,
            power=2 / math.pi * math.atan2(2 * q, root),  # asin(2q/(1+2q))
            power_curvature=8 / (math.pi * (1 + 2 * q) * root),
            slope_power=4 / (math.pi * root),
        )
    if shape.name == "gaussian":
        return _gaussian(q)
    if shape.name == "gelu":
        return _gelu(q)
    return None


def _gaussian(q: float) -> Moments:
    """Moments of exp(−x²/2) − 1; E[exp(−kx²/2)] = 1/√(1+kq)."""
    one, two = math.sqrt(1 + q), math.sqrt(1 + 2 * q)
    drop = -math.expm1(-math.log1p(q) / 2)  # e = 1 − 1/√(1+q)
    if drop < 0.3:  # 1/√(1+2q) − 2/√(1+q) + 1 with its double root e² split off
        root = two / one  # √(1+2e−e²)
        power = drop**2 * (6 - 12 * drop + 4 * drop**2) / (((1 - drop) + root * (1 - 2 * drop)) * root)
    else:
        power = 1 / two - 2 / one + 1
    return Moments(
        mean=-drop,
        slope=0.0,
        curvature=-(one**-3),
        power=power,
        # 2(1+q)^{−3/2} − 2(1+2q)^{−3/2}
        power_curvature=2 * q / (one * two * (one + two)) * (one**-2 + 1 / (one * two) + two**-2),
        slope_power=q * two**-3,
    )


def _far_gaussian(q: float) -> Moments:
    """Moments of exp(−x²/2) itself, which is small nearly everywhere when q is large."""
    one, two = math.sqrt(1 + q), math.sqrt(1 + 2 * q)
    return Moments(1 / one, 0.0, -(one**-3), 1 / two, -2 * two**-3, q * two**-3)


def _gelu(q: float) -> Moments:
    """Moments of xΦ(x): repeated Stein on E[Φ(x)²] = ½ − arctan(1/√(1+2q))/π … at variance q."""
    one, two = 1 + q, math.sqrt(1 + 2 * q)
    # T = E[Φ(x)²], and b = E[φ_N(x)²] = 1/(2π √(1+2q))
    density = 1 / (2 * math.pi * two)
    tail = 0.5 - math.atan(1 / two) / math.pi
    # E[xΦφ_N] = q E[φ_N² − xΦφ_N]·… solved once: (1+q) E[xΦφ_N] = q E[φ_N²]
    cross = q * density / one
    # E[x²Φ²] = q(T + 2 E[xΦφ_N])
    power = q * (tail + 2 * cross)
    # E[x²φ_N²]: N(0,q) against e^{-x²} has variance q/(1+2q)
    square = density * q / (1 + 2 * q)
    # d(power)/dq = T + 2 cross + q (T' + 2 cross')
    tail_q = density / one
    cross_q = density / one**2 - cross / (1 + 2 * q)
    return Moments(
        mean=q / math.sqrt(2 * math.pi * one),
        slope=0.5,
        curvature=2 / math.sqrt(2 * math.pi * one) - q / math.sqrt(2 * math.pi) * one**-1.5,
        power=power,
        power_curvature=2 * (tail + 2 * cross + q * (tail_q + 2 * cross_q)),
        slope_power=tail + 2 * cross + square,
    )


@lru_cache(maxsize=4096)
def _piecewise_linear(shape: PiecewiseLinear, scale: float, shift: float, stretch: float, tau: float) -> Moments:
    """Piece by piece with the shift inside, so that pieces on which φ vanishes add exactly nothing."""
    tau *= stretch
    ends = [-math.inf, *shape.kinks, math.inf]
    mean = power = slope = slope_power = curvature = power_curvature = 0.0
    anchors = [min(max(low, 0.0), high) for low, high in pairwise(ends)]  # of each piece the point nearest to 0
    at_anchors = (scale * shape.value(np.array(anchors, dtype=np.float64)) - shift).tolist()
    at_kinks = (scale * shape.value(np.array(shape.kinks, dtype=np.float64)) - shift).tolist()
    for (low, high), gradient, anchor, height in zip(pairwise(ends), shape.slopes, anchors, at_anchors, strict=True):
        # on the piece φ = scale·gradient·τξ + offset; exactly φ(0) around 0, where φ may vanish
        gradient *= scale
        offset = height - gradient * anchor
        zeroth, first, second = _partial_moments(low / tau, high / tau)
        g = gradient * tau
        mean += g * first + offset * zeroth
        slope += gradient * zeroth
        slope_power += gradient**2 * zeroth
        power += g * g * second + 2 * g * offset * first + offset**2 * zeroth
        power_curvature += 2 * gradient**2 * zeroth
    for k, kink in enumerate(shape.kinks):
        change = scale * (shape.slopes[k + 1] - shape.slopes[k])
        bend = change * math.exp(-((kink / tau) ** 2) / 2) / (_SQRT_2PI * tau)
        curvature += bend
        power_curvature += 2 * bend * at_kinks[k]
    return Moments(
        mean, stretch * slope, stretch**2 * curvature, power, stretch**2 * power_curvature, stretch**2 * slope_power
    )


def _partial_moments(low: float, high: float) -> tuple[float, float, float]:
    """∫ (1, ξ, ξ²) over [low, high] under N(0, 1), without cancellation on short intervals."""
    if high - low < 1.0:
        xi = low + (high - low) * (_NODES + 1) / 2
        weight = _WEIGHTS * (high - low) / 2 * np.exp(-(xi**2) / 2) / _SQRT_2PI
        return float(weight.sum()), float(weight @ xi), float(weight @ xi**2)
    zeroth = (
        float(special.ndtr(high) - special.ndtr(low)) if low < 0 else float(special.ndtr(-low) - special.ndtr(-high))
    )
    at_low = math.exp(-low * low / 2) / _SQRT_2PI if math.isfinite(low) else 0.0
    at_high = math.exp(-high * high / 2) / _SQRT_2PI if math.isfinite(high) else 0.0
    second = zeroth + (low * at_low if at_low else 0.0) - (high * at_high if at_high else 0.0)
    return zeroth, at_low - at_high, second


# --- quadrature -------------------------------------------------------------------------


def _by_quadrature(shape: Smooth | Custom | HermiteSeries, tau: float) -> Moments:
    """Moments of g = φ₀ − φ₀(0); odd orders depend only on its odd part, even orders on its even part."""

    def integrand(xi: Array) -> Array:
        x = tau * xi
        (value, even), gradient = shape.departure(x), shape.derivative(x)
        hermite = xi * xi - 1
        return np.stack([even, xi * value, hermite * even, value**2, hermite * value**2, gradient**2])

    kinks = {sign * kink / tau for kink in _breaks(shape) for sign in (-1, 1)}
    if isinstance(shape, HermiteSeries):
        sums = _panels(integrand, *_piece_edges(shape, tau)).sum(-1)
        mean, first, second, power, power_second, slope_power = sums.tolist()
        return Moments(mean, first / tau, second / tau**2, power, power_second / tau**2, slope_power)
    mean, first, second, power, power_second, slope_power = expectation(
        integrand, kinks=sorted(kinks), scale=1 / tau
    ).tolist()
    return Moments(mean, first / tau, second / tau**2, power, power_second / tau**2, slope_power)


def _piece_edges(shape: HermiteSeries, tau: float) -> tuple[Array, Array]:
    """Panels on which φ₀(τξ) is one polynomial, away from its bend and short for a Gaussian."""
    pieces = max(len(shape.table.coefficients), len(shape.slopes.coefficients))
    edges = np.concatenate(
        [np.linspace(-RADIUS, RADIUS, pieces + 1) / tau, np.arange(-2 * _CUT, 2 * _CUT + 1) / 2, [0.0, TINY / tau]]
    )
    graded = 2.0 ** -np.arange(1.0, 60.0) if shape.kinks else np.zeros(0)
    edges = np.concatenate([edges, graded * RADIUS / tau, graded])
    edges = np.unique(np.concatenate([edges, -edges]))
    edges = edges[np.abs(edges) <= _CUT]
    return edges[:-1], edges[1:]


def _breaks(shape: Shape) -> tuple[float, ...]:
    """Where integrals over φ₀ are split."""
    return shape.breaks if isinstance(shape, HermiteSeries) else shape.kinks


def expectation(
    integrand: Callable[[Array], Array],
    *,
    kinks: Sequence[float] | Array = (),
    scale: float = 1.0,
    tolerance: float = 1e-13,
) -> Array:
    """E[f(ξ)], ξ ~ N(0, 1), for a vector-valued f, by adaptive panels of Gauss–Legendre.

    Parameters
    ----------
    integrand : callable
        Maps nodes of shape (k,) to values of shape (..., k).
    kinks : sequence of float
        Points at which f is not smooth; they become panel edges.
    scale : float
        The length over which f varies near 0; panels are graded down to it.
    tolerance : float
        Error relative to E|f|, estimated by halving every panel. A panel that cannot
        reach it raises :class:`~notsodeep.convergence.ConvergenceWarning`.

    Returns
    -------
    array of shape (...,)
    """
    edges = {-_CUT, 0.0, _CUT, *(float(k) for k in kinks if abs(k) < _CUT)}
    for center in [0.0, *(float(k) for k in kinks if abs(k) < _CUT)]:
        width = 1.0
        while width > min(scale, 1.0) / 2:  # graded: panels halve towards the fine structure
            edges.update(e for e in (center - width, center + width) if abs(e) < _CUT)
            width /= 2
    edges.update(np.arange(-_CUT + 1, _CUT))
    points = np.array(sorted(edges))
    points = points[np.concatenate([[True], np.diff(points) > 1e-14])]
    left, right = points[:-1], points[1:]

    total: Array | None = None
    magnitude: Array = np.zeros(())
    coarse = _panels(integrand, left, right)
    for _ in range(60):
        middle = (left + right) / 2
        halves = _panels(integrand, np.concatenate([left, middle]), np.concatenate([middle, right]))
        fine = halves[..., : left.size] + halves[..., left.size :]
        if total is None:
            total = np.zeros(fine.shape[:-1])
            magnitude = np.abs(fine).sum(-1) + 1e-300
        error = np.max(np.abs(fine - coarse) / magnitude[..., None], axis=tuple(range(fine.ndim - 1)))
        done = (error <= tolerance / 8) | (right - left < 1e-13)
        total = total + fine[..., done].sum(-1)
        if done.all():
            return total
        left, right, middle = left[~done], right[~done], middle[~done]
        coarse = np.concatenate([halves[..., : done.size][..., ~done], halves[..., done.size :][..., ~done]], axis=-1)
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        if left.size > 20_000:
            break
    assert total is not None
    warn_convergence("Gaussian quadrature did not reach its tolerance; is the activation finite and piecewise smooth?")
    return total + coarse.sum(-1)


def _panels(integrand: Callable[[Array], Array], left: Array, right: Array) -> Array:
    """Gauss–Legendre sums of f(ξ)e^{−ξ²/2}/√(2π), one per panel: shape (..., panels)."""
    xi, weight = _legendre(left, right)
    values = integrand(xi) * weight
    return np.asarray(values.reshape(*values.shape[:-1], left.size, _NODES.size).sum(-1))


def _legendre(left: Array, right: Array) -> tuple[Array, Array]:
    """Nodes on all panels, one after the other, and weights of f(ξ)e^{−ξ²/2}/√(2π)."""
    half = (right - left) / 2
    xi = (left + half)[:, None] + half[:, None] * _NODES
    return xi.ravel(), (half[:, None] * _WEIGHTS * np.exp(-(xi**2) / 2) / _SQRT_2PI).ravel()


# covers: [Ling23] Lemma 7
def hermite_coefficients(activation: Activation, tau: float, degree: int) -> Array:
    """a_k = E[φ(τξ) h_k(ξ)], k = 0…degree, with h_k the orthonormal Hermite polynomials.

    Examples
    --------
    >>> import notsodeep as nsd
    >>> a = nsd.hermite_coefficients(nsd.activation("erf"), tau=0.5, degree=40)
    >>> bool(abs((a**2).sum() - nsd.moments(nsd.activation("erf"), 0.5).power) < 1e-12)
    True
    """
    return hermite_table(activation, np.array([positive(tau, "tau")]), count(degree, "degree", minimum=0))[:, 0]


def hermite_table(activation: Activation, taus: Array, degree: int) -> Array:
    """Hermite coefficients at several standard deviations > 0: shape (degree + 1, len(taus))."""
    shape, stretch = activation.shape, activation.stretch
    if isinstance(shape, HermiteSeries) and np.all(np.abs(stretch * taus - 1) <= 1e-14):  # the series itself
        known = activation.scale * shape.order(degree + 1)
        known[0] -= activation.shift
        return np.repeat(known[:, None], taus.size, axis=1)
    if not _breaks(shape):
        table = _hermite_by_trapezoid(activation, taus, degree)
        if table is not None:
            return table
    columns = []
    for tau in taus.tolist():

        def integrand(xi: Array, tau: float = tau) -> Array:
            return _precise(activation, tau * xi) * hermite_polynomials(xi, degree)

        if isinstance(shape, HermiteSeries):  # many pieces, known in advance: no search for them
            xi, weight = _legendre(*_piece_edges(shape, stretch * tau))
            columns.append(hermite_polynomials(xi, degree) @ (_precise(activation, tau * xi) * weight))
            continue
        # the oscillation of h_k has wavelength ~1/√k, resolved by the adaptive panels
        scale = min(1 / (tau * activation.stretch), 1 / math.sqrt(degree + 1))
        columns.append(expectation(integrand, kinks=np.asarray(_breaks(shape)) / (stretch * tau), scale=scale))
    return np.stack(columns, axis=1)


def _precise(activation: Activation, x: Array) -> Array:
    """φ(x) = scale·g(stretch·x) − offset, g = φ₀ − φ₀(0): small values of φ near 0 stay accurate."""
    shape, scale = activation.shape, activation.scale
    if isinstance(shape, PiecewiseLinear):
        return np.asarray(activation(x))
    return np.asarray(scale * shape.departure(activation.stretch * x)[0] - (activation.shift - scale * shape.origin))


def _hermite_by_trapezoid(activation: Activation, taus: Array, degree: int) -> Array | None:
    """The trapezoidal rule converges like e^{−2πd/h} for φ analytic in a strip of half-width d."""
    # |h_k(ξ)| e^{−ξ²/4} ≤ 1.09 for every k (Cramér), so the other e^{−ξ²/4} bounds the tail
    step = 0.25 / max(1.0, activation.stretch * float(taus.max()))
    previous: Array | None = None
    while 2 * _CUT / step * max(degree, taus.size) < 2e8:
        positive_half = np.arange(0.5, _CUT / step) * step
        xi = np.concatenate([-positive_half[::-1], positive_half])
        current = np.zeros((degree + 1, taus.size))
        for block in np.array_split(xi, max(1, xi.size * degree // 4_000_000)):
            # half of the weight e^{−ξ²/2} goes into the recurrence, which then never overflows
            decay = np.exp(-(block**2) / 4)
            values = _precise(activation, np.outer(block, taus)) * (step / math.sqrt(2 * math.pi) * decay)[:, None]
            current += hermite_polynomials(block, degree, decay) @ values
        if previous is not None:
            size = np.linalg.norm(current, axis=0)
            if np.all(np.abs(current - previous) <= 2e-15 * size):
                return current
        previous, step = current, step / 2
    return None


def hermite_polynomials(xi: Array, degree: int, weight: Array | float = 1.0) -> Array:
    """Orthonormal h_0…h_degree at ξ, times `weight`: shape (degree + 1, len(ξ))."""
    table = np.empty((degree + 1, *np.shape(xi)))
    table[0] = weight
    if degree:
        table[1] = xi * weight
    for k in range(1, degree):
        table[k + 1] = (xi * table[k] - math.sqrt(k) * table[k - 1]) / math.sqrt(k + 1)
    return table


def slope_power_supremum(activation: Activation) -> float:
    """sup_τ E[φ'(τξ)²], the constant of the infinite-width existence condition [FK20, Thm 2]."""
    return (activation.scale * activation.stretch) ** 2 * _slope_power_supremum(activation.shape)


@lru_cache(maxsize=256)
def _slope_power_supremum(shape: Shape) -> float:
    if shape.homogeneous:  # does not depend on τ
        return moments(Activation(shape), 1.0).slope_power

    def value(exponent: float) -> float:
        tau = 10.0 ** float(exponent)
        if isinstance(shape, HermiteSeries):  # long series: one sixth of the moments takes a third of the time
            return float(_panels(lambda xi: shape.derivative(tau * xi) ** 2, *_piece_edges(shape, tau)).sum())
        return moments(Activation(shape), tau).slope_power

    # τ → 0, where only the slopes on both sides of 0 matter; finite differences of a callable need some distance
    near = 1e-5 if isinstance(shape, Custom) else 1e-300
    limit = float(np.mean(shape.derivative(np.array([-near, near])) ** 2))
    lengths = [abs(kink) for kink in shape.kinks if kink] if isinstance(shape, PiecewiseLinear) else []
    low, high = (1e-2 * min(lengths), 1e4 * max(lengths)) if lengths else (1e-4, 1e6)
    exponents = np.linspace(math.log10(low), math.log10(high), max(201, int(20 * math.log10(high / low))))
    if isinstance(shape, PiecewiseLinear):
        best = int(np.argmax(_slope_powers(shape, exponents)))
    else:
        best = int(np.argmax([value(exponent) for exponent in exponents]))
    left, right = exponents[max(best - 1, 0)], exponents[min(best + 1, len(exponents) - 1)]
    refined = minimize_scalar(lambda e: -value(e), bounds=(left, right), method="bounded", options={"xatol": 1e-8})
    return max(limit, value(exponents[best]), -float(refined.fun))


def _slope_powers(shape: PiecewiseLinear, exponents: Array) -> Array:
    """E[φ₀'²] at τ = 10^exponent, to within rounding of its largest slope."""
    edges = np.concatenate([[-np.inf], shape.kinks, [np.inf]])
    return np.square(shape.slopes) @ np.diff(special.ndtr(edges[:, None] / 10.0**exponents), axis=0)
