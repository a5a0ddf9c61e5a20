"""The equilibrium of any cell, z* = f(z*, x), found by four solvers and differentiated in three ways.

The implicit gradient needs only vector-Jacobian products of f. The graph of one call of f at the solved state reaches
everything that f depends on; the gradient passed into this call is the solution of the adjoint equation

    w = g + (∂f/∂z)ᵀ w,      g = ∂loss/∂z*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as tree

from notsodeep.checks import InputError, NotConvergedError
from notsodeep.nn.fixed_point import (
    FixedPoint,
    FixedPointMap,
    SolveReport,
    Stepper,
    relative_residuals,
    require_resolvable,
    solve,
    tell,
)
from notsodeep.nn.implicit import full_precision, phantom, refuse_second_derivatives, transformed, unrolled
from notsodeep.nn.options import SolveOptions, solve_options
from notsodeep.nn.solvers import stepper

__all__ = ["Division", "Equilibrium", "settle"]

State: TypeAlias = Tensor | tuple[Tensor, ...]
Shapes: TypeAlias = Sequence[int] | Sequence[Sequence[int]]


class Equilibrium(nn.Module):
    """z* = f(z*, x, …), for any cell f.

    Parameters
    ----------
    f : callable
        A module or a function ``f(z, x, *extra)`` that returns the next state. The state is one tensor of any shape, or
        a tuple of tensors, batch first. f may use parameters that it does not own: gradients reach them too.
    state_shape : tuple of int, or tuple of such tuples
        The shape of one sample's state; needed if it differs from that of x and `z0` is not passed.
    solver : {"anderson", "picard", "broyden", "newton"}
        ``newton`` needs an f that can be differentiated twice.
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

    Inside ``torch.func`` (grad, jacrev, vmap) a plain iteration is unrolled, whatever the solver and `backward`.

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
            _zeros(state_shape, 1, torch.float32, torch.device("meta"))
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

    def forward(self, x: Any, z0: State | None = None, *extra: Any) -> State:
        """z*, shaped like `z0`; the solve starts at `z0`, or at zeros of the shape of x or of `state_shape`."""
        start = self._start(x) if z0 is None else tuple(z0) if isinstance(z0, list) else z0
        _check_state(start)
        first = start if isinstance(start, Tensor) else start[0]
        arguments = (x, *extra)
        if torch.is_autocast_enabled(first.device.type):
            start, arguments = tree.tree_map(_widened, (start, arguments))
        try:
            with full_precision(first):
                state, self.last_solve = settle(self.f, start, arguments, self.solve_options, self._division)
        except RuntimeError as error:
            if z0 is None and self.state_shape is None and not isinstance(error, NotConvergedError):
                error.add_note(f"the state began like x, with shape {tuple(x.shape)}; pass z0 or state_shape")
            raise
        return state

    def _start(self, x: Any) -> State:
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim == 0:
            raise InputError("x is no tensor of real numbers, batch first: pass z0, the state to begin from")
        if self.state_shape is None:
            return torch.zeros_like(x)
        return _zeros(self.state_shape, x.shape[0], x.dtype, x.device)

    def extra_repr(self) -> str:
        name = "" if isinstance(self.f, nn.Module) else f"{getattr(self.f, '__name__', 'f')}, "
        chosen = self.solve_options
        return f"{name}solver={chosen.solver!r}, tol={chosen.tol:g}, backward={chosen.backward!r}"


@dataclass
class Division:
    """Whether samples may leave the batch, and whether some did in the present solve."""

    allowed: bool = True
    used: bool = False


