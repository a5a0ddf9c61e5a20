"""Ways to solve (K + ridge·W⁻¹) α = Y, as objects that hold only parameters."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from notsodeep import files
from notsodeep.checks import InputError, choice, count, nonnegative, positive
from notsodeep.kernels import KernelMatrix, MatrixBlocks
from notsodeep.progress import Progress
from notsodeep.resources import available_memory
from notsodeep.scale.distributed import placed
from notsodeep.solvers.cholesky import CholeskyFactor, NotPositiveDefiniteError
from notsodeep.solvers.conjugate_gradients import ConjugateGradients, Operator, largest_eigenvalue
from notsodeep.solvers.planning import Method, Strategy, strategy
from notsodeep.solvers.preconditioners import PRECONDITIONERS, landmarks, precondition, whitening
from notsodeep.solvers.system import Solution, System
from notsodeep.threads import single_threaded_blas

__all__ = ["CG", "Auto", "Cholesky", "Nystrom", "Solver"]

Array: TypeAlias = NDArray[Any]


def _truth(value: Any, name: str) -> None:
    if not isinstance(value, bool):
        raise InputError(f"{name}={value!r} is neither true nor false; pass True or False")


_SHARE_OF_MEMORY = 0.8
_PATIENCE = {"cholesky": 6, "cg": 100}  # steps within which the residual must halve
_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "tol": positive,
    "max_iter": lambda value, name: count(value, name, 0),
    "memory": nonnegative,
    "refined": _truth,
    "preconditioner": lambda value, name: choice(value, PRECONDITIONERS, name),
    "rank": count,
    "seed": lambda value, name: count(value, name, 0),
    "tile": count,
}


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """How to solve (K + ridge·W⁻¹) α = Y; equal parameters make equal solvers.

    Parameters
    ----------
    tol : float
        Relative residual to reach, for each column.
    max_iter : int, optional
        Largest number of steps; 1000 when absent.
    """

    tol: float = 1e-6
    max_iter: int | None = None

    client = None  # a cluster that computes the products, for solvers that take one
    _most_steps = 1000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _CHECKS and not (value is None and field.default is None):
                _CHECKS[field.name](value, field.name)

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # solvers are immutable, and a connection cannot be copied

    def solve(
        self,
        K: KernelMatrix | ArrayLike,
        targets: ArrayLike,
        *,
        ridge: float = 0.0,
        weights: ArrayLike | None = None,
        progress: Progress = None,
    ) -> Solution:
        """Solve the system; see :func:`notsodeep.solvers.solve`."""
        steps = self._most_steps if self.max_iter is None else self.max_iter
        return self._solve(System.of(K, targets, ridge, weights, self.tol, steps, progress))

    @abstractmethod
    def _solve(self, system: System) -> Solution:
        """Solve a system that was checked."""


@dataclass(frozen=True, kw_only=True)
class _InMemory(Solver):
    memory: float | None = None
    refined: bool = True

    def _solves(self, system: System, plan: Strategy) -> bool:
        """Whether the equations to solve are those of a copy of the kernel in the plan's precision."""
        return plan.dtype == (np.float64 if self.refined else system.K.dtype)

    def _direct(self, system: System, plan: Strategy) -> dict[str, Any]:
        """Factor the matrix, and iterate with the factor as preconditioner where rounding leaves a residual."""
        n = len(system.B)
        storage = np.empty((n, n), plan.dtype)
        system.K.astype(plan.dtype).block(slice(None), slice(None), storage, system.progress)
        exact: Operator = system.exact
        note = ""
        try:
            factor = CholeskyFactor.of(storage, system.shift, system.progress)
            if self._solves(system, plan):
                exact = factor.kept.__matmul__
        except NotPositiveDefiniteError as error:
            if plan.dtype == np.float64:
                raise
            _mirror(storage)
            np.fill_diagonal(storage, system.K.diagonal())
            factor = CholeskyFactor.of(storage, system.shift + error.ridge, system.progress)
            note = (
                f"; in float32 the matrix is not positive definite, so the factor of K + {error.ridge:.1e}·I serves "
                "as a preconditioner and the answer is refined against the kernel in float64"
            )
        cg = ConjugateGradients(exact, system.B, factor.solve, start=factor.solve(system.B))
        residual = system.iterate(cg, exact, _PATIENCE["cg" if note else "cholesky"])
        outcome = {"X": cg.X, "residual": residual, "iterations": cg.iteration, "note": note}
        stored = factor.kept.__matmul__
        if note:
            return outcome | _condition_bound(cg, stored)
        condition = largest_eigenvalue(stored, n) * largest_eigenvalue(factor.solve, n)
        how = "Ritz values of the matrix and of its factor's inverse"
        return outcome | {"factor": factor, "condition": condition, "condition_method": how}


