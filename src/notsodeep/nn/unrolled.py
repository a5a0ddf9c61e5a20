"""A module whose equilibria are replaced by a few steps of their own cells, as generated code of plain layers."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.checks import InputError
from notsodeep.models import DEQ
from notsodeep.nn.equilibrium import Equilibrium
from notsodeep.nn.layers import layer_outputs
from notsodeep.nn.networks import DEQNet
from notsodeep.nn.sequential import traced

__all__ = ["unrolled"]


def unrolled(module: Any, steps: int, example: Tensor) -> nn.Module:
    """The module with z = 0, z ← f(z, x) a few times in place of every :class:`Equilibrium` and :class:`DEQNet`.

    The result takes the same samples, returns (batch, outputs) and shares no weights with the module. Raises
    `InputError` where there is nothing to unroll, or where ``torch.fx`` cannot follow the code.
    """
    if not isinstance(module, nn.Module) or not any(isinstance(one, Equilibrium | DEQNet) for one in module.modules()):
        raise InputError("no nn.Equilibrium or nn.DEQNet was found in the module")
    try:
        own = _replaced(copy.deepcopy(module), steps).to(torch.float32).eval().requires_grad_()
        _make_plain(own)
        example = example.float() if example.is_floating_point() else example
        with torch.no_grad():
            answer = own(example)
            plain = traced(_Outputs(own, isinstance(answer, tuple | list), _first(answer).ndim)).eval()
            one, many = plain(example[:1]), plain(example)
            expected = _first(answer).reshape(len(example), -1)
    except Exception as error:  # whatever foreign code raises when proxies pass through it
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"torch.fx cannot trace the module ({type(error).__name__}: {reason})") from None
    if not bool(expected.isfinite().all()):
        raise InputError(f"{steps} steps of the cell return NaN or infinite values")
    if not (torch.allclose(many, expected, atol=1e-4) and torch.allclose(one, expected[:1], rtol=1e-3, atol=1e-3)):
        raise InputError("torch.fx does not trace the module truly: its steps depend on the values or the batch")
    return plain


class _Outputs(nn.Module):
    """The first output as (batch, outputs)."""

    def __init__(self, module: nn.Module, several: bool, rank: int) -> None:
        super().__init__()
        self.module, self.several, self.rank = module, several, rank

    def forward(self, x: Tensor) -> Tensor:
        answer = self.module(x)
        first: Tensor = answer[0] if self.several else answer
        return first.unsqueeze(1) if self.rank == 1 else first


def _first(answer: Any) -> Tensor:
    first: Tensor = answer[0] if isinstance(answer, tuple | list) else answer
    return first


class _Steps(nn.Module):
    """z ← f(z, x), a few times from zeros."""

    def __init__(self, deep: Equilibrium, steps: int) -> None:
        super().__init__()
        self.f, self.steps, self.shape = deep.f, steps, deep.state_shape

    def forward(self, x: Any, z0: Any = None, *extra: Any, **named: Any) -> Any:
        z = self._zeros(x) if z0 is None else z0
        for _ in range(self.steps):
            z = self.f(z, x, *extra, **named)
        return z

    def _zeros(self, x: Tensor) -> Any:
        if self.shape is None:
            return torch.zeros_like(x)
        if isinstance(self.shape[0], int):
            return x.new_zeros((x.shape[0], *self.shape))
        return tuple(x.new_zeros((x.shape[0], *one)) for one in self.shape)  # type: ignore[misc]


class _NetSteps(nn.Module):
    """The same for h = √m z of a `DEQNet`, with its readout."""

    def __init__(self, net: DEQNet, steps: int) -> None:
        super().__init__()
        self.net, self.steps = net, steps

    def forward(self, x: Tensor) -> Tensor:
        net, root = self.net, math.sqrt(self.net.width)
        if isinstance(net.cell, DEQ):
            drive = net.drive(x)
            h = net.phi(drive)
            for _ in range(self.steps - 1):
                h = net.phi(math.sqrt(net.cell.recurrent) / root * nn.functional.linear(h, net.recurrent) + drive)
        else:
            drives = net.drives(x)
            h = torch.zeros_like(drives[0])
            for _ in range(self.steps):
                h = layer_outputs(net.cell_layers, h, drives)[-1]
        return nn.functional.linear(h / root, net.readout)


def _replaced(module: nn.Module, steps: int) -> nn.Module:
    if isinstance(module, Equilibrium):
        return _Steps(module, steps)
    if isinstance(module, DEQNet):
        return _NetSteps(module, steps)
    for name, child in list(module.named_children()):
        setattr(module, name, _replaced(child, steps))
    return module


@torch.no_grad()
def _make_plain(module: nn.Module) -> None:
    """Weights as they are in place of parametrised ones; torch's function would change the class of the original."""
    for one in list(module.modules()):
        if not nn.utils.parametrize.is_parametrized(one):
            continue
        values = {name: getattr(one, name).detach().clone() for name in one.parametrizations}  # type: ignore[union-attr]
        del one._modules["parametrizations"]
        one.__class__ = type(one).__mro__[1]
        for name, value in values.items():
            one.register_parameter(name, nn.Parameter(value))