def settle(
    f: Callable[..., Any], start: State, arguments: tuple[Any, ...], options: SolveOptions, division: Division
) -> tuple[State, SolveReport]:
    """z* = f(z*, *arguments) and the report of its solve; differentiable in all that f depends on."""
    form = _Form.of(start)
    flat = form.packed(start)
    leaves, spec = tree.tree_flatten(arguments)
    cell = _Cell(f, form, tuple(leaves), spec, len(flat), division)
    require_resolvable(options.tol, flat.dtype)
    require_resolvable(options.backward_tol, flat.dtype, "backward_tol")
    if transformed() or (options.backward == "unrolled" and torch.is_grad_enabled()):
        if not transformed() and not flat.requires_grad and bool(flat.any()):
            raise InputError(
                'z0 would cut the graph of backward="unrolled": begin at zeros, use torch.no_grad(), '
                'or backward="implicit"'
            )
        state, report = unrolled(cell, cell.image(flat), options)
        return form.unpacked(state), report
    method = partial(stepper, options.solver, options.options)
    cell.keeps = torch.is_grad_enabled() and options.backward == "implicit" and not _saves_elsewhere()
    solution = _solved(cell, flat.detach(), method, options.tol, options.max_iter, division)
    state, report = solution.state, solution.report
    tell(report, "forward", options.on_failure)
    if torch.is_grad_enabled() and options.backward == "phantom":
        state, report = phantom(cell, solution, options)
    elif torch.is_grad_enabled():
        state = _attached(cell, state, report, options)
    if state.data_ptr() == flat.data_ptr():
        state = state.clone()  # the start belongs to the caller
    return form.unpacked(state), report


@torch.no_grad()
def _solved(
    problem: FixedPointMap,
    start: Tensor,
    method: Callable[[], Stepper],
    tol: float,
    max_iter: int,
    division: Division,
) -> FixedPoint:
    """The fixed point, with residuals of the whole batch; a batch whose samples depend on each other stays whole."""
    division.used = False
    try:
        found = solve(problem, start, method(), tol, max_iter)
    except Exception:  # f accepts only the whole batch, because it holds tensors of that size
        if not division.used:
            raise
        division.allowed = False
        return solve(problem, start, method(), tol, max_iter)
    if not division.used:
        return found
    report = found.report
    claimed = report.residuals <= tol
    image = problem.evaluate(found.state, last=True)[0]
    report.residuals = relative_residuals(image, image - found.state)
    missed = report.residuals[claimed]
    if not bool((missed > tol).any()) or report.iterations >= max_iter:
        return found
    mixes = bool((missed > 10 * tol).any())  # by more than rounding
    division.allowed = False
    whole = solve(problem, found.state, method(), tol, max_iter - report.iterations)
    division.allowed = not mixes
    whole.report.iterations += report.iterations
    whole.report.sample_iterations += report.iterations
    return whole


# --- the cell on rows -------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """Shapes of one sample's tensors; a row concatenates them."""

    shapes: tuple[torch.Size, ...]
    single: bool

    @staticmethod
    def of(state: State) -> _Form:
        tensors = (state,) if isinstance(state, Tensor) else state
        return _Form(tuple(one.shape[1:] for one in tensors), isinstance(state, Tensor))

    def packed(self, state: Any, rows: int | None = None) -> Tensor:
        """(rows, width); refuses what has other shapes."""
        tensors = (state,) if self.single else state
        good = isinstance(tensors, tuple | list) and all(isinstance(one, Tensor) and one.ndim for one in tensors)
        if not good or tuple(one.shape[1:] for one in tensors) != self.shapes or rows not in (None, len(tensors[0])):
            expected = [(rows, *shape) for shape in self.shapes]
            raise InputError(
                f"f returned {_described(state)} for a state of shape {expected[0] if self.single else expected}; "
                "return the next state alone, or pass z0 or state_shape"
            )
        flat = [one.reshape(len(one), -1) for one in tensors]
        return flat[0] if self.single else torch.cat(flat, dim=1)

    def unpacked(self, flat: Tensor) -> State:
        if self.single:
            return flat.reshape(len(flat), *self.shapes[0])
        parts = flat.split([math.prod(shape) for shape in self.shapes], dim=1)
        return tuple(part.reshape(len(flat), *shape) for part, shape in zip(parts, self.shapes, strict=True))


@dataclass(frozen=True)
class _Graph:
    """One evaluation of f with its graph; the state's tensors are leaves."""

    state: Tensor
    parts: State
    image: Tensor
    form: _Form

    def vjp(self, direction: Tensor, **options: bool) -> Tensor:
        """(∂f/∂z)ᵀ · direction."""
        if not self.image.requires_grad:
            return torch.zeros_like(direction)
        leaves = (self.parts,) if isinstance(self.parts, Tensor) else self.parts
        found = torch.autograd.grad(self.image, leaves, direction, materialize_grads=True, **options)
        return self.form.packed(found[0] if self.form.single else found)

    @property
    def reaches_others(self) -> bool:
        """Whether the graph has other leaves."""
        own = {id(one) for one in ((self.parts,) if isinstance(self.parts, Tensor) else self.parts)}
        waiting, seen = [self.image.grad_fn], set()
        while waiting:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            leaf = getattr(node, "variable", None)
            if leaf is not None and id(leaf) not in own:
                return True
            waiting += [following for following, _ in node.next_functions]
        return False


