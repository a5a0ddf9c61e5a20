"""Merge identical rows: the kernel machine stays the same, and duplicates cannot make the matrix singular."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError

__all__ = ["Merged", "among", "merge", "totals"]

Array: TypeAlias = NDArray[Any]

_BLOCK = 256  # rows whose bits are summed at once


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


def checksums(X: Array) -> Array:
    """Σ_j w_j · (bits of x_j) modulo 2⁶⁴ for each row: equal rows agree, different ones hardly ever do.

    Integers do not round, so that a sum does not depend on the processor or on where its row stands.
    """
    weights = np.random.default_rng(0).integers(0, 2**64, X.shape[1], np.uint64) | np.uint64(1)
    sums = np.empty(len(X), np.uint64)
    for start in range(0, len(X), _BLOCK):
        rows = np.ascontiguousarray(X[start : start + _BLOCK]) + X.dtype.type(0)  # −0 becomes 0
        sums[start : start + _BLOCK] = rows.view(f"u{X.itemsize}").astype(np.uint64, copy=False) @ weights
    return sums


def among(X: Array, Y: Array) -> NDArray[np.bool_]:
    """Whether each row of X is a row of Y."""
    sums, others = checksums(X), checksums(Y)
    found = np.isin(sums, others)
    known = {_identity(row) for row in Y[np.isin(others, sums)]}
    found[found] = [_identity(row) in known for row in X[found]]
    return found


def _identity(row: Array) -> bytes:
    """A short name for a row, the same for equal rows and, unlike a checksum, for no other that can be found."""
    return hashlib.blake2b((row + row.dtype.type(0)).tobytes(), digest_size=16).digest()


def merge(X: Array, targets: Array, weight: Array | None, *, interpolate: bool) -> Merged:
    """Merge identical rows into one: equivalent for noise ridge/weight, and duplicates cannot make K singular.

    With ``interpolate=True`` (no ridge) copies must agree in their targets.
    """
    _, inverse, counts = np.unique(checksums(X), return_inverse=True, return_counts=True)
    suspected = counts[inverse] > 1
    first: dict[bytes | int, int] = {}
    groups = np.empty(len(X), np.intp)
    for i in range(len(X)):
        groups[i] = first.setdefault(_identity(X[i]) if suspected[i] else i, len(first))
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
