"""Any rectangle of the kernel of a fully-connected network; per-sample work and the choice of method happen once."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, count, matrix
from notsodeep.kernels.gram import build
from notsodeep.kernels.info import KernelInfo
from notsodeep.kernels.matrices import ComputedBlocks
from notsodeep.kernels.pairwise import pairwise_plan
from notsodeep.kernels.plans import Plan, Summary
from notsodeep.kernels.samples import Levels, Samples, exact_diagonal, levels_of
from notsodeep.kernels.univariate import cosine_plan, homogeneous_plan
from notsodeep.kinds import requested_kinds
from notsodeep.models import DEQ, Explicit, require_infinite_width
from notsodeep.progress import Progress
from notsodeep.recursion import Recursion

__all__ = ["KernelBlocks", "check_depth", "plan_for", "radial_samples", "sized", "supported"]

Array: TypeAlias = NDArray[Any]
Network: TypeAlias = DEQ | DeepDEQ | Explicit


class KernelBlocks(ComputedBlocks):
    """K(x_i, y_j) of a DEQ, a cell or an explicit network, by rectangles.

    Parameters
    ----------
    model : DEQ, DeepDEQ or Explicit
    X : array (n, p)
    Y : array (m, p), optional
        X itself when absent; the matrix is then symmetric.
    kind, dtype, depth
        As in :func:`notsodeep.kernels.kernel`.

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> from notsodeep.kernels import KernelBlocks
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
        model: Network,
        X: ArrayLike,
        Y: ArrayLike | None = None,
        *,
        kind: str | Sequence[str] = "ck",
        dtype: DTypeLike | None = None,
        depth: int | None = None,
    ) -> None:
        began = time.perf_counter()
        kinds = requested_kinds(supported(model), kind)
        self.depth = check_depth(model, depth)
        first = matrix(X, "X", finite=False)
        second = None if Y is None else matrix(Y, "Y", finite=False)
        if second is not None and second.shape[1] != first.shape[1]:
            raise InputError(f"Y has {second.shape[1]} features but X has {first.shape[1]}; both need the same")
        super().__init__(model, kinds, dtype, first, second)
        self._left, self._radius = radial_samples(model, first, self.dtype)
        self._right, self._other = (
            (self._left, self._radius) if second is None else radial_samples(model, second, self.dtype, "Y")
        )
        self._recursion = recursion_of(model, self.depth, self._left, self._right)
        self._left, self._levels = sized(self._recursion, self._left, self.kinds)
        right = self._levels
        if self.symmetric:
            self._right = self._left
        else:
            self._right, right = sized(self._recursion, self._right, self.kinds, "Y")
        self._plan = plan_for(self._recursion, self._left, self._right, [self._levels, right], self.kinds)
        self._compile_seconds = self._plan.compile(np.empty((len(self.kinds), 1, 1), self.dtype))
        self._work = Summary(0.0, 0.0)
        self._seconds = time.perf_counter() - began

    @property
    def options(self) -> dict[str, Any]:
        return {"depth": self.depth}

    @property
    def info(self) -> KernelInfo:
        """What was done so far, over all rectangles."""
        plan, work = self._plan, self._work
        return KernelInfo(
            plan.method,
            plan.variable,
            plan.degree,
            work.residual,
            work.error,
            work.recomputed,
            work.iterations,
            self._compile_seconds,
            self._seconds,
        )

    def _diagonal_of_each(self) -> list[Array]:
        found = [exact_diagonal(self._recursion, name, self._levels) for name in self.kinds]
        return found if self._radius is None else [diagonal * self._radius**2 for diagonal in found]

    def _fill(self, out: Array, rows: slice, columns: slice, symmetric: bool, progress: Progress) -> Summary:
        left, right = self._left.rows[rows], self._right.rows[columns]
        reports = build(out, left, right, self._plan.over(rows, columns), symmetric=symmetric, progress=progress)
        if self._radius is not None and self._other is not None:
            out *= np.multiply.outer(self._radius[rows], self._other[columns]).astype(out.dtype)
        return self._plan.summarise(reports)

    def _complaint(self, work: Summary) -> str:
        found = f"{self._plan.method} reached an estimated relative error of {work.error:.1e} only"
        if self._plan.degree:
            return f"{found} ({self._plan.degree} terms); rows that nearly coincide need more with {self.model}"
        return f"{found}; with {self.model} digits are lost when samples are far larger than what its kinks are apart"


