"""K + D = L Lᵀ in place, by panels of tiles; K itself survives above the diagonal.

The factorisation is left-looking: a panel of L is the panel of K minus one long product with the columns before it, so
every update is a large matrix product on one thread, and each part of the matrix is written once. (OpenBLAS' own
threaded factorisation has crashed on large matrices; with one thread per call it has not.)
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from notsodeep.checks import InputError, matrix
from notsodeep.kernels import KernelMatrix
from notsodeep.progress import Progress, reporter
from notsodeep.solvers import blas
from notsodeep.solvers.conjugate_gradients import largest_eigenvalue
from notsodeep.threads import pool

__all__ = ["CholeskyFactor", "Kept", "NotPositiveDefiniteError"]

Array: TypeAlias = NDArray[Any]

_PANEL = 512  # columns of a substitution step, rows of a tile
_SMALL, _NARROW = 16384, 256  # narrower panels for matrices below this size: less of the work is triangular


class NotPositiveDefiniteError(InputError):
    """K + ridge·W⁻¹ has no Cholesky factor.

    Attributes
    ----------
    pivot : int
        The first row whose pivot is not positive, or positive by rounding only.
    eigenvalue : float
        An upper bound for the smallest eigenvalue, usually of the same magnitude.
    ridge : float
        What to add to the diagonal, on top of the present ridge, so that the factorisation succeeds.
    """

    def __init__(self, pivot: int, eigenvalue: float, ridge: float, name: str) -> None:
        self.pivot, self.eigenvalue, self.ridge = pivot, eigenvalue, ridge
        super().__init__(
            f"the kernel matrix plus ridge is not positive definite in {name}: pivot {pivot} is zero or negative "
            f"to rounding and the smallest eigenvalue is about {eigenvalue:.1e} (duplicate samples?); "
            f"raise ridge by {ridge:.1e}"
        )


class Kept(KernelMatrix):
    """A symmetric matrix: the strict upper triangle is stored in place, the diagonal separately."""

    def __init__(self, storage: Array, diagonal: Array) -> None:
        super().__init__((len(storage), len(storage)), storage.dtype, symmetric=True)
        self._storage, self._diagonal = storage, diagonal

    def block(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = False) -> Array:
        (i0, i1, _), (j0, j1, _) = rows.indices(self.shape[0]), columns.indices(self.shape[1])
        if i1 <= j0:
            part = self._storage[i0:i1, j0:j1]
        else:  # entries below the diagonal belong to the factor: read their mirror images
            row, column = np.ogrid[i0:i1, j0:j1]
            part = np.where(row < column, self._storage[i0:i1, j0:j1], self._storage[j0:j1, i0:i1].T)
            shared = np.arange(max(i0, j0), min(i1, j1))
            part[shared - i0, shared - j0] = self._diagonal[shared]
        if out is None:
            return part
        out[...] = part
        return out

    def diagonal(self) -> Array:
        return self._diagonal.astype(np.float64)

    def astype(self, dtype: DTypeLike) -> Kept:
        if np.dtype(dtype) == self.dtype:
            return self
        return Kept(self._storage.astype(dtype), self._diagonal.astype(dtype))


class CholeskyFactor:
    """L of K + D = L Lᵀ, in the lower triangle of the matrix that was factored: a `Factorization`.

    `kept` is K + D itself, still there above the diagonal.
    """

    def __init__(self, storage: Array, kept: Kept) -> None:
        self._storage = storage
        self.kept = kept

    @staticmethod
    def of(K: Array, shift: float | Array = 0.0, progress: Progress = None) -> CholeskyFactor:
        """Factor K + diag(shift) inside K.

        Parameters
        ----------
        K : array (n, n)
            float64 or float32, C-contiguous, symmetric. Its lower triangle and diagonal become L.
        shift : float or array (n,)
            Added to the diagonal.
        progress : bool or callable, optional

        Raises
        ------
        NotPositiveDefiniteError
            With the pivot, an estimate of the smallest eigenvalue and a ridge that would help; K can be mirrored back
            from its upper triangle and the diagonal.

        Examples
        --------
        >>> import numpy as np
        >>> factor = CholeskyFactor.of(np.array([[4.0, 2.0], [2.0, 3.0]]), shift=1.0)
        >>> factor.solve(np.array([7.0, 6.0])), round(factor.logdet(), 6)
        (array([1., 1.]), 2.772589)
        """
        n = len(K)
        diagonal = K.diagonal().astype(np.float64) + shift
        np.fill_diagonal(K, diagonal)
        kept = Kept(K, diagonal)
        width = _NARROW if n < _SMALL else _PANEL
        failed = 0
        with pool() as crew, reporter("factorisation", n**3, progress) as report:
            for j0 in range(0, n, width):
                j1 = min(j0 + width, n)
                square = np.tril(K[j0:j1, j0:j1])
                blas.subtract_product(square, K[j0:j1, :j0], K[j0:j1, :j0])
                schur = square.copy()
                failed = blas.cholesky(square) or _negligible(square, diagonal[j0:j1], n)
                if failed:
                    break
                lower = np.tril_indices(j1 - j0)
                K[j0:j1, j0:j1][lower] = square[lower]

                def rows(i0: int, worker: int, j0: int = j0, j1: int = j1, square: Array = square) -> None:
                    part = K[i0 : min(i0 + _PANEL, n), j0:j1]
                    blas.subtract_product(part, K[i0 : i0 + len(part), :j0], K[j0:j1, :j0])
                    blas.solve_right(square, part)

                crew.share(range(j1, n, _PANEL), rows)
                report(n**3 - (n - j1) ** 2 * (n + 2 * j1), n**3)
        if failed:
            raise _failure(K, kept, j0, schur, j0 + failed - 1)
        return CholeskyFactor(K, kept)

    @property
    def shape(self) -> tuple[int, int]:
        return self.kept.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.kept.dtype

    def solve(self, B: ArrayLike) -> Array:
        """(K + D)⁻¹ B, shape of B, returned in float64 with the accuracy of the factor's dtype."""
        work, shape = self._right(B)
        _substitute(self._storage, work, back=False)
        _substitute(self._storage, work, back=True)
        return work.astype(np.float64).reshape(shape)

    def half_solve(self, B: ArrayLike) -> Array:
        """L⁻¹ B; the squared norm of a column is bᵀ(K + D)⁻¹b."""
        work, shape = self._right(B)
        _substitute(self._storage, work, back=False)
        return work.astype(np.float64).reshape(shape)

    def logdet(self) -> float:
        """log det(K + D) = 2 Σ log L_ii."""
        return 2 * math.fsum(np.log(self._storage.diagonal().astype(np.float64)))

    def inverse_diagonal(self, progress: Progress = None) -> Array:
        """((K + D)⁻¹)_ii = Σ_r (L⁻¹)_ri², from a few columns of L⁻¹ at a time (a third of n³ operations)."""
        n = self.shape[0]
        answer = np.empty(n)
        spans = [slice(j, min(j + _PANEL, n)) for j in range(0, n, _PANEL)]
        with pool() as crew, reporter("inverse diagonal", len(spans), progress) as report:

            def panel(span: slice, worker: int) -> None:
                part = np.zeros((n - span.start, span.stop - span.start), self.dtype)
                np.fill_diagonal(part, 1)
                _forward(self._storage[span.start :, span.start :], part)
                answer[span] = np.einsum("ij,ij->j", part, part, dtype=np.float64)

            crew.share(spans, panel, lambda done: report(done, len(spans)))
        return answer

    def _right(self, B: ArrayLike) -> tuple[Array, tuple[int, ...]]:
        values = matrix(B, "B", rank=1 if np.ndim(B) == 1 else 2)
        if len(values) != self.shape[0]:
            raise InputError(
                f"B has {len(values)} rows but the factor has {self.shape[0]}; pass one row for each sample"
            )
        return np.array(values.reshape(len(values), -1), dtype=self.dtype, order="C"), values.shape


