"""Gaussian moments: 30-digit references, identities, and callables against their named twins."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from tests import thirty_digits

import notsodeep as nsd
from notsodeep import gaussian
from notsodeep.activations import Activation, Custom

FIELDS = ("mean", "slope", "curvature", "power", "power_curvature", "slope_power")
SMOOTH = ("tanh", "erf", "sin", "cos", "arctan", "gaussian", "sigmoid", "softplus", "swish", "gelu")

taus = st.floats(0.03, 30.0)
names = st.sampled_from(sorted(thirty_digits.REFERENCE))


def test_every_registered_name_has_a_reference() -> None:
    assert set(nsd.activation_names()) - {"piecewise_linear"} == set(thirty_digits.REFERENCE)


@pytest.mark.parametrize("tau", [0.03, 0.3, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("name", sorted(thirty_digits.REFERENCE))
def test_moments_agree_with_thirty_digits(name: str, tau: float) -> None:
    got, want = asdict(nsd.moments(nsd.activation(name), tau)), thirty_digits.moments(name, tau)
    for field in FIELDS:
        # relative to 1e-12 of the value, or of the largest |φ''| ~ 1 where the moment vanishes by symmetry
        assert abs(got[field] - want[field]) <= 1e-12 * max(abs(want[field]), 1e-1), field
    # small values that do not vanish keep their relative digits
    assert got["power"] == pytest.approx(float(want["power"]), rel=1e-12)
    assert got["power_curvature"] == pytest.approx(float(want["power_curvature"]), rel=2e-12, abs=1e-20)


@pytest.mark.parametrize("tau", [1e-4, 1e-2])
@pytest.mark.parametrize("name", sorted(thirty_digits.REFERENCE))
def test_small_tau_costs_no_digits(name: str, tau: float) -> None:
    """Centring and Stein's identity divide tiny differences by powers of τ; no constant may drown them."""
    want = thirty_digits.moments(name, tau)
    phi = nsd.activation(name)
    got = nsd.moments(phi, tau)
    centred = nsd.moments(phi - got.mean, tau)
    with mp.workdps(thirty_digits.DIGITS):
        variance = want["power"] - want["mean"] ** 2
        bend = want["power_curvature"] - 2 * want["mean"] * want["curvature"]
    assert centred.power == pytest.approx(float(variance), rel=1e-14)
    # the constant itself is a double, known to 1e-16 of φ(0)
    assert centred.power_curvature == pytest.approx(float(bend), rel=1e-13, abs=1e-15)
    assert got.curvature == pytest.approx(float(want["curvature"]), rel=2e-14, abs=1e-16)
    assert got.slope == pytest.approx(float(want["slope"]), rel=1e-14, abs=1e-16)
    assert got.mean == pytest.approx(float(want["mean"]), rel=1e-14, abs=1e-30)


@pytest.mark.parametrize("offset", [1.0, -3e4, 1e9])
@pytest.mark.parametrize("name", ["cos", "softplus", "relu"])
def test_constants_shift_the_mean_alone(name: str, offset: float) -> None:
    phi = nsd.activation(name)
    base, moved = nsd.moments(phi, 0.3), nsd.moments(phi + offset, 0.3)
    assert moved.mean == pytest.approx(base.mean + offset, rel=4e-16)
    assert moved.power == pytest.approx(base.power - base.mean**2 + (base.mean + offset) ** 2, rel=1e-15)
    centred = nsd.moments(phi + offset - moved.mean, 0.3)
    assert centred.power == pytest.approx(base.power - base.mean**2, rel=1e-14, abs=(2e-16 * offset) ** 2)
    assert (moved.slope, moved.curvature, moved.slope_power) == (base.slope, base.curvature, base.slope_power)


def by_quadrature(name: str) -> Activation:
    """The named function passed as a bare callable: its moments can only come from quadrature."""
    named = nsd.activation(name)
    return nsd.activation(lambda x: named(x), derivative=named.derivative, kinks=named.kinks)


@pytest.mark.parametrize("tau", [0.03, 0.4, 1.0, 6.0, 30.0])
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "abs", "hard_tanh", "erf", "sin", "cos", "gaussian", "gelu"])
def test_closed_forms_agree_with_quadrature(name: str, tau: float) -> None:
    closed, numeric = asdict(nsd.moments(nsd.activation(name), tau)), asdict(nsd.moments(by_quadrature(name), tau))
    for field in FIELDS:
        assert numeric[field] == pytest.approx(closed[field], rel=2e-12, abs=2e-12), field


@given(name=names, tau=taus)
def test_heat_equation(name: str, tau: float) -> None:
    """E[f(τξ)]'' in x is twice its derivative in τ², for f = φ and f = φ²."""
    phi = nsd.activation(name)
    step = 1e-3 * tau**2

    def slope(field: str) -> float:
        def value(k: int) -> float:
            return float(getattr(nsd.moments(phi, math.sqrt(tau**2 + k * step)), field))

        return (8 * (value(1) - value(-1)) - (value(2) - value(-2))) / (12 * step)

    here = nsd.moments(phi, tau)
    scale = math.sqrt(here.power) / tau**2  # rounding and truncation of the difference, in units of d/dτ²
    assert 2 * slope("mean") == pytest.approx(here.curvature, abs=1e-9 * scale, rel=1e-8)
    assert 2 * slope("power") == pytest.approx(here.power_curvature, abs=1e-9 * (here.power / tau**2), rel=1e-8)


