"""K + D = L Lᵀ in place; K itself survives above the diagonal.

Up to a few thousand rows LAPACK factors the matrix in one call. Beyond, the factorisation is left-looking: a panel of L
is the panel of K minus one long product with the columns before it, so nearly all work is in large matrix products on
all BLAS threads. (OpenBLAS' threaded factorisation ends the process on large matrices: from 16 000 rows in float64 and
30 000 in float32 with two threads. Here it only gets the squares on the diagonal.)
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from notsodeep.checks import InputError, matrix
from notsodeep.kernels import KernelMatrix
from notsodeep.kernels.products import symmetric_product
from notsodeep.progress import Progress, reporter
from notsodeep.solvers import blas
from notsodeep.solvers.conjugate_gradients import largest_eigenvalue
from notsodeep.threads import pool

__all__ = ["CholeskyFactor", "Kept", "NotPositiveDefiniteError"]

Array: TypeAlias = NDArray[Any]

_STEP = 512  # columns of a substitution step
_SOUND = 8192  # up to here LAPACK's threaded factorisation is used: half of the smallest size at which it crashed
_PANEL, _ROWS = 1024, 4096  # columns of a panel of larger matrices, and rows of it that are computed at once


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

    def _product(self, vectors: Array, deterministic: bool, progress: Progress) -> Array:
        if deterministic or self.shape[0] <= _STEP:  # not worth a compiled loop
            rounded = self._diagonal - self._diagonal.astype(self.dtype)  # what blocks lose of the diagonal
            return super()._product(vectors, deterministic, progress) + rounded[:, None] * vectors
        with reporter("product", 1, progress) as report:
            return symmetric_product(self._storage, self._diagonal, vectors, report)


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
        width = _SOUND if n <= _SOUND else _PANEL
        with reporter("factorisation", n**3, progress) as report:
            for j0 in range(0, n, width):
                j1 = min(j0 + width, n)
                square, before = K[j0:j1, j0:j1], K[j0:j1, :j0]
                blas.subtract_square(square, before)
                failed = blas.cholesky(square)
                failed = _negligible(square[: failed - 1] if failed else square, diagonal[j0:j1], n) or failed
                if failed:
                    raise _failure(K, kept, j0 + failed - 1)
                for i0 in range(j1, n, _ROWS):
                    part = K[i0 : i0 + _ROWS, j0:j1]
                    blas.subtract_product(part, K[i0 : i0 + _ROWS, :j0], before)
                    blas.solve_right(square, part)
                report(n**3 - (n - j1) ** 2 * (n + 2 * j1), n**3)
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
        spans = [slice(j, min(j + _STEP, n)) for j in range(0, n, _STEP)]
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
    bad = np.flatnonzero(L.diagonal().astype(np.float64) ** 2 <= limit * diagonal[: len(L)])
    return int(bad[0]) + 1 if len(bad) else 0


def _substitute(L: Array, B: Array, *, back: bool) -> None:
    """B ← L⁻¹ B or L⁻ᵀ B by tiles, with all BLAS threads in the products."""
    if back:
        for j1 in range(len(L), 0, -_STEP):
            j0 = max(j1 - _STEP, 0)
            B[j0:j1] -= L[j1:, j0:j1].T @ B[j1:]
            blas.solve_transposed(L[j0:j1, j0:j1], B[j0:j1], back=True)
    else:
        _forward(L, B)


def _forward(L: Array, B: Array) -> None:
    for j0 in range(0, len(L), _STEP):
        j1 = min(j0 + _STEP, len(L))
        B[j0:j1] -= L[j0:j1, :j0] @ B[:j0]
        blas.solve_transposed(L[j0:j1, j0:j1], B[j0:j1], back=False)


def _failure(K: Array, kept: Kept, pivot: int) -> NotPositiveDefiniteError:
    """Bound the smallest eigenvalue by vᵀAv/vᵀv and by a Ritz value.

    v = (−A₁₁⁻¹A₁₂u, u), with u the lowest eigenvector of the Schur complement that has the bad pivot. The rows of L
    before it are there, in whichever order LAPACK went.
    """
    j0, end = max(0, pivot + 1 - _STEP), pivot + 1
    before = K[j0:end, :j0]
    schur = kept.block(slice(j0, end), slice(j0, end)).astype(np.float64) - before.astype(np.float64) @ before.T
    values, vectors = np.linalg.eigh(schur)
    direction = np.zeros((len(K), 1), K.dtype)
    tail = vectors[:, :1].astype(K.dtype)
    direction[:j0] = before.T @ -tail
    _substitute(K[:j0, :j0], direction[:j0], back=True)
    direction[j0:end] = tail
    eigenvalue = float(values[0]) / float(np.sum(direction.astype(np.float64) ** 2))
    largest = largest_eigenvalue(kept.__matmul__, len(K)) or 1.0
    lowest = largest - largest_eigenvalue(lambda V: largest * V - kept @ V, len(K))
    eigenvalue = min(eigenvalue, lowest)
    rounding = 4 * len(K) * float(np.finfo(K.dtype).eps) * largest
    return NotPositiveDefiniteError(pivot, eigenvalue, 2 * abs(eigenvalue) + rounding, K.dtype.name)
