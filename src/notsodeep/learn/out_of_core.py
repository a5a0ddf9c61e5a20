"""(K + ridge·W⁻¹) α = Y with neither K nor its factor in memory: on disk, on a cluster, resumed after a kill."""

from __future__ import annotations

import math
import os
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import ConvergenceWarning, InputError, choice, count, matrix, nonnegative, positive
from notsodeep.kernels import Blocks
from notsodeep.learn.condition import largest_eigenvalue
from notsodeep.learn.conjugate_gradients import ConjugateGradients, relative
from notsodeep.learn.products import product
from notsodeep.learn.solution import Solution, diagonal_shift
from notsodeep.learn.solve import solve
from notsodeep.progress import Progress
from notsodeep.scale import compute, factorize
from notsodeep.scale.distributed import ClusterBlocks

__all__ = ["solve_out_of_core"]

Array: TypeAlias = NDArray[Any]

_REFINEMENTS = 20  # each a pass over the kernel and two over the factor


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
    folder.mkdir(parents=True, exist_ok=True)
    if method == "cg":
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
            checkpoint=folder / "cg.npz",
            **options,
        )
        return replace(answer, reason=f"out of core was asked for; tiles are {where} in each iteration")
    if options:
        raise InputError(f"{next(iter(options))} is for method='cg'")
    return _cholesky(blocks, targets, folder, ridge, weights, tol, max_iterations, client, tile, progress)


def _cholesky(
    blocks: Any,
    targets: ArrayLike,
    folder: Path,
    ridge: float,
    weights: ArrayLike | None,
    tol: float,
    max_iterations: int | None,
    client: Any,
    tile: int | None,
    progress: Progress,
) -> Solution:
    began = time.perf_counter()
    n = blocks.shape[0]
    values = matrix(targets, "targets", rank=1 if np.ndim(targets) == 1 else 2)
    if len(values) != n:
        raise InputError(f"targets has {len(values)} rows but the kernel has {n}; pass one row for each sample")
    ridge, tol = nonnegative(ridge, "ridge"), positive(tol, "tol")
    limit = _REFINEMENTS if max_iterations is None else count(max_iterations, "max_iterations", 0)
    shift, _ = diagonal_shift(ridge, weights, n)
    B = values.reshape(n, -1).astype(np.float64)
    scale = np.linalg.norm(B, axis=0)
    source = blocks if client is None else compute(blocks, folder / "kernel.zarr", tile=tile, client=client)
    factor = factorize(
        source, ridge if weights is None else shift, folder / "factor.zarr", tile=tile, progress=progress
    )
    exact = source.astype("float64")

    def operator(V: Array) -> Array:
        return product(exact, V, progress=False) + shift[:, None] * V

    cg = ConjugateGradients(operator, B, factor.solve, start=factor.solve(B))  # refinement against the kernel
    last = math.inf
    while cg.residual > tol and cg.iteration < limit and cg.residual < 0.5 * last:
        last = cg.residual
        cg.step()
    residual = relative(B - operator(cg.X), scale) if cg.iteration else cg.residual
    length = factor.store.tile[0]
    answer = Solution(
        coefficients=cg.X.reshape(values.shape),
        method="cholesky",
        reason=f"out of core was asked for; the factor takes {n * n * factor.dtype.itemsize / 2e9:.3g} GB on disk",
        ridge=ridge,
        residual=residual,
        converged=residual <= tol,
        condition=largest_eigenvalue(operator, n, steps=2) * largest_eigenvalue(factor.solve, n, steps=2),
        condition_method="Ritz values of the matrix and of its factor's inverse",
        iterations=cg.iteration,
        seconds=time.perf_counter() - began,
        bytes=8 * length * length * factor.dtype.itemsize,
        shift=shift,
        factor=factor,  # type: ignore[arg-type]
    )
    if not answer.converged:
        warnings.warn(
            f"the factor leaves a relative residual of {residual:.1e} after {cg.iteration} refinements, above "
            f"tol={tol:g} (condition number about {answer.condition:.0e}); raise ridge or tol",
            ConvergenceWarning,
            stacklevel=3,
        )
    return answer
