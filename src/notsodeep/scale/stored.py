"""A kernel in a store, read like a matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from notsodeep.checks import InputError, choice
from notsodeep.descriptions import model_from_dict
from notsodeep.extras import need
from notsodeep.kernels.matrices import KernelMatrix, precision_of
from notsodeep.models import DEQ, ConvDEQ, Explicit
from notsodeep.progress import Progress
from notsodeep.scale.store import TileStore

__all__ = ["StoredBlocks"]

Array: TypeAlias = NDArray[Any]


class StoredBlocks(KernelMatrix):
    """K(x_i, y_j) from a kernel store, by rectangles; every read verifies checksums.

    Parameters
    ----------
    path : str or Path
        What ``model.kernel(X, out=path)`` wrote.
    dtype : {"float64", "float32"}, optional
        Precision of what is returned; that of the store by default. Entries are converted, not computed again.
    reused : int
        See the attribute.

    Attributes
    ----------
    reused : int
        Tiles that were there already when ``kernel(X, out=path)`` or :func:`notsodeep.scale.compute` returned this.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     K = nsd.DEQ("relu", 0.2, 0.8).kernel(X, kind="ntk", out=folder + "/K.zarr")
    ...     K.shape, K[3:5, 10:12].shape, bool(np.all(K[:, 7] == K[7]))
    ((100, 100), (2, 2), True)
    """

    ndim = 2

    def __init__(self, path: str | Path, dtype: DTypeLike | None = None, *, reused: int = 0) -> None:
        self.store = TileStore(path)
        if "kind" not in self.store.manifest:
            raise InputError(f"{self.store.path} holds a factor, not a kernel")
        if self.store.manifest["triangle"] == "lower":
            raise InputError(f"{self.store.path} holds half of a kernel; compute it again")
        choice(self.store.manifest["kind"], DEQ.kinds, f"{self.store.path}: kind")
        precision = precision_of(dtype, np.empty(0, self.store.dtype))
        super().__init__(self.store.shape, precision, self.store.manifest["triangle"] == "upper")
        self.reused = reused
        self._diagonal: Array | None = None

    @property
    def path(self) -> Path:
        return self.store.path

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile; rectangles aligned with tiles read nothing twice."""
        return self.store.tile

    @property
    def provenance(self) -> dict[str, Any]:
        return {key: value for key, value in self.store.manifest.items() if key not in ("format", "triangle")}

    @property
    def kind(self) -> str:
        return str(self.store.manifest["kind"])

    @property
    def model(self) -> DEQ | Explicit | ConvDEQ:
        return model_from_dict(self.store.manifest["model"], str(self.path))

    def block(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = False) -> Array:
        (i0, i1, _), (j0, j1, _) = rows.indices(self.shape[0]), columns.indices(self.shape[1])
        result = self.store.room((max(i1 - i0, 0), max(j1 - j0, 0)), self.dtype) if out is None else out
        height, width = self.tile
        for i in range(i0 // height, -(-i1 // height)):
            for j in range(j0 // width, -(-j1 // width)):
                mirrored = self.symmetric and i > j
                data = self.store.read((j, i)).T if mirrored else self.store.read((i, j))
                top, left = i * height, j * width
                low, high = max(i0, top), min(i1, top + len(data))
                first, last = max(j0, left), min(j1, left + data.shape[1])
                result[low - i0 : high - i0, first - j0 : last - j0] = data[
                    low - top : high - top, first - left : last - left
                ]
        return result

    def diagonal(self) -> Array:
        if not self.symmetric:
            raise InputError(f"{self.path} holds the kernel of two sets of samples, without K(x_i, x_i)")
        if self._diagonal is None:
            parts = [self.store.read((i, i)).diagonal() for i in range(self.store.grid[0])]
            self._diagonal = np.concatenate(parts).astype(np.float64)
        return self._diagonal

    def columns(self, chosen: Array) -> Array:
        """K[:, chosen] in float64; every tile is read once."""
        chosen = np.asarray(chosen)
        result = self.store.room((self.shape[0], len(chosen)), np.float64)
        width = self.tile[1]
        for j in np.unique(chosen // width):
            here = np.flatnonzero(chosen // width == j)
            span = slice(int(j) * width, int(j + 1) * width)
            for i in range(0, self.shape[0], self.tile[0]):
                rows = slice(i, i + self.tile[0])
                result[rows, here] = self.block(rows, span)[:, chosen[here] - span.start]
        return result

    def _product(self, vectors: Array, deterministic: bool, progress: Progress) -> Array:
        return super()._product(vectors, True, progress)  # along the tiles

    def astype(self, dtype: DTypeLike) -> StoredBlocks:
        return StoredBlocks(self.path, dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Array:
        """Rows and columns by integers and slices, as in NumPy."""
        pair = index if isinstance(index, tuple) else (index,)
        pair = (*pair, *(slice(None),) * (2 - len(pair)))
        if len(pair) != 2 or not all(isinstance(part, slice | int | np.integer) for part in pair):
            raise IndexError("a stored kernel is indexed by integers and slices, K[i, j0:j1]; take to_numpy() for more")
        wholes, rests = zip(*(_plain(part, n) for part, n in zip(pair, self.shape, strict=True)), strict=True)
        return self.block(*wholes)[rests]

    def to_numpy(self) -> Array:
        """The whole matrix in memory."""
        return self.block(slice(None), slice(None))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a kernel on disk cannot become an array without a copy")
        return self.to_numpy().astype(dtype or self.dtype, copy=False)

    def dask_array(self) -> Any:
        """The matrix as a Dask array, one chunk a tile."""
        return need("dask.array").from_array(self, chunks=self.tile, name=f"notsodeep-{self.path}", asarray=False)

    def __repr__(self) -> str:
        return f"StoredBlocks({str(self.path)!r}, {self.kind}, {self.shape[0]} × {self.shape[1]}, {self.dtype})"


def _plain(part: slice | int, n: int) -> tuple[slice, Any]:
    """A slice of step one that covers `part`, and the index of `part` in it."""
    if not isinstance(part, slice):
        if not -n <= part < n:
            raise IndexError(f"index {part} is out of bounds for {n} samples")
        start = part % n
        return slice(start, start + 1), 0
    chosen = range(n)[part]
    if not chosen:
        return slice(0, 0), slice(None)
    low, high = min(chosen[0], chosen[-1]), max(chosen[0], chosen[-1])
    return slice(low, high + 1), slice(None, None, chosen.step)
