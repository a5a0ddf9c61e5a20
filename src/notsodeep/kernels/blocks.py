"""Any rectangle of a kernel matrix, without the matrix: the work per sample and the choice of method are done once."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from notsodeep.checks import ConvergenceWarning, InputError, count, matrix
from notsodeep.kernels.gram import build
from notsodeep.kernels.info import KernelInfo
from notsodeep.kernels.kinds import combine, requested_kinds
from notsodeep.kernels.plans import Summary, choose, network_levels
from notsodeep.kernels.samples import Levels, Samples
from notsodeep.models import DEQ, Explicit, require_infinite_width
from notsodeep.progress import Progress

__all__ = ["Blocks", "KernelBlocks", "check_depth", "exact_diagonal", "precision_of", "supported"]

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


class KernelBlocks:
    """K(x_i, y_j) of a DEQ or an explicit network, by rectangles.

    Parameters
    ----------
    model : DEQ or Explicit
    X : array (n, p)
    Y : array (m, p), optional
        X itself when absent; the matrix is then symmetric.
    kind, dtype, depth
        As in :func:`notsodeep.kernels.kernel`.

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> from notsodeep.kernels.blocks import KernelBlocks
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> deq = nsd.DEQ("relu", 0.2, 0.8)
    >>> blocks = KernelBlocks(deq, X, kind="ntk")
    >>> blocks.shape, blocks.symmetric
    ((100, 100), True)
    >>> part = blocks.block(slice(10, 30), slice(0, 50))
    >>> bool(np.allclose(part, deq.kernel(X, kind="ntk")[10:30, :50], rtol=1e-13))
    True
    """

    def __init__(
        self,
        model: DEQ | Explicit,
        X: ArrayLike,
        Y: ArrayLike | None = None,
        *,
        kind: str | Sequence[str] = "ck",
        dtype: DTypeLike | None = None,
        depth: int | None = None,
    ) -> None:
        began = time.perf_counter()
        self.model = model
        self.kinds = requested_kinds(supported(model), kind)
        self.depth = check_depth(model, depth)
        self._first = matrix(X, "X", finite=False)
        self._second = None if Y is None else matrix(Y, "Y", finite=False)
        if self._second is not None and self._second.shape[1] != self._first.shape[1]:
            raise InputError(
                f"Y has {self._second.shape[1]} features but X has {self._first.shape[1]}; both need the same"
            )
        self.dtype = precision_of(dtype, self._first, self._second)
        self._left = Samples.of(self._first, self.dtype)
        self._right = self._left if self._second is None else Samples.of(self._second, self.dtype, "Y")
        levels = [network_levels(model, self._left, self.depth)]
        levels.append(levels[0] if self.symmetric else network_levels(model, self._right, self.depth))
        self._levels = levels
        self._plan = choose(model, self._left, self._right, levels, self.kinds, self.depth)
        self._compile_seconds = self._plan.compile(np.empty((len(self.kinds), 1, 1), self.dtype))
        self._diagonals: list[Array] | None = None
        self._lock = threading.Lock()
        self._summary = Summary(0.0, 0.0)
        self._seconds = time.perf_counter() - began

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._left), len(self._right)

    @property
    def symmetric(self) -> bool:
        return self._right is self._left

    @property
    def samples(self) -> tuple[Array, Array | None]:
        """The samples as they were given; the second is None when it is the first."""
        return self._first, self._second

    @property
    def options(self) -> dict[str, Any]:
        """What else the values depend on."""
        return {"depth": self.depth}

    def astype(self, dtype: DTypeLike) -> KernelBlocks:
        if precision_of(dtype, self._first, self._second) == self.dtype:
            return self
        return KernelBlocks(self.model, self._first, self._second, kind=self.kinds, dtype=dtype, **self.options)

    def diagonals(self) -> list[Array]:
        """K(x_i, x_i) for each kind, from the variances alone."""
        if self._diagonals is None:
            self._diagonals = [
                exact_diagonal(self.model, name, self._levels[0], self._left, self.depth) for name in self.kinds
            ]
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
        tile_pass = self._plan.over(slice(i0, i1), slice(j0, j1))
        left, right = self._left.rows[i0:i1], self._right.rows[j0:j1]
        reports = build(result, left, right, tile_pass, symmetric=symmetric, progress=progress)
        if self.symmetric:
            shared = np.arange(max(i0, j0), min(i1, j1))
            for plane, diagonal in zip(result, self.diagonals(), strict=True):
                plane[shared - i0, shared - j0] = diagonal[shared]
        self._record(self._plan.summarise(reports), time.perf_counter() - began)
        return result

    @property
    def info(self) -> KernelInfo:
        """What was done so far, over all rectangles."""
        plan, summary = self._plan, self._summary
        return KernelInfo(
            plan.method,
            plan.variable,
            plan.degree,
            summary.residual,
            summary.error,
            summary.recomputed,
            summary.iterations,
            self._compile_seconds,
            self._seconds,
        )

    def _record(self, summary: Summary, seconds: float) -> None:
        acceptable = _ACCEPTABLE[self.dtype.name]
        with self._lock:
            warned = self._summary.error > acceptable
            self._summary = self._summary.merge(summary)
            self._seconds += seconds
        if summary.error > acceptable and not warned:
            warnings.warn(
                f"{self._plan.method} reached an estimated relative error of {summary.error:.1e} only "
                f"({self._plan.degree} terms); rows that nearly coincide need more with {self.model}",
                ConvergenceWarning,
                stacklevel=5,
            )


def supported(model: Any) -> DEQ | Explicit:
    if not isinstance(model, DEQ | Explicit):
        raise InputError(f"model={model!r} has no fully-connected kernel; pass a DEQ or an Explicit")
    return model


def check_depth(model: DEQ | Explicit, depth: int | None) -> int | None:
    if depth is not None:
        if not isinstance(model, DEQ):
            raise InputError(f"depth={depth!r} is for a DEQ; an Explicit network has the depth of its layers")
        return count(depth, "depth", minimum=0)
    if isinstance(model, DEQ):
        require_infinite_width(model)
    return None


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


def exact_diagonal(model: DEQ | Explicit, kind: str, levels: Levels, samples: Samples, depth: int | None) -> Array:
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
