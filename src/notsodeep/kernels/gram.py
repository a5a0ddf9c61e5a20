"""The engine: BLAS computes a panel of the Gram matrix, then a pool of threads turns its tiles into kernels in place.

BLAS (with all its threads) and the compiled passes (one tile per thread) run alternately, so they never compete for
cores, and a pass reads a panel that is still in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.kernels.passes import mirror
from notsodeep.progress import Progress, reporter
from notsodeep.threads import plain_pool

__all__ = ["TilePass", "build"]

Array: TypeAlias = NDArray[Any]
TilePass: TypeAlias = Callable[[Array, int, int, int, int, bool], Any]  # out, i0, i1, j0, j1, symmetric

_PANEL = 1024  # rows of a panel
_TILE = 512  # columns of a tile


def build(out: Array, X: Array, Y: Array, tile_pass: TilePass, *, symmetric: bool, progress: Progress) -> list[Any]:
    """Fill out (kinds, n, m) from rows X (n, p) and Y (m, p); return what the passes returned."""
    n, m = out.shape[1:]
    results: list[Any] = []

    def tile(i0: int, i1: int, j0: int, j1: int) -> Any:
        result = tile_pass(out, i0, i1, j0, j1, symmetric)
        if symmetric:
            mirror(out, len(out), i0, i1, j0, j1)
        return result

    total = n * (n + 1) // 2 if symmetric else n * m
    done = 0
    with reporter("kernel", total, progress) as report, plain_pool() as pool:
        for i0 in range(0, n, _PANEL):
            i1 = min(i0 + _PANEL, n)
            first = i0 if symmetric else 0
            _products(out[0], X, Y, i0, i1, symmetric)
            spans = [(j0, min(j0 + _TILE, m)) for j0 in range(first, m, _TILE)]
            if len(spans) == 1:  # starting a thread would cost more than a small kernel
                results.append(tile(i0, i1, *spans[0]))
                spans = []
            results.extend(pool.map(lambda span, i0=i0, i1=i1: tile(i0, i1, *span), spans))
            done += (i1 - i0) * (m - first) - ((i1 - i0) * (i1 - i0 - 1) // 2 if symmetric else 0)
            report(done, total)
    return results


def _products(out: Array, X: Array, Y: Array, i0: int, i1: int, symmetric: bool) -> None:
    """Inner products of the rows i0…i1 with all others, or with those that follow if `symmetric`."""
    if not symmetric:
        np.matmul(X[i0:i1], Y.T, out=out[i0:i1])
        return
    np.matmul(X[i0:i1], Y[i0:i1].T, out=out[i0:i1, i0:i1])  # the same rows: NumPy calls syrk, half the work
    if i1 < len(Y):
        np.matmul(X[i0:i1], Y[i1:].T, out=out[i0:i1, i1:])
