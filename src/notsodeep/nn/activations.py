"""Activations on tensors: φ(x) = scale · φ₀(stretch · x) − shift, fixed or learnable, with an exact φ'."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from notsodeep.activations import Activation, Custom, HermiteSeries, PiecewiseLinear, Smooth, activation
from notsodeep.checks import InputError, choice
from notsodeep.nn.initialization import widened
from notsodeep.nn.series import parabola_table, series_into, series_slope, series_value

__all__ = ["TensorActivation"]

Function: TypeAlias = Callable[[Tensor], Tensor]

_NUMBERS = ("scale", "stretch", "shift")
_POINTS = ("kinks", "slopes")


def _sech2(x: Tensor) -> Tensor:
    return 1 - torch.tanh(x) ** 2


def _normal_density(x: Tensor) -> Tensor:
    return torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


# value and derivative of every φ₀ known by name
_SMOOTH: dict[str, tuple[Function, Function]] = {
    "tanh": (torch.tanh, _sech2),
    "erf": (torch.erf, lambda x: torch.exp(-(x**2)) * (2 / math.sqrt(math.pi))),
    "sin": (torch.sin, torch.cos),
    "cos": (torch.cos, lambda x: -torch.sin(x)),
    "arctan": (torch.atan, lambda x: 1 / (1 + x**2)),
    "gaussian": (lambda x: torch.exp(-(x**2) / 2), lambda x: -x * torch.exp(-(x**2) / 2)),
    "sigmoid": (torch.sigmoid, lambda x: torch.sigmoid(x) * torch.sigmoid(-x)),
    "softplus": (nn.functional.softplus, torch.sigmoid),
    "swish": (nn.functional.silu, lambda x: torch.sigmoid(x) * (1 + x * torch.sigmoid(-x))),
    "gelu": (nn.functional.gelu, lambda x: torch.special.ndtr(x) + x * _normal_density(x)),
}


def _relu(x: Tensor, out: Tensor) -> Tensor:
    return torch.clamp_min(x, 0.0, out=out)


_INTO_BUFFER: dict[str, Callable[..., Tensor]] = {"relu(x)": _relu, "tanh(x)": torch.tanh}


class TensorActivation(nn.Module):
    """φ(x) = scale · φ₀(stretch · x) − shift on tensors.

    Parameters
    ----------
    spec : Activation, str or callable
        As in :func:`notsodeep.activation`.
    learnable : bool or iterable of str
        Which numbers become parameters: any of ``scale``, ``stretch``, ``shift`` and, for a
        piecewise linear φ₀, ``kinks`` and ``slopes``; ``True`` means all of them.
    dtype : torch.dtype, optional
        Of these parameters.

    Examples
    --------
    >>> import notsodeep as nsd
    >>> phi = TensorActivation(nsd.activation("leaky_relu", a=1.0, b=0.25), learnable=["slopes"])
    >>> [name for name, _ in phi.named_parameters()]
    ['slopes']
    >>> print(phi.description)
    leaky_relu(x; a=1, b=0.25)
    """

    def __init__(
        self,
        spec: Activation | str | Callable[[Any], Any],
        learnable: bool | Iterable[str] = False,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        phi = activation(spec)
        self._initial = phi
        self._numbers = {name: float(getattr(phi, name)) for name in _NUMBERS}
        self._points: dict[str, list[float]] = {}
        if isinstance(phi.shape, PiecewiseLinear):
            self._points = {"kinks": list(phi.shape.kinks), "slopes": list(phi.shape.slopes)}
            self._origin = int(np.searchsorted(phi.shape.kinks, 0.0))
        self._parabolas = parabola_table(phi.shape) if isinstance(phi.shape, HermiteSeries) else None
        # fast path for common φ without a scale: write into the buffer
        bare = all(number == plain for number, plain in zip(self._numbers.values(), (1.0, 1.0, 0.0), strict=True))
        self._in_place = _INTO_BUFFER.get(str(phi)) if bare and not learnable else None
        if bare and not learnable and isinstance(phi.shape, HermiteSeries):
            self._in_place = partial(series_into, phi.shape)
        for name in self._names_to_learn(learnable):
            start = self._numbers[name] if name in _NUMBERS else self._points[name]
            self.register_parameter(name, nn.Parameter(torch.tensor(start, dtype=dtype)))

    def _names_to_learn(self, learnable: bool | Iterable[str]) -> list[str]:
        available = [*_NUMBERS, *(name for name in _POINTS if self._points.get(name))]
        if isinstance(learnable, bool):
            return available if learnable else []
        names = [learnable] if isinstance(learnable, str) else list(learnable)
        return [choice(name, available, "learnable") for name in names]

    def _number(self, name: str) -> float | Tensor:
        parameter = self._parameters.get(name)
        return self._numbers[name] if parameter is None else parameter

    def _list(self, name: str) -> list[float] | Tensor:
        parameter = self._parameters.get(name)
        return self._points[name] if parameter is None else parameter

    def forward(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """φ(x), elementwise; `out` is a buffer that may hold the result, outside of any graph."""
        if out is not None and self._in_place is not None:
            return self._in_place(x, out=out)
        result = self._shape_value(_times(x, self._number("stretch")))
        return _minus(_times(result, self._number("scale")), self._number("shift"))

    def derivative(self, x: Tensor) -> Tensor:
        """φ'(x), elementwise; at a kink the slope on its left."""
        scale, stretch = self._number("scale"), self._number("stretch")
        return _times(self._shape_derivative(_times(x, stretch)), scale * stretch)

    def _shape_value(self, x: Tensor) -> Tensor:
        shape = self._initial.shape
        if isinstance(shape, Smooth):
            return _SMOOTH[shape.name][0](x)
        if isinstance(shape, HermiteSeries):
            assert self._parabolas is not None
            return series_value(x, shape, self._parabolas)
        if isinstance(shape, Custom):
            result: Tensor = _NumpyFunction.apply(x, shape)
            return result
        kinks, slopes = self._list("kinks"), self._list("slopes")
        if not self._parameters:
            if slopes == [0.0, 1.0, 0.0]:
                return torch.clamp(x, kinks[0], kinks[1])  # type: ignore[arg-type]
            if kinks == [0.0] and slopes[1] == 1.0:
                return nn.functional.leaky_relu(x, slopes[0]) if slopes[0] else torch.relu(x)  # type: ignore[arg-type]
        total = slopes[self._origin] * x
        for sign, kink, bend in bends(kinks, slopes, self._origin):
            total = total + bend * torch.relu(sign * (x - kink))
        return total

    def _shape_derivative(self, x: Tensor) -> Tensor:
        shape = self._initial.shape
        if isinstance(shape, Smooth):
            return _SMOOTH[shape.name][1](x)
        if isinstance(shape, HermiteSeries):
            return series_slope(x, shape)
        if isinstance(shape, Custom):
            return _from_numpy(shape.derivative, x)
        kinks, slopes = self._list("kinks"), self._list("slopes")
        if slopes == [0.0, 1.0] and kinks == [0.0]:
            return (x > 0).to(x.dtype)
        total = torch.zeros_like(x) + slopes[0]
        for k in range(len(kinks)):
            total = total + (slopes[k + 1] - slopes[k]) * (x > kinks[k]).to(x.dtype)
        return total

    @property
    @torch.no_grad()
    def description(self) -> Activation:
        """The :class:`~notsodeep.Activation` that this module computes now."""
        if not self._parameters:
            return self._initial
        scale, stretch, shift = (_plain(self._number(name)) for name in _NUMBERS)
        base = self._initial
        if isinstance(base.shape, PiecewiseLinear):
            kinks = _array(self._list("kinks"))
            slopes = _array(self._list("slopes"))
            order = np.argsort(kinks)  # training may have moved a kink past another one or past 0
            bent = slopes[0] + np.concatenate([[0.0], np.cumsum(np.diff(slopes)[order])])
            at_zero = float(self._shape_value(torch.zeros((), dtype=torch.float64)))
            shift -= scale * at_zero
            base = activation("piecewise_linear", kinks=kinks[order], slopes=bent if kinks.size else slopes)
        return Activation(base.shape, scale, stretch, shift)

    def extra_repr(self) -> str:
        learned = ", ".join(self._parameters)
        return f"{self.description}" + (f", learnable=[{learned}]" if learned else "")


