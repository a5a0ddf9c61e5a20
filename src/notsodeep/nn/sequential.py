"""An explicit network as plain torch layers, and such layers on disk.

φ(x) = after · module(before · x + offset) + constant: `before` and `offset` go into the linear layer in front, `after`
and `constant` into the one behind. Modules are those of ``torch.nn``; functions that have none are traced by
``torch.fx``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from notsodeep.activations import Activation, HermiteSeries, PiecewiseLinear, Smooth
from notsodeep.checks import InputError, choice, count
from notsodeep.kernels.parabolas import LAST, MIDDLE, PER_UNIT, parabolas
from notsodeep.nn.activations import require_registered

__all__ = ["Folded", "altered", "described_layers", "folded", "layers_from", "plain_sequential", "traced"]

_MODULES: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "softplus": nn.Softplus, "swish": nn.SiLU, "gelu": nn.GELU,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "erf": torch.erf, "sin": torch.sin, "cos": torch.cos, "arctan": torch.atan,
    "gaussian": lambda x: torch.exp(-0.5 * x * x),
}  # fmt: skip


@dataclass(frozen=True)
class Folded:
    """φ(x) = after · module(before · x + offset) + constant."""

    modules: tuple[nn.Module, ...]
    before: float = 1.0
    offset: float = 0.0
    after: float = 1.0
    constant: float = 0.0


def folded(phi: Activation, width: int, dtype: torch.dtype) -> Folded:
    """φ of a layer of this width, as modules of torch and two affine maps."""
    require_registered(phi, "written as plain torch layers")
    shape = phi.shape
    if isinstance(shape, PiecewiseLinear):
        found = _piecewise(shape, width, dtype)
    elif isinstance(shape, HermiteSeries):
        found = Folded((traced(_Parabolas(shape, dtype)),))
    elif isinstance(shape, Smooth) and shape.name in _MODULES:
        found = Folded((_MODULES[shape.name](),))
    else:
        assert isinstance(shape, Smooth)
        found = Folded((traced(_Elementwise(_FUNCTIONS[shape.name])),))
    return Folded(
        found.modules,
        phi.stretch * found.before,
        found.offset,
        phi.scale * found.after,
        phi.scale * found.constant - phi.shift,
    )


def _piecewise(shape: PiecewiseLinear, width: int, dtype: torch.dtype) -> Folded:
    """φ₀ with φ₀(0) = 0, kinks c_k and slopes s_0, …, s_K from left to right."""
    kinks, slopes = list(shape.kinks), list(shape.slopes)
    left, right = slopes[0], slopes[-1]
    if not kinks:
        return Folded((nn.Identity(),), after=left)
    if len(kinks) == 1 and right:
        ratio, kink = left / right, kinks[0]
        at_zero = -kink if kink < 0 else -kink * ratio
        return Folded((nn.LeakyReLU(ratio) if left else nn.ReLU(),), 1.0, -kink, right, -right * at_zero)
    if len(kinks) == 1:  # flat on the right: relu from the other side
        kink = kinks[0]
        return Folded((nn.ReLU(),), -1.0, kink, -left, left * max(kink, 0.0))
    if len(kinks) == 2 and left == 0 == right:
        return Folded(
            (nn.Hardtanh(kinks[0], kinks[1]),), after=slopes[1], constant=-slopes[1] * min(max(0.0, kinks[0]), kinks[1])
        )
    # a network from one number to one number, applied to every unit
    bends = np.diff(slopes)
    unit: nn.Module = nn.ReLU()
    signs, places, weights = [1.0] * len(kinks), kinks, bends.tolist()
    if right and left != right and left:
        unit, weights = nn.LeakyReLU(left / right), (bends / (1 - left / right)).tolist()
    elif left:  # a straight line is the difference of two relus
        signs, places, weights = [1.0, -1.0, *signs], [0.0, 0.0, *kinks], [left, -left, *weights]
    inside, outside = _linear(1, len(signs), dtype), _linear(len(signs), 1, dtype)
    with torch.no_grad():
        inside.weight.copy_(torch.tensor(signs, dtype=dtype)[:, None])
        inside.bias.copy_(-torch.tensor([s * c for s, c in zip(signs, places, strict=True)], dtype=dtype))
        outside.weight.copy_(torch.tensor([weights], dtype=dtype))
        outside.bias.zero_()
        zero = float(outside(unit(inside(torch.zeros(1, 1, dtype=dtype)))))
    modules = (nn.Unflatten(-1, (width, 1)), inside, unit, outside, nn.Flatten(-2))
    return Folded(modules, constant=-zero)


def _linear(inputs: int, outputs: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> nn.Linear:
    """A layer whose weights are to be filled in; draws no random numbers."""
    return torch.nn.utils.skip_init(nn.Linear, inputs, outputs, dtype=dtype, device=device)


class _Elementwise(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class _Parabolas(nn.Module):
    """A Hermite series as its table of parabolas, with straight lines beyond."""

    table: Tensor

    def __init__(self, shape: HermiteSeries, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("table", torch.as_tensor(np.array(parabolas(shape)), dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        where = x * PER_UNIT + MIDDLE
        piece = torch.floor(torch.clamp(torch.nan_to_num(where), 0.0, float(LAST)))
        y, rows = where - piece, torch.nn.functional.embedding(piece.long(), self.table)
        return rows[..., 0] + y * (rows[..., 1] + torch.clamp(y, -1.0, 2.0) * rows[..., 2])


class _OnSphere(nn.Module):
    """core(τ x/‖x‖) · ‖x‖/τ."""

    def __init__(self, core: nn.Module, norm: float, tiny: float) -> None:
        super().__init__()
        self.core, self.norm, self.tiny = core, norm, tiny

    def forward(self, x: Tensor) -> Tensor:
        radius = torch.linalg.vector_norm(x, dim=-1, keepdim=True) / self.norm
        return self.core(x / torch.clamp_min(radius, self.tiny)) * radius


def traced(module: nn.Module) -> nn.Module:
    """The same computation as generated code, without our class."""
    graph = torch.fx.Tracer().trace(module)
    for node in graph.nodes:
        node.type = None  # annotations of our source, which torch.fx would look up
    result: nn.Module = torch.fx.GraphModule(module, graph, "Plain")
    return result


@torch.no_grad()
def plain_sequential(net: Any) -> nn.Sequential:
    """The layers of an :class:`ExplicitNet` with everything folded into biases and weights; see its `to_sequential`."""
    explicit, dtype = net.explicit, net.readout.dtype
    weights = [*net.weights, net.readout]
    factor = torch.ones((), dtype=dtype, device=net.readout.device)
    constant = torch.zeros_like(factor)
    layers: list[nn.Module] = []
    homogeneous = True
    for k, weight in enumerate(weights):
        last = k == len(weights) - 1
        phi = None if last else folded(explicit.activations[k], weight.shape[0], dtype)
        own = None if last else net.offset(k)
        before, offset = (1.0, 0.0) if phi is None else (phi.before, phi.offset)
        layer = _linear(weight.shape[1], weight.shape[0], dtype, weight.device)
        layer.weight.copy_(before * factor * weight)
        layer.bias.copy_(before * (constant * weight.sum(1) + (0.0 if own is None else own)) + offset)
        layers.append(layer)
        homogeneous &= not bool(layer.bias.any())
        if phi is not None:
            layers.extend(phi.modules)
            homogeneous &= all(isinstance(one, nn.ReLU | nn.LeakyReLU | nn.Identity) for one in phi.modules)
            root = math.sqrt(weight.shape[0])
            factor, constant = factor.new_tensor(phi.after / root), factor.new_tensor(phi.constant / root)
    core = nn.Sequential(*layers)
    if net.initial.normalize is None or homogeneous:
        return core
    tiny = float(torch.finfo(dtype).tiny)
    return nn.Sequential(traced(_OnSphere(core, net.initial.normalize, tiny)))


# --- on disk ------------------------------------------------------------------------------------------------------

# modules that a file may name, and the arguments they are rebuilt from
_KNOWN: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "Linear": (nn.Linear, ("in_features", "out_features", "bias")),
    "LeakyReLU": (nn.LeakyReLU, ("negative_slope",)),
    "Hardtanh": (nn.Hardtanh, ("min_val", "max_val")),
    "GELU": (nn.GELU, ("approximate",)),
    "Softplus": (nn.Softplus, ("beta", "threshold")),
    "Flatten": (nn.Flatten, ("start_dim", "end_dim")),
    "Unflatten": (nn.Unflatten, ("dim", "unflattened_size")),
    **{one.__name__: (one, ()) for one in (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.Identity)},
}
_LARGEST = 1 << 24  # of an integer in a file
_MOST_LAYERS, _MOST_DIMENSIONS = 1000, 8  # of a description


def described_layers(net: nn.Sequential) -> list[dict[str, Any]] | None:
    """The layers as JSON, or None where one of them cannot be rebuilt from numbers."""
    if type(net) is not nn.Sequential or any(altered(one) for one in net.modules()):
        return None
    found = []
    for layer in net:
        name = type(layer).__name__
        if name not in _KNOWN or type(layer) is not _KNOWN[name][0]:
            return None
        arguments = {one: getattr(layer, one) for one in _KNOWN[name][1]}
        if "bias" in arguments:
            arguments["bias"] = arguments["bias"] is not None
        found.append({"layer": name, **arguments})
    with torch.device("meta"):
        rebuilt = layers_from(found, torch.float32)
    return found if rebuilt.state_dict().keys() == net.state_dict().keys() else None


def altered(module: nn.Module) -> bool:
    """Whether a module computes something else than its class with these weights."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or "forward" in vars(module)
        or torch.nn.utils.parametrize.is_parametrized(module)
    )


