"""Batched fixed points z = f(z): one loop that measures every sample, four ways to take the next step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from notsodeep.checks import InputError, NotConvergedError, warn_convergence
from notsodeep.display import card

__all__ = ["FixedPointMap", "SolveReport", "Stepper", "solve"]

_WORTHWHILE = 0.25  # finished samples are removed once they are this fraction of the batch
_SOON = 1.5  # steps left, by the rate of the last one, at which the next evaluation may be the last


class FixedPointMap(Protocol):
    """A map f on rows, f(z)_i depending on z_i alone.

    Removing rows costs as much as `leaving` evaluations. While plain steps shrink the residual to less than the
    fraction `enough`, mixing past iterates does not pay: the cheaper f is, the larger this fraction.
    """

    @property
    def leaving(self) -> float: ...

    @property
    def enough(self) -> float: ...

    def evaluate(
        self, state: Tensor, out: tuple[Tensor, Tensor] | None = None, last: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return f(z) and the tensor at which f is linearised there, both (rows, width).

        `out` is a pair of buffers that may be used for them; `last` says that the solve is expected to end here.
        """

    def jvp(self, point: Tensor, direction: Tensor) -> Tensor:
        """f'(z) · direction, row by row."""

    def take(self, rows: Tensor) -> FixedPointMap | None:
        """Return the same map for some of the rows; None if rows cannot be separated."""


@dataclass
class Iterate:
    """What a stepper sees: z, f(z), f(z) − z and the relative residuals of the active rows."""

    state: Tensor
    image: Tensor
    step: Tensor
    residual: Tensor
    worst: float
    point: Tensor
    map: FixedPointMap


class Stepper(Protocol):
    """Chooses the next z; keeps its own history of the active rows."""

    name: str

    def next(self, at: Iterate) -> Tensor:
        """Return the next state."""

    def take(self, rows: Tensor) -> None:
        """Forget every row not listed."""


@dataclass
class SolveReport:
    """How a solve went, sample by sample.

    Attributes
    ----------
    solver : str
    tol : float
        The tolerance asked for, on ‖f(z) − z‖ / ‖f(z)‖ of each sample.
    iterations : int
        Evaluations of f until the last sample left.
    sample_iterations : Tensor, (n,)
        The same for each sample.
    residuals : Tensor, (n,)
        Relative residual measured at the state that was returned.
    backward : SolveReport or None
        The adjoint solve, once a backward pass has run.
    """

    solver: str
    tol: float
    iterations: int
    sample_iterations: Tensor = field(repr=False)
    residuals: Tensor = field(repr=False)
    backward: SolveReport | None = None

    @property
    def residual(self) -> float:
        """The worst relative residual."""
        return float(self.residuals.max())

    @property
    def converged(self) -> bool:
        """Every sample is within the tolerance."""
        return bool((self.residuals <= self.tol).all())

    def __str__(self) -> str:
        verdict = "converged" if self.converged else "NOT converged"
        text = f"{self.solver}: {verdict} in {self.iterations} iterations, residual {self.residual:.3g}"
        return f"{text} (tol {self.tol:.3g})"

    def _repr_html_(self) -> str:
        solves = {"forward": self, "backward": self.backward}
        rows = [(name, one.iterations, f"{one.residual:.1e}") for name, one in solves.items() if one is not None]
        verdict = (self.converged, f"{'converged' if self.converged else 'not converged'} to {self.tol:.3g}")
        head = ("", "iterations", "residual")
        return card(f"SolveReport, {self.solver}", rows, header=head, verdict=verdict)


@dataclass
class FixedPoint:
    """The fixed point, the point of linearisation, and the report."""

    state: Tensor
    point: Tensor
    report: SolveReport


class _Buffers:
    """Buffers reused alternately: a stepper may read the previous iteration, but no earlier one."""

    def __init__(self, like: Tensor) -> None:
        self.images = (torch.empty_like(like), torch.empty_like(like))
        self.steps = (torch.empty_like(like), torch.empty_like(like))
        self.point = torch.empty_like(like)

    def shrink(self, rows: int) -> None:
        self.images = (self.images[0][:rows], self.images[1][:rows])
        self.steps = (self.steps[0][:rows], self.steps[1][:rows])
        self.point = self.point[:rows]


def _nan_is_infinite(values: Tensor) -> Tensor:
    return torch.where(values.isnan(), float("inf"), values)


def relative_residuals(image: Tensor, step: Tensor) -> Tensor:
    """‖f(z) − z‖ / ‖f(z)‖ of every row, whatever its magnitude; 0 when both are exactly 0, inf when not finite."""
    sizes = torch.linalg.vector_norm(image, dim=1)
    smallest, largest = torch.aminmax(sizes)
    safe = torch.finfo(image.dtype).tiny ** 0.25
    if float(smallest) >= safe and float(largest) <= 1 / safe:
        return torch.linalg.vector_norm(step, dim=1).div_(sizes)
    return scaled_residuals(image, step)


