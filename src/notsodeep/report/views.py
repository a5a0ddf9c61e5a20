"""The data of each picture of a study, as arrays; `pictures` draws them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.activations import Activation
from notsodeep.gaussian import moments
from notsodeep.highdim.fitted import HeldOut
from notsodeep.kinds import Kind
from notsodeep.one_layer import SphereMatch
from notsodeep.recursion import Recursion
from notsodeep.study import Study

Array = NDArray[Any]
_FEW_FEATURES = 0.25  # below this p/n the bulk of the spectrum differs from the theory


@dataclass(frozen=True)
class Panel:
    """An activation over the density N(0, width²) of its input; `color` is a name of the style."""

    title: str
    activation: Activation
    x: Array
    y: Array
    density: Array
    color: str


def activations(study: Study) -> list[Panel]:
    """φ of the DEQ and σ_l of every explicit layer."""
    square = study.tau0**2
    cell = Recursion(study.deq.centered(study.tau0).layers, closed=True)
    variances = cell.passed(cell.state(square, centered=True), square, centered=True)
    several = len(variances) > 1
    panels = [
        _panel(f"implicit layer {k}: φ{subscript(k)}" if several else "implicit: φ", phi, math.sqrt(q), "implicit")
        for k, (phi, q) in enumerate(zip(cell.activations, variances, strict=True), 1)
    ]
    width = study.tau0
    for k, layer in enumerate(study.network.activations, 1):
        panels.append(_panel(f"explicit layer {k}: σ{subscript(k)}", layer, width, "explicit"))
        width = math.sqrt(moments(layer, width).power)
    return panels


@dataclass(frozen=True)
class OneLayer:
    """k(t) of the model and of the single layer, sums of its first terms with their dashes, b_k, σ and φ."""

    t: Array
    kernel: Array
    layer: Array
    sums: dict[int, tuple[Array, str]]
    orders: Array
    coefficients: Array
    x: Array
    sigma: Array
    phi: Array


def one_layer(single: SphereMatch) -> OneLayer:
    """The kernel on the sphere of radius τ0, and the activation designed from its power series."""
    model, tau0 = single.reference, single.tau0
    k = model.on_sphere(single.kind, tau0)
    t = np.linspace(-1, 1, 201)
    b = k.series(1000)
    sums = {count: (np.polynomial.polynomial.polyval(t, b[:count]), dashes) for count, dashes in ((2, ":"), (4, "--"))}
    orders = np.flatnonzero(b > 1e-16 * k(1.0))
    orders = orders[orders > 0]
    kept = orders[np.unique(np.geomspace(1, len(orders), 80).astype(int) - 1)]
    layer = single.network.on_sphere(Kind.of(single.kind).explicit, tau0)(t)
    x = np.linspace(-4 * tau0, 4 * tau0, 401)
    phi, sigma = model.recursion().activations[0], single.network.activations[0]
    return OneLayer(t, k(t), layer, sums, kept, b[kept], x, np.asarray(sigma(x)), np.asarray(phi(x)))


def _panel(title: str, act: Activation, width: float, color: str) -> Panel:
    x = np.linspace(-4 * width, 4 * width, 401)
    return Panel(title, act, x, np.asarray(act(x)), np.exp(-((x / width) ** 2) / 2), color)


def subscript(k: int) -> str:
    """The number as a small index, ``12`` as ``₁₂``."""
    return "".join(chr(ord("₀") + int(digit)) for digit in str(k))


def few_features(study: Study) -> str:
    """A remark if there are too few features for the theory of spectra, otherwise an empty string."""
    n, p = study.data.X.shape
    if p >= _FEW_FEATURES * n:
        return ""
    return f"p/n = {p / n:.2g} is small: only the large eigenvalues follow the theory"


@dataclass(frozen=True)
class Histogram:
    """Shares of the eigenvalues between consecutive `edges`, of each kernel and of the limiting law."""

    edges: Array
    implicit: Array
    explicit: Array
    limit: Array
    outliers: Array
    samples: int

    @property
    def floor(self) -> float:
        """Half an eigenvalue: the lower limit of a logarithmic axis of shares."""
        return 0.5 / self.samples

    @property
    def ceiling(self) -> float:
        return 4 * float(max(self.implicit.max(), self.limit.max()))


def histogram(study: Study, bins: int = 55) -> Histogram:
    """All eigenvalues, in bins of equal ratio."""
    exact, matched, equivalent = eigenvalues(study)
    low, high = float(min(exact[0], equivalent[0])), float(max(exact[-1], equivalent[-1]))
    low = max(low, 1e-4 * high)  # leave out zero eigenvalues, which are rounding noise on a log axis
    edges = np.geomspace(low / 1.1, high * 1.1, bins + 1)
    implicit, explicit = (np.histogram(values, edges)[0] / len(exact) for values in (exact, matched))
    limit = np.diff(study.spectrum.cdf(edges))  # atoms included
    return Histogram(edges, implicit, explicit, limit, np.asarray(study.spectrum.outliers), len(exact))


def eigenvalues(study: Study) -> tuple[Array, Array, Array]:
    """Of the implicit kernel, of the matched one and of the high-dimensional equivalent, ascending."""
    return study.eigenvalues, study.matched_eigenvalues, np.sort(study.equivalent_eigenvalues)


@dataclass(frozen=True)
class HeatMaps:
    """Both kernels on a few samples sorted by label, and their difference times `factor`.

    `bound` limits the colours; `labels` are those of the samples, or None.
    """

    implicit: Array
    explicit: Array
    difference: Array
    factor: int
    bound: float
    labels: Array | None

    @property
    def ticks(self) -> dict[float, str]:
        """Position and first letters of each label; empty if there are too many labels to read."""
        if self.labels is None or len(names := np.unique(self.labels)) > 12:
            return {}
        return {float(np.flatnonzero(self.labels == name).mean()): _short(str(name)) for name in names}


def _short(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}…"


def heat_maps(study: Study, count: int = 120) -> HeatMaps:
    """The kernels on `count` samples."""
    rows = np.random.default_rng(0).permutation(len(study.kernel))[:count]
    labels = study.data.labels
    rows = np.sort(rows) if labels is None else rows[np.argsort(labels[rows], kind="stable")]
    exact, matched = (kernel[np.ix_(rows, rows)] for kernel in (study.kernel, study.matched.kernel))
    bound = float(np.quantile(np.abs(exact[~np.eye(len(rows), dtype=bool)]), 0.995))
    gap = float(np.quantile(np.abs(matched - exact), 0.995))
    factor = 10 ** max(0, math.floor(math.log10(bound / gap))) if gap else 1  # make it visible
    return HeatMaps(exact, matched, factor * (matched - exact), factor, bound, None if labels is None else labels[rows])


@dataclass(frozen=True)
class EntryPairs:
    """Kernel entries of pairs of different samples: `implicit`, and one array for each explicit network.

    `names` lists the two samples of each pair.
    """

    names: list[str]
    implicit: Array
    explicit: tuple[Array, ...]
    limits: tuple[float, float]


def pairs(study: Study, count: int) -> EntryPairs:
    """At most `count` pairs drawn at random."""
    rows, columns = np.triu_indices(len(study.kernel), 1)
    pick = np.random.default_rng(0).choice(len(rows), min(len(rows), count), replace=False)
    first, second = rows[pick], columns[pick]
    implicit = study.kernel[first, second]
    explicit = tuple(entry.kernel[first, second] for entry in study.closeness)
    low, high = min(v.min() for v in (implicit, *explicit)), max(v.max() for v in (implicit, *explicit))
    margin = 0.04 * (high - low)
    labels = study.data.labels
    samples = [f"{row}" if labels is None else f"{row} (label {labels[row]})" for row in range(len(study.kernel))]
    names = [f"{samples[a]} and {samples[b]}" for a, b in zip(first, second, strict=True)]
    return EntryPairs(names, implicit, explicit, (float(low - margin), float(high + margin)))


def checks(study: Study) -> dict[str, HeldOut]:
    """The forecast of each network beside what its exact kernel reaches; empty where there is no forecast."""
    both = {"implicit": study.outlook.implicit, "explicit": study.outlook.explicit}
    return {name: one.check for name, one in both.items() if one is not None and one.check is not None}
