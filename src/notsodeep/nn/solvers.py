"""Four ways to take the next step towards z = f(z), for all rows of a batch at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from notsodeep.checks import UnknownOptionError, choice, count, nearest
from notsodeep.nn.fixed_point import Iterate, Stepper

__all__ = ["SOLVERS", "Anderson", "Broyden", "Newton", "Picard", "stepper"]

_TRIAL = 5  # mixed steps after which their rate is compared with that of plain steps, again and again
_WORTH = 1.5  # a mixed step costs about this many plain ones
_STEADY = 0.5  # plain steps have become slow when their rate is above the former one to this power
_SLOWEST = 0.95  # mixing goes on if plain steps shrink the residual less than this
_GROWTH = 2.0  # a sample whose residual grows this much takes a plain step instead


class Picard:
    """z ← f(z)."""

    name = "picard"

    def next(self, at: Iterate) -> Tensor:
        return at.image

    def take(self, rows: Tensor) -> None:
        return None


class Anderson:
    """z ← f(z) − Σ γ_k Δf_k, with γ minimising ‖f(z) − z − Σ γ_k Δ(f(z) − z)_k‖ per sample.

    Plain steps are used as long as they shrink the residual enough, to a half for one dense layer: for random weights
    the spectrum of f' fills a disc, and then no mixing of past iterates is faster than plain iteration. If
    a few mixed steps, the first or later ones, are not faster by more than they cost, plain steps are used from then
    on, as for orthogonal weights, unless these turn out to be slower than they were before.

    Parameters
    ----------
    memory : int
        Number of past differences.
    """

    name = "anderson"

    def __init__(self, memory: int = 5) -> None:
        self.memory = count(memory, "memory")
        self.previous: tuple[Tensor, Tensor, Tensor] | None = None  # image, step, residual
        self.worst = float("inf")
        self.past: _Differences | None = None
        self.taken = 0  # steps since mixing began, or since it was last judged
        self.plain_rate = 1.0  # by which the last plain step shrank the worst residual
        self.began = float("inf")  # the worst residual then
        self.plain = False  # mixing was tried and does not pay

    def next(self, at: Iterate) -> Tensor:
        previous, self.previous = self.previous, (at.image, at.step, at.residual)
        worst, self.worst = self.worst, at.worst
        if previous is None or (self.taken == 0 and at.worst < at.map.enough * worst):
            return at.image
        if self.taken == 0:
            self.plain_rate, self.began = at.worst / worst, at.worst
        elif self.taken == _TRIAL and not self.plain and self.plain_rate < _SLOWEST:
            self.plain = at.worst >= self.began * self.plain_rate ** (_WORTH * _TRIAL)
            self.taken, self.began = 0, at.worst
        self.taken += 1
        if self.plain:
            self.past = None
            if self.taken <= 2 or at.worst <= self.plain_rate**_STEADY * worst:
                return at.image
            # slower than before: mix again, from an empty memory
            self.plain, self.taken, self.plain_rate, self.began = False, 1, at.worst / worst, at.worst
        if self.past is None:
            self.past = _Differences(at.state, self.memory)
        old_image, old_step, old_residual = previous
        self.past.add((at.image, old_image), (at.step, old_step))
        return self.past.mixed(at.image, at.step, at.residual <= _GROWTH * old_residual)

    def take(self, rows: Tensor) -> None:
        if self.previous is not None:
            self.previous = _rows(self.previous, rows)
        if self.past is not None:
            self.past.take(rows)


class _Differences:
    """The last differences of images and of steps, and the scalar products of the latter."""

    def __init__(self, state: Tensor, memory: int) -> None:
        rows, width = state.shape
        self.memory = memory
        self.images = state.new_empty(rows, memory, width)  # Δf_k
        self.steps = torch.empty_like(self.images)  # Δ(f(z) − z)_k
        self.gram = torch.empty(rows, memory, memory, dtype=torch.float64, device=state.device)
        self.count = 0

    def add(self, images: tuple[Tensor, Tensor], steps: tuple[Tensor, Tensor]) -> None:
        """Put new less old in the place of the oldest difference."""
        slot = self.count % self.memory
        self.count += 1
        torch.sub(*images, out=self.images[:, slot])
        newest = torch.sub(*steps, out=self.steps[:, slot])
        size = min(self.count, self.memory)
        self.gram[:, slot, :size] = self.gram[:, :size, slot] = self._products(newest)[:, 0]

    def _products(self, vectors: Tensor) -> Tensor:
        """⟨v, Δ(f(z) − z)_k⟩ of each row, (rows, 1, k): as a row, which BLAS multiplies faster than a column."""
        steps = self.steps[:, : min(self.count, self.memory)]
        return torch.bmm(vectors[:, None], steps.transpose(1, 2)).double()

    def mixed(self, image: Tensor, step: Tensor, safe: Tensor) -> Tensor:
        """f(z) − Σ γ_k Δf_k in `safe` rows, f(z) in others."""
        size = min(self.count, self.memory)
        gram = self.gram[:, :size, :size]
        # a ridge relative to the trace keeps the normal equations solvable when differences align
        ridge = torch.finfo(image.dtype).eps * gram.diagonal(dim1=1, dim2=2).sum(1)
        eye = torch.eye(size, dtype=gram.dtype, device=gram.device)
        damped = gram + (ridge + torch.finfo(torch.float64).tiny)[:, None, None] * eye
        weights = torch.linalg.solve_ex(damped, self._products(step).transpose(1, 2))[0].to(image.dtype)
        weights = torch.where(safe[:, None, None] & weights.isfinite(), weights, 0.0)
        return torch.baddbmm(image[:, None], weights.transpose(1, 2), self.images[:, :size], alpha=-1)[:, 0]

    def take(self, rows: Tensor) -> None:
        self.images, self.steps, self.gram = self.images[rows], self.steps[rows], self.gram[rows]


class Broyden:
    """z ← z − B (f(z) − z), B ≈ (f' − I)⁻¹ built from rank-one updates (Broyden's good method).

    Parameters
    ----------
    memory : int
        Rank at which the approximation is reset.
    """

    name = "broyden"

    def __init__(self, memory: int = 12) -> None:
        self.memory = count(memory, "memory")
        self.previous: tuple[Tensor, Tensor, Tensor] | None = None  # state, step, residual
        self.left: list[Tensor] = []  # B = −I + Σ left_k right_kᵀ
        self.right: list[Tensor] = []

    def next(self, at: Iterate) -> Tensor:
        previous, self.previous = self.previous, (at.state, at.step, at.residual)
        if previous is not None:
            self._update(at.state - previous[0], at.step - previous[1])
        direction = at.step - self._correction(at.step, self.left, self.right)
        if previous is not None:
            safe = (at.residual <= _GROWTH * previous[2])[:, None]
            direction = torch.where(safe & direction.isfinite(), direction, at.step)
        return at.state + direction

    @staticmethod
    def _correction(vector: Tensor, left: list[Tensor], right: list[Tensor]) -> Tensor:
        total = torch.zeros_like(vector)
        for one, other in zip(left, right, strict=True):
            total += one * (other * vector).sum(1, keepdim=True)
        return total

    def _update(self, moved: Tensor, change: Tensor) -> None:
        if len(self.left) == self.memory:
            self.left, self.right = [], []
        # Sherman–Morrison: B += (Δz − BΔg)(ΔzᵀB) / (ΔzᵀBΔg)
        row = self._correction(moved, self.right, self.left) - moved
        defect = moved + change - self._correction(change, self.left, self.right)
        denominator = (row * change).sum(1, keepdim=True)
        usable = denominator.abs() > torch.finfo(moved.dtype).eps * (row.norm(dim=1) * change.norm(dim=1))[:, None]
        self.left.append(torch.where(usable, defect / denominator, 0.0))
        self.right.append(row)

    def take(self, rows: Tensor) -> None:
        if self.previous is not None:
            self.previous = _rows(self.previous, rows)
        self.left = [one[rows] for one in self.left]
        self.right = [one[rows] for one in self.right]


class Newton:
    """z ← z + (I − f'(z))⁻¹ (f(z) − z), the linear system by batched GMRES.

    Parameters
    ----------
    memory : int
        Largest Krylov space of one step.
    """

    name = "newton"

    def __init__(self, memory: int = 30) -> None:
        self.memory = count(memory, "memory")
        self.residual: Tensor | None = None

    def next(self, at: Iterate) -> Tensor:
        previous, self.residual = self.residual, at.residual
        # forcing term: tighten with the residual, which keeps the quadratic rate
        forcing = min(0.1, max(at.worst, 1e3 * torch.finfo(at.state.dtype).eps))

        def operator(direction: Tensor) -> Tensor:
            return direction - at.map.jvp(at.point, direction)

        unit = at.step.abs().amax(1, keepdim=True).clamp_min_(torch.finfo(at.step.dtype).tiny)
        direction = unit * gmres(operator, at.step / unit, forcing, self.memory)
        if previous is not None:
            safe = (at.residual <= _GROWTH * previous)[:, None]
            direction = torch.where(safe & direction.isfinite(), direction, at.step)
        return at.state + direction

    def take(self, rows: Tensor) -> None:
        if self.residual is not None:
            self.residual = self.residual[rows]


def gmres(operator: Callable[[Tensor], Tensor], rhs: Tensor, tol: float, max_iter: int) -> Tensor:
    """Solve operator(x) = rhs row by row to relative residual `tol`; x is a combination of Krylov vectors."""
    tiny = torch.finfo(rhs.dtype).tiny
    norm = torch.linalg.vector_norm(rhs, dim=1)
    rows, width = rhs.shape
    basis = rhs.new_zeros(rows, max_iter + 1, width)
    basis[:, 0] = rhs / norm.clamp_min(tiny)[:, None]
    hessenberg = torch.zeros(rows, max_iter + 1, max_iter, dtype=torch.float64, device=rhs.device)
    target = torch.zeros(rows, max_iter + 1, 1, dtype=torch.float64, device=rhs.device)
    target[:, 0, 0] = norm
    for k in range(max_iter):
        vector = operator(basis[:, k])[:, :, None]
        known = basis[:, : k + 1]
        for _ in range(2):  # orthogonalise twice: Gram–Schmidt to rounding
            projection = torch.bmm(known, vector)
            hessenberg[:, : k + 1, k] += projection[:, :, 0]
            vector = vector - torch.bmm(known.transpose(1, 2), projection)
        length = torch.linalg.vector_norm(vector[:, :, 0], dim=1)
        hessenberg[:, k + 1, k] = length
        basis[:, k + 1] = vector[:, :, 0] / length.clamp_min(tiny)[:, None]
        matrix, right = hessenberg[:, : k + 2, : k + 1], target[:, : k + 2]
        Q, R = torch.linalg.qr(matrix)
        flat = torch.diag_embed((R.diagonal(dim1=1, dim2=2) == 0).to(R.dtype))  # a row that was solved earlier
        weights = torch.linalg.solve_triangular(R + flat, Q.transpose(1, 2) @ right, upper=True)
        residual = torch.linalg.vector_norm((matrix @ weights - right)[:, :, 0], dim=1)
        if bool((residual <= tol * norm).all()):
            break
    return torch.bmm(weights.transpose(1, 2).to(rhs.dtype), basis[:, : k + 1])[:, 0]


def _rows(tensors: tuple[Tensor, Tensor, Tensor], rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first, second, third = tensors
    return first[rows], second[rows], third[rows]


SOLVERS: dict[str, Callable[..., Stepper]] = {
    "picard": Picard,
    "anderson": Anderson,
    "broyden": Broyden,
    "newton": Newton,
}


def stepper(solver: str, options: Mapping[str, Any]) -> Stepper:
    """Return a fresh stepper; an unknown solver or option is refused with the nearest name."""
    build = SOLVERS[choice(solver, SOLVERS, "solver")]
    known = [name for name in inspect.signature(build).parameters if name not in ("args", "kwargs")]
    for name in options:
        if name not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no options"
            raise UnknownOptionError(f"solver {solver!r} has no option {name!r}{nearest(name, known)} (it {takes})")
    return build(**options)