@given(name=names, tau=taus)
def test_stein_identity(name: str, tau: float) -> None:
    """E[ξ φ(τξ)] = τ E[φ'(τξ)], the left side by quadrature on values alone."""
    phi = nsd.activation(name)
    first = gaussian.expectation(lambda xi: xi * phi(tau * xi), kinks=np.asarray(phi.kinks) / tau, scale=1 / tau)
    assert float(first) == pytest.approx(tau * nsd.moments(phi, tau).slope, rel=1e-11, abs=1e-11)


@given(name=names, tau=taus)
def test_moments_obey_cauchy_schwarz(name: str, tau: float) -> None:
    m = nsd.moments(nsd.activation(name), tau)
    assert m.mean**2 <= m.power * (1 + 1e-12)
    assert m.slope**2 <= m.slope_power * (1 + 1e-12)
    # Gaussian Poincaré inequality: Var φ(τξ) ≤ τ² E[φ'²]
    assert m.power - m.mean**2 <= tau**2 * m.slope_power * (1 + 1e-12) + 1e-15


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (np.tanh, "tanh"),
        (np.sin, "sin"),
        (np.arctan, "arctan"),
        (lambda x: np.maximum(x, 0), "relu"),
        (lambda x: max(x, 0.0), "relu"),  # takes numbers only
        (lambda x: np.clip(x, -1, 1), "hard_tanh"),
        (np.abs, "abs"),
        (math.erf, "erf"),
    ],
)
@pytest.mark.parametrize("tau", [0.1, 1.0, 5.0])
def test_callables_equal_their_named_twins(function: object, name: str, tau: float) -> None:
    got, want = asdict(nsd.moments(nsd.activation(function), tau)), asdict(nsd.moments(nsd.activation(name), tau))
    for field in FIELDS:
        tolerance = 1e-8 if field == "slope_power" else 1e-11  # φ'² needs numerical differentiation
        assert got[field] == pytest.approx(want[field], rel=tolerance, abs=tolerance), field


def test_quadrature_that_fails_says_so() -> None:
    noise = Activation(Custom(lambda x: np.sign(np.sin(1e6 * x)), lambda x: 0 * x, lipschitz=1.0))
    with pytest.warns(nsd.ConvergenceWarning, match="did not reach its tolerance"):
        nsd.moments(noise, 1.0)


@given(
    name=names,
    tau=st.floats(0.1, 5.0),
    scale=st.floats(-3, 3),
    stretch=st.floats(0.2, 3),
    shift=st.floats(-2, 2),
)
def test_moments_of_a_composition(name: str, tau: float, scale: float, stretch: float, shift: float) -> None:
    """scale·φ(stretch·x) − shift against quadrature of that very function."""
    phi = scale * nsd.activation(name).stretched(stretch) - shift
    m = nsd.moments(phi, tau)
    kinks, length = np.asarray(phi.kinks) / tau, 1 / (tau * stretch)

    def integral(weight: object) -> float:
        return float(gaussian.expectation(weight, kinks=kinks, scale=length))

    size = 1 + abs(m.power) + abs(m.slope_power)
    assert m.mean == pytest.approx(integral(lambda xi: phi(tau * xi)), abs=1e-11 * size)
    assert m.power == pytest.approx(integral(lambda xi: phi(tau * xi) ** 2), abs=1e-11 * size)
    assert m.slope_power == pytest.approx(integral(lambda xi: phi.derivative(tau * xi) ** 2), abs=1e-10 * size)
    second = integral(lambda xi: (xi**2 - 1) * phi(tau * xi) ** 2) / tau**2
    assert m.power_curvature == pytest.approx(second, abs=1e-10 * size / tau**2)


@pytest.mark.parametrize("name", ["tanh", "swish", "relu"])
def test_hermite_coefficients(name: str) -> None:
    """a₀, a₁, a₂ are moments, and Parseval's sum reaches E[φ²] from below."""
    phi, tau = nsd.activation(name), 0.7
    a, m = nsd.hermite_coefficients(phi, tau, 60), nsd.moments(phi, tau)
    assert a[0] == pytest.approx(m.mean, abs=1e-13)
    assert a[1] == pytest.approx(tau * m.slope, abs=1e-13)
    assert a[2] == pytest.approx(tau**2 * m.curvature / math.sqrt(2), abs=1e-13)
    tail = m.power - (a**2).sum()
    assert -1e-13 < tail < (1e-3 if name == "relu" else 1e-10)


