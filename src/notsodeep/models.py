"""Small immutable descriptions of the models; no weights and no data inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar, cast

from scipy.optimize import brentq

from notsodeep.activations import Activation
from notsodeep.checks import InputError, choice, count, nonnegative, positive
from notsodeep.descriptions import Description, load_model, register
from notsodeep.display import card
from notsodeep.gaussian import moments, slope_power_supremum
from notsodeep.kinds import Kind
from notsodeep.recursion import ActivationLike, Layer, Recursion, varying
from notsodeep.well_posedness import Condition, Verdict, verdict_on

__all__ = ["DEQ", "Condition", "ConvDEQ", "Explicit", "KernelMethods", "Verdict", "load_model"]


class KernelMethods:
    """`kernel` and `kernel_diag`, computed in :mod:`notsodeep.kernels`."""

    @property
    def needs_one_norm(self) -> bool:
        """Whether all rows must have the same norm."""
        return False

    def kernel(self, X: Any, Y: Any = None, kind: str | Sequence[str] = "ck", **options: Any) -> Any:
        """Exact infinite-width kernel; see :func:`notsodeep.kernels.kernel`."""
        from notsodeep.kernels import kernel

        return kernel(cast("DEQ | Explicit", self), X, Y, kind=kind, **options)

    def kernel_diag(self, X: Any, kind: str | Sequence[str] = "ck", **options: Any) -> Any:
        """Diagonal of the kernel, without the matrix; see :func:`notsodeep.kernels.kernel_diag`."""
        from notsodeep.kernels import kernel_diag

        return kernel_diag(cast("DEQ | Explicit", self), X, kind=kind, **options)

    def on_sphere(self, kind: str = "ntk", norm: float = 1.0, depth: int | None = None) -> Any:
        """The kernel of rows of equal norm as a function of their cosine; see :func:`notsodeep.kernels.on_sphere`."""
        from notsodeep.kernels.sphere import on_sphere

        return on_sphere(cast("DEQ | Explicit", self), kind, norm, depth)


@dataclass(frozen=True)
# covers: [Ling24] Def. 2.1; [Ling24] Asm. 2.2; slides of [Ling24] Definition; slides of [Ling24] Asm. 1
# covers: [FK20] NTK initialization; [FK20] DEQ-NTK initialization
class DEQ(KernelMethods, Description):
    """z* = φ(σ_a A z* + σ_b B x + σ_0 b)/√m with i.i.d. standard weights.

    Parameters
    ----------
    activation : str, callable or Activation
        φ.
    recurrent, input, bias : float
        The variances σ_a², σ_b², σ_0².

    Examples
    --------
    >>> import notsodeep as nsd
    >>> deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    >>> print(deq)
    DEQ(relu(x), recurrent=0.2, input=0.8, bias=0)
    >>> bool(deq.well_posed)
    True
    >>> deq.well_posed.finite_width.margin
    0.19999999999999996
    """

    activation: Activation
    recurrent: float
    input: float
    bias: float = 0.0

    kinds: ClassVar[tuple[str, ...]] = tuple(kind.label for kind in Kind)
    """Names of its kernels."""

    def __init__(self, activation: ActivationLike, recurrent: float, input: float, bias: float = 0.0) -> None:
        _set(self, activation=varying(activation))
        _set(
            self,
            recurrent=nonnegative(recurrent, "recurrent"),
            input=nonnegative(input, "input"),
            bias=nonnegative(bias, "bias"),
        )
        if self.input == 0 and self.bias == 0:
            raise InputError("input=0 and bias=0 leave nothing that drives the network; pass input > 0")

    @property
    def well_posed(self) -> Verdict:
        """The finite- and infinite-width conditions with their margins."""
        return verdict_on(self.activation, self.recurrent)

    def recursion(self, depth: int | None = None) -> Recursion:
        """The equilibrium, or the iterate after `depth` layers from Λ⁰ = x·y [FK20, Thm 1]."""
        layer = Layer(self.activation, self.recurrent, self.input, self.bias)
        if depth is None:
            return Recursion((layer,), closed=True)
        return Recursion((Layer(self.activation, 0.0, 1.0), *[layer] * depth), closed=False)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its one layer, as a cell would have it."""
        return self.recursion().layers

    def fixed_variance(self, drive: float, *, centered: bool = False) -> float:
        """q = σ_a² E[φ(√q ξ)²] + drive, the pre-activation variance of a sample.

        Parameters
        ----------
        drive : float
            σ_b² ‖x‖² + σ_0².
        centered : bool
            Use Var[φ] in place of E[φ²].
        """
        return _fixed_variance(self, nonnegative(drive, "drive"), centered)

    def centered(self, tau0: float) -> DEQ:
        """Return the same DEQ with φ − E[φ(τ*ξ)], where τ*² = σ_a² Var[φ(τ*ξ)] + σ_b² τ0².

        Examples
        --------
        >>> import notsodeep as nsd
        >>> print(nsd.DEQ("relu", 0.2, 0.8).centered(tau0=1.0).activation)
        relu(x) - 0.369646
        """
        tau0 = positive(tau0, "tau0")
        if self.bias:
            raise InputError(f"bias={self.bias!r}: the high-dimensional theory needs bias=0")
        require_infinite_width(self)
        tau = math.sqrt(self.fixed_variance(self.input * tau0**2, centered=True))
        return replace_activation(self, self.activation - moments(self.activation, tau).mean)

    def __str__(self) -> str:
        return f"DEQ({self.activation}, recurrent={self.recurrent:.6g}, input={self.input:.6g}, bias={self.bias:.6g})"

    def _repr_html_(self) -> str:
        rows = [("φ(x)", self.activation), *_variances(self), ("bias, σ_0²", f"{self.bias:.6g}")]
        verdict = (bool(self.well_posed), self.well_posed.summary)
        return card("DEQ", rows, formula="z* = φ(σ_a A z* + σ_b B x + σ_0 b)/√m", verdict=verdict)


