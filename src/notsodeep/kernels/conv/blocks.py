"""Any rectangle of a convolutional kernel matrix; the work per image is done once."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeAlias

import numba
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from notsodeep.checks import ConvergenceWarning, InputError, choice, count
from notsodeep.kernels.arc import Arc
from notsodeep.kernels.blocks import precision_of
from notsodeep.kernels.conv.arcs import arc_polynomials, guess_polynomial
from notsodeep.kernels.conv.geometry import Geometry, aligned
from notsodeep.kernels.conv.images import Images, check_images
from notsodeep.kernels.conv.pairs import BUFFERS, INFO, equilibrium_tile, layered_tile
from notsodeep.kernels.info import ConvInfo
from notsodeep.kernels.kinds import kind_codes, requested_kinds
from notsodeep.kernels.passes import mirror
from notsodeep.models import ConvDEQ, require_infinite_width
from notsodeep.progress import Progress, reporter

__all__ = ["ConvBlocks"]

Array: TypeAlias = NDArray[Any]
Tile: TypeAlias = tuple[int, int, int, int]

_GOALS = {"float64": (1e-12, 1e-11), "float32": (4e-7, 1e-5)}  # residuals of h (relative) and of Θ
_ACCEPTABLE = {"float64": 1e-9, "float32": 1e-4}
_LARGEST_TILE, _SMALLEST_TILE = 64, 4


class ConvBlocks:
    """K(x_i, y_j) of a convolutional DEQ, by rectangles.

    Parameters
    ----------
    model : ConvDEQ
    images : array (n, rows, columns, channels)
    other : array (m, rows, columns, channels), optional
        The images themselves when absent; the matrix is then symmetric.
    kind, dtype, depth, readout
        As in :func:`notsodeep.kernels.conv.kernel`.

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> from notsodeep.kernels.conv import ConvBlocks
    >>> images = np.random.default_rng(0).random((6, 8, 8, 3))
    >>> conv = nsd.ConvDEQ("normalized_relu", recurrent=0.65, input=0.35)
    >>> blocks = ConvBlocks(conv, images, kind="ntk")
    >>> part = blocks.block(slice(0, 2), slice(1, 6))
    >>> bool(np.allclose(part, conv.kernel(images, kind="ntk")[:2, 1:], rtol=1e-12))
    True
    """

    def __init__(
        self,
        model: ConvDEQ,
        images: ArrayLike,
        other: ArrayLike | None = None,
        *,
        kind: str | Sequence[str] = "ck",
        dtype: DTypeLike | None = None,
        depth: int | None = None,
        readout: str = "flatten",
    ) -> None:
        began = time.perf_counter()
        if not isinstance(model, ConvDEQ):
            raise InputError(f"model={model!r} is not convolutional; pass a ConvDEQ")
        self.model = model
        self.kinds = requested_kinds(model, kind)
        self.readout = choice(readout, ("flatten", "average_pool"), "readout")
        self.depth = None if depth is None else count(depth, "depth", minimum=0)
        if depth is None:
            require_infinite_width(model)
        self._first = check_images(images, "images", model)
        self._second = None if other is None else check_images(other, "other", model)
        if self._second is not None and self._second.shape[1:] != self._first.shape[1:]:
            raise InputError(
                f"other has images of shape {self._second.shape[1:]} but images of {self._first.shape[1:]}; "
                "both need the same rows, columns and channels"
            )
        self.dtype = precision_of(dtype, self._first, self._second)
        rows, width = self._first.shape[1:3]
        self.geometry = Geometry(rows, width, model.filter_size, model.padding == "circular")
        self._left = Images.of(self._first, model, self.geometry, self.depth, self.dtype)
        self._right = self._left
        if self._second is not None:
            self._right = Images.of(self._second, model, self.geometry, self.depth, self.dtype)
        self._arc = Arc.of(model.activation, model.recurrent)
        self._tile_pass: Any = equilibrium_tile if self.depth is None else layered_tile
        self._compile_seconds = self._compile()
        self._diagonals: list[Array] | None = None
        self._lock = threading.Lock()
        self._counts = np.zeros(INFO)
        self._seconds = time.perf_counter() - began

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._left), len(self._right)

    @property
    def symmetric(self) -> bool:
        return self._right is self._left

    @property
    def samples(self) -> tuple[Array, Array | None]:
        """The images as they were given; the second is None when it is the first."""
        return self._first, self._second

    @property
    def options(self) -> dict[str, Any]:
        """What else the values depend on."""
        return {"depth": self.depth, "readout": self.readout}

    def astype(self, dtype: DTypeLike) -> ConvBlocks:
        if precision_of(dtype, self._first, self._second) == self.dtype:
            return self
        return ConvBlocks(self.model, self._first, self._second, kind=self.kinds, dtype=dtype, **self.options)

    def diagonal(self) -> Array:
        return self.diagonals()[0]

    def diagonals(self) -> list[Array]:
        """K(x_i, x_i) for each kind in float64, from the variances alone where nothing is pooled."""
        if self._diagonals is None:
            self._diagonals = self._exact_diagonals()
        return self._diagonals

    def block(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = False) -> Array:
        return self.planes(rows, columns, None if out is None else out[None], progress)[0]

    def planes(self, rows: slice, columns: slice, out: Array | None = None, progress: Progress = None) -> Array:
        """One rectangle of every kind, shape (kinds, rows, columns)."""
        began = time.perf_counter()
        (i0, i1, _), (j0, j1, _) = rows.indices(self.shape[0]), columns.indices(self.shape[1])
        result = np.empty((len(self.kinds), i1 - i0, j1 - j0), self.dtype) if out is None else out
        symmetric = self.symmetric and (i0, i1) == (j0, j1)
        counts = self._fill(result, (i0, i1, j0, j1), symmetric, progress)
        if self.symmetric:
            shared = np.arange(max(i0, j0), min(i1, j1))
            for plane, diagonal in zip(result, self.diagonals(), strict=True):
                plane[shared - i0, shared - j0] = diagonal[shared]
        self._record(counts, time.perf_counter() - began)
        return result

    @property
    def info(self) -> ConvInfo:
        """What was done so far, over all rectangles."""
        pairs, evaluations, steps, residual, error = self._counts.tolist()
        return ConvInfo(
            "newton and chebyshev" if self.depth is None else "layer by layer",
            int(pairs),
            evaluations / max(pairs, 1),
            steps / max(pairs, 1),
            residual,
            error,
            self._compile_seconds,
            self._seconds,
        )

    # --- tiles ---------------------------------------------------------------------------

    def _fill(self, out: Array, rectangle: Tile, symmetric: bool, progress: Progress) -> Array:
        """All pairs of a rectangle, tile by tile on a pool of threads; what the tiles counted."""
        i0, i1, j0, j1 = rectangle
        threads = numba.get_num_threads()
        pairs = (i1 - i0) * (j1 - j0) // (2 if symmetric else 1)
        size = int(np.clip(math.isqrt(pairs // (4 * threads)), _SMALLEST_TILE, _LARGEST_TILE))
        tiles = [
            (i, min(i + size, i1), j, min(j + size, j1))
            for i in range(i0, i1, size)
            for j in range(i if symmetric else j0, j1, size)
        ]

        def work(tile: Tile) -> Array:
            a, b, c, d = tile
            values, counts = self._tile(tile, symmetric)
            out[:, a - i0 : b - i0, c - j0 : d - j0] = values
            if symmetric:
                mirror(out, len(out), a - i0, b - i0, c - j0, d - j0)
            return counts

        total = np.zeros(INFO)
        with reporter("kernel", len(tiles), progress) as report, ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(work, tile) for tile in tiles]
            try:
                for done, future in enumerate(futures, 1):
                    total = _merge(total, future.result())
                    report(done, len(tiles))
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        return total

    def _tile(self, tile: Tile, symmetric: bool) -> tuple[Array, Array]:
        """Values (kinds, rows, columns) in float64 and what was counted; above the diagonal only if symmetric."""
        a, b, c, d = tile
        values, counts = np.zeros((len(self.kinds), b - a, d - c)), np.zeros(INFO)
        first = a - c + 1 if symmetric else -(b - a)
        for arguments in self._problems(tile):
            self._tile_pass(values, *arguments, first, counts)
        return values, counts

    def _problems(self, tile: Tile) -> Iterator[tuple[Any, ...]]:
        """The arguments of a compiled pass: one problem, or one for each offset where positions are pooled."""
        a, b, c, d = tile
        geometry = self.geometry
        yield self._arguments(
            self._left.pixels[a:b],
            self._right.pixels[c:d],
            self._left.parts,
            self._right.parts,
            self._left.entry[a:b],
            self._right.entry[c:d],
            geometry,
            geometry.spread,
            geometry.lowest,
        )

    def _arguments(
        self,
        X: Array,
        Y: Array,
        L: Array,
        R: Array,
        left: Array,
        right: Array,
        geometry: Geometry,
        spread: Array,
        lowest: float,
    ) -> tuple[Any, ...]:
        real = self.dtype.type
        angle, lens = arc_polynomials(self.dtype.name)
        arc = self._arc
        numbers = (
            arc.power, arc.bend, arc.recurrent, 1 / arc.rest, 2.0, lowest, *_GOALS[self.dtype.name], self.model.input
        )  # fmt: skip
        polynomials = (angle, lens, guess_polynomial(arc))
        wants = ("ntk" in self.kinds or "ntk_injected" in self.kinds, "ntk_frozen_input" in self.kinds)
        return (
            X, Y, L, R, left, right, geometry.place(spread, self.dtype),
            *(tuple(map(real, polynomial)) for polynomial in polynomials), tuple(map(real, numbers)),
            np.array(kind_codes(self.kinds)), wants, geometry.shape, geometry.taps,
            aligned((BUFFERS, geometry.length), self.dtype),
        )  # fmt: skip

    def _compile(self) -> float:
        """Compile (or load) the pass; return the seconds it took."""
        began = time.perf_counter()
        arguments = (np.zeros((1, 1, 1)), *next(self._problems((0, 1, 0, 1))), 0, np.zeros(INFO))
        self._tile_pass.compile(tuple(numba.typeof(argument) for argument in arguments))
        return time.perf_counter() - began

    def _record(self, counts: Array, seconds: float) -> None:
        acceptable = _ACCEPTABLE[self.dtype.name]
        with self._lock:
            warned = self._counts[4] > acceptable
            self._counts = _merge(self._counts, counts)
            self._seconds += seconds
        if counts[4] > acceptable and not warned:
            warnings.warn(
                f"the iteration reached an estimated relative error of {counts[4]:.1e} only "
                f"(residual {counts[3]:.1e}) with {self.model}; use a smaller recurrent",
                ConvergenceWarning,
                stacklevel=4,
            )

    # --- the diagonal --------------------------------------------------------------------

    def _exact_diagonals(self) -> list[Array]:
        """With ρ = 1 everything is linear in the variances: Ġ = v."""
        arc, geometry = self._arc, self.geometry
        variance = self._left.root**2
        power, factor = arc.power, arc.recurrent * arc.power
        last = variance[-1]
        if self.depth is None:
            tangent = geometry.solve(factor, last)
            own = geometry.solve(factor, factor * geometry.average(last))
        else:
            tangent, own = variance[0], np.zeros_like(last)
            for before, after in pairwise(variance):
                tangent = after + factor * geometry.average(tangent)
                own = factor * geometry.average(before + own)
        fields = {
            "ck": power * last,
            "nngp": last,
            "ntk": power * (last + tangent),
            "ntk_frozen_input": power * (last + own),
            "ntk_injected": tangent,
        }
        return [fields[kind].sum(axis=(1, 2))[self._left.entry] for kind in self.kinds]


def _merge(first: Array, second: Array) -> Array:
    return np.concatenate([first[:3] + second[:3], np.maximum(first[3:], second[3:])])
