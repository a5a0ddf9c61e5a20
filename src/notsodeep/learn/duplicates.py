"""Merge identical rows: the kernel machine stays the same, and duplicates cannot make the matrix singular."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError

__all__ = ["Merged", "identities", "merge", "totals"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Merged:
    """Distinct rows; each represents all its copies.

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
    """Merge identical rows into one: equivalent for noise ridge/weight, and duplicates cannot make K singular.

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
    mean = totals(groups, copies[:, None] * targets) / total[:, None]
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


def totals(groups: Array, values: Array) -> Array:
    """Sums of values (n, k) over the copies of each distinct row, (m, k)."""
    return np.stack([np.bincount(groups, column) for column in values.T], axis=1)
