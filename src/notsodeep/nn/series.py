"""Hermite series on tensors: in float64 the function itself, in float32 and half precision its parabolas."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.hermite import HermiteSeries
from notsodeep.kernels.parabolas import LAST, MIDDLE, PER_UNIT, evaluate, parabolas
from notsodeep.nn.initialization import symbolic, widened

__all__ = ["parabola_table", "series_into", "series_slope", "series_value"]


def _on_processor(x: Tensor, shape: HermiteSeries, wanted: bool) -> tuple[Tensor, Tensor]:
    flat = x.detach().contiguous().reshape(-1)
    value, slope = torch.empty_like(flat), torch.empty_like(flat) if wanted else flat[:0]
    evaluate(flat.numpy(), shape, value.numpy(), slope.numpy() if wanted else None)
    return value.reshape(x.shape), slope.reshape(x.shape) if wanted else slope


def parabola_table(shape: HermiteSeries) -> Tensor:
    """The parabolas as a tensor, to be kept: no graph can hold the search for them."""
    return torch.tensor(np.array(parabolas(shape)))


def _on_device(x: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    where = x * PER_UNIT + MIDDLE
    piece = where.nan_to_num().clamp(0, LAST).floor()  # y keeps what is not a number
    y = where - piece
    c0, c1, c2 = known.to(device=x.device, dtype=x.dtype)[piece.long()].unbind(-1)
    bounded = y.clamp(-1, 2)  # an infinite y times a curvature of 0 would not be a number
    return c0 + y * (c1 + bounded * c2), (c1 + 2 * bounded * c2) * PER_UNIT


def _both(x: Tensor, shape: HermiteSeries, wanted: bool) -> tuple[Tensor, Tensor]:
    if x.dtype == torch.float64:
        array = x.detach().cpu().numpy()
        value = torch.as_tensor(shape.value(array), device=x.device)
        return value, torch.as_tensor(shape.derivative(array), device=x.device) if wanted else value[:0]
    if x.device.type == "cpu":
        return _on_processor(x, shape, wanted)
    return _on_device(x.detach(), parabola_table(shape))


class _Series(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: HermiteSeries) -> Tensor:
        value, slope = _both(x, shape, ctx.needs_input_grad[0])
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


def series_value(x: Tensor, shape: HermiteSeries, known: Tensor) -> Tensor:
    """φ₀(x), differentiable; its parabolas where values cannot be asked for, as in a traced graph."""
    wide = widened(x)
    result: Tensor = _on_device(wide, known)[0] if symbolic(x) else _Series.apply(wide, shape)
    return result.to(x.dtype)


def series_into(shape: HermiteSeries, x: Tensor, out: Tensor) -> Tensor:
    """φ₀(x) outside of any graph, in `out` (which may be x) if it can be."""
    if x.dtype != torch.float32 or x.device.type != "cpu" or not (x.is_contiguous() and out.is_contiguous()):
        return _both(widened(x), shape, False)[0].to(x.dtype)
    evaluate(x.detach().reshape(-1).numpy(), shape, out.detach().reshape(-1).numpy())
    return out


def series_slope(x: Tensor, shape: HermiteSeries) -> Tensor:
    """φ₀'(x)."""
    return _both(widened(x), shape, True)[1].to(x.dtype)
