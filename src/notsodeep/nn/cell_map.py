"""A cell f(z, x, …) as a map on rows, and the graph of one evaluation.

The state of a sample, one tensor or several, becomes one row; solvers see nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from notsodeep.checks import InputError
from notsodeep.nn.compiled import compiled_functions, donates, nodes
from notsodeep.nn.implicit import transformed

__all__ = ["REAL", "CellMap", "Division", "Form", "Recorded", "State", "check_state", "zeros"]

REAL = "complex states are not supported: a state is real, e.g. torch.view_as_real(z)"

State: TypeAlias = Tensor | tuple[Tensor, ...]


@dataclass
class Division:
    """Whether samples may leave the batch, and whether some did in the present solve."""

    allowed: bool = True
    used: bool = False


@dataclass(frozen=True)
class Form:
    """Shapes of one sample's tensors; a row concatenates them."""

    shapes: tuple[torch.Size, ...]
    single: bool

    @staticmethod
    def of(state: State) -> Form:
        tensors = (state,) if isinstance(state, Tensor) else state
        return Form(tuple(one.shape[1:] for one in tensors), isinstance(state, Tensor))

    def packed(self, state: Any, rows: int | None = None) -> Tensor:
        """(rows, width); refuses what has other shapes."""
        tensors = (state,) if self.single else state
        good = isinstance(tensors, tuple | list) and all(isinstance(one, Tensor) and one.ndim for one in tensors)
        if not good or tuple(one.shape[1:] for one in tensors) != self.shapes or rows not in (None, len(tensors[0])):
            expected = [(rows, *shape) for shape in self.shapes]
            raise InputError(
                f"f returned {described(state)} for a state of shape {expected[0] if self.single else expected}; "
                "return the next state alone, or pass z0 or state_shape"
            )
        flat = [one.reshape(len(one), math.prod(shape)) for one, shape in zip(tensors, self.shapes, strict=True)]
        return flat[0] if self.single else torch.cat(flat, dim=1)

    def unpacked(self, flat: Tensor) -> State:
        if self.single:
            return flat.reshape(len(flat), *self.shapes[0])
        parts = flat.split([math.prod(shape) for shape in self.shapes], dim=1)
        return tuple(part.reshape(len(flat), *shape) for part, shape in zip(parts, self.shapes, strict=True))


@dataclass(frozen=True)
class Recorded:
    """One evaluation of f with its graph; the state's tensors are leaves."""

    state: Tensor
    parts: State
    image: Tensor
    form: Form

    @property
    def own(self) -> tuple[Tensor, ...]:
        """The state's tensors."""
        return (self.parts,) if isinstance(self.parts, Tensor) else self.parts

    def vjp(self, direction: Tensor, **options: bool) -> Tensor:
        """(∂f/∂z)ᵀ · direction."""
        if not self.image.requires_grad:
            return torch.zeros_like(direction)
        found = torch.autograd.grad(self.image, self.own, direction, materialize_grads=True, **options)
        return self.form.packed(found[0] if self.form.single else found)

    @property
    def reaches_others(self) -> bool:
        """Whether the graph has other leaves."""
        own = {id(one) for one in self.own}
        leaves = (getattr(node, "variable", None) for node in nodes(self.image))
        return any(leaf is not None and id(leaf) not in own for leaf in leaves)


