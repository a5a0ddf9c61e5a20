"""Kernel matrices that are read by rectangles: the abstract class and two kinds.

:class:`MatrixBlocks` holds an array, :class:`ComputedBlocks` computes from a model and samples. Kernels on disk and on
clusters are in :mod:`notsodeep.scale`.
"""

from __future__ import annotations

import hashlib
import threading
import time
from abc import ABC, abstractmethod
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from notsodeep.checks import InputError, matrix, warn_convergence
from notsodeep.kernels.products import symmetric_product
from notsodeep.progress import Progress, reporter
from notsodeep.threads import Pool, pool
from notsodeep.version import __version__

__all__ = ["ComputedBlocks", "KernelMatrix", "MatrixBlocks", "fingerprint", "multiply", "precision_of", "side"]

Array: TypeAlias = NDArray[Any]
Span: TypeAlias = tuple[slice, slice]

_ACCEPTABLE = {"float64": 1e-9, "float32": 1e-4}
_SIDE = 2048  # approximate side of a tile: 32 MB in float64
_CACHED = 512  # a tile of this side in float32 and its copy in float64 fit the second-level cache of few cores


class KernelMatrix(ABC):
    """K(x_i, y_j), a rectangle at a time, from several threads if wanted.

    Attributes
    ----------
    shape : (n, m)
    dtype : dtype
        Of the entries.
    symmetric : bool
        Whether rows and columns are the same samples.
    samples : pair of arrays, or None
        Samples of rows and columns as passed; the second is None if both are the same. None if only entries are known.

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> from notsodeep.kernels import KernelBlocks
    >>> X, Y = np.random.default_rng(0).standard_normal((2, 700, 5))
    >>> deq, v = nsd.DEQ("relu", 0.2, 0.8), np.ones(700)
    >>> bool(np.allclose(KernelBlocks(deq, Y, X) @ v, deq.kernel(Y, X) @ v, rtol=1e-13))
    True
    """

    samples: tuple[Array, Array | None] | None = None

    def __init__(self, shape: tuple[int, int], dtype: DTypeLike, symmetric: bool) -> None:
        self.shape = shape
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.symmetric = symmetric

    @abstractmethod
    def block(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = False) -> Array:
        """Return the entries of these rows and columns, written into `out` (C-contiguous) where given.

        `progress` may be ignored where nothing long is computed.
        """

    @abstractmethod
    def diagonal(self) -> Array:
        """K(x_i, x_i) of the rows' samples, in float64."""

    @abstractmethod
    def astype(self, dtype: DTypeLike) -> KernelMatrix:
        """Return the same kernel in another precision, from the samples as they were given."""

    def columns(self, chosen: Array) -> Array:
        """K[:, chosen], shape (n, len(chosen)); a copy."""
        return np.hstack([self.block(slice(None), slice(j, j + 1)) for j in chosen])

    @property
    def tile(self) -> tuple[int, int]:
        """A good size of rectangle, in rows and columns, to compute or read at once."""
        return side(self.shape[0]), side(self.shape[1])

    @property
    def provenance(self) -> dict[str, Any] | None:
        """Everything that the entries depend on, as JSON; None if the entries were passed."""
        return None

    def product(self, V: ArrayLike, *, deterministic: bool = False, progress: Progress = None) -> Array:
        """K V, with sums in float64 and a few tiles in memory; ``K @ V`` does the same.

        Parameters
        ----------
        V : array (m,) or (m, k)
        deterministic : bool
            True uses large tiles, added in a fixed order: results are bit-identical for any number of threads. False
            uses tiles that fit the cache and one sum per thread: faster for a matrix in memory, but the last bits
            depend on the number of threads. Kernels on disk and on clusters are always deterministic.
        progress : bool or callable, optional

        Returns
        -------
        array (n,) or (n, k), float64
        """
        values = matrix(V, "V", rank=np.ndim(V) if np.ndim(V) in (1, 2) else 2)
        n, m = self.shape
        if len(values) != m:
            raise InputError(f"V has {len(values)} rows but the kernel has {m} columns; pass one row for each")
        vectors = np.ascontiguousarray(values.reshape(m, -1), dtype=np.float64)
        return self._product(vectors, deterministic, progress).reshape(n, *values.shape[1:])

    def __matmul__(self, V: ArrayLike) -> Array:
        return self.product(V, progress=False)

    def spans(self, tile: tuple[int, int]) -> list[Span]:
        """Rectangles of this size that cover the matrix, or its upper triangle if it is symmetric."""
        (n, m), (height, width) = self.shape, tile
        rows = [slice(i, min(i + height, n)) for i in range(0, n, height)]
        columns = [slice(j, min(j + width, m)) for j in range(0, m, width)]
        return [(r, c) for r in rows for c in columns if not self.symmetric or c.start >= r.start]

    def _product(self, vectors: Array, deterministic: bool, progress: Progress) -> Array:
        """K V for checked vectors (m, k)."""
        spans = self.spans(self.tile if deterministic else (_CACHED, _CACHED))
        with pool() as crew, reporter("product", len(spans), progress) as report:
            return (self._in_order if deterministic else self._by_threads)(crew, spans, vectors, report)

    def _in_order(self, crew: Pool, spans: list[Span], vectors: Array, report: Any) -> Array:
        result = np.zeros((self.shape[0], vectors.shape[1]))
        for done, (span, parts) in enumerate(
            zip(spans, crew.map(lambda span: self._multiplied(span, vectors), spans), strict=True), 1
        ):
            add(result, span, parts)
            report(done, len(spans))
        return result

    def _by_threads(self, crew: Pool, spans: list[Span], vectors: Array, report: Any) -> Array:
        sums = np.zeros((crew.count, self.shape[0], vectors.shape[1]))

        def work(span: Span, worker: int) -> None:
            add(sums[worker], span, self._multiplied(span, vectors))

        crew.share(spans, work, lambda done: report(done, len(spans)))
        return sums.sum(axis=0)

    def _multiplied(self, span: Span, vectors: Array) -> tuple[Array, Array | None]:
        rows, columns = span
        mirrored = self.symmetric and rows != columns
        return multiply(self.block(rows, columns), vectors[columns], vectors[rows] if mirrored else None)


