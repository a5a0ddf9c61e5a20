"""The layers of a cell, each with its own weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from notsodeep.nn.activations import TensorActivation
from notsodeep.nn.initialization import spectral_norm
from notsodeep.recursion import Layer

__all__ = ["CellLayer", "layer_outputs"]


class CellLayer(nn.Module):
    """h_l = N(φ(σ W h_{l−1}/√m + d_l + skip·h) + residual·h), d_l = β U x + σ_0 b; h = √m z is the cell's state.

    Weights whose variance is 0 are absent.
    """

    recurrent: nn.Parameter | None
    input: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self, layer: Layer, in_features: int, width: int, draw: Callable[[tuple[int, ...]], nn.Parameter]
    ) -> None:
        super().__init__()
        self.layer, self.width = layer, width
        self.phi = TensorActivation(layer.activation)
        for name, shape in self.shapes(layer, in_features, width).items():
            self.register_parameter(name, None if shape is None else draw(shape))

    @staticmethod
    def shapes(layer: Layer, in_features: int, width: int) -> dict[str, tuple[int, ...] | None]:
        """Shape of every weight, None where its variance is 0."""
        shapes: dict[str, tuple[int, ...]] = {"recurrent": (width, width), "input": (width, in_features)}
        shapes["bias"] = (width,)
        return {name: shape if getattr(layer, name) else None for name, shape in shapes.items()}

    @property
    def factor(self) -> float:
        """σ/√m."""
        return math.sqrt(self.layer.recurrent / self.width)

    def drive(self, x: Tensor) -> Tensor:
        """d_l, (batch, width)."""
        drive = x.new_zeros(x.shape[0], self.width)
        if self.input is not None:
            drive = nn.functional.linear(math.sqrt(self.layer.input) * x, self.input)
        return drive if self.bias is None else drive + math.sqrt(self.layer.bias) * self.bias

    def forward(self, before: Tensor, drive: Tensor, state: Tensor) -> Tensor:
        """h_l, (batch, width), from h_{l−1}, d_l and h."""
        layer = self.layer
        point = drive if self.recurrent is None else torch.addmm(drive, before, self.recurrent.t(), alpha=self.factor)
        h: Tensor = self.phi(point + layer.skip * state if layer.skip else point)
        h = h + layer.residual * state if layer.residual else h
        if layer.normalize == "layer":
            h = h - h.mean(dim=1, keepdim=True)
        return h if layer.normalize is None else h / h.square().mean(dim=1, keepdim=True).sqrt()

    def slope(self, before: float) -> float:
        """A Lipschitz constant in h, given that of h_{l−1}; inf where the output is normalised."""
        if self.layer.normalize:
            return math.inf
        norm = 0.0 if self.recurrent is None else self.factor * spectral_norm(self.recurrent)
        return self.layer.activation.lipschitz * (norm * before + self.layer.skip) + self.layer.residual


def layer_outputs(layers: Sequence[CellLayer], state: Tensor, drives: tuple[Tensor, ...]) -> list[Tensor]:
    """h_1, …, h_L; the last is the next state."""
    outputs = [state]
    for layer, drive in zip(layers, drives, strict=True):
        outputs.append(layer(outputs[-1], drive, state))
    return outputs[1:]
