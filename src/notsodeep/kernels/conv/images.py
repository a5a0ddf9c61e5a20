"""What is known of each image on its own: its pixels in the flat layout and the variances of its positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import InputError, matrix
from notsodeep.kernels.arc import Arc
from notsodeep.kernels.conv.geometry import Geometry, aligned
from notsodeep.models import ConvDEQ

__all__ = ["Images", "check_images"]

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
    root : array (levels, entries, rows, width)
        √q in float64; one level at equilibrium, else one per layer.
    parts : array (4, levels, entries, length)
        √q, 1/(S√q) (zero where q is), S√q and what windows miss (nothing) in the flat layout.
    """

    pixels: Array
    entry: Array
    root: Array
    parts: Array

    @staticmethod
    def of(array: Array, model: ConvDEQ, geometry: Geometry, depth: int | None, dtype: Any) -> Images:
        n, channels = len(array), array.shape[3]
        pixels = aligned((n, channels, geometry.length), dtype)
        roots: list[Array] = []
        entry = np.empty(n, np.int64)
        shared = -1  # the entry of images with constant variance
        for first in range(0, n, _CHUNK):
            part = array[first : first + _CHUNK].astype(np.float64)
            placed = np.moveaxis(part, 3, 1).reshape(len(part), channels, -1)
            pixels[first : first + _CHUNK, :, geometry.positions] = math.sqrt(model.input / 2) * placed
            variance = _variances(np.sum(part**2, axis=3), model, geometry, depth)
            _check_range(variance, dtype)
            for i in range(len(part)):
                one = variance[:, i]
                flat = bool(np.ptp(one) <= 4 * np.finfo(dtype).eps * one.max())
                if flat and shared >= 0 and np.allclose(one, roots[shared] ** 2, rtol=8 * np.finfo(dtype).eps, atol=0):
                    entry[first + i] = shared
                    continue
                entry[first + i] = len(roots)
                if flat:
                    shared = len(roots)
                roots.append(np.sqrt(one))
        root = np.stack(roots, axis=1)
        # a variance that has died out across black pixels is zero, so that 1/√q stays in range
        root[root <= 6e-8 * root.max(axis=(2, 3), keepdims=True) + float(np.finfo(dtype).tiny) ** 0.4] = 0.0
        edge = root * np.sqrt(geometry.area)
        weight = np.divide(1, edge, out=np.zeros_like(edge), where=edge > 0)
        return Images(pixels, entry, root, geometry.place(np.stack([root, weight, edge, np.zeros_like(edge)]), dtype))

    def __len__(self) -> int:
        return len(self.pixels)


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
    factor = model.recurrent * Arc.of(model.activation, model.recurrent).power
    if depth is None:
        return np.maximum(geometry.solve(factor, drive), 0.0)[None]
    levels = [square]
    for _ in range(depth):
        levels.append(drive + factor * geometry.average(levels[-1]))
    return np.stack(levels)
