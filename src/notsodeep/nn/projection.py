"""Keep a recurrent weight inside the ball ‖W‖·L ≤ c during training."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from notsodeep.checks import InputError, positive
from notsodeep.nn.networks import DEQNet
from notsodeep.nn.observation import unwrapped
from notsodeep.nn.plain_cell import plain_cell

__all__ = ["Contraction"]

_ITERATIONS = 2  # of the power method, which continues from step to step


class Contraction:
    """The projection onto ‖W‖·L ≤ bound, W being the recurrent weight of a DEQ of one layer.

    After every step the largest singular value is estimated and, if too large, lowered; `exactly` clips all of them.
    """

    def __init__(self, net: Any, bound: float) -> None:
        if not positive(bound, "contraction") < 1:
            raise InputError(f"contraction={bound!r} must lie between 0 and 1; the equilibrium is then unique")
        net = unwrapped(net)
        factor = 1.0
        if isinstance(net, DEQNet):
            self.weight: Tensor = net.recurrent
            factor, slope = math.sqrt(net.deq.recurrent / net.width), net.deq.activation.lipschitz
        else:
            cell = plain_cell(net)
            if not isinstance(cell.seen, torch.nn.Parameter):
                raise InputError("contraction= needs a recurrent weight W that is a parameter of the network")
            self.weight, slope = cell.seen, cell.phi.lipschitz
        self.bound = math.inf if factor * slope == 0 else bound / (factor * slope)
        generator = torch.Generator().manual_seed(0)
        start = torch.randn(self.weight.shape[1], generator=generator, dtype=torch.float64)
        self.direction = (start / start.norm()).to(self.weight)
        self.exactly()

    @torch.no_grad()
    def step(self) -> None:
        """Lower the largest singular value to the bound, as far as the power method has found it."""
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
        """Clip every singular value: the nearest matrix of the ball."""
        if not math.isfinite(self.bound):
            return
        U, S, Vh = torch.linalg.svd(self.weight.double(), full_matrices=False)
        if float(S[0]) > self.bound:
            self.weight.copy_((U * S.clamp_max((1 - 1e-6) * self.bound)) @ Vh)
