"""The limiting spectrum of a kernel on mixture data: density, atoms and outliers, without a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, count, warn_assumption, warn_convergence
from notsodeep.display import card, curve
from notsodeep.highdim.four_numbers import FourNumbers, coefficients
from notsodeep.highdim.mixture import Mixture, statistics_of
from notsodeep.highdim.population import Directions
from notsodeep.highdim.resolvent import Resolvent
from notsodeep.highdim.statistics import Statistics
from notsodeep.models import DEQ, Explicit

__all__ = ["Spectrum", "spectrum"]

Array: TypeAlias = NDArray[Any]

_ACCEPTABLE = 0.1  # relative error of an outlier that raises no warning


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of M̄ = c₁ WWᵀ + δI + low rank, for large n and p.

    Attributes
    ----------
    weights : FourNumbers
        (c₁, c₂, c₃, d) of the kernel.
    shift : float
        δ = d − τ₀²c₁.
    support : array (s, 2)
        Intervals of the continuous part.
    atoms : tuple of (location, mass)
        Point masses: eigenvalues equal to δ when p < n.
    outliers : array
        Isolated eigenvalues from the low-rank part, ascending.
    x, y : array
        A grid over the support and the density on it, ready to plot.
    mass : float
        Total mass found, atoms included; 1 up to the error of the quadrature.
    residual : float
        Largest relative residual of the fixed-point equation on the grid.
    caveats : tuple of str
        Assumptions of the theory that these data break, with what was compared; empty when there are none.
    """

    weights: FourNumbers
    shift: float
    support: Array
    atoms: tuple[tuple[float, float], ...]
    outliers: Array
    x: Array = field(repr=False)
    y: Array = field(repr=False)
    mass: float
    residual: float
    caveats: tuple[str, ...]
    _cumulative: Array = field(repr=False)
    _resolvent: Resolvent = field(repr=False)

    def density(self, x: ArrayLike) -> Array:
        """Density of the continuous part at any x, computed there, not interpolated."""
        points = np.atleast_1d(np.asarray(x, dtype=np.float64))
        result = np.zeros_like(points)
        inside = ((points[..., None] > self.support[:, 0]) & (points[..., None] < self.support[:, 1])).any(axis=-1)
        if inside.any():
            values = self._resolvent.density((points[inside] - self.shift) / self.weights.c1)
            result[inside] = values / self.weights.c1
        return result.reshape(np.shape(x))

    def cdf(self, x: ArrayLike) -> Array:
        """Fraction of the eigenvalues ≤ x, without outliers."""
        points = np.asarray(x, dtype=np.float64)
        total = np.interp(points, self.x, self._cumulative, left=0.0) if self.x.size else np.zeros_like(points)
        for location, mass in self.atoms:
            total = total + mass * (points >= location)
        return np.asarray(total)

    def __str__(self) -> str:
        bulk = " ∪ ".join(f"[{low:.6g}, {high:.6g}]" for low, high in self.support) or "none"
        lines = [f"bulk      {bulk}"]
        lines += [f"atom      {location:.6g} (mass {mass:.6g})" for location, mass in self.atoms]
        lines.append("outliers  " + (", ".join(f"{value:.6g}" for value in self.outliers) or "none"))
        lines += [f"caveat    {caveat}" for caveat in self.caveats]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [("bulk", f"[{low:.6g}, {high:.6g}]") for low, high in self.support]
        rows += [("atom", f"{location:.6g}, mass {mass:.6g}") for location, mass in self.atoms]
        rows += [("outliers", ", ".join(f"{value:.6g}" for value in self.outliers) or "none")]
        label = "Density of the eigenvalues, and outliers"
        picture = curve(self.x.tolist(), self.y.tolist(), self.outliers.tolist(), label) if self.x.size else ""
        return card("Spectrum", rows, picture=picture, notes=self.caveats)


