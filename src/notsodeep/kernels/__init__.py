"""Exact infinite-width kernels of DEQs and explicit networks."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import ArrayLike, DTypeLike, NDArray

from notsodeep.checks import matrix
from notsodeep.deprecation import moved
from notsodeep.kernels.conv import ConvBlocks
from notsodeep.kernels.dense import KernelBlocks, Network, check_depth, radial_samples, recursion_of, sized, supported
from notsodeep.kernels.info import ConvInfo, KernelInfo
from notsodeep.kernels.matrices import KernelMatrix, MatrixBlocks, precision_of
from notsodeep.kernels.output import deliver
from notsodeep.kernels.samples import exact_diagonal
from notsodeep.kernels.sphere import SphereKernel, on_sphere
from notsodeep.kinds import requested_kinds
from notsodeep.models import ConvDEQ
from notsodeep.progress import Progress, compilation

__all__ = [
    "ConvInfo",
    "KernelBlocks",
    "KernelInfo",
    "KernelMatrix",
    "MatrixBlocks",
    "SphereKernel",
    "kernel",
    "kernel_diag",
    "kernel_matrix",
    "on_sphere",
]

__getattr__ = moved(__name__, {"Blocks": "notsodeep.kernels:KernelMatrix", "blocks": "notsodeep.kernels:kernel_matrix"})

Array: TypeAlias = NDArray[Any]


def kernel(
    model: Network,
    X: ArrayLike,
    Y: ArrayLike | None = None,
    *,
    kind: str | Sequence[str] = "ck",
    dtype: DTypeLike | None = None,
    depth: int | None = None,
    out: Array | str | Path | None = None,
    tile: int | None = None,
    client: Any = None,
    progress: Progress = None,
    return_info: bool = False,
) -> Any:
    """Λ_ij = σ_a² E[φ(u)φ(v)] + σ_b² x_i·x_j + σ_0², (u, v) ~ N(0, Λ), solved for every pair of samples.

    Parameters
    ----------
    model : DEQ, DeepDEQ or Explicit
    X : array (n, p)
        Samples in rows.
    Y : array (m, p), optional
        Second set of samples; the kernel of X with itself when absent.
    kind : str or sequence of str
        ``"ck"``, ``"nngp"``, ``"ntk"``, ``"ntk_frozen_input"``, ``"ntk_injected"`` (DEQ); ``"ck"``, ``"nngp"``,
        ``"ntk"`` (DeepDEQ); ``"ck"``, ``"ntk"`` (Explicit). Several kinds share one pass.
    dtype : {"float64", "float32"}, optional
        Precision of computation and result; that of X by default.
    depth : int, optional
        The iterate after this many layers instead of the equilibrium [FK20, Thm 1]. DEQ only.
    out : array (n, m), or str or Path, optional
        Where to put the result, for one kind only: an array, C-contiguous and of the right dtype; or a directory
        ``"K.zarr"``, written tile by tile and resumed if the call is killed (:func:`notsodeep.scale.compute`).
    tile : int, optional
        Side of the tiles of a directory `out`; about 2048 by default.
    client : dask.distributed.Client, optional
        Compute these tiles on its workers.
    progress : bool or callable, optional
        ``callable(done, total)``, or whether to show a bar; by default a long call shows one on a terminal.
    return_info : bool
        Also return a :class:`KernelInfo`: method, degree, residual and a bound of the error.

    Returns
    -------
    array (n, n) or (n, m), or a named tuple of them when several kinds were asked for.
        A :class:`notsodeep.scale.StoredBlocks` when `out` is a directory.
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
    with compilation(progress):
        source = KernelBlocks(model, X, Y, kind=kind, dtype=dtype, depth=depth)
        return deliver(source, kind, out, tile=tile, client=client, progress=progress, return_info=return_info)


def kernel_matrix(
    model: Network | ConvDEQ, X: ArrayLike, Y: ArrayLike | None = None, **options: Any
) -> KernelBlocks | ConvBlocks:
    """The kernel of any model by rectangles; `options` as in its ``kernel`` method: kind, dtype, depth and so on."""
    if isinstance(model, ConvDEQ):
        return ConvBlocks(model, X, Y, **options)
    return KernelBlocks(model, X, Y, **options)


def kernel_diag(
    model: Network,
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
    kinds = requested_kinds(supported(model), kind)
    depth = check_depth(model, depth)
    first = matrix(X, "X", finite=False)
    precision = precision_of(dtype, first)
    samples, radius = radial_samples(model, first, precision)
    recursion = recursion_of(model, depth, samples)
    _, levels = sized(recursion, samples, kinds)
    square = 1.0 if radius is None else radius**2
    values = [(exact_diagonal(recursion, name, levels) * square).astype(precision) for name in kinds]
    return values[0] if isinstance(kind, str) else namedtuple("Kernels", kinds)(*values)
