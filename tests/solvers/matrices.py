"""Symmetric positive definite matrices of every temper, for the solvers."""

from __future__ import annotations

import numpy as np
import scipy.linalg


def decaying(n: int, condition: float, seed: int = 0) -> np.ndarray:
    """Eigenvalues from 1 down to 1/condition, evenly on a logarithmic scale, in random directions."""
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]
    K = (Q * np.logspace(0, -np.log10(condition), n)) @ Q.T
    return (K + K.T) / 2


def wishart(n: int, seed: int = 0) -> np.ndarray:
    A = np.random.default_rng(seed).standard_normal((n, 2 * n))
    return A @ A.T / n


def outlier(n: int, seed: int = 0) -> np.ndarray:
    """A large mean, as kernels have."""
    return 0.9 * np.ones((n, n)) + 0.1 * wishart(n, seed)


MATRICES = {
    "one": np.array([[3.0]]),
    "two": np.array([[2.0, -1.0], [-1.0, 1.0]]),
    "identity": np.eye(7),
    "wishart": wishart(130),
    "outlier beyond a tile": outlier(530),
    "decaying 1e4": decaying(300, 1e4),
    "decaying 1e10": decaying(257, 1e10),
    "hilbert": scipy.linalg.hilbert(6),
}
