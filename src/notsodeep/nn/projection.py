"""Keep recurrent weights inside the ball ‖W‖·L ≤ c during training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from notsodeep.checks import InputError, positive
from notsodeep.models import DEQ
from notsodeep.nn.networks import DEQNet
from notsodeep.nn.observation import multiplied, unwrapped
from notsodeep.nn.plain_cell import FORM, deq_nets, plain_cell

__all__ = ["Contraction"]

_ITERATIONS = 2  # of the power method, which continues from step to step
_ROWS = 64  # on which the equation of a user's own cell is checked
_EQUATION = 0.02  # its largest relative residual
_REMEDY = "bound other cells by torch.nn.utils.parametrizations.spectral_norm"


class Contraction:
    """The projection onto ‖W‖·L ≤ bound, W being the recurrent weight of every DEQ of one layer in a network.

    A network holds any number of DEQNets, or one cell of the user's own whose state at X solves the equation.
    After every step the largest singular value is estimated and, if too large, lowered; `exactly` clips all of them.
    """

    def __init__(self, net: Any, bound: float, X: Tensor) -> None:
        if not positive(bound, "contraction") < 1:
            raise InputError(f"contraction={bound!r} must lie between 0 and 1; the equilibrium is then unique")
        net = unwrapped(net)
        nets = deq_nets(net)
        self.balls = [_of_network(one, bound) for one in nets] if nets else [_of_cell(net, bound, X)]
        self.exactly()

    def step(self) -> None:
        """Lower the largest singular values to the bound, as far as the power method has found them."""
        for ball in self.balls:
            ball.step()

    def exactly(self) -> None:
        """Clip every singular value: the nearest matrices of the balls."""
        for ball in self.balls:
            ball.exactly()


@dataclass
class _Ball:
    """‖weight‖ ≤ bound, and a direction in which the weight is largest."""

    weight: Tensor
    bound: float
    direction: Tensor

    @staticmethod
    def of(weight: Any, bound: float, factor: float) -> _Ball:
        """‖weight‖·factor ≤ bound."""
        if not isinstance(weight, torch.nn.Parameter):
            raise InputError(f"contraction= needs a recurrent weight W that is a parameter; {_REMEDY}")
        generator = torch.Generator().manual_seed(0)
        start = torch.randn(weight.shape[1], generator=generator, dtype=torch.float64)
        return _Ball(weight, math.inf if factor == 0 else bound / factor, (start / start.norm()).to(weight))

    @torch.no_grad()
    def step(self) -> None:
        W, v = self.weight, self.direction
        for _ in range(_ITERATIONS):
            u = W @ v
            u = u / u.norm().clamp_min(torch.finfo(u.dtype).tiny)
            v = W.t() @ u
            size = v.norm()
            v = v / size.clamp_min(torch.finfo(v.dtype).tiny)
        self.direction = v
        if float(size) > self.bound:
            W.sub_((size - self.bound) * torch.outer(u, v))

    @torch.no_grad()
    def exactly(self) -> None:
        if not math.isfinite(self.bound):
            return
        U, S, Vh = torch.linalg.svd(self.weight.double(), full_matrices=False)
        if float(S[0]) > self.bound:
            self.weight.copy_((U * S.clamp_max((1 - 1e-6) * self.bound)) @ Vh)


def _of_network(net: DEQNet, bound: float) -> _Ball:
    if not isinstance(net.cell, DEQ):
        raise InputError(f"contraction= is for DEQs {FORM} of one layer, not for the cell {net.cell}; {_REMEDY}")
    return _Ball.of(net.recurrent, bound, math.sqrt(net.deq.recurrent / net.width) * net.deq.activation.lipschitz)


def _of_cell(net: Any, bound: float, X: Tensor) -> _Ball:
    """The ball of a user's own cell; its equation is checked inside the ball, where its iteration converges."""
    try:
        cell = plain_cell(net)
    except InputError as error:
        reason = str(error).split(";")[0]
        raise InputError(f"contraction= is for cells {FORM} with matrices W, U: {reason}; {_REMEDY}") from None
    ball = _Ball.of(cell.seen, bound, cell.phi.lipschitz)
    before = ball.weight.detach().clone()
    ball.exactly()
    residual = _missed(net, X[:_ROWS] if isinstance(X, Tensor) else None)
    if residual > _EQUATION:
        with torch.no_grad():
            ball.weight.copy_(before)
        gap = f"misses by {residual:.2g}" if math.isfinite(residual) else "does not show"
        raise InputError(f"contraction= is for cells {FORM}, which the state of this one {gap}; {_REMEDY}")
    return ball


def _missed(net: Any, X: Tensor | None) -> float:
    """The residual of the equation at the module's own state and what U multiplies; inf where these are not seen."""
    cell = plain_cell(net)
    try:
        h, x = (None if X is None or one is None else multiplied(net, X, one)[1] for one in (cell.seen, cell.U))
    except InputError:  # its outputs are no rows
        return math.inf
    return math.inf if h is None or x is None else cell.residual(h, x)
