"""Activation functions: φ(x) = scale · φ₀(stretch · x) − shift, with φ₀ from a short list of shapes.

Scaling, stretching, shifting and centring only change the three numbers, so every
composition stays an :class:`Activation` and keeps its closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.callables import PROBE_RADIUS, call_elementwise, central_difference, find_kinks, refuse_jumps, steepest
from notsodeep.checks import InputError, UnknownOptionError, nearest, positive, real
from notsodeep.formulas import FORMULAS
from notsodeep.hermite import HermiteSeries

__all__ = ["Activation", "Custom", "HermiteSeries", "PiecewiseLinear", "Smooth", "activation", "activation_names"]

Array: TypeAlias = NDArray[Any]

_MOST_KINKS = 128  # limit: the cost of moments grows quadratically
_EXTREME = 1e50  # limit for numbers in a description, so that products of a few of them do not overflow


@dataclass(frozen=True)
class PiecewiseLinear:
    """φ₀(x) = ∫₀ˣ slope, with slope `slopes[k]` between `kinks[k-1]` and `kinks[k]`."""

    kinks: tuple[float, ...]
    slopes: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.kinks) > _MOST_KINKS:
            raise InputError(f"kinks has {len(self.kinks)} entries; at most {_MOST_KINKS} are possible, so use fewer")
        if len(self.slopes) != len(self.kinks) + 1:
            raise InputError(f"slopes={self.slopes!r} must have one more entry than kinks={self.kinks!r}")
        if list(self.kinks) != sorted(set(self.kinks)):
            raise InputError(f"kinks={self.kinks!r} must be strictly increasing")

    def value(self, x: Array) -> Array:
        # the piece that contains 0 passes through the origin; each kink changes the slope
        origin = int(np.searchsorted(self.kinks, 0.0))
        total = self.slopes[origin] * x
        for k, kink in enumerate(self.kinks):
            bend = self.slopes[k + 1] - self.slopes[k]
            if k >= origin:
                total = total + bend * np.maximum(x - kink, 0)
            else:
                total = total - bend * np.minimum(x - kink, 0)
        return total

    def derivative(self, x: Array) -> Array:
        slopes = np.asarray(self.slopes, dtype=np.result_type(x, np.float32))
        return slopes[np.searchsorted(np.asarray(self.kinks), x)]

    origin = 0.0  # φ₀(0)

    @property
    def lipschitz(self) -> float:
        return max(abs(slope) for slope in self.slopes)

    @property
    def homogeneous(self) -> bool:
        """φ₀(cx) = c φ₀(x) for c > 0."""
        return all(kink == 0 for kink in self.kinks)

    @property
    def odd(self) -> bool:
        mirrored = tuple(-kink + 0.0 for kink in reversed(self.kinks))
        return mirrored == self.kinks and self.slopes == self.slopes[::-1]

    def text(self, x: str) -> str:
        if not self.kinks:
            return x if self.slopes == (1.0,) else f"{self.slopes[0]:.6g}·{x}"
        if self.homogeneous:
            low, high = self.slopes
            if (low, high) == (0.0, 1.0):
                return f"relu({x})"
            if (low, high) == (-1.0, 1.0):
                return f"abs({x})"
            return f"leaky_relu({x}; a={high:.6g}, b={low:.6g})"
        if len(self.kinks) == 2 and self.slopes == (0.0, 1.0, 0.0):
            low, high = self.kinks
            return f"clip({x}, {low:.6g}, {high:.6g})"
        kinks = ", ".join(f"{kink:.6g}" for kink in self.kinks)
        slopes = ", ".join(f"{slope:.6g}" for slope in self.slopes)
        return f"piecewise_linear({x}; kinks=({kinks}), slopes=({slopes}))"

    def to_dict(self) -> dict[str, Any]:
        return {"name": "piecewise_linear", "kinks": list(self.kinks), "slopes": list(self.slopes)}


@dataclass(frozen=True)
class Smooth:
    """An analytic function known by name."""

    name: str

    def value(self, x: Array) -> Array:
        return FORMULAS[self.name].value(x)

    def derivative(self, x: Array) -> Array:
        return FORMULAS[self.name].derivative(x)

    def departure(self, x: Array) -> tuple[Array, Array]:
        """g(x) = φ₀(x) − φ₀(0) and its even part."""
        formula = FORMULAS[self.name]
        return formula.departure(x) if formula.departure else _departure(self, x)

    @property
    def origin(self) -> float:
        """φ₀(0)."""
        return FORMULAS[self.name].origin

    @property
    def lipschitz(self) -> float:
        return FORMULAS[self.name].lipschitz

    @property
    def odd(self) -> bool:
        return FORMULAS[self.name].odd

    kinks = ()
    homogeneous = False

    def text(self, x: str) -> str:
        return f"{self.name}({x})"

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass(frozen=True)
class Custom:
    """Any function of one real variable; derivative, kinks and Lipschitz constant are found numerically."""

    function: Callable[[Any], Any]
    slope: Callable[[Any], Any] | None = None
    kinks: tuple[float, ...] = ()
    lipschitz: float = math.nan
    odd: bool = False

    homogeneous = False

    def value(self, x: Array) -> Array:
        return call_elementwise(self.function, x)

    def derivative(self, x: Array) -> Array:
        if self.slope is not None:
            return call_elementwise(self.slope, x)
        return central_difference(self.value, x, self.kinks)

    def departure(self, x: Array) -> tuple[Array, Array]:
        """g(x) = φ₀(x) − φ₀(0) and its even part."""
        return _departure(self, x)

    @cached_property
    def origin(self) -> float:
        """φ₀(0); 0 where the function is not defined there."""
        with np.errstate(all="ignore"):
            value = float(self.value(np.zeros(1))[0])
        return value if math.isfinite(value) else 0.0

    def text(self, x: str) -> str:
        return f"{getattr(self.function, '__name__', 'custom')}({x})"

    def to_dict(self) -> dict[str, Any]:
        raise InputError(
            f"activation {self.text('x')} is a Python function and cannot be written to a file; "
            "use a registered name or piecewise_linear"
        )


Shape: TypeAlias = PiecewiseLinear | Smooth | Custom | HermiteSeries


@dataclass(frozen=True)
# covers: [Ling24] Asm. 2.3; [FK20] Def. 3.1
class Activation:
    """φ(x) = scale · φ₀(stretch · x) − shift.

    Parameters
    ----------
    shape : PiecewiseLinear, Smooth, HermiteSeries or Custom
        The elementary function φ₀. Users get one from :func:`activation`.
    scale, stretch, shift : float
        The three numbers of the composition.

    Examples
    --------
    >>> import notsodeep as nsd
    >>> relu = nsd.activation("relu")
    >>> print(2 * relu - 1)
    2·relu(x) - 1
    >>> (2 * relu - 1)(3.0)
    5.0
    """

    shape: Shape = field(repr=False)
    scale: float = 1.0
    stretch: float = 1.0
    shift: float = 0.0

    def __call__(self, x: ArrayLike) -> Any:
        """φ(x), elementwise."""
        array = _as_float(x)
        result = self.scale * self.shape.value(self.stretch * array) - self.shift
        return result if array.ndim else float(result)

    def derivative(self, x: ArrayLike) -> Any:
        """φ'(x), elementwise; at a kink the slope on its left (for a bare callable, the mean of both)."""
        array = _as_float(x)
        result = self.scale * self.stretch * self.shape.derivative(self.stretch * array)
        return result if array.ndim else float(result)

    @property
    def lipschitz(self) -> float:
        """L = sup |φ'|."""
        return abs(self.scale * self.stretch) * self.shape.lipschitz

    @property
    def kinks(self) -> tuple[float, ...]:
        """Points where φ' jumps."""
        return tuple(sorted(kink / self.stretch for kink in self.shape.kinks))

    @property
    def homogeneous(self) -> bool:
        """φ(cx) = c φ(x) for every c > 0."""
        return self.shape.homogeneous and self.shift == 0

    @property
    def odd(self) -> bool:
        """φ(−x) − φ(0) = −(φ(x) − φ(0))."""
        return self.shape.odd

    def stretched(self, factor: float) -> Activation:
        """x ↦ φ(factor · x)."""
        return replace(self, stretch=self.stretch * positive(factor, "factor"))

    def __mul__(self, factor: float) -> Activation:
        factor = real(factor, "factor")
        return replace(self, scale=self.scale * factor, shift=self.shift * factor)

    __rmul__ = __mul__

    def __add__(self, constant: float) -> Activation:
        return replace(self, shift=self.shift - real(constant, "constant"))

    def __sub__(self, constant: float) -> Activation:
        return self + (-real(constant, "constant"))

    def __str__(self) -> str:
        inner = "x" if self.stretch == 1 else f"{self.stretch:.6g}·x"
        text = self.shape.text(inner)
        if self.scale != 1:
            text = f"{self.scale:.6g}·{text}"
        if self.shift:
            text += f" {'-' if self.shift > 0 else '+'} {abs(self.shift):.6g}"
        return text

    def __repr__(self) -> str:
        return f"Activation({self})"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; :meth:`from_dict` reads it back."""
        return {**self.shape.to_dict(), "scale": self.scale, "stretch": self.stretch, "shift": self.shift}

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> Activation:
        """Rebuild an activation from :meth:`to_dict`."""
        if not isinstance(description, Mapping):
            raise InputError(f"activation={description!r} must be a description as activation.to_dict() gives it")
        parts = dict(description)
        try:
            scale, stretch, shift = (parts.pop(key) for key in ("scale", "stretch", "shift"))
            name = parts.pop("name")
        except KeyError as missing:
            raise InputError(f"activation description lacks {missing}") from None
        if not isinstance(name, str):  # a Python function cannot be described
            raise InputError(f"activation={name!r} must be a name")
        phi = real(scale, "scale") * activation(name, **parts).stretched(stretch) - shift
        kinks, slopes = (phi.shape.kinks, phi.shape.slopes) if isinstance(phi.shape, PiecewiseLinear) else ((), ())
        if isinstance(phi.shape, HermiteSeries):
            slopes = (*phi.shape.coefficients, *phi.shape.bends, *phi.shape.logs)
        for value in (
            phi.scale,
            phi.shift,
            *slopes,
            phi.stretch,
            1 / phi.stretch,
            *kinks,
            *(1 / k for k in kinks if k),
        ):
            moderate(value, "activation description")
        return phi


def moderate(value: float, parameter: str) -> None:
    """Refuse a number of a description that could make others overflow."""
    if not abs(value) <= _EXTREME:
        raise InputError(
            f"{parameter} holds a number out of range, {value:.6g}; use one between {1 / _EXTREME:g} and {_EXTREME:g}"
        )


def _departure(shape: Smooth | Custom, x: Array) -> tuple[Array, Array]:
    value = shape.value(x) - shape.origin
    return value, 0 * x if shape.odd else (value + (shape.value(-x) - shape.origin)) / 2


def _leaky(a: float = 1.0, b: float = 0.01) -> Activation:
    low, high = sorted((real(a, "a"), real(b, "b")))  # max(ax, bx)
    return Activation(PiecewiseLinear((0.0,), (low, high)) if low != high else PiecewiseLinear((), (high,)))


def _hard_tanh(a: float = 1.0, c: float = 1.0) -> Activation:
    bound = positive(c, "c")
    return Activation(PiecewiseLinear((-bound, bound), (0.0, 1.0, 0.0)), scale=real(a, "a"))


def _piecewise(kinks: ArrayLike, slopes: ArrayLike) -> Activation:
    return Activation(PiecewiseLinear(_numbers(kinks, "kinks"), _numbers(slopes, "slopes")))


def _hermite(
    coefficients: ArrayLike = (0.1, 0.5, 0.05),
    bends: ArrayLike = (0.1,),
    logs: ArrayLike = (-0.01,),
    decays: ArrayLike | None = None,
) -> Activation:
    if decays is None:  # one sharp bend of each kind, or none; more of them need their widths
        decays = (0.0,) * min(np.size(bends), 1)
    numbers = {"coefficients": coefficients, "bends": bends, "logs": logs, "decays": decays}
    return Activation(HermiteSeries(*(_numbers(values, name) for name, values in numbers.items())))


def _numbers(values: ArrayLike, parameter: str) -> tuple[float, ...]:
    return tuple(real(value, f"{parameter}[{k}]") for k, value in enumerate(np.atleast_1d(values).tolist()))


_BUILDERS: dict[str, Callable[..., Activation]] = {
    "relu": lambda: Activation(PiecewiseLinear((0.0,), (0.0, 1.0))),
    "normalized_relu": lambda: Activation(PiecewiseLinear((0.0,), (0.0, 1.0)), scale=math.sqrt(2)),
    "leaky_relu": _leaky,
    "abs": lambda: Activation(PiecewiseLinear((0.0,), (-1.0, 1.0))),
    "identity": lambda: Activation(PiecewiseLinear((), (1.0,))),
    "hard_tanh": _hard_tanh,
    "hermite": _hermite,
    "piecewise_linear": _piecewise,
    **{name: (lambda name=name: Activation(Smooth(name))) for name in FORMULAS},
}


_PARAMETERS: dict[str, tuple[str, ...]] = {
    "leaky_relu": ("a", "b"),
    "hard_tanh": ("a", "c"),
    "hermite": ("coefficients", "bends", "logs", "decays"),
    "piecewise_linear": ("kinks", "slopes"),
}


def activation_names() -> tuple[str, ...]:
    """Return the registered names."""
    return tuple(_BUILDERS)


def activation(spec: str | Activation | Callable[[Any], Any], **parameters: Any) -> Activation:
    """Return an :class:`Activation` from a name, a callable, or another activation.

    Parameters
    ----------
    spec : str, callable or Activation
        A registered name (:func:`activation_names`), or any function of one real variable.
    **parameters
        The shape's own numbers: ``a, b`` of ``leaky_relu`` (max(ax, bx)), ``a, c`` of
        ``hard_tanh`` (a·clip(x, −c, c)), ``kinks, slopes`` of ``piecewise_linear``, ``coefficients, bends, logs`` of
        ``hermite`` (:mod:`notsodeep.hermite`; what :func:`notsodeep.match` designs on a sphere). For a
        callable: ``derivative`` (function), ``kinks`` (points where the slope jumps; found
        numerically when absent) and ``lipschitz``.

    Examples
    --------
    >>> import numpy as np
    >>> import notsodeep as nsd
    >>> nsd.activation("leaky_relu", a=1.0, b=0.2)(-2.0)
    -0.4
    >>> round(nsd.activation(np.arctan).derivative(1.0), 9)
    0.5
    """
    if isinstance(spec, Activation):
        if parameters:
            raise InputError(f"{sorted(parameters)} cannot be applied to a ready Activation; pass its name instead")
        return spec
    if isinstance(spec, str):
        if spec not in _BUILDERS:
            raise InputError(
                f"activation={spec!r} is not known{nearest(spec, _BUILDERS)} (choose from {', '.join(_BUILDERS)})"
            )
        known = _PARAMETERS.get(spec, ())
        for name in parameters:
            if name not in known:
                takes = f"takes {', '.join(known)}" if known else "takes no parameters"
                raise UnknownOptionError(
                    f"activation {spec!r} has no parameter {name!r}{nearest(name, known)} (it {takes})"
                )
        try:
            return _BUILDERS[spec](**parameters)
        except TypeError:
            missing = [name for name in known if name not in parameters]
            raise InputError(f"activation {spec!r} needs {' and '.join(missing)}") from None
    if callable(spec):
        return _from_callable(spec, **parameters)
    raise InputError(f"activation={spec!r} must be a name, a callable or an Activation")


def _from_callable(
    function: Callable[[Any], Any],
    derivative: Callable[[Any], Any] | None = None,
    kinks: ArrayLike | None = None,
    lipschitz: float | None = None,
    **unknown: Any,
) -> Activation:
    for name in unknown:
        options = ("derivative", "kinks", "lipschitz")
        raise UnknownOptionError(f"a callable activation has no parameter {name!r}{nearest(name, options)}")
    probe = np.array([-1.5, -0.5, 0.25, 1.0, 2.0])
    values = call_elementwise(function, probe)
    if values.shape != probe.shape or not np.isfinite(values).all():
        raise InputError(f"activation {function!r} must map a finite array to a finite array of the same shape")
    points = find_kinks(function) if kinks is None else tuple(sorted(_numbers(kinks, "kinks")))
    refuse_jumps(function, points)
    grid = np.linspace(-PROBE_RADIUS, PROBE_RADIUS, 8001)
    bare = Custom(function, derivative, points)
    forward, backward = (bare.value(side) - bare.origin for side in (grid, -grid))
    odd = bool(np.allclose(forward, -backward, rtol=1e-13, atol=1e-14 * max(1.0, abs(bare.origin))))
    bare = replace(bare, odd=odd)
    if lipschitz is None:
        lipschitz = steepest(bare.value, bare.derivative, points)
    return Activation(replace(bare, lipschitz=positive(lipschitz, "lipschitz")))


def _as_float(x: ArrayLike) -> Array:
    array = np.asarray(x)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
