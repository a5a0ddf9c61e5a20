"""Rows as a kernel machine sees them: centred or normalised, and each of them once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError, choice
from notsodeep.data.samples import mean_and_scale
from notsodeep.learn.preprocessing import unit

__all__ = ["NORMALIZATIONS", "Merged", "Preparation", "identities", "merge"]

Array: TypeAlias = NDArray[Any]

NORMALIZATIONS = ("center", "unit", "none")


@dataclass(frozen=True)
class Preparation:
    """x ↦ (x − mean)/scale (``center``), x/‖x‖ (``unit``), each pixel by its norm (``pixel``) or x (``none``).

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
    def of(X: Array, mode: str, weight: Array | None = None, channels: int | None = None) -> Preparation:
        """Learn the preparation from training rows, each counted `weight` times; images have `channels`."""
        mode = choice(mode, NORMALIZATIONS if channels is None else ("pixel", *NORMALIZATIONS), "normalize")
        if mode == "pixel" and channels == 1:
            raise InputError("normalize='pixel' would make every pixel of a grey image ±1; use normalize='unit'")
        if mode != "center":
            return Preparation(mode, channels=channels or 1)
        mean, scale = mean_and_scale(X, weight)
        return Preparation(mode, mean, scale or 1.0)

    def __call__(self, X: Array) -> Array:
        """Return prepared rows in the dtype of X, rounded alike however X lies in memory."""
        if self.mode == "none":
            return X
        X = np.ascontiguousarray(X)
        if self.mean is not None:
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


@dataclass(frozen=True)
class Merged:
    """Distinct rows; each stands for all its copies.

    Attributes
    ----------
    rows : array (m,) of int
        Index of the first copy of each distinct row.
    groups : array (n,) of int
        Which distinct row each row is a copy of.
    targets : array (m, k)
        Weighted mean over the copies.
    weight : array (m,) or None
        Sum over the copies; None if every row counts once.
    """

    rows: Array
    groups: Array
    targets: Array
    weight: Array | None


def identities(X: Array) -> Iterator[bytes]:
    """A short name for each row, the same for equal rows."""
    for row in X:
        yield hashlib.blake2b((row + 0.0).tobytes(), digest_size=16).digest()  # + 0.0: −0 is 0


def merge(X: Array, targets: Array, weight: Array | None, *, interpolate: bool) -> Merged:
    """Make one row of identical rows: equivalent for ridge/weight noise, and never singular.

    With ``interpolate=True`` (no ridge) copies must agree in their targets.
    """
    first: dict[bytes, int] = {}
    groups = np.empty(len(X), np.intp)
    for i, key in enumerate(identities(X)):
        groups[i] = first.setdefault(key, len(first))
    if len(first) == len(X):
        return Merged(np.arange(len(X)), groups, targets, weight)
    _, rows = np.unique(groups, return_index=True)
    copies = np.ones(len(X)) if weight is None else weight
    total = np.bincount(groups, copies)
    mean = np.stack([np.bincount(groups, copies * column) for column in targets.T], axis=1) / total[:, None]
    if interpolate:
        gap = np.abs(targets - targets[rows][groups]).max(axis=1)
        worst = int(np.argmax(gap))
        if gap[worst] > 0:
            raise InputError(
                f"rows {rows[groups[worst]]} and {worst} of X are identical but their targets differ; "
                "ridge=0 cannot fit both: pass ridge > 0"
            )
        mean = targets[rows]
    return Merged(rows, groups, mean, total)
