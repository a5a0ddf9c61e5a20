"""The smooth activations known by name, as formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["FORMULAS", "Formula"]

Array: TypeAlias = NDArray[Any]
Function: TypeAlias = Callable[[Array], Array]


@dataclass(frozen=True)
class Formula:
    """A smooth φ₀ with its derivative, its Lipschitz constant, and what closed forms and series need of it."""

    value: Function
    derivative: Function
    lipschitz: float
    odd: bool = False
    origin: float = 0.0  # φ₀(0)
    # φ₀ − φ₀(0) and its even part, for shapes where plain differences would cancel (closed forms do not need them)
    departure: Callable[[Array], tuple[Array, Array]] | None = None


def _swish_derivative(x: Array) -> Array:
    s = special.expit(x)
    return s + x * s * special.expit(-x)


def _gelu_derivative(x: Array) -> Array:
    return special.ndtr(x) + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _sech2(x: Array) -> Array:
    e = np.exp(-2 * np.abs(x))
    return 4 * e / (1 + e) ** 2


def _even(value: Array) -> tuple[Array, Array]:
    return value, value


def _softplus_departure(x: Array) -> tuple[Array, Array]:
    size = np.abs(x / 2)
    log_cosh = np.where(
        size < 1, np.log1p(np.sinh(np.minimum(size, 1.0)) ** 2) / 2, size + np.log1p(np.exp(-2 * size)) - math.log(2)
    )
    return x / 2 + log_cosh, log_cosh


# sup|swish'| and sup|gelu'| sit at the roots of the second derivative: 2.39935728…, √2
_SWISH_LIPSCHITZ = 1.0998393201288172
_GELU_LIPSCHITZ = 0.5 * (1 + math.erf(1.0)) + math.exp(-1.0) / math.sqrt(math.pi)

FORMULAS: dict[str, Formula] = {
    "tanh": Formula(np.tanh, _sech2, 1.0, odd=True),
    "erf": Formula(special.erf, lambda x: np.exp(-(x**2)) / (math.sqrt(math.pi) / 2), 2 / math.sqrt(math.pi), odd=True),
    "sin": Formula(np.sin, np.cos, 1.0, odd=True),
    "cos": Formula(np.cos, lambda x: -np.sin(x), 1.0, origin=1.0, departure=lambda x: _even(-2 * np.sin(x / 2) ** 2)),
    "arctan": Formula(np.arctan, lambda x: 1 / (1 + x**2), 1.0, odd=True),
    "gaussian": Formula(
        lambda x: np.exp(-(x**2) / 2),
        lambda x: -x * np.exp(-(x**2) / 2),
        math.exp(-0.5),
        origin=1.0,
        departure=lambda x: _even(np.expm1(-(x**2) / 2)),
    ),
    "sigmoid": Formula(
        special.expit,
        lambda x: special.expit(x) * special.expit(-x),
        0.25,
        odd=True,
        origin=0.5,
        departure=lambda x: (np.tanh(x / 2) / 2, 0 * x),
    ),
    "softplus": Formula(
        lambda x: np.logaddexp(0, x), special.expit, 1.0, origin=math.log(2), departure=_softplus_departure
    ),
    "swish": Formula(
        lambda x: x * special.expit(x),
        _swish_derivative,
        _SWISH_LIPSCHITZ,
        departure=lambda x: (x * special.expit(x), x / 2 * np.tanh(x / 2)),
    ),
    "gelu": Formula(lambda x: x * special.ndtr(x), _gelu_derivative, _GELU_LIPSCHITZ),
}
