"""Powers E[φ²] that are what is left of larger terms: dead zones, narrow spikes, shifts that take φ(0) away."""

from __future__ import annotations

import warnings
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import notsodeep as nsd

X = np.array([[1.0, 0.0], [1.01, 0.1]])


def _kernel(phi: nsd.Activation, rows: Any) -> tuple[np.ndarray, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nsd.ConvergenceWarning)
        K, info = nsd.Explicit([phi]).kernel(np.asarray(rows), return_info=True)
    return K, info.error


def _power(function: Any, norm: float, breaks: tuple[float, ...] = ()) -> Any:
    """E[φ(norm ξ)²] with forty digits."""
    with mp.workdps(40):
        n = mp.mpf(norm)
        places = sorted(
            {mp.mpf(b) / n for b in (*breaks, *(-b for b in breaks))} | {mp.mpf(k) for k in range(-14, 15, 2)}
        )
        total = mp.quad(lambda x: function(n * x) ** 2 * mp.exp(-x * x / 2), places)
        return total / mp.sqrt(2 * mp.pi)


@pytest.mark.parametrize("zone", [8.5, 10.0, 12.0, 20.0])
def test_a_kink_that_bends_nothing_changes_nothing(zone: float) -> None:
    plain = nsd.activation("piecewise_linear", kinks=[-zone, zone], slopes=[1, 0, 1])
    dummy = nsd.activation("piecewise_linear", kinks=[-zone, 0, zone], slopes=[1, 0, 0, 1])
    (expected, error), (K, stated) = _kernel(plain, X), _kernel(dummy, X)
    assert K[0, 1] == pytest.approx(expected[0, 1], rel=1e-12 + error)
    assert K[0, 1] / np.sqrt(K[0, 0] * K[1, 1]) > 0.1
    assert stated == pytest.approx(error, rel=0.1)


@pytest.mark.parametrize("bend", [1e-9, 1e-5])
def test_a_slight_bend_inside_a_dead_zone_does_not_hide_it(bend: float) -> None:
    K, stated = _kernel(nsd.activation("piecewise_linear", kinks=[-9, 0, 9], slopes=[1, 0, bend, 1 + bend]), X)
    for i, row in enumerate(X):
        true = _power(
            lambda x: min(x + 9, 0) + max(x - 9, 0) + mp.mpf(bend) * max(x, 0), float(np.linalg.norm(row)), (0.0, 9.0)
        )
        assert abs(K[i, i] / true - 1) <= stated


@pytest.mark.parametrize("norm", [1e2, 1e3, 95545.147885284, 1e6])
@pytest.mark.parametrize(("width", "slope"), [(1.0, 1.0), (0.583020902042737, 1.347858337174235)])
def test_a_spike_far_inside_the_signals_keeps_its_power(width: float, slope: float, norm: float) -> None:
    base = nsd.activation("piecewise_linear", kinks=[-width, 0, width], slopes=[0, -slope, slope, 0])
    phi = base - base(1e3)
    K, stated = _kernel(phi, [[norm, 0.0], [norm / 2, norm / 5]])
    shift = mp.mpf(phi.shift)
    true = _power(lambda x: mp.mpf(slope) * min(abs(x), mp.mpf(width)) - shift, norm, (0.0, width))
    assert abs(K[0, 0] / true - 1) <= stated
    assert stated < 1e-10


@pytest.mark.parametrize(
    ("shift", "norm"), [(0.6931, 1e-4), (float(np.log(2)) - 1e-6, 1e-8), (float(np.log(2)) - 1e-9, 1e-8)]
)
def test_a_shift_near_softplus_of_zero_is_counted(shift: float, norm: float) -> None:
    K, stated = _kernel(nsd.activation("softplus") - shift, [[norm, 0.0]])
    true = _power(lambda x: mp.log1p(mp.exp(x)) - mp.mpf(shift), norm)
    assert abs(K[0, 0] / true - 1) <= stated


@pytest.mark.parametrize(("gap", "norm"), [(1.9e-5, 1e-6), (1e-9, 1e-8)])
def test_a_shift_near_a_series_at_zero_is_counted(gap: float, norm: float) -> None:
    coefficients = (0.7, 1, 0.3, 0.2, -0.4, 0.11)
    series = nsd.activation("hermite", coefficients=coefficients, bends=(0.0,), logs=(0.0,), decays=(1.0,))
    shift = float(series(0.0)) - gap
    K, stated = _kernel(series - shift, [[norm, 0.0]])

    def value(x: Any) -> Any:
        root = [mp.mpf(2) ** (mp.mpf(k) / 2) * mp.sqrt(mp.factorial(k)) for k in range(6)]
        terms = (mp.mpf(c) * mp.hermite(k, x / mp.sqrt(2)) / root[k] for k, c in enumerate(coefficients))
        return sum(terms) - mp.mpf(shift)

    assert abs(K[0, 0] / _power(value, norm) - 1) <= stated
