"""Positively homogeneous activations: the fixed point in the angle θ = arccos ρ.

With φ(x) = a·max(x, 0) + b·min(x, 0), v = (a² + b²)/2 and e = (a − b)²/(2π):

    κ(θ) = v cos θ + e (sin θ − θ cos θ),    Ġ(θ) = v − e θ,
    1 − t = 2 sin²(θ/2) + g (sin θ − θ cos θ),   g = σ_a² e / (1 − σ_a² v),

where t is the correlation of the drives σ_b² x·y + σ_0² (after the terms of a constant shift).
The right-hand side is increasing in θ with slope sin θ (1 + gθ): its zeros are the branch points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep import compilation
from notsodeep.activations import Activation, PiecewiseLinear
from notsodeep.kernels.polynomial import Variable
from notsodeep.kinds import Kind, combine

__all__ = ["Arc", "lens", "lens_of"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Arc:
    """The numbers of a homogeneous φ with σ_a²."""

    recurrent: float
    power: float  # v = E[φ(ξ)²]
    bend: float  # e = (a − b)²/(2π)
    mean: float  # E[φ(ξ)]

    @staticmethod
    def of(phi: Activation, recurrent: float) -> Arc:
        shape = phi.shape
        assert isinstance(shape, PiecewiseLinear)
        assert shape.homogeneous
        factor = phi.scale * phi.stretch
        high, low = factor * shape.slopes[-1], factor * shape.slopes[0]
        return Arc(
            recurrent,
            power=(high**2 + low**2) / 2,
            bend=(high - low) ** 2 / (2 * math.pi),
            mean=(high - low) / math.sqrt(2 * math.pi),
        )

    @property
    def rest(self) -> float:
        """1 − σ_a² v."""
        return 1 - self.recurrent * self.power

    @property
    def g(self) -> float:
        return self.recurrent * self.bend / self.rest

    def gap(self, theta: Array) -> Array:
        """1 − t as a function of θ."""
        return 2 * np.sin(theta / 2) ** 2 + self.g * lens_of(theta)

    def angle(self, u: Array, room: Array | None = None) -> Array:
        """θ for u = √(1 − t), by Newton on an increasing function (bisection keeps it in [0, π]).

        `room` = largest² − u² to full relative accuracy, for u so close to `largest` that the subtraction would cancel.
        """
        gap = np.asarray(u, dtype=np.float64) ** 2
        start = np.minimum(2 * np.arcsin(np.minimum(np.sqrt(gap / 2), 1.0)), math.pi)
        theta = _increasing(self.gap, lambda x: np.sin(x) * (1 + self.g * x), gap, start)
        if room is None:
            return theta
        # measured from θ = π: 2 + gπ − (1 − t) = 2 sin²(x/2)(1 + gπ) − g (sin x − x cos x) with x = π − θ
        wide = 1 + self.g * math.pi
        start = 2 * np.arcsin(np.minimum(np.sqrt(room / (2 * wide)), 1.0))
        other = _increasing(
            lambda x: 2 * wide * np.sin(x / 2) ** 2 - self.g * lens_of(x),
            lambda x: np.sin(x) * (wide - self.g * x),
            np.asarray(room),
            start,
        )
        return np.where(room < gap, math.pi - other, theta)

    def residual(self, u: Array) -> float:
        """The largest fixed-point residual of `angle` at the given points."""
        return float(np.max(np.abs(self.gap(self.angle(u)) - np.asarray(u) ** 2)))

    def kernel(self, kind: str, theta: Array) -> Array:
        """The kernel for unit variances and no shift."""
        rho = np.cos(theta)
        power, slope = self.power * rho + self.bend * lens_of(theta), self.power - self.bend * theta
        return combine(Kind.of(kind), power, slope, rho, self.recurrent)

    def gain(self, theta: Array) -> Array:
        """1/(1 − σ_a² Ġ)."""
        return 1 / (1 - self.recurrent * (self.power - self.bend * theta))

    @property
    def largest(self) -> float:
        """u at θ = π, the smallest possible correlation."""
        return math.sqrt(2 + self.g * math.pi)

    def variables(self, largest: float) -> list[Variable]:
        """Candidate variables: u ∈ [0, largest], and u with the branch points θ = π and θ = −1/g removed."""
        candidates = [Variable("u", largest), Variable("above", largest, self.largest)]
        if self.g > 1 / math.pi:  # −1/g in (−π, 0): the point where σ_a² Ġ = 1
            edge = float(self.gap(np.asarray(-1 / self.g)))
            if edge > 0:
                candidates.append(Variable("below", largest, math.sqrt(edge)))
        return candidates


def _increasing(function: Any, slope_of: Any, target: Array, start: Array) -> Array:
    """x in [0, π] with function(x) = target."""
    low, high = np.zeros_like(target), np.full_like(target, math.pi)
    x = start
    for _ in range(80):
        excess = function(x) - target
        low, high = np.where(excess < 0, x, low), np.where(excess > 0, x, high)
        slope = slope_of(x)
        proposal = x - np.divide(excess, slope, out=np.zeros_like(target), where=slope > 1e-300)
        outside = (proposal < low) | (proposal > high)
        proposal = np.where(outside, (low + high) / 2, proposal)
        done = np.abs(proposal - x) <= 4e-16 * x
        x = proposal
        if np.all(done):
            break
    return x


@compilation.jit(nogil=True, error_model="numpy")
def lens(theta: float) -> float:
    """sin θ − θ cos θ = θ³/3 − θ⁵/30 + …, by its series where the difference would cancel."""
    if abs(theta) > 0.4:
        return math.sin(theta) - theta * math.cos(theta)
    x = theta * theta
    series = 1 / 3991680 - x / 518918400
    for denominator in (-45360.0, 840.0, -30.0, 3.0):
        series = series * x + 1 / denominator
    return theta * x * series


def lens_of(theta: Array) -> Array:
    """The same for an array."""
    theta = np.asarray(theta, dtype=np.float64)
    x = theta * theta
    series = 1 / 3991680 - x / 518918400
    for denominator in (-45360.0, 840.0, -30.0, 3.0):
        series = series * x + 1 / denominator
    return np.where(np.abs(theta) > 0.4, np.sin(theta) - theta * np.cos(theta), theta * x * series)
