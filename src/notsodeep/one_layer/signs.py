"""The signs s_k of σ = Σ s_k √b_k h_k.

The kernel does not depend on them, but what σ looks like does, and how a finite layer behaves. They are chosen for the
least fourth moment, then for the least slope.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.activations import PiecewiseLinear
from notsodeep.bends import Bends, bend_coefficients, log_coefficients
from notsodeep.gaussian import hermite_polynomials, moments
from notsodeep.hermite import RADIUS, HermiteSeries, hermite_sum
from notsodeep.kernels.power_series import PowerSeries
from notsodeep.kernels.sphere import SphereKernel

__all__ = ["Signs", "chosen_signs", "sign_patterns", "signed_series"]

Array: TypeAlias = NDArray[Any]

_STEEPER = 10.0  # how much steeper than necessary σ may be for a smaller fourth moment
_FREE = 8  # orders whose signs are chosen one by one


def _laws(series: PowerSeries, count: int) -> tuple[Array, Array]:
    """What the bends add to the orders k < count: even ones, odd ones."""
    fading = np.exp(-np.multiply.outer(np.arange(count), series.decays))
    bends, logs = _factors(series)
    return bend_coefficients(count) * (fading @ bends), log_coefficients(count) * (fading @ logs)


def _factors(series: PowerSeries) -> tuple[Array, Array]:
    """Of |x| and of x log|x|, whose coefficients are π/2 times as large."""
    return series.factors[0], series.factors[1] * (2 / math.pi)


class Signs(NamedTuple):
    orders: Array  # of √b_k
    even: float  # of the bends
    odd: float


def signed_series(series: PowerSeries, signs: Signs) -> HermiteSeries:
    """σ with these signs."""
    even, odd = _laws(series, series.b.size)
    bends, logs = _factors(series)
    coefficients = signs.orders * np.sqrt(series.b) - signs.even * even - signs.odd * odd
    numbers = (coefficients, signs.even * bends, signs.odd * logs, series.decays)
    return HermiteSeries(*(tuple(each.tolist()) for each in numbers))


def chosen_signs(series: PowerSeries, pattern: Array) -> tuple[Signs, float]:
    """Signs of the least fourth moment, and of the least slope among those within two per cent of it."""
    order = np.arange(series.b.size)
    signed = pattern * np.sqrt(series.b)
    blocks = [
        np.where((order % 2 == parity) & (order >= _FREE), signed, 0.0) - law
        for parity, law in enumerate(_laws(series, order.size))
    ]
    x = np.linspace(-RADIUS, RADIUS, 1201)
    mass = np.exp(-(x**2) / 2) * (x[1] - x[0]) / math.sqrt(2 * math.pi)
    bends, logs = (tuple(factors.tolist()) for factors in _factors(series))
    none, decays = (0.0,) * len(bends), tuple(series.decays.tolist())
    even, odd = Bends(bends, none, decays, RADIUS), Bends(none, logs, decays, RADIUS)
    parts = [hermite_sum(blocks[0], x) + even(x) + even.origin, hermite_sum(blocks[1], x) + odd(x)]
    free = [k for k in range(min(_FREE, signed.size)) if signed[k]]
    for k in free:
        unit = np.zeros(k + 1)
        unit[k] = signed[k]
        parts.append(hermite_sum(unit, x))
    columns = np.stack(parts)
    present = [np.abs(column).max() > 0 for column in columns]
    choices = np.array(
        list(itertools.product(*[(1.0, -1.0) if here and row else (1.0,) for row, here in enumerate(present)]))
    )  # the first block keeps its sign: −σ is as good as σ
    values = choices @ columns
    fourth = values**4 @ mass
    steepness = np.abs(np.diff(values, axis=1))[:, np.abs(x[1:]) > 0.05].max(1)
    # low orders with the wrong sign grow like powers of x, where a Gaussian hardly comes: not at any price
    fourth = np.where(steepness <= _STEEPER * steepness.min(), fourth, np.inf)
    close = np.flatnonzero(fourth <= 1.02 * fourth.min())
    best = choices[close[np.argmin(steepness[close])]]
    power = float(values[close[0]] ** 2 @ mass)
    if free and 1 in free:  # σ rises at 0
        best = best * np.sign(pattern[1] * best[2 + free.index(1)])
    orders = pattern * np.where(order % 2, best[1], best[0])
    orders[free] = pattern[free] * best[2:]
    return Signs(orders, float(best[0]), float(best[1])), float(fourth.min()) / power**2


def sign_patterns(kernel: SphereKernel, count: int) -> list[Array]:
    """Signs to start from: those of |x| for even and x log|x| for odd orders, and those of the model's last activation.

    The former make a function with one bend at 0 if b_k is smooth in k. Kinks away from 0 make b_k oscillate in √k, as
    the Hermite coefficients of the activation do.
    """
    patterns = [np.sign(bend_coefficients(count) + log_coefficients(count))]
    phi, variance = kernel.last
    if isinstance(phi.shape, PiecewiseLinear) and not phi.shape.homogeneous:
        places = np.asarray(phi.kinks) / math.sqrt(variance)
        bends = np.diff(phi.shape.slopes) * np.exp(-(places**2) / 4)
        # E[(ξ − p)₊ h_k] = h_{k−2}(p) e^{−p²/2}/√(2π k(k−1)), and the first two from the moments
        own = bends @ hermite_polynomials(places, max(count - 3, 0), np.exp(-(places**2) / 4)).T
        m = moments(phi, math.sqrt(variance))
        signs = np.sign(np.concatenate([[m.mean, m.slope], own]))[:count]
        patterns.append(np.where(signs == 0, patterns[0], signs))
    return patterns
