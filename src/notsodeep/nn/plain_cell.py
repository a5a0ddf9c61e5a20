"""The one form of cell that the theory knows, found in other people's modules: h = φ(W h + U x + b)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.activations import Activation, activation
from notsodeep.checks import InputError
from notsodeep.models import DEQ
from notsodeep.nn.networks import DEQNet
from notsodeep.nn.observation import evaluating, multiplied, reached

__all__ = ["FORM", "PlainCell", "as_activation", "deq_nets", "plain_cell"]

FORM = "h = φ(W h + U x + b)"
_HINT = f"match_module takes cells {FORM} with matrices W (m×m), U (m×p); nn.replace(module, X) takes any module"


@dataclass(frozen=True)
class PlainCell:
    """h = φ(W h + U x + b), with weights in float32 or float64; `seen` is W where the module holds it."""

    W: Tensor  # (m, m)
    U: Tensor  # (m, p)
    b: Tensor | None  # (m,)
    phi: Activation
    seen: Tensor | None = None
    net: DEQNet | None = None  # the network that holds them, in other units

    @property
    def width(self) -> int:
        return self.U.shape[0]

    @property
    def inputs(self) -> int:
        return self.U.shape[1]

    @cached_property
    def deq(self) -> DEQ:
        """φ and the mean squares of the weights."""
        m, p = self.U.shape
        W, U = float((self.W.double() ** 2).sum()) / m, float((self.U.double() ** 2).sum()) / (m * p)
        return DEQ(self.phi, W, U, 0.0 if self.b is None else float((self.b.double() ** 2).mean()))

    def check_inputs(self, X: Tensor) -> None:
        """Raise `InputError` unless samples have as many numbers as U takes."""
        if X[0].numel() != self.inputs:
            raise InputError(
                f"X has {X[0].numel()} numbers a sample but U of the cell takes {self.inputs}; pass the cell "
                f"alone, with its own inputs ({_HINT})"
            )

    def network(self, readout: Tensor | None = None, **options: Any) -> DEQNet:
        """A DEQNet with these weights; its readout is random when None."""
        deq, outputs = self.deq, 1 if readout is None else len(readout)
        net = DEQNet(deq, self.inputs, self.width, outputs, dtype=self.W.dtype, on_failure="ignore", **options)
        net = net.to(self.W.device)
        with torch.no_grad():
            net.recurrent.copy_(self.W * math.sqrt(self.width / deq.recurrent) if deq.recurrent else self.W)
            net.input.copy_(self.U / math.sqrt(deq.input) if deq.input else self.U)
            if net.bias is not None and self.b is not None:
                net.bias.copy_(self.b / math.sqrt(deq.bias))
            if readout is not None:
                net.readout.copy_(readout * math.sqrt(self.width))
        return net

    @torch.no_grad()
    def image(self, h: Tensor, X: Tensor) -> Tensor:
        """φ(W h + U x + b), (n, m)."""
        net = self.network()
        return net.phi(h @ self.W.t() + net.drive(X))

    @torch.no_grad()
    def residual(self, h: Tensor, X: Tensor) -> float:
        """‖φ(W h + U x + b) − h‖/‖h‖; inf when it is no number."""
        size = float(torch.linalg.vector_norm(h))
        gap = float(torch.linalg.vector_norm(self.image(h, X) - h))
        relative = 0.0 if gap == 0 else gap / size if size else math.inf
        return relative if math.isfinite(relative) else math.inf

    @torch.no_grad()
    def state(self, module: Any, X: Tensor) -> Tensor | None:
        """The module's own state h, (n, m), when it is called on X; None where no whole batch is multiplied by W."""
        if self.net is not None:
            x = X.flatten(1) if module is self.net else reached(module, self.net, X)
            if x is None or x.shape != (len(X), self.inputs):
                return None
            with evaluating(self.net):
                return math.sqrt(self.width) * self.net.equilibrium(x.to(self.W.dtype))
        found = None if self.seen is None else multiplied(module, X, self.seen).state
        return None if found is None else found.to(self.W.dtype)

    @torch.no_grad()
    def observed(self, module: Any, X: Tensor) -> tuple[Tensor, float]:
        """The module's own state at X, (n, m), and the residual of the equation there.

        A module whose state is not seen: then the state of the equation and inf. The state of a mapping is solved for.
        """
        rows = X.flatten(1).to(self.W.dtype)
        h = self.state(module, X) if callable(module) else None
        if h is not None:
            return h, self.residual(h, rows)
        h = math.sqrt(self.width) * self.network(max_iter=1000).equilibrium(rows)
        return h, math.inf if callable(module) else self.residual(h, rows)


