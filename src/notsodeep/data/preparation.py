"""Preparation of samples (centre and scale, or unit norm), fitted to the training samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import InputError, choice, matrix

__all__ = ["NORMALIZATIONS", "Preparation", "center_and_scale", "mean_and_scale", "prepare", "unit"]

Array: TypeAlias = NDArray[Any]

NORMALIZATIONS = ("center", "unit", "none")

_ZERO = ("uniform", "keep", "error")
_SAFE = {np.float32: 1e-25, np.float64: 1e-250}  # least ‖x‖² that loses no digits to underflow
_BLOCK = 1024  # rows turned into float64 at a time


@dataclass(frozen=True)
class Preparation:
    """x ↦ (x − mean)/scale (``center``), x/‖x‖ (``unit``), each pixel by its norm (``pixel``) or x (``none``).

    Fitted to the training samples and applied to all others, so nothing of the test samples leaks into it.

    Attributes
    ----------
    mode : {"center", "unit", "pixel", "none"}
    mean : array (p,) or None
        Mean of the training rows; ``center`` only.
    scale : float
        √ of the mean of ‖x − mean‖² over the training rows; 1 if they are all the same.
    channels : int
        Values of a pixel; ``pixel`` only.
    """

    mode: str
    mean: Array | None = None
    scale: float = 1.0
    channels: int = 1

    @staticmethod
    def of(X: Array, mode: str = "center", weight: Array | None = None, channels: int | None = None) -> Preparation:
        """Learn the preparation from training rows, each counted `weight` times; images have `channels`."""
        mode = choice(mode, NORMALIZATIONS if channels is None else ("pixel", *NORMALIZATIONS), "normalize")
        if mode == "pixel" and channels == 1:
            raise InputError("normalize='pixel' would make every pixel of a grey image ±1; use normalize='unit'")
        if mode != "center":
            return Preparation(mode, channels=channels or 1)
        mean, scale = mean_and_scale(X, weight)
        return Preparation(mode, mean, scale or 1.0)

    def __call__(self, X: Array) -> Array:
        """Return prepared rows in the dtype of X, rounded the same way whatever the memory layout of X."""
        if self.mode == "none":
            return X
        X = np.ascontiguousarray(X)
        if self.mean is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # rows this far away are refused by the kernel
                rows: Array = X - self.mean.astype(X.dtype)
                rows /= X.dtype.type(self.scale)
            return rows
        if self.mode == "unit":
            return unit(X, "keep", "row")[0]
        return unit(X.reshape(len(X), -1, self.channels), "uniform", "pixel")[0].reshape(X.shape)

    def __str__(self) -> str:
        if self.mode == "center":
            return f"centred, divided by {self.scale:.6g} (mean ‖x‖² = 1)"
        texts = {"unit": "each row divided by its norm", "pixel": "each pixel divided by its norm"}
        return texts.get(self.mode, "rows as they are")


def mean_and_scale(X: Array, weight: Array | None = None) -> tuple[NDArray[np.float64], float]:
    """Mean m of the rows and s with s² = mean ‖x − m‖², each row counted `weight` times, in float64.

    A power of two is factored out first, so that squares of tiny or huge samples do not under- or overflow. s is 0 if
    only the rounding of the mean is left.
    """
    share = np.full(len(X), 1 / len(X)) if weight is None else weight / weight.sum()
    unit = math.ldexp(1.0, math.frexp(float(np.abs(X).max()))[1] - 1)
    tiles = [slice(start, start + _BLOCK) for start in range(0, len(X), _BLOCK)]
    mean = np.sum([share[tile] @ (X[tile] / np.float64(unit)) for tile in tiles], axis=0)
    square = sum(float(share[tile] @ np.sum((X[tile] / np.float64(unit) - mean) ** 2, axis=1)) for tile in tiles)
    scale = math.sqrt(square)
    return mean * unit, scale * unit if scale > 1e-14 * float(np.linalg.norm(mean)) else 0.0


def center_and_scale(X: Array) -> tuple[NDArray[np.float64], float]:
    """Return the mean of the rows and s² = mean ‖x − mean‖² as s, computed in float64."""
    mean, scale = mean_and_scale(X)
    if scale == 0:
        raise InputError(f"X holds {len(X)} identical samples (n_samples={len(X)}); pass data that varies")
    return mean, scale


def prepare(X: ArrayLike) -> NDArray[np.float64]:
    """X ↦ (X − mean)/s with s such that the mean of ‖x‖² is 1.

    √p·x then has mean 0 and, on average over its features, variance 1: τ0 = 1.
    All of X is used. With samples to test on, :meth:`notsodeep.data.Data.split` comes first and
    :meth:`notsodeep.data.Data.prepared` second; :class:`notsodeep.learn.CenterAndScale` is a step of a pipeline.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep import data
    >>> X = data.prepare(data.load("digits").X)
    >>> round(float(np.mean(np.sum(X**2, axis=1))), 12)
    1.0
    """
    array = matrix(X)
    prepared: NDArray[np.float64] = Preparation("center", *center_and_scale(array))(array.astype(np.float64))
    return prepared


def unit(X: Array, zero: str, what: str) -> tuple[Array, int]:
    """Vectors along the last axis divided by their norms, and how many of them are zero."""
    choice(zero, _ZERO, "zero")
    vectors = X.reshape(-1, X.shape[-1])
    with np.errstate(over="ignore", under="ignore"):
        squares = np.einsum("ij,ij->i", vectors, vectors)[:, None]
    safe = (squares > _SAFE[X.dtype.type]) & (squares < 1 / _SAFE[X.dtype.type])
    result: Array = vectors / np.sqrt(np.where(safe, squares, 1))
    zeros = 0
    if not safe.all():
        rest = ~safe[:, 0]
        # divide by the largest entry first: squares of tiny or huge numbers under- or overflow
        largest = np.abs(vectors[rest]).max(axis=1, keepdims=True)
        absent = largest == 0
        zeros = int(np.count_nonzero(absent))
        if zeros and zero == "error":
            raise InputError(
                f"X holds {zeros} {what}s that are zero; remove them, or pass zero='keep' or zero='uniform'"
            )
        scaled = vectors[rest] / np.where(absent, 1, largest)
        scaled /= np.where(absent, 1, np.linalg.norm(scaled, axis=1, keepdims=True))
        if zero == "uniform":
            scaled[absent[:, 0]] = 1 / math.sqrt(X.shape[-1])
        result[rest] = scaled
    return result.reshape(X.shape), zeros
