"""References for forecasts: kernel ridge regression on drawn mixtures, and the formulas in their long form.

Nothing here uses the forecast. :func:`train` (shared with the benchmark) draws a mixture, computes the exact kernel
and solves the system.
:func:`long_form` writes the deterministic equivalent down as it is first derived: three blocks (labels, norms, means),
a fixed point by plain iteration with dense inverses, and derivatives by finite differences.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from benchmarks.forecast_reference import Scores, random_mixture, train

import notsodeep as nsd

__all__ = [
    "Scores",
    "fixed",
    "full_mixture",
    "long_form",
    "matrices",
    "random_mixture",
    "swapped_halves",
    "train",
    "two_classes",
]

Array = Any


def matrices(mixture: nsd.Mixture) -> list[Array]:
    return [np.diag(c) if c.ndim == 1 else c for c in mixture.covariances]


def full_mixture(p: int = 60, seed: int = 0) -> nsd.Mixture:
    """Three classes with different means and covariances that do not commute."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((3, p, 2 * p)) / math.sqrt(2 * p)
    spreads = [0.5 * np.eye(p) + (0.4 + 0.1 * a) * f @ f.T for a, f in enumerate(factors)]
    return nsd.Mixture(2 * rng.standard_normal((3, p)) / math.sqrt(p), spreads, [0.5, 0.3, 0.2])


class Fixed(NamedTuple):
    delta: Array
    resolvent: Array
    gains: Array


def fixed(covariances: list[Array], c1: float, level: Array, loads: Array) -> Fixed:
    """δ_a, Q̃ and q_a by plain iteration; `level` is the matrix in the place of zI, with z = its last eigenvalue."""
    z = float(level[-1, -1])
    p = len(level)
    delta = np.ones(len(loads))
    for _ in range(5000):
        total = level + sum(c1 * g / (1 + c1 * x) * c for g, x, c in zip(loads, delta, covariances, strict=True))
        resolvent = np.linalg.inv(total)
        new = np.array([np.sum(c * resolvent) / p for c in covariances])
        if np.abs(new / delta - 1).max() < 1e-14:
            break
        delta = new
    return Fixed(new, resolvent, 1 / (z * (1 + c1 * new)))


def long_form(weights: Any, mixture: nsd.Mixture, n: int, ridge: float, targets: Array, step: float = 1e-5) -> Any:
    """Means and covariances of the scores from the (2K+1)-dimensional system and finite differences."""
    c1, c2, c3, d = weights
    stats = mixture.statistics()
    p, k = mixture.p, mixture.classes
    z = d - stats.tau0**2 * c1 + ridge
    covariances, identity = matrices(mixture), np.eye(p)
    sizes = n * mixture.proportions
    loads = sizes / p
    M = mixture.means.T / math.sqrt(p)
    variance = 2 * np.diag(stats.T) / p
    A = stats.low_rank_weight(c2, c3)
    _, resolvent, gains = fixed(covariances, c1, z * identity, loads)

    D = np.zeros((2 * k + 1, 2 * k + 1))
    D[:k, :k] = c1 * M.T @ M + A[:k, :k] / p
    D[:k, k] = D[k, :k] = A[:k, k] / math.sqrt(p)
    D[k, k] = A[k, k]
    D[:k, k + 1 :] = D[k + 1 :, :k] = c1 * np.eye(k)
    gamma = np.zeros_like(D)
    gamma[range(k), range(k)] = sizes * gains
    gamma[k, k] = sizes * gains @ variance
    gamma[k + 1 :, k + 1 :] = (M.T @ M - z * M.T @ resolvent @ M) / c1
    goal = np.zeros((2 * k + 1, targets.shape[1]))
    goal[:k] = targets
    s = np.linalg.solve(np.eye(2 * k + 1) + gamma @ D, gamma @ goal)
    h = goal - D @ s
    means = c1 * (M.T @ M @ s[:k] + s[k + 1 :]) + A[:k, :k] @ s[:k] / p + np.outer(A[:k, k], s[k]) / math.sqrt(p)

    first, second = M @ (s[:k] + h[k + 1 :] / c1), -(z / c1) * M @ h[k + 1 :]
    slope = A[k, :k] @ s[:k] / math.sqrt(p) + A[k, k] * s[k]
    result = []
    for a, spread in enumerate(covariances):
        # −∂/∂t of Q̃ with zI + tC_a; only the covariance of the perturbation matters, z in q_a does not
        up, down = (fixed(covariances, c1, z * identity + t * spread, loads).resolvent for t in (step, -step))
        sandwich = -(up - down) / (2 * step)
        # −(1/c1) ∂q_b/∂t with every C_b → (I + tC_a)^½ C_b (I + tC_a)^½
        up, down = (fixed(_stretched(covariances, spread, t), c1, z * identity, loads).gains for t in (step, -step))
        kappa = -(up - down) / (2 * step) / c1
        form = first.T @ spread @ first + second.T @ sandwich @ second
        cross = first.T @ spread @ resolvent @ second
        form = form + cross + cross.T + (h[:k] * (sizes * kappa)[:, None]).T @ h[:k]
        form = form + (sizes * kappa) @ variance * np.outer(h[k], h[k])
        result.append(c1**2 / p * form + variance[a] * np.outer(slope, slope))
    return means, np.stack(result)


def _stretched(covariances: list[Array], spread: Array, t: float) -> list[Array]:
    values, vectors = np.linalg.eigh(np.eye(len(spread)) + t * spread)
    root = (vectors * np.sqrt(values)) @ vectors.T
    return [root @ c @ root for c in covariances]


def two_classes(p: int, shift: float, covariances: Any) -> nsd.Mixture:
    """Means ±shift along one axis, in equal parts."""
    means = np.zeros((2, p))
    means[:, 0] = shift, -shift
    return nsd.Mixture(means, covariances, [0.5, 0.5])


def swapped_halves(p: int, size: float = 0.6) -> list[Array]:
    """Variances 1 ± size on one half of the features and 1 ∓ size on the other."""
    signs = np.where(np.arange(p) < p // 2, 1.0, -1.0)
    return [1 + size * signs, 1 - size * signs]
