"""(K + ridge·W⁻¹) α = Y: which solver, what it costs, how well it went."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import InputError, choice, count, positive
from notsodeep.kernels import Blocks
from notsodeep.learn.cholesky import NotPositiveDefiniteError, factorize
from notsodeep.learn.condition import largest_eigenvalue
from notsodeep.learn.conjugate_gradients import ConjugateGradients
from notsodeep.learn.nystrom import nystrom_coefficients
from notsodeep.learn.plan import SOLVERS, Plan, choose
from notsodeep.learn.preconditioners import PRECONDITIONERS, precondition
from notsodeep.learn.products import MatrixBlocks, Operator, product
from notsodeep.learn.solution import Solution
from notsodeep.learn.system import System
from notsodeep.learn.validation import RidgePath, leave_one_out, ridge_path
from notsodeep.memory import available_memory
from notsodeep.progress import Progress

__all__ = ["RidgePath", "Solution", "leave_one_out", "product", "ridge_path", "solve"]

Array: TypeAlias = NDArray[Any]

_SHARE_OF_MEMORY = 0.8
_PATIENCE = {"cholesky": 6, "cg": 100}  # steps within which the residual must halve


def solve(
    blocks: Blocks,
    targets: ArrayLike,
    *,
    ridge: float = 0.0,
    solver: str = "auto",
    weights: ArrayLike | None = None,
    tol: float = 1e-6,
    max_iterations: int | None = None,
    memory: float | None = None,
    preconditioner: str = "auto",
    rank: int | None = None,
    seed: int = 0,
    progress: Progress = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Solution:
    """Solve (K + ridge·W⁻¹) α = Y for a symmetric positive definite kernel.

    Parameters
    ----------
    blocks : Blocks (n, n)
        The kernel. float32 asks for storage and factor in single precision; the answer is refined against the
        kernel in float64 all the same.
    targets : array (n,) or (n, k)
    ridge : float
        Added to the diagonal as it is.
    solver : {"auto", "cholesky", "cg", "nystrom"}
        ``"nystrom"`` is an approximation and is never chosen automatically.
    weights : array (n,), optional
        Positive sample weights w; the diagonal receives ridge/w_i.
    tol : float
        Relative residual to reach, for each column.
    max_iterations : int, optional
        1000 when absent.
    memory : float, optional
        Bytes the solver may take; a share of what is available when absent.
    preconditioner, rank, seed
        For conjugate gradients, see :func:`notsodeep.learn.preconditioners.precondition`.
    progress : bool or callable, optional
    checkpoint : path, optional
        Where conjugate gradients keep their state: an interrupted call resumes from it. Removed at the end.

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> from notsodeep.kernels import KernelBlocks
    >>> X = np.random.default_rng(0).standard_normal((300, 20))
    >>> blocks = KernelBlocks(nsd.DEQ("relu", 0.2, 0.8), X, kind="ntk")
    >>> s = solve(blocks, X[:, 0], ridge=0.1)
    >>> s.method, s.residual < 1e-12, round(s.condition) > 1
    ('cholesky', True, True)
    >>> by_cg = solve(blocks, X[:, 0], ridge=0.1, solver="cg")
    >>> bool(np.allclose(s.coefficients, by_cg.coefficients, atol=1e-5))
    True
    """
    solver = choice(solver, SOLVERS, "solver")
    preconditioner = choice(preconditioner, PRECONDITIONERS, "preconditioner")
    limit = 1000 if max_iterations is None else count(max_iterations, "max_iterations", 0)
    system = System.of(blocks, targets, ridge, weights, tol, limit, progress)
    budget = _SHARE_OF_MEMORY * available_memory() if memory is None else positive(memory, "memory")
    if checkpoint is not None:
        if solver in ("cholesky", "nystrom"):
            raise InputError(f"checkpoint is for solver='cg'; solver={solver!r} has no state to keep")
        if not Path(checkpoint).absolute().parent.is_dir():
            raise InputError(f"checkpoint={str(checkpoint)!r}: its directory does not exist; create it first")
    plan = choose(blocks, system.B.shape[1], solver, budget, checkpoint is not None)
    if plan.method == "nystrom":
        n = blocks.shape[0]
        outcome = _nystrom(system, min(n, math.ceil(9 * math.sqrt(n)) if rank is None else count(rank, "rank")), seed)
    elif plan.method == "cg":
        outcome = _iterative(system, plan, preconditioner, rank, seed, checkpoint)
    else:
        outcome = _direct(system, plan)
    return system.answer(plan.method, plan.reason, plan.bytes, outcome)


def _direct(system: System, plan: Plan) -> dict[str, Any]:
    n = len(system.B)
    storage = np.empty((n, n), plan.dtype)
    system.blocks.astype(plan.dtype).block(slice(None), slice(None), storage, system.progress)
    note = ""
    if plan.dtype == np.float64:
        factor = factorize(storage, system.shift, system.progress)
        exact: Operator = lambda V: product(factor.kept, V, progress=False)  # noqa: E731
    else:
        exact = system.exact
        try:
            factor = factorize(storage, system.shift, system.progress)
        except NotPositiveDefiniteError as error:
            _mirror(storage)
            np.fill_diagonal(storage, system.blocks.diagonal())
            factor = factorize(storage, system.shift + error.ridge, system.progress)
            note = (
                f"; in float32 the matrix is not positive definite, so the factor of K + {error.ridge:.1e}·I serves "
                "as a preconditioner and the answer is refined against the kernel itself"
            )
    cg = ConjugateGradients(exact, system.B, factor.solve, start=factor.solve(system.B))
    residual = system.iterate(cg, exact, _PATIENCE["cg" if note else "cholesky"])
    outcome = {"X": cg.X, "residual": residual, "iterations": cg.iteration, "note": note}
    stored: Operator = lambda V: product(factor.kept, V, progress=False)  # noqa: E731
    if note:
        return outcome | _condition_bound(cg, stored)
    condition = largest_eigenvalue(stored, n) * largest_eigenvalue(factor.solve, n)
    how = "Ritz values of the matrix and of its factor's inverse"
    return outcome | {"factor": factor, "condition": condition, "condition_method": how}


def _iterative(
    system: System,
    plan: Plan,
    preconditioner: str,
    rank: int | None,
    seed: int,
    checkpoint: str | os.PathLike[str] | None,
) -> dict[str, Any]:
    n = len(system.B)
    working = system.blocks.astype(plan.dtype)
    inverse = precondition(working, system.shift, preconditioner, rank, seed)
    name = "none" if inverse is None else inverse.name
    if plan.stored:
        storage = np.empty((n, n), plan.dtype)
        working.block(slice(None), slice(None), storage, system.progress)
        working = MatrixBlocks(storage, symmetric=True)
    operator = system.operator(working)
    exact = operator if plan.dtype == np.float64 else system.exact
    cg = ConjugateGradients(operator, system.B, inverse)
    save: Callable[[], None] | None = None
    if checkpoint is not None:
        identity = _identity(system, plan, name)
        if Path(checkpoint).exists():
            cg.load(checkpoint, identity)
        save = lambda: cg.save(checkpoint, identity)  # noqa: E731
    residual = system.iterate(cg, exact, _PATIENCE["cg"], save)
    if checkpoint is not None and residual <= system.tol:
        Path(checkpoint).unlink(missing_ok=True)
    outcome = {"X": cg.X, "residual": residual, "iterations": cg.iteration, "preconditioner": name}
    return outcome | _condition_bound(cg, operator)


def _condition_bound(cg: ConjugateGradients, operator: Operator) -> dict[str, Any]:
    size = np.einsum("ij,ij->j", cg.X, cg.X)
    energy = np.einsum("ij,ij->j", cg.X, cg.targets - cg.R)  # xᵀA x
    smallest = min([cg.extremes[0], *(energy[size > 0] / size[size > 0])])
    largest = max(cg.extremes[1], largest_eigenvalue(operator, len(cg.X), steps=2, width=4))
    condition = max(1.0, float(largest / smallest)) if smallest > 0 else math.inf
    return {"condition": condition, "condition_method": "Rayleigh quotients of the iteration: a lower bound"}


def _nystrom(system: System, rank: int, seed: int) -> dict[str, Any]:
    X = nystrom_coefficients(system.blocks, system.B, system.ridge, system.weight, rank, seed)
    return {
        "X": X,
        "residual": system.residual(system.B - system.exact(X)),
        "iterations": 0,
        "condition": math.nan,
        "condition_method": "not estimated for an approximation",
        "note": f"; {rank} landmarks, so `residual` is what the approximation leaves of the exact equations",
    }


def _mirror(K: Array, tile: int = 512) -> None:
    """Copy the upper triangle below the diagonal."""
    for i in range(0, len(K), tile):
        for j in range(i, len(K), tile):
            part = K[i : i + tile, j : j + tile]
            if i == j:
                below = np.tril_indices(len(part), -1)
                part[below] = part.T[below]
            else:
                K[j : j + tile, i : i + tile] = part.T


def _identity(system: System, plan: Plan, name: str) -> str:
    digest = hashlib.sha256(f"{system.blocks.shape} {plan.dtype} {plan.stored} {name}".encode())
    for array in (system.B, system.shift, system.blocks.diagonal()):
        digest.update(np.ascontiguousarray(array).tobytes())
    probe = system.blocks.block(slice(0, 1), slice(None))
    digest.update(np.ascontiguousarray(probe).tobytes())
    return digest.hexdigest()
