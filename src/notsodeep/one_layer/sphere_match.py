"""The network that has the kernel of a model on a sphere, and how close it comes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.checks import InputError, count, matrix
from notsodeep.display import card
from notsodeep.kernels.dense import Network
from notsodeep.kernels.sphere import on_sphere
from notsodeep.kinds import Kind
from notsodeep.models import Explicit
from notsodeep.one_layer.few_kinks import bent
from notsodeep.one_layer.hermite_design import EXACT, design

if TYPE_CHECKING:
    from notsodeep.report.match import Report

__all__ = ["SphereMatch", "match_on_sphere", "spectral_distance", "sphere_norm"]


@dataclass(frozen=True, eq=False)
class SphereMatch:
    """One hidden layer with the kernel of the model on a sphere.

    Attributes
    ----------
    network : Explicit
        Of one layer. It normalises its rows when the kernel of the model is homogeneous in their norms, and is then
        exact for rows of any norms.
    family : str
        ``"hermite"`` or ``"piecewise_linear"``.
    kind : str
        The kernel of the model that was matched.
    tau0 : float
        The norm of the rows.
    distance : float
        sup_t |k̂(t) − k(t)|/k(1) over all cosines: the largest on a fine grid, with a bound for what may happen between
        its points.
    fourth : float
        E[σ⁴]/E[σ²]²: how much a finite layer fluctuates.
    reference : DEQ or Explicit
        The model whose kernel is approximated: as it was given.
    why : str
        How it was chosen, with ``on="auto"``.
    """

    network: Explicit
    family: str
    kind: str
    tau0: float
    distance: float
    fourth: float
    reference: Network
    why: str = ""

    @property
    def model(self) -> Network:
        """What was matched."""
        return self.reference

    @property
    def depth(self) -> int:
        return self.network.depth

    @property
    def lipschitz(self) -> float:
        """sup |σ'|."""
        return self.network.activations[0].lipschitz

    @property
    def exact(self) -> bool:
        """Whether the distance is at most 1e-10."""
        return self.distance <= EXACT

    def distance_on(self, X: ArrayLike) -> float:
        """‖K̂ − K‖/‖K‖ in the spectral norm on the rows X (n, p)."""
        return spectral_distance(self.network, self.reference, self.kind, X)

    def report(self, directory: str | Path, X: Any = None, y: Any = None, **options: Any) -> Report:
        """Write the report of ``notsodeep match --on sphere --report``: a page, its picture, the numbers, the network.

        Parameters
        ----------
        directory : str or Path
            An earlier report there is replaced; a directory with any other file is refused.
        X : array (n, p), Data or str, optional
            Samples on which both kernels are compared: an array, or a data set or file as in
            :func:`notsodeep.data.load`.
        y : array (n,), optional
            Labels of an array.
        options
            `limit` (2000): use at most so many samples; `normalize`: rows are scaled to ‖x‖ = τ₀ ("unit", the default),
            centred and scaled to mean ‖x‖² = τ₀² ("center") or used as they are ("none"); `source`: how the code on the
            page loads the data.

        Returns
        -------
        Report
            Its ``page`` is the path of ``index.html``, its ``content`` that of ``match.json``.
        """
        from notsodeep.report.sphere import write_sphere_report

        return write_sphere_report(self, directory, X, y, **options)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "on": "sphere",
            "model": self.reference.to_dict(),
            "network": self.network.to_dict(),
            "kind": self.kind,
            "tau0": self.tau0,
            "family": self.family,
            "depth": self.depth,
            "distance": self.distance,
            "exact": self.exact,
            "fourth": self.fourth,
            "lipschitz": self.lipschitz,
            "why": self.why,
        }

    def __str__(self) -> str:
        verdict = "exact on the sphere" if self.exact else "close on the sphere"
        rows = "rows of any norms" if self.network.normalize is not None else f"rows of norm {self.tau0:.6g}"
        lines = [
            f"{self.kind} of {self.reference}, {rows}",
            f"≈ {self.network}",
            f"{verdict}: sup |k̂ − k|/k(1) ≤ {self.distance:.1e}; E[σ⁴]/E[σ²]² = {self.fourth:.3g}, "
            f"sup |σ'| = {self.lipschitz:.3g}",
        ]
        return "\n".join([*lines, self.why] if self.why else lines)

    def _repr_html_(self) -> str:
        rows = [
            ("σ(x)", self.network.activations[0]),
            ("sup |k̂ − k|/k(1)", f"≤ {self.distance:.1e}"),
            ("E[σ⁴]/E[σ²]²", f"{self.fourth:.3g}"),
            ("sup |σ'|", f"{self.lipschitz:.3g}"),
        ]
        norms = "any norms" if self.network.normalize is not None else f"norm {self.tau0:.6g}"
        verdict = (self.exact, "exact on the sphere" if self.exact else "close on the sphere")
        notes = [f"{self.kind} of {self.reference}, rows of {norms}", *filter(None, [self.why])]
        return card("SphereMatch, one hidden layer", rows, verdict=verdict, notes=notes)


def match_on_sphere(model: Network, tau0: float, kind: str, kinks: int | None = None) -> SphereMatch:
    """Find the one-layer network whose CK (for ck, nngp) or NTK is this kernel of the model on rows of norm τ0."""
    kernel = on_sphere(model, kind, tau0)
    tangent = Kind.of(kind).is_tangent
    found = design(kernel, tangent) if kinks is None else bent(kernel, tangent, count(kinks, "kinks"))
    network = Explicit([found.activation], normalize=tau0 if radial(model) else None)
    family = "hermite" if kinks is None else "piecewise_linear"
    return SphereMatch(network, family, kind, tau0, found.distance, found.fourth, model)


def radial(model: Network) -> bool:
    """Whether K(cx, y) = c K(x, y) for c > 0."""
    if isinstance(model, Explicit) and model.normalize is not None:
        return True
    return not model.needs_one_norm and model.recursion().homogeneous


def sphere_norm(X: ArrayLike, model: Network) -> float:
    """The norm of the rows; refused if they differ and the kernel depends on it."""
    norms = np.linalg.norm(matrix(X, "X"), axis=1)
    low, high = float(norms.min()), float(norms.max())
    if high == 0:
        raise InputError("X has only rows of zeros; a sphere needs a radius")
    if high - low > 1e-6 * high and not radial(model):
        raise InputError(
            f"X has rows of norms {low:.6g} to {high:.6g}, which do not lie on one sphere; normalise them, or use "
            "on='mixture'"
        )
    return math.sqrt(float(np.mean(norms**2)))


def spectral_distance(network: Explicit, reference: Network, kind: str, X: ArrayLike) -> float:
    """‖K̂ − K‖/‖K‖ with K̂ the network's CK (for ck, nngp) or NTK."""
    goal = reference.kernel(X, kind=kind, dtype="float64")
    found = network.kernel(X, kind=Kind.of(kind).explicit, dtype="float64")
    return float(np.abs(np.linalg.eigvalsh(found - goal)).max() / np.abs(np.linalg.eigvalsh(goal)).max())
