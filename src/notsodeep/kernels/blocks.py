"""Any rectangle of a kernel matrix, without the matrix: what all kernels have in common."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from notsodeep.checks import InputError, warn_convergence
from notsodeep.progress import Progress

__all__ = ["Blocks", "ComputedBlocks", "precision_of"]

Array: TypeAlias = NDArray[Any]

_ACCEPTABLE = {"float64": 1e-9, "float32": 1e-4}


class Blocks(Protocol):
    """A kernel matrix that can be computed rectangle by rectangle, from several threads if wanted."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def symmetric(self) -> bool:
        """Whether rows and columns are the same samples."""

    def block(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = False) -> Array:
        """Return the entries of these rows and columns, written into `out` (C-contiguous) where given.

        `progress` may be ignored where nothing long is computed.
        """

    def diagonal(self) -> Array:
        """K(x_i, x_i) of the rows' samples, in float64."""

    def astype(self, dtype: DTypeLike) -> Blocks:
        """Return the same kernel in another precision, from the samples as they were given."""


class ComputedBlocks(ABC):
    """Blocks computed from a model and samples; a subclass says how the entries of one rectangle are.

    Attributes
    ----------
    model : DEQ, Explicit or ConvDEQ
    kinds : tuple of str
        The kernels, computed together.
    dtype : dtype
        Precision of computation and result.
    """

    _work: Any  # what was done so far; has an estimated `error` and can `merge`
    _seconds: float

    def __init__(
        self, model: Any, kinds: tuple[str, ...], dtype: DTypeLike | None, first: Array, second: Array | None
    ) -> None:
        self.model = model
        self.kinds = kinds
        self.dtype = precision_of(dtype, first, second)
        self._first, self._second = first, second
        self._diagonals: list[Array] | None = None
        self._lock = threading.Lock()

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._first), len(self._first if self._second is None else self._second)

    @property
    def symmetric(self) -> bool:
        return self._second is None

    @property
    def samples(self) -> tuple[Array, Array | None]:
        """The samples as they were given; the second is None when it is the first."""
        return self._first, self._second

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """What else the values depend on."""

    def astype(self, dtype: DTypeLike) -> Self:
        if precision_of(dtype, self._first, self._second) == self.dtype:
            return self
        kernel: Any = type(self)
        return kernel(self.model, self._first, self._second, kind=self.kinds, dtype=dtype, **self.options)

    def diagonals(self) -> list[Array]:
        """K(x_i, x_i) for each kind, in float64."""
        if self._diagonals is None:
            self._diagonals = self._diagonal_of_each()
        return self._diagonals

    def diagonal(self) -> Array:
        return self.diagonals()[0]

    def block(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = False) -> Array:
        return self.planes(rows, columns, None if out is None else out[None], progress)[0]

    def planes(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = None) -> Array:
        """One rectangle of every kind, shape (kinds, rows, columns)."""
        began = time.perf_counter()
        (i0, i1, _), (j0, j1, _) = rows.indices(self.shape[0]), columns.indices(self.shape[1])
        result = np.empty((len(self.kinds), i1 - i0, j1 - j0), self.dtype) if out is None else out
        symmetric = self.symmetric and (i0, i1) == (j0, j1)
        work = self._fill(result, slice(i0, i1), slice(j0, j1), symmetric, progress)
        if self.symmetric and self._diagonal_is_known:
            shared = np.arange(max(i0, j0), min(i1, j1))
            for plane, diagonal in zip(result, self.diagonals(), strict=True):
                plane[shared - i0, shared - j0] = diagonal[shared]
        self._record(work, time.perf_counter() - began)
        return result

    @property
    def _diagonal_is_known(self) -> bool:
        """Whether the diagonal follows from the variances alone, so that `_fill` may leave it out."""
        return True

    @abstractmethod
    def _diagonal_of_each(self) -> list[Array]:
        """K(x_i, x_i) for each kind, in float64."""

    @abstractmethod
    def _fill(self, out: Array, rows: slice, columns: slice, symmetric: bool, progress: Progress) -> Any:
        """Write a rectangle of every kind into `out` and return the work it was, as kept in `_work`."""

    @abstractmethod
    def _complaint(self, work: Any) -> str:
        """What to say of a rectangle whose error is too large."""

    def _record(self, work: Any, seconds: float) -> None:
        acceptable = _ACCEPTABLE[self.dtype.name]
        with self._lock:
            warned = not self._work.error <= acceptable  # NaN is worse than any number
            self._work = self._work.merge(work)
            self._seconds += seconds
        if not (work.error <= acceptable or warned):
            warn_convergence(self._complaint(work))


def precision_of(dtype: DTypeLike | None, first: Array, second: Array | None = None) -> np.dtype[Any]:
    """The dtype asked for, or that of the samples."""
    if dtype is None:
        return np.result_type(first, first if second is None else second)
    try:
        precision = np.dtype(dtype)
    except TypeError:
        precision = np.dtype(object)
    if precision not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise InputError(f"dtype={dtype!r} is not supported; use 'float64' or 'float32'")
    return precision
