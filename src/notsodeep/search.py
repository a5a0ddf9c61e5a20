"""Search for the layers of an explicit network with given four numbers.

One overall scale fixes c₁ of (c₁, c₂, c₃, d). Per layer, with τ the standard deviation of its input, the rest
depends on

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
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, least_squares

from notsodeep.activations import Activation, PiecewiseLinear, Smooth, activation, activation_names
from notsodeep.checks import InputError, choice
from notsodeep.gaussian import Moments, moments
from notsodeep.highdim.four_numbers import FourNumbers, coefficients
from notsodeep.models import Explicit

__all__ = ["EXACT", "Found", "Problem", "deviations"]

Array: TypeAlias = NDArray[Any]

EXACT = 1e-8  # largest relative error of a match that calls itself exact
_SOLVED = 1e-11  # tolerance of the search for a solution
_STARTS = 6  # starting points of one attempt
_STUCK = 1e-3  # a step that gains no more than this part ends at a valley; near a solution each gains nearly all
_STEEPEST = 1e3  # largest slope of a layer that keeps the scale of its input
_KAPPA = 0.25 - 1 / (2 * math.pi)  # E[σ²]/(τ²m₁²) = 1 + κs for leaky relu
_PASS = math.erf(1 / math.sqrt(2))  # P(|ξ| < 1): E[σ'] of the odd family vanishes at slope −_PASS/(1 − _PASS)


def deviations(achieved: FourNumbers, target: FourNumbers, tau0: float) -> Array:
    """(achieved − target)/target; a target of 0 is replaced by d in the same units."""
    units = np.array([target.d / tau0**2, target.d / tau0**4, target.d / tau0**4, target.d])
    goal = np.array(target)
    scale = np.where(np.abs(goal) > 1e-13 * units, np.abs(goal), units)
    return (np.array(achieved) - goal) / scale


# --- families of one layer: parameters → activation, in units of the input's standard deviation τ ---


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


class Found(NamedTuple):
    """A network centred at τ₀, the families of its layers, its four numbers, and the largest of their errors."""

    network: Explicit
    family: str
    achieved: FourNumbers
    residual: float


@dataclass(frozen=True)
class Problem:
    """The four numbers to reach, at τ₀, by the CK or the NTK of an explicit network."""

    target: FourNumbers
    tau0: float
    kind: str

    def search(self, own: Activation, family: str | None = None, depth: int | None = None) -> Found:
        """The first candidate that reaches all four numbers, otherwise the closest.

        own : the activation of the model. family, depth : restrict the search.
        """
        if family is not None:
            attempts = self._forced(choice(family, _FAMILIES, "family"), depth)
        else:
            attempts = self._attempts(own)
            if depth is not None:
                attempts = itertools.chain(attempts, self._forced("piecewise_linear", depth))
        best: Found | None = None
        for layers, attempt in attempts:
            named = attempt() if depth in (None, layers) else None
            found = None if named is None else self._finish(*named)
            if found is not None and (best is None or found.residual < best.residual):
                best = found
            if best is not None and best.residual <= EXACT:
                break
        if best is None:  # every trial was degenerate: return a linear network, with its errors
            best = self._finish("identity", [activation("identity")] * (depth or 1))
        assert best is not None
        return best

    # the order of attempts ----------------------------------------------------------------

    def _attempts(self, own: Activation) -> Iterator[_Attempt]:
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

    def _forced(self, family: str, depth: int | None) -> Iterator[_Attempt]:
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
            return np.clip(deviations(scaled, self.target, self.tau0), -1e6, 1e6)

        best, smallest = np.concatenate([family.starts[0] for family in families]), math.inf

        def descend(theta: Array, slowest: float) -> None:
            """From here, until the residual falls by less than this part of it in a step."""
            nonlocal best, smallest
            found = least_squares(residual, theta, xtol=1e-15, ftol=slowest, gtol=1e-15, max_nfev=50)
            polished = found.x - np.linalg.pinv(np.asarray(found.jac)) @ found.fun
            for candidate in (found.x, polished):
                size = float(np.abs(residual(candidate)).max())
                if size < smallest:
                    best, smallest = candidate, size

        starts = sorted(itertools.product(*(range(len(f.starts)) for f in families)), key=sum)
        for start in starts[:_STARTS] if best.size else ():
            descend(np.concatenate([f.starts[i] for f, i in zip(families, start, strict=True)]), _STUCK)
            if smallest <= _SOLVED:
                break
        else:
            if best.size:  # none is a solution: go to the end of the valley
                descend(best, 1e-13)
        return " + ".join(dict.fromkeys(family.name for family in families)), layers(best)

    # networks -----------------------------------------------------------------------------

    def _weights(self, layers: _Layers) -> FourNumbers:
        """`coefficients(…).weights(kind)` of the gauged layers, in a fraction of its time: every τ_l is τ₀ here."""
        variance = self.tau0**2
        alpha1, alpha2, alpha3, alpha4, beta1, beta2, beta3, kappa2 = 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, variance
        for layer in layers:  # [Ling24, Thm 3.8]
            _, scale, m = self._gauge(layer)
            slope2, bend2, before = (scale * m.slope) ** 2, (scale * m.curvature) ** 2, alpha1
            alpha1, alpha2 = slope2 * before, slope2 * alpha2 + bend2 * alpha4**2 / 4
            alpha3, alpha4 = slope2 * alpha3 + bend2 * before**2 / 2, scale**2 * m.power_curvature / 2 * alpha4
            beta3 = alpha3 + slope2 * beta3 + beta1 * bend2 * before
            beta1, beta2 = alpha1 + slope2 * beta1, alpha2 + slope2 * beta2
            kappa2 = variance + scale**2 * m.slope_power * kappa2
        found = (alpha1, alpha2, alpha3, variance) if self.kind == "ck" else (beta1, beta2, beta3, kappa2)
        if not math.isfinite(sum(found)):
            raise InputError(f"the numbers of {layers} overflow")
        return FourNumbers(*found)

    def _gauged(self, layers: _Layers) -> _Layers:
        """Centre every layer, and scale it so that its output has standard deviation τ₀ again."""
        return [scale * centred for centred, scale, _ in map(self._gauge, layers)]

    def _gauge(self, layer: Activation) -> tuple[Activation, float, Moments]:
        """The centred layer, the scale that gives it the standard deviation τ₀, and its moments without the scale."""
        centred = layer - moments(layer, self.tau0).mean
        found = moments(centred, self.tau0)
        scale = self.tau0 / math.sqrt(found.power)
        if not scale * centred.lipschitz <= _STEEPEST:
            raise InputError(f"activation {layer} varies too little at tau0={self.tau0:.6g}")
        return centred, scale, found

    def _scale2(self, weights: FourNumbers) -> float:
        """The squared scale of the last layer that meets c₁, or c₃ for an even φ, or else d."""
        sizes = np.array(weights) * [self.tau0**2, self.tau0**4, self.tau0**4, 1.0]
        for index in (0, 2):
            if not self._vanishes(index + 1) and sizes[index] > 1e-14 * weights.d:
                return self.target[index] / weights[index]
        return self.target.d / weights.d

    def _finish(self, family: str, layers: _Layers) -> Found | None:
        """The centred network in its final scale; None if it is degenerate."""
        try:
            gauged = self._gauged(layers)
            gauged[-1] = math.sqrt(self._scale2(self._weights(layers))) * gauged[-1]
            network = Explicit(gauged).centered(self.tau0)
            achieved = coefficients(network, self.tau0).weights(self.kind)
        except _DEGENERATE:
            return None
        residual = float(np.abs(deviations(achieved, self.target, self.tau0)).max())
        return Found(network, family, achieved, residual) if math.isfinite(residual) else None

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
