"""Identical rows are merged; checksums only say where to look."""

from __future__ import annotations

import numpy as np
import pytest

from notsodeep.learn.duplicates import among, checksums, merge


def _merged(X: np.ndarray) -> np.ndarray:
    return merge(X, np.zeros((len(X), 1)), None, interpolate=True).groups


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rows_are_found_wherever_they_stand(dtype: type) -> None:
    X = np.random.default_rng(0).normal(size=(600, 7)).astype(dtype)
    copies = {300: 2, 599: 0, 598: 2}
    for copy, first in copies.items():
        X[copy] = X[first]
    groups = _merged(X)
    assert all(groups[copy] == groups[first] for copy, first in copies.items())
    assert len(set(groups)) == len(X) - len(copies)
    assert among(X[598:], X[:10]).tolist() == [True, True]
    assert not among(X[3:9], X[20:]).any()


def test_zeros_of_both_signs_are_equal() -> None:
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, -1.0]])
    assert _merged(X).tolist() == [0, 0, 1]
    assert among(X[1:], X[:1]).tolist() == [True, False]


def test_rows_with_equal_checksums_stay_apart() -> None:
    """Rows made to collide: w₁b₁ + w₂b₂ = w₁b₁' + w₂b₂' modulo 2⁶⁴."""
    weights = [int(w) | 1 for w in np.random.default_rng(0).integers(0, 2**64, 2, np.uint64)]
    first = np.array([1.5, -2.25])
    bits = [int(b) for b in first.view(np.uint64)]
    for step in range(1, 1000):
        other = bits[0] + step
        partner = (bits[1] + pow(weights[1], -1, 2**64) * weights[0] * (bits[0] - other)) % 2**64
        X = np.vstack([first, np.array([other, partner], np.uint64).view(np.float64)])
        if np.isfinite(X).all():
            break
    assert checksums(X)[0] == checksums(X)[1]
    assert not np.array_equal(*X)
    assert _merged(X).tolist() == [0, 1]
    assert among(X[:1], X[1:]).tolist() == [False]


def test_a_checksum_is_the_same_in_any_company() -> None:
    X = np.random.default_rng(1).normal(size=(700, 33))
    assert np.array_equal(checksums(X)[500:501], checksums(X[500:501]))
    assert np.array_equal(checksums(np.asfortranarray(X)), checksums(X))
