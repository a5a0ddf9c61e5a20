"""Write a kernel into a new array, into the caller's array, or to disk."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError
from notsodeep.kernels.matrices import ComputedBlocks
from notsodeep.progress import Progress

__all__ = ["deliver"]

Array: TypeAlias = NDArray[Any]


def deliver(
    blocks: ComputedBlocks,
    kind: str | Sequence[str],
    out: Array | str | Path | None,
    *,
    tile: int | None,
    client: Any,
    progress: Progress,
    return_info: bool,
) -> Any:
    """Compute all of `blocks` and return what the caller of ``kernel`` asked for."""
    answer: Any
    if isinstance(out, str | Path):
        from notsodeep.scale import compute

        answer = compute(blocks, out, tile=tile, client=client, progress=progress)
    elif client is not None or tile is not None:
        raise InputError('client and tile are for kernels on disk; pass out="K.zarr" as well')
    else:
        result = _planes(out, blocks)
        blocks.planes(slice(None), slice(None), result, progress)
        answer = result[0] if isinstance(kind, str) else namedtuple("Kernels", blocks.kinds)(*result)
    return (answer, blocks.info) if return_info else answer


def _planes(out: Array | None, blocks: ComputedBlocks) -> Array:
    """Planes (kinds, n, m) to fill: new ones, or the caller's array once it is checked."""
    shape, kinds = blocks.shape, blocks.kinds
    if out is None:
        return np.empty((len(kinds), *shape), blocks.dtype)
    if len(kinds) > 1:
        raise InputError(f"out cannot hold {len(kinds)} kernels; ask for one kind at a time")
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != blocks.dtype:
        found = f"shape {out.shape}, dtype {out.dtype}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InputError(f"out has {found}; pass an array of shape {shape} and dtype {blocks.dtype}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise InputError("out must be writeable and C-contiguous; pass np.empty(...)")
    if any(given is not None and np.shares_memory(out, given) for given in blocks.samples):
        raise InputError("out overlaps the samples; pass a separate array")
    return out[None]