def multiply(tile: Array, right: Array, left: Array | None) -> tuple[Array, Array | None]:
    """T V and, for a tile that also represents its mirror image, Tᵀ W, in float64."""
    tile = tile.astype(np.float64, copy=False)
    return tile @ right, None if left is None else tile.T @ left


def add(result: Array, span: Span, parts: tuple[Array, Array | None]) -> None:
    """Add the result of :func:`multiply` for a rectangle."""
    result[span[0]] += parts[0]
    if parts[1] is not None:
        result[span[1]] += parts[1]


class MatrixBlocks(KernelMatrix):
    """A matrix that exists already; parts are views.

    Parameters
    ----------
    K : array (n, m)
    symmetric : bool, optional
        Whether K equals its transpose, so that only half of it is read; tested when absent.
    samples : pair of arrays, optional
        What it was computed from, if known; see :class:`KernelMatrix`.

    Examples
    --------
    >>> import numpy as np
    >>> K = MatrixBlocks(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> K.shape, K.symmetric
    ((2, 2), True)
    >>> K.block(slice(0, 1), slice(0, 2))
    array([[2., 1.]])
    """

    def __init__(
        self,
        K: ArrayLike,
        *,
        symmetric: bool | None = None,
        samples: tuple[Array, Array | None] | None = None,
    ) -> None:
        self.matrix, self.samples = matrix(K, "K"), samples
        n, m = self.matrix.shape
        if symmetric and n != m:
            raise InputError(f"K has shape {self.matrix.shape}; a symmetric matrix must be square")
        super().__init__((n, m), self.matrix.dtype, _equals_transpose(self.matrix) if symmetric is None else symmetric)

    def block(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = False) -> Array:
        part = self.matrix[rows, columns]
        if out is None:
            return part
        out[...] = part
        return out

    def diagonal(self) -> Array:
        return self.matrix.diagonal().astype(np.float64)

    def columns(self, chosen: Array) -> Array:
        return self.matrix[chosen].T if self.symmetric else self.matrix[:, chosen]  # rows are contiguous

    def astype(self, dtype: DTypeLike) -> MatrixBlocks:
        precision = precision_of(dtype, self.matrix)
        if precision == self.dtype:
            return self
        return MatrixBlocks(self.matrix.astype(precision), symmetric=self.symmetric, samples=self.samples)

    def _product(self, vectors: Array, deterministic: bool, progress: Progress) -> Array:
        small = len(self.matrix) <= _CACHED  # not worth a compiled loop
        if deterministic or small or not self.symmetric or not self.matrix.flags.c_contiguous:
            return super()._product(vectors, deterministic, progress)
        with reporter("product", 1, progress) as report:
            return symmetric_product(self.matrix, self.matrix.diagonal(), vectors, report)