@dataclass(frozen=True, kw_only=True)
class Cholesky(_InMemory):
    """Cholesky in memory, in float64 or float32; the answer is refined against the kernel in float64.

    Parameters
    ----------
    memory : float, optional
        Bytes that may be taken; a share of what is available when absent.
    refined : bool
        Of a float32 kernel, solve the equations of its float64 version; False: those of its entries in float32, which
        saves computing the kernel once more. Entries that are not positive definite are refined in any case.
    tol, max_iter
        As in :class:`Solver`; the steps are those of refinement.
    """

    def _solve(self, system: System) -> Solution:
        plan = strategy(system.K, system.B.shape[1], "cholesky", _budget(self.memory), refined=self.refined)
        return system.answer(plan.method, plan.reason, plan.bytes, self._direct(system, plan))


@dataclass(frozen=True, kw_only=True)
class _Iterative(_InMemory):
    preconditioner: str = "auto"
    rank: int | None = None
    seed: int = 0
    checkpoint: Any = None

    def _planned(self, system: System, method: Method, budget: float) -> Solution:
        if self.checkpoint is not None:
            files.writable(self.checkpoint, "checkpoint", parents=True)
        plan = strategy(
            system.K, system.B.shape[1], method, budget, resumable=self.checkpoint is not None, refined=self.refined
        )
        outcome = self._iterated(system, plan) if plan.method == "cg" else self._direct(system, plan)
        return system.answer(plan.method, plan.reason, plan.bytes, outcome)

    def _iterated(self, system: System, plan: Strategy) -> dict[str, Any]:
        n = len(system.B)
        working = system.K.astype(plan.dtype)
        if plan.stored:
            storage = np.empty((n, n), plan.dtype)
            working.block(slice(None), slice(None), storage, system.progress)
            working = MatrixBlocks(storage, symmetric=True, samples=working.samples)
        inverse = precondition(working, system.shift, self.preconditioner, self.rank, self.seed)
        name = "none" if inverse is None else inverse.name
        operator = system.operator(working)
        exact = operator if self._solves(system, plan) else system.exact
        cg = ConjugateGradients(operator, system.B, inverse)
        save: Callable[[], None] | None = None
        if self.checkpoint is not None:
            identity = _identity(system, plan, name)
            if Path(self.checkpoint).exists():
                cg.load(self.checkpoint, identity)
            save = lambda: cg.save(self.checkpoint, identity)  # noqa: E731
        with single_threaded_blas():  # else BLAS threads, busy waiting after a small product, hold the kernel's cores
            residual = system.iterate(cg, exact, _PATIENCE["cg"], save)
            bound = _condition_bound(cg, operator)
        if self.checkpoint is not None and residual <= system.tol:
            Path(self.checkpoint).unlink(missing_ok=True)
        outcome = {"X": cg.X, "residual": residual, "iterations": cg.iteration, "preconditioner": name}
        return outcome | bound


