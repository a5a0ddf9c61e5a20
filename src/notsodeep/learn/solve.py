"""(K + ridge·W⁻¹) α = Y: which solver, what it costs, how well it went."""

from __future__ import annotations

import hashlib
import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import ConvergenceWarning, InputError, choice, count, matrix, nonnegative, positive
from notsodeep.kernels import Blocks
from notsodeep.learn.cholesky import NotPositiveDefiniteError, factorize
from notsodeep.learn.condition import largest_eigenvalue
from notsodeep.learn.conjugate_gradients import ConjugateGradients, relative
from notsodeep.learn.nystrom import nystrom_coefficients
from notsodeep.learn.plan import SOLVERS, Plan, choose
from notsodeep.learn.preconditioners import PRECONDITIONERS, precondition
from notsodeep.learn.products import MatrixBlocks, Operator, product
from notsodeep.learn.resources import available_memory
from notsodeep.learn.solution import Solution, diagonal_shift
from notsodeep.learn.validation import RidgePath, leave_one_out, ridge_path
from notsodeep.progress import Progress, reporter

__all__ = ["RidgePath", "Solution", "leave_one_out", "product", "ridge_path", "solve"]

Array: TypeAlias = NDArray[Any]

_SHARE_OF_MEMORY = 0.8
_SECONDS_BETWEEN_CHECKPOINTS = 30.0
_FAITHFUL, _DRIFT = 10, 1e-12  # steps, and residuals, within which the recurrence is as good as the kernel itself
_NO_DIGITS = 0.01  # condition · eps beyond which coefficients mean little
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
    began = time.perf_counter()
    n = blocks.shape[0]
    if not blocks.symmetric:
        raise InputError(f"blocks has shape {blocks.shape} and is not symmetric; pass the kernel of the samples alone")
    values = matrix(targets, "targets", rank=1 if np.ndim(targets) == 1 else 2)
    if len(values) != n:
        raise InputError(f"targets has {len(values)} rows but the kernel has {n}; pass one row for each sample")
    B = values.reshape(n, -1).astype(np.float64)
    ridge, tol = nonnegative(ridge, "ridge"), positive(tol, "tol")
    shift, weight = diagonal_shift(ridge, weights, n)
    budget = _SHARE_OF_MEMORY * available_memory() if memory is None else positive(memory, "memory")
    preconditioner = choice(preconditioner, PRECONDITIONERS, "preconditioner")
    solver = choice(solver, SOLVERS, "solver")
    if checkpoint is not None and solver in ("cholesky", "nystrom"):
        raise InputError(f"checkpoint is for solver='cg'; solver={solver!r} has no state to keep")
    plan = choose(blocks, B.shape[1], solver, budget, checkpoint is not None)
    limit = 1000 if max_iterations is None else count(max_iterations, "max_iterations", 0)
    job = _Job(blocks, B, shift, tol, limit, progress)
    if plan.method == "nystrom":
        rank = min(n, math.ceil(9 * math.sqrt(n)) if rank is None else count(rank, "rank"))
        outcome = _nystrom(job, ridge, weight, rank, seed)
    elif plan.method == "cg":
        outcome = _iterative(job, plan, preconditioner, rank, seed, checkpoint)
    else:
        outcome = _direct(job, plan)
    note = outcome.pop("note", "")
    answer = Solution(
        coefficients=outcome.pop("X").reshape(values.shape),
        method=plan.method,
        reason=plan.reason + note,
        ridge=ridge,
        converged=outcome["residual"] <= tol,
        seconds=time.perf_counter() - began,
        bytes=plan.bytes,
        shift=shift,
        **outcome,
    )
    _speak_up(answer, tol)
    return answer


def _speak_up(answer: Solution, tol: float) -> None:
    """Warn of what an exact method did not reach."""
    if answer.method != "nystrom" and not answer.converged:
        warnings.warn(
            f"{answer.method} reached a relative residual of {answer.residual:.1e} after {answer.iterations} "
            f"iterations, above tol={tol:g} (condition number about {answer.condition:.0e}); "
            "raise ridge, tol or max_iterations",
            ConvergenceWarning,
            stacklevel=3,
        )
    elif answer.condition * np.finfo(np.float64).eps > _NO_DIGITS:
        warnings.warn(
            f"the condition number is about {answer.condition:.0e}: the residual is {answer.residual:.1e} but the "
            "coefficients have hardly a correct digit; raise ridge",
            ConvergenceWarning,
            stacklevel=3,
        )


@dataclass(frozen=True)
class _Job:
    """One linear system: A = K + diag(shift), B, and when to stop."""

    blocks: Blocks
    B: Array
    shift: Array
    tol: float
    max_iterations: int
    progress: Progress

    def operator(self, blocks: Blocks) -> Operator:
        return lambda V: product(blocks, V, progress=False) + self.shift[:, None] * V

    @property
    def exact(self) -> Operator:
        """V ↦ A V in float64, from the kernel."""
        return self.operator(self.blocks.astype("float64"))


