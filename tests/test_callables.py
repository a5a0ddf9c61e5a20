"""Kinks of functions that are known by their values alone."""

from __future__ import annotations

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.callables import find_kinks

KINKED = {
    "clip": (lambda u: np.clip(u, -1, 1), (-1, 1)),
    "thirds": (lambda u: np.clip(3 * u - 2, -1, 1), (1 / 3, 1)),
    "ramp": (lambda u: np.maximum(u, 0), (0,)),
    "beside zero": (lambda u: np.maximum(u - 5e-5, 0), (5e-5,)),
    "far": (lambda u: np.maximum(u - 20.123, 0), (20.123,)),
    "curved": (lambda u: np.where(u > 1 / 7, np.exp(-(u - 1 / 7)), 1.0), (1 / 7,)),
    "weak": (lambda u: np.tanh(u) + 0.01 * np.maximum(u - 0.3, 0), (0.3,)),
}


@pytest.mark.parametrize("name", KINKED)
def test_kinks_are_found_up_to_rounding(name):
    function, truth = KINKED[name]
    bend = 0.01 if name == "weak" else 1.0  # rounding of the values over the jump of the slope
    np.testing.assert_allclose(
        find_kinks(function), truth, rtol=0, atol=40 * 2.3e-16 * max(map(abs, truth)) / bend + 1e-15
    )


@pytest.mark.parametrize("function", [lambda u: np.abs(u) ** 1.5, lambda u: np.maximum(u, 0) ** 2])
def test_kinks_of_the_slope_are_found_too(function):
    assert find_kinks(function) == (0.0,)


def test_smooth_functions_have_none():
    assert find_kinks(np.tanh) == ()


@pytest.mark.parametrize("tau", [0.1, 1.0, 30.0])
def test_a_kinked_callable_has_the_moments_of_its_closed_form(tau):
    """The slope jumps at the kinks: a misplaced one would be seen."""
    found = nsd.moments(nsd.activation(lambda u: np.clip(u, -1, 1)), tau)
    truth = nsd.moments(nsd.activation("hard_tanh"), tau)
    assert found.power == pytest.approx(truth.power, rel=1e-13)
    assert found.slope_power == pytest.approx(truth.slope_power, rel=1e-12)