def bends(kinks: Any, slopes: Any, origin: int) -> Iterator[tuple[float, Any, Any]]:
    """Signs, kinks and bends of φ₀(x) = slopes[origin]·x + Σ bend · relu(sign·(x − kink)), with φ₀(0) = 0."""
    for k in range(len(kinks)):
        yield 1.0 if k >= origin else -1.0, kinks[k], slopes[k + 1] - slopes[k]


def _plain(number: float | Tensor) -> float:
    return number if isinstance(number, float) else float(number.detach())


def _array(numbers: list[float] | Tensor) -> NDArray[Any]:
    values = numbers.detach().cpu().numpy() if isinstance(numbers, Tensor) else numbers
    return np.array(values, dtype=np.float64)


def _times(x: Tensor, factor: float | Tensor) -> Tensor:
    return x if isinstance(factor, float) and factor == 1.0 else x * factor


def _minus(x: Tensor, constant: float | Tensor) -> Tensor:
    return x if isinstance(constant, float) and constant == 0.0 else x - constant


def _from_numpy(function: Callable[[Any], Any], x: Tensor) -> Tensor:
    values = function(widened(x.detach()).cpu().numpy())
    return torch.as_tensor(np.array(values), dtype=x.dtype, device=x.device)


class _NumpyFunction(torch.autograd.Function):
    """A Python function of one variable inside the graph; its derivative comes from the description."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: Custom) -> Tensor:
        ctx.save_for_backward(x)
        ctx.shape = shape
        return _from_numpy(shape.value, x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return gradient * _from_numpy(ctx.shape.derivative, x), None


def require_registered(phi: Activation, purpose: str) -> None:
    """Raise if φ is a Python function, which cannot be written to a file."""
    if isinstance(phi.shape, Custom):
        raise InputError(
            f"activation {phi} is a Python function and cannot be {purpose}; use a registered name or piecewise_linear"
        )