def spectrum(
    model: DEQ | DeepDEQ | Explicit,
    stats: Statistics | Mixture,
    kind: str = "ck",
    n: int | None = None,
    p: int | None = None,
) -> Spectrum:
    """Limiting eigenvalue density and outliers of a kernel, computed from the mixture statistics.

    The bulk is the law of c₁λ + δ with λ the eigenvalues of the noise Gram matrix WWᵀ, from
    its deterministic equivalent. An outlier is a root, outside the bulk, of

        det(B⁻¹ + Uᵀ(c₁WWᵀ + δ − x)⁻¹U) = 0,   U = [J/√p, ψ, Wμᵀ],

    where UBUᵀ is the low-rank part together with the cross terms of the means.
    Small groups of strong directions of C° appear as narrow intervals of the support.

    The theory assumes that ‖x‖² is nearly the same for all samples: no direction of C° has a sizeable share of its
    trace, and neither means nor class variances move E‖x‖² of a class far from τ₀². The first-order error of the
    theory is estimated from the statistics: with S = d log c₁/d log τ₀² it is x/(1 + 2x), x = 2|S|‖C°‖/tr C°, along
    the strongest direction. On spikes and power laws with shares from 0.02 to 0.4, tanh with σ_a² = 0.2, σ_b² = 0.8
    was 2 to 25 % off, and the estimate agreed within a third; relu, with S = 0, was off by 1 %. If the expected error
    is above 10 %, the call raises an :class:`~notsodeep.checks.AssumptionWarning` and keeps the reasons in
    ``caveats``.

    Parameters
    ----------
    model : DEQ, DeepDEQ or Explicit
    stats : Statistics or Mixture
        Of a mixture, with or without samples, or estimated from data.
    kind : str
        As in ``equivalent``.
    n, p : int, optional
        Size of the problem; those of `stats` when absent.

    Examples
    --------
    >>> import numpy as np, notsodeep as nsd
    >>> means = np.zeros((2, 400)); means[0, 0], means[1, 1] = 4, 4
    >>> mix = nsd.Mixture(means, covariances=[1.0, 1.2], proportions=[0.5, 0.5])
    >>> s = nsd.spectrum(nsd.DEQ("relu", recurrent=0.2, input=0.8), mix, n=500)
    >>> s.support.shape, [round(mass, 6) for _, mass in s.atoms]
    ((1, 2), [0.2])
    >>> int((s.outliers > s.support[-1, 1]).sum())
    2
    """
    stats = statistics_of(stats)
    if n is None and stats.n is None:
        raise InputError("stats holds no samples; pass n, the number of samples")
    size = stats.n if n is None else count(n, "n")
    assert size is not None
    features = stats.p if p is None else count(p, "p")
    weights = coefficients(model, stats.tau0).weights(kind)
    shift = weights.d - stats.tau0**2 * weights.c1
    directions = stats.directions.merged()
    resolvent = Resolvent(stats.proportions * (size / features), directions.fractions, directions.variances)
    low_rank = _LowRank.of(stats, weights, directions, size, features)
    caveats = _caveats(model, stats, kind, directions, features)
    if caveats:
        warn_assumption(f"the spectrum may be far off, because {'; and '.join(caveats)}")
    if weights.c1 <= 1e-14 * weights.d:  # no linear part: only δ and the low rank are left
        empty = np.empty(0)
        values = shift + low_rank.plain_eigenvalues()
        return Spectrum(
            weights, shift, np.empty((0, 2)), ((shift, 1.0),), values, empty, empty, 1.0, 0.0, caveats, empty, resolvent
        )

    edges, mass, x, y, cumulative, residual = _bulk(resolvent)
    atoms = ((shift, resolvent.null_mass),) if resolvent.null_mass > 0 else ()
    mass += resolvent.null_mass
    if abs(mass - 1) > 1e-2 or residual > 1e-6:
        warn_convergence(
            f"the spectrum holds a mass of {mass:.4f} instead of 1 (residual {residual:.1e}); "
            "narrow parts of the bulk may be missing"
        )
    outliers = shift + weights.c1 * low_rank.outliers(resolvent, edges)
    return Spectrum(
        weights=weights,
        shift=shift,
        support=shift + weights.c1 * edges,
        atoms=atoms,
        outliers=np.sort(outliers),
        x=shift + weights.c1 * x,
        y=y / weights.c1,
        mass=mass,
        residual=residual,
        caveats=caveats,
        _cumulative=cumulative,
        _resolvent=resolvent,
    )


