"""Dense stand-in of the solvers, with their signatures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

from notsodeep.checks import InputError
from notsodeep.kernels import Blocks
from notsodeep.progress import Progress

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Factor:
    cholesky: Any

    def solve(self, B: Array) -> Array:
        return np.asarray(cho_solve(self.cholesky, B))

    def logdet(self) -> float:
        return float(2 * np.log(np.diag(self.cholesky[0])).sum())

    def inverse_diagonal(self) -> Array:
        return np.diag(self.solve(np.eye(len(self.cholesky[0]))))


@dataclass(frozen=True)
class Solution:
    coefficients: Array
    method: str
    reason: str
    ridge: float
    residual: float
    condition: float
    iterations: int
    seconds: float
    bytes: int
    regularisation: float = 0.0
    factor: Factor | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RidgePath:
    ridges: Array
    leave_one_out: Array
    gcv: Array


def solve(
    blocks: Blocks,
    targets: Array,
    *,
    ridge: float = 0.0,
    solver: str = "auto",
    weights: Array | None = None,
    tol: float = 1e-6,
    max_iterations: int | None = None,
    memory: int | None = None,
    preconditioner: str = "auto",
    progress: Progress = None,
) -> Solution:
    began = time.perf_counter()
    K = blocks.block(slice(None), slice(None)).astype(np.float64)
    K[np.diag_indices_from(K)] += ridge if weights is None else ridge / weights
    try:
        factor = Factor(cho_factor(K, lower=True))
    except LinAlgError:
        raise InputError(
            f"ridge={ridge!r}: the kernel matrix of {len(K)} samples is numerically singular; pass a larger ridge"
        ) from None
    coefficients = factor.solve(targets)
    residual = np.linalg.norm(K @ coefficients - targets) / max(np.linalg.norm(targets), 1e-300)
    values = np.linalg.eigvalsh(K)
    return Solution(
        coefficients,
        "cholesky",
        "stand-in",
        ridge,
        float(residual),
        float(values[-1] / values[0]),
        1,
        time.perf_counter() - began,
        K.nbytes,
        0.0,
        factor,
    )


def product(blocks: Blocks, V: Array, progress: Progress = None) -> Array:
    result = np.empty((blocks.shape[0], V.shape[1]))
    for start in range(0, blocks.shape[0], 1024):
        rows = slice(start, min(start + 1024, blocks.shape[0]))
        result[rows] = blocks.block(rows, slice(None)) @ V
    return result


def ridge_path(blocks: Blocks, targets: Array, ridges: Sequence[float] | Array) -> RidgePath:
    values, vectors = eigh(blocks.block(slice(None), slice(None)).astype(np.float64))
    rotated = vectors.T @ targets
    loo, gcv = [], []
    for ridge in ridges:
        inverse = 1 / (np.maximum(values, 0) + ridge)
        coefficients = vectors @ (inverse[:, None] * rotated)
        diagonal = vectors**2 @ inverse
        loo.append(np.mean((coefficients / diagonal[:, None]) ** 2))
        gcv.append(np.mean(coefficients**2) / np.mean(diagonal) ** 2)
    return RidgePath(np.asarray(ridges, float), np.array(loo), np.array(gcv))
