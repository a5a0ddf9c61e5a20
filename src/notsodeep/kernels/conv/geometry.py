"""Where the pixels of an image lie in memory, and the window average as a matrix per axis.

The average over the window, (B M)_α = (1/S_α²) Σ_shift M_{α+δ}, is a Kronecker product of one matrix per axis, so
linear equations in it are solved by two small eigendecompositions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Geometry", "aligned"]

Array: TypeAlias = NDArray[Any]

_LINE = 16  # numbers; sweeps start at multiples of it


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Zeros that start at a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 64, np.uint8)
    offset = -raw.ctypes.data % 64
    return raw[offset : offset + size].view(dtype).reshape(shape)


@dataclass(frozen=True)
class Geometry:
    """Images of rows × width positions, a filter of `size` × `size`, zero or circular padding."""

    rows: int
    width: int
    size: int
    circular: bool

    @property
    def half(self) -> int:
        return self.size // 2

    @property
    def stride(self) -> int:
        """From one row to the next: a margin after each row, on both sides for circular padding."""
        return self.width + self.half * (2 if self.circular else 1)

    @property
    def start(self) -> int:
        """Where the first pixel lies."""
        return -(-(self.half * (self.stride + 1) + _LINE - 1) // _LINE) * _LINE

    @property
    def count(self) -> int:
        """From the first pixel to the last, margins between rows included."""
        return (self.rows - 1) * self.stride + self.width

    @property
    def length(self) -> int:
        return -(-(self.start + self.count + self.half * (self.stride + 1) + _LINE) // _LINE) * _LINE

    @property
    def shape(self) -> tuple[int, int, int, slice, slice, bool]:
        """For the compiled loops: the sizes, the slice of the pixels, and the same half a filter wider."""
        first, last = self.start, self.start + self.count
        at, around = slice(first, last), slice(first - self.half, last + self.half)
        return self.rows, self.width, self.stride, at, around, self.circular

    @property
    def taps(self) -> tuple[int, ...]:
        return (0,) * self.size

    @cached_property
    def positions(self) -> Array:
        """Index of every pixel, row by row."""
        return (self.start + self.stride * np.arange(self.rows)[:, None] + np.arange(self.width)).ravel()

    def place(self, values: Array, dtype: Any = np.float64) -> Array:
        """Values (..., rows, width) in the flat layout, with zeros on the margins."""
        flat = aligned((*values.shape[:-2], self.length), dtype)
        flat[..., self.positions] = values.reshape(*values.shape[:-2], -1)
        return flat

    @cached_property
    def axes(self) -> tuple[Array, Array]:
        """Window sums along each axis: ones where two positions share a window."""
        return _band(self.rows, self.half, self.circular), _band(self.width, self.half, self.circular)

    @cached_property
    def area(self) -> Array:
        """S², the number of positions in the window of each position, (rows, width)."""
        first, second = (axis.sum(1) for axis in self.axes)
        return np.multiply.outer(first, second)

    @cached_property
    def spread(self) -> Array:
        """Σ_α B_αβ: 1 for circular padding, and away from the border."""
        return self.axes[0] @ (1 / self.area) @ self.axes[1]

    @cached_property
    def _spectrum(self) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
        """λ, V and V⁻¹ of B along each axis; B = D⁻¹ A is similar to the symmetric D^(−1/2) A D^(−1/2)."""
        parts = []
        for axis in self.axes:
            root = np.sqrt(axis.sum(1))
            value, vector = np.linalg.eigh(axis / np.multiply.outer(root, root))
            parts.append((value, vector / root[:, None], vector.T * root))
        return parts[0], parts[1]

    @cached_property
    def lowest(self) -> float:
        """The smallest eigenvalue of B (the largest is 1), at most 0."""
        first, second = (value for value, _, _ in self._spectrum)
        return min(0.0, float(np.multiply.outer(first, second).min()))

    def average(self, values: Array) -> Array:
        """B applied to values (..., rows, width)."""
        return self.axes[0] @ values @ self.axes[1] / self.area

    def solve(self, factor: float, values: Array) -> Array:
        """x = factor·B x + values, for values (..., rows, width)."""
        (first, left, left_inverse), (second, right, right_inverse) = self._spectrum
        modes = left_inverse @ values @ right_inverse.T
        modes /= 1 - factor * np.multiply.outer(first, second)
        return left @ modes @ right.T


def _band(n: int, half: int, circular: bool) -> Array:
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    if circular:
        distance = np.minimum(distance, n - distance)
    return (distance <= half).astype(np.float64)
