"""Duals and fixed points against closed forms, quadrature and long iteration, and what holds for all of them.

Also covers: kernels/analytic.py, kernels/arc.py, kernels/closed.py, kernels/parabolas.py, kernels/pieces.py,
kernels/piecewise.py, kernels/smooth.py, kernels/tables.py, kernels/tabulate.py, kinds.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dual_oracles import (
    ACTIVATIONS,
    KINDS,
    RECURRENT,
    arc_dual,
    dual_by_quadrature,
    iterate,
    points,
    trapezoidal_dual,
)

import notsodeep as nsd
from notsodeep.kernels import parabolas, pieces
from notsodeep.kernels.pieces import _orthant
from notsodeep.kernels.tables import dual
from notsodeep.kinds import Kind, combine


def pair(qi, qj, rho):
    """Two rows of the given squared norms and cosine."""
    return np.array([[math.sqrt(qi), 0.0], [math.sqrt(qj) * rho, math.sqrt(qj) * math.sqrt(1 - rho**2)]])


# --- duals ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(("qi", "qj", "rho"), [(0.7, 1.6, 0.3), (1.0, 0.9, -0.85), (0.4, 0.41, 0.97)])
def test_one_layer_kernel_is_the_dual(name, qi, qj, rho):
    phi = ACTIVATIONS[name]
    G, slope = dual_by_quadrature(phi, qi, qj, rho)
    k = nsd.Explicit([phi]).kernel(pair(qi, qj, rho), kind=("ck", "ntk"))
    assert k.ck[0, 1] == pytest.approx(G, abs=2e-12)
    covariance = rho * math.sqrt(qi * qj)
    assert k.ntk[0, 1] == pytest.approx(G + slope * covariance, abs=2e-12)


@pytest.mark.parametrize("rho", [-1.0, -0.999, -0.5, 0.0, 0.3, 0.95, 0.9999999, 1.0])
@pytest.mark.parametrize(("h", "k"), [(0.0, 0.0), (0.5, -1.2), (1.0, 1.0), (1.0, 1.0001), (-2.5, 0.3), (6.0, 5.0)])
def test_bivariate_normal_orthant(h, k, rho):
    """P(X > h, Y > k) against one-dimensional quadrature of the conditional probability."""
    import mpmath as mp

    with mp.workdps(30):
        if abs(rho) == 1:
            expected = mp.ncdf(-max(h, k)) if rho > 0 else max(mp.ncdf(-k) - mp.ncdf(h), 0)
        else:
            spread = mp.sqrt(1 - mp.mpf(rho) ** 2)
            top = max(mp.mpf(h), 0) + 12
            edges = (
                sorted({mp.mpf(h), top, *(e for e in (k / rho + s * spread * 6 for s in (-1, 0, 1)) if h < e < top)})
                if rho
                else [h, top]
            )
            expected = mp.quad(lambda x: mp.npdf(x) * mp.ncdf((rho * x - k) / spread), edges)
    assert _orthant(h, k, 1 - rho, 1 + rho) == pytest.approx(float(expected), abs=5e-15)


@given(
    name=st.sampled_from(["hard_tanh", "three_kinks"]),
    rho=st.floats(-pieces.REACH, pieces.REACH),
    spans=st.tuples(st.floats(-4, 4), st.floats(-4, 4)),
)
def test_series_of_pieces_is_their_closed_form(name, rho, spans):
    """Two independent formulas: Hermite coefficients at the kinks, and the bivariate normal distribution."""
    q = 10.0 ** np.array(spans)
    found = dual(ACTIVATIONS[name], q)
    (table,) = found.tables
    arguments = found.constants, *q, table, 0, table, 1, 1.0 - rho, 1.0 + rho
    G, slope = pieces.pieces_dual(*arguments)
    G_closed, slope_closed = pieces._closed(*arguments)
    powers = nsd.Explicit([ACTIVATIONS[name]]).kernel_diag(np.sqrt(q)[:, None])
    lost = 4e-16 * math.sqrt(q.prod())  # far beyond the kinks the closed form is a difference of large numbers
    assert abs(G - G_closed) <= 5e-14 * math.sqrt(powers.prod()) + lost
    assert abs(slope - slope_closed) <= 5e-14 * max(np.abs(ACTIVATIONS[name].shape.slopes)) ** 2 * 4


@pytest.mark.parametrize("name", ["erf", "sin"])
def test_closed_form_duals(name):
    X = points()
    P = X @ X.T
    q = np.diag(P)
    if name == "erf":
        expected = 2 / np.pi * np.arcsin(2 * P / np.sqrt(np.outer(1 + 2 * q, 1 + 2 * q)))
    else:
        expected = np.exp(-(q[:, None] + q) / 2) * np.sinh(P)
    np.testing.assert_allclose(nsd.Explicit([name]).kernel(X), expected, atol=1e-13)


# --- fixed points ---------------------------------------------------------------------


@pytest.mark.parametrize("bias", [0.0, 0.3])
@pytest.mark.parametrize(
    "name", ["relu", "leaky_negative", "relu_shifted", "tanh", "tanh_shifted", "swish", "erf", "sigmoid"]
)
def test_kinds_agree_with_long_iteration(name, bias):
    phi = ACTIVATIONS[name]
    deq = nsd.DEQ(phi, recurrent=RECURRENT, input=0.8, bias=bias)
    X = points(5) * 0.7
    dual = arc_dual(phi) if phi.kinks else trapezoidal_dual(phi)
    L, G, slope = iterate(deq, dual, X)
    k = deq.kernel(X, kind=KINDS)
    off = ~np.eye(len(X), dtype=bool)
    for kind in KINDS:
        expected = combine(Kind.of(kind), G, slope, L, RECURRENT)
        # plain arccos loses half the digits of Ġ on the diagonal, where the exact value is known
        np.testing.assert_allclose(getattr(k, kind)[off], expected[off], rtol=2e-12, atol=2e-12)
        np.testing.assert_allclose(np.diag(getattr(k, kind)), np.diag(expected), rtol=3e-8)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bias", [0.0, 0.25])
# covers: [FK20] Thm 2
def test_injected_kernel_is_a_shifted_ntk(name, bias):
    """ntk_injected = σ_a² ntk + σ_b² P + σ_0², entry by entry."""
    deq = nsd.DEQ(ACTIVATIONS[name], recurrent=RECURRENT, input=0.6, bias=bias)
    X = points(9) * np.linspace(0.3, 1.5, 9)[:, None]
    k, info = deq.kernel(X, kind=KINDS, return_info=True)
    assert info.residual < 1e-14
    assert info.error < 1e-12
    expected = RECURRENT * k.ntk + 0.6 * X @ X.T + bias
    np.testing.assert_allclose(k.ntk_injected, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(k.nngp, RECURRENT * k.ck + 0.6 * X @ X.T + bias, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["relu", "relu_shifted", "hard_tanh", "tanh", "swish"])
# covers: [FK20] Thm 2; [FK20] Lemma 1
def test_depth_converges_to_the_equilibrium_at_a_linear_rate(name):
    deq = nsd.DEQ(ACTIVATIONS[name], recurrent=0.3, input=0.7, bias=0.1)
    X = points(5) * 0.8
    exact = deq.kernel(X, kind=KINDS)
    errors = []
    for depth in (2, 6, 10, 60):
        k = deq.kernel(X, kind=KINDS, depth=depth)
        errors.append([np.abs(a - b).max() for a, b in zip(k, exact, strict=True)])
    errors = np.array(errors)
    # each layer multiplies the error by at most σ_a² sup E[φ'²] (times h for the tangent kernels)
    rate = 0.3 * max(1.0, nsd.models.slope_power_supremum(deq.activation))
    assert np.all(errors[2] < errors[1] * (rate**4) * 3)
    assert np.all(errors[3] < 1e-12)


# covers: [FK20] Thm 1
def test_first_iterates_are_the_definition():
    deq = nsd.DEQ("relu", recurrent=0.3, input=0.5, bias=0.2)
    X = points(4)
    P = X @ X.T
    zeroth = deq.kernel(X, kind=KINDS, depth=0)
    np.testing.assert_allclose(zeroth.nngp, P, atol=1e-14)
    np.testing.assert_allclose(zeroth.ntk_injected, P, atol=1e-14)
    G0 = nsd.Explicit(["relu"]).kernel(X)
    first = deq.kernel(X, kind=KINDS, depth=1)
    np.testing.assert_allclose(first.nngp, 0.3 * G0 + 0.5 * P + 0.2, atol=1e-13)


def test_explicit_layers_compose():
    """Feeding the covariance of layer 1 into layer 2 by hand gives the two-layer kernel."""
    phi, psi = nsd.activation("leaky_relu", a=1, b=-0.3) - 0.2, nsd.activation("tanh")
    X = points(5)
    one = nsd.Explicit([phi]).kernel(X, kind=("ck", "ntk"))
    factor = np.linalg.cholesky(one.ck)  # rows with exactly these inner products
    two = nsd.Explicit([psi]).kernel(factor, kind=("ck", "ntk"))
    both = nsd.Explicit([phi, psi]).kernel(X, kind=("ck", "ntk"))
    np.testing.assert_allclose(both.ck, two.ck, atol=1e-12)
    slope = (two.ntk - two.ck) / one.ck
    np.testing.assert_allclose(both.ntk, two.ck + slope * one.ntk, atol=1e-11)


# --- invariants -----------------------------------------------------------------------

_models = st.builds(
    lambda name, recurrent, gain, bias: nsd.DEQ(ACTIVATIONS[name], recurrent, gain, bias),
    st.sampled_from(sorted(ACTIVATIONS)),
    st.floats(0.0, 0.55),
    st.floats(0.05, 2.0),
    st.sampled_from([0.0, 0.5]),
)


@settings(max_examples=40)
@given(model=_models, seed=st.integers(0, 2**16), spread=st.floats(0, 0.8), n=st.integers(2, 12), p=st.integers(2, 6))
def test_symmetry_positivity_and_cauchy_schwarz(model, seed, spread, n, p):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * np.exp(spread * rng.standard_normal((n, 1))) / math.sqrt(p)
    for plane in model.kernel(X, kind=KINDS):
        assert np.array_equal(plane, plane.T)
        eigenvalues = np.linalg.eigvalsh(plane)
        assert eigenvalues[0] >= -1e-12 * max(eigenvalues[-1], 1e-300)
        bound = np.sqrt(np.outer(np.diag(plane), np.diag(plane)))
        assert np.all(np.abs(plane) <= bound * (1 + 1e-10) + 1e-13)


@settings(max_examples=30)
@given(model=_models, seed=st.integers(0, 2**16))
def test_monotone_in_the_inner_product(model, seed):
    """∂Λ/∂P = σ_b²/(1 − σ_a²Ġ) > 0, so Λ increases with x·y at fixed norms."""
    norms = np.random.default_rng(seed).uniform(0.3, 2.0, 2)
    cosines = np.linspace(-0.999, 0.999, 41)
    x = np.array([[norms[0], 0.0]])
    Y = norms[1] * np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1)
    covariance = model.kernel(x, Y, kind="nngp")[0]
    assert np.all(np.diff(covariance) > 0)


@settings(max_examples=20)
@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 2**16), recurrent=st.floats(0, 0.9))
def test_homogeneous_kernels_scale(scale, seed, recurrent):
    deq = nsd.DEQ("normalized_relu", recurrent, 0.7)
    X = points(6, seed=seed)
    np.testing.assert_allclose(deq.kernel(scale * X, kind="ntk"), scale**2 * deq.kernel(X, kind="ntk"), rtol=1e-11)


def test_parabolas_follow_their_function_and_its_straight_ends():
    shape = nsd.activation("hermite", coefficients=[0.3, 1.0, -0.4, 0.2, 0.1], bends=[], logs=[], decays=[]).shape
    x = np.concatenate([np.linspace(-9, 9, 40_001), [-7.5, 7.5, -1e4, 1e4]]).astype(np.float32)
    value, slope = np.empty_like(x), np.empty_like(x)
    parabolas.evaluate(x, shape, value, slope)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(value, shape.value(exact), rtol=2e-6, atol=1e-5)
    np.testing.assert_allclose(slope, shape.derivative(exact), rtol=2e-4, atol=1e-3)
    composed = np.empty_like(x)
    parabolas.evaluate(x, shape, composed, scale=0.5, stretch=0.7, shift=0.2)
    np.testing.assert_allclose(composed, 0.5 * shape.value(0.7 * exact) - 0.2, rtol=2e-6, atol=1e-5)


def test_parabolas_keep_what_is_not_a_number():
    shape = nsd.activation("hermite", coefficients=[0.0, 1.0, 0.5], bends=[], logs=[], decays=[]).shape
    x = np.array([np.nan, 0.0, np.nan], np.float32)
    parabolas.evaluate(x, shape, x)
    assert np.isnan(x).tolist() == [True, False, True]


def test_parabolas_go_on_to_infinity():
    shape = nsd.activation("hermite", coefficients=[0.1, 0.7, 0.3, -0.2, 0.05], bends=[], logs=[], decays=[]).shape
    x, slope = np.array([np.inf, -np.inf, 1e30, -1e30], np.float32), np.empty(4, np.float32)
    value = np.empty_like(x)
    parabolas.evaluate(x, shape, value, slope)
    np.testing.assert_allclose(value, shape.value(x.astype(np.float64)), rtol=1e-5)
    np.testing.assert_allclose(slope, shape.derivative(x.astype(np.float64)), rtol=1e-5)
