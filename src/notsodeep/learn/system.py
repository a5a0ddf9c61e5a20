"""(K + ridge·W⁻¹) α = Y: what is asked, the iteration that ends every way of solving it, and what is said of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import InputError, matrix, nonnegative, positive, warn_convergence
from notsodeep.kernels import Blocks
from notsodeep.learn.conjugate_gradients import ConjugateGradients, relative
from notsodeep.learn.products import Operator, product
from notsodeep.learn.solution import Solution, diagonal_shift
from notsodeep.progress import Progress, reporter

__all__ = ["System"]

Array: TypeAlias = NDArray[Any]

_SECONDS_BETWEEN_CHECKPOINTS = 30.0
_NO_DIGITS = 0.01  # condition · eps beyond which coefficients mean little


@dataclass(frozen=True)
class System:
    """A α = Y with A = K + diag(shift), and when to stop.

    Attributes
    ----------
    blocks : Blocks (n, n)
    B : array (n, k)
        The targets in float64, each column divided by a power of two near its largest entry: no norm of them leaves
        the range of floats, and no bit changes.
    magnitude : array (k,)
        These powers of two.
    shape : tuple
        Of the targets as they came.
    """

    blocks: Blocks
    B: Array
    magnitude: Array
    shape: tuple[int, ...]
    ridge: float
    shift: Array
    weight: Array
    tol: float
    max_iterations: int
    progress: Progress
    began: float = field(default_factory=time.perf_counter)

    @staticmethod
    def of(
        blocks: Blocks,
        targets: ArrayLike,
        ridge: float,
        weights: ArrayLike | None,
        tol: float,
        max_iterations: int,
        progress: Progress,
    ) -> System:
        """Look at everything before any work."""
        n = blocks.shape[0]
        if not blocks.symmetric:
            raise InputError(
                f"blocks has shape {blocks.shape} and is not symmetric; pass the kernel of the samples alone"
            )
        values = matrix(targets, "targets", rank=1 if np.ndim(targets) == 1 else 2)
        if len(values) != n:
            raise InputError(f"targets has {len(values)} rows but the kernel has {n}; pass one row for each sample")
        columns = values.reshape(n, -1).astype(np.float64)
        exponent = np.frexp(np.abs(columns).max(axis=0))[1] - 1
        ridge, tol = nonnegative(ridge, "ridge"), positive(tol, "tol")
        shift, weight = diagonal_shift(ridge, weights, n)
        B, magnitude = np.ldexp(columns, -exponent), np.ldexp(1.0, exponent)
        return System(blocks, B, magnitude, values.shape, ridge, shift, weight, tol, max_iterations, progress)

    def operator(self, blocks: Blocks) -> Operator:
        """V ↦ A V with another copy of the kernel."""
        return lambda V: product(blocks, V, progress=False) + self.shift[:, None] * V

    @property
    def exact(self) -> Operator:
        """V ↦ A V in float64, from the kernel."""
        return self.operator(self.blocks.astype("float64"))

    def residual(self, R: Array) -> float:
        """The largest ‖r‖/‖b‖ over the columns."""
        return relative(R, np.linalg.norm(self.B, axis=0))

    def iterate(
        self, cg: ConjugateGradients, exact: Operator, patience: int, save: Callable[[], None] | None = None
    ) -> float:
        """Step until the residual of the exact operator is below tol, or nothing is gained any more; return it.

        The residual returned is B − A X computed from X. The one of the recurrence is only a hint: it goes on falling
        where rounding keeps the true one.
        """
        same = cg.operator is exact
        goal = self.tol if same else 0.5 * self.tol
        best, X, R = math.inf, cg.X, cg.R
        saved = time.monotonic()
        try:
            with reporter("conjugate gradients", 1000, self.progress if cg.residual > goal else False) as report:
                while True:
                    steps, history = 0, [cg.residual]
                    while cg.residual > goal and cg.iteration < self.max_iterations:
                        cg.step()
                        steps += 1
                        history.append(min(history[-1], cg.residual))
                        gained = math.log(min(max(cg.best, 1e-300), 1)) / math.log(min(goal, 0.5))
                        report(int(1000 * min(1.0, gained)), 1000)
                        if save is not None and time.monotonic() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
                            save()
                            saved = time.monotonic()
                        if steps >= patience and history[-1] > 0.5 * history[-1 - patience]:
                            break
                    rest = cg.R if same and cg.iteration == 0 else self.B - exact(cg.X)
                    true, before = self.residual(rest), best
                    if not true >= best:
                        best, X, R = true, cg.X, rest
                    if best <= self.tol or cg.iteration >= self.max_iterations or not true <= 0.5 * before:
                        cg.X, cg.R = X, R
                        return best
                    cg.restart(R)
        except BaseException:
            if save is not None and cg.iteration:
                save()
            raise

    def answer(self, method: str, reason: str, size: int, outcome: dict[str, Any]) -> Solution:
        """The solution in the scale of the targets; what an exact method did not reach is said."""
        answer = Solution(
            coefficients=(outcome.pop("X") * self.magnitude).reshape(self.shape),
            method=method,
            reason=reason + outcome.pop("note", ""),
            ridge=self.ridge,
            converged=outcome["residual"] <= self.tol,
            seconds=time.perf_counter() - self.began,
            bytes=size,
            shift=self.shift,
            weight=self.weight,
            **outcome,
        )
        if method != "nystrom" and not answer.converged:
            warn_convergence(
                f"{method} reached a relative residual of {answer.residual:.1e} after {answer.iterations} "
                f"iterations, above tol={self.tol:g} (condition number about {answer.condition:.0e}); "
                "raise ridge, tol or max_iterations"
            )
        elif answer.condition * np.finfo(np.float64).eps > _NO_DIGITS:
            warn_convergence(
                f"the condition number is about {answer.condition:.0e}: the residual is {answer.residual:.1e} but the "
                "coefficients have hardly a correct digit; raise ridge"
            )
        return answer