def _direct(job: _Job, plan: Plan) -> dict[str, Any]:
    n = len(job.B)
    storage = np.empty((n, n), plan.dtype)
    job.blocks.astype(plan.dtype).block(slice(None), slice(None), storage, job.progress)
    note = ""
    if plan.dtype == np.float64:
        factor = factorize(storage, job.shift, job.progress)
        exact: Operator = lambda V: product(factor.kept, V, progress=False)  # noqa: E731
    else:
        exact = job.exact
        try:
            factor = factorize(storage, job.shift, job.progress)
        except NotPositiveDefiniteError as error:
            _mirror(storage)
            np.fill_diagonal(storage, job.blocks.diagonal())
            factor = factorize(storage, job.shift + error.ridge, job.progress)
            note = (
                f"; in float32 the matrix is not positive definite, so the factor of K + {error.ridge:.1e}·I serves "
                "as a preconditioner and the answer is refined against the kernel itself"
            )
    cg = ConjugateGradients(exact, job.B, factor.solve, start=factor.solve(job.B))
    residual = _iterate(cg, job, exact, _PATIENCE["cg" if note else "cholesky"])
    outcome = {"X": cg.X, "residual": residual, "iterations": cg.iteration, "note": note}
    stored: Operator = lambda V: product(factor.kept, V, progress=False)  # noqa: E731
    if note:
        return outcome | _condition_bound(cg, stored)
    condition = largest_eigenvalue(stored, n) * largest_eigenvalue(factor.solve, n)
    how = "Ritz values of the matrix and of its factor's inverse"
    return outcome | {"factor": factor, "condition": condition, "condition_method": how}


def _iterative(
    job: _Job, plan: Plan, preconditioner: str, rank: int | None, seed: int, checkpoint: str | os.PathLike[str] | None
) -> dict[str, Any]:
    n = len(job.B)
    working = job.blocks.astype(plan.dtype)
    inverse = precondition(working, job.shift, preconditioner, rank, seed)
    name = "none" if inverse is None else inverse.name
    if plan.stored:
        storage = np.empty((n, n), plan.dtype)
        working.block(slice(None), slice(None), storage, job.progress)
        working = MatrixBlocks(storage, symmetric=True)
    operator = job.operator(working)
    exact = operator if plan.dtype == np.float64 else job.exact
    cg = ConjugateGradients(operator, job.B, inverse)
    save: Callable[[], None] | None = None
    if checkpoint is not None:
        identity = _identity(job, plan, name)
        if Path(checkpoint).exists():
            cg.load(checkpoint, identity)
        save = lambda: cg.save(checkpoint, identity)  # noqa: E731
    residual = _iterate(cg, job, exact, _PATIENCE["cg"], save)
    if checkpoint is not None and residual <= job.tol:
        Path(checkpoint).unlink(missing_ok=True)
    outcome = {"X": cg.X, "residual": residual, "iterations": cg.iteration, "preconditioner": name}
    return outcome | _condition_bound(cg, operator)


def _condition_bound(cg: ConjugateGradients, operator: Operator) -> dict[str, Any]:
    size = np.einsum("ij,ij->j", cg.X, cg.X)
    energy = np.einsum("ij,ij->j", cg.X, cg.targets - cg.R)  # xᵀA x
    smallest = min([cg.extremes[0], *(energy[size > 0] / size[size > 0])])
    largest = max(cg.extremes[1], largest_eigenvalue(operator, len(cg.X), steps=2, width=4))
    condition = float(largest / smallest) if smallest > 0 else math.inf
    return {"condition": condition, "condition_method": "Rayleigh quotients of the iteration: a lower bound"}


def _nystrom(job: _Job, ridge: float, weight: Array, rank: int, seed: int) -> dict[str, Any]:
    X = nystrom_coefficients(job.blocks, job.B, ridge, weight, rank, seed)
    residual = relative(job.B - job.exact(X), np.linalg.norm(job.B, axis=0))
    return {
        "X": X,
        "residual": residual,
        "iterations": 0,
        "condition": math.nan,
        "condition_method": "not estimated for an approximation",
        "note": f"; {rank} landmarks, so `residual` is what the approximation leaves of the exact equations",
    }


def _iterate(
    cg: ConjugateGradients, job: _Job, exact: Operator, patience: int, save: Callable[[], None] | None = None
) -> float:
    """Step until the residual of the exact operator is below tol, or nothing is gained any more; return it."""
    scale = np.linalg.norm(job.B, axis=0)
    same = cg.operator is exact
    goal = job.tol if same else 0.5 * job.tol
    last_true = math.inf
    saved = time.monotonic()
    try:
        with reporter("conjugate gradients", 1000, job.progress if cg.residual > goal else False) as report:
            while True:
                steps, history = 0, [cg.residual]
                while cg.residual > goal and cg.iteration < job.max_iterations:
                    cg.step()
                    steps += 1
                    history.append(min(history[-1], cg.residual))
                    report(int(1000 * min(1.0, math.log(min(cg.best, 1)) / math.log(min(goal, 0.5)))), 1000)
                    if save is not None and time.monotonic() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
                        save()
                        saved = time.monotonic()
                    if steps >= patience and history[-1] > 0.5 * history[-1 - patience]:
                        break
                faithful = same and cg.iteration <= _FAITHFUL and job.tol >= _DRIFT
                R = cg.R if faithful else job.B - exact(cg.X)
                true = relative(R, scale)
                if true <= job.tol or cg.iteration >= job.max_iterations or true > 0.5 * last_true or faithful:
                    return true
                last_true = true
                cg.restart(R)
    except BaseException:
        if save is not None and cg.iteration:
            save()
        raise


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


def _identity(job: _Job, plan: Plan, name: str) -> str:
    digest = hashlib.sha256(f"{job.blocks.shape} {plan.dtype} {plan.stored} {name}".encode())
    for array in (job.B, job.shift, job.blocks.diagonal()):
        digest.update(np.ascontiguousarray(array).tobytes())
    probe = job.blocks.block(slice(0, 1), slice(None))
    digest.update(np.ascontiguousarray(probe).tobytes())
    return digest.hexdigest()
