"""The dual of a positively homogeneous φ as polynomials, and the dense fixed point as a starting guess."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from notsodeep.kernels.arc import Arc, lens_of
from notsodeep.kernels.conv.sweeps import TERMS

__all__ = ["arc_polynomials", "guess_polynomial"]

Array: TypeAlias = NDArray[Any]


def _nodes(count: int, top: float) -> Array:
    return top / 2 * (1 + np.cos(np.pi * (np.arange(count) + 0.5) / count))


def _coefficients(x: Array, values: Array, terms: int, top: float) -> tuple[float, ...]:
    """Highest power first."""
    fit = Chebyshev.fit(x, values, terms - 1, domain=[0, top])
    return tuple(float(c) for c in fit.convert(kind=Polynomial).coef[::-1])


@lru_cache(maxsize=4)
def arc_polynomials(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """θ/√y and (sin θ − θ cos θ)/√y³ for y = 1 − cos θ ∈ [0, 1], both analytic there."""
    terms = TERMS[name]
    y = _nodes(4 * terms, 1.0)
    theta = 2 * np.arcsin(np.sqrt(y / 2))
    return _coefficients(y, theta / y**0.5, terms, 1.0), _coefficients(y, lens_of(theta) / y**1.5, terms, 1.0)


@lru_cache(maxsize=64)
def guess_polynomial(arc: Arc) -> tuple[float, ...]:
    """h/g as a function of u = √(g/(1 − σ_a² v)) ∈ [0, √2], h = g + σ_a²(v − κ(h)): equal gaps in the whole window."""
    terms, top = TERMS["float32"], np.sqrt(2.0)
    u = _nodes(4 * terms, top)
    return _coefficients(u, 2 * np.sin(arc.angle(u) / 2) ** 2 / (arc.rest * u**2), terms, top)