def _caveats(
    model: DEQ | DeepDEQ | Explicit, stats: Statistics, kind: str, directions: Directions, p: int
) -> tuple[str, ...]:
    """Which assumptions fail so badly that an eigenvalue is expected to be off by more than `_ACCEPTABLE`."""
    step = 0.02
    below, middle, above = (coefficients(model, stats.tau0 * math.exp(s)).weights(kind) for s in (-step, 0.0, step))
    linear = middle.c1 > 1e-14 * middle.d
    change = math.log(above.c1 / below.c1) / (4 * step) if linear else 0.0  # d log c1 / d log τ0²
    strongest, total = float((stats.proportions @ directions.variances).max()), p * stats.tau0**2
    x = 2 * abs(change) * strongest / total
    expected, norms = _class_error(model, stats, kind, middle, directions.means.sum(axis=0) / p, change)
    found = (
        (x / (1 + 2 * x), f"the strongest direction of C° has variance {strongest:.3g}, "
         f"{strongest / total:.0%} of tr C° = {total:.4g}"),
        (expected, f"E‖x‖² is {norms.min():.3g} … {norms.max():.3g} in the classes beside τ0² = {stats.tau0**2:.3g}"),
    )  # fmt: skip
    return tuple(
        f"{what}, with which an eigenvalue of {kind} is expected to be {error:.0%} off"
        for error, what in found
        if error > _ACCEPTABLE
    )


def _class_error(
    model: DEQ | DeepDEQ | Explicit, stats: Statistics, kind: str, weights: FourNumbers, gram: Array, change: float
) -> tuple[float, Array]:
    """Expected errors of the classes' own eigenvalue and of the bulk's edge, and E‖x‖² of each class.

    Between two classes the theory has c₁ μ_a·μ_b/p + c₂ t_a t_b/p + c₃ T_ab/p. The first two are the expansion of the
    kernel of two samples with the mean squared norms of their classes and inner product μ_a·μ_b/p.
    """
    spread = stats.t / math.sqrt(stats.p)
    noise, common = stats.tau0**2 + spread, weights.c3 * stats.T / stats.p
    norms = noise + np.diag(gram)
    theory = weights.c1 * gram + weights.c2 * np.multiply.outer(spread, spread) + common
    values, vectors = np.linalg.eigh(gram)
    means, zeros = vectors * np.sqrt(np.maximum(values, 0)), np.zeros_like(gram)
    one, another = (
        np.hstack([means, *parts]) for parts in ((np.diag(np.sqrt(noise)), zeros), (zeros, np.diag(np.sqrt(noise))))
    )
    exact = model.centered(stats.tau0).kernel(one, another, kind=kind) + common
    share = np.sqrt(np.multiply.outer(stats.proportions, stats.proportions))
    top, better = (float(np.linalg.eigvalsh(share * table)[-1]) for table in (theory, exact))
    edge = abs(change) * float(np.abs(spread).max()) / stats.tau0**2
    return max(abs(better / top - 1) if top > 0 else 0.0, edge / (1 + edge)), norms


# --- the bulk ---------------------------------------------------------------------------


def _bulk(resolvent: Resolvent) -> tuple[Array, float, Array, Array, Array, float]:
    """Edges, mass, grid, density, cumulative mass and residual, in the units of WWᵀ."""
    for per_decade in (60, 250):
        edges = _support(resolvent, per_decade)
        parts = [_panel(resolvent, low, high) for low, high in edges]
        mass = float(sum(part[2][-1] for part in parts))
        if abs(mass + resolvent.null_mass - 1) < 1e-3:
            break
    offsets = np.cumsum([0.0] + [part[2][-1] for part in parts])
    x, y = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    cumulative = np.concatenate([part[2] + offset for part, offset in zip(parts, offsets[:-1], strict=True)])
    return edges, mass, x, y, cumulative, max(part[3] for part in parts)


def _support(resolvent: Resolvent, per_decade: int) -> Array:
    """Intervals where the density is positive: a logarithmic scan, then bisection of every edge."""
    high = 1.05 * resolvent.ceiling
    low = max(1e-9 * high, resolvent.floor)
    scan = np.geomspace(low, high, int(np.log10(high / low) * per_decade) + 1)
    scan = np.unique(np.concatenate([scan, _strong_directions(resolvent)]))
    inside = resolvent.inside(scan)
    flips = np.flatnonzero(np.diff(inside))
    before = inside[flips]

    def unchanged(x: Array, edge: Array) -> Array:
        return resolvent.inside(x.ravel()).reshape(x.shape) == before[edge]

    points = list(_bracketed(unchanged, scan[flips], scan[flips + 1], bits=24))
    if inside[0]:
        points.insert(0, 0.0)  # a hard edge
    return np.array(points).reshape(-1, 2)


