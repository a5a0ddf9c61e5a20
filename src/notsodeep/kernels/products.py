"""K V for a symmetric matrix in memory: every entry above the diagonal is read once and used for two rows.

The product is limited by memory, so half of the traffic is half of the time. Sums are in float64; a few rows at a time
share the vectors and sums that are loaded.
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
_GROUP, _CHUNK = 8, 256  # rows and columns treated at a time: they stay in the first-level cache
assert _GROUP == 8  # the unrolled loop below
assert _PANEL % _GROUP == 0
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
    V = np.ascontiguousarray(vectors.T)
    panels = range(0, len(K), _PANEL)
    with pool() as crew:
        sums = np.zeros((crew.count, *V.shape))

        def work(i0: int, worker: int) -> None:
            _add_rows(sums[worker], K, V, i0, min(i0 + _PANEL, len(K)))

        crew.share(panels, work, lambda done: report(done, len(panels)))
    return np.ascontiguousarray((diagonal * V + sums.sum(axis=0)).T)


@_jit
def _add_rows(sums: Any, K: Any, V: Any, i0: int, i1: int) -> None:
    """Add what the entries above the diagonal in rows i0 to i1 contribute; V and sums are (k, n).

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
    rows = np.empty((_GROUP, _CHUNK))
    for j0 in range(i1, n, _CHUNK):
        width = min(_CHUNK, n - j0)
        a, b, c, d = rows[0, :width], rows[1, :width], rows[2, :width], rows[3, :width]
        e, f, g, h = rows[4, :width], rows[5, :width], rows[6, :width], rows[7, :width]
        for i in range(i0, i1, _GROUP):
            for r in range(_GROUP):
                row, entries = rows[r, :width], K[i + r, j0 : j0 + width]
                for j in range(width):
                    row[j] = entries[j]
            for column in range(k):
                vector, total = V[column, j0 : j0 + width], sums[column, j0 : j0 + width]
                va, vb, vc, vd = V[column, i], V[column, i + 1], V[column, i + 2], V[column, i + 3]
                ve, vf, vg, vh = V[column, i + 4], V[column, i + 5], V[column, i + 6], V[column, i + 7]
                sa = sb = sc = sd = se = sf = sg = sh = 0.0
                for j in range(width):
                    value = vector[j]
                    sa += a[j] * value
                    sb += b[j] * value
                    sc += c[j] * value
                    sd += d[j] * value
                    se += e[j] * value
                    sf += f[j] * value
                    sg += g[j] * value
                    sh += h[j] * value
                    half = a[j] * va + b[j] * vb + c[j] * vc + d[j] * vd
                    total[j] += half + (e[j] * ve + f[j] * vf + g[j] * vg + h[j] * vh)
                own = sums[column, i : i + _GROUP]
                own[0] += sa
                own[1] += sb
                own[2] += sc
                own[3] += sd
                own[4] += se
                own[5] += sf
                own[6] += sg
                own[7] += sh
