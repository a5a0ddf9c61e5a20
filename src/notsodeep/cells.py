"""DEQs whose cell has several layers, with skips and normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from scipy.optimize import brentq

from notsodeep.activations import Activation, PiecewiseLinear, moderate
from notsodeep.checks import InputError, positive, real
from notsodeep.descriptions import Description, described_activations, register
from notsodeep.display import card
from notsodeep.gaussian import moments
from notsodeep.models import KernelMethods, require_infinite_width
from notsodeep.recursion import Layer, Recursion
from notsodeep.well_posedness import Condition, Verdict

__all__ = ["DeepDEQ", "Layer"]

_MOST_LAYERS = 100


@dataclass(frozen=True)
class DeepDEQ(KernelMethods, Description):
    """z* = φ_L(σ_L W_L φ_{L−1}(… φ_1(σ_1 W_1 z* + β_1 U_1 x) …) + β_L U_L x), every layer with its own weights.

    Parameters
    ----------
    layers : sequence of Layer
        In order of evaluation; the output of the last one is the state.

    Notes
    -----
    At infinite width, with K_0 = K_L and T_0 = T_L,

        Λ_l = σ_l² K_{l−1} + β_l² x·y + bias_l,   K_l = E[φ_l φ_l](Λ_l),   T_l = E[φ_l' φ_l'] (Λ_l + σ_l² T_{l−1}),

    ``ck`` = K_L, ``nngp`` = Λ_L, ``ntk`` = K_L + T_L (all weights and the readout trained). A normalised layer divides
    K_l and T_l by the root mean squares (standard deviations) of both samples. `residual` drops out before a
    normalisation and multiplies φ by 1/(1 − residual) otherwise; `skip` gives another piecewise-linear φ.

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> cell = nsd.DeepDEQ([nsd.Layer("relu", recurrent=0.5, input=0.7), nsd.Layer("relu", recurrent=0.6, input=0.4)])
    >>> bool(cell.well_posed.infinite_width)
    True
    >>> cell.kernel(np.eye(2)).round(5)
    array([[0.32973, 0.12912],
           [0.12912, 0.32973]])
    """

    layers: tuple[Layer, ...]

    kinds: ClassVar[tuple[str, ...]] = ("ck", "nngp", "ntk")
    """Names of its kernels."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        if isinstance(layers, Layer):
            layers = [layers]
        found = tuple(layers) if isinstance(layers, Sequence) else ()
        if not found or not all(isinstance(layer, Layer) for layer in found):
            raise InputError(f"layers={layers!r} must be a list of Layer(activation, recurrent, input, bias)")
        if len(found) > _MOST_LAYERS:
            raise InputError(f"layers has {len(found)} entries; at most {_MOST_LAYERS} are possible")
        object.__setattr__(self, "layers", found)
        if not any(layer.input or layer.bias for layer in found):
            raise InputError("no layer has input > 0 or bias > 0, so nothing drives the cell; give one an input")
        for k, layer in enumerate(found[:-1]):
            if layer.skip or layer.residual:
                raise InputError(f"layers[{k}] has a skip; only the last layer can receive the cell's state")
        last = found[-1]
        if last.skip and last.residual:
            raise InputError("the last layer has a skip and a residual; pass one of them")
        if last.residual and last.normalize is None and last.residual >= 1:
            raise InputError(f"residual={last.residual:.6g} never settles without normalisation; use residual < 1")
        if last.skip:
            _slopes(last)

    def recursion(self, square: float | None = None) -> Recursion:
        """The layers without skips and residuals; `square` = ‖x‖² is needed for a skip before a normalisation."""
        last = self.layers[-1]
        if last.plain or not (last.skip or last.residual):
            return Recursion(self.layers, closed=True)
        if last.normalize is None:
            phi = last.activation * (1 / (1 - last.residual)) if last.residual else _with_skip(last)
        else:
            phi = last.activation
        reduced = Recursion((*self.layers[:-1], replace_layer(last, phi)), closed=True)
        if last.normalize and last.skip and reduced.layers[-1].activation.kinks:
            if square is None:
                raise InputError(
                    "a skip before a normalisation acts differently on rows of different norms; normalise the rows"
                )
            phi = _with_normalized_skip(last, reduced.passed(reduced.state(square), square)[-1])
            reduced = Recursion((*self.layers[:-1], replace_layer(last, phi)), closed=True)
        return reduced

    @property
    def activations(self) -> tuple[Activation, ...]:
        """φ of each layer."""
        return tuple(layer.activation for layer in self.layers)

    @property
    def needs_one_norm(self) -> bool:
        """Whether all rows must have the same norm: a skip inside a kinked φ before a normalisation."""
        last = self.layers[-1]
        return bool(last.skip and last.normalize and last.activation.kinks)

    @property
    def well_posed(self) -> Verdict:
        """Π σ_l² sup E[φ_l'²] < 1; with normalised layers Π σ_l² E[φ_l'²]/divisor² < 1 at ‖x‖ = 1.

        At finite width Π 4σ_l² L_l² (over divisors²) < 1.
        """
        found = self.recursion(1.0)
        if not found.normalized:
            value, name, divisors = found.contraction(), "Π recurrent·sup E[φ'²]", 1.0
        else:
            value, name = found.contraction(1.0), "Π recurrent·E[φ'²]/divisor² at ‖x‖ = 1"
            variances = found.passed(found.state(1.0), 1.0)
            divisors = math.prod(layer.output(q)[2] ** 2 for layer, q in zip(found.layers, variances, strict=True))
        finite = math.prod(4 * layer.recurrent * layer.activation.lipschitz**2 for layer in found.layers) / divisors
        return Verdict(Condition("Π 4·recurrent·L²" + "/divisor²" * found.normalized, finite), Condition(name, value))

    def centered(self, tau0: float) -> DeepDEQ:
        """Return the cell with φ_l − E[φ_l(τ_l ξ)] in every layer, skips reduced, for rows of norm about `tau0`."""
        square = positive(tau0, "tau0") ** 2
        if any(layer.bias for layer in self.layers):
            raise InputError(f"{self} has a bias: the high-dimensional theory needs bias=0")
        found = self.recursion(square)
        if not found.normalized:
            require_infinite_width(self)
        variances = found.passed(found.state(square, centered=True), square, centered=True)
        return DeepDEQ(
            [
                replace(layer, activation=layer.activation - moments(layer.activation, math.sqrt(q)).mean)
                for layer, q in zip(found.layers, variances, strict=True)
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description."""
        layers = [{**vars(layer), "activation": layer.activation.to_dict()} for layer in self.layers]
        return {"model": "DeepDEQ", "layers": layers}

    def __str__(self) -> str:
        return f"DeepDEQ({' → '.join(f'[{layer}]' for layer in self.layers)})"

    def _repr_html_(self) -> str:
        rows = [(f"layer {k}", str(layer)) for k, layer in enumerate(self.layers, 1)]
        verdict = (bool(self.well_posed), self.well_posed.summary)
        return card("DeepDEQ", rows, formula="z_l = φ_l(σ_l W_l z_{l−1} + β_l U_l x + bias)/√m", verdict=verdict)


def _from_description(layers: Any) -> DeepDEQ:
    """Rebuild a cell from the entries of a file."""
    if not isinstance(layers, list) or len(layers) > _MOST_LAYERS:
        raise InputError(f"layers must be a list of at most {_MOST_LAYERS} layers")
    for layer in layers:
        for name in ("recurrent", "input", "bias", "skip", "residual"):
            moderate(real(layer.get(name, 0.0), name), name)
    found = described_activations([layer.get("activation") for layer in layers])
    return DeepDEQ([Layer(**{**layer, "activation": phi}) for phi, layer in zip(found, layers, strict=True)])


register("DeepDEQ", _from_description)


# --- skips ------------------------------------------------------------------------------


def replace_layer(layer: Layer, phi: Activation) -> Layer:
    """Return the layer with φ and without skips."""
    return replace(layer, activation=phi, skip=0.0, residual=0.0)


def _slopes(layer: Layer) -> tuple[float, float]:
    """Slopes of φ below and above 0, where it has no other kink and no shift."""
    phi, shape = layer.activation, layer.activation.shape
    if not isinstance(shape, PiecewiseLinear) or not phi.homogeneous:
        raise InputError(f"skip={layer.skip:.6g} inside {phi} has no closed form; use residual, or relu or leaky_relu")
    low, high = (phi.scale * phi.stretch * shape.slopes[k] for k in (0, -1))
    if layer.normalize is None and layer.skip * max(abs(low), abs(high)) >= 1:
        limit = 1 / max(abs(low), abs(high))
        raise InputError(f"skip={layer.skip:.6g} never settles with {phi}; use skip < {limit:.6g}")
    if layer.normalize and (low, high) != (high, low) and (layer.normalize != "layer" or low):
        raise InputError(
            f"skip={layer.skip:.6g} with normalize={layer.normalize!r} and {phi} has no closed form; "
            "use relu with normalize='layer', the identity, or residual"
        )
    return low, high


def _with_skip(layer: Layer) -> Activation:
    """z = φ(skip·z + g): a slope s becomes s/(1 − skip·s)."""
    low, high = (slope / (1 - layer.skip * slope) for slope in _slopes(layer))
    return Activation(PiecewiseLinear((0.0,), (low, high)) if low != high else PiecewiseLinear((), (high,)))


def _with_normalized_skip(layer: Layer, variance: float) -> Activation:
    """z = N(relu(skip·z + g)), g ~ N(0, q): z = (relu(g − c) − m)/s with m, s mean and deviation, c = skip·m/s."""
    _, high = _slopes(layer)
    tau = math.sqrt(variance)

    def kinked(c: float) -> Activation:
        return Activation(PiecewiseLinear((c,), (0.0, high)))

    def gap(c: float) -> float:
        m = moments(kinked(c), tau)
        variance = m.power - m.mean**2
        if not variance > 0:
            raise InputError(f"skip={layer.skip:g} is too large before a normalisation: hardly any unit stays active")
        return layer.skip * m.mean / math.sqrt(variance) - c

    top = tau
    while gap(top) > 0:
        top *= 2
    return kinked(float(brentq(gap, 0.0, top, xtol=1e-300, rtol=8.9e-16)))
