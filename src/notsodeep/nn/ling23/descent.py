"""Full-batch gradient descent on W, U, a [Ling23], recording every quantity that its theorem bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from notsodeep.checks import InputError, count, positive
from notsodeep.nn.initialization import spectral_norm
from notsodeep.nn.ling23.condition import (
    Certificate,
    Gradients,
    ReluWeights,
    certificate,
    check_target,
    gradients,
    smallest_eigenvalue,
)
from notsodeep.nn.networks import DEQNet

__all__ = ["Trajectory", "descend"]


@dataclass(frozen=True)
class Trajectory:
    """Measurements at every step τ = 0…T, with the bounds of the theorem.

    Attributes
    ----------
    certificate : Certificate
        At the start. The bounds are guaranteed only if it holds.
    step : float
        η.
    loss : array, (T+1,)
        Φ(τ).
    bound : array, (T+1,)
        (1 − ηλ0/2)^τ Φ(0).
    norm : array, (T+1,)
        An upper bound of ‖W(τ)‖, and ‖W(τ)‖ itself where the bound reaches 1 or `exact_norm` was asked for; promised
        below 1.
    smallest : array, (T+1,)
        λ_τ = λ_min(ZᵀZ), promised at least λ0/2.
    polyak : array, (T+1,)
        ‖∇Φ‖²/(λ0 Φ), promised at least 1; inf where Φ is below `resolution`.
    resolution : float
        The loss that can result from the solver's tolerance alone.
    """

    certificate: Certificate
    step: float
    loss: NDArray[np.float64]
    bound: NDArray[np.float64]
    norm: NDArray[np.float64]
    smallest: NDArray[np.float64]
    polyak: NDArray[np.float64]
    resolution: float

    @property
    def checks(self) -> dict[str, bool]:
        """Whether each promise was kept at every step."""
        return {
            "norm below 1": bool((self.norm < 1).all()),
            "eigenvalue above λ0/2": bool((self.smallest >= self.certificate.lambda0 / 2).all()),
            "PL inequality": bool((self.polyak >= 1 - 1e-9).all()),
            "loss below the bound": bool((self.loss <= self.bound * (1 + 1e-9) + self.resolution).all()),
        }

    def __str__(self) -> str:
        seen = ", ".join(f"{name}: {'yes' if kept else 'NO'}" for name, kept in self.checks.items())
        return (
            f"{len(self.loss) - 1} steps of size {self.step:.4g}: loss {self.loss[0]:.4g} → {self.loss[-1]:.4g} "
            f"(bound {self.bound[-1]:.4g}); {seen}"
        )


@torch.no_grad()
# covers: [Ling23] Thm 1
def descend(
    net: DEQNet, X: Tensor, y: Tensor, *, steps: int = 100, step: float | None = None, exact_norm: bool = False
) -> Trajectory:
    """W, U, a ← W, U, a − η∇Φ with Φ = ½‖ŷ − y‖², on all samples at once; the network is updated.

    Parameters
    ----------
    net : DEQNet
        As for :func:`certificate`.
    X : Tensor, (n, p)
    y : Tensor, (n,)
    steps : int
    step : float, optional
        η; 0.99 of the admissible step when None.
    exact_norm : bool
        Compute ‖W(τ)‖ at every step instead of a bound that costs nothing.

    Returns
    -------
    Trajectory
    """
    start = certificate(net, X, y, width=False)
    target = check_target(net, X, y)
    if step is None and np.isnan(start.max_step):
        raise InputError(f"‖W‖ = {start.norms.W:.4g} ≥ 1 admits no step; lower recurrent, or pass step=")
    rate = 0.99 * start.max_step if step is None else positive(step, "step")
    weights = first = ReluWeights.of(net)
    found: Gradients | None = None
    rows = []
    for index in range(count(steps, "steps") + 1):
        found = gradients(net, weights, X, target, found)
        loss = 0.5 * float(((found.prediction - target) ** 2).sum())
        if index == 0:
            resolution = (
                0.5 * (net.solve_options.tol * float(found.state.norm() * weights.a.norm() + target.norm())) ** 2
            )
        fitted = loss <= resolution or start.lambda0 == 0
        polyak = np.inf if fitted else found.squared_norm / (start.lambda0 * loss)
        bound = start.norms.W + float((weights.W - first.W).norm())  # ≥ ‖W(τ)‖
        norm = spectral_norm(weights.W) if (exact_norm or bound >= 1) and bound < np.inf else bound
        rows.append((loss, norm, smallest_eigenvalue(found.state), polyak))
        if index < steps:
            weights = ReluWeights(weights.W - rate * found.W, weights.U - rate * found.U, weights.a - rate * found.a)
    weights.write_to(net)
    losses, norms, eigenvalues, ratios = (np.array(column) for column in zip(*rows, strict=True))
    bounds = losses[0] * start.rate(rate) ** np.arange(steps + 1)
    return Trajectory(start, rate, losses, bounds, norms, eigenvalues, ratios, resolution)