@dataclass
class CellMap:
    """The map z ↦ f(z, …) on rows; the arguments of f are leaves of a tree."""

    f: Callable[..., Any]
    form: Form
    leaves: tuple[Any, ...]
    spec: Any
    rows: int
    division: Division
    linear: tuple[Tensor, Tensor, Tensor] | None = None
    keeps: bool = False  # the graph of the evaluation that is expected to be the last
    kept: Recorded | None = None
    leaving: float = 1.0  # residuals are measured again on the whole batch
    enough: float = 0.3

    def image(self, state: Tensor, parts: State | None = None) -> Tensor:
        """f(z), (rows, width); `parts` is the state in its own shapes, where it is known."""
        version = None if state.is_inference() or transformed() else state._version
        parts = self.form.unpacked(state) if parts is None else parts
        found = self.f(parts, *tree.tree_unflatten(self.leaves, self.spec))
        if version is not None and state._version != version:
            raise InputError("f changes its state in place; return a new tensor, e.g. z + y in place of z.add_(y)")
        image = self.form.packed(found, len(state))
        if image.is_complex():
            raise InputError(f"f returned {image.dtype}, but {REAL}")
        if image.dtype != state.dtype:
            raise InputError(f"f returned {image.dtype} for a state in {state.dtype}; pass z0 in {image.dtype}")
        return image

    def evaluate(
        self, state: Tensor, out: tuple[Tensor, Tensor] | None = None, last: bool = False
    ) -> tuple[Tensor, Tensor]:
        if not (last and self.keeps):
            return self.image(state), state
        self.kept = self.graph(state)
        return self.kept.image.detach(), state

    def graph(self, state: Tensor) -> Recorded:
        parts = self.form.unpacked(state.detach())
        for one in (parts,) if isinstance(parts, Tensor) else parts:
            one.requires_grad_()
        with torch.enable_grad():
            return Recorded(state, parts, self.image(state, parts), self.form)

    def once(self, graph: Recorded) -> bool:
        """Whether a graph of this map gives one product only."""
        beyond = [leaf.grad_fn for leaf in self.leaves if isinstance(leaf, Tensor)]
        return donates(graph.image, graph.own, beyond)

    def jvp(self, point: Tensor, direction: Tensor) -> Tensor:
        """f' · direction, as the derivative of u ↦ (f')ᵀu; its graph is reused for all directions at a point."""
        graph: Recorded | None = None
        try:
            if self.linear is None or self.linear[0] is not point:
                with torch.enable_grad():
                    graph = self.graph(point)
                    free = torch.zeros_like(graph.image, requires_grad=True)
                    self.linear = point, free, graph.vjp(free, create_graph=True)
            _, free, transposed = self.linear
            if not transposed.requires_grad:  # f does not depend on z
                return torch.zeros_like(point)
            return torch.autograd.grad(transposed, free, direction, retain_graph=True)[0]
        except RuntimeError as error:
            if graph is not None and compiled_functions(graph.image, graph.own):
                raise InputError(
                    "solver='newton' differentiates f twice, and what torch.compile returns only once; "
                    "pass the f that was compiled, or use solver='anderson'"
                ) from None
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"solver='newton' needs an f that can be differentiated twice; use solver='anderson' ({reason})"
            ) from None

    def take(self, rows: Tensor) -> CellMap | None:
        if not self.division.allowed:
            return None
        self.division.used = True
        leaves = tuple(_cut(leaf, self.rows, rows) for leaf in self.leaves)
        return replace(self, leaves=leaves, rows=len(rows), keeps=False, kept=None)


def _cut(leaf: Any, total: int, rows: Tensor) -> Any:
    """The rows of these samples, if the first dimension is the batch."""
    return leaf[rows] if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == total else leaf


def check_state(state: Any) -> None:
    """Raise `InputError` unless this is a state."""
    tensors = (state,) if isinstance(state, Tensor) else state
    if not isinstance(tensors, tuple) or not tensors or not all(isinstance(one, Tensor) for one in tensors):
        raise InputError(f"z0 is {described(state)}; pass a tensor or a tuple of tensors")
    if any(one.ndim == 0 or 0 in one.shape[1:] or len(one) != len(tensors[0]) for one in tensors):
        raise InputError(f"z0 has {described(state)}; pass tensors whose samples are not empty, with the batch first")
    if any(one.is_complex() for one in tensors):
        raise InputError(f"z0 has {described(state)}, but {REAL}")
    kinds = {(one.dtype, one.device) for one in tensors}
    if len(kinds) > 1 or not tensors[0].is_floating_point():
        raise InputError(f"z0 has {described(state)}; pass real numbers of one dtype on one device")


def described(state: Any) -> str:
    if isinstance(state, Tensor):
        return f"shape {tuple(state.shape)} in {state.dtype}"
    if isinstance(state, tuple | list):
        return f"{len(state)} entries ({', '.join(described(one) for one in state)})"
    return f"a {type(state).__name__}"


def zeros(shapes: Any, rows: int, dtype: torch.dtype, device: torch.device) -> State:
    try:
        if all(isinstance(size, int) for size in shapes):
            return torch.zeros((rows, *shapes), dtype=dtype, device=device)
        return tuple(torch.zeros((rows, *shape), dtype=dtype, device=device) for shape in shapes)
    except (TypeError, RuntimeError):
        raise InputError(f"state_shape={shapes!r} must be the shape of one sample, or a tuple of shapes") from None
