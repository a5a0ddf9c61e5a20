"""Exact infinite-width kernels of convolutional DEQs [FK20, §4]."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from notsodeep.kernels.conv.blocks import ConvBlocks
from notsodeep.kernels.output import deliver
from notsodeep.models import ConvDEQ
from notsodeep.progress import Progress, compilation

__all__ = ["ConvBlocks", "kernel", "kernel_diag"]

Array: TypeAlias = NDArray[Any]


def kernel(
    model: ConvDEQ,
    images: ArrayLike,
    other: ArrayLike | None = None,
    *,
    kind: str | Sequence[str] = "ck",
    dtype: DTypeLike | None = None,
    depth: int | None = None,
    readout: str = "flatten",
    pool: int | None = None,
    out: Array | str | Path | None = None,
    tile: int | None = None,
    client: Any = None,
    progress: Progress = None,
    return_info: bool = False,
) -> Any:
    """Σ = B(σ_a² E[φφ](Σ) + σ_b² x·y) and Θ = Σ + B(σ_a² E[φ'φ'] Θ) at every position, for every pair of images.

    B is the average over the window, with the number of its positions inside the image as weight. Summed over positions
    (Tr) for a readout of the flattened state, with G = E[φφ](Σ) and Ġ = E[φ'φ'](Σ):

    ==================  =================================  ==========================================
    kind                value                              trained
    ==================  =================================  ==========================================
    ``ck``              Tr G                               readout
    ``nngp``            Tr Σ                               none; pre-activation of one channel
    ``ntk``             Tr(G + Ġ Θ)                        all weights
    ``ntk_frozen_input``  Tr(G + Ġ Θ_A), Θ_A = B σ_a²(G + Ġ Θ_A)  readout and recurrent filters
    ``ntk_injected``    Tr Θ                               all, one convolution as output
    ==================  =================================  ==========================================

    Parameters
    ----------
    model : ConvDEQ
    images : array (n, rows, columns, channels)
        Any norms; black pixels are allowed. [FK20] gives each pixel unit norm.
    other : array (m, rows, columns, channels), optional
        Second set of images; the kernel of `images` with themselves when absent.
    kind : str or sequence of str
        One of ``ConvDEQ.kinds`` or several, which share the work.
    dtype : {"float64", "float32"}, optional
        Precision of computation and result; that of the images by default.
    depth : int, optional
        The iterate after this many layers from Σ = x·y instead of the equilibrium.
    readout : {"flatten", "average_pool"}
        ``"flatten"``: sums over positions. ``"average_pool"``: means over all pairs of positions, which need every
        offset between them, rows·columns times the work and more.
    pool : int, optional
        With ``readout="average_pool"``, the features are averaged over blocks of c×c positions, then flattened; for
        ``ck``, and in the same way for the other kinds,

            K = Σ_blocks (1/|block|²) Σ_{α,α'∈block} G_{αα'}

        This needs (2c − 1)² offsets. c = 1 is ``"flatten"``; None is one block, the whole image. Blocks must not be cut
        at the border, and circular padding does not continue them beyond it. A side shorter than c is one block.
    out, tile, client
        Where to put the result, on disk or with the help of a cluster: as in :func:`notsodeep.kernels.kernel`.
    progress : bool or callable, optional
        ``callable(done, total)``, or whether to show a bar; by default a long call shows one on a terminal.
    return_info : bool
        Also return a :class:`~notsodeep.kernels.ConvInfo`: pairs, iterations, residual and estimated error.

    Returns
    -------
    array (n, n) or (n, m), or a named tuple of them when several kinds were asked for.
        With ``return_info=True`` a pair (kernels, info).

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> images = np.zeros((2, 4, 4, 2))
    >>> images[0, ..., 0] = images[1, ..., 1] = 1
    >>> conv = nsd.ConvDEQ("normalized_relu", recurrent=0.5, input=0.5, filter_size=3)
    >>> (conv.kernel(images, kind="nngp") / 16).round(6)
    array([[1.      , 0.217234],
           [0.217234, 1.      ]])
    """
    with compilation(progress):
        blocks = ConvBlocks(model, images, other, kind=kind, dtype=dtype, depth=depth, readout=readout, pool=pool)
        return deliver(blocks, kind, out, tile=tile, client=client, progress=progress, return_info=return_info)


def kernel_diag(
    model: ConvDEQ,
    images: ArrayLike,
    *,
    kind: str | Sequence[str] = "ck",
    dtype: DTypeLike | None = None,
    depth: int | None = None,
    readout: str = "flatten",
    pool: int | None = None,
) -> Any:
    """K(x_i, x_i) for every image, without the matrix.

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> conv = nsd.ConvDEQ("normalized_relu", recurrent=0.5, input=0.5)
    >>> conv.kernel_diag(np.ones((1, 4, 4, 1)), kind="ntk_injected").round(9)
    array([32.])
    """
    blocks = ConvBlocks(model, images, kind=kind, dtype=dtype, depth=depth, readout=readout, pool=pool)
    values = [np.array(diagonal, blocks.dtype) for diagonal in blocks.diagonals()]
    return values[0] if isinstance(kind, str) else namedtuple("Kernels", blocks.kinds)(*values)
