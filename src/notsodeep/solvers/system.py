"""(K + ridge·W⁻¹) α = Y: the system, the refinement loop shared by all solvers, and the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep import interrupt
from notsodeep.checks import InputError, matrix, nonnegative, positive, warn_convergence
from notsodeep.display import card
from notsodeep.errors import AbsentError
from notsodeep.kernels import KernelMatrix, MatrixBlocks
from notsodeep.progress import Progress, reporter
from notsodeep.solvers.conjugate_gradients import ConjugateGradients, Operator, relative

__all__ = ["Factorization", "Solution", "System", "diagonal_shift"]

Array: TypeAlias = NDArray[Any]

_SECONDS_BETWEEN_CHECKPOINTS = 30.0
_NO_DIGITS = 0.01  # limit of condition · eps; coefficients beyond it mean little


class Factorization(Protocol):
    """A = K + ridge·W⁻¹ = L Lᵀ, in memory (:class:`CholeskyFactor`) or on disk (:class:`StoredFactor`)."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def solve(self, B: ArrayLike) -> Array:
        """A⁻¹ B in the precision of the factor, returned in float64; B is (n,) or (n, k)."""

    def half_solve(self, B: ArrayLike) -> Array:
        """L⁻¹ B; the squared norm of a column is bᵀA⁻¹b."""

    def logdet(self) -> float:
        """log det A = 2 Σ log L_ii."""

    def inverse_diagonal(self, progress: Progress = None) -> Array:
        """(A⁻¹)_ii = Σ_r (L⁻¹)_ri², from a few columns of L⁻¹ at a time (a third of n³ operations)."""


@dataclass(frozen=True)
class Solution:
    """Coefficients and how they were obtained.

    Attributes
    ----------
    coefficients : array (n,) or (n, k)
        α in float64; predictions are K(x, X) α.
    method : str
        ``"cholesky"``, ``"cholesky float32"``, ``"cg"`` or ``"nystrom"``.
    reason : str
        Why this method, in a sentence.
    ridge : float
        As used. Nothing else is ever added to the diagonal.
    residual : float
        Largest ‖Y − (K + ridge·W⁻¹)α‖/‖Y‖ over the columns, in float64 from the kernel; with ``refined=False`` from
        the entries of a float32 kernel, with sums in float64.
    converged : bool
        Whether `residual` reached the tolerance.
    condition, condition_method : float, str
        Estimate of λ_max/λ_min of K + ridge·W⁻¹, and where it comes from.
    iterations : int
        Of conjugate gradients; for a Cholesky factor, steps of refinement.
    seconds : float
    bytes : int
        Memory planned for.
    regularisation : float
        What was added to the diagonal beyond the ridge: always 0.
    preconditioner : str
        What conjugate gradients used; empty for others.
    shift : array (n,)
        ridge/w_i, what was added to the diagonal.
    weight : array (n,)
        w_i.
    factor : Factorization or None
        For leave-one-out errors, determinants and posterior variances.
    """

    coefficients: Array = field(repr=False)
    method: str
    reason: str
    ridge: float
    residual: float
    converged: bool
    condition: float
    condition_method: str
    iterations: int
    seconds: float
    bytes: int
    regularisation: float = 0.0
    preconditioner: str = ""
    shift: Array = field(repr=False, default_factory=lambda: np.zeros(0))
    weight: Array = field(repr=False, default_factory=lambda: np.zeros(0))
    factor: Factorization | None = field(repr=False, default=None)

    @property
    def required_factor(self) -> Factorization:
        """The factor; a solution without one raises."""
        if self.factor is None:
            raise AbsentError(
                f"there is no factorisation to compute this from (a solution by {self.method}, or a model read from a "
                "file); use solver='cholesky'"
            )
        return self.factor

    def _repr_html_(self) -> str:
        rows = [
            ("method", self.method),
            ("ridge", f"{self.ridge:.3g}"),
            ("residual", f"{self.residual:.1e}"),
            ("condition number", f"{self.condition:.2e}"),
            ("iterations", self.iterations),
            ("seconds", f"{self.seconds:.3g}"),
        ]
        verdict = (self.converged, "converged" if self.converged else "not converged")
        return card("Solution", rows, verdict=verdict, notes=[self.reason])