def layers_from(description: Sequence[Mapping[str, Any]], dtype: torch.dtype) -> nn.Sequential:
    """Build the layers that :func:`described_layers` described, with fresh weights."""
    if len(description) > _MOST_LAYERS:
        raise InputError(f"it describes {len(description)} layers; at most {_MOST_LAYERS} are possible")
    layers = []
    for entry in description:
        build, names = _KNOWN[choice(entry["layer"], _KNOWN, "layer")]
        arguments = {name: _argument(entry[name], name) for name in names}
        layers.append(build(**arguments, dtype=dtype) if build is nn.Linear else build(**arguments))
    return nn.Sequential(*layers)


def _argument(value: Any, name: str) -> Any:
    if name in ("in_features", "out_features"):
        if count(value, name) > _LARGEST:
            raise InputError(f"{name}={value!r} is larger than a file may ask for")
    elif name == "unflattened_size":
        if len(value) > _MOST_DIMENSIONS:
            raise InputError(f"{name} has {len(value)} entries; at most {_MOST_DIMENSIONS} are possible")
        return tuple(count(one, name) for one in value)
    elif name == "approximate":
        choice(value, ("none", "tanh"), name)
    elif not isinstance(value, bool | int | float) or not math.isfinite(value):
        raise InputError(f"{name}={value!r} is not a number")
    return value