class ComputedBlocks(KernelMatrix):
    """A kernel computed from a model and samples; a subclass computes the entries of a rectangle.

    Attributes
    ----------
    model : DEQ, Explicit or ConvDEQ
    kinds : tuple of str
        The kernels, computed together.
    dtype : dtype
        Precision of computation and result.
    """

    samples: tuple[Array, Array | None]
    _work: Any  # what was done so far; has an estimated `error` and can `merge`
    _seconds: float

    def __init__(
        self, model: Any, kinds: tuple[str, ...], dtype: DTypeLike | None, first: Array, second: Array | None
    ) -> None:
        others = first if second is None else second
        super().__init__((len(first), len(others)), precision_of(dtype, first, second), second is None)
        self.model = model
        self.kinds = kinds
        self.samples = first, second
        self._diagonals: list[Array] | None = None
        self._lock = threading.Lock()

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Other parameters that the values depend on."""

    @property
    @abstractmethod
    def info(self) -> Any:
        """What was done so far, over all rectangles."""

    @property
    def recipe(self) -> tuple[Any, Any, dict[str, Any]]:
        """Constructor arguments for the same kernel of other samples: ``kind(model, X, Y, **options)``."""
        return type(self), self.model, {"kind": self.kinds, "dtype": self.dtype.name, **self.options}

    def astype(self, dtype: DTypeLike) -> Self:
        if precision_of(dtype, *self.samples) == self.dtype:
            return self
        kind, model, options = self.recipe
        return kind(model, *self.samples, **(options | {"dtype": dtype}))

    def columns(self, chosen: Array, dtype: DTypeLike | None = None) -> Array:
        """K[:, chosen], in another precision if wanted."""
        first, second = self.samples
        kind, model, options = self.recipe
        others = (first if second is None else second)[chosen]
        part = kind(model, others, first, **(options if dtype is None else options | {"dtype": dtype}))
        return part.block(slice(None), slice(None)).T

    @property
    def provenance(self) -> dict[str, Any]:
        if len(self.kinds) > 1:
            raise InputError(f"out cannot hold {len(self.kinds)} kernels; ask for one kind at a time")
        first, second = self.samples
        return {
            "model": self.model.to_dict(),
            "kind": self.kinds[0],
            **self.options,
            "X": fingerprint(first),
            "Y": None if second is None else fingerprint(second),
            "version": __version__,
        }

    def diagonals(self) -> list[Array]:
        """K(x_i, x_i) for each kind, in float64."""
        if self._diagonals is None:
            self._diagonals = self._diagonal_of_each()
        return self._diagonals

    def diagonal(self) -> Array:
        return self.diagonals()[0]

    def block(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = False) -> Array:
        return self.planes(rows, columns, None if out is None else out[None], progress)[0]

    def planes(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = None) -> Array:
        """One rectangle of every kind, shape (kinds, rows, columns)."""
        began = time.perf_counter()
        (i0, i1, _), (j0, j1, _) = rows.indices(self.shape[0]), columns.indices(self.shape[1])
        result = np.empty((len(self.kinds), i1 - i0, j1 - j0), self.dtype) if out is None else out
        symmetric = self.symmetric and (i0, i1) == (j0, j1)
        work = self._fill(result, slice(i0, i1), slice(j0, j1), symmetric, progress)
        if self.symmetric and self._diagonal_is_known:
            shared = np.arange(max(i0, j0), min(i1, j1))
            for plane, diagonal in zip(result, self.diagonals(), strict=True):
                plane[shared - i0, shared - j0] = diagonal[shared]
        self._record(work, time.perf_counter() - began)
        return result

    @property
    def _diagonal_is_known(self) -> bool:
        """Whether the diagonal follows from the variances alone, so that `_fill` may leave it out."""
        return True

    @abstractmethod
    def _diagonal_of_each(self) -> list[Array]:
        """K(x_i, x_i) for each kind, in float64."""

    @abstractmethod
    def _fill(self, out: Array, rows: slice, columns: slice, symmetric: bool, progress: Progress) -> Any:
        """Write a rectangle of every kind into `out` and return its counters, as summed up in `_work`."""

    @abstractmethod
    def _complaint(self, work: Any) -> str:
        """The message for a rectangle whose error is too large."""

    def _record(self, work: Any, seconds: float) -> None:
        acceptable = _ACCEPTABLE[self.dtype.name]
        with self._lock:
            warned = not self._work.error <= acceptable  # NaN counts as the largest error
            self._work = self._work.merge(work)
            self._seconds += seconds
        if not (work.error <= acceptable or warned):
            warn_convergence(self._complaint(work))


def precision_of(dtype: DTypeLike | None, first: Array, second: Array | None = None) -> np.dtype[Any]:
    """The dtype asked for, or that of the samples."""
    if dtype is None:
        return np.result_type(first, first if second is None else second)
    try:
        precision = np.dtype(dtype)
    except TypeError:
        precision = np.dtype(object)
    if precision not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise InputError(f"dtype={dtype!r} is not supported; use 'float64' or 'float32'")
    return precision


def side(n: int, wish: int = _SIDE) -> int:
    """The side of equal tiles that cover `n` rows, at most about `wish`, a multiple of 16.

    >>> side(20_000), side(2049), side(100)
    (2000, 1040, 100)
    """
    return min(n, -(-n // (16 * -(-n // wish))) * 16)


def fingerprint(array: Array) -> str:
    """SHA-256 over type, shape and values."""
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape}\n".encode())
    rows = max(1, (1 << 24) // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        digest.update(np.ascontiguousarray(array[start : start + rows]).data.cast("B"))
    return digest.hexdigest()


def _equals_transpose(K: Array) -> bool:
    if len(K) != K.shape[1]:
        return False
    limit = 16 * float(np.finfo(K.dtype).eps) * float(np.abs(K.diagonal()).max())
    return all(
        bool((np.abs(K[i : i + _CACHED, j : j + _CACHED] - K[j : j + _CACHED, i : i + _CACHED].T) <= limit).all())
        for i in range(0, len(K), _CACHED)
        for j in range(i, len(K), _CACHED)
    )
