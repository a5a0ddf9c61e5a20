"""The memory layout of the pixels of an image, and the window average as a matrix per axis.

The average over the window, (B M)_α = (1/S_α²) Σ_shift M_{α+δ}, is a Kronecker product of one matrix per axis, so
linear equations in it need nothing but products of small matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Geometry", "aligned", "block_means"]

Array: TypeAlias = NDArray[Any]

_LINE = 16  # numbers; sweeps start at multiples of it
_NOTHING = 1e-34  # less than the square of rounding


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

    @staticmethod
    @lru_cache(maxsize=32)
    def of(rows: int, width: int, size: int, circular: bool) -> Geometry:
        """The geometry with what an earlier call has computed of it."""
        return Geometry(rows, width, size, circular)

    @property
    def half(self) -> int:
        return self.size // 2

    @property
    def stride(self) -> int:
        """Distance between rows: each row has a margin after it, and on both sides for circular padding."""
        return self.width + self.half * (2 if self.circular else 1)

    @property
    def start(self) -> int:
        """Index of the first pixel."""
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
        """For the compiled loops: the sizes, the slice of the pixels, and this slice widened by half a filter."""
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

    def wrap(self, flat: Array) -> None:
        """Continue flat values beyond all sides of a circular image."""
        if not self.circular:
            return
        row = np.arange(-self.half, self.rows + self.half)[:, None]
        column = np.arange(-self.half, self.width + self.half)
        origin = self.start + self.stride * (row % self.rows) + column % self.width
        flat[..., self.start + self.stride * row + column] = flat[..., origin]

    def take(self, flat: Array) -> Array:
        """The values (..., rows, width) of a flat layout, in float64."""
        values = flat[..., self.positions].astype(np.float64)
        return values.reshape(*flat.shape[:-1], self.rows, self.width)

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
        return self.window(1 / self.area)

    @cached_property
    def border(self) -> float:
        """How much x = s·Bᵀx + 1 exceeds 1/(1 − s), for every s < 1: with x = S² y, y = s·B y + 1/S².

        At offset zero, where it is largest.
        """
        amounts = (0.3, 0.6, 0.9, 0.99, 0.9999)
        return 1.05 * max(float((1 - s) * np.max(self.area * self.solve(s, 1 / self.area))) for s in amounts)

    @cached_property
    def lowest(self) -> float:
        """The smallest eigenvalue of B (the largest is 1), at most 0.

        B = D⁻¹ A along each axis is similar to the symmetric D^(−1/2) A D^(−1/2).
        """
        first, second = (
            np.linalg.eigvalsh(axis / np.sqrt(np.multiply.outer(axis.sum(1), axis.sum(1)))) for axis in self.axes
        )
        return min(0.0, float(np.multiply.outer(first, second).min()))

    def window(self, values: Array) -> Array:
        """Sums over the window of values (..., rows, width)."""
        return self.axes[0] @ values @ self.axes[1]

    def pooled(self, values: Array, block: tuple[int, int]) -> Array:
        """Means over α, α' in a block of Σ_shift v_{α+δ} v_{α'+δ}/(S_α S_α') for values (..., rows, width), summed."""
        margin = [(0, 0)] * (values.ndim - 2) + [(self.half, self.half)] * 2
        wide = np.pad(values, margin, mode="wrap" if self.circular else "constant")
        root = np.sqrt(self.area)
        total = np.zeros(values.shape[:-2])
        for i, j in np.ndindex(self.size, self.size):
            moved = wide[..., i : i + self.rows, j : j + self.width] / root
            total += np.sum(block_means(moved, block) ** 2, axis=(-2, -1))
        return total

    def average(self, values: Array) -> Array:
        """B applied to values (..., rows, width)."""
        return self.window(values) / self.area

    def solve(self, factor: float, values: Array) -> Array:
        """x = factor·B x + values, for values (..., rows, width) ≥ 0 and factor < 1.

        x = Π_k (1 + (factor·B)^(2^k)) values. Nothing is subtracted, so every position keeps its relative accuracy,
        even if it is much darker than the others.
        """
        first, second = (axis / axis.sum(1, keepdims=True) for axis in self.axes)
        x = values
        while factor > _NOTHING:
            x = x + factor * (first @ x @ second.T)
            first, second, factor = first @ first, second @ second, factor**2
            first /= first.sum(1, keepdims=True)  # powers of an average are averages
            second /= second.sum(1, keepdims=True)
        return x


def block_means(values: Array, block: tuple[int, int]) -> Array:
    """Means over blocks of values (..., rows, width): (..., rows/block[0], width/block[1])."""
    rows, width = values.shape[-2:]
    apart = values.reshape(*values.shape[:-2], rows // block[0], block[0], width // block[1], block[1])
    return apart.mean(axis=(-3, -1))


def _band(n: int, half: int, circular: bool) -> Array:
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    if circular:
        distance = np.minimum(distance, n - distance)
    return (distance <= half).astype(np.float64)
