"""A DEQ, the explicit network designed for it, and how close their kernels are on data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.cells import DeepDEQ
from notsodeep.checks import AssumptionWarning, InputError
from notsodeep.data import Data
from notsodeep.highdim import Forecast, Spectrum, Statistics, equivalent, estimate_statistics, forecast, spectrum
from notsodeep.kinds import Kind
from notsodeep.matching import Match
from notsodeep.models import DEQ, Explicit
from notsodeep.norms import distance, rescaled_distance
from notsodeep.progress import Progress, Reporter, reporter

__all__ = ["Closeness", "Outlook", "Study", "closer_network"]

Array = NDArray[np.float64]
_GAUSSIAN = (400, 500)  # n and p of the Gaussian cloud that replaces absent data
_BASELINES = ("relu", "tanh")
_RIDGES = np.geomspace(1e-3, 10, 13)  # of the forecast, in units of the diagonal d
_GENERAL = 300  # up to this p a forecast uses one covariance per class, which costs p³ at every ridge


@dataclass(frozen=True)
class Closeness:
    """Distance of an explicit network's kernel to the DEQ's, in spectral norm.

    Attributes
    ----------
    name : str
        Which network.
    error : float
        ‖G_DEQ − Σ‖ / ‖G_DEQ‖.
    rescaled_error : float
        The same after multiplying Σ by the best scalar.
    kernel : array of shape (n, n)
    """

    name: str
    error: float
    rescaled_error: float
    kernel: Array = field(repr=False, compare=False)


@dataclass(frozen=True)
class Outlook:
    """The forecast of accuracy with each of the two kernels, over many ridges, or the reason why there is none."""

    implicit: Forecast | None = None
    explicit: Forecast | None = None
    obstacle: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, JSON-ready."""
        both = {"implicit": self.implicit, "explicit": self.explicit}
        return {**{name: one and one.to_dict() for name, one in both.items()}, "obstacle": self.obstacle}


