"""K + Λ = L Lᵀ out of core: block Cholesky with a handful of tiles in memory, resumed after a kill.

Tile (i, j) of the factor is

    L_ij = (K_ij − Σ_{k<j} L_ik L_jkᵀ) L_jj⁻ᵀ,     L_jj = chol(K_jj + Λ_jj − Σ_{k<j} L_jk L_jkᵀ)

There is one task per tile, submitted column by column. A task waits only for the tiles it reads, so the next column
starts before the current one ends. Every finished tile is a checkpoint. Each tile of the kernel is computed once.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack, solve_triangular

from notsodeep.checks import InputError, count
from notsodeep.kernels import KernelMatrix
from notsodeep.kernels.matrices import fingerprint
from notsodeep.progress import Progress, reporter
from notsodeep.scale.store import Tile, TileStore
from notsodeep.threads import each, pool

__all__ = ["StoredFactor"]

Array: TypeAlias = NDArray[Any]

_KEPT = 4  # tiles of the factor kept in memory, because several threads read them at about the same time


class StoredFactor:
    """The Cholesky factor of K + Λ on disk: a `Factorization`."""

    def __init__(self, path: str | Path) -> None:
        self.store = TileStore(path)
        if "added" not in self.store.manifest or self.store.manifest["triangle"] != "lower":
            raise InputError(f"{self.store.path} does not hold a factor")

    @staticmethod
    def of(
        K: KernelMatrix,
        added: float | Array,
        directory: str | Path,
        *,
        tile: int | None = None,
        progress: Progress = None,
    ) -> StoredFactor:
        """Factor K + Λ into a store of its own, and open it.

        Parameters
        ----------
        K : KernelMatrix
            Symmetric, computed or stored.
        added : float or array (n,)
            The diagonal Λ; nothing else is added, however close to singular the kernel is.
        directory : str or Path
            Where the factor is stored. If the process is killed, the same call continues.
        tile : int, optional
            Side of a tile; that of a stored kernel by default, otherwise about 2048.
        """
        n = K.shape[0]
        if not K.symmetric:
            raise InputError("only the kernel of one set of samples with itself can be factored")
        if (kernel := K.provenance) is None:
            raise InputError("a factor on disk needs a kernel that is computed or stored, not a matrix in memory")
        extra = np.broadcast_to(np.asarray(added, np.float64), n)
        described = {
            "triangle": "lower",
            "kernel": kernel,
            "added": float(extra[0]) if np.ndim(added) == 0 else fingerprint(extra),
        }
        length = K.tile[0] if tile is None else min(count(tile, "tile"), n)
        with (
            TileStore.writing(directory, (n, n), (length, length), K.dtype, described) as store,
            reporter("factor", len(store.tiles()), progress) as report,
        ):
            _factor(K, extra, store, report)
            store.require_claim(complete=True)
        return StoredFactor(directory)

    @property
    def shape(self) -> tuple[int, int]:
        return self.store.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.store.dtype

    def solve(self, B: ArrayLike) -> Array:
        """(K + Λ)⁻¹ B in the precision of the factor, returned in float64."""
        return self._substitute(self.half_solve(B), forward=False)

    def half_solve(self, B: ArrayLike) -> Array:
        """L⁻¹ B; the squared norm of a column is bᵀ(K + Λ)⁻¹b."""
        return self._substitute(B, forward=True)

    def logdet(self) -> float:
        """log det (K + Λ)."""
        diagonals = (self.store.read((k, k)).diagonal() for k in range(self.store.grid[0]))
        return float(sum(2 * np.log(d.astype(np.float64)).sum() for d in diagonals))

    def inverse_diagonal(self, progress: Progress = None, *, memory: int = 1 << 28) -> Array:
        """diag (K + Λ)⁻¹ = Σ_i (L⁻¹)²_ij, by columns of L⁻¹ that fit in `memory` bytes (a third of n³ operations)."""
        n = self.shape[0]
        width = max(1, memory // (16 * n))
        result = np.empty(n)
        with reporter("inverse diagonal", n, progress) as report:
            for start in range(0, n, width):
                columns = slice(start, min(start + width, n))
                unit = np.zeros((n, columns.stop - start), self.dtype)
                unit[columns] = np.eye(columns.stop - start)
                half = self.half_solve(unit)
                result[columns] = np.einsum("ij,ij->j", half, half)
                report(columns.stop, n)
        return result

    def _substitute(self, B: ArrayLike, forward: bool) -> Array:
        store, tiles = self.store, self.store.grid[0]
        X = np.array(B, self.dtype)
        if X.ndim not in (1, 2) or len(X) != self.shape[0]:
            raise InputError(f"B has shape {X.shape} but must be ({self.shape[0]}, k)")
        rows = [store.span((k, k))[0] for k in range(tiles)]

        def part(i: int, k: int) -> Array:
            return store.read((i, k)) @ X[rows[k]] if forward else store.read((k, i)).T @ X[rows[k]]

        with pool() as crew:
            for i in range(tiles) if forward else reversed(range(tiles)):
                known = range(i) if forward else range(i + 1, tiles)
                nonzero = [k for k in known if X[rows[k]].any()]
                for term in crew.map(lambda k, i=i: part(i, k), nonzero):
                    X[rows[i]] -= term
                X[rows[i]] = solve_triangular(
                    store.read((i, i)), X[rows[i]], lower=True, trans=0 if forward else 1, check_finite=False
                )
        return X.astype(np.float64)


def _factor(K: KernelMatrix, added: Array, store: TileStore, report: Any) -> None:
    order = sorted(store.tiles(), key=lambda tile: (tile[1], tile[0]))  # by columns
    finished: set[Tile] = set()
    each(lambda tile: finished.add(tile) if store.valid(tile) else None, order, lambda *_: None)
    stop = threading.Event()
    futures: dict[Tile, Future[None]] = {}
    shared = _Recent(store)

    def compute(i: int, j: int) -> None:
        rows, columns = store.span((i, j))
        rest = K.block(rows, columns)
        if i == j:
            rest[np.diag_indices(len(rest))] += added[rows]
            diagonal = rest.diagonal().astype(np.float64)
        for k in range(j):
            futures[i, k].result()
            futures[j, k].result()
            if stop.is_set():
                raise InterruptedError("another tile failed")
            pivot = shared.read((j, k))
            rest -= (pivot if i == j else store.read((i, k))) @ pivot.T
        if i == j:
            rest = _pivot(rest, rows.start, 4 * math.sqrt(len(added)) * float(np.finfo(rest.dtype).eps) * diagonal)
        else:
            futures[j, j].result()
            # L_ij L_jjᵀ = rest
            rest = solve_triangular(shared.read((j, j)), rest.T, lower=True, check_finite=False).T
        store.write((i, j), rest)

    with pool() as crew:
        for tile in order:
            if tile in finished:
                futures[tile] = Future()
                futures[tile].set_result(None)
            else:
                futures[tile] = crew.submit(compute, *tile)
        try:
            for done, tile in enumerate(order, 1):
                futures[tile].result()
                report(done, len(order))
        finally:
            stop.set()


def _pivot(block: Array, start: int, negligible: Array) -> Array:
    """The factor of a diagonal tile; a pivot at or below `negligible` counts as rounding error."""
    potrf = lapack.dpotrf if block.dtype == np.float64 else lapack.spotrf
    lower, info = potrf(block, lower=True, clean=True)
    bad = ~(lower.diagonal().astype(np.float64) ** 2 > negligible)
    if info or bad.any():
        order = info or int(np.argmax(bad)) + 1
        raise InputError(
            f"K + ridge·W⁻¹ is not positive definite in {block.dtype}: the leading minor of order {start + order} is "
            "zero or negative to rounding (duplicate samples?); raise ridge"
            + (", or use float64" if block.dtype == np.float32 else "")
        )
    return lower


class _Recent:
    """The last tiles read, shared by the threads."""

    def __init__(self, store: TileStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._tiles: OrderedDict[Tile, Array] = OrderedDict()

    def read(self, tile: Tile) -> Array:
        with self._lock:
            if tile in self._tiles:
                self._tiles.move_to_end(tile)
                return self._tiles[tile]
        data = self._store.read(tile)
        with self._lock:
            self._tiles[tile] = data
            while len(self._tiles) > _KEPT:
                self._tiles.popitem(last=False)
        return data
