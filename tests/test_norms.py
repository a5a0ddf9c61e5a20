"""Spectral norms and distances against dense eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from notsodeep.norms import distance, rescaled_distance, spectral_norm


def symmetric(n: int, seed: int) -> np.ndarray:
    entries = np.random.default_rng(seed).normal(size=(n, n))
    return entries + entries.T


@pytest.mark.parametrize("n", [1, 2, 3, 40])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_norm_is_the_largest_eigenvalue(n: int, sign: int) -> None:
    matrix = sign * symmetric(n, 0)
    assert spectral_norm(matrix) == pytest.approx(np.abs(np.linalg.eigvalsh(matrix)).max(), rel=1e-8)


@pytest.mark.parametrize("n", [1, 5])
def test_zeros(n: int) -> None:
    assert spectral_norm(np.zeros((n, n))) == 0
    assert distance(np.eye(n), np.eye(n)) == 0


def test_distances() -> None:
    exact, other = symmetric(30, 1), symmetric(30, 2) + symmetric(30, 1)
    norm = np.linalg.norm(exact, 2)
    assert distance(exact, other) == pytest.approx(np.linalg.norm(exact - other, 2) / norm, rel=1e-7)
    best = minimize_scalar(lambda s: np.linalg.norm(exact - s * other, 2) / norm, bracket=(0.1, 1.0), tol=1e-10)
    assert best.fun <= rescaled_distance(exact, other) * (1 + 1e-9) <= best.fun * 1.001
    assert rescaled_distance(exact, 7 * exact) < 1e-6
