"""A module observed from outside: its inputs, its outputs, and the state that one of its weights multiplies."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from notsodeep.checks import InputError

__all__ = [
    "Products",
    "changed",
    "dense",
    "departure",
    "evaluating",
    "looks_up",
    "module_inputs",
    "module_outputs",
    "multiplied",
    "reached",
    "unwrapped",
    "zeros_for",
]

_FACTORS = (-1.0, 0.5, 0.0, 1.0)  # of the rows of a state, in turn

_PRODUCTS = {  # the positions of the two factors
    torch.ops.aten.mm.default: (0, 1),
    torch.ops.aten.addmm.default: (1, 2),
    torch.ops.aten.linear.default: (0, 1),
    torch.ops.aten.bmm.default: (0, 1),
    torch.ops.aten.mv.default: (0, 1),
}


class Products(NamedTuple):
    """What a module multiplied on the way to its outputs, where whole batches were multiplied."""

    outputs: Tensor
    state: Tensor | None  # (n, m), the last factor of the weight
    moved: float  # ‖last − last but one‖/‖last‖ of these factors; inf if there was one
    after: dict[int, Tensor]  # (n, k), left factors of the products that follow, by number of the product


@contextmanager
def evaluating(net: Any) -> Iterator[None]:
    """Switch to evaluation mode inside the block, then restore the mode of every submodule."""
    modes = {module: module.training for module in net.modules()} if isinstance(net, torch.nn.Module) else {}
    for module in modes:
        module.training = False
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def unwrapped(module: Any) -> Any:
    """The module behind ``torch.compile`` and data parallelism."""
    while isinstance(module, torch.nn.Module):
        inner = getattr(module, "_orig_mod", None)
        if inner is None and isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            inner = module.module
        if inner is None:
            break
        module = inner
    return module


def dense(X: Any, name: str) -> Tensor:
    """An array, a table, a sparse matrix of SciPy or a sparse tensor as a dense tensor."""
    if hasattr(X, "toarray"):
        X = X.toarray()
    if isinstance(X, Tensor):
        return X if X.layout == torch.strided else X.to_dense()
    try:
        return torch.as_tensor(np.require(X, requirements="W"))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} is a {type(X).__name__}; pass an array or a tensor of numbers") from None


def looks_up(module: Any) -> bool:
    """Whether a part of the module looks up integers in a table."""
    if not isinstance(module, torch.nn.Module):
        return False
    return any(isinstance(one, torch.nn.Embedding | torch.nn.EmbeddingBag) for one in module.modules())


def module_inputs(module: Any, X: Any, name: str = "X") -> Tensor:
    """X as a dense, finite tensor of real numbers in the precision and on the device of the module.

    Arrays, sparse matrices of SciPy and sparse tensors are converted. Integers remain integers for a module with an
    ``nn.Embedding``.
    """
    tensor = dense(X, name)
    if tensor.ndim < 2 or 0 in tensor.shape or tensor.is_complex():
        raise InputError(
            f"{name} has shape {tuple(tensor.shape)} in {tensor.dtype}; pass real numbers, one sample a row"
        )
    like = next(module.parameters(), None) if isinstance(module, torch.nn.Module) else None
    default = tensor.dtype if tensor.is_floating_point() else torch.get_default_dtype()
    dtype = like.dtype if like is not None and like.is_floating_point() else default
    dtype = torch.long if looks_up(module) and not tensor.is_floating_point() else dtype
    tensor = tensor.detach().to(device=like.device if like is not None else None, dtype=dtype)
    if not bool(tensor.isfinite().all()):
        raise InputError(f"{name} holds NaN or infinite values; remove or impute them")
    return tensor


def zeros_for(net: torch.nn.Module, sample: Sequence[int]) -> Tensor:
    """Two samples of zeros, of this shape each, of the type that the network takes and where it is."""
    like = next(net.parameters())
    return torch.zeros(2, *sample, dtype=torch.long if looks_up(net) else like.dtype, device=like.device)


@torch.no_grad()
def module_outputs(module: Any, X: Tensor, batch: int | None = None) -> Tensor:
    """Outputs at X, (n, outputs), in evaluation mode; of several outputs the first."""
    rows = [X] if batch is None else X.split(batch)
    with evaluating(module):
        return torch.cat([_first(module(part), len(part)) for part in rows])


@torch.no_grad()
def reached(module: Any, part: torch.nn.Module, X: Tensor) -> Tensor | None:
    """What a part of the module is called on when the module is called on X; None unless it is called once."""
    seen: list[Tensor] = []
    hook = part.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        with _eager():
            module_outputs(module, X)
    finally:
        hook.remove()
    return seen[0] if len(seen) == 1 else None


@torch.no_grad()
def changed(
    module: Any, X: Tensor, place: torch.nn.Module | Collection[int], change: Callable[[Tensor], Tensor]
) -> Tensor:
    """Outputs at X where what a part returns, or the left factor of products of these numbers, is changed inside."""
    if not isinstance(place, torch.nn.Module):
        with _eager(), _Change(place, change):
            return module_outputs(module, X)
    hook = place.register_forward_hook(lambda _, inputs, outputs: change(outputs))
    try:
        with _eager():
            return module_outputs(module, X)
    finally:
        hook.remove()


@torch.no_grad()
def departure(outputs: Callable[[Callable[[Tensor], Tensor]], Tensor]) -> tuple[float, float]:
    """How far outputs f are from an affine map of each row of a state h, relative to f − f(0), and its rounding.

    `outputs` returns f when a change of the state is made on the way. Rows c_i h_{i−1}, with factors c_i of both signs,
    must give f(0) + c_i (f_{i−1} − f(0)), where f(0) is the same for all rows: a function that bends, one of other
    rows, or one that uses the inputs again does not.
    """
    own = outputs(lambda h: h)
    offset, mixed = outputs(torch.zeros_like).double(), outputs(lambda h: _factors(h) * h.roll(1, 0)).double()
    f, constant = own.double(), offset.mean(0)
    spread = float(torch.linalg.vector_norm(f - constant))
    expected = constant + _factors(f) * (f.roll(1, 0) - constant)
    gap = float(torch.linalg.vector_norm(mixed - expected)) + float(torch.linalg.vector_norm(offset - constant))
    if not spread > 0:
        return math.inf, 0.0
    return gap / spread, torch.finfo(own.dtype).eps * float(torch.linalg.vector_norm(f)) / spread


def _factors(like: Tensor) -> Tensor:
    return like.new_tensor(_FACTORS).repeat(-(-len(like) // len(_FACTORS)))[: len(like), None]


def _eager() -> Any:
    """Compiled parts hide their products and take no notice of new hooks; without dynamo nothing is compiled."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _first(outputs: Any, rows: int) -> Tensor:
    if isinstance(outputs, tuple | list) and outputs:
        outputs = outputs[0]
    if not isinstance(outputs, Tensor) or outputs.ndim not in (1, 2) or len(outputs) != rows:
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InputError(f"the module returns {shape} for {rows} samples; wrap it so that it returns (batch, outputs)")
    return outputs.detach().reshape(rows, -1)


