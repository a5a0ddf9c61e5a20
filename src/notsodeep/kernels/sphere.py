"""The kernel of rows of equal norm as a function of their cosine t: values, derivative, power series, singularity.

By Schoenberg's theorem every kernel that is positive definite on spheres of all dimensions is

    k(t) = Σ_k b_k tᵏ,   b_k ≥ 0,   Σ_k b_k = k(1).

The coefficients are a Fourier transform of k on a circle of radius r < 1: with N points, b_k rᵏ is known to rounding
plus b_{k+N} r^{k+N}, and r^N = 1e-16 leaves 1e-14 for k < N/8. This works for every model
that has a recursion.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.activations import Activation
from notsodeep.checks import InputError, choice, count, positive
from notsodeep.kernels.analytic import Dual, complex_dual
from notsodeep.kernels.dense import Network, check_depth, plan_for, recursion_of, supported
from notsodeep.kernels.polynomial import Polynomial
from notsodeep.kernels.samples import Samples, levels_of
from notsodeep.kernels.univariate import cosine_function
from notsodeep.kinds import Kind
from notsodeep.models import Explicit
from notsodeep.recursion import Recursion

__all__ = ["ComplexKernel", "Singularity", "SphereKernel", "on_sphere"]

Array: TypeAlias = NDArray[Any]

_MOST = 1 << 17  # coefficients at a time
_ITERATIONS = 200
_ROUNDING = 1e-12  # how far rounding may move a cosine beyond [−1, 1]


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

    model: Network
    kind: str
    norm: float
    depth: int | None = None

    @property
    def _radius(self) -> float:
        """The norm of the rows as the network sees them: fixed by a network that normalises its rows."""
        return (self.model.normalize if isinstance(self.model, Explicit) else None) or self.norm

    @cached_property
    def _sample(self) -> Samples:
        return Samples.of(np.array([[self._radius]]), np.dtype(np.float64))

    @cached_property
    def _recursion(self) -> Recursion:
        return recursion_of(self.model, self.depth, self._sample)

    @cached_property
    def _complex(self) -> ComplexKernel:
        return ComplexKernel(self._recursion, self.kind, self._radius**2)

    @cached_property
    def _function(self) -> Callable[[Array, Array], tuple[Array, float, Array]]:
        function = cosine_function(self._recursion, self._radius, (self.kind,))
        factor = (self.norm / self._radius) ** 2
        if factor == 1:
            return function

        def scaled(u: Array, beyond: Array) -> tuple[Array, float, Array]:
            values, residual, lost = function(u, beyond)
            return factor * values, residual, factor * lost

        return scaled

    def __call__(self, t: ArrayLike) -> Any:
        """k(t) for real t in [−1, 1], with the accuracy of the engine's pairwise method."""
        cosine = self._cosines(t)
        values = self.near(1 - cosine, 1 + cosine)
        return values if cosine.ndim else float(values)

    def near(self, gap: Array, rest: Array) -> Array:
        """k for 1 − t = `gap` and 1 + t = `rest`; near an end the smaller of them must be accurate."""
        u = np.sqrt(np.asarray(gap, dtype=np.float64))
        values, _, _ = self._function(u.ravel(), np.ravel(rest / (math.sqrt(2) + u)))
        return values[0].reshape(u.shape)

    def derivative(self, t: ArrayLike) -> Any:
        """dk/dt for real t; infinite at a kink's end for tangent kernels."""
        cosine = self._cosines(t)
        with np.errstate(divide="ignore", invalid="ignore"):
            _, slope = self._complex(np.atleast_1d(cosine))
        slope = (self.norm / self._radius) ** 2 * slope
        return slope if cosine.ndim else float(slope[0])

    def series(self, k: int) -> Array:
        """b_0 … b_{k−1}, non-negative, to 1e-14 of k(1)."""
        wanted = count(k, "k")
        if wanted > _MOST:
            raise InputError(f"k={wanted} is too many coefficients; use k ≤ {_MOST}")
        points = 8 * max(64, 1 << (wanted - 1).bit_length())
        radius = 10.0 ** (-16 / points)
        circle = radius * np.exp(2j * np.pi * np.arange(points // 2 + 1) / points)
        values = (self.norm / self._radius) ** 2 * self._complex(circle)[0]
        scaled = np.fft.irfft(np.conj(values), points)[:wanted]
        return np.maximum(scaled * radius ** -np.arange(wanted), 0.0)

    @property
    def last(self) -> tuple[Activation, float]:
        """The activation of the last level, and the variance of its input."""
        return self._recursion.activations[-1], self._complex.variances[-1]

    @property
    def singularity(self) -> Singularity:
        """The leading singular terms of k at t = 1 and t = −1."""
        exponent = 1.5 if Kind.of(self.kind).is_process else 0.5
        ends = [correlation for phi, correlation in self._complex.opposite() if phi.kinks]
        seen = any(correlation <= -1 + 1e-12 for correlation in ends)
        return Singularity(exponent if ends else math.inf, exponent if seen else math.inf)

    def polynomial(self) -> Polynomial | None:
        """The polynomial that the engine uses for rows of this norm, with its error; None where it solves pair by pair.

        Its variable is the one of :class:`notsodeep.kernels.polynomial.Variable`; for a homogeneous φ its t is the
        correlation of the drives σ_b² x·y + σ_0².
        """
        levels = levels_of(self._recursion, self._sample)
        return plan_for(self._recursion, self._sample, self._sample, (levels, levels), (self.kind,)).polynomial

    def _cosines(self, t: ArrayLike) -> Array:
        cosine = np.asarray(t, dtype=np.float64)
        if not np.all(np.abs(cosine) <= 1 + _ROUNDING):
            worst = cosine.ravel()[np.nanargmax(np.abs(cosine))] if np.isfinite(cosine).any() else math.nan
            raise InputError(f"t={worst:.6g} is not a cosine; use −1 ≤ t ≤ 1")
        return np.clip(cosine, -1, 1)


def on_sphere(model: Network, kind: str = "ntk", norm: float = 1.0, depth: int | None = None) -> SphereKernel:
    """k(t) = Σ b_k tᵏ, the kernel of rows of norm `norm` as a function of the cosine.

    Parameters
    ----------
    model : DEQ, DeepDEQ or Explicit
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


@dataclass(frozen=True)
class _Passed:
    """Result of one pass through the levels; tangents start at 0."""

    state: _Jet  # K_L
    covariance: _Jet  # Λ_L
    injected: _Jet  # S_L = Λ_L + σ_L² T_{L−1}
    tangent: _Jet  # T_L = Ġ_L S_L
    frozen: _Jet  # F_L = G_L + σ_L² Ġ_L F_{L−1}
    loop: _Jet  # Π σ² Ġ
    correlations: tuple[Array, ...]  # of the inputs of the levels


class ComplexKernel:
    """A kernel of a recursion for rows with ‖x‖² = `square`, as a function of complex t, |t| ≤ 1, with its derivative.

    An array of complex t is a path whose points are close to each other.
    """

    def __init__(self, recursion: Recursion, kind: str, square: float) -> None:
        self.recursion, self.kind, self.square = recursion, kind, square
        self.power = recursion.state(square)
        self.variances = recursion.passed(self.power, square)
        self.outputs = [layer.output(q)[1:] for layer, q in zip(recursion.layers, self.variances, strict=True)]
        self.duals = [complex_dual(phi, q) for phi, q in zip(recursion.activations, self.variances, strict=True)]

    def __call__(self, t: Array) -> tuple[Array, Array]:
        """k(t) and dk/dt."""
        found = self._solved(t)
        gain: Any = 1.0 / (1 - found.loop) if self._loops else 1.0
        if self.kind == "ck":
            result = found.state
        elif self.kind == "nngp":
            result = found.covariance
        elif self.kind == "ntk":
            result = found.state + found.tangent * gain
        elif self.kind == "ntk_frozen_input":
            result = found.frozen * gain
        else:  # a DEQ of one layer, or a finite depth
            again = self.recursion.layers[-1].recurrent if self._loops else 0.0
            result = found.injected + again * (found.tangent * gain)
        return result.value, result.slope

    def opposite(self) -> list[tuple[Activation, float]]:
        """The activation of every level that the kernel depends on, and the correlation of its input at t = −1."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = [float(rho[0]) for rho in self._solved(np.array([-1.0])).correlations]
        pairs = list(zip(self.recursion.activations, ends, strict=True))
        return pairs[:-1] if self.kind == "nngp" and not self._loops else pairs

    @property
    def _loops(self) -> bool:
        """Whether the output of the last level is fed back."""
        return self.recursion.closed and all(layer.recurrent for layer in self.recursion.layers)

    def _solved(self, t: Array) -> _Passed:
        if not self._loops:
            start = self._pass(t, _Jet(0.0, 0.0)).state if self.recursion.closed else _Jet(0.0, 0.0)
            return self._pass(t, start)
        state = self._equilibrium(t)
        at = self._pass(t, _Jet(state, 0.0))
        return self._pass(t, _Jet(state, at.state.slope / (1 - at.loop.value)))

    def _pass(self, t: Array, state: _Jet) -> _Passed:
        product = _Jet(self.square * t, self.square + 0 * t)
        zero = _Jet(0 * t, 0 * t)
        tangent = covariance = injected = zero
        frozen: _Jet | None = None
        loop: Any = 1.0
        correlations = []
        for layer, q, (mean, scale), dual in zip(
            self.recursion.layers, self.variances, self.outputs, self.duals, strict=True
        ):
            covariance = layer.recurrent * state + layer.input * product + layer.bias
            correlations.append(covariance.value / q)
            state, slope = _through(dual, q, covariance)
            if layer.normalize:
                state, slope = (state + (-(mean**2))) * (1 / scale**2), slope * (1 / scale**2)
            injected = covariance + layer.recurrent * tangent
            tangent = slope * injected
            # where Ġ has an infinite derivative, nothing is multiplied by 0
            frozen = state if frozen is None or not layer.recurrent else state + layer.recurrent * (slope * frozen)
            loop = loop * (layer.recurrent * slope)
        assert frozen is not None
        return _Passed(state, covariance, injected, tangent, frozen, loop, tuple(correlations))

    def _equilibrium(self, t: Array) -> Array:
        """Solve K = F(K) on |K| ≤ K(1) by Newton, or by plain iteration where Newton would leave the disc."""
        top = max(self.power, 1e-300)
        state = 0.0 * t
        for _ in range(2):
            state = self._pass(t, _Jet(state, 0.0)).state.value
        before = math.inf
        for iteration in range(_ITERATIONS):
            found = self._pass(t, _Jet(state, 0.0))
            image = found.state.value
            excess = state - image
            proposal = state - excess / (1 - found.loop.value)
            largest = float(np.max(np.abs(excess))) / top
            if largest <= 4e-16 or (iteration > 8 and largest >= before / 2 and largest < 1e-14):
                break
            before = largest
            inside = np.abs(proposal) <= top
            state = np.where(inside, proposal, image / np.maximum(np.abs(image) / top, 1))
        return np.asarray(state)
