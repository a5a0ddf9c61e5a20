"""Differentiating through an equilibrium: by the implicit function theorem, by unrolling, or by a phantom step.

The state is h = √m z, so that h = φ(u), u = c h Aᵀ + d with c = σ_a/√m and d the drive.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from notsodeep.nn.activations import TensorActivation
from notsodeep.nn.fixed_point import (
    FixedPoint,
    FixedPointMap,
    SolveReport,
    relative_residuals,
    scaled_residuals,
    solve,
    tell,
)
from notsodeep.nn.options import SolveOptions
from notsodeep.nn.solvers import stepper

__all__ = ["Adjoint", "LayerMap", "equilibrium"]

_NO_RECORD = "cannot record a solve, whose number of steps depends on the data"
_RECORDABLE = "the plain network that nn.replace(module, X).network is"


@dataclass(frozen=True)
class LayerMap:
    """f(h) = φ(c h Aᵀ + d), linearised at u = c h Aᵀ + d."""

    weight: Tensor  # A, (m, m)
    drive: Tensor  # d, (rows, m)
    factor: float  # c
    phi: TensorActivation
    leaving: float = 0.0
    enough: float = 0.5

    def evaluate(
        self, state: Tensor, out: tuple[Tensor, Tensor] | None = None, last: bool = False
    ) -> tuple[Tensor, Tensor]:
        image, point = out or (None, None)
        point = torch.addmm(self.drive, state, self.weight.t(), alpha=self.factor, out=point)
        return self.phi(point, out=image), point

    def jvp(self, point: Tensor, direction: Tensor) -> Tensor:
        return self.phi.derivative(point) * (direction @ self.weight.t()).mul_(self.factor)

    def take(self, rows: Tensor) -> LayerMap:
        return LayerMap(self.weight, self.drive[rows], self.factor, self.phi)


@dataclass(frozen=True)
class Adjoint:
    """f(w) = φ'(u*) ⊙ (g + c w A): its fixed point is ∂loss/∂d when g = ∂loss/∂h."""

    weight: Tensor
    gradient: Tensor
    factor: float
    slope: Tensor  # φ'(u*)
    leaving: float = 0.0
    enough: float = 0.5

    def evaluate(
        self, state: Tensor, out: tuple[Tensor, Tensor] | None = None, last: bool = False
    ) -> tuple[Tensor, Tensor]:
        image = torch.addmm(self.gradient, state, self.weight, alpha=self.factor, out=out[0] if out else None)
        image.mul_(self.slope)
        return image, image

    def jvp(self, point: Tensor, direction: Tensor) -> Tensor:
        return (direction @ self.weight).mul_(self.factor).mul_(self.slope)

    def take(self, rows: Tensor) -> Adjoint:
        return Adjoint(self.weight, self.gradient[rows], self.factor, self.slope[rows])


def solve_equilibrium(problem: LayerMap, start: Tensor | None, options: SolveOptions) -> FixedPoint:
    """h* = φ(c h* Aᵀ + d), from `start` or from φ(d)."""
    first = problem.phi(problem.drive) if start is None else start
    solution = solve(problem, first, stepper(options.solver, options.options), options.tol, options.max_iter)
    tell(solution.report, "forward", options.on_failure)
    return solution


def solve_adjoint(problem: Adjoint, options: SolveOptions, start: Tensor | None = None) -> FixedPoint:
    """w* = φ'(u*) ⊙ (g + c w* A), from `start` or from φ'(u*) ⊙ g."""
    first = problem.slope * problem.gradient if start is None else start
    method = stepper(options.backward_solver, options.backward_options)
    solution = solve(problem, first, method, options.backward_tol, options.backward_max_iter)
    tell(solution.report, "backward", options.on_failure)
    return solution