@dataclass(frozen=True)
# covers: [Ling24] Def. 3.6; [Ling24] Prop. 3.7
class Explicit(KernelMethods, Description):
    """x⁽ˡ⁾ = σ_l(√weights_l W_l x⁽ˡ⁻¹⁾ + √bias_l b_l)/√m_l, one activation a layer, standard weights.

    The CK is the covariance of a readout with standard weights: the NNGP kernel. The NTK trains all weights, biases
    and the readout.

    Parameters
    ----------
    activations : sequence of str, callable or Activation
        σ_1, σ_2, …
    bias : float or sequence of floats
        Variance of the biases, of all layers or of each.
    normalize : float, optional
        Rows enter as normalize·x/‖x‖, and the last hidden layer is multiplied by ‖x‖/normalize, so that
        K(cx, y) = c K(x, y) for c > 0. Rows enter as they are when absent.
    weights : float or sequence of floats
        Variance of the weights, of all layers or of each. It is kept as a part of the activations:
        σ(√w Wx + √b b) = σ'(Wx + √(b/w) b) with σ'(x) = σ(√w x).

    Examples
    --------
    >>> import notsodeep as nsd
    >>> net = nsd.Explicit(["relu", "tanh"])
    >>> net.depth
    2
    >>> print(net.centered(tau0=1.0))
    Explicit(relu(x) - 0.398942 → tanh(x))
    >>> print(nsd.Explicit(["tanh"], bias=0.5, weights=4.0))
    Explicit(tanh(2·x), bias=[0.125])
    """

    activations: tuple[Activation, ...]
    bias: tuple[float, ...] = ()
    normalize: float | None = None

    kinds: ClassVar[tuple[str, ...]] = ("ck", "ntk")
    """Names of its kernels."""

    def __init__(
        self,
        activations: Sequence[ActivationLike],
        bias: float | Sequence[float] = 0.0,
        normalize: float | None = None,
        *,
        weights: float | Sequence[float] = 1.0,
    ) -> None:
        if isinstance(activations, str | Activation) or callable(activations):
            activations = [activations]
        layers = tuple(varying(layer, f"activations[{k}]") for k, layer in enumerate(activations))
        if not layers:
            raise InputError("activations is empty; pass at least one layer")
        biases = [nonnegative(b, f"bias[{k}]") for k, b in enumerate(_each(bias, "bias", len(layers)))]
        scales = [positive(w, f"weights[{k}]") for k, w in enumerate(_each(weights, "weights", len(layers)))]
        layers = tuple(phi if w == 1 else phi.stretched(math.sqrt(w)) for phi, w in zip(layers, scales, strict=True))
        _set(self, activations=layers, bias=tuple(b / w for b, w in zip(biases, scales, strict=True)))
        _set(self, normalize=None if normalize is None else positive(normalize, "normalize"))

    def recursion(self, depth: int | None = None) -> Recursion:
        """One level per layer, from the (normalised) input to the last layer; `depth` must be None."""
        assert depth is None
        first = Layer(self.activations[0], 0.0, 1.0, self.bias[0])
        later = [Layer(phi, 1.0, 0.0, b) for phi, b in zip(self.activations[1:], self.bias[1:], strict=True)]
        return Recursion((first, *later), closed=False)

    @property
    def depth(self) -> int:
        return len(self.activations)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; without bias and normalisation it is the one of version 0.1."""
        absent = {"bias": not any(self.bias), "normalize": self.normalize is None}
        return {key: value for key, value in super().to_dict().items() if not absent.get(key)}

    def centered(self, tau0: float) -> Explicit:
        """Return the network with every layer centred: E[σ_l(τ_{l−1}ξ)] = 0."""
        if any(self.bias):
            raise InputError(f"bias={self.bias}: the high-dimensional theory needs bias=0")
        layers, tau = [], positive(tau0, "tau0") if self.normalize is None else self.normalize
        for layer in self.activations:
            layers.append(layer - moments(layer, tau).mean)
            tau = math.sqrt(moments(layers[-1], tau).power)
            if tau == 0:
                raise InputError(f"activation {layer} is constant; the signal dies after it")
        return Explicit(layers, normalize=self.normalize)

    def __str__(self) -> str:
        layers = " → ".join(_runs(self.activations))
        bias = f", bias=[{', '.join(_runs(self.bias))}]" if any(self.bias) else ""
        radial = "" if self.normalize is None else f", normalize={self.normalize:.6g}"
        return f"Explicit({layers}{bias}{radial})"

    def _repr_html_(self) -> str:
        biases = [f"bias {bias:.6g}" if bias else "" for bias in self.bias]
        layers = enumerate(zip(self.activations, biases, strict=True), 1)
        rows = [(f"layer {k}, σ_{k}(x)", activation, bias) for k, (activation, bias) in layers]
        radial = () if self.normalize is None else (f"rows are divided by their norms times {1 / self.normalize:.6g}",)
        title = f"Explicit, {self.depth} hidden layer{'s' * (self.depth > 1)}"
        return card(title, rows, formula="x_l = σ_l(W_l x_{l−1})/√m", notes=radial)


def _runs(values: Sequence[Any]) -> list[str]:
    """As text; more than three equal ones in a row are counted."""
    runs = [(text, len(list(equal))) for text, equal in groupby(map(str, values))]
    return [part for text, times in runs for part in ([f"{times} × {text}"] if times > 3 else [text] * times)]


def _each(values: float | Sequence[float], name: str, layers: int) -> Sequence[float]:
    """One value a layer."""
    each = values if isinstance(values, Sequence) else [values] * layers
    if len(each) != layers:
        raise InputError(f"{name} has {len(each)} entries for {layers} layers; pass one number, or one a layer")
    return each


@dataclass(frozen=True)
# covers: [FK20] Thm 3; [FK20] CDEQ-NTK initialization
class ConvDEQ(Description):
    """x = φ((σ_a W∗x + σ_b U∗x₀)/S), the convolutional DEQ of [FK20, §4].

    Parameters
    ----------
    activation : str or Activation
        A positively homogeneous φ; ``"normalized_relu"`` in the paper.
    recurrent, input : float
        σ_a², σ_b².
    filter_size : int
        Odd width of the square filters.
    padding : {"zero", "circular"}
    """

    activation: Activation
    recurrent: float
    input: float
    filter_size: int = 3
    padding: str = "zero"

    kinds: ClassVar[tuple[str, ...]] = DEQ.kinds
    """Names of its kernels."""

    def __init__(
        self, activation: ActivationLike, recurrent: float, input: float, filter_size: int = 3, padding: str = "zero"
    ) -> None:
        phi = varying(activation)
        if not phi.homogeneous:
            raise InputError(
                f"activation={phi} is not positively homogeneous; use relu, normalized_relu, leaky_relu or abs"
            )
        size = count(filter_size, "filter_size")
        if size % 2 == 0:
            raise InputError(f"filter_size={size} must be odd, so that the window has a centre; try {size + 1}")
        _set(self, activation=phi, recurrent=nonnegative(recurrent, "recurrent"), input=positive(input, "input"))
        _set(self, filter_size=size, padding=choice(padding, ("zero", "circular"), "padding"))

    @property
    def well_posed(self) -> Verdict:
        """The finite- and infinite-width conditions with their margins."""
        return verdict_on(self.activation, self.recurrent)

    def kernel(self, images: Any, other: Any = None, kind: str | Sequence[str] = "ck", **options: Any) -> Any:
        """Exact infinite-width kernel; see :func:`notsodeep.kernels.conv.kernel`."""
        from notsodeep.kernels.conv import kernel

        return kernel(self, images, other, kind=kind, **options)

    def kernel_diag(self, images: Any, kind: str | Sequence[str] = "ck", **options: Any) -> Any:
        """Diagonal of the kernel, without the matrix; see :func:`notsodeep.kernels.conv.kernel_diag`."""
        from notsodeep.kernels.conv import kernel_diag

        return kernel_diag(self, images, kind=kind, **options)

    def __str__(self) -> str:
        return (
            f"ConvDEQ({self.activation}, recurrent={self.recurrent:.6g}, input={self.input:.6g}, "
            f"filter_size={self.filter_size}, padding={self.padding})"
        )

    def _repr_html_(self) -> str:
        filters = f"{self.filter_size}×{self.filter_size}, {self.padding} padding"
        rows = [("φ(x)", self.activation), *_variances(self), ("filters", filters)]
        verdict = (bool(self.well_posed), self.well_posed.summary)
        return card("ConvDEQ", rows, formula="x = φ((σ_a W∗x + σ_b U∗x₀)/S)", verdict=verdict)


def _variances(model: DEQ | ConvDEQ) -> list[tuple[str, str]]:
    return [("recurrent, σ_a²", f"{model.recurrent:.6g}"), ("input, σ_b²", f"{model.input:.6g}")]


def require_infinite_width(model: Any) -> None:
    """Raise unless the infinite-width kernels exist."""
    condition = model.well_posed.infinite_width
    if condition.holds:
        return
    if isinstance(model, DEQ | ConvDEQ):
        limit = 1 / slope_power_supremum(model.activation)
        raise InputError(
            f"recurrent={model.recurrent:.6g} is not well-posed for {model.activation}: {condition}; "
            f"use recurrent < {limit:.6g}"
        )
    raise InputError(f"{model} is not well-posed: {condition}; use smaller recurrent variances")


def replace_activation(model: DEQ, phi: Activation) -> DEQ:
    """Return `model` with another activation."""
    return DEQ(phi, model.recurrent, model.input, model.bias)


# covers: [Ling24] Eq. (10); [Ling24] Asm. 3.1; [Ling24] Rem. 3.2; [Ling24] Lemma A.2
def _fixed_variance(model: DEQ, drive: float, centered: bool) -> float:
    recurrent = model.recurrent
    # a constant does not change the variance, but a small variance would cancel against its square
    phi = model.activation - model.activation(0.0) if centered else model.activation

    def gap(q: float) -> float:
        if q == 0:
            power = float(phi(0.0)) ** 2
            return drive + recurrent * (0.0 if centered else power)
        m = moments(phi, math.sqrt(q))
        return drive + recurrent * (m.power - (m.mean**2 if centered else 0.0)) - q

    low = drive  # the map is above the identity here …
    if gap(low) <= 0:
        return low
    high = max(2 * drive, 1.0)  # … and below it from some q on, because σ_a² sup E[φ'²] < 1
    while gap(high) > 0:
        high *= 2
        if high > 1e300:
            raise InputError(f"recurrent={recurrent!r} admits no finite variance for {phi}; use a smaller value")
    return float(brentq(gap, low, high, xtol=1e-300, rtol=8.9e-16, maxiter=500))


def _set(instance: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(instance, name, value)  # the dataclasses are frozen


for _kind in (DEQ, Explicit, ConvDEQ):
    register(_kind.__name__, _kind)
