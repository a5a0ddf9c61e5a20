"""The fixed point behind kernel ridge regression on a mixture: the deterministic equivalent of Q̃ = (c₁WᵀW + zI)⁻¹."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import warn_convergence

__all__ = ["Fixed", "Population", "Resolved", "solve"]

Array: TypeAlias = NDArray[Any]

_STEPS = 100


class Resolved(NamedTuple):
    """Traces and quadratic forms of R = (zI + Σ_a θ_a C_a)⁻¹.

    Attributes
    ----------
    traces : array (K,)
        tr(C_a R)/p.
    products : array (K, K)
        tr(C_a R C_b R)/p.
    forms : array (K, K)
        μ_aᵀ R μ_b/p.
    curved : array (K, K, K)
        μ_bᵀ R C_a R μ_c/p, the class a of the covariance first.
    """

    traces: Array
    products: Array
    forms: Array
    curved: Array


class Population(Protocol):
    """Covariances C_a and means μ_a of K classes in p dimensions."""

    @property
    def p(self) -> int:
        """Dimension."""
        ...

    @property
    def tolerance(self) -> float:
        """Relative size of the last step of :func:`solve`."""
        ...

    @property
    def rough(self) -> Population:
        """A cheaper description for searches, right to a few parts in a thousand; itself if it is cheap."""
        ...

    @property
    def many(self) -> Population:
        """A description that is cheaper for many points; itself if there is none."""
        ...

    def mean_variances(self) -> Array:
        """tr(C_a)/p, shape (K,)."""
        ...

    def mean_products(self) -> Array:
        """μ_aᵀμ_b/p, shape (K, K)."""
        ...

    def resolve(self, z: float, theta: Array) -> Resolved:
        """R at one point (z, θ)."""
        ...

    def start(self, c1: float, z: float, loads: Array, guess: Array | None) -> Array | None:
        """Initial guess of :func:`solve`; an upper bound if nothing better is known."""
        ...


class Fixed(NamedTuple):
    """The solution of :func:`solve`.

    Attributes
    ----------
    delta : array (K,)
        δ_a = tr(C_a Q̃)/p.
    coupling : array (K, K)
        N_ab = c₁² (n_b/p) tr(C_a Q̃ C_b Q̃)/p / (1 + c₁δ_b)²; its spectral radius is below 1.
    resolved : Resolved
        Q̃ itself, through its traces and forms.
    """

    delta: Array
    coupling: Array
    resolved: Resolved


def solve(
    population: Population,
    c1: float,
    z: float,
    loads: Array,
    guess: Array | None = None,
    tolerance: float | None = None,
) -> Fixed:
    """Solve δ_a = tr(C_a Q̃)/p, Q̃ = (zI + c₁ Σ_b (n_b/p) C_b/(1 + c₁δ_b))⁻¹ by Newton's method.

    The right-hand side is increasing and concave in δ, and N is its derivative. From δ_a = tr(C_a)/(pz), which is
    above the solution, Newton's method therefore decreases to it monotonically. At a guess below it, N may have a
    spectral radius above 1; the iteration then restarts from above.

    Parameters
    ----------
    population : Population
    c1, z : float
        c₁ ≥ 0, z > 0.
    loads : array (K,)
        n_a/p.
    guess : array (K,), optional
        The solution at a neighbouring point.
    tolerance : float, optional
        Relative size of the last step, in place of the population's.
    """
    tolerance = population.tolerance if tolerance is None else tolerance
    ceiling = population.mean_variances() / z
    guess = population.start(c1, z, loads, guess)
    delta, moved = ceiling if guess is None else np.minimum(guess, ceiling), np.inf
    for _ in range(_STEPS):
        damping = 1 / (1 + c1 * delta)
        resolved = population.resolve(z, c1 * loads * damping)
        coupling = resolved.products * (c1**2 * loads * damping**2)
        if np.abs(np.linalg.eigvals(coupling)).max() >= 1:
            delta = ceiling
            continue
        step = np.linalg.solve(np.eye(delta.size) - coupling, resolved.traces - delta)
        old, delta = delta, np.minimum(delta + step, ceiling)
        if (delta <= 0).any():
            delta = ceiling
            continue
        moved = float(np.abs(delta - old).max() / delta.max())
        if moved <= tolerance:
            return Fixed(delta, coupling, resolved)
    warn_convergence(f"the fixed point of the forecast still moves by {moved:.1e} after {_STEPS} steps (z={z:.3g})")
    return Fixed(delta, coupling, resolved)
