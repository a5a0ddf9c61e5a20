"""The module for the equilibrium of any cell, z* = f(z*, x): four solvers, three gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as tree

from notsodeep.checks import InputError, NotConvergedError
from notsodeep.nn.cell_map import REAL, Division, State, check_state, zeros
from notsodeep.nn.fixed_point import SolveReport
from notsodeep.nn.implicit import full_precision, refuse_recording
from notsodeep.nn.initialization import widened
from notsodeep.nn.options import solve_options
from notsodeep.nn.settling import evaluated, settle

__all__ = ["Equilibrium"]

Shapes: TypeAlias = Sequence[int] | Sequence[Sequence[int]]


class Equilibrium(nn.Module):
    """z* = f(z*, x, …), for any cell f.

    Parameters
    ----------
    f : callable
        A module or a function ``f(z, x, *extra, **named)`` that returns the next state. The state is one tensor of any
        shape, or a tuple of tensors, batch first. f may use parameters that it does not own: gradients reach them too.
    state_shape : tuple of int, or tuple of such tuples
        The shape of one sample's state; needed if it differs from that of x and `z0` is not passed. With it, x may be
        integers or several tensors; the state has the precision of the first real one, or else of f.
    solver : {"anderson", "picard", "broyden", "newton"}
        ``newton`` needs an f that can be differentiated twice, which a compiled one cannot.
    tol : float
        On ‖f(z) − z‖/‖f(z)‖ of every sample, all tensors of its state together.
    max_iter : int
        Evaluations of f.
    backward : {"implicit", "unrolled", "phantom"}
        ``implicit``: the implicit function theorem, memory independent of the number of iterations, first derivatives
        only; ``unrolled``: the graph of a plain iteration from zeros, derivatives of any order; ``phantom``: the graph
        of the last `phantom_steps` steps (1: the Jacobian-free gradient), an approximation.
    backward_solver, backward_tol, backward_max_iter
        The same for the adjoint equation; the forward values when None.
    phantom_steps : int
    on_failure : {"warn", "raise", "ignore"}
        What to do if a solve does not converge.
    **solver_options
        Options of the solver (``memory``).

    Attributes
    ----------
    last_solve : SolveReport or None
        Iterations, residuals and convergence of the last forward pass; its ``backward`` is the adjoint solve of it.

    Notes
    -----
    Converged samples are removed from the batch, also from those tensors of x and `extra` whose first dimension is the
    batch. A cell that mixes its samples, such as one with batch normalisation, is detected, and its batch stays whole.

    Inside ``torch.func`` (grad, jacrev, vmap) and in forward mode a plain iteration is unrolled, whatever the solver
    and `backward`.

    The first dimension of x is the batch: an x of one dimension holds n samples of one number. States are real.

    Autocast is switched off inside, because half precision cannot reach a tolerance. f must be deterministic; draw a
    dropout mask once and pass it as `extra`.

    Examples
    --------
    >>> import torch
    >>> from notsodeep import nn
    >>> class Cell(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.W, self.U = torch.nn.Linear(16, 16), torch.nn.Linear(5, 16)
    ...     def forward(self, z, x):
    ...         return torch.tanh(0.5 * self.W(z) + self.U(x))
    >>> deep = nn.Equilibrium(Cell(), state_shape=(16,), tol=1e-5)
    >>> z = deep(torch.ones(3, 5))
    >>> z.shape, deep.last_solve.converged
    (torch.Size([3, 16]), True)
    >>> z.sum().backward()
    >>> deep.last_solve.backward.converged
    True
    """

    def __init__(
        self,
        f: Callable[..., Any],
        state_shape: Shapes | None = None,
        *,
        solver: str = "anderson",
        tol: float = 1e-5,
        max_iter: int = 200,
        backward: str = "implicit",
        backward_solver: str | None = None,
        backward_tol: float | None = None,
        backward_max_iter: int | None = None,
        phantom_steps: int = 1,
        on_failure: str = "warn",
        **solver_options: Any,
    ) -> None:
        super().__init__()
        if not callable(f):
            raise InputError(f"f={f!r} must be a module or a function f(z, x) that returns the next state")
        self.f = f
        self.state_shape = state_shape
        if state_shape is not None:
            zeros(state_shape, 1, torch.float32, torch.device("meta"))
        self.solve_options = solve_options(
            type(self),
            solver_options,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            backward=backward,
            backward_solver=backward_solver,
            backward_tol=backward_tol,
            backward_max_iter=backward_max_iter,
            phantom_steps=phantom_steps,
            on_failure=on_failure,
        )
        self.last_solve: SolveReport | None = None
        self._division = Division()

    def forward(self, x: Any, z0: State | None = None, *extra: Any, **named: Any) -> State:
        """z* = f(z*, x, *extra, **named), found from `z0`, or from zeros of the shape of x or of `state_shape`."""
        refuse_recording()
        start = self._start(x) if z0 is None else tuple(z0) if isinstance(z0, list) else z0
        check_state(start)
        first = start if isinstance(start, Tensor) else start[0]
        f, arguments = (_by_name(self.f), (named, x, *extra)) if named else (self.f, (x, *extra))
        if not first.is_meta and torch.is_autocast_enabled(first.device.type):
            start, arguments = tree.tree_map(widened, (start, arguments))
        if first.is_meta or len(first) == 0:
            self.last_solve = None
            with full_precision(first):
                return evaluated(f, start, arguments)
        try:
            with full_precision(first):
                state, self.last_solve = settle(f, start, arguments, self.solve_options, self._division)
        except RuntimeError as error:
            if z0 is None and self.state_shape is None and not isinstance(error, NotConvergedError):
                error.add_note(f"the state began like x, with shape {tuple(x.shape)}; pass z0 or state_shape")
            raise
        return state

    def _start(self, x: Any) -> State:
        if self.state_shape is None:
            if isinstance(x, Tensor) and x.is_complex():
                raise InputError(f"x is {x.dtype}, but {REAL}")
            if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim == 0:
                raise InputError("x is no tensor of real numbers, batch first: pass z0, the state to begin from")
            return torch.zeros_like(x)
        tensors = [leaf for leaf in tree.tree_leaves(x) if isinstance(leaf, Tensor) and leaf.ndim]
        if not tensors:
            raise InputError("x holds no tensor with the batch first: pass z0, the state to begin from")
        real = [one.dtype for one in (*tensors, *self.parameters()) if one.is_floating_point()]
        dtype = real[0] if real else torch.get_default_dtype()
        return zeros(self.state_shape, len(tensors[0]), dtype, tensors[0].device)

    def extra_repr(self) -> str:
        name = "" if isinstance(self.f, nn.Module) else f"{getattr(self.f, '__name__', 'f')}, "
        chosen = self.solve_options
        return f"{name}solver={chosen.solver!r}, tol={chosen.tol:g}, backward={chosen.backward!r}"


def _by_name(f: Callable[..., Any]) -> Callable[..., Any]:
    """f with its named arguments as one dictionary, the first of all."""
    return lambda z, named, *arguments: f(z, *arguments, **named)
