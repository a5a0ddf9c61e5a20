"""An approximation: coefficients on landmarks only."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from notsodeep.kernels import Blocks
from notsodeep.learn.products import columns

__all__ = ["nystrom_coefficients"]

Array: TypeAlias = NDArray[Any]


def nystrom_coefficients(blocks: Blocks, targets: Array, ridge: float, weights: Array, rank: int, seed: int) -> Array:
    """min_β Σ_i w_i ‖y_i − (K_S β)_i‖² + ridge βᵀK_SS β over coefficients β of `rank` random landmarks S.

    Returns an (n, k) array that is zero outside S, to be used like the exact coefficients.
    """
    n = blocks.shape[0]
    chosen = np.sort(np.random.default_rng(seed).choice(n, rank, replace=False))
    part = columns(blocks, chosen)
    values, vectors = scipy.linalg.eigh((part[chosen] + part[chosen].T) / 2)
    kept = values > 1e-12 * max(values[-1], 0.0)
    whitening = vectors[:, kept] / np.sqrt(values[kept])
    F = part @ whitening  # K_nS K_SS^(-1/2)
    moments, basis = scipy.linalg.eigh(F.T @ (weights[:, None] * F))
    useful = moments > 1e-12 * max(moments[-1], 0.0)
    basis = basis[:, useful]
    inner = basis @ ((basis.T @ (F.T @ (weights[:, None] * targets))) / (moments[useful] + ridge)[:, None])
    result = np.zeros(targets.shape)
    result[chosen] = whitening @ inner
    return result
