"""Standard weights — zero mean, unit variance, independent — and the checks both networks share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import svds
from torch import Tensor

from notsodeep.checks import InputError, choice

__all__ = ["INITIALIZATIONS", "spectral_norm", "standard_entries"]

_HALF = (torch.float16, torch.bfloat16)


def _gaussian(weight: Tensor, generator: torch.Generator) -> Tensor:
    return weight.normal_(generator=generator)


def _uniform(weight: Tensor, generator: torch.Generator) -> Tensor:
    return weight.uniform_(-math.sqrt(3), math.sqrt(3), generator=generator)


def _rademacher(weight: Tensor, generator: torch.Generator) -> Tensor:
    return weight.bernoulli_(0.5, generator=generator).mul_(2).sub_(1)


INITIALIZATIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "gaussian": _gaussian,
    "uniform": _uniform,
    "rademacher": _rademacher,
}


def standard_entries(
    shape: tuple[int, ...], initialization: str, generator: torch.Generator, dtype: torch.dtype | None
) -> torch.nn.Parameter:
    """Return a parameter with i.i.d. zero-mean, unit-variance entries."""
    fill = INITIALIZATIONS[choice(initialization, INITIALIZATIONS, "initialization")]
    return torch.nn.Parameter(fill(torch.empty(shape, dtype=dtype), generator))


def check_dtype(dtype: torch.dtype | None) -> torch.dtype:
    """float32 or float64; None means the default of PyTorch."""
    chosen = torch.get_default_dtype() if dtype is None else dtype
    if chosen not in (torch.float32, torch.float64):
        raise InputError(f"dtype={dtype!r} is not supported; use torch.float32 or torch.float64")
    return chosen


def check_input(x: object, features: int, like: Tensor, *, rows_only: bool = True) -> Tensor:
    """Return `x` if it is a finite (batch, features) tensor of the network's dtype and device.

    Under autocast half precision, which the layers in front may give, becomes the network's. Without `rows_only` any
    (…, features) will do, an empty batch too. Values are not looked at where there are none: while a graph is traced,
    inside ``torch.func``, and on the meta device.
    """
    if not isinstance(x, Tensor):
        raise InputError(f"x is a {type(x).__name__}; pass a torch.Tensor, e.g. torch.as_tensor(x)")
    if x.ndim == 0 or x.shape[-1] != features or (rows_only and x.ndim != 2):
        raise InputError(f"x has shape {tuple(x.shape)} but the network takes (batch, {features})")
    if rows_only and x.shape[0] == 0:
        raise InputError(f"x is empty (shape {tuple(x.shape)}); pass at least one sample")
    if x.dtype in _HALF and not x.is_meta and torch.is_autocast_enabled(x.device.type):
        x = x.to(like.dtype)
    if x.dtype != like.dtype or x.device != like.device:
        fix = f"x.to(device={str(like.device)!r}, dtype={like.dtype})"
        raise InputError(f"x is {x.dtype} on {x.device} but the network is {like.dtype} on {like.device}; use {fix}")
    if symbolic(x):
        return x
    if not bool(x.detach().sum().isfinite()) and not bool(x.isfinite().all()):
        bad = int((~x.isfinite()).sum())
        raise InputError(f"x holds {bad} NaN or infinite values; remove or impute them")
    return x


def widened(x: Any) -> Any:
    """Half precision as float32; everything else as it is."""
    return x.float() if isinstance(x, Tensor) and x.dtype in _HALF else x


def symbolic(x: Tensor) -> bool:
    """Whether the values of x cannot be asked for."""
    return torch.compiler.is_compiling() or x.is_meta or torch._C._are_functorch_transforms_active()


def spectral_norm(weight: Tensor) -> float:
    """‖weight‖₂: exact for small matrices, by Lanczos on weightᵀweight for large ones."""
    matrix = weight.detach().cpu().numpy().astype(np.float64)
    if matrix.ndim == 1:
        return float(np.linalg.norm(matrix))
    if min(matrix.shape) <= 512:
        return float(np.linalg.norm(matrix, 2))
    start = np.random.default_rng(0).standard_normal(min(matrix.shape))  # reproducible
    return float(svds(matrix, k=1, tol=1e-8, v0=start, return_singular_vectors=False)[0])
