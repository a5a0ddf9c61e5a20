"""Approximate inverses of a kernel matrix, from theory, landmarks or both: fewer iterations, the same answer.

All are of the form M = F Fᵀ + diag(D) and are inverted by Woodbury's identity, with G = D^(-1/2) F,
M⁻¹ = D^(-1/2) (I − G (I + GᵀG)⁻¹ Gᵀ) D^(-1/2).
Features are stored in the precision of the kernel, transposed, so that rows of the kernel become features in place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from notsodeep.checks import InputError, choice, count
from notsodeep.kernels import KernelMatrix, MatrixBlocks
from notsodeep.solvers import blas
from notsodeep.solvers.conjugate_gradients import largest_eigenvalue

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
_TRUSTED = 0.5  # limit of eps · trace(GᵀG): rounding beyond it could exceed the smallest eigenvalue of I + GᵀG, 1
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

    scaled: Array  # Gᵀ
    inverse: tuple[Array, bool]  # factor of I + GᵀG
    root: Array  # D^(1/2), a column
    name: str

    @staticmethod
    def of(F: Array, D: Array, name: str) -> LowRankPlusDiagonal:
        """Invert M, in the precision of F unless I + GᵀG has too large entries for that."""
        root = np.sqrt(D)
        scaled = np.divide(F.T, root.astype(F.dtype), order="C")
        if float(np.finfo(F.dtype).eps) * float(np.vdot(scaled, scaled)) > _TRUSTED:
            scaled = scaled.astype(np.float64, copy=False)
        capacitance = scaled @ scaled.T
        np.fill_diagonal(capacitance, capacitance.diagonal() + 1)
        factor = scipy.linalg.cho_factor(capacitance, overwrite_a=True, check_finite=False)
        return LowRankPlusDiagonal(scaled, factor, root[:, None], name)

    def __call__(self, R: Array) -> Array:
        Z = R / self.root
        inner = self.scaled @ Z.astype(self.scaled.dtype)
        Z -= self.scaled.T @ scipy.linalg.cho_solve(self.inverse, inner, check_finite=False)
        Z /= self.root
        return Z


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
    chosen = landmarks(n, rank, rng)
    F, names = np.zeros((0, n), K.dtype), []  # Fᵀ
    if kind in ("equivalent", "both") or (kind == "auto" and _theory_pays(K, len(chosen))):
        theory = linearised(K, diagonal, rng)
        if theory is not None:
            F = theory.T
            names.append("equivalent")
        elif kind != "auto":
            raise InputError(
                f"preconditioner={kind!r} needs vector samples whose kernel grows with their inner product; "
                "use preconditioner='nystrom'"
            )
    if kind != "equivalent":
        part = np.ascontiguousarray(K.columns(chosen).T, K.dtype)
        if len(F):
            F *= math.sqrt(_share(part[:, chosen], F[:, chosen]))
            part -= F[:, chosen].T @ F
        F = np.concatenate([F, _whitened(part, chosen)]) if len(F) else _whitened(part, chosen)
        names.append(f"nystrom of rank {len(chosen)}")
    rest = diagonal - np.einsum("ij,ij->j", F, F)
    least = max(1e-10, 16 * float(np.finfo(K.dtype).eps))
    typical = max(float(rest.mean()), least * float(diagonal.mean()))
    return LowRankPlusDiagonal.of(F.T, np.maximum(rest, _FLOOR * typical) + shift, " and ".join(names))


def _theory_pays(K: KernelMatrix, rank: int) -> bool:
    """Whether p features of theory cost less than the iterations they save, which are cheap with a stored matrix."""
    if K.samples is None or K.samples[0].ndim != 2:
        return False
    return K.samples[0].shape[1] < (rank if isinstance(K, MatrixBlocks) else K.shape[0]) // 2


def _whitened(part: Array, chosen: Array) -> Array:
    """L⁻¹ K_S in place of the rows K_S, with L Lᵀ = K_SS and as little added to its diagonal as it takes."""
    scale = len(part) * float(np.finfo(part.dtype).eps) * float(np.abs(part[np.arange(len(part)), chosen]).max())
    for attempt in range(8):
        square = np.take(part, chosen, axis=1)
        np.fill_diagonal(square, square.diagonal() + (scale or 1.0) * 100**attempt)
        if not blas.cholesky(square):
            break
    blas.solve_transposed(square, part, back=False)
    return part


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
    drawn = rng.permutation(n)[: 2 * size]
    left, right = np.sort(drawn[:size]), np.sort(drawn[size:])
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
    F = np.empty((n, 1 + directions.shape[1]), K.dtype, order="F")
    F[:, 0] = math.sqrt(level) * root
    np.multiply(directions, math.sqrt(slope) * root[:, None], out=F[:, 1:], casting="same_kind")
    return F


def scaled_rows(K: KernelMatrix) -> Array | None:
    """x_i/‖x_i‖ in the kernel's precision where the samples of a symmetric one are vectors; None otherwise."""
    if not K.symmetric or K.samples is None or K.samples[0].ndim != 2:
        return None
    rows = np.asarray(K.samples[0])
    rows = (rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.finfo(rows.dtype).tiny)).astype(K.dtype)
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norm > 0, norm, 1.0)


def _share(square: Array, F: Array) -> float:
    """A share s of F Fᵀ that leaves square − s F Fᵀ positive with a margin; F is transposed.

    A kernel is a power series in the inner products with coefficients ≥ 0. If samples are far from orthogonal, the
    fitted line is steeper than the linear term, and subtracting all of it would leave negative eigenvalues.
    """
    whitened = _whitened(np.hstack([square, F.T]), np.arange(len(square)))[:, len(square) :].astype(np.float64)
    excess = largest_eigenvalue(lambda V: whitened @ (whitened.T @ V), len(whitened), steps=8)
    return min(_SHARE, _MARGIN / excess) if excess > 0 else _SHARE


def whitening(square: Array, negligible: float = 1e-10) -> Array:
    """S with S Sᵀ = square⁺ over the eigenvalues above `negligible` times the largest."""
    values, vectors = scipy.linalg.eigh((square + square.T) / 2)
    kept = values > negligible * max(values[-1], 0.0)
    return vectors[:, kept] / np.sqrt(values[kept])