@dataclass(frozen=True, kw_only=True)
class CG(_Iterative):
    """Conjugate gradients, preconditioned; the matrix is kept if there is room for it.

    Parameters
    ----------
    preconditioner : {"auto", "equivalent", "nystrom", "both", "none"}
        See :func:`notsodeep.solvers.preconditioners.precondition`, also for `rank` and `seed`.
    rank : int, optional
        Number of landmarks; 9√n when absent.
    seed : int
        Of the landmarks.
    memory : float, optional
        Bytes that may be taken; a share of what is available when absent. 0 never keeps the matrix.
    checkpoint : path, optional
        An .npz file for the state: an interrupted call resumes from it. Removed at the end.
    refined : bool
        As in :class:`Cholesky`.
    client : dask.distributed.Client or "tcp://host:port", optional
        Its workers compute the products; kernel entries are recomputed in each iteration.
    tol, max_iter
        As in :class:`Solver`.
    """

    client: Any = None

    def _solve(self, system: System) -> Solution:
        if self.client is None:
            return self._planned(system, "cg", _budget(self.memory))
        with placed(system.K, self.client) as K:
            answer = self._planned(replace(system, K=K), "cg", 0.0)
        return replace(answer, reason="a cluster computes the products, in each iteration anew")


@dataclass(frozen=True, kw_only=True)
class Auto(_Iterative):
    """A Cholesky factor where it fits and n is moderate, conjugate gradients otherwise; `reason` says which and why.

    Parameters are those of :class:`CG`, without a client. A checkpoint asks for conjugate gradients.
    """

    def _solve(self, system: System) -> Solution:
        return self._planned(system, "auto", _budget(self.memory))


@dataclass(frozen=True, kw_only=True)
class Nystrom(Solver):
    """min_β Σ_i w_i ‖y_i − (K_S β)_i‖² + ridge βᵀK_SS β over coefficients β of random landmarks S: an approximation.

    Parameters
    ----------
    rank : int, optional
        Number of landmarks; 9√n when absent.
    seed : int
        Of the landmarks.
    tol
        The residual below which the approximation counts as converged.
    """

    rank: int | None = None
    seed: int = 0

    def _solve(self, system: System) -> Solution:
        n = len(system.B)
        chosen = landmarks(n, self.rank, np.random.default_rng(self.seed))
        part = system.K.columns(chosen).astype(np.float64)
        whiten = whitening(part[chosen], 1e-12)
        F = part @ whiten  # K_nS K_SS^(-1/2)
        weighted = system.weight[:, None] * F
        moments, basis = scipy.linalg.eigh(F.T @ weighted)
        useful = moments > 1e-12 * moments.max(initial=0.0)
        basis = basis[:, useful]
        inner = (basis.T @ (weighted.T @ system.B)) / (moments[useful] + system.ridge)[:, None]
        X = np.zeros(system.B.shape)  # zero outside S, to be used like the exact coefficients
        X[chosen] = whiten @ (basis @ inner)
        outcome = {
            "X": X,
            "residual": system.residual(system.B - system.exact(X)),
            "iterations": 0,
            "condition": math.nan,
            "condition_method": "not estimated for an approximation",
        }
        reason = f"an approximation on {len(chosen)} landmarks: `residual` is what it leaves of the exact equations"
        return system.answer("nystrom", reason, 24 * n * len(chosen), outcome)


def _budget(memory: float | None) -> float:
    return _SHARE_OF_MEMORY * available_memory() if memory is None else memory


def _condition_bound(cg: ConjugateGradients, operator: Operator) -> dict[str, Any]:
    size = np.einsum("ij,ij->j", cg.X, cg.X)
    energy = np.einsum("ij,ij->j", cg.X, cg.targets - cg.R)  # xᵀA x
    smallest = min([cg.extremes[0], *(energy[size > 0] / size[size > 0])])
    largest = max(cg.extremes[1], largest_eigenvalue(operator, len(cg.X), steps=2, width=4))
    condition = max(1.0, float(largest / smallest)) if smallest > 0 else math.inf
    return {"condition": condition, "condition_method": "Rayleigh quotients of the iteration: a lower bound"}


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


def _identity(system: System, plan: Strategy, name: str) -> str:
    digest = hashlib.sha256(f"{system.K.shape} {plan.dtype} {plan.stored} {name}".encode())
    for array in (system.B, system.shift, system.K.diagonal()):
        digest.update(np.ascontiguousarray(array).tobytes())
    probe = system.K.block(slice(0, 1), slice(None))
    digest.update(np.ascontiguousarray(probe).tobytes())
    return digest.hexdigest()
