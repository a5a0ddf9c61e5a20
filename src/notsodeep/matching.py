"""Design the shallow explicit network that acts like a DEQ in high dimension.

On high-dimensional mixtures a network is determined by four numbers (c₁, c₂, c₃, d). One overall
scale fixes c₁; per layer, with τ the standard deviation of its input, the rest depends on

    r = E[σ²]/(τ²m₁²),   k = (τm₂/m₁)²,   ω = E[(σ²)'']/(2m₁²),

and for two layers the conjugate kernel has

    d/(τ₀²c₁) = r₁r₂,   2τ₀²c₃/c₁ = k₁ + k₂/r₁,   4τ₀²c₂/c₁ = k₁ + k₂ω₁²/r₁.

Attempts are ordered from shallow networks with closed forms to general ones; the first that
reaches all four numbers is returned, otherwise the closest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, least_squares

from notsodeep.activations import Activation, PiecewiseLinear, Smooth, activation, activation_names
from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, choice, count, matrix, positive
from notsodeep.display import card
from notsodeep.gaussian import moments
from notsodeep.highdim.four_numbers import FourNumbers, coefficients
from notsodeep.highdim.mixture import Mixture, statistics_of
from notsodeep.highdim.statistics import Statistics
from notsodeep.kinds import Kind
from notsodeep.models import DEQ, Explicit
from notsodeep.one_layer import SphereMatch, match_on_sphere, spectral_distance, sphere_norm

if TYPE_CHECKING:
    from notsodeep.report.match import Report

__all__ = ["Match", "SphereMatch", "match"]

Array: TypeAlias = NDArray[Any]

EXACT = 1e-8  # largest relative error of a match that calls itself exact
_SOLVED = 1e-11  # tolerance of the search for a solution
_STARTS = 6  # starting points of one attempt
_STEEPEST = 1e3  # largest slope of a layer that keeps the scale of its input
_KAPPA = 0.25 - 1 / (2 * math.pi)  # E[σ²]/(τ²m₁²) = 1 + κs for leaky relu


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
        return FourNumbers(*np.abs(_deviations(self.achieved, self.target, self.tau0)).tolist())

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
            :func:`notsodeep.data.load`. They are centred and scaled to mean ‖x‖² = τ₀². A Gaussian cloud when absent.
        y : array (n,), optional
            Labels of an array.
        options
            `limit` (2000): use at most so many samples; `train` (True): train both networks where there are labels
            and PyTorch; `source`: how the code on the page loads the data; `progress`.

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
# covers: slides of [Ling24] Examples
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
    problem = _Problem(target, tau0, Kind.of(kind).explicit)
    if depth is not None:
        depth = count(depth, "depth")
    if family is not None:
        attempts = problem.forced(choice(family, _FAMILIES, "family"), depth)
    else:
        attempts = problem.attempts(own)
        if depth is not None:
            attempts = itertools.chain(attempts, problem.forced("piecewise_linear", depth))

    best: Match | None = None
    for layers, attempt in attempts:
        named = attempt() if depth in (None, layers) else None
        if named is None:
            continue
        found = problem.finish(*named, kind, model)
        if found is not None and (best is None or found.residual < best.residual):
            best = found
        if best is not None and best.exact:
            break
    if best is None:  # every trial was degenerate: return a linear network, with its errors
        best = problem.finish("identity", [activation("identity")] * (depth or 1), kind, model)
    assert best is not None
    return best


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


# --- one-layer families: parameters → activation, in units of the input's standard deviation τ ----


@dataclass(frozen=True)
class _Family:
    name: str
    build: Callable[[Sequence[float], float], Activation]
    starts: tuple[tuple[float, ...], ...]  # mild ones first


def _leaky(theta: Sequence[float], tau: float) -> Activation:
    return activation("leaky_relu", a=1 + theta[0], b=1 - theta[0])


def _hard_tanh(theta: Sequence[float], tau: float) -> Activation:
    return activation("hard_tanh", c=math.exp(theta[0]) * tau)


def _piecewise(theta: Sequence[float], tau: float) -> Activation:
    """Three slopes: x + bend·h₂ + tilt·h₃ in piecewise-linear form."""
    bend, tilt = theta
    return activation(
        "piecewise_linear", kinks=[-_KINK * tau, _KINK * tau], slopes=[1 - bend + tilt, 1, 1 + bend + tilt]
    )


def _odd(theta: Sequence[float], tau: float) -> Activation:
    return activation("piecewise_linear", kinks=[-tau, tau], slopes=[theta[0], 1, theta[0]])


def _even(theta: Sequence[float], tau: float) -> Activation:
    outer = 1 + theta[0]
    return activation("piecewise_linear", kinks=[-tau, 0, tau], slopes=[-outer, -1, 1, outer])


def _stretched(phi: Activation, name: str, start: float = 0.0) -> _Family:
    """φ(eᶿx): the shape of φ between its linear part (θ → −∞) and its far field."""
    starts = tuple((start + offset,) for offset in (0.0, -1.0, 1.0, -2.5))
    return _Family(name, lambda theta, tau: phi.stretched(math.exp(min(max(theta[0], -20.0), 20.0))), starts)


_KINK = 0.612  # the three-level quantiser of N(0, 1) closest to the identity: the least content above h₂
# E[σ'] = E[σ''] = 0 to all digits: only the diagonal is left
_FOLDED = _Family("cos", lambda theta, tau: activation("cos").stretched(10 / tau), ((),))
_IDENTITY = _Family("identity", lambda theta, tau: activation("identity"), ((),))
_LEAKY = _Family("leaky_relu", _leaky, ((0.3,), (1.0,), (0.05,), (2.0,)))
_HARD_TANH = _Family("hard_tanh", _hard_tanh, ((0.5,), (-0.5,), (1.0,), (-1.5,)))
_PIECEWISE = _Family("piecewise_linear", _piecewise, ((0.4, 0.0), (0.06, 0.0), (0.8, -0.1), (0.6, 0.1), (1.5, 0.0)))
_NEAR_LINEAR = _Family("piecewise_linear", _piecewise, ((0.06, 0.0), (0.2, 0.0), (0.015, 0.0), (0.5, 0.0)))
_ODD = _Family("piecewise_linear", _odd, ((1.1,), (0.8,), (1.6,), (0.0,)))
_EVEN = _Family("piecewise_linear", _even, ((0.0,), (0.5,), (-0.5,)))

_FAMILIES: dict[str, _Family] = {f.name: f for f in (_IDENTITY, _LEAKY, _HARD_TANH, _PIECEWISE)} | {
    name: _stretched(activation(name), name)
    for name in activation_names()
    if name != "piecewise_linear" and isinstance(activation(name).shape, Smooth)
}

_DEGENERATE = (InputError, ArithmeticError, ValueError)  # raised by a trial network whose signal vanishes or overflows
_Layers: TypeAlias = list[Activation]
_Named: TypeAlias = tuple[str, _Layers]  # the family, and one activation a layer
_Attempt: TypeAlias = tuple[int, Callable[[], _Named | None]]  # the depth, and how to find the layers


@dataclass(frozen=True)
class _Problem:
    """The four numbers to reach, at τ₀, by the CK or the NTK of an explicit network."""

    target: FourNumbers
    tau0: float
    kind: str

    # the order of attempts ----------------------------------------------------------------

    def attempts(self, own: Activation) -> Iterator[_Attempt]:
        """Candidates, shallow and explicit ones first; `own` is the activation of the model."""
        start = self._own_start(own)
        own_layer, mild = _stretched(own, _name(own), start), _stretched(own, _name(own), start - 2)
        yield self._system(_IDENTITY)
        if all(self._vanishes(number) for number in (1, 2, 3)):  # c₁ = c₂ = c₃ ≈ 0: only the diagonal is left
            yield self._system(_FOLDED)
            return
        if self._vanishes(1):  # even φ: c₁ = 0
            yield self._system(_ODD, _EVEN)
            yield self._system(_ODD, own_layer)
            return
        if self._vanishes(2) and self._vanishes(3):  # odd φ: only c₁ and d are left
            yield 1, partial(self._scalar, _HARD_TANH, math.log(0.3), math.log(9.0))
            yield 1, partial(self._scalar, _ODD, 1.0, 1e-9 - _PASS / (1 - _PASS))
            return
        one_layer_ratio = 0.5 if self.kind == "ck" else 1 / 6
        if abs(self.target.c2 - one_layer_ratio * self.target.c3) <= EXACT * one_layer_ratio * self.target.c3:
            for layer in (_LEAKY, own_layer, _PIECEWISE):
                yield self._system(layer)
        if own.shape.homogeneous and self.kind == "ck":
            yield 2, self._two_leaky
        pairs = [(_PIECEWISE, _PIECEWISE), (_NEAR_LINEAR, own_layer), (own_layer, _NEAR_LINEAR)]
        if self.kind == "ck" and isinstance(own.shape, Smooth):  # φ itself first: it needs no more curvature
            pairs = [pairs[1], pairs[0], pairs[2]]
        for pair in pairs if self.kind == "ck" else pairs[:1]:
            yield self._system(*pair)
        # one more layer: the NTK of two spreads the curvature further than a nearly quadratic φ allows
        yield self._system(mild, own_layer, mild)
        yield self._system(_NEAR_LINEAR, own_layer, _NEAR_LINEAR)

    def forced(self, family: str, depth: int | None) -> Iterator[_Attempt]:
        """All layers from one family; depth 1, then 2, when the depth is free."""
        for layers in (1, 2) if depth is None else (depth,):
            yield self._system(*[_FAMILIES[family]] * layers)

    def _system(self, *families: _Family) -> _Attempt:
        return len(families), partial(self._solve, *families)

    # solvers ------------------------------------------------------------------------------

    def _scalar(self, family: _Family, low: float, high: float) -> _Named:
        """One layer of an odd family by a bracketed root of d/(τ₀²c₁); without a root, its nearer end."""

        def excess(theta: float) -> float:
            weights = self._weights([family.build([theta], self.tau0)])
            ratio = weights.d / weights.c1 * self.target.c1 / self.target.d if weights.c1 > 0 else math.inf
            return min(math.log(ratio), 1e3) if ratio > 0 else -1e3

        ends = excess(low), excess(high)
        if ends[0] * ends[1] < 0:
            theta = float(brentq(excess, low, high, xtol=1e-15, rtol=8.9e-16))
        else:
            theta = low if abs(ends[0]) < abs(ends[1]) else high
        return family.name, [family.build([theta], self.tau0)]

    def _two_leaky(self) -> _Named | None:
        """Two leaky layers in closed form, if the cubic below has a root.

        With u = 1 + κs₁, v = 1 + κs₂ and e = 4πκτ₀²c₃/c₁ the equations for d and c₃ are
        uv = R and u³ − (1+e)u² − u + R = 0; the one for c₂, 8πκτ₀²c₂/c₁ = R − 1, is an
        identity of every homogeneous DEQ.
        """
        c1, _, c3, d = self.target
        ratio = d / (self.tau0**2 * c1)
        bend = 4 * math.pi * _KAPPA * self.tau0**2 * c3 / c1

        def cubic(u: float) -> float:
            return ((u - (1 + bend)) * u - 1) * u + ratio

        valley = ((1 + bend) + math.sqrt((1 + bend) ** 2 + 3)) / 3
        if not (valley < ratio and cubic(valley) < 0 < cubic(ratio)):
            return None
        u = float(brentq(cubic, valley, ratio, xtol=1e-300, rtol=8.9e-16))
        slopes = [math.sqrt(max(factor - 1, 0.0) / _KAPPA) / 2 for factor in (u, ratio / u)]
        return "leaky_relu", [_leaky([slope], self.tau0) for slope in slopes]

    def _solve(self, *families: _Family) -> _Named:
        """Solve for (c₂, c₃, d)/c₁ in the parameters of all layers, from several starts."""
        sizes = np.cumsum([len(family.starts[0]) for family in families])[:-1]

        def layers(theta: Array) -> _Layers:
            return [
                family.build(part.tolist(), self.tau0)
                for family, part in zip(families, np.split(theta, sizes), strict=True)
            ]

        def residual(theta: Array) -> Array:
            try:
                weights = self._weights(layers(theta))
            except _DEGENERATE:
                return np.full(4, 1e6)
            scaled = FourNumbers(*(self._scale2(weights) * weight for weight in weights))
            return np.clip(_deviations(scaled, self.target, self.tau0), -1e6, 1e6)

        best, smallest = np.concatenate([family.starts[0] for family in families]), math.inf
        starts = sorted(itertools.product(*(range(len(f.starts)) for f in families)), key=sum)
        for start in starts[:_STARTS] if best.size else ():
            theta = np.concatenate([f.starts[i] for f, i in zip(families, start, strict=True)])
            found = least_squares(residual, theta, xtol=1e-15, ftol=1e-13, gtol=1e-15, max_nfev=50)
            polished = found.x - np.linalg.pinv(np.asarray(found.jac)) @ found.fun
            for candidate in (found.x, polished):
                size = float(np.abs(residual(candidate)).max())
                if size < smallest:
                    best, smallest = candidate, size
            if smallest <= _SOLVED:
                break
        return " + ".join(dict.fromkeys(family.name for family in families)), layers(best)

    # networks -----------------------------------------------------------------------------

    def _weights(self, layers: _Layers) -> FourNumbers:
        return coefficients(Explicit(self._gauged(layers)), self.tau0).weights(self.kind)

    def _gauged(self, layers: _Layers) -> _Layers:
        """Centre every layer, and scale it so that its output has standard deviation τ₀ again."""
        gauged = []
        for layer in layers:
            centred = layer - moments(layer, self.tau0).mean
            scaled = self.tau0 / math.sqrt(moments(centred, self.tau0).power) * centred
            if not scaled.lipschitz <= _STEEPEST:
                raise InputError(f"activation {layer} varies too little at tau0={self.tau0:.6g}")
            gauged.append(scaled)
        return gauged

    def _scale2(self, weights: FourNumbers) -> float:
        """The squared scale of the last layer that meets c₁, or c₃ for an even φ, or else d."""
        sizes = np.array(weights) * [self.tau0**2, self.tau0**4, self.tau0**4, 1.0]
        for index in (0, 2):
            if not self._vanishes(index + 1) and sizes[index] > 1e-14 * weights.d:
                return self.target[index] / weights[index]
        return self.target.d / weights.d

    def finish(self, family: str, layers: _Layers, kind: str, model: DEQ | DeepDEQ | Explicit) -> Match | None:
        """The centred network in its final scale; None if it is degenerate."""
        try:
            gauged = self._gauged(layers)
            gauged[-1] = math.sqrt(self._scale2(self._weights(layers))) * gauged[-1]
            network = Explicit(gauged).centered(self.tau0)
            achieved = coefficients(network, self.tau0).weights(self.kind)
        except _DEGENERATE:
            return None
        found = Match(network, family, kind, self.tau0, self.target, achieved, model)
        return found if math.isfinite(found.residual) else None

    def _vanishes(self, number: int) -> bool:
        """Whether c₁, c₂ or c₃ is 0 up to rounding."""
        power = 2 if number == 1 else 4
        return abs(self.target[number - 1]) * self.tau0**power <= 1e-13 * self.target.d

    def _own_start(self, own: Activation) -> float:
        # estimate the input scale of the DEQ's activation from the kernel's linear part
        slope = moments(own, self.tau0).slope
        share = self.target.c1 if self.kind == "ck" else self.target.c1 / 2
        return math.log(math.sqrt(share) / abs(slope)) if slope and share else 0.0


def _name(phi: Activation) -> str:
    if isinstance(phi.shape, Smooth):
        return phi.shape.name
    return "piecewise_linear" if isinstance(phi.shape, PiecewiseLinear) else "custom"


_PASS = math.erf(1 / math.sqrt(2))  # P(|ξ| < 1): E[σ'] of the odd family vanishes at slope −_PASS/(1 − _PASS)


def _deviations(achieved: FourNumbers, target: FourNumbers, tau0: float) -> Array:
    """(achieved − target)/target; a target of 0 is replaced by d in the same units."""
    units = np.array([target.d / tau0**2, target.d / tau0**4, target.d / tau0**4, target.d])
    goal = np.array(target)
    scale = np.where(np.abs(goal) > 1e-13 * units, np.abs(goal), units)
    return (np.array(achieved) - goal) / scale
