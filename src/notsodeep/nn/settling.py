"""The equilibrium of any cell, z* = f(z*, x), and its implicit gradient.

The gradient needs only vector-Jacobian products of f. The graph of one call of f at the solved state reaches
everything that f depends on; the gradient passed into this call is the solution of the adjoint equation

    w = g + (∂f/∂z)ᵀ w,      g = ∂loss/∂z*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from notsodeep.checks import InputError
from notsodeep.nn.cell_map import CellMap, Division, Form, Recorded, State
from notsodeep.nn.compiled import keeping_buffers
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
from notsodeep.nn.implicit import full_precision, phantom, refuse_other_derivatives, transformed, unrolled
from notsodeep.nn.options import SolveOptions
from notsodeep.nn.solvers import stepper

__all__ = ["evaluated", "settle"]


def settle(
    f: Callable[..., Any], start: State, arguments: tuple[Any, ...], options: SolveOptions, division: Division
) -> tuple[State, SolveReport]:
    """z* = f(z*, *arguments) and the report of its solve; differentiable in all that f depends on."""
    form = Form.of(start)
    flat = form.packed(start)
    leaves, spec = tree.tree_flatten(arguments)
    cell = CellMap(f, form, tuple(leaves), spec, len(flat), division)
    with keeping_buffers():
        state, report = _settled(cell, flat, options)
    return form.unpacked(state), report


def _settled(cell: CellMap, flat: Tensor, options: SolveOptions) -> tuple[Tensor, SolveReport]:
    """The same on rows."""
    require_resolvable(options.tol, flat.dtype)
    require_resolvable(options.backward_tol, flat.dtype, "backward_tol")
    if transformed() or (options.backward == "unrolled" and torch.is_grad_enabled()):
        if not transformed() and not flat.requires_grad and bool(flat.any()):
            raise InputError(
                'z0 would cut the graph of backward="unrolled": begin at zeros, use torch.no_grad(), '
                'or backward="implicit"'
            )
        return unrolled(cell, cell.image(flat), options)
    method = partial(stepper, options.solver, options.options)
    cell.keeps = torch.is_grad_enabled() and options.backward == "implicit" and not _saves_elsewhere()
    solution = _solved(cell, flat.detach(), method, options.tol, options.max_iter, cell.division)
    state, report = solution.state, solution.report
    tell(report, "forward", options.on_failure)
    if torch.is_grad_enabled() and options.backward == "phantom":
        state, report = phantom(cell, solution, options)
    elif torch.is_grad_enabled():
        state = _attached(cell, state, report, options)
    if state.data_ptr() == flat.data_ptr():
        state = state.clone()  # the start belongs to the caller
    return state, report


def evaluated(f: Callable[..., Any], start: State, arguments: tuple[Any, ...]) -> State:
    """One evaluation, where there is nothing to solve: no samples, or tensors without values."""
    form = Form.of(start)
    flat = form.packed(start)
    leaves, spec = tree.tree_flatten(arguments)
    return form.unpacked(CellMap(f, form, tuple(leaves), spec, len(flat), Division()).image(flat))


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


def _attached(cell: CellMap, state: Tensor, report: SolveReport, options: SolveOptions) -> Tensor:
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
        cell: CellMap,
        kept: Recorded | None,
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
        refuse_other_derivatives(gradient)
        state, *tensors = ctx.saved_tensors
        leaves = list(ctx.cell.leaves)
        for place, tensor in zip(ctx.places, tensors, strict=True):
            leaves[place] = tensor
        cell, options = replace(ctx.cell, leaves=tuple(leaves)), ctx.options
        method = partial(stepper, options.backward_solver, options.backward_options)
        with full_precision(state), keeping_buffers():
            adjoint = _AdjointMap(cell, ctx.kept or cell.graph(state), gradient)
            limits = options.backward_tol, options.backward_max_iter
            found = _solved(adjoint, gradient, method, *limits, cell.division)
        tell(found.report, "backward", options.on_failure)
        ctx.report.backward = found.report
        return None, None, None, None, None, found.state, *(None for _ in tensors)


class _AdjointMap:
    """w ↦ g + (∂f/∂z)ᵀ w at one point z, from a graph that is kept; if it runs once only, from one graph a product."""

    leaving = 2.0  # a new graph of the remaining rows, and residuals of the whole batch
    enough = 0.3

    def __init__(self, cell: CellMap, graph: Recorded, gradient: Tensor) -> None:
        self.cell, self.graph, self.gradient = cell, graph, gradient
        self.once = cell.once(graph)

    def evaluate(
        self, state: Tensor, out: tuple[Tensor, Tensor] | None = None, last: bool = False
    ) -> tuple[Tensor, Tensor]:
        return torch.add(self.gradient, self.jvp(state, state), out=out[0] if out else None), state

    def jvp(self, point: Tensor, direction: Tensor) -> Tensor:
        if self.once:
            return self.cell.graph(self.graph.state).vjp(direction)
        return self.graph.vjp(direction, retain_graph=True)

    def take(self, rows: Tensor) -> _AdjointMap | None:
        cell = self.cell.take(rows)
        return None if cell is None else _AdjointMap(cell, cell.graph(self.graph.state[rows]), self.gradient[rows])
