"""Exact infinite-width kernels of DEQs and explicit networks."""

from __future__ import annotations

import time
import warnings
from collections import namedtuple
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from notsodeep.checks import ConvergenceWarning, InputError, count, matrix
from notsodeep.kernels.gram import build
from notsodeep.kernels.info import KernelInfo
from notsodeep.kernels.kinds import combine, requested_kinds
from notsodeep.kernels.plans import choose, network_levels
from notsodeep.kernels.samples import Levels, Samples
from notsodeep.models import DEQ, Explicit, require_infinite_width
from notsodeep.progress import Progress

__all__ = ["KernelInfo", "kernel", "kernel_diag"]

Array: TypeAlias = NDArray[Any]

_ACCEPTABLE = {"float64": 1e-9, "float32": 1e-4}


def kernel(
    model: DEQ | Explicit,
    X: ArrayLike,
    Y: ArrayLike | None = None,
    *,
    kind: str | Sequence[str] = "ck",
    dtype: DTypeLike | None = None,
    depth: int | None = None,
    out: Array | None = None,
    progress: Progress = None,
    return_info: bool = False,
) -> Any:
    """Λ_ij = σ_a² E[φ(u)φ(v)] + σ_b² x_i·x_j + σ_0², (u, v) ~ N(0, Λ), solved for every pair of samples.

    Parameters
    ----------
    model : DEQ or Explicit
    X : array (n, p)
        Samples in rows.
    Y : array (m, p), optional
        Second set of samples; the kernel of X with itself when absent.
    kind : str or sequence of str
        ``"ck"``, ``"nngp"``, ``"ntk"``, ``"ntk_frozen_input"``, ``"ntk_injected"`` (DEQ); ``"ck"``, ``"ntk"``
        (Explicit). Several kinds share one pass.
    dtype : {"float64", "float32"}, optional
        Precision of computation and result; that of X by default.
    depth : int, optional
        The iterate after this many layers instead of the equilibrium [FK20, Thm 1]. DEQ only.
    out : array (n, m), optional
        Where to put the result; C-contiguous, of the right dtype. For one kind only.
    progress : bool or callable, optional
        ``callable(done, total)``, or whether to show a bar; by default a terminal sees one when the call is long.
    return_info : bool
        Also return a :class:`KernelInfo`: method, degree, residual and estimated error.

    Returns
    -------
    array (n, n) or (n, m), or a named tuple of them when several kinds were asked for.
        With ``return_info=True`` a pair (kernels, info).

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> X = np.eye(2)
    >>> nsd.DEQ("normalized_relu", recurrent=0.5, input=0.5).kernel(X, kind="nngp").round(6)
    array([[1.      , 0.217234],
           [0.217234, 1.      ]])
    >>> k, info = nsd.DEQ("relu", 0.2, 0.8).kernel(X, kind=("ck", "ntk"), return_info=True)
    >>> k.ck.shape, info.method, info.error < 1e-12
    ((2, 2), 'polynomial', True)
    """
    began = time.perf_counter()
    kinds = requested_kinds(_supported(model), kind)
    depth = _check_depth(model, depth)
    first = matrix(X, "X", finite=False)
    second = None if Y is None else matrix(Y, "Y", finite=False)
    if second is not None and second.shape[1] != first.shape[1]:
        raise InputError(f"Y has {second.shape[1]} features but X has {first.shape[1]}; both need the same")
    precision = _precision(dtype, first, second)
    left = Samples.of(first, precision)
    right = left if second is None else Samples.of(second, precision, "Y")
    levels = [network_levels(model, left, depth)]
    levels.append(levels[0] if right is left else network_levels(model, right, depth))
    result = _output(out, kinds, len(left), len(right), precision, first, second)

    plan = choose(model, left, right, levels, kinds, depth)
    compile_seconds = plan.compile(result)
    symmetric = right is left
    reports = build(result, left.rows, right.rows, plan.run, symmetric=symmetric, progress=progress)
    if symmetric:
        diagonal = np.arange(len(left))
        for plane, name in zip(result, kinds, strict=True):
            plane[diagonal, diagonal] = _diagonal(model, name, levels[0], left, depth)
    summary = plan.summarise(reports)
    if summary.error > _ACCEPTABLE[precision.name]:
        warnings.warn(
            f"{plan.method} reached an estimated relative error of {summary.error:.1e} only "
            f"({plan.degree} terms); rows that nearly coincide need more with {model}",
            ConvergenceWarning,
            stacklevel=3,
        )
    answer = result[0] if isinstance(kind, str) else namedtuple("Kernels", kinds)(*result)
    if not return_info:
        return answer
    return answer, KernelInfo(
        plan.method,
        plan.variable,
        plan.degree,
        summary.residual,
        summary.error,
        summary.recomputed,
        summary.iterations,
        compile_seconds,
        time.perf_counter() - began,
    )


