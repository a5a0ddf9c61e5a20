"""Check the assumptions of the high-dimensional theory."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import warn_assumption
from notsodeep.highdim.statistics import Statistics

__all__ = ["outside_theory", "warn_outside"]

Array: TypeAlias = NDArray[Any]

_DIMENSION = 100  # (tr C)²/tr C²: fluctuations are its power −1/2, 10 % here
_SPREAD = 0.5  # of squared norms, relative to τ0²
_SAMPLES = 10  # of a class


def outside_theory(stats: Statistics, mean_products: Array, n: float | None = None) -> tuple[str, ...]:
    """The reasons, in words, why the theory may be far off; empty where it applies.

    It assumes many directions of noise of comparable size, squared norms ‖x‖² near τ₀², and inner products near 0:
    then every kernel entry is an expansion about one point.

    Parameters
    ----------
    stats : Statistics
    mean_products : array (K, K)
        μ_aᵀμ_b/p.
    n : float, optional
        Number of samples.

    Examples
    --------
    >>> import numpy as np, notsodeep as nsd
    >>> from notsodeep.highdim.validity import outside_theory
    >>> mix = nsd.Mixture(np.zeros((1, 20)), [1.0], [1.0])
    >>> outside_theory(mix.statistics(), np.zeros((1, 1)))
    ('the noise has an effective dimension (tr C)²/tr C² of 20 only (p = 20)',)
    """
    power = stats.tau0**2
    variances = power + stats.t / np.sqrt(stats.p)  # tr C_a/p
    squares = np.diag(stats.T)
    dimension = float(np.min(stats.p * variances[squares > 0] ** 2 / squares[squares > 0], initial=stats.p))
    reasons = []
    if dimension < _DIMENSION:
        spiked = ": a few directions carry most of it" if dimension < stats.p / 4 else ""
        reasons.append(
            f"the noise has an effective dimension (tr C)²/tr C² of {dimension:.3g} only (p = {stats.p}){spiked}"
        )
    norms = (variances + np.diag(mean_products)) / power
    if norms.max() - norms.min() > _SPREAD:
        reasons.append(f"mean squared norms of the classes vary from {norms.min():.3g} to {norms.max():.3g} times τ0²")
    overlap = float(np.abs(mean_products).max() / power)
    if overlap > _SPREAD:
        reasons.append(f"class means have products of up to {overlap:.3g} times τ0² (smaller if the data is centred)")
    if n is not None and n * stats.proportions.min() < _SAMPLES:
        reasons.append(f"a class has {n * stats.proportions.min():.3g} training samples only")
    return tuple(reasons)


def warn_outside(what: str, reasons: tuple[str, ...]) -> None:
    """One warning for all reasons, if there are any."""
    if reasons:
        warn_assumption(f"{what} is outside the theory: {'; '.join(reasons)}")
