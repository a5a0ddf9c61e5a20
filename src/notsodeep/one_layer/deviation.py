"""How far a power series is from a kernel on the sphere: a bound over all cosines."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.kernels.power_series import PowerSeries
from notsodeep.kernels.sphere import SphereKernel

__all__ = ["Ruler"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Ruler:
    """sup |k̂ − k|/k(1) over −1 ≤ t ≤ 1, from the values of k at nodes that are computed once.

    Both are power series with non-negative coefficients, so they are at most k(1) in size on the unit disc. Divide
    [0, 1] into [1 − 2⁻ʲ, 1 − 2⁻ʲ⁻¹], j = 0, 1, … Around each of them the disc that touches 1 has room for the
    ellipse with semi-axes of 3 half-lengths, and there the interpolation in N Chebyshev nodes is off by at most
    4·2k(1)·ρ^{−N}/(ρ − 1) with ρ = 3 + √8: 1e-15 for N = 20. A polynomial of degree N − 1 is at most 1/cos(π/32) times
    its largest value at 16N nodes. Beyond the last interval both increase by no more than k(1) − k(1 − 2⁻ᴶ), on the
    negative side as well.
    """

    kernel: SphereKernel
    nodes: int = 20

    @cached_property
    def _gaps(self) -> Array:
        """1 − |t| at the nodes of all intervals, then at the last edge and at the end."""
        nodes = np.cos(np.pi * (np.arange(self.nodes) + 0.5) / self.nodes)
        halves = 0.5 ** np.arange(self._intervals)
        return np.append(np.multiply.outer(halves, 0.75 + nodes / 4), [0.5**self._intervals, 0.0])

    @property
    def _intervals(self) -> int:
        """So many that the rest is below 1e-15: k falls from 1 like √(1 − t) if a tangent kernel has a kink."""
        return 100 if self.kernel.singularity.plus < 1 else 52

    @cached_property
    def _values(self) -> tuple[Array, Array]:
        gap = self._gaps
        return self.kernel.near(gap, 2 - gap), self.kernel.near(2 - gap, gap)

    @cached_property
    def _refined(self) -> Array:
        """Values at N Chebyshev nodes → at 16N."""
        coarse, fine = (np.cos(np.pi * (np.arange(n) + 0.5) / n) for n in (self.nodes, 16 * self.nodes))
        vandermonde = np.polynomial.chebyshev.chebvander
        return np.asarray(vandermonde(fine, self.nodes - 1) @ np.linalg.inv(vandermonde(coarse, self.nodes - 1)))

    def fitted(self, squares: Array, tangent: bool) -> PowerSeries:
        """A series with these coefficients and a tail fitted at every third node."""
        return PowerSeries.fitted(squares, self._gaps[self._some], np.stack(self._values)[:, self._some], tangent)

    def missing(self, found: PowerSeries, tangent: bool) -> tuple[Array, Array]:
        """Every third gap 1 − |t|, and k − k̂ (2, gaps) there for t > 0 and for t < 0."""
        gap = self._gaps[self._some]
        values = [found.values(gap, sign, tangent) for sign in (1.0, -1.0)]
        return gap, np.stack(self._values)[:, self._some] - np.stack(values)

    @property
    def _some(self) -> Array:
        return np.unique(np.append(np.arange(0, self._gaps.size, 3), [self._gaps.size - 2, self._gaps.size - 1]))

    def sampled(self, found: Callable[[Array, float], Array]) -> float:
        """The largest at some nodes: enough for a choice."""
        some = slice(None, None, 7)
        both = zip((1.0, -1.0), self._values, strict=True)
        largest = max(float(np.abs(found(self._gaps[some], sign) - goal[some]).max()) for sign, goal in both)
        return largest / self.kernel(1.0)

    def __call__(self, found: Callable[[Array, float], Array]) -> float:
        """For k̂(sign·(1 − gap)) = found(gap, sign)."""
        top, worst, size = self.kernel(1.0), 0.0, 0.0
        for sign, goal in zip((1.0, -1.0), self._values, strict=True):
            values = found(self._gaps, sign)
            deviation = values - goal
            inner = deviation[:-2].reshape(self._intervals, self.nodes)
            worst = max(worst, float(np.abs(inner @ self._refined.T).max()) / math.cos(math.pi / 32))
            if sign > 0:  # Σ b_k (1 − |t|ᵏ) of both: what remains beyond the last edge
                rest = abs(float(goal[-1] - goal[-2])) + abs(float(values[-1] - values[-2]))
                size = float(abs(goal[-1]) + abs(values[-1]))
            worst = max(worst, abs(float(deviation[-2])), abs(float(deviation[-1]))) + rest
        rho = 3 + math.sqrt(8)
        return (worst + 4 * size * rho**-self.nodes / (rho - 1)) / top