@dataclass(frozen=True)
class Study:
    """Everything `notsodeep match` prints, draws and writes about kernels."""

    match: Match
    data: Data
    normalize: str | None
    kernel: Array = field(repr=False)
    matched: Closeness
    baselines: tuple[Closeness, ...]

    @classmethod
    def of(
        cls, match: Match, data: Data | None = None, *, normalize: str = "center", progress: Progress = None
    ) -> Study:
        """Measure a match on data.

        Parameters
        ----------
        match : Match
            Of a DEQ or a cell.
        data : Data, optional
            Without data, a Gaussian cloud x ~ N(0, τ0² I/p) is used.
        normalize : {"center", "unit", "none"}
            Rows are centred and scaled to mean ‖x‖² = τ0², or scaled to ‖x‖ = τ0, or used as they are.
        progress : bool, callable or None
            See :func:`notsodeep.progress.reporter`.
        """
        if isinstance(match.model, Explicit):
            raise InputError(f"model={match.model} is not a DEQ; a study compares a DEQ with an explicit network")
        tau0 = match.tau0
        if data is None:
            n, p = _GAUSSIAN
            if isinstance(match.model, DeepDEQ):  # the cost of deep cells stays within seconds
                n //= min(max(math.isqrt(len(match.model.layers) // 2), 1), 4)
            cloud = np.random.default_rng(0).normal(scale=tau0 / np.sqrt(p), size=(n, p))
            used = Data(f"Gaussian cloud, τ0 = {tau0:.6g}", cloud)
        else:
            used = data.prepared(normalize)
            if normalize != "none":
                used = replace(used, X=tau0 * used.X, X_test=None if used.X_test is None else tau0 * used.X_test)
        networks = {"matched": match.network}
        for name in _BASELINES:
            networks[f"plain {name}"] = Explicit([name] * match.network.depth).centered(tau0)
        with reporter("kernels", progress=progress) as report:
            kernel = _kernel("implicit", match.model.centered(tau0), used.X, match.kind, report)
            kind = explicit_kind(match)
            matched, *baselines = (
                _closeness(name, kernel, _kernel(name, network, used.X, kind, report))
                for name, network in networks.items()
            )
        return cls(match, used, None if data is None else normalize, kernel, matched, tuple(baselines))

    @property
    def rows(self) -> str:
        """How the rows of the data were prepared."""
        return {
            None: "drawn",
            "center": f"centred, and scaled to mean ‖x‖² = τ0², τ0 = {self.tau0:.6g}",
            "unit": f"each scaled to ‖x‖ = τ0 = {self.tau0:.6g}",
            "none": f"as they are, mean ‖x‖² = τ0², τ0 = {self.tau0:.6g}",
        }[self.normalize]

    @property
    def deq(self) -> DEQ | DeepDEQ:
        """The implicit network."""
        assert not isinstance(self.match.model, Explicit)
        return self.match.model

    @property
    def network(self) -> Explicit:
        """The designed network."""
        return self.match.network

    @property
    def tau0(self) -> float:
        """Root mean square of ‖x‖."""
        return self.match.tau0

    @cached_property
    def statistics(self) -> Statistics:
        """All samples as one class: then τ0² is the mean of ‖x‖², as in the match."""
        return estimate_statistics(self.data.X)

    @cached_property
    def eigenvalues(self) -> Array:
        """Of the DEQ's kernel, ascending."""
        return np.asarray(np.linalg.eigvalsh(self.kernel))

    @cached_property
    def matched_eigenvalues(self) -> Array:
        """Of the designed network's kernel, ascending."""
        return np.asarray(np.linalg.eigvalsh(self.matched.kernel))

    @cached_property
    def equivalent_eigenvalues(self) -> Array:
        """Of the high-dimensional equivalent of the DEQ's kernel."""
        return equivalent(self.deq, self.data.X, self.statistics, kind=self.match.kind).eigenvalues()

    @cached_property
    def spectrum(self) -> Spectrum:
        """Its limiting spectrum; the page says which assumptions fail."""
        with _quietly():
            return spectrum(self.deq, self.statistics, kind=self.match.kind)

    @cached_property
    def outlook(self) -> Outlook:
        """Accuracy predicted by theory, without training."""
        if self.data.labels is None:
            return Outlook(obstacle="the data has no labels")
        scale, wide = self.match.target.d, self.data.X.shape[1] > _GENERAL

        def predicted(model: DEQ | DeepDEQ | Explicit, kind: str, **options: Any) -> Forecast:
            return forecast(model, X=self.data.X, y=self.data.labels, kind=kind, **options)

        try:
            with _quietly():
                first = predicted(self.deq, self.match.kind, ridge=scale, covariance="spectrum", holdout=0)
                if first.outside:
                    return Outlook(obstacle=f"the data is outside the theory: {'; '.join(first.outside)}")
                options = {"ridge": scale * _RIDGES, "covariance": "spectrum" if wide else "ledoit-wolf"}
                return Outlook(
                    predicted(self.deq, self.match.kind, **options),
                    predicted(self.network, explicit_kind(self.match), **options),
                )
        except InputError as error:  # a class of one sample
            return Outlook(obstacle=str(error))

    @property
    def closeness(self) -> tuple[Closeness, ...]:
        """The matched network first, then the baselines."""
        return (self.matched, *self.baselines)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, JSON-ready."""
        verdict = self.deq.well_posed
        return {
            "text": str(self.deq),
            "well_posed": {
                "verdict": bool(verdict),
                "reason": verdict.reason,
                "finite_width": {"value": verdict.finite_width.value, "margin": verdict.finite_width.margin},
                "infinite_width": {"value": verdict.infinite_width.value, "margin": verdict.infinite_width.margin},
            },
            "match": self.match.to_dict(),
            "formulas": [str(layer) for layer in self.network.activations],
            "data": {
                "name": self.data.name,
                "prepared": self.normalize is not None,
                "rows": self.rows,
                "samples": len(self.data.X),
                "features": self.data.X.shape[1],
                "classes": None if self.data.labels is None else len(np.unique(self.data.labels)),
            },
            "closeness": [
                {"network": entry.name, "error": entry.error, "rescaled_error": entry.rescaled_error}
                for entry in self.closeness
            ],
        }


def explicit_kind(match: Match) -> str:
    """Which kernel of the explicit network was designed."""
    return Kind.of(match.kind).explicit


def closer_network(closeness: Sequence[Mapping[str, Any]]) -> str:
    """The plain network that is closer on these data than the matched (first) one; empty if none is.

    Examples
    --------
    >>> from notsodeep.study import closer_network
    >>> matched = {"network": "matched", "error": 0.04, "rescaled_error": 0.035}
    >>> closer_network([matched, {"network": "plain relu", "error": 0.8, "rescaled_error": 0.03}])
    'plain relu is closer on these data once rescaled (3 % against 3.5 %)'
    >>> closer_network([matched, {"network": "plain relu", "error": 0.8, "rescaled_error": 0.1}])
    ''
    """
    matched, *others = closeness
    found = []
    for key, how in (("error", ""), ("rescaled_error", " once rescaled")):
        best = min(others, key=lambda entry: float(entry[key]))
        if best[key] < matched[key]:
            sizes = f"({100 * best[key]:.3g} % against {100 * matched[key]:.3g} %)"
            found.append(f"{best['network']} is closer on these data{how} {sizes}")
    return ", ".join(found)


def _kernel(name: str, model: DEQ | DeepDEQ | Explicit, X: Array, kind: str, report: Reporter) -> Array:
    report.stage(f"kernel of the {name} network")
    kernel: Array = model.kernel(X, kind=kind, progress=report)
    return kernel


def _closeness(name: str, exact: Array, kernel: Array) -> Closeness:
    return Closeness(name, distance(exact, kernel), rescaled_distance(exact, kernel), kernel)


def _quietly() -> warnings.catch_warnings:
    """Suppress warnings about assumptions: the page reports them."""
    return warnings.catch_warnings(action="ignore", category=AssumptionWarning)
