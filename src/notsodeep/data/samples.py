"""Samples in rows with their labels, and the one preparation the theory asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import InputError, count, matrix

__all__ = ["Data", "center_and_scale", "mean_and_scale", "prepare", "subsample"]

_BLOCK = 1024  # rows turned into float64 at a time


@dataclass(frozen=True)
class Data:
    """Samples in rows, with labels where there are some.

    Attributes
    ----------
    name : str
    X : array of shape (n, p)
    labels : array of shape (n,) or None
    X_test : array of shape (m, p) or None
        The part that everybody tests on, where the data set has one.
    labels_test : array of shape (m,) or None
    image_shape : (P, Q, C) or None
        p = P·Q·C; the rows are images read line by line, channels last.
    source : str
        Where the samples came from.
    """

    name: str
    X: NDArray[Any]
    labels: NDArray[Any] | None = None
    X_test: NDArray[Any] | None = None
    labels_test: NDArray[Any] | None = None
    image_shape: tuple[int, int, int] | None = None
    source: str = ""

    @property
    def images(self) -> NDArray[Any]:
        """`X` as images (n, P, Q, C), without a copy."""
        return self._as_images(self.X)

    @property
    def images_test(self) -> NDArray[Any] | None:
        """`X_test` as images (m, P, Q, C), without a copy."""
        return None if self.X_test is None else self._as_images(self.X_test)

    def _as_images(self, X: NDArray[Any]) -> NDArray[Any]:
        if self.image_shape is None:
            raise InputError(f"{self.name} does not hold images; reshape X yourself if it does")
        return X.reshape(-1, *self.image_shape)


def mean_and_scale(X: NDArray[Any], weight: NDArray[Any] | None = None) -> tuple[NDArray[np.float64], float]:
    """Mean m of the rows and s with s² = mean ‖x − m‖², each row counted `weight` times, in float64.

    A power of two is taken out first, so that squares of tiny or huge samples stay within the range of floats. s is 0
    where nothing but the rounding of the mean is left.
    """
    share = np.full(len(X), 1 / len(X)) if weight is None else weight / weight.sum()
    unit = math.ldexp(1.0, math.frexp(float(np.abs(X).max()))[1] - 1)
    tiles = [slice(start, start + _BLOCK) for start in range(0, len(X), _BLOCK)]
    mean = np.sum([share[tile] @ (X[tile] / np.float64(unit)) for tile in tiles], axis=0)
    square = sum(float(share[tile] @ np.sum((X[tile] / np.float64(unit) - mean) ** 2, axis=1)) for tile in tiles)
    scale = math.sqrt(square)
    return mean * unit, scale * unit if scale > 1e-14 * float(np.linalg.norm(mean)) else 0.0


def center_and_scale(X: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
    """Return the mean of the rows and s² = mean ‖x − mean‖² as s, computed in float64."""
    mean, scale = mean_and_scale(X)
    if scale == 0:
        raise InputError(f"X holds {len(X)} identical samples (n_samples={len(X)}); pass data that varies")
    return mean, scale


def prepare(X: ArrayLike) -> NDArray[np.float64]:
    """X ↦ (X − mean)/s with s such that the mean of ‖x‖² is 1.

    √p·x then has mean 0 and, on average over its features, variance 1: τ0 = 1.
    :class:`notsodeep.learn.CenterAndScale` does the same as a step of a scikit-learn pipeline.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep import data
    >>> X = data.prepare(data.load("digits").X)
    >>> round(float(np.mean(np.sum(X**2, axis=1))), 12)
    1.0
    """
    array = matrix(X)
    mean, scale = center_and_scale(array)
    prepared: NDArray[np.float64] = array - mean
    prepared /= scale
    return prepared


def subsample(data: Data, limit: int | None, seed: int = 0) -> Data:
    """At most `limit` samples, drawn without replacement and kept in their order; all of them if it is None.

    The test part, if there is one, stays whole.
    """
    if limit is None or len(data.X) <= count(limit, "limit"):
        return data
    rows = np.sort(np.random.default_rng(seed).choice(len(data.X), limit, replace=False))
    return replace(data, X=data.X[rows], labels=None if data.labels is None else data.labels[rows])