def kernel_diag(
    model: DEQ | Explicit,
    X: ArrayLike,
    *,
    kind: str | Sequence[str] = "ck",
    dtype: DTypeLike | None = None,
    depth: int | None = None,
) -> Any:
    """K(x_i, x_i) for every sample, without the matrix.

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> nsd.DEQ("normalized_relu", recurrent=0.5, input=0.5).kernel_diag(np.eye(2), kind="ntk_injected")
    array([2., 2.])
    """
    kinds = requested_kinds(_supported(model), kind)
    depth = _check_depth(model, depth)
    first = matrix(X, "X", finite=False)
    precision = _precision(dtype, first, None)
    samples = Samples.of(first, precision)
    levels = network_levels(model, samples, depth)
    values = [_diagonal(model, name, levels, samples, depth).astype(precision) for name in kinds]
    return values[0] if isinstance(kind, str) else namedtuple("Kernels", kinds)(*values)


def _supported(model: Any) -> DEQ | Explicit:
    if not isinstance(model, DEQ | Explicit):
        raise InputError(f"model={model!r} has no fully-connected kernel; pass a DEQ or an Explicit")
    return model


def _check_depth(model: DEQ | Explicit, depth: int | None) -> int | None:
    if depth is not None:
        if not isinstance(model, DEQ):
            raise InputError(f"depth={depth!r} is for a DEQ; an Explicit network has the depth of its layers")
        return count(depth, "depth", minimum=0)
    if isinstance(model, DEQ):
        require_infinite_width(model)
    return None


def _precision(dtype: DTypeLike | None, first: Array, second: Array | None) -> np.dtype[Any]:
    if dtype is None:
        return np.result_type(first, first if second is None else second)
    try:
        precision = np.dtype(dtype)
    except TypeError:
        precision = np.dtype(object)
    if precision not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise InputError(f"dtype={dtype!r} is not supported; use 'float64' or 'float32'")
    return precision


def _output(
    out: Array | None,
    kinds: tuple[str, ...],
    n: int,
    m: int,
    precision: np.dtype[Any],
    first: Array,
    second: Array | None,
) -> Array:
    if out is None:
        return np.empty((len(kinds), n, m), precision)
    if len(kinds) > 1:
        raise InputError(f"out cannot hold {len(kinds)} kernels; ask for one kind at a time")
    if not isinstance(out, np.ndarray) or out.shape != (n, m) or out.dtype != precision:
        found = f"shape {out.shape}, dtype {out.dtype}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InputError(f"out has {found}; pass an array of shape {(n, m)} and dtype {precision}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise InputError("out must be writeable and C-contiguous; pass np.empty(...)")
    if np.shares_memory(out, first) or (second is not None and np.shares_memory(out, second)):
        raise InputError("out overlaps the samples; pass a separate array")
    return out[None]


def _diagonal(model: DEQ | Explicit, kind: str, levels: Levels, samples: Samples, depth: int | None) -> Array:
    """The exact diagonal, from the variances alone."""
    if isinstance(model, DEQ) and depth is None:
        return combine(kind, levels.power[0], levels.slope[0], levels.variance[0], model.recurrent)
    tangent = (samples.factor * samples.norm) ** 2
    if isinstance(model, Explicit):
        for power, slope in zip(levels.power, levels.slope, strict=True):
            tangent = power + slope * tangent
        return levels.power[-1] if kind == "ck" else tangent
    frozen = levels.power[0]
    for level in range(1, len(levels.variance)):
        tangent = levels.variance[level] + model.recurrent * levels.slope[level - 1] * tangent
        frozen = levels.power[level] + model.recurrent * levels.slope[level] * frozen
    if kind == "ntk":
        return levels.power[-1] + levels.slope[-1] * tangent
    return {"ck": levels.power[-1], "nngp": levels.variance[-1], "ntk_frozen_input": frozen, "ntk_injected": tangent}[
        kind
    ]
