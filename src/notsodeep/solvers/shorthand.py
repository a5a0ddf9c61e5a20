"""Solvers by name, and `solve`, which takes a name or a solver."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from notsodeep.checks import InputError, choice
from notsodeep.deprecation import old_parameters
from notsodeep.kernels import KernelMatrix
from notsodeep.progress import Progress
from notsodeep.solvers.conjugate_gradients import CHECKPOINT
from notsodeep.solvers.methods import CG, Auto, Cholesky, Nystrom, Solver
from notsodeep.solvers.out_of_core import OutOfCore
from notsodeep.solvers.system import Solution

__all__ = ["ADVICE", "OLD", "SOLVERS", "solve", "solver_of", "solver_with", "with_old_options"]

SOLVERS: dict[str, type[Solver]] = {
    "auto": Auto,
    "cholesky": Cholesky,
    "cg": CG,
    "nystrom": Nystrom,
    "out_of_core": OutOfCore,
}
OLD = ("tol", "max_iterations", "memory", "preconditioner", "rank", "seed", "checkpoint", "directory", "client")
ADVICE = "pass a solver that has them, such as solver=CG(tol=1e-9, max_iter=500)"


def solver_of(solver: str | Solver) -> Solver:
    """The solver itself, or the one of this name with its defaults.

    >>> solver_of("cholesky")
    Cholesky(tol=1e-06, max_iter=None, memory=None, refined=True)
    """
    return solver if isinstance(solver, Solver) else SOLVERS[choice(solver, SOLVERS, "solver")]()


def solver_with(solver: str | Solver, **options: Any) -> str | Solver:
    """The same solver with those options that it has; `solver` itself if they change nothing.

    A `directory` is where :class:`CG` keeps its checkpoint. A directory, a checkpoint or a client is refused if the
    solver does not take it.

    >>> solver_with("cholesky", tol=1e-9, max_iterations=None, rank=7)
    Cholesky(tol=1e-09, max_iter=None, memory=None, refined=True)
    """
    found = isinstance(solver, Solver)
    kind = type(solver) if isinstance(solver, Solver) else SOLVERS[choice(solver, SOLVERS, "solver")]
    known: dict[str, Any] = {
        field.name: getattr(solver, field.name) if found else field.default for field in fields(kind)
    }
    if "max_iterations" in options:
        options["max_iter"] = options.pop("max_iterations")
    if "checkpoint" in known and (directory := options.pop("directory", None)) is not None:
        options["checkpoint"] = Path(directory) / CHECKPOINT
    for name in ("client", "checkpoint", "directory"):
        if name not in known and options.get(name) is not None:
            raise InputError(f"{name} is for solver='cg' or solver='out_of_core', not solver={solver!r}")
    used = {name: value for name, value in options.items() if name in known and value != known[name]}
    return kind(**(known if found else {}) | used) if used else solver


def with_old_options(old: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """The parameter `solver` in place of the separate options of version 0.1."""
    solver = others.get("solver", "auto")
    if isinstance(solver, Solver):
        raise InputError(f"{next(iter(old))} and solver={solver} were both passed; put it into the solver")
    return {"solver": solver_with(solver, **old)}


@old_parameters([name for name in OLD if name not in ("directory", "client")], with_old_options, ADVICE)
def solve(
    K: KernelMatrix | ArrayLike,
    targets: ArrayLike,
    *,
    ridge: float = 0.0,
    solver: str | Solver = "auto",
    weights: ArrayLike | None = None,
    progress: Progress = None,
) -> Solution:
    """Solve (K + ridge·W⁻¹) α = Y for a symmetric positive definite kernel.

    Parameters
    ----------
    K : KernelMatrix or array (n, n)
        float32 stores and factors the matrix in single precision; the answer is still refined against the kernel in
        float64.
    targets : array (n,) or (n, k)
    ridge : float
        Added to the diagonal, unscaled.
    solver : Solver, or "auto", "cholesky", "cg", "nystrom"
        A name stands for the solver with its defaults: :class:`Auto`, :class:`Cholesky`, :class:`CG`,
        :class:`Nystrom`, which is an approximation and is never chosen automatically. :class:`OutOfCore` needs a
        directory.
    weights : array (n,), optional
        Positive sample weights w; the diagonal receives ridge/w_i.
    progress : bool or callable, optional

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> from notsodeep.kernels import KernelBlocks
    >>> from notsodeep.solvers import CG, solve
    >>> X = np.random.default_rng(0).standard_normal((300, 20))
    >>> K = KernelBlocks(nsd.DEQ("relu", 0.2, 0.8), X, kind="ntk")
    >>> s = solve(K, X[:, 0], ridge=0.1)
    >>> s.method, s.residual < 1e-12, round(s.condition) > 1
    ('cholesky', True, True)
    >>> by_cg = solve(K, X[:, 0], ridge=0.1, solver=CG(tol=1e-8))
    >>> bool(np.allclose(s.coefficients, by_cg.coefficients, atol=1e-7))
    True
    """
    return solver_of(solver).solve(K, targets, ridge=ridge, weights=weights, progress=progress)
