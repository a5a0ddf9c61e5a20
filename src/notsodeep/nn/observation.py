"""A module observed from outside: its inputs, its outputs, and the state that one of its weights multiplies."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from notsodeep.checks import InputError

__all__ = ["Products", "dense", "evaluating", "module_inputs", "module_outputs", "multiplied", "reached", "unwrapped"]

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
    after: Tensor | None  # (n, k), the factor of the last product that follows; None if none does


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


def module_inputs(module: Any, X: Any, name: str = "X") -> Tensor:
    """X as a dense, finite tensor of real numbers in the precision and on the device of the module.

    Arrays, sparse matrices of SciPy and sparse tensors are converted.
    """
    tensor = dense(X, name)
    if tensor.ndim < 2 or 0 in tensor.shape or tensor.is_complex():
        raise InputError(
            f"{name} has shape {tuple(tensor.shape)} in {tensor.dtype}; pass real numbers, one sample a row"
        )
    like = next(module.parameters(), None) if isinstance(module, torch.nn.Module) else None
    default = tensor.dtype if tensor.is_floating_point() else torch.get_default_dtype()
    dtype = like.dtype if like is not None and like.is_floating_point() else default
    tensor = tensor.detach().to(device=like.device if like is not None else None, dtype=dtype)
    if not bool(tensor.isfinite().all()):
        raise InputError(f"{name} holds NaN or infinite values; remove or impute them")
    return tensor


@torch.no_grad()
def module_outputs(module: Any, X: Tensor, batch: int | None = None) -> Tensor:
    """Outputs at X, (n, outputs), in evaluation mode; of several outputs the first."""
    rows = [X] if batch is None else X.split(batch)
    with evaluating(module):
        return torch.cat([_first(module(part), len(part)) for part in rows])


@torch.no_grad()
def reached(module: Any, part: torch.nn.Module, X: Tensor) -> Tensor | None:
    """What a part of the module was called on last, while the module was called on X; None if it was not."""
    seen: list[Tensor] = []
    hook = part.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    # compiled parts take no notice of new hooks
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    try:
        with eager:
            module_outputs(module, X)
    finally:
        hook.remove()
    return seen[-1] if seen else None


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
    # compiled parts hide their products; without dynamo, which is slow to import, nothing is compiled
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with eager, _Watch(weight, len(X)) as seen:
        outputs = module_outputs(module, X)
    return Products(outputs, seen.state, seen.moved, seen.after)


class _Watch(TorchDispatchMode):
    """Keeps the other factor of the products with a weight, and of the last product after them, of whole batches."""

    def __init__(self, weight: Tensor, rows: int) -> None:
        super().__init__()
        self.weight, self.rows = weight, rows
        self.state: Tensor | None = None
        self.after: Tensor | None = None
        self.moved = math.inf

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _PRODUCTS:
            left, right = (args[place] for place in _PRODUCTS[func])
            if self._is_weight(right):
                self._keep(left.flatten(0, -2))
            elif self._is_weight(left) and right.ndim > 1:
                self._keep(right.mT.flatten(0, -2))
            elif self.state is not None:
                rows = left.flatten(0, -2)
                self.after = rows.detach().clone() if len(rows) == self.rows else None
        return func(*args, **(kwargs or {}))

    def _keep(self, factor: Tensor) -> None:
        if len(factor) != self.rows:
            return
        if self.state is not None:
            size = float(torch.linalg.vector_norm(factor.double()))
            gap = float(torch.linalg.vector_norm(factor.double() - self.state.double()))
            self.moved = gap / size if size else math.inf
        self.state, self.after = factor.detach().clone(), None

    def _is_weight(self, factor: Tensor) -> bool:
        """Whether it is the weight, its transpose, or a copy of either, as weight and spectral norms compute anew."""
        own = self.weight
        if factor.numel() != own.numel() or (factor.dtype, factor.device) != (own.dtype, own.device):
            return False
        same = factor.reshape(own.shape)
        return factor.data_ptr() == own.data_ptr() or torch.equal(same, own) or torch.equal(same, own.t())
