"""K V without K in memory: tiles computed or read, used, and forgotten.

Unlike :func:`notsodeep.learn.products.product`, which adds small tiles up in each thread for speed, this one adds large
tiles in a fixed order, so that threads, processes and clusters arrive at the same bits.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError
from notsodeep.kernels.blocks import Blocks
from notsodeep.progress import Progress, reporter
from notsodeep.scale.store import side
from notsodeep.threads import executor

__all__ = ["multiply_tile", "product"]

Array: TypeAlias = NDArray[Any]
Span: TypeAlias = tuple[slice, slice]


def spans(blocks: Blocks) -> list[Span]:
    """Rectangles that cover the kernel, its upper triangle if it is symmetric; along the tiles if it is stored."""
    n, m = blocks.shape
    height, width = getattr(blocks, "tile", (side(n), side(m)))
    rows = [slice(i, min(i + height, n)) for i in range(0, n, height)]
    columns = [slice(j, min(j + width, m)) for j in range(0, m, width)]
    return [(r, c) for r in rows for c in columns if not blocks.symmetric or c.start >= r.start]


def multiply_tile(tile: Array, right: Array, left: Array | None) -> tuple[Array, Array | None]:
    """T V and, for a tile that also stands mirrored, Tᵀ W, in float64."""
    tile = tile.astype(np.float64, copy=False)
    return tile @ right, None if left is None else tile.T @ left


def product(blocks: Blocks, vectors: Array, *, client: Any = None, progress: Progress = None) -> Array:
    """K V in float64, with a few tiles in memory.

    Parameters
    ----------
    blocks : Blocks
        Computed or stored, (n, m). A tile of a symmetric kernel is made once and used twice.
    vectors : array (m,) or (m, k)
    client : dask.distributed.Client, optional
        Compute the tiles on its workers; the kernel must be one that is computed, not stored.

    Returns
    -------
    array (n,) or (n, k)
        The same bits for any number of threads and workers.
    """
    n, m = blocks.shape
    vectors = np.asarray(vectors, np.float64)
    if vectors.ndim not in (1, 2) or len(vectors) != m:
        raise InputError(f"vectors has shape {vectors.shape} but must be ({m}, k)")
    if vectors.ndim == 1:
        return product(blocks, vectors[:, None], client=client, progress=progress)[:, 0]
    result = np.zeros((n, vectors.shape[1]))
    covering = spans(blocks)

    def add(span: Span, parts: tuple[Array, Array | None]) -> None:
        result[span[0]] += parts[0]
        if parts[1] is not None:
            result[span[1]] += parts[1]

    def multiply(span: Span) -> tuple[Array, Array | None]:
        rows, columns = span
        mirrored = blocks.symmetric and rows != columns
        return multiply_tile(blocks.block(rows, columns), vectors[columns], vectors[rows] if mirrored else None)

    with reporter("product", len(covering), progress) as report:
        if client is not None and hasattr(blocks, "samples"):
            from notsodeep.scale import distributed

            distributed.multiply(client, blocks, covering, vectors, add, report)
            return result
        with executor() as pool:
            for k, (span, parts) in enumerate(zip(covering, pool.map(multiply, covering), strict=True)):
                add(span, parts)  # in this order whoever came first, so that the sum has the same bits
                report(k + 1, len(covering))
    return result