def scaled_residuals(image: Tensor, step: Tensor) -> Tensor:
    """The same without a look at values: every row is scaled by its largest entry, so that no square overflows."""
    unit = torch.maximum(image.abs().amax(1, keepdim=True), step.abs().amax(1, keepdim=True))
    scaled = torch.linalg.vector_norm(step / unit, dim=1) / torch.linalg.vector_norm(image / unit, dim=1)
    return torch.where(unit[:, 0] == 0, 0.0, _nan_is_infinite(scaled))


def require_resolvable(tol: float, dtype: torch.dtype, parameter: str = "tol") -> None:
    """Refuse a tolerance that rounding alone exceeds."""
    floor = 4 * torch.finfo(dtype).eps
    if tol < floor:
        raise InputError(
            f"{parameter}={tol:.3g} is below what {dtype} resolves; use {parameter} ≥ {floor:.1e} or a float64 network"
        )


@torch.no_grad()
def solve(problem: FixedPointMap, start: Tensor, stepper: Stepper, tol: float, max_iter: int) -> FixedPoint:
    """Find z with ‖f(z) − z‖ ≤ tol ‖f(z)‖ on every row.

    The residual is always measured at the state that is returned. Rows that have converged or become non-finite are
    removed from the batch. An image of exactly 0 has an infinite residual, but the next step may find it at rest.
    """
    require_resolvable(tol, start.dtype)
    total = start.shape[0]
    rows: Tensor | None = None  # None: all rows are still active
    gathered: list[tuple[Tensor, Tensor, Tensor, Tensor, int]] = []
    divisible = True
    state = start
    before = steps_left = math.inf
    buffers = _Buffers(start)
    for iteration in range(1, max_iter + 1):
        buffer = buffers.images[iteration % 2], buffers.point
        image, point = problem.evaluate(state, buffer, last=steps_left <= _SOON)
        step = torch.sub(image, state, out=buffers.steps[iteration % 2])
        residual = relative_residuals(image, step)
        worst = float(residual.max())
        if worst <= tol or iteration == max_iter:
            break
        running = residual > tol  # False for NaN
        if worst != worst or worst == float("inf"):
            running &= step.isfinite().all(1)
        remaining = int(running.sum())
        if remaining == 0:
            break
        part: FixedPointMap | None = None
        finished = 1 - remaining / state.shape[0]
        steps_left = _steps_left(worst, before, tol)
        before = worst
        if divisible and finished >= _WORTHWHILE and finished * steps_left >= problem.leaving:
            leaving, staying = (~running).nonzero()[:, 0], running.nonzero()[:, 0]
            part = problem.take(staying)
            divisible = part is not None
        if part is not None:
            labels = leaving if rows is None else rows[leaving]
            gathered.append((labels, state[leaving], point[leaving], residual[leaving], iteration))
            rows = staying if rows is None else rows[staying]
            problem = part
            stepper.take(staying)
            state, image, step = state[staying], image[staying], step[staying]
            buffers.shrink(remaining)
            point, residual = point[staying], residual[staying]
            worst = float(residual.max())
        state = stepper.next(Iterate(state, image, step, residual, worst, point, problem))

    residual = _nan_is_infinite(residual)
    counts = torch.full((total,), iteration, device=start.device)
    if rows is None:
        return FixedPoint(state, point, SolveReport(stepper.name, tol, iteration, counts, residual))
    states, points = torch.empty_like(start), torch.empty_like(start)
    residuals = residual.new_empty(total)
    for labels, one_state, one_point, one_residual, when in [*gathered, (rows, state, point, residual, iteration)]:
        states[labels], points[labels], counts[labels] = one_state, one_point, when
        residuals[labels] = _nan_is_infinite(one_residual)
    return FixedPoint(states, points, SolveReport(stepper.name, tol, iteration, counts, residuals))


def _steps_left(worst: float, before: float, tol: float) -> float:
    """Evaluations until the worst residual meets the tolerance, if it goes on shrinking as in the last one."""
    rate = worst / before if before else 1.0
    return math.log(tol / worst) / math.log(rate) if 0 < rate < 1 and 0 < worst < math.inf else math.inf


def tell(report: SolveReport, what: str, on_failure: str, note: str = "") -> None:
    """Warn or raise when a solve did not converge; `note` ends the message."""
    if on_failure == "ignore" or report.converged:
        return
    failed = int((report.residuals > report.tol).sum())
    message = (
        f"the {what} solve did not converge for {failed} of {report.residuals.numel()} samples: {report}; "
        f"raise max_iter or tol, or lower the norm of the recurrent weight{note}"
    )
    if on_failure == "raise":
        raise NotConvergedError(message)
    warn_convergence(message)
