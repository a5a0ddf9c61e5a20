"""Activations and Gaussian expectations in 30-digit arithmetic, written without looking at the library."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import mpmath as mp

DIGITS = 30


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _hermite(x: Any) -> Any:
    """0.1 + 0.5h₁ + 0.05h₂ + 0.1|x| − 0.01x log|x| up to |x| = 7.5, then straight."""
    near = max(min(x, mp.mpf(7.5)), mp.mpf(-7.5))
    smooth = mp.mpf(0.1) + mp.mpf(0.5) * near + mp.mpf(0.05) * (near**2 - 1) / mp.sqrt(2)
    bent = mp.mpf(0.1) * abs(near) - mp.mpf(0.01) * near * mp.log(max(abs(near), mp.mpf(1e-13)))
    return smooth + bent + _hermite_slope(near) * (x - near)


def _hermite_slope(x: Any) -> Any:
    near = max(min(x, mp.mpf(7.5)), mp.mpf(-7.5))
    logarithm = mp.log(max(abs(near), mp.mpf(1e-13))) + (abs(near) >= mp.mpf(1e-13))
    smooth = mp.mpf(0.5) + mp.mpf(0.05) * mp.sqrt(2) * near
    return smooth + mp.mpf(0.1) * (1 if near > 0 else -1) - mp.mpf(0.01) * logarithm


# name → (φ, φ', points where φ' jumps)
REFERENCE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[float, ...]]] = {
    "relu": (lambda x: max(x, mp.mpf(0)), lambda x: mp.mpf(x > 0), (0,)),
    "normalized_relu": (lambda x: mp.sqrt(2) * max(x, mp.mpf(0)), lambda x: mp.sqrt(2) * (x > 0), (0,)),
    "leaky_relu": (
        lambda x: x if x > 0 else x * mp.mpf(0.01),
        lambda x: mp.mpf(1) if x > 0 else mp.mpf(0.01),
        (0,),
    ),
    "abs": (abs, mp.sign, (0,)),
    "identity": (lambda x: x, lambda x: mp.mpf(1), ()),
    "hard_tanh": (lambda x: min(max(x, mp.mpf(-1)), mp.mpf(1)), lambda x: mp.mpf(abs(x) < 1), (-1, 1)),
    "hermite": (_hermite, _hermite_slope, (0, -7.5, 7.5, -1e-13, 1e-13)),
    "tanh": (mp.tanh, lambda x: mp.sech(x) ** 2, ()),
    "erf": (mp.erf, lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x), ()),
    "sin": (mp.sin, mp.cos, ()),
    "cos": (mp.cos, lambda x: -mp.sin(x), ()),
    "arctan": (mp.atan, lambda x: 1 / (1 + x * x), ()),
    "gaussian": (lambda x: mp.exp(-x * x / 2), lambda x: -x * mp.exp(-x * x / 2), ()),
    "sigmoid": (_sigmoid, lambda x: _sigmoid(x) * _sigmoid(-x), ()),
    "softplus": (lambda x: mp.log1p(mp.exp(x)), _sigmoid, ()),
    "swish": (lambda x: x * _sigmoid(x), lambda x: _sigmoid(x) + x * _sigmoid(x) * _sigmoid(-x), ()),
    "gelu": (lambda x: x * mp.ncdf(x), lambda x: mp.ncdf(x) + x * mp.npdf(x), ()),
}


@lru_cache(maxsize=1)
def _legendre() -> list[tuple[Any, Any]]:
    with mp.workdps(DIGITS):
        return mp.calculus.quadrature.GaussLegendre(mp.mp).calc_nodes(4, mp.mp.prec + 20)


def moments(name: str, tau: float) -> dict[str, Any]:
    """The six Gaussian moments at τ, second derivatives by Stein's identity."""
    phi, slope, kinks = REFERENCE[name]
    with mp.workdps(DIGITS):
        tau = mp.mpf(tau)
        edges = {mp.mpf(k) / 2 for k in range(-26, 27)} | {mp.mpf(kink) / tau for kink in kinks}
        edges |= {sign * mp.mpf(2) ** k / tau for sign in (-1, 1) for k in range(-1, 5)}
        if name == "hermite":  # towards its logarithm
            edges |= {sign * mp.mpf(2) ** k / tau for sign in (-1, 1) for k in range(-60, -1)}
        points = sorted(edge for edge in edges if abs(edge) <= 13)
        sums = dict.fromkeys(("mean", "slope", "curvature", "power", "power_curvature", "slope_power"), mp.mpf(0))
        for low, high in pairwise(points):
            half, middle = (high - low) / 2, (high + low) / 2
            for node, weight in _legendre():
                xi = middle + half * node
                mass = half * weight * mp.npdf(xi)
                value, gradient = phi(tau * xi), slope(tau * xi)
                stein = (xi * xi - 1) / tau**2
                sums["mean"] += mass * value
                sums["slope"] += mass * gradient
                sums["curvature"] += mass * stein * value
                sums["power"] += mass * value**2
                sums["power_curvature"] += mass * stein * value**2
                sums["slope_power"] += mass * gradient**2
        return sums
