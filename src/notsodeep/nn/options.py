"""How an equilibrium is solved and differentiated: the options, checked in one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from notsodeep.checks import UnknownOptionError, choice, count, nearest, positive
from notsodeep.nn.solvers import SOLVERS, stepper

__all__ = ["BACKWARD_MODES", "SolveOptions", "solve_options"]

BACKWARD_MODES = ("implicit", "unrolled", "phantom")

# our options under other libraries' names, which are too different for a spelling check
_ALIASES = {"tolerance": "tol", "rtol": "tol", "eps": "tol", "iterations": "max_iter", "hidden_size": "width"}


@dataclass(frozen=True)
class SolveOptions:
    """All options of both solves; see :class:`notsodeep.nn.Equilibrium`."""

    solver: str
    tol: float
    max_iter: int
    options: dict[str, Any]
    backward: str
    backward_solver: str
    backward_tol: float
    backward_max_iter: int
    backward_options: dict[str, Any]
    phantom_steps: int
    on_failure: str


def solve_options(
    owner: Callable[..., Any],
    solver_options: Mapping[str, Any],
    *,
    solver: str,
    tol: float,
    max_iter: int,
    backward: str,
    backward_solver: str | None,
    backward_tol: float | None,
    backward_max_iter: int | None,
    phantom_steps: int,
    on_failure: str,
) -> SolveOptions:
    """Check the options of `owner`; those of the backward solve are the forward ones when None."""
    choice(solver, SOLVERS, "solver")
    known = [name for name in list(inspect.signature(owner).parameters)[1:] if name != "solver_options"]
    for name in solver_options:
        aliased = _ALIASES.get(name)
        hint = f"; did you mean {aliased!r}?" if aliased in known else nearest(name, known)
        if hint and name not in inspect.signature(SOLVERS[solver]).parameters:
            raise UnknownOptionError(f"{owner.__name__} has no option {name!r}{hint}")
    stepper(solver, solver_options)
    return SolveOptions(
        solver=solver,
        tol=positive(tol, "tol"),
        max_iter=count(max_iter, "max_iter"),
        options=dict(solver_options),
        backward=choice(backward, BACKWARD_MODES, "backward"),
        backward_solver=choice(backward_solver or solver, SOLVERS, "backward_solver"),
        backward_tol=positive(tol if backward_tol is None else backward_tol, "backward_tol"),
        backward_max_iter=count(max_iter if backward_max_iter is None else backward_max_iter, "backward_max_iter"),
        backward_options=dict(solver_options) if backward_solver in (None, solver) else {},
        phantom_steps=count(phantom_steps, "phantom_steps"),
        on_failure=choice(on_failure, ("warn", "raise", "ignore"), "on_failure"),
    )
