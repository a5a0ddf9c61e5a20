"""Per-image quantities: pixels in the flat layout, and the variances of all positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import InputError, matrix
from notsodeep.kernels.arc import Arc
from notsodeep.kernels.conv.geometry import Geometry, aligned, block_means
from notsodeep.models import ConvDEQ

__all__ = ["Images", "check_images", "parts"]

Array: TypeAlias = NDArray[Any]

_CHUNK = 256  # images treated at a time


def check_images(images: ArrayLike, parameter: str, model: ConvDEQ) -> Array:
    """Return `images` as a finite float array (n, rows, columns, channels) that the filter fits into."""
    given = np.asarray(images)
    if given.ndim == 3:
        raise InputError(
            f"{parameter} has shape {given.shape} but must be (n, rows, columns, channels); "
            f"add the missing axis, {parameter}[..., None] for grey images or {parameter}[None] for a single one"
        )
    array = matrix(given, parameter, rank=4)
    if min(array.shape[1:3]) < model.filter_size:
        raise InputError(
            f"{parameter} has images of {array.shape[1]}×{array.shape[2]}, smaller than the filter "
            f"({model.filter_size}×{model.filter_size}); use a smaller filter_size"
        )
    return array


@dataclass(frozen=True)
class Images:
    """Per-image work, done once.

    Attributes
    ----------
    pixels : array (n, channels, length)
        σ_b x/√2 in the flat layout.
    entry : array (n,)
        Which of the entries below belongs to each image; images of the same constant variance share one.
    depth : int or None
        Of the network; None for the equilibrium.
    root : array (levels, entries, rows, width)
        √q in float64; one level at equilibrium, else one per layer.
    parts : array (5, levels, entries, length)
        What :func:`parts` returns in the flat layout.
    """

    pixels: Array
    entry: Array
    depth: int | None
    root: Array
    parts: Array

    @staticmethod
    def of(array: Array, model: ConvDEQ, geometry: Geometry, depth: int | None, dtype: Any) -> Images:
        n, channels = len(array), array.shape[3]
        pixels = aligned((n, channels, geometry.length), dtype)
        roots: list[Array] = []
        sources: list[Array] = []
        entry = np.empty(n, np.int64)
        shared = -1  # the entry of images with constant variance
        eps = float(np.finfo(dtype).eps)
        for first in range(0, n, _CHUNK):
            part = array[first : first + _CHUNK].astype(np.float64)
            placed = np.moveaxis(part, 3, 1).reshape(len(part), channels, -1)
            pixels[first : first + _CHUNK, :, geometry.positions] = math.sqrt(model.input / 2) * placed
            square = np.sum(part**2, axis=3)
            variance = _variances(square, model, geometry, depth)
            source = (_factor(model) * _before(variance) + model.input * square) / 2
            _check_range(variance, dtype)
            for i in range(len(part)):
                one, origin = variance[:, i], source[:, i]
                flat = bool(np.ptp(one) <= 4 * eps * one.max() and np.ptp(origin) <= 8 * eps * origin.max())
                if flat and shared >= 0 and np.allclose(one, roots[shared] ** 2, rtol=8 * eps, atol=0):
                    entry[first + i] = shared
                    continue
                entry[first + i] = len(roots)
                if flat:
                    shared = len(roots)
                roots.append(np.sqrt(one))
                sources.append(origin)
        root, origins = np.stack(roots, axis=1), np.stack(sources, axis=1)
        # a tiny variance far inside black pixels is set to zero: its contribution is below rounding
        root[root <= eps / 4 * root.max(axis=(2, 3), keepdims=True) + float(np.finfo(dtype).tiny) ** 0.4] = 0.0
        return Images(
            pixels, entry, depth, root, parts(root, origins, np.zeros_like(root), geometry.area, geometry, dtype)
        )

    def __len__(self) -> int:
        return len(self.pixels)

    def sources(self, rows: slice, geometry: Geometry) -> tuple[Array, Array, Array]:
        """σ_b x/√2, √q and half the source of q, of some images: (n, channels or levels, rows, width)."""
        root = np.moveaxis(self.root[:, self.entry[rows]], 0, 1)
        origin = np.moveaxis(self.parts[2][:, self.entry[rows]], 0, 1)
        return geometry.take(self.pixels[rows]), root, geometry.take(origin) ** 2

    def pooled(self, model: ConvDEQ, geometry: Geometry, block: tuple[int, int]) -> tuple[Array, Array]:
        """Lower bounds of Σ and of G, means over all pairs of positions in a block, summed over the blocks of an image.

        Σ is made of windows of σ_a² G + σ_b² x·x, or x·x itself before the first layer, and G exceeds the first terms
        of its Hermite series, E[φ]E[φ] + E[φ']² Σ.
        """
        arc = Arc.of(model.activation, model.recurrent)
        slope = math.sqrt(max(arc.power - math.pi * arc.bend / 2, 0.0))  # |E[φ']| = |a + b|/2
        dual, covariance = np.empty(len(self)), np.empty(len(self))
        for first in range(0, len(self), _CHUNK):
            rows = slice(first, first + _CHUNK)
            root = np.moveaxis(self.root[:, self.entry[rows]], 0, 1)
            inputs = math.sqrt(2) * geometry.take(self.pixels[rows])
            if self.depth == 0:
                covariance[rows] = np.sum(block_means(inputs, block) ** 2, axis=(1, 2, 3)) / model.input
            else:
                states = math.sqrt(model.recurrent) * arc.mean * root[:, max(root.shape[1] - 2, 0)]
                covariance[rows] = geometry.pooled(np.concatenate([inputs, states[:, None]], axis=1), block).sum(1)
            means = arc.mean * block_means(root[:, -1], block)
            dual[rows] = np.sum(means**2, axis=(1, 2)) + slope**2 * covariance[rows]
        return covariance, dual


def parts(root: Array, source: Array, missed: Array, area: Array, geometry: Geometry, dtype: Any) -> Array:
    """√q, 1/√(S√q) (0 where q = 0), √(source/2), the same of columns, and what windows miss, in the flat layout.

    root, source, missed : √q, half of what windows sum to S²q, and the part that windows miss; (..., rows, width).
    area : S² (rows, width).
    """
    edge = np.sqrt(root * np.sqrt(area))
    inverse = np.divide(1, edge, out=np.zeros_like(edge), where=edge > 0)
    columns = geometry.axes[0] @ source
    placed = geometry.place(np.stack([root, inverse, np.sqrt(source), np.sqrt(columns), missed]), dtype)
    geometry.wrap(placed[2:4])
    return placed


def _factor(model: ConvDEQ) -> float:
    """σ_a² v."""
    return model.recurrent * Arc.of(model.activation, model.recurrent).power


def _before(levels: Array) -> Array:
    """Each level's predecessor; at equilibrium there is one level, its own predecessor."""
    return np.concatenate([levels[:1], levels[:-1]])


def _check_range(variance: Array, dtype: Any) -> None:
    largest, limit = float(variance.max()), float(np.finfo(dtype).max) ** 0.5 / 1e6
    if not largest < limit:
        raise InputError(
            f"images have variances up to {largest:.3g}, whose kernel overflows {np.dtype(dtype).name}; "
            f"scale the pixels so that |x|² stays below {limit:.1g}"
        )


def _variances(square: Array, model: ConvDEQ, geometry: Geometry, depth: int | None) -> Array:
    """q = B(σ_a² v q + σ_b² |x|²), a linear equation for homogeneous φ, or its iterates from q⁰ = |x|²."""
    drive = geometry.average(model.input * square)
    factor = _factor(model)
    if depth is None:
        return geometry.solve(factor, drive)[None]
    levels = [square]
    for _ in range(depth):
        levels.append(drive + factor * geometry.average(levels[-1]))
    return np.stack(levels)
