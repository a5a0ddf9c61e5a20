"""K V for a symmetric matrix in memory: every entry above the diagonal is read once and used for two rows.

Half of the traffic of a general product. Four rows and two vectors at a time share what is loaded. Sums are in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep import compilation
from notsodeep.threads import pool

__all__ = ["symmetric_product"]

Array: TypeAlias = NDArray[Any]

_PANEL = 64  # rows of a task
_CHUNK = 512  # columns treated at a time: sums of ten vectors stay in the first-level cache
assert _PANEL % 4 == 0  # the unrolled loop below
_jit = compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "nsz", "nnan", "reassoc"})


def symmetric_product(K: Array, diagonal: Array, vectors: Array, report: Callable[[int, int], None]) -> Array:
    """A V, where A is K above the diagonal, mirrored below, and has this diagonal.

    Parameters
    ----------
    K : array (n, n)
        C-contiguous; its diagonal and what is below are not read.
    diagonal : array (n,)
    vectors : array (n, k), float64
    report : callable
        Called with the number of tasks done and in all.

    Returns
    -------
    array (n, k), float64; the last bits depend on the number of threads
    """
    n, k = vectors.shape
    V = np.zeros((k + k % 2, n))  # an even number of rows
    V[:k] = vectors.T
    panels = range(0, n, _PANEL)
    with pool() as crew:
        sums = np.zeros((crew.count, *V.shape))

        def work(i0: int, worker: int) -> None:
            _add_rows(sums[worker], K, V, i0, min(i0 + _PANEL, n))

        crew.share(panels, work, lambda done: report(done, len(panels)))
    return np.ascontiguousarray((diagonal * V[:k] + sums.sum(axis=0)[:k]).T)


@_jit
def _add_rows(sums: Any, K: Any, V: Any, i0: int, i1: int) -> None:
    """Add what the entries above the diagonal in rows i0 to i1 contribute; V and sums are (k, n), k even.

    The rows are a whole panel, or the last ones, which have nothing to the right of their square.
    """
    n, k = K.shape[0], V.shape[0]
    for i in range(i0, i1 - 1):  # the square on the diagonal
        entries = K[i, i + 1 : i1]
        for column in range(k):
            vector, total = V[column, i + 1 : i1], sums[column, i + 1 : i1]
            factor, product = V[column, i], 0.0
            for j in range(entries.size):
                entry = np.float64(entries[j])
                product += entry * vector[j]
                total[j] += entry * factor
            sums[column, i] += product
    below, right = np.empty((k, _CHUNK)), np.zeros((k, _PANEL))
    for j0 in range(i1, n, _CHUNK):
        width = min(_CHUNK, n - j0)
        below[:, :] = 0.0
        for i in range(i0, i1, 4):
            a, b = K[i, j0 : j0 + width], K[i + 1, j0 : j0 + width]
            c, d = K[i + 2, j0 : j0 + width], K[i + 3, j0 : j0 + width]
            for column in range(0, k, 2):
                v, w = V[column, j0 : j0 + width], V[column + 1, j0 : j0 + width]
                x, y = below[column, :width], below[column + 1, :width]
                va, vb, vc, vd = V[column, i], V[column, i + 1], V[column, i + 2], V[column, i + 3]
                wa, wb, wc, wd = V[column + 1, i], V[column + 1, i + 1], V[column + 1, i + 2], V[column + 1, i + 3]
                sa = sb = sc = sd = ta = tb = tc = td = 0.0
                for j in range(width):
                    sa += a[j] * v[j]
                    sb += b[j] * v[j]
                    sc += c[j] * v[j]
                    sd += d[j] * v[j]
                    ta += a[j] * w[j]
                    tb += b[j] * w[j]
                    tc += c[j] * w[j]
                    td += d[j] * w[j]
                    x[j] += a[j] * va + b[j] * vb + c[j] * vc + d[j] * vd
                    y[j] += a[j] * wa + b[j] * wb + c[j] * wc + d[j] * wd
                first, second = right[column, i - i0 : i - i0 + 4], right[column + 1, i - i0 : i - i0 + 4]
                first[0] += sa
                first[1] += sb
                first[2] += sc
                first[3] += sd
                second[0] += ta
                second[1] += tb
                second[2] += tc
                second[3] += td
        for column in range(k):
            total, part = sums[column, j0 : j0 + width], below[column, :width]
            for j in range(width):
                total[j] += part[j]
    for column in range(k):
        for row in range(i1 - i0):
            sums[column, i0 + row] += right[column, row]
