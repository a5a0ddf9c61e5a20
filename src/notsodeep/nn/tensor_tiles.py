"""A kernel of tensors by groups of rows, forward and backward, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

__all__ = ["Method", "Sides", "Tiled", "tiles"]

Sides: TypeAlias = tuple[Any, ...]  # tensors (…, n, ·) of the rows on one side, some of them None

_ENTRIES = 1 << 20  # of a tile


class Method(NamedTuple):
    """How a tile is computed, in two steps: what each row needs, once, and what each pair needs.

    Attributes
    ----------
    prepare : callable
        Maps rows (…, n, p), the side (0 or 1) and the variances to tensors (…, n, ·).
    pairs : callable
        Maps those of both sides, the order of derivatives and the variances to K.
    again : Method or None
        The one that has second derivatives.
    compiled : callable or None
        Maps those of both sides, the weights of a tile and the variances to the gradients of both sides and of the
        variances, or to None where it does not apply.
    """

    prepare: Callable[..., Sides]
    pairs: Callable[..., Tensor]
    again: Method | None = None
    compiled: Callable[..., list[Any] | None] | None = None

    def __call__(self, X: Tensor, Y: Tensor, order: int, *given: Tensor) -> Tensor:
        if order > 1 and self.again is None:
            raise RuntimeError("this kernel has first derivatives only: its activation has no closed form")
        prepare, pairs, *_ = self.again if order > 1 and self.again is not None else self
        return pairs(prepare(X, 0, *given), prepare(Y, 1, *given), order, *given)


class Tiled(torch.autograd.Function):
    """K by groups of rows. The backward pass evaluates each group again, with a graph of its own."""

    @staticmethod
    def forward(
        ctx: Any,
        method: Method,
        compiled: Callable[[], Tensor] | None,
        shape: tuple[int, ...],
        tile: int | None,
        X: Tensor,
        Y: Tensor | None,
        *variances: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(X, Y, *variances)
        ctx.method, ctx.tile = method, tile
        if compiled is not None:
            return compiled()
        left, right = (method.prepare(x, k, *variances) for k, x in enumerate((X, X if Y is None else Y)))
        out = X.new_empty(shape)
        for rows, columns in tiles(out, tile, symmetric=Y is None):
            part = method.pairs(_part(left, rows), _part(right, columns), 0, *variances)
            out[..., rows, columns] = part
            if Y is None:
                out[..., columns, rows] = part.transpose(-1, -2)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        X, Y, *variances = ctx.saved_tensors
        wanted = ctx.needs_input_grad[4:]
        if torch.is_grad_enabled():  # derivatives of derivatives: one graph for everything
            inputs = [x for x, needed in zip((X, Y, *variances), wanted, strict=True) if needed]
            K = ctx.method(X, X if Y is None else Y, 2, *variances)
            again = iter(torch.autograd.grad(K, inputs, gradient, create_graph=True))
            return (None, None, None, None, *(next(again) if needed else None for needed in wanted))
        with torch.enable_grad():
            free: list[Any] = [
                None if x is None else x.detach().requires_grad_(needed)
                for x, needed in zip((X, Y, *variances), wanted, strict=True)
            ]
            first, second, *numbers = free
            sides = [ctx.method.prepare(first if k == 0 or Y is None else second, k, *numbers) for k in (0, 1)]
        kept = [*sides[0], *sides[1], *numbers]
        total = [torch.zeros_like(x) if x is not None and x.requires_grad else None for x in kept]
        for rows, columns in tiles(gradient, ctx.tile, symmetric=Y is None):
            weight = gradient[..., rows, columns]
            if Y is None and columns.stop > rows.stop:  # entries below the diagonal blocks
                weight = weight.clone()
                later = slice(rows.stop, columns.stop)
                weight[..., rows.stop - rows.start :] += gradient[..., later, rows].transpose(-1, -2)
            _add(ctx.method, total, weight, (rows, columns), sides, numbers)
        pairs = [(x, t) for x, t in zip(kept, total, strict=True) if t is not None]
        inputs = [x for x in free if x is not None and x.requires_grad]
        found = iter(torch.autograd.grad([x for x, _ in pairs], inputs, [t for _, t in pairs]))
        return (None, None, None, None, *(next(found) if needed else None for needed in wanted))


def _part(side: Sides, span: slice) -> Sides:
    return tuple(None if x is None else x[..., span, :] for x in side)


def _add(
    method: Method,
    total: list[Tensor | None],
    weight: Tensor,
    spans: tuple[slice, slice],
    sides: list[Sides],
    variances: list[Tensor],
) -> None:
    """Add the gradient of Σ weight·K over one tile to those of prepared rows and of variances."""
    places = [span for side, span in zip(sides, spans, strict=True) for _ in side]
    if method.compiled is not None:
        given = (_part(side, span) for side, span in zip(sides, spans, strict=True))
        if (explicit := method.compiled(*given, weight, *variances)) is not None:
            for out, span, more in zip(total, [*places, *[None] * len(variances)], explicit, strict=True):
                if out is not None and more is not None:
                    (out if span is None else out[..., span, :]).add_(more)
            return
    with torch.enable_grad():
        parts = [
            tuple(None if x is None else x.detach().requires_grad_(x.requires_grad) for x in _part(side, span))
            for side, span in zip(sides, spans, strict=True)
        ]
        numbers = [v.detach().requires_grad_(v.requires_grad) for v in variances]
        K = method.pairs(*parts, 1, *numbers)
        inputs = [x for x in (*parts[0], *parts[1], *numbers) if x is not None and x.requires_grad]
        found = iter(
            torch.autograd.grad(K, inputs, weight, allow_unused=True)
        )  # a variance may enter by the rows alone
    for out, span in zip(total, places, strict=False):
        if out is not None:
            out[..., span, :] += next(found)
    for out in total[len(places) :]:
        if out is not None and (more := next(found)) is not None:
            out += more


def tiles(out: Tensor, tile: int | None, *, symmetric: bool) -> Iterator[tuple[slice, slice]]:
    """Groups of rows with their columns: from the diagonal on where the matrix is symmetric."""
    n, m = out.shape[-2:]
    step = tile or max(1, min(n, _ENTRIES * n // max(out.numel(), 1)))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n)), slice(start if symmetric else 0, m)