def plan_for(
    recursion: Recursion, left: Samples, right: Samples, levels: Sequence[Levels], kinds: tuple[str, ...]
) -> Plan:
    """Return the fastest plan that is accurate for this recursion and these samples."""
    only = recursion.equilibrium
    if only is not None and only.activation.shape.homogeneous:
        return homogeneous_plan(only, left, right, levels, kinds)
    return cosine_plan(recursion, left, right, levels, kinds) or pairwise_plan(recursion, left, right, levels, kinds)


def radial_samples(model: Network, X: Array, dtype: Any, parameter: str = "X") -> tuple[Samples, Array | None]:
    """The rows as they enter the network, and the factor of each in its last layer (None: 1)."""
    samples = Samples.of(X, dtype, parameter)
    if not isinstance(model, Explicit) or model.normalize is None:
        return samples, None
    inverse = np.divide(model.normalize, samples.norm, out=np.zeros(len(samples)), where=samples.norm > 0)
    rows = samples.exact.astype(np.float64, copy=False) * inverse[:, None]
    rows[samples.norm == 0, 0] = model.normalize  # any direction: its factor is 0
    return Samples.of(rows, dtype, parameter), samples.factor * samples.norm / model.normalize


def sized(
    recursion: Recursion, samples: Samples, kinds: tuple[str, ...], parameter: str = "X"
) -> tuple[Samples, Levels]:
    """The samples and their variances; rows whose squares underflow become zeros where that changes no digit."""
    gone, least = samples.vanishing(all(phi.shape.homogeneous for phi in recursion.activations))
    kept = samples.without(gone) if gone.any() else samples
    levels = levels_of(recursion, kept)
    if not all(exact_diagonal(recursion, kind, levels)[gone].all() for kind in kinds):
        shortest = float((samples.factor * samples.norm)[gone].min())
        raise InputError(
            f"{parameter} has a row of norm {shortest:.3g}, whose kernel underflows; scale {parameter} so that norms "
            f"stay above {least:g}, or set such rows to zero"
        )
    return kept, levels


def supported(model: Any) -> Network:
    if not isinstance(model, DEQ | DeepDEQ | Explicit):
        raise InputError(f"model={model!r} has no fully-connected kernel; pass a DEQ, a DeepDEQ or an Explicit")
    return model


def check_depth(model: Network, depth: int | None) -> int | None:
    if depth is not None:
        if not isinstance(model, DEQ):
            raise InputError(f"depth={depth!r} is for a DEQ; other networks have the depth of their layers")
        return count(depth, "depth", minimum=0)
    if isinstance(model, DEQ):
        require_infinite_width(model)
    return None


def recursion_of(model: Network, depth: int | None, *groups: Samples) -> Recursion:
    """The recursion of the model for these samples; a cell must contract for each of them."""
    if not isinstance(model, DeepDEQ):
        return model.recursion(depth)
    squares = np.concatenate([samples.square for samples in groups])
    low, high = float(squares.min()), float(squares.max())
    if model.needs_one_norm and high - low > 1e-12 * high:
        raise InputError(
            f"X has rows of norm {math.sqrt(low):.6g} and {math.sqrt(high):.6g}; the skip before the normalisation of "
            f"{model} acts on each norm differently: pass rows of one norm"
        )
    found = model.recursion(high)
    if not found.normalized:
        require_infinite_width(model)
        return found
    for square in np.unique(np.quantile(squares, np.linspace(0, 1, 9))).tolist():
        if not (value := found.contraction(square)) < 1:
            raise InputError(
                f"{model} does not contract at ‖x‖ = {math.sqrt(square):.6g}: Π recurrent·E[φ'²]/divisor² = "
                f"{value:.6g}; use smaller recurrent or larger input variances"
            )
    return found