def _strong_directions(resolvent: Resolvent) -> Array:
    """Expected eigenvalues of a few strong directions of C°, so that the scan does not miss them."""
    pooled = resolvent.loads @ resolvent.variances  # n/p · λ
    order = np.argsort(pooled)[::-1][:60]
    seeds = []
    for i in order:
        others = pooled < 0.97 * pooled[i]
        weaker = resolvent.fractions[others] * pooled[others] / (pooled[i] - pooled[others])
        seeds.append(pooled[i] * (1 + float(weaker.sum()) / float(resolvent.loads.sum())))
    around = np.outer(seeds, [0.99, 1.0, 1.01]).ravel()
    return around[(around > 0) & (around < 1.05 * resolvent.ceiling)]


def _panel(resolvent: Resolvent, low: float, high: float) -> tuple[Array, Array, Array, float]:
    """Grid, density and cumulative mass on one interval.

    With x = middle − half·cos θ the square-root edges become smooth, and the
    trapezoidal rule in θ converges fast; a wide interval is mapped in log x.
    """
    wide = low > 0 and high > 10 * low
    ends = np.log([low, high]) if wide else np.array([low, high])
    middle, half = ends.mean(), (ends[1] - ends[0]) / 2
    previous, m, old = np.nan, None, np.empty(0)
    for nodes in (64, 128, 256, 512, 1024):
        theta = np.pi * (np.arange(nodes) + 0.5) / nodes
        u = middle - half * np.cos(theta)
        x = np.exp(u) if wide else u
        guess = None if m is None else np.stack([np.interp(theta, old, column) for column in m.T], axis=1)
        (m, residual), old = resolvent.solve(x, guess), theta
        density = resolvent.density(x, m)
        share = density * (x if wide else 1.0) * half * np.sin(theta) * np.pi / nodes
        total = share.sum()
        if abs(total - previous) <= 1e-4 * max(total, 1e-300):
            break
        previous = total
    grid = np.concatenate([[low], x, [high]])
    cumulative = np.concatenate([[0.0], np.cumsum(share) - share / 2, [total]])
    return grid, np.concatenate([[0.0], density, [0.0]]), cumulative, float(residual.max())


# --- the outliers -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _LowRank:
    """U B Uᵀ of the equivalent over c₁WWᵀ + δI, with U = [J/√p, ψ, Wμᵀ].

    Attributes
    ----------
    core : array (2K+1, 2K+1)
        B/c₁, or B itself when c₁ = 0.
    loads : array (K,)
        n_a/p.
    psi_power : array (K,)
        Σ ψ_i² over each class.
    means : array (r, K, K)
    """

    core: Array
    loads: Array
    psi_power: Array
    means: Array

    @staticmethod
    def of(stats: Statistics, weights: FourNumbers, directions: Directions, n: int, p: int) -> _LowRank:
        k = stats.proportions.size
        c1, c2, c3, _ = weights
        core = np.zeros((2 * k + 1, 2 * k + 1))
        core[: k + 1, : k + 1] = stats.low_rank_weight(c2, c3)
        core[:k, :k] += c1 * directions.means.sum(axis=0)
        core[:k, k + 1 :] = core[k + 1 :, :k] = c1 * np.eye(k)
        if stats.psi is not None and n == stats.n and p == stats.p:
            psi_power = np.bincount(np.asarray(stats.labels), stats.psi**2, minlength=k)
        else:  # Var ψ_i = 2 tr(C_a²)/p²
            psi_power = stats.proportions * n * 2 * np.diag(stats.T) / p
        return _LowRank(core / c1 if c1 > 0 else core, stats.proportions * (n / p), psi_power, directions.means)

    def gram(self, m: Array, mixing: Array) -> Array:
        """Uᵀ(WWᵀ − z)⁻¹U from the deterministic equivalent: shape (len(m), 2K+1, 2K+1)."""
        k = self.loads.size
        table = np.zeros((m.shape[0], 2 * k + 1, 2 * k + 1))
        diagonal = np.arange(k)
        table[:, diagonal, diagonal] = self.loads * m
        table[:, k, k] = m @ self.psi_power
        table[:, k + 1 :, k + 1 :] = np.einsum("nr,rab->nab", mixing / (1 + mixing), self.means, optimize=True)
        return table

    def plain_eigenvalues(self) -> Array:
        """Nonzero eigenvalues of UBUᵀ when c₁ = 0: only [J/√p, ψ] acts."""
        k = self.loads.size
        root = np.sqrt(np.append(self.loads, self.psi_power.sum()))
        return np.sort(np.linalg.eigvalsh(root[:, None] * self.core[: k + 1, : k + 1] * root))

    def outliers(self, resolvent: Resolvent, edges: Array) -> Array:
        """Roots z of det(B⁻¹c₁ + Uᵀ(WWᵀ − z)⁻¹U) outside the support.

        Uᵀ(WWᵀ − z)⁻²U ≻ 0, so the ordered eigenvalues of the matrix increase with z in every
        gap of the support: each crosses 0 at most once, and bisection finds all of them.
        """
        k = self.loads.size
        size = np.concatenate([self.loads, [self.psi_power.sum()], np.zeros(k)])
        wide = np.einsum("b,br,raa->a", resolvent.loads, resolvent.variances, self.means)
        size[k + 1 :] = wide
        keep = np.flatnonzero(size > 1e-12 * size.max())
        root = np.sqrt(size[keep])  # unit columns of U
        values, vectors = np.linalg.eigh(root[:, None] * self.core[np.ix_(keep, keep)] * root)
        used = np.abs(values) > 1e-10 * edges[-1, 1]
        if not used.any():  # an odd activation on one class: no low-rank part
            return np.empty(0)
        values, frame = values[used], vectors[:, used] / root[:, None]

        def curves(z: Array) -> Array:
            m = resolvent.outside(z)
            gram = self.gram(m, resolvent.mixing(m))[:, keep[:, None], keep]
            return np.linalg.eigvalsh(np.diag(1 / values) + frame.T @ gram @ frame)

        bound = edges[-1, 1] + 2 * keep.size * float(np.abs(values).max())
        gaps = _gaps(edges, bound, resolvent.null_mass > 0)
        low, high = gaps[:, 0], gaps[:, 1]
        starts, ends = curves(low), curves(high)
        gap, curve = np.nonzero((starts < 0) & (ends > 0))
        if not gap.size:
            return np.empty(0)

        def below(z: Array, root: Array) -> Array:
            values = curves(z.ravel()).reshape(*z.shape, -1)
            return np.take_along_axis(values, curve[root][..., None], axis=-1)[..., 0] < 0

        return _bracketed(below, low[gap], high[gap], bits=40)


