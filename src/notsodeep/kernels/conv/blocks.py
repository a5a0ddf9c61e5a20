"""Any rectangle of a convolutional kernel matrix; the work per image is done once."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numba
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from notsodeep.checks import InputError, choice, count
from notsodeep.kernels.arc import Arc
from notsodeep.kernels.conv.arcs import arc_polynomials, guess_polynomial
from notsodeep.kernels.conv.geometry import Geometry, aligned
from notsodeep.kernels.conv.images import Images, check_images, parts
from notsodeep.kernels.conv.offsets import Offset, offsets
from notsodeep.kernels.conv.pairs import BUFFERS, INFO, equilibrium_tile, layered_tile
from notsodeep.kernels.info import ConvInfo
from notsodeep.kernels.matrices import ComputedBlocks
from notsodeep.kernels.passes import mirror
from notsodeep.kinds import kind_codes, requested_kinds
from notsodeep.models import ConvDEQ, require_infinite_width
from notsodeep.progress import Progress, reporter
from notsodeep.threads import plain_pool

__all__ = ["ConvBlocks"]

Array: TypeAlias = NDArray[Any]
Tile: TypeAlias = tuple[int, int, int, int]

_GOALS = {"float64": (6e-13, 2e-12), "float32": (2.5e-7, 1e-5)}  # residuals of the angle and of Θ
_POOLED = 0.1  # factor on the latter: a mean over positions is smaller than the kernels at the positions
_VARIANCES = 4 * float(np.finfo(np.float64).eps)  # relative error of one layer's variances
_LARGEST_TILE, _SMALLEST_TILE = 64, 4


@dataclass(frozen=True)
class Counts:
    """Counters of the compiled passes."""

    pairs: float = 0.0
    evaluations: float = 0.0
    steps: float = 0.0
    residual: float = 0.0
    error: float = 0.0

    def merge(self, other: Counts) -> Counts:
        """Return the counts of both; a NaN stays one."""
        return Counts(
            self.pairs + other.pairs,
            self.evaluations + other.evaluations,
            self.steps + other.steps,
            float(np.maximum(self.residual, other.residual)),
            float(np.maximum(self.error, other.error)),
        )


class ConvBlocks(ComputedBlocks):
    """K(x_i, y_j) of a convolutional DEQ, by rectangles.

    Parameters
    ----------
    model : ConvDEQ
    images : array (n, rows, columns, channels)
    other : array (m, rows, columns, channels), optional
        The images themselves when absent; the matrix is then symmetric.
    kind, dtype, depth, readout, pool
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
        pool: int | None = None,
    ) -> None:
        began = time.perf_counter()
        if not isinstance(model, ConvDEQ):
            raise InputError(f"model={model!r} is not convolutional; pass a ConvDEQ")
        kinds = requested_kinds(model, kind)
        self.readout = choice(readout, ("flatten", "average_pool"), "readout")
        self.pool = None if pool is None else count(pool, "pool")
        if self.pool is not None and self.readout == "flatten":
            raise InputError(f'pool={pool} is the side of pooled blocks; pass readout="average_pool" as well')
        self.depth = None if depth is None else count(depth, "depth", minimum=0)
        if depth is None:
            require_infinite_width(model)
        first = check_images(images, "images", model)
        second = None if other is None else check_images(other, "other", model)
        if second is not None and second.shape[1:] != first.shape[1:]:
            raise InputError(
                f"other has images of shape {second.shape[1:]} but images of {first.shape[1:]}; "
                "both need the same rows, columns and channels"
            )
        super().__init__(model, kinds, dtype, first, second)
        rows, width = first.shape[1:3]
        self.geometry = Geometry.of(rows, width, model.filter_size, model.padding == "circular")
        self._block = (1, 1) if self.readout == "flatten" else _block_sides(rows, width, self.pool)
        self._left = Images.of(first, model, self.geometry, self.depth, self.dtype)
        self._right = self._left
        if second is not None:
            self._right = Images.of(second, model, self.geometry, self.depth, self.dtype)
        self._arc = Arc.of(model.activation, model.recurrent)
        self._tile_pass: Any = equilibrium_tile if self.depth is None else layered_tile
        self._compile_seconds = self._compile()
        self._sizes = [self._sizes_of(images) for images in (self._left, self._right)]
        self._work = Counts()
        self._seconds = time.perf_counter() - began

    @property
    def options(self) -> dict[str, Any]:
        return {"depth": self.depth, "readout": self.readout, "pool": self.pool}

    @property
    def _natural(self) -> float:
        """1/(1 − σ_a² v), or its finite-depth counterpart."""
        rest = self._arc.rest
        if self.depth is None:
            return 1 / rest
        return min(self.depth + 1.0, 1 / rest if rest > 0 else np.inf)

    @property
    def _pooled(self) -> bool:
        return self._block != (1, 1)

    @property
    def info(self) -> ConvInfo:
        """What was done so far, over all rectangles."""
        work = self._work
        return ConvInfo(
            "newton and chebyshev" if self.depth is None else "layer by layer",
            int(work.pairs),
            work.evaluations / max(work.pairs, 1),
            work.steps / max(work.pairs, 1),
            work.residual,
            float(np.maximum(work.error, self._rounding)),
            self._compile_seconds,
            self._seconds,
        )

    def _complaint(self, work: Counts) -> str:
        return (
            f"the iteration reached an estimated relative error of {work.error:.1e} only "
            f"(residual {work.residual:.1e}) with {self.model}; use a smaller recurrent"
        )

    # --- tiles ---------------------------------------------------------------------------

    def _fill(self, out: Array, rows: slice, columns: slice, symmetric: bool, progress: Progress) -> Counts:
        """Compute all pairs of a rectangle, tile by tile on a pool of threads; return the sum of the counters."""
        i0, i1, j0, j1 = rows.start, rows.stop, columns.start, columns.stop
        threads = numba.get_num_threads()
        pairs = (i1 - i0) * (j1 - j0) // (2 if symmetric else 1)
        largest = _LARGEST_TILE // (2 if self._pooled else 1)
        size = int(np.clip(math.isqrt(pairs // (4 * threads)), _SMALLEST_TILE, largest))
        tiles = [
            (i, min(i + size, i1), j, min(j + size, j1))
            for i in range(i0, i1, size)
            for j in range(i if symmetric else j0, j1, size)
        ]

        stop = threading.Event()

        def work(tile: Tile) -> Counts:
            a, b, c, d = tile
            values, counts = self._tile(tile, symmetric, stop)
            out[:, a - i0 : b - i0, c - j0 : d - j0] = values
            if symmetric:
                mirror(out, len(out), a - i0, b - i0, c - j0, d - j0)
            return counts

        total = Counts()
        with reporter("kernel", len(tiles), progress) as report, plain_pool() as pool:
            try:
                for done, counts in enumerate(pool.map(work, tiles), 1):
                    total = total.merge(counts)
                    report(done, len(tiles))
            except BaseException:
                stop.set()
                raise
        return total

    def _tile(self, tile: Tile, symmetric: bool, stop: threading.Event | None = None) -> tuple[Array, Counts]:
        """Values (kinds, rows, columns) in float64 and the counters; only above the diagonal if symmetric."""
        a, b, c, d = tile
        values, trust, info = np.zeros((len(self.kinds), b - a, d - c)), np.zeros((2, b - a, d - c)), np.zeros(INFO)
        # flattened, the diagonal comes from the variances
        first = a - c + (0 if self._pooled else 1) if symmetric else -(b - a)
        for arguments in self._problems(tile):
            if stop is not None and stop.is_set():
                break
            self._tile_pass(values, trust, *arguments, first, info)
        if self._pooled:
            values /= math.prod(self._block) ** 2
            trust /= math.prod(self._block) ** 2
        error = self._rounding + self._relative(trust, slice(a, b), slice(c, d))
        pairs, evaluations, steps, residual = info.tolist()
        return values, Counts(pairs, evaluations, steps, residual, error)

    def _relative(self, trust: Array, rows: slice, columns: slice) -> float:
        """The largest of these errors, divided by √(K_ii K_jj)."""
        worst, power = 0.0, self._arc.power
        factors = {"ck": power, "ntk_injected": self.geometry.border / power}
        for kind, left, right in zip(self.kinds, *self._sizes, strict=True):
            error = trust[1 if kind.startswith("ntk") else 0] * factors.get(kind, 1.0)
            scale = np.multiply.outer(np.sqrt(left[rows]), np.sqrt(right[columns]))
            ratio = np.divide(error, scale, out=np.zeros_like(error), where=scale > 0)
            worst = float(np.maximum(worst, ratio.max()))
        return worst

    @property
    def _rounding(self) -> float:
        """Relative error of the variances, and of the diagonal made from them."""
        return _VARIANCES * self._natural + float(np.finfo(self.dtype).eps)

    def _sizes_of(self, images: Images) -> list[Array]:
        """K(x, x) of each image and kind, or a lower bound of it where positions are pooled."""
        whole = self._exact_diagonals(images)
        if not self._pooled:
            return whole
        covariance, dual = images.pooled(self.model, self.geometry, self._block)
        least = [covariance if kind in ("nngp", "ntk_injected") else dual for kind in self.kinds]
        tiny = np.finfo(np.float64).eps / math.prod(self._block)
        return [np.maximum(floor, tiny * flat) for floor, flat in zip(least, whole, strict=True)]

    def _problems(self, tile: Tile) -> Iterator[tuple[Any, ...]]:
        """The arguments of a compiled pass: one problem, or one for each offset where positions are pooled."""
        a, b, c, d = tile
        left, right, geometry = self._left, self._right, self.geometry
        if not self._pooled:
            pairs = (left.pixels[a:b], right.pixels[c:d], left.parts, right.parts, left.entry[a:b], right.entry[c:d])
            yield self._arguments(pairs, geometry, None, geometry.spread, geometry.lowest)
            return
        first = left.sources(slice(a, b), geometry)
        second = right.sources(slice(c, d), geometry)
        entries = (np.arange(b - a), np.arange(d - c))
        for offset in offsets(geometry, self._block):
            inner, counted = offset.geometry, offset.counted(self._block)
            X, L = self._moved(*first, offset, offset.first)
            Y, R = self._moved(*second, offset, offset.second)
            some = None if counted.all() else counted
            yield self._arguments((X, Y, L, R, *entries), inner, some, offset.spread(counted), offset.lowest)

    def _moved(
        self, pixels: Array, root: Array, sources: Array, offset: Offset, part: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        """Pixels and parts of some images where they overlap with those they are compared to."""
        inner = offset.geometry
        stacked = np.stack([part(root), part(sources), offset.missed(sources, part)])
        variances, origins, missed = np.swapaxes(stacked, 1, 2)
        placed = parts(variances, origins, missed, part(self.geometry.area), inner, self.dtype)
        return inner.place(part(pixels), self.dtype), placed

    def _arguments(
        self, pairs: tuple[Array, ...], geometry: Geometry, counted: Array | None, spread: Array, lowest: float
    ) -> tuple[Any, ...]:
        real = self.dtype.type
        angle, lens = arc_polynomials(self.dtype.name)
        arc = self._arc
        goal, tangent_goal = _GOALS[self.dtype.name]
        tangent_goal *= _POOLED if self._pooled else 1.0
        numbers = (
            arc.power, arc.bend, arc.recurrent, self._natural, 2.0, lowest, goal, tangent_goal, self.model.input,
            self.geometry.border,
        )  # fmt: skip
        guess = guess_polynomial(arc) if self.depth is None else ()
        polynomials = (angle, lens, guess)
        wants = ("ntk" in self.kinds or "ntk_injected" in self.kinds, "ntk_frozen_input" in self.kinds)
        buffer = aligned((BUFFERS, geometry.length), self.dtype)
        return (
            *pairs, np.empty(0, self.dtype) if counted is None else geometry.place(counted, self.dtype),
            geometry.place(spread, self.dtype),
            *(tuple(map(real, polynomial)) for polynomial in polynomials), tuple(map(real, numbers)),
            np.array(kind_codes(self.kinds)), wants, geometry.shape, geometry.taps,
            buffer, buffer.view(f"int{8 * self.dtype.itemsize}"),
        )  # fmt: skip

    def _compile(self) -> float:
        """Compile (or load) the pass; return the seconds it took."""
        began = time.perf_counter()
        whole = np.zeros((1, 1, 1))
        arguments = (whole, whole, *next(self._problems((0, 1, 0, 1))), 0, np.zeros(INFO))
        self._tile_pass.compile(tuple(numba.typeof(argument) for argument in arguments))
        return time.perf_counter() - began

    # --- the diagonal --------------------------------------------------------------------

    @property
    def _diagonal_is_known(self) -> bool:
        return not self._pooled

    def _diagonal_of_each(self) -> list[Array]:
        if self._pooled:
            found = [self._tile((i, i + 1, i, i + 1), False)[0] for i in range(self.shape[0])]
            return list(np.concatenate(found, axis=1)[:, :, 0])
        return self._sizes[0]

    def _exact_diagonals(self, images: Images) -> list[Array]:
        """With ρ = 1 everything is linear in the variances: Ġ = v."""
        arc, geometry = self._arc, self.geometry
        variance = images.root**2
        power, factor = arc.power, arc.recurrent * arc.power
        last = variance[-1]
        if self.depth is None:
            tangent = geometry.solve(factor, last)
            own = factor * geometry.average(tangent)  # B commutes with the solution
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
        return [fields[kind].sum(axis=(1, 2))[images.entry] for kind in self.kinds]


def _block_sides(rows: int, width: int, pool: int | None) -> tuple[int, int]:
    """Rows and columns of the blocks that are pooled: `pool`, but no more than the image has; None is all of it."""
    most = max(rows, width)
    fitting = [c for c in range(1, most + 1) if rows % min(c, rows) == 0 and width % min(c, width) == 0]
    side = most if pool is None else min(pool, most)
    if side not in fitting:
        raise InputError(
            f"pool={pool} leaves incomplete blocks at the border of {rows}×{width} images; "
            f"use one of {', '.join(map(str, fitting))}"
        )
    return min(side, rows), min(side, width)