@dataclass
class _Cell:
    """The map z ↦ f(z, …) on rows; the arguments of f are leaves of a tree."""

    f: Callable[..., Any]
    form: _Form
    leaves: tuple[Any, ...]
    spec: Any
    rows: int
    division: Division
    linear: tuple[Tensor, Tensor, Tensor] | None = None
    keeps: bool = False  # the graph of the evaluation that is expected to be the last
    kept: _Graph | None = None
    leaving: float = 1.0  # residuals are measured again on the whole batch
    enough: float = 0.3

    def image(self, state: Tensor, parts: State | None = None) -> Tensor:
        """f(z), (rows, width); `parts` is the state in its own shapes, where it is known."""
        version = None if state.is_inference() or transformed() else state._version
        parts = self.form.unpacked(state) if parts is None else parts
        found = self.f(parts, *tree.tree_unflatten(self.leaves, self.spec))
        if version is not None and state._version != version:
            raise InputError("f changes its state in place; return a new tensor, e.g. z + y in place of z.add_(y)")
        image = self.form.packed(found, len(state))
        if image.dtype != state.dtype:
            raise InputError(f"f returned {image.dtype} for a state in {state.dtype}; pass z0 in {image.dtype}")
        return image

    def evaluate(
        self, state: Tensor, out: tuple[Tensor, Tensor] | None = None, last: bool = False
    ) -> tuple[Tensor, Tensor]:
        if not (last and self.keeps):
            return self.image(state), state
        self.kept = self.graph(state)
        return self.kept.image.detach(), state

    def graph(self, state: Tensor) -> _Graph:
        parts = self.form.unpacked(state.detach())
        for one in (parts,) if isinstance(parts, Tensor) else parts:
            one.requires_grad_()
        with torch.enable_grad():
            return _Graph(state, parts, self.image(state, parts), self.form)

    def jvp(self, point: Tensor, direction: Tensor) -> Tensor:
        """f' · direction, as the derivative of u ↦ (f')ᵀu; its graph is reused for all directions at a point."""
        try:
            if self.linear is None or self.linear[0] is not point:
                with torch.enable_grad():
                    graph = self.graph(point)
                    free = torch.zeros_like(graph.image, requires_grad=True)
                    self.linear = point, free, graph.vjp(free, create_graph=True)
            _, free, transposed = self.linear
            if not transposed.requires_grad:  # f does not depend on z
                return torch.zeros_like(point)
            return torch.autograd.grad(transposed, free, direction, retain_graph=True)[0]
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"solver='newton' needs an f that can be differentiated twice; use solver='anderson' ({reason})"
            ) from None

    def take(self, rows: Tensor) -> _Cell | None:
        if not self.division.allowed:
            return None
        self.division.used = True
        leaves = tuple(_cut(leaf, self.rows, rows) for leaf in self.leaves)
        return replace(self, leaves=leaves, rows=len(rows), keeps=False, kept=None)


def _cut(leaf: Any, total: int, rows: Tensor) -> Any:
    """The rows of these samples, if the first dimension is the batch."""
    return leaf[rows] if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == total else leaf


def _check_state(state: Any) -> None:
    """Raise `InputError` unless this is a state."""
    tensors = (state,) if isinstance(state, Tensor) else state
    if not isinstance(tensors, tuple) or not tensors or not all(isinstance(one, Tensor) for one in tensors):
        raise InputError(f"z0 is {_described(state)}; pass a tensor or a tuple of tensors")
    if any(one.ndim == 0 or one.numel() == 0 or len(one) != len(tensors[0]) for one in tensors):
        raise InputError(f"z0 has {_described(state)}; pass tensors that are not empty, with the batch first")
    kinds = {(one.dtype, one.device) for one in tensors}
    if len(kinds) > 1 or not tensors[0].is_floating_point():
        raise InputError(f"z0 has {_described(state)}; pass real numbers of one dtype on one device")


