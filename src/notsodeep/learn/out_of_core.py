"""(K + ridge·W⁻¹) α = Y with neither K nor its factor in memory: on disk, on a cluster, resumed after a kill."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike

from notsodeep.checks import InputError, choice, count, nearest
from notsodeep.kernels import Blocks
from notsodeep.learn.condition import largest_eigenvalue
from notsodeep.learn.conjugate_gradients import ConjugateGradients
from notsodeep.learn.resources import CHECKPOINT, made
from notsodeep.learn.solution import Solution
from notsodeep.learn.solve import solve
from notsodeep.learn.system import System
from notsodeep.memory import readable
from notsodeep.progress import Progress
from notsodeep.scale import compute, factorize
from notsodeep.scale.distributed import ClusterBlocks

__all__ = ["solve_out_of_core"]

_REFINEMENTS = 20  # each a pass over the kernel and two over the factor
_PATIENCE = 2  # of them within which the residual must halve
_OPTIONS = ("preconditioner", "rank", "seed")
_TILES_OF_A_THREAD, _TILES_SHARED = 4, 4  # in memory at a time


def solve_out_of_core(
    blocks: Blocks,
    targets: ArrayLike,
    *,
    directory: str | os.PathLike[str],
    ridge: float = 0.0,
    method: str = "cholesky",
    weights: ArrayLike | None = None,
    tol: float = 1e-6,
    max_iterations: int | None = None,
    client: Any = None,
    tile: int | None = None,
    progress: Progress = None,
    **options: Any,
) -> Solution:
    """Solve with a few tiles in memory; killed at any moment, the same call continues from `directory`.

    Parameters
    ----------
    blocks : Blocks (n, n)
        Computed (:class:`notsodeep.kernels.KernelBlocks`) or read (:class:`notsodeep.scale.StoredBlocks`).
    targets : array (n,) or (n, k)
    directory : path
        Receives ``factor.zarr`` (every tile a checkpoint) or ``cg.npz``, which is removed at the end. With a client and
        ``method="cholesky"`` also ``kernel.zarr``.
    ridge, weights, tol
        As in :func:`notsodeep.learn.solve.solve`.
    method : {"cholesky", "cg"}
        A factor on disk, n³/3 operations and n²/2 numbers; or products with tiles computed anew (or read) in each
        iteration, and nothing on disk.
    max_iterations : int, optional
        Of conjugate gradients (1000), or of refinement (20).
    client : dask.distributed.Client, optional
        Its workers compute the tiles of the kernel, and the products of conjugate gradients. The factor is made here.
    tile : int, optional
        Side of the tiles of the factor.
    options
        preconditioner, rank, seed of conjugate gradients.

    Returns
    -------
    Solution
        Its `factor` is a :class:`notsodeep.scale.Factor` on disk, or None.
    """
    method = choice(method, ("cholesky", "cg"), "method")
    folder = Path(directory)
    if not blocks.symmetric:
        raise InputError(f"blocks has shape {blocks.shape} and is not symmetric; pass the kernel of the samples alone")
    if client is not None and not hasattr(blocks, "samples"):
        raise InputError("client computes kernels from samples; a stored kernel is read here, so pass one or the other")
    if method == "cg":
        for name in options:
            if name not in _OPTIONS:
                raise InputError(
                    f"{name} is not an option{nearest(name, _OPTIONS)} (choose from {', '.join(_OPTIONS)})"
                )
        where = "read" if not hasattr(blocks, "samples") else "computed anew"
        answer = solve(
            blocks if client is None else ClusterBlocks(blocks, client),
            targets,
            ridge=ridge,
            solver="cg",
            weights=weights,
            tol=tol,
            max_iterations=max_iterations,
            memory=1,  # the matrix is never kept
            progress=progress,
            checkpoint=made(folder) / CHECKPOINT,
            **options,
        )
        return replace(answer, reason=f"out of core: tiles are {where} in each iteration")
    if options:
        raise InputError(f"{next(iter(options))} is for method='cg'")
    limit = _REFINEMENTS if max_iterations is None else count(max_iterations, "max_iterations", 0)
    system = System.of(blocks, targets, ridge, weights, tol, limit, progress)
    return _cholesky(system, weights is None, folder, client, tile)


def _cholesky(system: System, equal: bool, folder: Path, client: Any, tile: int | None) -> Solution:
    """A factor on disk and its refinement against the kernel; `equal` weights need one number for the diagonal."""
    source: Any = system.blocks
    n = len(system.B)
    made(folder)
    if client is not None:
        source = compute(source, folder / "kernel.zarr", tile=tile, client=client)
    factor = factorize(
        source, system.ridge if equal else system.shift, folder / "factor.zarr", tile=tile, progress=system.progress
    )
    exact = system.exact
    if client is not None:  # in double precision what the workers stored is the kernel itself
        double = source.dtype == np.float64
        exact = system.operator(source if double else ClusterBlocks(system.blocks, client).astype("float64"))
    cg = ConjugateGradients(exact, system.B, factor.solve, start=factor.solve(system.B))
    residual = system.iterate(cg, exact, _PATIENCE)
    tiles = _TILES_OF_A_THREAD * int(numba.get_num_threads()) + _TILES_SHARED
    outcome = {
        "X": cg.X,
        "residual": residual,
        "condition": largest_eigenvalue(exact, n, steps=2) * largest_eigenvalue(factor.solve, n, steps=2),
        "condition_method": "Ritz values of the matrix and of its factor's inverse",
        "iterations": cg.iteration,
        "factor": factor,
    }
    size = n * n * factor.dtype.itemsize / 2
    reason = f"out of core: the factor takes {readable(size)} on disk"
    return system.answer("cholesky", reason, tiles * factor.store.tile[0] ** 2 * factor.dtype.itemsize, outcome)