def _negligible(L: Array, diagonal: Array, n: int) -> int:
    """The 1-based number of the first pivot that is only rounding error, or 0."""
    limit = 4 * math.sqrt(n) * float(np.finfo(L.dtype).eps)
    return int(np.argmax(np.append(L.diagonal().astype(np.float64) ** 2 <= limit * diagonal, True)) + 1) % (len(L) + 1)


def _substitute(L: Array, B: Array, *, back: bool) -> None:
    """B ← L⁻¹ B or L⁻ᵀ B by tiles, with all BLAS threads in the products."""
    if back:
        for j1 in range(len(L), 0, -_PANEL):
            j0 = max(j1 - _PANEL, 0)
            B[j0:j1] -= L[j1:, j0:j1].T @ B[j1:]
            blas.solve_transposed(L[j0:j1, j0:j1], B[j0:j1], back=True)
    else:
        _forward(L, B)


def _forward(L: Array, B: Array) -> None:
    for j0 in range(0, len(L), _PANEL):
        j1 = min(j0 + _PANEL, len(L))
        B[j0:j1] -= L[j0:j1, :j0] @ B[:j0]
        blas.solve_transposed(L[j0:j1, j0:j1], B[j0:j1], back=False)


def _failure(K: Array, kept: Kept, j0: int, schur: Array, pivot: int) -> NotPositiveDefiniteError:
    """Bound the smallest eigenvalue by vᵀAv/vᵀv and by a Ritz value.

    v = (−A₁₁⁻¹A₁₂u, u), with u the lowest eigenvector of the Schur complement that has the bad pivot.
    """
    lower = np.tril(schur).astype(np.float64)
    size = pivot - j0 + 1
    lower = lower[:size, :size]
    values, vectors = np.linalg.eigh(lower + np.tril(lower, -1).T)
    direction = np.zeros((len(K), 1), K.dtype)
    tail = vectors[:, :1].astype(K.dtype)
    direction[:j0] = K[j0 : pivot + 1, :j0].T @ -tail
    _substitute(K[:j0, :j0], direction[:j0], back=True)
    direction[j0 : pivot + 1] = tail
    eigenvalue = float(values[0]) / float(np.sum(direction.astype(np.float64) ** 2))
    largest = largest_eigenvalue(kept.__matmul__, len(K)) or 1.0
    lowest = largest - largest_eigenvalue(lambda V: largest * V - kept @ V, len(K))
    eigenvalue = min(eigenvalue, lowest)
    rounding = 4 * len(K) * float(np.finfo(K.dtype).eps) * largest
    return NotPositiveDefiniteError(pivot, eigenvalue, 2 * abs(eigenvalue) + rounding, K.dtype.name)
