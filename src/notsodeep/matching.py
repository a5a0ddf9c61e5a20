"""The shallow explicit network that acts like a DEQ in high dimension, or on a sphere.

On high-dimensional mixtures a network is determined by four numbers (c₁, c₂, c₃, d); :mod:`~notsodeep.search` finds
layers that have those of the DEQ. On a sphere :mod:`~notsodeep.one_layer` finds one layer with the whole kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, choice, count, matrix, positive
from notsodeep.display import card
from notsodeep.highdim.four_numbers import FourNumbers, coefficients
from notsodeep.highdim.mixture import Mixture, statistics_of
from notsodeep.highdim.statistics import Statistics
from notsodeep.kinds import Kind
from notsodeep.models import DEQ, Explicit
from notsodeep.one_layer import SphereMatch, match_on_sphere, spectral_distance, sphere_norm
from notsodeep.search import EXACT, Problem, deviations

if TYPE_CHECKING:
    from notsodeep.report.match import Report

__all__ = ["Match", "SphereMatch", "match"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Match:
    """An explicit network, and how closely it matches the model.

    Attributes
    ----------
    network : Explicit
        Centred at `tau0`.
    family : str
        The activations of its layers, such as ``"leaky_relu"`` or ``"piecewise_linear + swish"``.
    kind : str
        The kernel of the model that was matched.
    tau0 : float
    target, achieved : FourNumbers
        (c₁, c₂, c₃, d) of the model and of the network.
    model : DEQ, DeepDEQ or Explicit
        What was matched.
    """

    network: Explicit
    family: str
    kind: str
    tau0: float
    target: FourNumbers
    achieved: FourNumbers
    model: DEQ | DeepDEQ | Explicit = field(repr=False)
    why: str = ""

    @property
    def reference(self) -> DEQ | DeepDEQ | Explicit:
        """The model whose kernel is approximated: centred at τ0."""
        return self.model.centered(self.tau0)

    def distance_on(self, X: ArrayLike) -> float:
        """‖K̂ − K‖/‖K‖ in the spectral norm on the rows X (n, p), against the kernel of `reference`."""
        return spectral_distance(self.network, self.reference, self.kind, X)

    @property
    def depth(self) -> int:
        return self.network.depth

    @property
    def errors(self) -> FourNumbers:
        """Relative error of each number; where the target is 0, relative to d in the same units."""
        return FourNumbers(*np.abs(deviations(self.achieved, self.target, self.tau0)).tolist())

    @property
    def residual(self) -> float:
        """The largest of the four errors."""
        return max(self.errors)

    @property
    def exact(self) -> bool:
        """Whether all four numbers agree to 1e-8."""
        return self.residual <= EXACT

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of the numbers that do not agree."""
        return tuple(name for name, error in self.errors._asdict().items() if not error <= EXACT)

    def report(self, directory: str | Path, X: Any = None, y: Any = None, **options: Any) -> Report:
        """Write the report of ``notsodeep match --report``: a page, pictures, all numbers and the network.

        Parameters
        ----------
        directory : str or Path
            An earlier report there is replaced; a directory with any other file is refused.
        X : array (n, p), Data or str, optional
            Samples on which both kernels are compared: an array, or a data set or file as in
            :func:`notsodeep.data.load`. A Gaussian cloud when absent.
        y : array (n,), optional
            Labels of an array.
        options
            `limit` (2000): use at most so many samples; `normalize`: rows are centred and scaled to mean ‖x‖² = τ₀²
            ("center", the default), scaled to ‖x‖ = τ₀ ("unit") or used as they are ("none"); `train` (True): train
            both networks where there are labels and PyTorch; `source`: how the code on the page loads the data;
            `progress`.

        Returns
        -------
        Report
            Its ``page`` is the path of ``index.html``, its ``content`` that of ``match.json``.
        """
        from notsodeep.report.match import write_report

        return write_report(self, directory, X, y, **options)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        return {
            "model": self.model.to_dict(),
            "network": self.network.to_dict(),
            "kind": self.kind,
            "tau0": self.tau0,
            "family": self.family,
            "depth": self.depth,
            "target": self.target._asdict(),
            "achieved": self.achieved._asdict(),
            "errors": self.errors._asdict(),
            "residual": self.residual,
            "exact": self.exact,
            "missed": list(self.missed),
        }

    def __str__(self) -> str:
        verdict = "exact in all four numbers" if self.exact else f"not exact, misses {', '.join(self.missed)}"
        lines = [
            f"{self.kind} of {self.model} at tau0={self.tau0:.6g}",
            f"≈ {self.network}",
            f"{verdict} (largest relative error {self.residual:.1e}), family {self.family}, depth {self.depth}",
            f"{'':<4}{'target':>20}{'achieved':>20}{'error':>11}",
        ]
        for name, goal, value, error in zip(FourNumbers._fields, self.target, self.achieved, self.errors, strict=True):
            lines.append(f"{name:<4}{goal:>20.12g}{value:>20.12g}{error:>11.1e}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        verdict = "exact in all four numbers" if self.exact else f"misses {', '.join(self.missed)}"
        columns = zip(FourNumbers._fields, self.target, self.achieved, self.errors, strict=True)
        rows = [(name, f"{goal:.9g}", f"{value:.9g}", f"{error:.1e}") for name, goal, value, error in columns]
        notes = [f"{self.kind} of {self.model} at τ0 = {self.tau0:.6g}", f"≈ {self.network}", *filter(None, [self.why])]
        head = ("", "target", "achieved", "error")
        return card("Match", rows, header=head, verdict=(self.exact, verdict), notes=notes)


@overload
# covers: [Ling24] Rem. 3.9; [Ling24] Ex. 3.10; [Ling24] Ex. 3.11; [Ling24] App. D
# covers: slides of [Ling24] Key idea; slides of [Ling24] Implicit- versus Explicit-CK
# covers: slides of [Ling24] Remark on NTKs; slides of [Ling24] Examples
def match(
    model: DEQ | DeepDEQ | Explicit,
    tau0: float | None = None,
    stats: Statistics | Mixture | None = None,
    kind: str = "ck",
    family: str | None = None,
    depth: int | None = None,
    *,
    on: Literal["mixture"] = "mixture",
    kinks: None = None,
    X: ArrayLike | None = None,
) -> Match: ...


@overload
def match(
    model: DEQ | DeepDEQ | Explicit,
    tau0: float | None = None,
    stats: Statistics | Mixture | None = None,
    kind: str = "ck",
    *,
    on: str,
    kinks: int | None = None,
    X: ArrayLike | None = None,
) -> Match | SphereMatch: ...


def match(
    model: DEQ | DeepDEQ | Explicit,
    tau0: float | None = None,
    stats: Statistics | Mixture | None = None,
    kind: str = "ck",
    family: str | None = None,
    depth: int | None = None,
    *,
    on: str = "mixture",
    kinks: int | None = None,
    X: ArrayLike | None = None,
) -> Match | SphereMatch:
    """Find an explicit network with the same (c₁, c₂, c₃, d), or, on a sphere, with the same kernel.

    Equal numbers make equal kernels up to O(n^−1/2) on high-dimensional mixtures. On rows of equal norm one hidden
    layer has exactly the kernel of the model, for every n and p.

    Parameters
    ----------
    model : DEQ, DeepDEQ or Explicit
        The model to replace; an Explicit may be compressed to fewer layers [Gu22].
    tau0, stats : float, or Statistics or Mixture
        τ₀ of the data, given directly or through its statistics.
    kind : str
        The kernel to keep. ``"ck"`` and ``"nngp"`` are matched by the CK of the network; for
        ``"ntk"``, ``"ntk_frozen_input"`` and ``"ntk_injected"`` the full NTK of the network,
        with all its layers trained, is fitted to that kernel of the model. Up to three layers
        are tried. When φ is not odd, ``"ntk_frozen_input"`` is usually out of reach
        (``exact`` is False): its c₂/c₃ is close to the 1/2 of a CK, to which a full NTK cannot
        rise; ``"ntk_injected"`` may be missed too, at small τ₀.
    family : str, optional
        Activation of all layers: ``"leaky_relu"`` (slopes free), ``"hard_tanh"`` (bound free),
        ``"piecewise_linear"`` (two kinks, three slopes) or any smooth name (stretch free).
        Chosen automatically when absent.
    depth : int, optional
        Number of layers; as few as possible when absent.
    on : {"mixture", "sphere", "auto"}
        ``"sphere"`` designs one layer for rows of norm τ0 (:mod:`notsodeep.one_layer`); ``"auto"`` tries both on X and
        keeps the closer, and ``why`` says so.
    kinks : int, optional
        On a sphere: a piecewise-linear activation with at most this many kinks instead of the exact one.
    X : array (n, p), optional
        The rows, in place of τ0: root mean square of their norms. On a sphere these must be equal, unless the kernel
        is homogeneous in them.

    Returns
    -------
    Match, or SphereMatch on a sphere
        ``exact`` says whether all four numbers agree; otherwise it is the closest network
        found, and ``missed`` names what it misses. Numbers below 1e-13 of d, in the same
        units, count as 0.

    Examples
    --------
    >>> import notsodeep as nsd
    >>> m = nsd.match(nsd.DEQ("tanh", recurrent=0.2, input=0.8), tau0=1.0)
    >>> m.exact, m.family, m.depth
    (True, 'hard_tanh', 1)
    >>> m = nsd.match(nsd.DEQ("relu", recurrent=0.2, input=0.8), tau0=1.0)
    >>> m.exact, m.family, m.depth
    (True, 'leaky_relu', 2)
    >>> m = nsd.match(nsd.DEQ("relu", recurrent=0.2, input=0.8, bias=0.5), tau0=1.0, kind="ntk", on="sphere")
    >>> m.exact, m.family, m.depth
    (True, 'hermite', 1)
    """
    if not isinstance(model, DEQ | DeepDEQ | Explicit):
        raise InputError(f"model={model!r} cannot be matched; pass a DEQ, a DeepDEQ or an Explicit")
    choice(on, ("mixture", "sphere", "auto"), "on")
    if (tau0 is not None) + (stats is not None) + (X is not None) != 1:
        raise InputError("pass exactly one of tau0, stats and X, so that the scale of the data is known")
    if kinks is not None:
        count(kinks, "kinks")
    if on != "mixture":
        for name, given in (("family", family), ("depth", depth)):
            if given is not None:
                raise InputError(f"{name}={given!r} is for on='mixture'; on a sphere there is one layer")
        kind = choice(kind, model.kinds, "kind")
    elif kinks is not None:
        raise InputError(f"kinks={kinks!r} is for on='sphere'; use family='piecewise_linear'")
    if on == "auto":
        if X is None:
            raise InputError("on='auto' looks at the rows; pass X")
        return _closer(model, kind, kinks, X)
    if X is not None:
        tau0 = sphere_norm(X, model) if on == "sphere" else _root_mean_square(X)
    tau0 = positive(tau0, "tau0") if stats is None else statistics_of(stats).tau0
    if on == "sphere":
        return match_on_sphere(model, tau0, kind, kinks)
    kind = choice(kind, model.kinds, "kind")
    own = model.activation if isinstance(model, DEQ) else model.activations[0]
    target = coefficients(model, tau0).weights(kind)
    depth = None if depth is None else count(depth, "depth")
    found = Problem(target, tau0, Kind.of(kind).explicit).search(own, family, depth)
    return Match(found.network, found.family, kind, tau0, target, found.achieved, model)


def _root_mean_square(X: ArrayLike) -> float:
    return math.sqrt(float(np.mean(np.square(matrix(X, "X")).sum(axis=1))))


def _closer(model: DEQ | DeepDEQ | Explicit, kind: str, kinks: int | None, X: ArrayLike) -> Match | SphereMatch:
    """Both designs on these rows; the closer one, and why."""
    tau0 = _root_mean_square(X)
    sphere = match_on_sphere(model, tau0, kind, kinks)
    single = sphere.distance_on(X)
    if isinstance(model, DEQ) and model.bias:
        return replace(sphere, why=f"sphere: {single:.1e} away on X; a mixture match needs bias=0")
    mixture = match(model, tau0=tau0, kind=kind)
    double = mixture.distance_on(X)
    text = f"{single:.1e} away on X against {double:.1e} for the mixture match (each from the model it replaces)"
    if single <= double:
        return replace(sphere, why=f"sphere: {text}")
    return replace(mixture, why=f"mixture: the one-layer network is {text}")
