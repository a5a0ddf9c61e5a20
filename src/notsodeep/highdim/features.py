"""Readouts of random features at finite width: a layer acts as a linear map, plus noise, plus low-rank curvature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.activations import Activation
from notsodeep.checks import InputError, count
from notsodeep.gaussian import expectation, moments
from notsodeep.highdim.fixed_point import Population, Resolved, solve
from notsodeep.highdim.four_numbers import DEQCoefficients, coefficients
from notsodeep.highdim.ridge import Response, scores
from notsodeep.highdim.statistics import Statistics
from notsodeep.models import DEQ, Explicit

__all__ = ["FeatureLayer", "FeatureRidge"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class FeatureLayer:
    """Features f of one layer of width m: (I − gA) √m f = √c √P Θx + σξ + low-rank curvature, A, Θ and ξ Gaussian.

    A (m×m) has entries of variance 1/m and is the recurrence of a DEQ, absent (g = 0) in an explicit layer; Θ (m×P) has
    entries of variance 1/P, with P the dimension before. Averaged over both, for C'_a the covariances of √m f,

        tr(C'_a R')/m = r (σ² + c tr(C_a Y)/P),   R' = (zI + Σ_a θ_a C'_a)⁻¹,   Y = (I + (m/P) r c Σ_b θ_b C_b)⁻¹,
        1/r = w + Σ_b θ_b (σ² + c tr(C_b Y)/P),   w = (z/a)(1 + g²(1 − zr/a)),   a = 1 + zg²r.

    Y is the resolvent of the previous layer, so layers nest. Every product of two resolvents is a derivative in θ.

    Attributes
    ----------
    base : Population
        The layer before, or the data.
    p : int
        m.
    gain, noise, feedback : float
        c, σ² and g²: E[φ']² times the variance of the input weights, E[φ²] − E[φ']²τ², and E[φ']² times that of the
        recurrent weights.
    bends : array (K+q, K+q)
        Products of the directions that the curvature of φ adds, for K classes and q fluctuations of norms.
    """

    base: Population
    p: int
    gain: float
    noise: float
    feedback: float
    bends: Array
    tolerance: ClassVar[float] = 1e-12

    @property
    def rough(self) -> FeatureLayer:
        return replace(self, base=self.base.rough)

    @property
    def many(self) -> FeatureLayer:
        return replace(self, base=self.base.many)

    def mean_variances(self) -> Array:
        return (self.gain * self.base.mean_variances() + self.noise) / (1 - self.feedback)

    def mean_products(self) -> Array:
        return (self.gain * _padded(self.base.mean_products(), len(self.bends)) + self.bends) / (1 - self.feedback)

    def overlaps(self) -> Array:
        """E(f·f')² = tr(C'_a C'_b)/m² for noise of classes a and b, shape (K, K)."""
        return self.resolve(1.0, np.zeros(self.base.mean_variances().size)).products / self.p

    def start(self, c1: float, z: float, loads: Array, guess: Array | None) -> Array | None:
        return guess

    def resolve(self, z: float, theta: Array) -> Resolved:
        c, stretch, echo = self.gain, self.gain * self.p / self.base.p, self.feedback
        inverse = z * (1 + echo) + float(theta @ (self.noise + c * self.base.mean_variances()))
        for _ in range(100):  # Newton's method for 1/r, which begins above and falls to it
            r = 1 / inverse
            inner = self.base.resolve(1.0, stretch * r * theta)
            sums, mixed = self.noise + c * inner.traces, inner.products @ theta
            damped = z / (1 + z * echo * r)
            level = damped * (1 + echo * (1 - damped * r))  # w
            falls = echo * damped**2 * (2 + echo - 2 * echo * damped * r)  # −∂w/∂r
            slope = inverse**2 - falls - stretch * c * float(theta @ mixed)
            step = (level + float(theta @ sums) - inverse) * inverse**2 / slope
            if abs(step) <= 1e-14 * inverse:
                break
            inverse += step
        change = -(sums - stretch * c * r * mixed) / slope  # ∂r/∂θ
        drift = -stretch * (np.outer(mixed, change) + r * inner.products)  # ∂ tr(C_a Y)/P / ∂θ_b
        forms = c * _padded(inner.forms, len(self.bends)) + self.bends
        curved = _padded(inner.curved, len(self.bends))
        turned = stretch * (np.multiply.outer(change, np.tensordot(theta, curved, 1)) + r * curved)  # −∂ form/∂θ_a
        return Resolved(
            r * sums,
            -(np.outer(sums, change) + c * r * drift),
            r * forms,
            c * r * turned - np.multiply.outer(change, forms),
        )


def _padded(table: Array, size: int) -> Array:
    """With rows and columns of zeros for the fluctuations of norms that came later."""
    missing = size - table.shape[-1]
    return np.pad(table, [(0, 0)] * (table.ndim - 2) + [(0, missing)] * 2)


@dataclass(frozen=True, eq=False)
class _Norms:
    """‖x‖² − τ² of a sample after some layers: Σ_k loads_k ζ_k in class a, plus shifts_a.

    ζ_0 = ψ comes from the data. A layer of width m multiplies all of them by E[(φ²)'']/2 and adds its own ζ, of
    variance Var[φ²]/m: the norm of m random features fluctuates.

    Attributes
    ----------
    shifts : array (K,)
    loads : array (q,)
    variances : array (K, q)
    """

    shifts: Array
    loads: Array
    variances: Array

    @staticmethod
    def of(stats: Statistics) -> _Norms:
        """Of the data."""
        return _Norms(stats.t / math.sqrt(stats.p), np.ones(1), (2 * np.diag(stats.T) / stats.p)[:, None])

    def extended(self, factor: float, load: float, variance: float) -> _Norms:
        """All times `factor`, and one more fluctuation."""
        more = np.full((len(self.variances), 1), variance)
        return _Norms(factor * self.shifts, np.append(factor * self.loads, load), np.hstack([self.variances, more]))

    def bends(self, curvature: float, overlaps: Array) -> Array:
        """E[φ'']² (eeᵀ/4 + overlaps/2), e = (shifts, loads): effect of φ's curvature on norms and inner products."""
        both = np.append(self.shifts, self.loads)
        table = np.outer(both, both) / 4
        k = self.shifts.size
        table[:k, :k] += overlaps / 2
        return curvature**2 * table


@dataclass(frozen=True, eq=False)
class FeatureRidge:
    """Ridge regression on the features themselves: α = (FFᵀ + ridge·I)⁻¹ y.

    Attributes
    ----------
    population : FeatureLayer
        The last layer.
    norm_variance : array (K, q)
        Variances of the fluctuations of norms.
    proportions : array (K,)
    scale : float
        d, the diagonal of the kernel.
    """

    population: FeatureLayer
    norm_variance: Array
    proportions: Array
    scale: float

    @staticmethod
    def of(model: Any, width: int | Sequence[int], stats: Statistics, population: Population) -> FeatureRidge:
        """The last layer of a network with random weights, of one width or of one for each layer."""
        if not isinstance(model, DEQ | Explicit):
            raise InputError(f"model={model!r} has no forecast at finite width; pass a DEQ, an Explicit, or no width")
        depth = 1 if isinstance(model, DEQ) else model.depth
        widths: list[Any] = list(np.atleast_1d(width)) if np.ndim(width) else [width] * depth
        if len(widths) != depth:
            raise InputError(f"width={width!r} has {len(widths)} entries but the network has {depth} hidden layers")
        widths = [count(one, "width") for one in widths]
        if isinstance(model, DEQ):
            layer, norms, scale = _recurrent(model, widths[0], stats, population)
        else:
            layer, norms, scale = _explicit(model, widths, stats, population)
        return FeatureRidge(layer, norms.variances, stats.proportions, scale)

    @property
    def rough(self) -> FeatureRidge:
        """With a population that is cheap to evaluate."""
        return replace(self, population=self.population.rough)

    @property
    def many(self) -> FeatureRidge:
        """With a population that is cheap at many points."""
        return replace(self, population=self.population.many)

    def respond(self, n: float, ridge: float, targets: Array, guess: Array | None = None) -> Response:
        """The law of the scores of a new sample; see :meth:`KernelRidge.respond`, with D = z GᵀR'G and c₁ = 1."""
        if not ridge > 1e-12 * self.scale:
            raise InputError(f"ridge={ridge:.6g} leaves the features' system singular; pass ridge > 0")
        m, sizes = self.population.p, n * self.proportions
        delta, coupling, resolved = solve(self.population, 1.0, ridge, sizes / m, guess)
        gains = 1 / (ridge * (1 + delta))
        law = scores(
            ridge * resolved.forms,
            ridge**2 / m * resolved.curved,
            coupling,
            sizes * gains,
            self.norm_variance,
            targets,
        )
        return Response(*law, gains, delta)


def _explicit(
    model: Explicit, widths: Sequence[int], stats: Statistics, population: Population
) -> tuple[FeatureLayer, _Norms, float]:
    """Stack the layers: each adds its noise, curvature and norm fluctuation to those of the layers before."""
    tau, base, norms, overlaps = stats.tau0, population, _Norms.of(stats), stats.T / stats.p
    for depth, (phi, width) in enumerate(zip(model.centered(tau).activations, widths, strict=True), 1):
        m = moments(phi, tau)
        noise, bends = max(m.power - m.slope**2 * tau**2, 0.0), norms.bends(m.curvature, overlaps)
        base = layer = FeatureLayer(base, width, m.slope**2, noise, 0.0, bends)
        if depth < len(widths):
            norms = norms.extended(m.power_curvature / 2, 1.0, _square_variance(phi, tau) / width)
            overlaps = layer.overlaps()
        tau = math.sqrt(m.power)
    return layer, norms, m.power


def _recurrent(model: DEQ, width: int, stats: Statistics, population: Population) -> tuple[FeatureLayer, _Norms, float]:
    """The single layer of a DEQ; its norms and inner products also fluctuate through the recurrence."""
    known = coefficients(model, stats.tau0)
    assert isinstance(known, DEQCoefficients)
    m, rate = known.moments, model.recurrent
    noise = max(m.power - m.slope**2 * known.tau**2, 0.0)  # 0 for a linear φ
    parts = (population, width, m.slope**2 * model.input, noise, m.slope**2 * rate)
    phi = model.centered(stats.tau0).activation
    # ‖u‖² = σ_a²‖z‖² + σ_b²‖x‖² and ‖z‖² = E[(φ²)'']/2 ‖u‖² + ζ give α₄ψ + (σ_a²/σ_b²)α₄ζ
    spread = _square_variance(phi, known.tau) / width
    norms = _Norms.of(stats).extended(known.alpha4, known.alpha4 * rate / model.input, spread)
    plain = stats.T / stats.p
    own = (
        FeatureLayer(*parts, np.zeros_like(plain)).overlaps() - known.alpha1**2 * plain
    )  # of the state, without the data's
    bends = norms.bends(m.curvature, known.lambda1**2 * plain + rate**2 * own)
    return FeatureLayer(*parts, bends), norms, m.power


def _square_variance(phi: Activation, tau: float) -> float:
    """Var[φ²] under N(0, τ²)."""
    fourth = expectation(lambda xi: phi(tau * xi) ** 4, tolerance=1e-9)
    return float(fourth) - moments(phi, tau).power ** 2
