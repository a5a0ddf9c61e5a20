"""The kernel of rows of equal norm as a function of their cosine t: values, derivative, power series, singularity.

By Schoenberg's theorem every kernel that is positive definite on spheres of all dimensions is

    k(t) = Σ_k b_k tᵏ,   b_k ≥ 0,   Σ_k b_k = k(1).

The coefficients are a Fourier transform of k on a circle of radius r < 1: with N points, b_k rᵏ is known to rounding
plus b_{k+N} r^{k+N}, and r^N = 1e-16 leaves 1e-14 for k < N/8. A model joins by registering its recursion for complex t
with :func:`recursion`; everything else follows from that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.activations import Activation
from notsodeep.checks import InputError, choice, count, positive
from notsodeep.gaussian import moments
from notsodeep.kernels.analytic import Dual, complex_dual
from notsodeep.kernels.dense import check_depth, supported
from notsodeep.kernels.kinds import combine
from notsodeep.kernels.plans import choose, cosine_function, network_levels
from notsodeep.kernels.polynomial import Polynomial
from notsodeep.kernels.samples import Samples
from notsodeep.models import DEQ, Explicit

__all__ = ["Singularity", "SphereKernel", "on_sphere", "recursion"]

Array: TypeAlias = NDArray[Any]
Recursion: TypeAlias = Callable[[Array], tuple[Array, Array]]
"""t ↦ k(t), dk/dt for complex |t| ≤ 1; an array of complex t is a path whose points are close to each other."""

_MOST = 1 << 17  # coefficients at a time
_ITERATIONS = 200


@dataclass(frozen=True)
class Singularity:
    """What happens at t = 1 and t = −1: k is smooth there, or has a term (1 ∓ t)^exponent.

    Attributes
    ----------
    plus, minus : float
        The exponents, 1/2 or 3/2; infinite where no kink of an activation is seen. b_k then falls like
        k^{−1−exponent}, and faster than any power otherwise.
    """

    plus: float
    minus: float

    @property
    def smooth(self) -> bool:
        return math.isinf(self.plus) and math.isinf(self.minus)

    def __str__(self) -> str:
        ends = [
            f"(1 {sign} t)^{exponent:g} at t = {place}"
            for sign, place, exponent in (("−", "1", self.plus), ("+", "−1", self.minus))
            if math.isfinite(exponent)
        ]
        return " and ".join(ends) or "smooth at t = ±1"


@dataclass(frozen=True)
class SphereKernel:
    """k(t) = K(x, y) for ‖x‖ = ‖y‖ = norm and x·y = t·norm².

    Examples
    --------
    >>> import notsodeep as nsd
    >>> k = nsd.DEQ("relu", recurrent=0.2, input=0.8).on_sphere("ck")
    >>> k([-1.0, 0.0, 1.0]).round(6)
    array([0.004301, 0.149001, 0.444444])
    >>> k.series(3).round(6)
    array([0.149001, 0.215262, 0.06709 ])
    >>> print(k.singularity)
    (1 − t)^1.5 at t = 1
    """

    model: DEQ | Explicit
    kind: str
    norm: float
    depth: int | None = None

    @cached_property
    def _recursion(self) -> Recursion:
        return recursion(self.model, self.kind, self.norm, self.depth)

    @cached_property
    def _function(self) -> Callable[[Array, Array], tuple[Array, float, Array]]:
        start = self.model.normalize if isinstance(self.model, Explicit) else None
        function = cosine_function(self.model, start or self.norm, (self.kind,), self.depth)
        if start is None:
            return function
        factor = (self.norm / start) ** 2

        def scaled(u: Array, beyond: Array) -> tuple[Array, float, Array]:
            values, residual, lost = function(u, beyond)
            return factor * values, residual, factor * lost

        return scaled

    def __call__(self, t: ArrayLike) -> Any:
        """k(t) for real t in [−1, 1], as exactly as the engine computes a pair."""
        cosine = self._cosines(t)
        values = self.near(1 - cosine, 1 + cosine)
        return values if cosine.ndim else float(values)

    def near(self, gap: Array, rest: Array) -> Array:
        """k for 1 − t = `gap` and 1 + t = `rest`: near an end the smaller of them carries the digits."""
        u = np.sqrt(np.asarray(gap, dtype=np.float64))
        values, _, _ = self._function(u.ravel(), np.ravel(rest / (math.sqrt(2) + u)))
        return values[0].reshape(u.shape)

    def derivative(self, t: ArrayLike) -> Any:
        """dk/dt for real t; infinite at a kink's end for tangent kernels."""
        cosine = self._cosines(t)
        with np.errstate(divide="ignore", invalid="ignore"):
            _, slope = self._recursion(np.atleast_1d(cosine))
        return slope if cosine.ndim else float(slope[0])

    def series(self, k: int) -> Array:
        """b_0 … b_{k−1}, non-negative, to 1e-14 of k(1)."""
        wanted = count(k, "k")
        if wanted > _MOST:
            raise InputError(f"k={wanted} is too many coefficients; use k ≤ {_MOST}")
        points = 8 * max(64, 1 << (wanted - 1).bit_length())
        radius = 10.0 ** (-16 / points)
        circle = radius * np.exp(2j * np.pi * np.arange(points // 2 + 1) / points)
        values, _ = self._recursion(circle)
        scaled = np.fft.irfft(np.conj(values), points)[:wanted]
        return np.maximum(scaled * radius ** -np.arange(wanted), 0.0)

    @property
    def singularity(self) -> Singularity:
        """The leading singular terms of k at t = 1 and t = −1."""
        exponent = 1.5 if self.kind in ("ck", "nngp") else 0.5
        ends = [correlation for phi, correlation in _opposite(self) if phi.kinks]
        seen = any(correlation <= -1 + 1e-12 for correlation in ends)
        return Singularity(exponent if ends else math.inf, exponent if seen else math.inf)

    def polynomial(self) -> Polynomial | None:
        """The polynomial that the engine uses for rows of this norm, with its error; None where it solves pair by pair.

        Its variable is the one of :class:`notsodeep.kernels.polynomial.Variable`; for a homogeneous φ its t is the
        correlation of the drives σ_b² x·y + σ_0².
        """
        sample = Samples.of(np.array([[self.norm]]), np.dtype(np.float64))
        levels = network_levels(self.model, sample, self.depth)
        return choose(self.model, sample, sample, (levels, levels), (self.kind,), self.depth).polynomial

    def _cosines(self, t: ArrayLike) -> Array:
        cosine = np.asarray(t, dtype=np.float64)
        if not np.all(np.abs(cosine) <= 1):
            worst = cosine.ravel()[np.nanargmax(np.abs(cosine))] if np.isfinite(cosine).any() else math.nan
            raise InputError(f"t={worst:.6g} is not a cosine; use −1 ≤ t ≤ 1")
        return cosine


def on_sphere(model: DEQ | Explicit, kind: str = "ntk", norm: float = 1.0, depth: int | None = None) -> SphereKernel:
    """k(t) = Σ b_k tᵏ, the kernel of rows of norm `norm` as a function of the cosine.

    Parameters
    ----------
    model : DEQ or Explicit
    kind : str
        As in :func:`notsodeep.kernels.kernel`.
    norm : float
        ‖x‖ of every row.
    depth : int, optional
        The iterate after this many layers instead of the equilibrium. DEQ only.

    Returns
    -------
    SphereKernel
        Callable on arrays of t; ``derivative(t)``, ``series(k)``, ``singularity``, ``polynomial()``.
    """
    return SphereKernel(
        supported(model), choice(kind, model.kinds, "kind"), positive(norm, "norm"), check_depth(model, depth)
    )


def _opposite(kernel: SphereKernel) -> Iterator[tuple[Activation, float]]:
    """The activation of every level that the kernel depends on, and the correlation of its input at t = −1."""
    model, norm, depth = kernel.model, kernel.norm, kernel.depth
    if isinstance(model, Explicit):
        yield model.activations[0], -1.0
        for level in range(1, model.depth):
            before = SphereKernel(Explicit(model.activations[:level]), "ck", model.normalize or norm)
            yield model.activations[level], before(-1.0) / before(1.0)
        return
    steps: Iterable[int | None] = (None,) if depth is None else range(depth + (kernel.kind != "nngp"))
    if model.recurrent == 0 and kernel.kind == "nngp":
        steps = ()
    for step in steps:
        covariance = SphereKernel(model, "nngp", norm, step)
        yield model.activation, covariance(-1.0) / covariance(1.0)


# --- the recursions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Jet:
    """A function of t with its derivative."""

    value: Any
    slope: Any

    def __add__(self, other: Any) -> _Jet:
        return (
            _Jet(self.value + other.value, self.slope + other.slope)
            if isinstance(other, _Jet)
            else _Jet(self.value + other, self.slope)
        )

    __radd__ = __add__

    def __mul__(self, other: Any) -> _Jet:
        if isinstance(other, _Jet):
            return _Jet(self.value * other.value, self.value * other.slope + self.slope * other.value)
        return _Jet(self.value * other, self.slope * other)

    __rmul__ = __mul__

    def __rsub__(self, other: float) -> _Jet:
        return _Jet(other - self.value, -self.slope)

    def __rtruediv__(self, other: float) -> _Jet:
        return _Jet(other / self.value, -other * self.slope / self.value**2)


def _through(dual: Dual, variance: float, covariance: _Jet) -> tuple[_Jet, _Jet]:
    """G and Ġ = (dG/dρ)/q of a covariance Λ = qρ."""
    G, first, second = dual(covariance.value / variance)
    turn = covariance.slope / variance
    return _Jet(G, first * turn), _Jet(first / variance, second * turn / variance)


@singledispatch
def recursion(model: Any, kind: str, norm: float, depth: int | None) -> Recursion:
    """Return the kernel of this kind for rows of this norm as a function of complex t, with its derivative.

    A model joins by registering a function of the same arguments.
    """
    raise InputError(f"model={model!r} has no kernel on a sphere")


@recursion.register
def _explicit(model: Explicit, kind: str, norm: float, depth: int | None) -> Recursion:
    """Θˡ = Gˡ + Ġˡ Θˡ⁻¹; a network that normalises its rows sees one sphere only."""
    start = norm if model.normalize is None else model.normalize
    factor = (norm / start) ** 2
    variances = [start**2]
    for phi in model.activations:
        variances.append(moments(phi, math.sqrt(variances[-1])).power)
    duals = [complex_dual(phi, q) for phi, q in zip(model.activations, variances, strict=False)]

    def kernel(t: Array) -> tuple[Array, Array]:
        covariance = tangent = _Jet(variances[0] * t, variances[0] + 0 * t)
        for dual, q in zip(duals, variances, strict=False):
            covariance, slope = _through(dual, q, covariance)
            tangent = covariance + slope * tangent
        result = factor * (covariance if kind == "ck" else tangent)
        return result.value, result.slope

    return kernel


@recursion.register
def _deq(model: DEQ, kind: str, norm: float, depth: int | None) -> Recursion:
    if depth is not None:
        return _iterates(model, kind, norm, depth)
    square = model.input * norm**2
    q = model.fixed_variance(square + model.bias)
    dual = complex_dual(model.activation, q)

    def kernel(t: Array) -> tuple[Array, Array]:
        drive = (square * t + model.bias) / q
        rho = _equilibrium(dual, model.recurrent / q, drive)
        _, first, _ = dual(rho)
        covariance = _Jet(q * rho, square / (1 - model.recurrent * first / q))
        G, slope = _through(dual, q, covariance)
        result = combine(kind, G, slope, covariance, model.recurrent)
        return result.value, result.slope

    return kernel


def _iterates(model: DEQ, kind: str, norm: float, depth: int) -> Recursion:
    """Λ⁰ = P, then Λ⁽ʰ⁾ = σ_a² G + σ_b² P + σ_0² and Θ⁽ʰ⁾ = Λ⁽ʰ⁾ + σ_a² Ġ Θ⁽ʰ⁻¹⁾ [FK20, Thm 1]."""
    variances = [norm**2]
    for _ in range(depth):
        power = moments(model.activation, math.sqrt(variances[-1])).power
        variances.append(model.recurrent * power + model.input * norm**2 + model.bias)
    duals = [complex_dual(model.activation, q) for q in variances]

    def kernel(t: Array) -> tuple[Array, Array]:
        product = _Jet(norm**2 * t, norm**2 + 0 * t)
        covariance = tangent = product
        G, slope = _through(duals[0], variances[0], covariance)
        frozen = G
        for dual, q in zip(duals[1:], variances[1:], strict=True):
            covariance = model.recurrent * G + model.input * product + model.bias
            tangent = covariance + model.recurrent * (slope * tangent)
            G, slope = _through(dual, q, covariance)
            frozen = G + model.recurrent * (slope * frozen)
        kinds = {"ck": G, "nngp": covariance, "ntk_frozen_input": frozen, "ntk_injected": tangent}
        result = kinds[kind] if kind in kinds else G + slope * tangent
        return result.value, result.slope

    return kernel


def _equilibrium(dual: Dual, gain: float, drive: Array) -> Array:
    """ρ = gain·G(ρ) + drive on |ρ| ≤ 1: Newton, and the contraction itself where Newton would leave the disc."""
    rho = drive
    for _ in range(2):
        rho = gain * dual(rho)[0] + drive
    before = math.inf
    for iteration in range(_ITERATIONS):
        G, first, _ = dual(rho)
        image = gain * G + drive
        excess = rho - image
        proposal = rho - excess / (1 - gain * first)
        largest = float(np.max(np.abs(excess)))
        if largest <= 4e-16 or (iteration > 8 and largest >= before / 2 and largest < 1e-14):
            break
        before = largest
        size = np.abs(proposal)
        rho = np.where(size <= 1, proposal, image / np.maximum(np.abs(image), 1))
    return rho