# covers: [Ling23] Lemma 7
def test_squares_of_hermite_coefficients_are_the_power_series_of_the_dual() -> None:
    """Σ a_k² x^k = Q(x) = (√(1−x²) + (π − arccos x)x)/π for √2·relu, with a_k ≠ 0 for every even k."""
    squares = nsd.hermite_coefficients(nsd.activation("normalized_relu"), 1.0, 150) ** 2
    x = np.linspace(-0.8, 0.8, 17)
    dual = (np.sqrt(1 - x**2) + (np.pi - np.arccos(x)) * x) / np.pi
    np.testing.assert_allclose(np.polynomial.polynomial.polyval(x, squares), dual, atol=1e-12)
    assert np.all(squares[::2] > 1e-7)
    assert np.all(squares[3::2] < 1e-12)


def test_hermite_polynomials_are_orthonormal() -> None:
    gram = gaussian.expectation(
        lambda xi: np.einsum("ik,jk->ijk", *2 * (gaussian.hermite_polynomials(xi, 12),)), scale=0.25
    )
    np.testing.assert_allclose(gram, np.eye(13), atol=1e-11)


@pytest.mark.parametrize(
    ("name", "supremum"),
    [("relu", 0.5), ("normalized_relu", 1.0), ("tanh", 1.0), ("hard_tanh", 1.0), ("erf", 4 / math.pi), ("abs", 1.0)],
)
def test_slope_power_supremum(name: str, supremum: float) -> None:
    assert gaussian.slope_power_supremum(nsd.activation(name)) == pytest.approx(supremum, rel=1e-7)


def test_supremum_inside_the_range_bounds_every_tau() -> None:
    phi = nsd.activation("swish")
    top = gaussian.slope_power_supremum(phi)
    values = [nsd.moments(phi, tau).slope_power for tau in np.geomspace(1e-3, 1e3, 400)]
    assert max(values) <= top * (1 + 1e-12)
    assert max(values) == pytest.approx(top, rel=1e-4)


@pytest.mark.parametrize("factor", [1e-7, 1e-5, 1.0, 1e5, 1e7])
@pytest.mark.parametrize("name", ["tanh", "swish", "hard_tanh", "erf", "sigmoid", "softplus"])
def test_the_supremum_knows_the_units_of_the_activation(name: str, factor: float) -> None:
    phi = nsd.activation(name)
    want = 9 * factor**2 * gaussian.slope_power_supremum(phi)
    assert gaussian.slope_power_supremum(3 * phi.stretched(factor) - 1) == pytest.approx(want, rel=1e-13)


def test_the_supremum_includes_vanishing_tau() -> None:
    assert gaussian.slope_power_supremum(nsd.activation("tanh")) == 1.0
    assert gaussian.slope_power_supremum(nsd.activation("sigmoid")) == 1 / 16
    assert gaussian.slope_power_supremum(nsd.activation(np.tanh)) == pytest.approx(1.0, rel=1e-9)
    tiny = nsd.activation("hard_tanh", c=1e-9)
    assert gaussian.slope_power_supremum(tiny) == 1.0
    assert not nsd.DEQ(tiny, 1.5, 0.8).well_posed.infinite_width.holds


def test_the_supremum_finds_bands_of_any_width() -> None:
    """Slope 1 on 1 < |x|/c < 2 alone: the same number for every c."""
    values = [
        gaussian.slope_power_supremum(
            nsd.activation("piecewise_linear", kinks=[-2 * c, -c, c, 2 * c], slopes=[0, 1, 0, 1, 0])
        )
        for c in (1e-9, 1.0, 1e9)
    ]
    top = max(2 * float(special.ndtr(2 / t) - special.ndtr(1 / t)) for t in np.geomspace(0.5, 4, 4001))
    assert values == pytest.approx([top] * 3, rel=1e-6)


@pytest.mark.parametrize("tau", [0, -1.0, math.nan, math.inf, "one", None, True])
def test_bad_tau(tau: object) -> None:
    with pytest.raises(nsd.InputError, match="tau="):
        nsd.moments(nsd.activation("relu"), tau)  # type: ignore[arg-type]


def test_moments_are_exact_under_scaling() -> None:
    relu = nsd.activation("relu")
    m = nsd.moments(replace(relu, scale=3.0), 2.0)
    assert (m.slope, m.power, m.slope_power) == (1.5, 18.0, 4.5)


@pytest.mark.parametrize("tau", np.linspace(0.0656, 0.068, 41))
def test_a_dead_zone_has_no_power_of_its_own(tau):
    """Where signals hardly reach the kinks, E[φ²] was the square of the rounding of φ inside the zone, 5e-33."""
    phi = 0.88 * nsd.activation("piecewise_linear", kinks=[-0.714, 1.443], slopes=[0.73, 0.0, -0.47]).stretched(0.33)
    with mp.workdps(60):
        spread = mp.mpf(0.33) * mp.mpf(tau)
        truth = sum(
            (mp.mpf(0.88) * mp.mpf(slope) * spread) ** 2 * ((1 + c * c) * mp.ncdf(-c) - c * mp.npdf(c))
            for slope, c in ((0.73, mp.mpf(0.714) / spread), (0.47, mp.mpf(1.443) / spread))
        )
    assert nsd.moments(phi, tau).power == pytest.approx(float(truth), rel=1e-6)
