"""A DEQ, the explicit network designed for it, and how close their kernels are on data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.sparse.linalg import eigsh

from notsodeep.checks import AssumptionWarning, positive
from notsodeep.data import Data
from notsodeep.highdim import Spectrum, Statistics, equivalent, estimate_statistics, spectrum
from notsodeep.matching import Match, match
from notsodeep.models import DEQ, Explicit

__all__ = ["Closeness", "Study", "caveat", "study"]

Array = NDArray[np.float64]
_GAUSSIAN = (400, 500)  # n and p of the cloud that stands in for absent data
_BASELINES = ("relu", "tanh")


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
        The same after multiplying Σ by the one number that brings it closest.
    kernel : array of shape (n, n)
    """

    name: str
    error: float
    rescaled_error: float
    kernel: Array = field(repr=False, compare=False)


@dataclass(frozen=True)
class Study:
    """Everything `notsodeep match` prints, draws and writes."""

    deq: DEQ
    match: Match
    data: Data
    prepared: bool
    kernel: Array = field(repr=False)
    matched: Closeness
    baselines: tuple[Closeness, ...]

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
        """Its limiting law; the page says where its assumptions fail."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionWarning)
            return spectrum(self.deq, self.statistics, kind=self.match.kind)

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
                "prepared": self.prepared,
                "samples": len(self.data.X),
                "features": self.data.X.shape[1],
                "classes": None if self.data.labels is None else len(np.unique(self.data.labels)),
            },
            "closeness": [
                {"network": entry.name, "error": entry.error, "rescaled_error": entry.rescaled_error}
                for entry in self.closeness
            ],
        }


def study(
    deq: DEQ,
    data: Data | None = None,
    *,
    kind: str = "ck",
    tau0: float = 1.0,
    family: str | None = None,
    depth: int | None = None,
    step: Callable[..., None] = lambda *_: None,
) -> Study:
    """Design the explicit network and measure it on data.

    Parameters
    ----------
    deq : DEQ
    data : Data, optional
        Centred and scaled to mean ‖x‖² = 1 here, so that τ0 = 1. Without data, a Gaussian
        cloud x ~ N(0, τ0² I/p) takes its place.
    kind : str
        The kernel to match.
    tau0 : float
        Used only without data.
    family, depth
        As in :func:`notsodeep.match`; chosen automatically when None.
    step : callable
        Told what is going on.
    """
    prepared = data is not None
    if data is None:
        tau0 = positive(tau0, "tau0")
        n, p = _GAUSSIAN
        cloud = np.random.default_rng(0).normal(scale=tau0 / np.sqrt(p), size=(n, p))
        data = Data(f"Gaussian cloud, τ0 = {tau0:.6g}", cloud)
    else:
        data, tau0 = data.prepared(), 1.0
    step("designing the explicit network")
    designed = match(deq, tau0=tau0, kind=kind, family=family, depth=depth)

    def kernel_of(name: str, model: DEQ | Explicit, kind: str) -> Array:
        array: Array = model.kernel(data.X, kind=kind, progress=lambda done, total: step(name, done / total))
        return array

    kernel = kernel_of("kernel of the implicit network", deq.centered(tau0), kind)
    explicit_kind = "ck" if kind in ("ck", "nngp") else "ntk"
    networks = {"matched": designed.network}
    for name in _BASELINES:
        layers = [name] * designed.network.depth
        networks[f"plain {name}"] = Explicit(layers).centered(tau0)
    matched, *baselines = (
        _closeness(name, kernel, kernel_of(f"kernel of the {name} network", network, explicit_kind))
        for name, network in networks.items()
    )
    return Study(
        deq=deq,
        match=designed,
        data=data,
        prepared=prepared,
        kernel=kernel,
        matched=matched,
        baselines=tuple(baselines),
    )


def caveat(closeness: Sequence[Mapping[str, Any]]) -> str:
    """Which plain network is closer on these data than the matched one, the first; empty if none is.

    Examples
    --------
    >>> from notsodeep.report.study import caveat
    >>> matched = {"network": "matched", "error": 0.04, "rescaled_error": 0.035}
    >>> caveat([matched, {"network": "plain relu", "error": 0.8, "rescaled_error": 0.03}])
    'plain relu is closer on these data once rescaled (3 % against 3.5 %)'
    >>> caveat([matched, {"network": "plain relu", "error": 0.8, "rescaled_error": 0.1}])
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


def _closeness(name: str, exact: Array, kernel: Array) -> Closeness:
    norm = spectral_norm(exact)

    def error(factor: float) -> float:
        return spectral_norm(exact - factor * kernel) / norm

    # convex in the factor; the least-squares one is close to the best
    start = float(np.vdot(exact, kernel) / np.vdot(kernel, kernel))
    best = minimize_scalar(
        error, bracket=(min(start, 1.0) * 0.98, max(start, 1.0) * 1.02), tol=1e-4, options={"maxiter": 12}
    )
    as_it_is = error(1.0)
    return Closeness(name, as_it_is, min(as_it_is, error(start), float(best.fun)), kernel)


def spectral_norm(matrix: Array) -> float:
    """‖M‖ of a symmetric matrix, by Lanczos."""
    if len(matrix) < 3:
        return float(np.linalg.norm(matrix, 2))
    start = np.random.default_rng(0).normal(size=len(matrix))
    value = eigsh(matrix, k=1, which="LM", v0=start, return_eigenvectors=False, tol=1e-8)
    return float(np.abs(value[0]))
