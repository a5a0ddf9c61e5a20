"""What every method of computing a kernel gives: a pass, its arguments, and its stated error.

:mod:`~notsodeep.kernels.univariate` and :mod:`~notsodeep.kernels.pairwise` make plans; ``dense`` chooses among them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from notsodeep.kernels.polynomial import Polynomial

__all__ = ["PerSample", "Plan", "Summary", "sides"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Summary:
    """What the tiles of a finished plan reported."""

    residual: float
    error: float
    recomputed: int = 0
    iterations: int = 0

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both; a NaN stays one."""
        return Summary(
            float(np.maximum(self.residual, other.residual)),
            float(np.maximum(self.error, other.error)),
            self.recomputed + other.recomputed,
            max(self.iterations, other.iterations),
        )


class PerSample(NamedTuple):
    """An argument with one entry per row (side 0) or column (side 1) of the kernel, along `axis`."""

    side: int
    values: Any  # an array, or a named tuple of arrays
    axis: int = -1

    def part(self, spans: tuple[slice, slice]) -> Any:
        span = spans[self.side]
        if isinstance(self.values, tuple):
            return type(self.values)(*(np.ascontiguousarray(a[..., span]) for a in self.values))
        return np.ascontiguousarray(self.values[span] if self.axis == 0 else self.values[..., span])


def sides(left: Any, right: Any, *, axis: int = -1) -> tuple[PerSample, PerSample]:
    """Mark arguments of the rows and of the columns."""
    return PerSample(0, left, axis), PerSample(1, right, axis)


@dataclass(frozen=True)
class Plan:
    """A pass with its arguments between `out` and the tile's ranges, and how to read what it returns.

    Arrays with an entry per sample are marked (:class:`PerSample`), so a plan for all samples serves any subset.
    A pass may leave entries at infinity; the last number it returns is their count, and `rest` solves them. A tile then
    reports a pair.
    """

    method: str
    function: Any
    arguments: tuple[Any, ...]
    summarise: Callable[[list[Any]], Summary]
    variable: str = ""
    degree: int = 0
    rest: Plan | None = None
    polynomial: Polynomial | None = None

    def over(self, rows: slice, columns: slice) -> Callable[[Array, int, int, int, int, bool], Any]:
        """Return the pass for a rectangle; its tiles are counted from the rectangle's corner."""
        arguments = self.bound(rows, columns)
        if self.rest is None:
            return lambda out, *tile: self.function(out, *arguments, *tile)
        rest = self.rest.over(rows, columns)

        def both(out: Array, *tile: Any) -> Any:
            report = self.function(out, *arguments, *tile)
            return report, rest(out, *tile) if report[-1] else 0.0

        return both

    def bound(self, rows: slice, columns: slice) -> tuple[Any, ...]:
        """Return the arguments restricted to these samples."""
        return tuple(a.part((rows, columns)) if isinstance(a, PerSample) else a for a in self.arguments)

    def compile(self, out: Array) -> float:
        """Compile (or load) the pass for these arguments; return the seconds it took."""
        began = time.perf_counter()
        arguments = self.bound(slice(0, 1), slice(0, 1))
        self.function.compile(tuple(numba.typeof(a) for a in (out, *arguments, 0, 0, 0, 0, True)))
        return time.perf_counter() - began
