"""Offsets between two positions, for a pooled readout: each is a separate problem on the overlap of two images.

For the offset Δ the unknowns are Σ at the pairs (α, α + Δ) that lie inside, a rectangle. Shifted copies of the
per-image quantities turn it into the problem at offset zero, with two changes near the border of the rectangle: the
windows miss positions that leave one of the images, and the weight is 1/(S_α S_{α+Δ}).

The pairs of a rectangle depend on each other through the windows, so all of them are solved. A readout that pools over
blocks needs the offsets within a block only, and counts those pairs that lie in one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.kernels.conv.geometry import Geometry

__all__ = ["Offset", "offsets"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Offset:
    """The overlap of an image with a copy of itself moved by (down, right)."""

    whole: Geometry
    down: int
    right: int

    @property
    def geometry(self) -> Geometry:
        whole = self.whole
        if whole.circular:
            return whole
        return Geometry(whole.rows - abs(self.down), whole.width - abs(self.right), whole.size, False)

    def first(self, values: Array) -> Array:
        """Values (..., rows, width) at the positions α."""
        if self.whole.circular:
            return values
        rows, width = self.whole.rows, self.whole.width
        return values[
            ..., max(0, -self.down) : rows - max(0, self.down), max(0, -self.right) : width - max(0, self.right)
        ]

    def second(self, values: Array) -> Array:
        """Values (..., rows, width) at the positions α + Δ."""
        if self.whole.circular:
            return np.roll(values, (-self.down, -self.right), axis=(-2, -1))
        return Offset(self.whole, -self.down, -self.right).first(values)

    @property
    def area(self) -> Array:
        """S_α S_{α+Δ}."""
        return np.sqrt(self.first(self.whole.area) * self.second(self.whole.area))

    def counted(self, block: tuple[int, int]) -> Array:
        """1 where α and α + Δ lie in the same block, else 0; blocks do not continue beyond a side."""
        down, right = (np.arange(n) // side for n, side in zip((self.whole.rows, self.whole.width), block, strict=True))
        number = np.add.outer(self.whole.width * down, right)
        return (self.first(number) == self.second(number)).astype(np.float64)

    def spread(self, counted: Array) -> Array:
        """Σ_α 1/(S_α S_{α+Δ}) over the windows that contain a position and whose α is counted."""
        return self.geometry.window(counted / self.area)

    @property
    def lowest(self) -> float:
        """A lower bound of the spectrum of the weighted window sums.

        Per axis it is −1 + 2/size: each position has at least the weight 1/size itself and at most 1 altogether.
        """
        return self.whole.lowest if self.whole.circular else min(0.0, -1 + 2 / self.whole.size)

    def missed(self, sources: Array, part: Any) -> Array:
        """The part of the window sum at each position that lies outside the rectangle.

        sources : (σ_a² v q + σ_b² |x|²)/2 of whole images; part : `first` or `second`.
        """
        if self.whole.circular:
            return np.zeros_like(sources)
        beyond = sources.copy()
        part(beyond)[...] = 0.0
        return part(self.whole.window(beyond))


def offsets(whole: Geometry, block: tuple[int, int]) -> Iterator[Offset]:
    """Every offset between two positions of a block, once: Δ and Δ − P are the same one if the image is circular."""
    down, right = (
        sorted({i % n if whole.circular else i for i in range(1 - side, side)})
        for n, side in zip((whole.rows, whole.width), block, strict=True)
    )
    for i in down:
        for j in right:
            yield Offset(whole, i, j)
