"""Kernel ridge regression on a mixture in the limit of large n and p: the distribution of its scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError
from notsodeep.highdim.fixed_point import Population, solve
from notsodeep.highdim.four_numbers import FourNumbers
from notsodeep.highdim.statistics import Statistics

__all__ = ["KernelRidge", "Response", "RidgeSystem", "scores"]

Array: TypeAlias = NDArray[Any]


class Response(NamedTuple):
    """The Gaussian distribution of the scores of new samples, class by class.

    Attributes
    ----------
    means : array (K, outputs)
    covariances : array (K, outputs, outputs)
    gains : array (K,)
        q_a: the coefficient of a training sample is α_i = q_a (y_i − score without it).
    delta : array (K,)
    """

    means: Array
    covariances: Array
    gains: Array
    delta: Array


class RidgeSystem(Protocol):
    """A method that can predict the distribution of its scores."""

    @property
    def proportions(self) -> Array:
        """n_a/n, shape (K,)."""
        ...

    @property
    def scale(self) -> float:
        """Scale of the ridges worth trying."""
        ...

    @property
    def rough(self) -> RidgeSystem:
        """A cheaper system for searches; itself if it is cheap."""
        ...

    @property
    def many(self) -> RidgeSystem:
        """A system that is cheaper for many points; itself if there is none."""
        ...

    def respond(self, n: float, ridge: float, targets: Array, guess: Array | None = None) -> Response:
        """The law of the scores of a new sample."""
        ...


@dataclass(frozen=True, eq=False)
class KernelRidge:
    """(M̄ + ridge·I) α = y for the equivalent M̄ = c₁XXᵀ + VAVᵀ + δI of a kernel on a mixture.

    Attributes
    ----------
    population : Population
    weights : FourNumbers
        (c₁, c₂, c₃, d).
    shift : float
        d − τ₀²c₁.
    low_rank : array (K+1, K+1)
        A.
    norm_variance : array (K,)
        v_a = Var ψ = 2 tr(C_a²)/p².
    proportions : array (K,)
        n_a/n.
    """

    population: Population
    weights: FourNumbers
    shift: float
    low_rank: Array
    norm_variance: Array
    proportions: Array

    @staticmethod
    def of(weights: FourNumbers, stats: Statistics, population: Population) -> KernelRidge:
        """The kernel with these weights on the mixture with these statistics."""
        return KernelRidge(
            population,
            weights,
            max(weights.d - stats.tau0**2 * weights.c1, 0.0),  # 0 for a linear φ
            stats.low_rank_weight(weights.c2, weights.c3),
            2 * np.diag(stats.T) / stats.p,
            stats.proportions,
        )

    @property
    def scale(self) -> float:
        """d, the diagonal of the kernel."""
        return self.weights.d

    @property
    def rough(self) -> KernelRidge:
        """With a population that is cheap to evaluate."""
        return replace(self, population=self.population.rough)

    @property
    def many(self) -> KernelRidge:
        """With a population that is cheap at many points."""
        return replace(self, population=self.population.many)

    def level(self, ridge: float) -> float:
        """z = d − τ₀²c₁ + ridge, a lower bound on the eigenvalues of the system."""
        z = self.shift + ridge
        if not z > 1e-13 * self.weights.d:
            raise InputError(
                f"ridge={ridge:.6g} leaves the kernel system without a positive lower bound (d − τ0²·c1 + ridge = "
                f"{z:.3g}): it may be indefinite; pass ridge > {-self.shift + 0.0:.3g}"
            )
        return z

    def respond(self, n: float, ridge: float, targets: Array, guess: Array | None = None) -> Response:
        """The law of the scores of a new sample, after training on n samples with targets η_a.

        The means solve f̄ = D s, s = Γ(η − f̄) with one unknown a class and one for the slope in ψ,

            D = [[c₁z M̃ᵀQ̃M̃ + A₁₁/p, A₁₂/√p], [A₂₁/√p, A₂₂]],   Γ = diag(n_a q_a) ⊕ Σ_a n_a q_a v_a,

        and the covariances are Cov_a = L_a + v_a f_ψf_ψᵀ with

            L_a = (c₁z)²/p · sᵀM̃ᵀQ̃C_aQ̃M̃s + Σ_b N_ab [(η_b − f̄_b)(η_b − f̄_b)ᵀ + Cov_b].

        Parameters
        ----------
        n, ridge : float
        targets : array (K, outputs)
            η.
        guess : array (K,), optional
            δ of a neighbouring point.
        """
        z, c1, p = self.level(ridge), self.weights.c1, self.population.p
        k, sizes = self.proportions.size, n * self.proportions
        delta, coupling, resolved = solve(self.population, c1, z, sizes / p, guess)
        scale = np.append(np.full(k, 1 / math.sqrt(p)), 1.0)
        system = self.low_rank * np.outer(scale, scale)
        system[:k, :k] += c1 * z * resolved.forms
        bends = np.zeros((k, k + 1, k + 1))
        bends[:, :k, :k] = (c1 * z) ** 2 / p * resolved.curved
        gains = 1 / (z * (1 + c1 * delta))
        return Response(
            *scores(system, bends, coupling, sizes * gains, self.norm_variance[:, None], targets), gains, delta
        )


def scores(
    system: Array, bends: Array, coupling: Array, weights: Array, norm_variance: Array, targets: Array
) -> tuple[Array, Array]:
    """Means (K, outputs) and covariances (K, outputs, outputs) of the scores of a new sample.

    Parameters
    ----------
    system : array (K+q, K+q)
        D, for K classes and q fluctuations of norms.
    bends : array (K, K+q, K+q)
        What s contributes to the covariance of each class: L_a = sᵀ bends_a s + ….
    coupling : array (K, K)
        N.
    weights : array (K,)
        n_a q_a.
    norm_variance : array (K, q)
        v_a of each fluctuation.
    targets : array (K, outputs)
        η.
    """
    k = weights.size
    gamma = np.append(weights, weights @ norm_variance)[:, None]
    goal = np.zeros((len(system), targets.shape[1]))
    goal[:k] = targets
    score = system @ np.linalg.solve(np.eye(len(system)) + gamma * system, gamma * goal)
    means, slopes = score[:k], score[k:]
    pull, rest = gamma * (goal - score), targets - means
    of_norm = np.einsum("aq,qi,qj->aij", norm_variance, slopes, slopes)
    own = pull.T @ bends @ pull  # (K, outputs, outputs)
    others = np.tensordot(coupling, rest[:, :, None] * rest[:, None, :] + of_norm, 1)
    linear = np.linalg.solve(np.eye(k) - coupling, (own + others).reshape(k, -1)).reshape(own.shape)
    return means, linear + of_norm