def _gaps(edges: Array, bound: float, atom: bool) -> Array:
    """The complement of the support in [−bound, bound], slightly away from every edge."""
    hair = 1e-6
    first = edges[0, 0]
    gaps = []
    if first <= 0:  # a hard edge
        gaps.append((-bound, -hair * edges[0, 1]))
    elif atom:  # anything closer to the atom cannot be distinguished from it
        gaps += [(-bound, -1e-4 * first), (1e-4 * first, first * (1 - hair))]
    else:
        gaps.append((-bound, first * (1 - hair)))
    for left, right in zip(edges[:-1, 1], edges[1:, 0], strict=True):
        if right > 1.25 * left:  # at finite n the eigenvalues near the edges fill a narrower gap
            gaps.append((left * (1 + hair), right * (1 - hair)))
    gaps.append((edges[-1, 1] * (1 + hair), bound))
    return np.array(gaps)


def _bracketed(before: Callable[[Array, Array], Array], left: Array, right: Array, bits: int) -> Array:
    """Points where a monotone predicate turns false, for many brackets at once.

    `before` receives points (k, cuts) and the index of each point's bracket. Brackets of one
    sign are cut evenly in log x, the others evenly in x, until 2^−bits of them is left: into
    many parts at once where the brackets are few and a call costs more than its points.
    """
    cuts = int(np.clip(60 // max(left.size, 1), 1, 15))
    share = np.arange(1, cuts + 1) / (cuts + 1)
    index = np.broadcast_to(np.arange(left.size)[:, None], (left.size, cuts))
    for _ in range(math.ceil(bits / math.log2(cuts + 1))):
        one_sign = (left * right > 0)[:, None]
        ratio = np.where(one_sign, right[:, None] / np.where(left == 0, 1, left)[:, None], 1.0)
        points = np.where(one_sign, left[:, None] * ratio**share, left[:, None] + (right - left)[:, None] * share)
        passed = np.logical_and.accumulate(before(points, index), axis=1).sum(axis=1)
        ends = np.column_stack([left, points, right])
        left, right = ends[np.arange(left.size), passed], ends[np.arange(left.size), passed + 1]
    return np.asarray((left + right) / 2)