def _described(state: Any) -> str:
    if isinstance(state, Tensor):
        return f"shape {tuple(state.shape)} in {state.dtype}"
    if isinstance(state, tuple | list):
        return f"{len(state)} entries ({', '.join(_described(one) for one in state)})"
    return f"a {type(state).__name__}"


def _zeros(shapes: Any, rows: int, dtype: torch.dtype, device: torch.device) -> State:
    try:
        if all(isinstance(size, int) for size in shapes):
            return torch.zeros((rows, *shapes), dtype=dtype, device=device)
        return tuple(torch.zeros((rows, *shape), dtype=dtype, device=device) for shape in shapes)
    except (TypeError, RuntimeError):
        raise InputError(f"state_shape={shapes!r} must be the shape of one sample, or a tuple of shapes") from None


def _widened(leaf: Any) -> Any:
    half = isinstance(leaf, Tensor) and leaf.dtype in (torch.float16, torch.bfloat16)
    return leaf.float() if half else leaf


# --- its gradient -----------------------------------------------------------------------


def _attached(cell: _Cell, state: Tensor, report: SolveReport, options: SolveOptions) -> Tensor:
    """The state, with gradients to everything that f depends on."""
    kept, cell.kept = cell.kept, None
    if cell.keeps and (kept is None or kept.state is not state):
        kept = cell.graph(state)
    image = cell.image(state.detach()) if kept is None else kept.image
    if not image.requires_grad or (kept is not None and not kept.reaches_others):
        return state
    tensors = [leaf for leaf in cell.leaves if isinstance(leaf, Tensor)]
    attached: Tensor = _Attach.apply(cell, kept, report, options, state, image, *tensors)
    return attached


def _saves_elsewhere() -> bool:
    """Whether a hook, such as that of activation checkpointing, replaces what graphs save.

    Checkpointing computes a graph again for every vector-Jacobian product of an adjoint solve that uses it.
    """
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


class _Attach(torch.autograd.Function):
    """z* in place of f(z*): the gradient that passes on to f is the solution of the adjoint equation."""

    @staticmethod
    def forward(
        ctx: Any,
        cell: _Cell,
        kept: _Graph | None,
        report: SolveReport,
        options: SolveOptions,
        state: Tensor,
        image: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        state = state.clone()
        ctx.save_for_backward(state, *tensors)
        # tensors are saved above, other arguments of f here
        ctx.cell = replace(
            cell, leaves=tuple(None if isinstance(one, Tensor) else one for one in cell.leaves), linear=None
        )
        ctx.places = [k for k, one in enumerate(cell.leaves) if isinstance(one, Tensor)]
        ctx.kept, ctx.report, ctx.options = kept, report, options
        return state

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        state, *tensors = ctx.saved_tensors
        leaves = list(ctx.cell.leaves)
        for place, tensor in zip(ctx.places, tensors, strict=True):
            leaves[place] = tensor
        cell, options = replace(ctx.cell, leaves=tuple(leaves)), ctx.options
        method = partial(stepper, options.backward_solver, options.backward_options)
        with full_precision(state):
            adjoint = _Adjoint(cell, ctx.kept or cell.graph(state), gradient)
            limits = options.backward_tol, options.backward_max_iter
            found = _solved(adjoint, gradient, method, *limits, cell.division)
        tell(found.report, "backward", options.on_failure)
        ctx.report.backward = found.report
        return None, None, None, None, None, found.state, *(None for _ in tensors)


class _Adjoint:
    """w ↦ g + (∂f/∂z)ᵀ w at one point z, from a graph that is kept."""

    leaving = 2.0  # a new graph of the remaining rows, and residuals of the whole batch
    enough = 0.3

    def __init__(self, cell: _Cell, graph: _Graph, gradient: Tensor) -> None:
        self.cell, self.graph, self.gradient = cell, graph, gradient

    def evaluate(
        self, state: Tensor, out: tuple[Tensor, Tensor] | None = None, last: bool = False
    ) -> tuple[Tensor, Tensor]:
        return torch.add(self.gradient, self.jvp(state, state), out=out[0] if out else None), state

    def jvp(self, point: Tensor, direction: Tensor) -> Tensor:
        return self.graph.vjp(direction, retain_graph=True)

    def take(self, rows: Tensor) -> _Adjoint | None:
        cell = self.cell.take(rows)
        return None if cell is None else _Adjoint(cell, cell.graph(self.graph.state[rows]), self.gradient[rows])
