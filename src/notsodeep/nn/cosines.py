"""Inner products of rows whose distances from ±‖x‖‖y‖ keep their digits: kinks are felt at nearly parallel rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Ends", "ends", "near_end", "unit_rows"]

_NUMBERS = 1 << 22  # in the differences formed at a time


class Ends(NamedTuple):
    """A covariance and its distances from both ends: ‖x‖‖y‖ ∓ x·y of inputs, √(v_i v_j) ∓ K of what leaves a layer."""

    value: Tensor
    below: Tensor
    above: Tensor


def unit_rows(X: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of norm 1, and the norms; rows of zeros stay, without derivative."""
    largest = X.detach().abs().amax(-1, keepdim=True)
    zero = largest == 0
    scaled = torch.where(zero, 1.0, X) / torch.where(zero, 1.0, largest)  # squares neither overflow nor vanish
    size = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return torch.where(zero, 0.0, scaled / size), torch.where(zero, 0.0, size * largest).squeeze(-1)


@torch.no_grad()
def ends(value: Tensor, top: Any, rows: Callable[[], tuple[Tensor, Tensor]] | None) -> Ends:
    """Inner products with their distances from ±`top`, the products of the norms.

    `rows` gives the unit rows of both sides; small distances are then computed again from their difference or sum.
    """
    below, above = (top - value).clamp_(min=0), (top + value).clamp_(min=0)
    if rows is not None:
        shape = value.shape
        left, right = (r.expand(*shape[:-2], *r.shape[-2:]).reshape(-1, *r.shape[-2:]) for r in rows())
        near, far = (x.reshape(-1, *shape[-2:]) for x in (below, above))
        scale = top.expand(shape).reshape(near.shape) if isinstance(top, Tensor) else None
        _again(near, far, scale, left, right, -1.0)
        _again(far, near, scale, left, right, 1.0)
        below, above = near.reshape(shape), far.reshape(shape)
    return Ends(value, below, above)


def near_end(x: Tensor) -> float:
    """Distances of unit rows from ±1 below which they are computed again."""
    return 4e-3 if x.dtype == torch.float32 else 1e-4


def _again(near: Tensor, far: Tensor, scale: Tensor | None, left: Tensor, right: Tensor, sign: float) -> None:
    """Small distances once more, as scale·‖x̂ ± ŷ‖²/2."""
    cut: Any = near_end(near)
    places = (near < (cut if scale is None else cut * scale)).nonzero()
    for part in places.split(max(1, _NUMBERS // left.shape[-1])):
        b, i, j = part.unbind(-1)
        found = torch.add(left[b, i], right[b, j], alpha=sign).square_().sum(-1) / 2
        top: Any = 1.0 if scale is None else scale[b, i, j]
        near[b, i, j], far[b, i, j] = found * top, (2 - found) * top