@torch.no_grad()
def multiplied(module: Any, X: Tensor, weight: Tensor) -> Products:
    """Call the module on X and keep what `weight` (m, m) was multiplied by."""
    with _eager(), _Watch(weight, len(X)) as seen:
        outputs = module_outputs(module, X)
    return Products(outputs, seen.state, seen.moved, seen.after)


class _Watch(TorchDispatchMode):
    """Keeps the other factor of the products with a weight, and left factors after them, of whole batches."""

    def __init__(self, weight: Tensor, rows: int) -> None:
        super().__init__()
        self.weight, self.rows = weight, rows
        self.state: Tensor | None = None
        self.after: dict[int, Tensor] = {}
        self.moved = math.inf
        self.number = -1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _PRODUCTS:
            self.number += 1
            left, right = (args[place] for place in _PRODUCTS[func])
            if self._is_weight(right):
                self._keep(left.flatten(0, -2))
            elif self._is_weight(left) and right.ndim > 1:
                self._keep(right.mT.flatten(0, -2))
            elif self.state is not None:
                rows = left.flatten(0, -2)
                if rows.shape == self.state.shape:
                    self.after[self.number] = rows.detach().clone()
        return func(*args, **(kwargs or {}))

    def _keep(self, factor: Tensor) -> None:
        if len(factor) != self.rows:
            return
        if self.state is not None:
            size = float(torch.linalg.vector_norm(factor.double()))
            gap = float(torch.linalg.vector_norm(factor.double() - self.state.double()))
            self.moved = gap / size if size else math.inf
        self.state, self.after = factor.detach().clone(), {}

    def _is_weight(self, factor: Tensor) -> bool:
        """Whether it is the weight, its transpose, or a copy of either, as weight and spectral norms compute anew."""
        own = self.weight
        if factor.numel() != own.numel() or (factor.dtype, factor.device) != (own.dtype, own.device):
            return False
        same = factor.reshape(own.shape)
        return factor.data_ptr() == own.data_ptr() or torch.equal(same, own) or torch.equal(same, own.t())


class _Change(TorchDispatchMode):
    """Changes the left factor of products of these numbers, in the order in which `_Watch` counts them."""

    def __init__(self, numbers: Collection[int], change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.numbers, self.change = numbers, change
        self.number = -1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _PRODUCTS:
            self.number += 1
            if self.number in self.numbers:
                place = _PRODUCTS[func][0]
                left = args[place]
                args = (*args[:place], self.change(left.flatten(0, -2)).reshape(left.shape), *args[place + 1 :])
        return func(*args, **(kwargs or {}))
