"""A Cholesky factor on disk: neither K nor the factor is held in memory, and a killed run resumes."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np

from notsodeep import files
from notsodeep.checks import InputError
from notsodeep.kernels import KernelMatrix
from notsodeep.resources import readable
from notsodeep.scale import compute
from notsodeep.scale.distributed import ClusterBlocks, connected
from notsodeep.solvers.conjugate_gradients import ConjugateGradients, Operator, largest_eigenvalue
from notsodeep.solvers.methods import Solver
from notsodeep.solvers.stored_factor import StoredFactor
from notsodeep.solvers.system import Solution, System

__all__ = ["OutOfCore"]

_PATIENCE = 2  # refinements within which the residual must halve
_TILES_OF_A_THREAD, _TILES_SHARED = 4, 4  # in memory at a time


@dataclass(frozen=True)
class OutOfCore(Solver):
    """A Cholesky factor on disk: n³/3 operations, n²/2 numbers, and a few tiles in memory.

    If the process is killed, the same call continues from `directory`.

    Parameters
    ----------
    directory : path
        Receives ``factor.zarr``, every tile a checkpoint. With a client also ``kernel.zarr``.
    client : dask.distributed.Client or "tcp://host:port", optional
        Its workers compute the tiles of the kernel. The factor is made here.
    tile : int, optional
        Side of the tiles of the factor.
    tol, max_iter
        As in :class:`Solver`; the steps are those of refinement, 20 when absent, each a pass over the kernel and two
        over the factor.
    """

    directory: Any = None
    client: Any = None
    _: KW_ONLY
    tile: int | None = None

    _most_steps = 20

    def _solve(self, system: System) -> Solution:
        """Factor on disk and refine against the kernel."""
        if self.directory is None:
            raise InputError("solver='out_of_core' needs a directory to work in; pass OutOfCore(directory)")
        folder = files.folder(Path(self.directory), "directory")
        with connected(self.client) as client:
            return self._factored(system, folder, client)

    def _factored(self, system: System, folder: Path, client: Any) -> Solution:
        K: KernelMatrix = system.K
        exact: Operator = system.exact
        if client is not None:
            cluster = ClusterBlocks(K, client)
            K = compute(cluster.source, folder / "kernel.zarr", tile=self.tile, client=client)
            # a kernel stored in double precision is read; otherwise the workers compute its products in float64
            exact = system.operator(K if K.dtype == np.float64 else cluster.astype("float64"))
        n = len(system.B)
        equal = bool((system.weight == 1).all())  # one number describes the diagonal
        added = system.ridge if equal else system.shift
        factor = StoredFactor.of(K, added, folder / "factor.zarr", tile=self.tile, progress=system.progress)
        cg = ConjugateGradients(exact, system.B, factor.solve, start=factor.solve(system.B))
        residual = system.iterate(cg, exact, _PATIENCE)
        outcome = {
            "X": cg.X,
            "residual": residual,
            "condition": largest_eigenvalue(exact, n, steps=2) * largest_eigenvalue(factor.solve, n, steps=2),
            "condition_method": "Ritz values of the matrix and of its factor's inverse",
            "iterations": cg.iteration,
            "factor": factor,
        }
        tiles = _TILES_OF_A_THREAD * int(numba.get_num_threads()) + _TILES_SHARED
        reason = f"out of core: the factor takes {readable(n * n * factor.dtype.itemsize / 2)} on disk"
        return system.answer("cholesky", reason, tiles * factor.store.tile[0] ** 2 * factor.dtype.itemsize, outcome)
