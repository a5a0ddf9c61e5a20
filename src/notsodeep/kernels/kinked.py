"""The kernels of one piecewise-linear layer on the unit sphere, fast enough for a fit of its kinks.

With slopes that change by s_i at the places c_i, Price's theorem gives

    k''(t) = Σ_ij s_i s_j p(c_i, c_j; t),    k'(0) = E[σ']²,    k(0) = E[σ]²,

p the density of two standard normals with correlation t. So k and k' are one integral each over t = sin θ, in which
p dt = exp(−(c² + d² − 2cdt)/(2 − 2t²)) dθ/2π is smooth. The NTK is k + t k'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["KinkedLayer"]

Array: TypeAlias = NDArray[Any]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True, eq=False)
class KinkedLayer:
    """Values at t = cos(angle) for increasing angles from 0 to π, π/2 among them; short intervals are accurate."""

    angles: Array

    @cached_property
    def _rule(self) -> tuple[Array, Array, Array]:
        """Angles inside all intervals (intervals, 8), their weights, and which intervals lie beyond π/2."""
        half = np.diff(self.angles)[:, None] / 2
        inside = self.angles[:-1, None] + half + half * _NODES
        return inside, half * _WEIGHTS / (2 * math.pi), self.angles[:-1] >= math.pi / 2 - 1e-9

    def __call__(self, places: Array, slopes: Array, origin: float, tangent: bool) -> Array:
        """CK, or NTK if `tangent`, for σ(0) = origin and these slopes before, between and after the places."""
        jumps = np.diff(slopes)
        above = special.ndtr(-places)
        bumps = np.exp(-(places**2) / 2) / math.sqrt(2 * math.pi) - places * above  # E[(ξ − c)₊]
        mean = origin + jumps @ (bumps - np.maximum(-places, 0.0))
        slope = slopes[0] + jumps @ above
        inside, weight, negative = self._rule
        t, square = np.cos(inside), np.sin(inside) ** 2
        density = np.zeros_like(t)
        for i, c in enumerate(places):
            for d, jump in zip(places[i:], jumps[i:], strict=True):
                # c² + d² − 2cdt = (c ∓ d)² ± 2cd(1 ∓ t): without cancellation at t = ±1
                near, far = np.where(t > 0, (c - d) ** 2, (c + d) ** 2), np.where(t > 0, c * d, -c * d)
                density += jumps[i] * jump * (1 + (c != d)) * np.exp(-near / (2 * square) - far / (1 + np.abs(t)))
        pieces = np.stack([(weight * density).sum(1), (weight * density * t).sum(1)])
        # ∫ from t = 0: towards smaller angles t grows
        start = int(np.argmax(np.append(negative, True)))
        up = np.cumsum(pieces[:, :start][:, ::-1], axis=1)[:, ::-1]
        down = -np.cumsum(pieces[:, start:], axis=1)
        first, moment = np.concatenate([up, np.zeros((2, 1)), down], axis=1)
        cosine = np.cos(self.angles)
        derivative = slope**2 + first
        value = mean**2 + cosine * derivative - moment
        return np.asarray(value + cosine * derivative if tangent else value)
