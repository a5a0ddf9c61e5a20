"""Approximate inverses of a kernel matrix, from theory, landmarks or both: fewer iterations, the same answer.

All are of the form M = F Fᵀ + diag(D) and are inverted by Woodbury's identity,
M⁻¹ = D⁻¹ − D⁻¹F (I + FᵀD⁻¹F)⁻¹ FᵀD⁻¹.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from notsodeep.checks import InputError, choice, count
from notsodeep.kernels import KernelMatrix

__all__ = [
    "PRECONDITIONERS",
    "LowRankPlusDiagonal",
    "landmarks",
    "linearised",
    "precondition",
    "scaled_rows",
    "whitening",
]

Array: TypeAlias = NDArray[Any]

PRECONDITIONERS = ("auto", "equivalent", "nystrom", "both", "none")

_SHARE, _MARGIN = 0.9, 0.8  # largest share of F Fᵀ, and margin to the positive limit
_FLOOR = 0.3  # floor for D, relative to the mean diagonal remainder: it is zero in the landmarks' own rows
_SAMPLED = 512  # rows and columns of the block that the linearised kernel is fitted on


@dataclass(frozen=True)
class LowRankPlusDiagonal:
    """M = F Fᵀ + diag(D); calling it applies M⁻¹.

    Examples
    --------
    >>> import numpy as np
    >>> M = LowRankPlusDiagonal.of(np.ones((3, 1)), np.full(3, 2.0), "constant")
    >>> M(np.full((3, 1), 5.0)).ravel()
    array([1., 1., 1.])
    """

    scaled: Array  # D⁻¹F
    inverse: tuple[Array, bool]  # factor of I + FᵀD⁻¹F
    D: Array
    name: str

    @staticmethod
    def of(F: Array, D: Array, name: str) -> LowRankPlusDiagonal:
        scaled = F / D[:, None]
        capacitance = F.T @ scaled
        np.fill_diagonal(capacitance, capacitance.diagonal() + 1)
        return LowRankPlusDiagonal(scaled, scipy.linalg.cho_factor(capacitance, overwrite_a=True), D, name)

    def __call__(self, R: Array) -> Array:
        return R / self.D[:, None] - self.scaled @ scipy.linalg.cho_solve(self.inverse, self.scaled.T @ R)


def precondition(
    K: KernelMatrix, shift: Array, kind: str = "auto", rank: int | None = None, seed: int = 0
) -> LowRankPlusDiagonal | None:
    """Approximate (K + diag(shift))⁻¹.

    Parameters
    ----------
    K : KernelMatrix (n, n)
    shift : array (n,)
        What is added to the diagonal.
    kind : {"auto", "equivalent", "nystrom", "both", "none"}
        ``"equivalent"``: the kernel linearised in the inner products; needs samples. ``"nystrom"``: landmarks drawn
        uniformly. ``"both"``: landmarks for the remainder of the linearised kernel. ``"auto"``: both where it pays.
    rank : int, optional
        Number of landmarks; 9√n when absent.
    seed : int
        Of the landmarks and of the fitted block.
    """
    n = K.shape[0]
    kind = choice(kind, PRECONDITIONERS, "preconditioner")
    if kind == "none":
        return None
    rng = np.random.default_rng(seed)
    diagonal = K.diagonal()
    if not (diagonal > 0).any():
        return None
    F, names = np.zeros((n, 0)), []
    if kind != "nystrom":
        theory = linearised(K, diagonal, rng)
        if theory is not None and (kind != "auto" or theory.shape[1] <= n // 2):
            F = theory
            names.append("equivalent")
        elif kind != "auto":
            raise InputError(
                f"preconditioner={kind!r} needs vector samples whose kernel grows with their inner product; "
                "use preconditioner='nystrom'"
            )
    if kind != "equivalent":
        chosen = landmarks(n, rank, rng)
        part = K.columns(chosen)
        F = F * math.sqrt(_share(part[chosen], F[chosen]))
        part -= F @ F[chosen].T
        F = np.hstack([F, part @ whitening(part[chosen])])
        names.append(f"nystrom of rank {len(chosen)}")
    rest = diagonal - np.einsum("ij,ij->i", F, F)
    typical = max(float(rest.mean()), 1e-10 * float(diagonal.mean()))
    return LowRankPlusDiagonal.of(F, np.maximum(rest, _FLOOR * typical) + shift, " and ".join(names))


def landmarks(n: int, rank: int | None, rng: np.random.Generator) -> Array:
    """`rank` of n samples drawn uniformly, 9√n by default, in ascending order."""
    rank = min(n, math.ceil(9 * math.sqrt(n)) if rank is None else count(rank, "rank"))
    return np.sort(rng.choice(n, rank, replace=False))


def linearised(K: KernelMatrix, diagonal: Array, rng: np.random.Generator) -> Array | None:
    """F with F Fᵀ ≈ K off the diagonal: K_ij ≈ r_i r_j (c₀ + c₁ cos(x_i, x_j)), r_i = √K_ii, fitted on a random block.

    This is the high-dimensional equivalent [Ling24, Thm 3.3] of one class: a kernel of nearly orthogonal samples is
    linear in their inner products, and the diagonal exceeds that line. None where it does not apply.
    """
    directions = scaled_rows(K)
    if directions is None:
        return None
    n, size = len(directions), min(_SAMPLED, len(directions) // 2)
    if size < 2:
        return None
    chosen = rng.permutation(n)[: 2 * size]
    left, right = np.sort(chosen[:size]), np.sort(chosen[size:])
    root = np.sqrt(np.maximum(diagonal, 0))
    scale = root[left][:, None] * root[right]
    kept = scale > 0
    kernel = K.columns(right)[left][kept] / scale[kept]
    cosine = (directions[left] @ directions[right].T)[kept]
    spread = float(np.var(cosine))
    if not spread > 0:
        return None
    slope = float(np.mean((cosine - cosine.mean()) * (kernel - kernel.mean()))) / spread  # c₁
    level = max(float(kernel.mean() - slope * cosine.mean()), 0.0)  # c₀
    if slope <= 0:
        return None
    return root[:, None] * np.hstack([np.full((n, 1), math.sqrt(level)), math.sqrt(slope) * directions])


def scaled_rows(K: KernelMatrix) -> Array | None:
    """x_i/‖x_i‖ in float64 where the samples of a symmetric kernel are vectors; None otherwise."""
    if not K.symmetric or K.samples is None or K.samples[0].ndim != 2:
        return None
    rows = np.asarray(K.samples[0], np.float64)
    rows = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norm > 0, norm, 1.0)


def _share(square: Array, F: Array) -> float:
    """A share s of F Fᵀ that leaves square − s F Fᵀ positive with a margin.

    A kernel is a power series in the inner products with coefficients ≥ 0. If samples are far from orthogonal, the
    fitted line is steeper than the linear term, and subtracting all of it would leave negative eigenvalues.
    """
    if not F.shape[1]:
        return 1.0
    whitened = whitening(square).T @ F
    excess = float(np.linalg.norm(whitened, 2)) ** 2 if whitened.size else 0.0
    return min(_SHARE, _MARGIN / excess) if excess > 0 else _SHARE


def whitening(square: Array, negligible: float = 1e-10) -> Array:
    """S with S Sᵀ = square⁺ over the eigenvalues above `negligible` times the largest."""
    values, vectors = scipy.linalg.eigh((square + square.T) / 2)
    kept = values > negligible * max(values[-1], 0.0)
    return vectors[:, kept] / np.sqrt(values[kept])