def plain_cell(
    module: Any,
    weight: Tensor | None = None,
    input_weight: Tensor | None = None,
    bias: Tensor | None = None,
    phi: str | Activation | Callable[[Any], Any] | None = None,
) -> PlainCell:
    """Find W, U, b and φ in a module, one of its submodules, or a mapping; those that are given come first."""
    nets = deq_nets(module)
    if nets:
        if any(one is not None for one in (weight, input_weight, bias, phi)):
            raise InputError(
                "weight=, input_weight=, bias= and activation= are for other modules; a DEQNet has its own"
            )
        if len(nets) > 1:
            raise InputError(f"the module holds {len(nets)} DEQNets, so it is no single cell; {_HINT}")
        net = nets[0]
        if not isinstance(net.cell, DEQ):
            raise InputError(f"the cell {net.cell} has layers of its own, so it is no single cell; {_HINT}")
        effective = net.effective_weights()
        return PlainCell(effective.W, effective.U, effective.b, net.cell.activation, net=net)
    owners = [
        (one, _find(one, _W)) for one in _owners(module) if _find(one, _W) is not None and _find(one, _U) is not None
    ]
    cells = len({id(held) for _, held in owners})  # a wrapper may show the weights of its cell
    if cells > 1 and (weight is None or input_weight is None):
        raise InputError(f"the module holds {cells} cells; {_HINT}")
    owner = owners[0][0] if owners else module
    recurrent = _find(owner, _W) if weight is None else weight
    drive = _find(owner, _U) if input_weight is None else input_weight
    W, U = _matrix(recurrent, "W", "weight"), _matrix(drive, "U", "input_weight")
    if W.shape[0] != W.shape[1] or U.shape[0] != W.shape[0]:
        raise InputError(f"W has shape {tuple(W.shape)} and U {tuple(U.shape)}; {_HINT}")
    for name, matrix in (("W", W), ("U", U)):
        if not bool(matrix.isfinite().all()):
            raise InputError(f"{name} holds NaN or infinite values")
    own = _find(owner, ("b", "bias")) if bias is None else bias
    offsets = [own, *(getattr(one, "bias", None) for one in (recurrent, drive))]  # nn.Linear brings its own
    given = phi if phi is not None else _find(owner, ("phi", "activation", "act"))
    given = _find(module, ("phi", "activation", "act")) if given is None else given
    if given is None:
        raise InputError(f"the activation was not found; pass activation=, e.g. activation='relu' ({_HINT})")
    total = sum(torch.as_tensor(one).detach() for one in offsets if isinstance(one, Tensor | list | np.ndarray))
    b = total if isinstance(total, Tensor) and bool(total.any()) else None
    if b is not None and b.shape != W.shape[:1]:
        raise InputError(f"b has shape {tuple(b.shape)} for W of shape {tuple(W.shape)}; {_HINT}")
    seen = getattr(recurrent, "weight", recurrent)
    wide = torch.float64 if W.dtype == torch.float64 else torch.float32
    return PlainCell(
        W.to(wide),
        U.to(wide),
        None if b is None else b.to(wide),
        as_activation(given),
        seen if isinstance(seen, Tensor) else None,
    )


def deq_nets(module: Any) -> list[DEQNet]:
    """The module, if it is a DEQNet, and those inside it."""
    return [one for one in module.modules() if isinstance(one, DEQNet)] if isinstance(module, torch.nn.Module) else []


_W, _U = ("W", "weight", "recurrent"), ("U", "input_weight", "input")


def _owners(module: Any) -> Iterator[Any]:
    yield from module.modules() if isinstance(module, torch.nn.Module) else (module,)


def _find(module: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        value = module.get(name) if isinstance(module, Mapping) else getattr(module, name, None)
        if value is not None:
            return value
    return None


def _matrix(value: Any, symbol: str, parameter: str) -> Tensor:
    value = getattr(value, "weight", value)  # an nn.Linear
    if value is None:
        raise InputError(f"no attribute {symbol} was found; pass {parameter}= ({_HINT})")
    try:
        matrix = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{symbol} is a {type(value).__name__}; pass {parameter}= ({_HINT})") from None
    if matrix.ndim != 2 or not matrix.is_floating_point():
        raise InputError(f"{parameter} has shape {tuple(matrix.shape)} in {matrix.dtype} but must be a matrix; {_HINT}")
    return matrix


_TORCH_NAMES = {"relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid", "silu": "swish", "gelu": "gelu", "erf": "erf"}
_TORCH_NAMES |= {
    "softplus": "softplus",
    "sin": "sin",
    "hardtanh": "hard_tanh",
    "identity": "identity",
    "atan": "arctan",
}


def as_activation(given: Any) -> Activation:
    """Return an Activation from a name, an Activation, ``torch.relu``, ``nn.ReLU()`` or any tensor function.

    A function counts as a registered one if it has the same name and, on a grid, the same values.
    """
    if isinstance(given, str | Activation):
        return activation(given)
    function = copy.deepcopy(given).double().eval() if isinstance(given, torch.nn.Module) else given

    def through_torch(x: Any) -> Any:
        with torch.no_grad():
            return function(torch.as_tensor(np.asarray(x, dtype=np.float64))).numpy()

    candidate = _candidate(function)
    grid = np.linspace(-9.0, 9.0, 721)
    try:
        if candidate is not None and np.allclose(through_torch(grid), candidate(grid), rtol=1e-6, atol=1e-6):
            return candidate
        return activation(through_torch)
    except (TypeError, AttributeError):  # not a function of tensors
        return activation(given)
    except RuntimeError as error:
        raise InputError(
            f"activation={given!r} cannot be evaluated elementwise in float64 ({error}); pass a name or an nn.Module"
        ) from None


def _candidate(function: Any) -> Activation | None:
    if isinstance(function, torch.nn.LeakyReLU):
        return activation("leaky_relu", a=1.0, b=function.negative_slope)
    if isinstance(function, torch.nn.PReLU) and function.num_parameters == 1:
        return activation("leaky_relu", a=1.0, b=float(function.weight.detach()))
    name = type(function).__name__ if isinstance(function, torch.nn.Module) else getattr(function, "__name__", "")
    known = _TORCH_NAMES.get(name.lower())
    return None if known is None else activation(known)
