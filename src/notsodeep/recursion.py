"""A network as a recursion of covariances, from which every kernel of a fully-connected network is computed.

With P = x·y and one equation per layer,

    Λ_l = σ_l² K_{l−1} + β_l² P + bias_l,   K_l = E[φ_l(u) φ_l(v)],   (u, v) ~ N(0, Λ_l).

A layer may normalise its output. An explicit network starts from its input; a DEQ feeds its state back to its first
layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from scipy.optimize import brentq

from notsodeep.activations import Activation, activation
from notsodeep.checks import InputError, choice, nonnegative
from notsodeep.gaussian import moments, slope_power_supremum

__all__ = ["NORMALIZATIONS", "ActivationLike", "Layer", "Recursion", "varying"]

ActivationLike: TypeAlias = str | Activation | Callable[[Any], Any]

NORMALIZATIONS = ("rms", "layer")


def varying(spec: ActivationLike, parameter: str = "activation") -> Activation:
    """The activation that `spec` names, unless it is constant."""
    phi = activation(spec)
    if phi.lipschitz == 0 or phi.scale == 0:
        raise InputError(f"{parameter}={phi} is constant; pass a function that varies")
    return phi


@dataclass(frozen=True)
class Layer:
    """z_l = N(φ(σ W z_{l−1} + β U x + σ_0 b + skip·z) + residual·z), one layer of a cell; z is the cell's state.

    Parameters
    ----------
    activation : str, callable or Activation
        φ.
    recurrent, input, bias : float
        The variances σ² of the weights on the previous layer (on the state, in the first layer), β² and σ_0².
    normalize : {None, "rms", "layer"}
        N: nothing; divide the layer's output by its root mean square; subtract its mean and divide by its standard
        deviation.
    skip : float
        The state added inside φ; in the last layer only, for φ = identity, relu, leaky relu.
    residual : float
        The state added outside φ; in the last layer only.

    Examples
    --------
    >>> import notsodeep as nsd
    >>> print(nsd.Layer("relu", recurrent=0.5, input=0.7, normalize="layer"))
    relu(x), recurrent=0.5, input=0.7, bias=0, normalize=layer
    """

    activation: Activation
    recurrent: float
    input: float = 0.0
    bias: float = 0.0
    normalize: str | None = None
    skip: float = 0.0
    residual: float = 0.0

    def __init__(
        self,
        activation: ActivationLike,
        recurrent: float,
        input: float = 0.0,
        bias: float = 0.0,
        normalize: str | None = None,
        skip: float = 0.0,
        residual: float = 0.0,
    ) -> None:
        values: dict[str, Any] = {"activation": varying(activation)}
        numbers = {"recurrent": recurrent, "input": input, "bias": bias, "skip": skip, "residual": residual}
        values |= {name: nonnegative(value, name) for name, value in numbers.items()}
        values["normalize"] = None if normalize is None else choice(normalize, NORMALIZATIONS, "normalize")
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if not self.recurrent and not self.input and not self.bias:
            raise InputError("recurrent=0, input=0 and bias=0 leave nothing that drives the layer; pass one above 0")

    @property
    def plain(self) -> bool:
        """Whether the layer has no normalisation, skip or residual."""
        return self.normalize is None and not self.skip and not self.residual

    def output(self, variance: float, *, centered: bool = False) -> tuple[float, float, float]:
        """(power of the layer's output, its mean before and its divisor by normalisation) at this variance.

        ``centered=True``: of φ − E[φ].
        """
        if variance == 0:
            mean = float(self.activation(0.0))
            power = mean**2
        else:
            m = moments(self.activation, math.sqrt(variance))
            mean, power = m.mean, m.power
        if centered:
            power, mean = power - mean**2, 0.0
        if self.normalize is None:
            return power, 0.0, 1.0
        mean = mean if self.normalize == "layer" else 0.0
        return 1.0, mean, math.sqrt(power - mean**2)

    def __str__(self) -> str:
        parts = [str(self.activation)]
        parts += [f"{name}={getattr(self, name):.6g}" for name in ("recurrent", "input", "bias")]
        parts += [f"normalize={self.normalize}"] * (self.normalize is not None)
        parts += [f"{name}={getattr(self, name):.6g}" for name in ("skip", "residual") if getattr(self, name)]
        return ", ".join(parts)


@dataclass(frozen=True)
# covers: [Ling24] Prop. 2.6; [Ling24] Prop. 3.7; slides of [Ling24] Implicit CK; [FK20] Thm 1; [FK20] Rem. 1
class Recursion:
    """Layers without skips, and whether the last one's output enters the first (`closed`)."""

    layers: tuple[Layer, ...]
    closed: bool

    @property
    def activations(self) -> tuple[Activation, ...]:
        return tuple(layer.activation for layer in self.layers)

    @property
    def equilibrium(self) -> Layer | None:
        """The only layer, if this is a DEQ of one layer without normalisation."""
        first = self.layers[0]
        return first if self.closed and len(self.layers) == 1 and first.normalize is None else None

    @property
    def homogeneous(self) -> bool:
        """K(ax, by) = ab K(x, y) for a, b > 0."""
        return all(layer.activation.homogeneous and layer.plain and not layer.bias for layer in self.layers)

    @property
    def normalized(self) -> bool:
        return any(layer.normalize for layer in self.layers)

    def passed(self, state: float, square: float, *, centered: bool = False) -> list[float]:
        """Variances of the layers when the power `state` enters the first and ‖x‖² = `square`."""
        found = []
        for layer in self.layers:
            found.append(layer.recurrent * state + layer.input * square + layer.bias)
            state = layer.output(found[-1], centered=centered)[0]
        return found

    def state(self, square: float, *, centered: bool = False) -> float:
        """The power of the state, v = F(v), of a closed recursion; 0 of an open one."""
        if not self.closed:
            return 0.0
        last = self.layers[-1]

        def gap(v: float) -> float:
            return last.output(self.passed(v, square, centered=centered)[-1], centered=centered)[0] - v

        if self.normalized:  # the output power of a normalised layer does not depend on its input
            return gap(1.0) + 1.0
        if gap(0.0) <= 0:
            return 0.0
        high = max(2 * gap(0.0), 1e-300)
        while gap(high) > 0:
            high *= 2
            if high > 1e300:
                raise InputError("the layers admit no finite power of the state; use smaller recurrent variances")
        return float(brentq(gap, 0.0, high, xtol=1e-300, rtol=8.9e-16, maxiter=500))

    def contraction(self, square: float | None = None) -> float:
        """Π σ_l² E[φ_l'²]/divisor² at ‖x‖² = `square`; the supremum Π σ_l² sup E[φ_l'²] when absent."""
        if square is None:
            return math.prod(layer.recurrent * slope_power_supremum(layer.activation) for layer in self.layers)
        total = 1.0
        for layer, variance in zip(self.layers, self.passed(self.state(square), square), strict=True):
            slope = moments(layer.activation, math.sqrt(variance)).slope_power if variance else math.inf
            total *= layer.recurrent * slope / layer.output(variance)[2] ** 2
        return total