class _Implicit(torch.autograd.Function):
    """h*(A, d) with ∂h*/∂(A, d) from the implicit function theorem; keeps h* and u*, nothing per iteration."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        drive: Tensor,
        start: Tensor | None,
        factor: float,
        phi: TensorActivation,
        options: SolveOptions,
        reports: list[SolveReport],
    ) -> Tensor:
        solution = solve_equilibrium(LayerMap(weight, drive, factor, phi), start, options)
        reports.append(solution.report)
        ctx.save_for_backward(weight, solution.state, solution.point)
        ctx.factor, ctx.phi, ctx.options, ctx.report = factor, phi, options, solution.report
        return solution.state

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        refuse_other_derivatives(gradient)
        weight, state, point = ctx.saved_tensors
        to_weight, to_drive = ctx.needs_input_grad[:2]
        with full_precision(weight):
            adjoint = Adjoint(weight, gradient, ctx.factor, ctx.phi.derivative(point))
            solution = solve_adjoint(adjoint, ctx.options)
            # u = c h Aᵀ + d, hence ∂/∂A = c wᵀh and ∂/∂d = w
            grad_weight = torch.mm(solution.state.t(), state).mul_(ctx.factor) if to_weight else None
        ctx.report.backward = solution.report
        return grad_weight, solution.state if to_drive else None, None, None, None, None, None


def refuse_other_derivatives(gradient: Tensor) -> None:
    """Raise inside a backward pass that is itself to be differentiated, or that has several gradients at once."""
    if torch._C._functorch.is_legacy_batchedtensor(gradient):
        raise NotImplementedError(
            "the implicit backward pass takes one gradient at a time: leave out is_grads_batched=True and "
            'vectorize=True, use torch.func.jacrev, or build the network with backward="unrolled"'
        )
    if torch.is_grad_enabled():
        raise NotImplementedError(
            "second derivatives through the implicit backward pass are not supported: "
            'do not use create_graph=True here, or build the network with backward="unrolled"'
        )


def refuse_recording() -> None:
    """Raise inside ``torch.export`` and ``torch.compile(fullgraph=True)``; end any other graph of ``torch.compile``."""
    if torch.compiler.is_exporting():
        raise NotImplementedError(f"torch.export {_NO_RECORD}: export {_RECORDABLE}")
    if torch.compiler.is_dynamo_compiling():
        torch._dynamo.graph_break(msg=f"fullgraph=True {_NO_RECORD}: leave it out, or compile {_RECORDABLE}")


def transformed() -> bool:
    """Whether ``torch.func`` or forward mode is at work, inside which a plain iteration is differentiated."""
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def _measured(image: Tensor, step: Tensor) -> Tensor:
    """Relative residuals as plain numbers, also of tensors that ``torch.func`` has wrapped."""
    if not transformed():
        return relative_residuals(image, step)
    residual = scaled_residuals(image, step)
    while torch._C._functorch.is_functorch_wrapped_tensor(residual):
        residual = torch._C._functorch.get_unwrapped(residual)
    return residual.detach().reshape(-1)


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """Autocast off: a residual cannot fall below the rounding of half precision."""
    return nullcontext() if like.is_meta else torch.autocast(like.device.type, enabled=False)


def equilibrium(
    weight: Tensor, drive: Tensor, factor: float, phi: TensorActivation, options: SolveOptions, start: Tensor | None
) -> tuple[Tensor, SolveReport]:
    """Return h* and the report of its solve; differentiable in `weight` and `drive`."""
    if transformed() or (options.backward == "unrolled" and torch.is_grad_enabled()):
        return unrolled(LayerMap(weight, drive, factor, phi), phi(drive), options)
    if options.backward == "implicit" and torch.is_grad_enabled():
        reports: list[SolveReport] = []
        state = _Implicit.apply(weight, drive, start, factor, phi, options, reports)
        return state, reports[0]
    problem = LayerMap(weight, drive, factor, phi)
    with torch.no_grad():
        solution = solve_equilibrium(problem, start, options)
    if not torch.is_grad_enabled():
        return solution.state, solution.report
    return phantom(problem, solution, options)


def phantom(problem: FixedPointMap, solution: FixedPoint, options: SolveOptions) -> tuple[Tensor, SolveReport]:
    """A few more steps; only these are differentiated."""
    state, report = solution.state, solution.report
    for _ in range(options.phantom_steps):
        state = problem.evaluate(state)[0]
    told = not report.converged
    with torch.no_grad():
        image = problem.evaluate(state)[0]
        report.residuals = relative_residuals(image, image - state)
    if not told:
        tell(report, "forward", options.on_failure)
    return state, report


def unrolled(problem: FixedPointMap, state: Tensor, options: SolveOptions) -> tuple[Tensor, SolveReport]:
    """Plain iteration inside the graph: the memory grows with the number of iterations."""
    for iteration in range(1, options.max_iter + 1):
        image = problem.evaluate(state)[0]
        with torch.no_grad():
            residual = _measured(image, image - state)
        if iteration == options.max_iter or bool((residual <= options.tol).all()):
            break
        state = image
    counts = torch.full((len(residual),), iteration, device=residual.device)
    report = SolveReport("picard", options.tol, iteration, counts, residual)
    inside = "inside torch.func or forward mode" if transformed() else 'with backward="unrolled"'
    note = "" if options.solver == "picard" else f"; {inside} only plain steps are taken, whatever the solver"
    tell(report, "forward", options.on_failure, note)
    return state, report