def diagonal_shift(ridge: float, weights: ArrayLike | None, n: int) -> tuple[Array, Array]:
    """ridge/w_i and w_i; checks the weights."""
    if weights is None:
        return np.full(n, ridge), np.ones(n)
    weight = matrix(weights, "weights", rank=1).astype(np.float64)
    if len(weight) != n:
        raise InputError(f"weights has {len(weight)} entries but there are {n} samples; pass one for each")
    if not (weight > 0).all():
        raise InputError(f"weights holds {weight.min():g}; weights must be positive, leave samples out instead")
    with np.errstate(over="ignore"):
        shift = ridge / weight
    if not np.isfinite(shift).all():
        raise InputError(f"weights holds {weight.min():g}; ridge/weight overflows, so leave such samples out")
    return shift, weight


@dataclass(frozen=True)
class System:
    """A α = Y with A = K + diag(shift), and when to stop.

    Attributes
    ----------
    K : KernelMatrix (n, n)
    B : array (n, k)
        The targets in float64, each column divided by a power of two near its largest entry: norms cannot overflow,
        and the scaling is exact.
    magnitude : array (k,)
        These powers of two.
    shape : tuple
        Shape of the targets as passed.
    """

    K: KernelMatrix
    B: Array
    magnitude: Array
    shape: tuple[int, ...]
    ridge: float
    shift: Array
    weight: Array
    tol: float
    max_iter: int
    progress: Progress
    began: float = field(default_factory=time.perf_counter)

    @staticmethod
    def of(
        K: KernelMatrix | ArrayLike,
        targets: ArrayLike,
        ridge: float,
        weights: ArrayLike | None,
        tol: float,
        max_iter: int,
        progress: Progress,
    ) -> System:
        """Check all arguments before any work."""
        K = K if isinstance(K, KernelMatrix) else MatrixBlocks(K)
        n = K.shape[0]
        if not K.symmetric:
            raise InputError(f"K has shape {K.shape} and is not symmetric; pass the kernel of the samples alone")
        values = matrix(targets, "targets", rank=1 if np.ndim(targets) == 1 else 2)
        if len(values) != n:
            raise InputError(f"targets has {len(values)} rows but the kernel has {n}; pass one row for each sample")
        columns = values.reshape(n, -1).astype(np.float64)
        exponent = np.frexp(np.abs(columns).max(axis=0))[1] - 1
        ridge, tol = nonnegative(ridge, "ridge"), positive(tol, "tol")
        shift, weight = diagonal_shift(ridge, weights, n)
        B, magnitude = np.ldexp(columns, -exponent), np.ldexp(1.0, exponent)
        return System(K, B, magnitude, values.shape, ridge, shift, weight, tol, max_iter, progress)

    def operator(self, K: KernelMatrix) -> Operator:
        """V ↦ A V with another copy of the kernel."""
        return lambda V: K @ V + self.shift[:, None] * V

    @cached_property
    def _double(self) -> Operator:
        return self.operator(self.K.astype("float64"))

    def exact(self, V: Array) -> Array:
        """A V in float64, from the kernel."""
        return self._double(V)

    def residual(self, R: Array) -> float:
        """The largest ‖r‖/‖b‖ over the columns."""
        return relative(R, np.linalg.norm(self.B, axis=0))

    def iterate(
        self,
        cg: ConjugateGradients,
        exact: Operator,
        patience: int,
        save: Callable[[], None] | None = None,
    ) -> float:
        """Step until the residual of the exact operator is below tol or stops falling; return it.

        The residual returned is B − A X computed from X. The one of the recurrence is only a hint: it keeps falling
        when rounding already limits the true one.
        """
        same = cg.operator is exact
        goal = self.tol if same else 0.5 * self.tol
        best, X, R = math.inf, cg.X, cg.R
        saved = time.monotonic()

        def keep() -> None:
            if save is not None and cg.iteration:
                save()

        try:
            with (
                interrupt.before_end(keep),
                reporter("conjugate gradients", 1000, self.progress if cg.residual > goal else False) as report,
            ):
                while True:
                    steps, history = 0, [cg.residual]
                    while cg.residual > goal and cg.iteration < self.max_iter:
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
                    if best <= self.tol or cg.iteration >= self.max_iter or not true <= 0.5 * before:
                        cg.X, cg.R = X, R
                        return best
                    cg.restart(R)
        except BaseException:
            keep()
            raise

    def answer(self, method: str, reason: str, size: int, outcome: dict[str, Any]) -> Solution:
        """The solution in the scale of the targets; warns if an exact method missed the tolerance."""
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
                "raise ridge, tol or max_iter"
            )
        elif answer.condition * np.finfo(np.float64).eps > _NO_DIGITS:
            warn_convergence(
                f"the condition number is about {answer.condition:.0e}: the residual is {answer.residual:.1e} but the "
                "coefficients have hardly a correct digit; raise ridge"
            )
        return answer
