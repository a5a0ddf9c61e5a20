"""Products with a kernel matrix that need a few tiles of it at a time.

Unlike :func:`notsodeep.scale.products.product`, which keeps its bits whatever computes the tiles, this one has tiles
that fit the cache and a sum for each thread: the fastest for a matrix in memory, with last bits that depend on how many
threads there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from notsodeep import kernels
from notsodeep.checks import InputError, matrix
from notsodeep.kernels import Blocks
from notsodeep.kernels.blocks import precision_of
from notsodeep.progress import Progress, reporter
from notsodeep.threads import workers

__all__ = ["MatrixBlocks", "Operator", "columns", "product"]

Array: TypeAlias = NDArray[Any]
Operator: TypeAlias = Callable[[Array], Array]

_TILE = 512  # one tile in float32 and its copy in float64 fit the second-level cache of few cores, the third of most


class MatrixBlocks:
    """A matrix that exists already, read by rectangles; parts are views.

    Parameters
    ----------
    K : array (n, m)
    symmetric : bool, optional
        Whether K equals its transpose, so that half of it need be read; looked at when absent.

    Examples
    --------
    >>> import numpy as np
    >>> blocks = MatrixBlocks(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> blocks.shape, blocks.symmetric
    ((2, 2), True)
    >>> blocks.block(slice(0, 1), slice(0, 2))
    array([[2., 1.]])
    """

    def __init__(self, K: ArrayLike, *, symmetric: bool | None = None) -> None:
        self.matrix = matrix(K, "K")
        n, m = self.matrix.shape
        if symmetric and n != m:
            raise InputError(f"K has shape {self.matrix.shape}; a symmetric matrix must be square")
        self.symmetric = _symmetric(self.matrix) if symmetric is None else bool(symmetric)
        self.shape: tuple[int, int] = (n, m)
        self.dtype: np.dtype[Any] = self.matrix.dtype

    def block(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = False) -> Array:
        part = self.matrix[rows, columns]
        if out is None:
            return part
        out[...] = part
        return out

    def diagonal(self) -> Array:
        return self.matrix.diagonal().astype(np.float64)

    def astype(self, dtype: DTypeLike) -> MatrixBlocks:
        precision = precision_of(dtype, self.matrix)
        return (
            self if precision == self.dtype else MatrixBlocks(self.matrix.astype(precision), symmetric=self.symmetric)
        )


def product(blocks: Blocks, V: ArrayLike, progress: Progress = None) -> Array:
    """K V, with sums in float64 and a few tiles in memory per thread.

    Parameters
    ----------
    blocks : Blocks, shape (n, m)
        A symmetric matrix is asked for its tiles on and above the diagonal only; each is used twice.
    V : array (m,) or (m, k)
    progress : bool or callable, optional

    Returns
    -------
    array (n,) or (n, k), float64

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> from notsodeep.kernels import KernelBlocks
    >>> X, Y = np.random.default_rng(0).standard_normal((2, 700, 5))
    >>> deq = nsd.DEQ("relu", 0.2, 0.8)
    >>> v = np.ones(700)
    >>> bool(np.allclose(product(KernelBlocks(deq, Y, X), v), deq.kernel(Y, X) @ v, rtol=1e-13))
    True
    """
    values = matrix(V, "V", rank=np.ndim(V) if np.ndim(V) in (1, 2) else 2)
    n, m = blocks.shape
    if len(values) != m:
        raise InputError(f"V has {len(values)} rows but the kernel has {m} columns; pass one row for each")
    if hasattr(blocks, "product"):  # a kernel on disk or on a cluster has its own way
        return np.asarray(blocks.product(values, progress=progress))
    vectors = np.ascontiguousarray(values.reshape(m, -1), dtype=np.float64)
    tiles = [
        (slice(i, min(i + _TILE, n)), slice(j, min(j + _TILE, m)))
        for i in range(0, n, _TILE)
        for j in range(i if blocks.symmetric else 0, m, _TILE)
    ]
    with workers() as crew, reporter("product", len(tiles), progress) as report:
        sums = np.zeros((crew.count, n, vectors.shape[1]))

        def add(tile: tuple[slice, slice], worker: int) -> None:
            rows, cols = tile
            part = blocks.block(rows, cols).astype(np.float64, copy=False)
            sums[worker, rows] += part @ vectors[cols]
            if blocks.symmetric and rows != cols:
                sums[worker, cols] += part.T @ vectors[rows]

        crew.each(tiles, add, lambda done: report(done, len(tiles)))
    return sums.sum(axis=0).reshape(n, *values.shape[1:])


def columns(blocks: Blocks, chosen: Array) -> Array:
    """The columns K[:, chosen] in float64, shape (n, len(chosen))."""
    if hasattr(blocks, "columns"):
        return np.asarray(blocks.columns(chosen))
    if hasattr(blocks, "samples"):
        source: Any = blocks
        first, second = source.samples
        landmarks = (first if second is None else second)[chosen]
        part = kernels.blocks(source.model, first, landmarks, kind=source.kinds, dtype=source.dtype, **source.options)
        return part.block(slice(None), slice(None)).astype(np.float64, copy=False)
    if isinstance(blocks, MatrixBlocks):
        return blocks.matrix[:, chosen].astype(np.float64)
    result = np.empty((blocks.shape[0], len(chosen)))
    for position, column in enumerate(chosen):
        result[:, position] = blocks.block(slice(None), slice(column, column + 1))[:, 0]
    return result


def _symmetric(K: Array) -> bool:
    n, m = K.shape
    if n != m:
        return False
    limit = 16 * float(np.finfo(K.dtype).eps) * float(np.abs(K.diagonal()).max())
    return all(
        bool((np.abs(K[i : i + _TILE, j : j + _TILE] - K[j : j + _TILE, i : i + _TILE].T) <= limit).all())
        for i in range(0, n, _TILE)
        for j in range(i, n, _TILE)
    )
