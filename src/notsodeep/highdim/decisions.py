"""Probability of each decision when scores are Gaussian: the nearest target wins."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

__all__ = ["decide"]

Array: TypeAlias = NDArray[Any]

_LEVELS = 12  # 2^12 points, twice as many above six classes: errors of about 1e-4 for five and 4e-4 for ten
_RANK = 1e-12  # eigenvalues below this fraction of the largest are ignored


def decide(mean: Array, covariance: Array, targets: Array) -> Array:
    """P(target j is nearest to f), f ~ N(mean, covariance), for all j at once.

    Nearest means largest η_jᵀf − ‖η_j‖²/2: the largest score for one-hot targets, the sign for targets ±1. With
    f = mean + Σ_k g_k √λ_k u_k in the eigenvectors that matter to the decision, all scores are linear in g₁, so each
    class wins on an interval of g₁, whose probability is exact. The other g_k are averaged over quasi-random points;
    there are none for two classes or for one output.

    Parameters
    ----------
    mean : array (outputs,)
    covariance : array (outputs, outputs)
    targets : array (K, outputs)
        η.

    Returns
    -------
    array (K,)
        It sums to 1.
    """
    scores = targets @ mean - np.einsum("ij,ij->i", targets, targets) / 2
    contrasts = targets - targets.mean(axis=0)  # a common part does not change the decision
    values, vectors = np.linalg.eigh(contrasts @ covariance @ contrasts.T)
    keep = values > _RANK * max(values[-1], 1e-300)
    loads = (vectors * np.sqrt(np.maximum(values, 0)))[:, keep][:, ::-1]  # (K, rank), the widest direction first
    if not loads.size:
        best = scores >= scores.max()
        return best / best.sum()
    offsets = scores + _normal_points(loads.shape[1] - 1) @ loads[:, 1:].T
    return _shares(offsets, loads[:, 0])


def _shares(offsets: Array, slopes: Array) -> Array:
    """Mean probability, over rows, that offset_j + slope_j g is the largest, g ~ N(0, 1)."""
    order = np.argsort(slopes, kind="stable")
    a, b = np.ascontiguousarray(offsets.T[order]), slopes[order]
    low, high = np.full(a.shape, -np.inf), np.full(a.shape, np.inf)
    for i in range(b.size - 1):  # the steeper lines, which follow, win to the right of their crossing with this one
        with np.errstate(divide="ignore", invalid="ignore"):
            cross = (a[i] - a[i + 1 :]) / (b[i + 1 :] - b[i])[:, None]
        cross[np.isnan(cross)] = 0.0  # equal lines
        np.minimum(high[i], cross.min(axis=0), out=high[i])
        np.maximum(low[i + 1 :], cross, out=low[i + 1 :])
    share = np.maximum(ndtr(high) - ndtr(low), 0.0).mean(axis=1)
    result = np.empty(b.size)
    result[order] = share / share.sum()
    return result


@lru_cache(maxsize=16)
def _normal_points(dimension: int) -> Array:
    """Standard normal quasi-random points, always the same; shape (points, dimension)."""
    if not dimension:
        return np.zeros((1, 0))
    from scipy.stats import qmc  # scipy.stats is slow to import

    return np.asarray(
        ndtri(qmc.Sobol(dimension, seed=np.random.default_rng(0)).random_base2(_LEVELS + (dimension > 4)))
    )
