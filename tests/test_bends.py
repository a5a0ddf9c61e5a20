"""Soft and sharp bends: their values by integrals in thirty digits, their coefficients, sums over all orders.

Also covers: interpolation.py.
"""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.bends import Bends, size_squared
from notsodeep.hermite import RADIUS, HermiteSeries
from notsodeep.kernels.power_series import PowerSeries

DECAYS = (0.0, 1e-8, 1e-3, 0.1)


def expected(function, x: float, decay: float) -> float:
    """E[f(rx + sξ)], in pieces around the bend."""
    with mp.workdps(30):
        r = mp.exp(-mp.mpf(decay))
        s, m = mp.sqrt(1 - r * r), r * mp.mpf(x)
        if not s:
            return function(m)
        pieces = sorted({mp.mpf(-12), mp.mpf(12), *(p for p in (-m / s,) if abs(p) < 12), *range(-9, 10, 3)})
        return mp.quad(lambda xi: function(m + s * xi) * mp.npdf(xi), pieces)


@pytest.mark.parametrize("decay", DECAYS)
def test_values_are_means_of_the_sharp_bends(decay: float) -> None:
    width = math.sqrt(-math.expm1(-2 * decay)) or 1.0
    x = np.array([1e-3 * width, 0.2 * width, -width, 5 * width, -14 * width, -1.3, 7.2])
    x = x[np.abs(x) <= RADIUS]
    even, odd = Bends((1.0,), (0.0,), (decay,), RADIUS), Bends((0.0,), (1.0,), (decay,), RADIUS)
    log = lambda y: mp.log(abs(y)) if y else mp.mpf(0)  # noqa: E731
    for point in x.tolist():
        at = np.array([point])
        # E[f(rx + sξ)] − E[f(sξ)] has the digits of a difference
        rise = expected(abs, point, decay) - expected(abs, 0.0, decay)
        assert float(even(at)[0] - rise) == pytest.approx(0, abs=4e-15 * abs(point))
        value = expected(lambda y: y * log(y), point, decay)
        assert float(odd(at)[0] - value) == pytest.approx(0, abs=5e-15 * (abs(float(value)) + abs(point)))
        r = math.exp(-decay)
        assert even.derivative(at)[0] == pytest.approx(float(r * expected(mp.sign, point, decay)), abs=4e-15)
        assert odd.derivative(at)[0] == pytest.approx(
            float(r * (1 + expected(log, point, decay))), rel=1e-14, abs=2e-14
        )


@pytest.fixture(scope="module")
def shape() -> HermiteSeries:
    return HermiteSeries((0.1, 0.5, -0.2), (0.3, -0.2, 0.1, 0.4), (0.05, 0.1, -0.2, 0.1), DECAYS)


def test_coefficients_have_the_moments_of_the_function(shape: HermiteSeries) -> None:
    """Parseval: E[φ²] = Σ c_k², E[φ'²] = Σ k c_k², by quadrature of the function on one side."""
    m, order = nsd.moments(nsd.activations.Activation(shape), 1.0), shape.order(3)
    power, slope = PowerSeries.of(shape)(np.zeros(1), 1.0)
    assert m.mean == pytest.approx(order[0], rel=1e-12)
    assert m.slope == pytest.approx(order[1], rel=1e-12)
    assert m.curvature == pytest.approx(math.sqrt(2) * order[2], rel=1e-11)
    assert m.power == pytest.approx(power[0], rel=1e-12)
    assert m.slope_power == pytest.approx(slope[0], rel=1e-11)  # log|x| stops at 1e-13


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_tail_is_summed(shape: HermiteSeries, sign: float) -> None:
    """Against 2²⁰ orders one by one, where they are enough."""
    gap = np.array([3e-5, 1e-3, 0.05, 0.5, 1.0])
    squares, k = shape.order(1 << 20) ** 2, np.arange(1 << 20)
    value, slope = PowerSeries.of(shape)(gap, sign)
    for j, t in enumerate(sign * (1 - gap)):
        powers = t**k if t else np.eye(1, k.size)[0]
        assert value[j] == pytest.approx(math.fsum(squares * powers), rel=2e-14)
        derivative = math.fsum((k * squares)[1:] * powers[:-1])
        assert slope[j] == pytest.approx(derivative, rel=1e-12)


def test_sizes_of_coefficients() -> None:
    order = HermiteSeries((0.0, 1.0), (1.0,), (2 / math.pi,), (0.0,)).order(3000)
    k = np.array([4.0, 7, 98, 99, 100, 101, 2000, 2999])
    assert size_squared(k) == pytest.approx(order[k.astype(int)] ** 2, rel=1e-12)
    with mp.workdps(30):
        far = [mp.gammaprod([(mp.mpf(x) - 1) / 2], [mp.mpf(x) / 2 + 1]) / (mp.pi**1.5 * (x - 1)) for x in (2e5, 1e9)]
    assert size_squared(np.array([2e5, 1e9])) == pytest.approx([float(value) for value in far], rel=1e-14)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (((0.0, 1.0), (1.0,)), "bends, logs and decays have 1, 0 and 0 entries"),
        (((0.0, 1.0), (1.0,), (0.0,), (-0.1,)), "decays[0]=-0.1"),
        (((1.0,), (0.0,), (0.0,), (0.0,)), "make a constant"),
        (((1.0,) * 65_537,), "coefficients has 65537 entries; at most 65536 are possible"),
    ],
)
def test_bad_input(numbers: tuple, message: str) -> None:
    with pytest.raises(nsd.InputError) as raised:
        HermiteSeries(*numbers)
    assert message in str(raised.value)


def test_bends_are_sharp_unless_widths_are_given():
    phi = nsd.activation("hermite", coefficients=(0.0, 1.0), bends=(), logs=())
    np.testing.assert_allclose(phi(np.array([-2.0, 0.5])), [-2.0, 0.5], atol=1e-14)
    sharp = nsd.activation("hermite", coefficients=(0.0, 1.0), bends=(1.0,), logs=(0.0,))
    assert sharp.shape.decays == (0.0,)
    with pytest.raises(nsd.InputError, match="bends, logs and decays have 2, 2 and 1 entries"):
        nsd.activation("hermite", coefficients=(0.0, 1.0), bends=(1.0, 1.0), logs=(0.0, 0.0))
