"""Exact kernels against closed forms, quadrature, long iteration and high precision."""

from __future__ import annotations

import math
import re
import threading
import warnings

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dual_oracles import (
    ACTIVATIONS,
    KINDS,
    arc_dual,
    dual_by_quadrature,
    iterate,
    relu_pair_mp,
    trapezoidal_dual,
)

import notsodeep as nsd
from notsodeep.kernels import gram, passes, tables
from notsodeep.kernels.kinds import combine
from notsodeep.kernels.pieces import _orthant

RECURRENT = 0.2


def points(n=7, p=4, seed=0):
    return np.random.default_rng(seed).standard_normal((n, p))


def pair(qi, qj, rho):
    """Two rows of the given squared norms and cosine."""
    return np.array([[math.sqrt(qi), 0.0], [math.sqrt(qj) * rho, math.sqrt(qj) * math.sqrt(1 - rho**2)]])


# --- duals ------------------------------------------------------------------------------


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
    assert _orthant(h, k, 1 - rho) == pytest.approx(float(expected), abs=5e-15)


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


# --- fixed points -----------------------------------------------------------------------


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
        expected = combine(kind, G, slope, L, RECURRENT)
        # plain arccos loses half the digits of Ġ on the diagonal, where the exact value is known
        np.testing.assert_allclose(getattr(k, kind)[off], expected[off], rtol=2e-12, atol=2e-12)
        np.testing.assert_allclose(np.diag(getattr(k, kind)), np.diag(expected), rtol=3e-8)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bias", [0.0, 0.25])
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


# --- extreme inputs -------------------------------------------------------------------------


@pytest.mark.parametrize("distance", [0.0, 3e-16, 1e-12, 3e-8, 1e-5, 1e-3])
@pytest.mark.parametrize("recurrent", [0.05, 0.6, 0.95, 0.995])
def test_nearly_identical_rows_keep_their_digits(recurrent, distance):
    """1 − ρ ~ 1e-15 and below: the tangent kernel behaves like √(1−ρ), so inner products are not enough."""
    deq = nsd.DEQ("normalized_relu", recurrent=recurrent, input=1 - recurrent)
    x = points(1, 6)[0]
    y = x.copy()
    y[2] += distance * abs(y[2])
    X = np.stack([x, y])
    k = deq.kernel(X, kind=KINDS)
    for kind in KINDS:
        expected = relu_pair_mp(deq, x, y, kind)
        assert getattr(k, kind)[0, 1] == pytest.approx(expected, rel=4e-12 if recurrent > 0.99 else 2e-13)
        assert getattr(k, kind)[0, 0] == pytest.approx(relu_pair_mp(deq, x, x, kind), rel=2e-13)


@pytest.mark.parametrize("factor", [1.0, 1.7, 1e-3, -1.0, -2.5])
def test_collinear_and_opposite_rows(factor):
    deq = nsd.DEQ("relu", recurrent=0.4, input=0.9)
    x = points(1, 6)[0]
    k = deq.kernel(np.stack([x, factor * x]), kind=KINDS)
    for kind in KINDS:
        scale = math.sqrt(getattr(k, kind)[0, 0] * getattr(k, kind)[1, 1])
        assert getattr(k, kind)[0, 1] == pytest.approx(relu_pair_mp(deq, x, factor * x, kind), abs=2e-13 * scale)


@pytest.mark.parametrize(
    ("left", "right"), [(1e150, 1e150), (1e-150, 1e-150), (1e150, 1e-150), (1.0, 1e-200), (1e8, 1.0)]
)
@pytest.mark.parametrize("bias", [0.0, 0.3])
def test_huge_and_tiny_norms(left, right, bias):
    deq = nsd.DEQ("relu", recurrent=0.4, input=0.9, bias=bias)
    X = points(2, 6) * np.array([[left], [right]])
    k = deq.kernel(X, kind=KINDS)
    for kind in KINDS:
        assert getattr(k, kind)[0, 1] == pytest.approx(relu_pair_mp(deq, *X, kind), rel=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_zero_rows(name):
    deq = nsd.DEQ(ACTIVATIONS[name], recurrent=RECURRENT, input=0.8)
    X = points(4)
    X[1] = 0
    near = X.copy()
    near[1, 0] = 1e-9
    k, limit = deq.kernel(X, kind=KINDS), deq.kernel(near, kind=KINDS)
    for a, b in zip(k, limit, strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, atol=1e-8)
    assert np.isfinite(nsd.Explicit([ACTIVATIONS[name]] * 2).kernel(X, kind="ntk")).all()


@pytest.mark.parametrize("name", ["relu_shifted", "three_kinks", "tanh_shifted", "swish"])
def test_duplicates_equal_the_diagonal(name):
    deq = nsd.DEQ(ACTIVATIONS[name], recurrent=RECURRENT, input=0.8, bias=0.1)
    X = points(4) / 2
    X[2] = X[0]
    k = deq.kernel(X, kind=KINDS)
    for plane in k:
        assert plane[0, 2] == pytest.approx(plane[0, 0], rel=1e-9)


def test_rows_that_nearly_coincide_are_continuous():
    """A shifted relu, whose difference formula is its own: approach a duplicate and compare with high accuracy."""
    deq = nsd.DEQ(nsd.activation("relu") - 0.3, recurrent=0.4, input=0.9, bias=0.1)
    x = points(1, 5)[0]
    direction = points(1, 5, seed=1)[0]
    diagonal = deq.kernel_diag(x[None], kind="ntk")[0]
    drops = []
    for epsilon in (1e-4, 1e-6, 1e-8, 1e-10):
        K = deq.kernel(np.stack([x, x + epsilon * direction]), kind="ntk")
        drops.append((diagonal + K[1, 1] - 2 * K[0, 1]) / 2 / epsilon)
    # K_ii + K_jj − 2K_ij ∝ ε to first order: the ratio is constant
    np.testing.assert_allclose(drops[1:3], drops[0], rtol=1e-3)
    assert drops[3] == pytest.approx(drops[0], rel=1e-3)


def test_float32_keeps_single_precision_also_near_duplicates():
    deq = nsd.DEQ("normalized_relu", recurrent=0.6, input=0.4)
    X = points(50, 300)
    X[1] = X[0] * (1 + 1e-6)
    X[2] = X[0] + 1e-4 * points(1, 300, seed=5)[0]
    exact = deq.kernel(X, kind="ntk")
    single = deq.kernel(X, kind="ntk", dtype="float32")
    assert single.dtype == np.float32
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.abs(single - exact).max() / scale.max() < 2e-6
    # from float32 data only the data's own rounding is lost
    assert deq.kernel(X.astype(np.float32), kind="ntk").dtype == np.float32


@pytest.mark.parametrize("name", ["hard_tanh", "three_kinks"])
@pytest.mark.parametrize("norm", [1e-2, 1e-5, 1e-9])
def test_small_signals_see_the_linear_piece(name, norm):
    """Far from every kink φ is linear, and so is the kernel: no digits may be lost in getting there."""
    phi = ACTIVATIONS[name] + ACTIVATIONS[name].shift  # through the origin
    slope = phi.derivative(0.0)
    X = points(6, 8)
    X *= (norm * np.linspace(0.5, 1, 6) / np.linalg.norm(X, axis=1))[:, None]
    exact = 0.8 * slope**2 / (1 - 0.2 * slope**2) * X @ X.T
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.max(np.abs(nsd.DEQ(phi, 0.2, 0.8).kernel(X) - exact) / scale) < 1e-13
    exact = slope**4 * X @ X.T
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.max(np.abs(nsd.Explicit([phi, phi]).kernel(X) - exact) / scale) < 1e-13


@pytest.mark.parametrize("name", ["tanh", "swish", "hard_tanh", "softplus"])
def test_an_entry_does_not_depend_on_the_other_rows(name):
    X = points(60, 8)
    X *= (np.geomspace(1e-5, 1, 60) / np.linalg.norm(X, axis=1))[:, None]
    deq = nsd.DEQ(ACTIVATIONS[name], recurrent=0.2, input=0.8)
    K = deq.kernel(X, kind="ntk")
    for i, j in [(0, 0), (0, 1), (0, 59), (30, 31), (59, 59)]:
        alone = deq.kernel(X[[i]], X[[j]], kind="ntk")[0, 0]
        assert abs(K[i, j] - alone) < 1e-12 * math.sqrt(K[i, i] * K[j, j])


@pytest.mark.parametrize("recurrent", [1.99, 1.9999, 1.999999])
@pytest.mark.parametrize("angle", [1e-8, 1e-6, 1e-3])
def test_close_to_the_limit_the_error_is_small_and_stated(recurrent, angle):
    X = np.array([[1.0, 0.0], [math.cos(angle), math.sin(angle)]])
    deq = nsd.DEQ("relu", recurrent, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nsd.ConvergenceWarning)  # beyond 1e-9 it says so
        K, info = deq.kernel(X, kind="ntk", return_info=True)
    error = abs(K[0, 1] / relu_pair_mp(deq, *X, "ntk", digits=60) - 1)
    assert error < min(1e-10, info.error)


def test_collinear_rows_through_a_homogeneous_and_a_shifted_layer():
    x = points(1, 7)[0]
    x /= np.linalg.norm(x)
    n = np.array([1, 1.7, 2.3, 0.31, 5.9, 0.77])
    K = nsd.Explicit(["relu", nsd.activation("relu") - 0.4]).kernel(n[:, None] * x, kind="ntk")
    s = n / math.sqrt(2)
    exact = np.outer(s, s) / 2 - 0.4 * (s[:, None] + s) / math.sqrt(2 * math.pi) + 0.16 + np.outer(n, n) / 2
    np.testing.assert_allclose(K, exact, rtol=1e-13)


@pytest.mark.parametrize("name", ["erf", "sin", "cos", "gaussian"])
def test_closed_forms_agree_with_the_series(name, monkeypatch):
    deq = nsd.DEQ(0.7 * nsd.activation(name).stretched(1.2) - 0.1, 0.2, 0.8, 0.1)
    X = points(5, 3) * 0.6
    series, info = deq.kernel(X, kind=KINDS, return_info=True)
    assert info.method == "hermite newton"
    monkeypatch.setattr(tables, "_LARGE", 0.0)
    closed, info = deq.kernel(X, kind=KINDS, return_info=True)
    assert info.method == "layer by layer"
    for a, b in zip(series, closed, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-15)


@pytest.mark.parametrize("name", ["erf", "sin", "gaussian"])
@pytest.mark.parametrize("size", [30.0, 1e3])
def test_large_signals_have_closed_forms(name, size):
    deq = nsd.DEQ(0.7 * nsd.activation(name), 0.2, 0.8, 0.1)
    X = size * np.vstack([points(4, 6), points(1, 6) * (1 + 1e-9), -points(1, 6)])
    k, info = deq.kernel(X, kind=KINDS, return_info=True)
    assert info.error < 1e-11
    np.testing.assert_allclose(k.ntk_injected, 0.2 * k.ntk + 0.8 * X @ X.T + 0.1, rtol=1e-12, atol=1e-12 * size**2)
    eigenvalues = np.linalg.eigvalsh(k.ck)
    assert eigenvalues[0] >= -1e-12 * eigenvalues[-1]


def test_rows_too_long_for_the_precision_are_refused():
    deq = nsd.DEQ("relu", 0.2, 0.8)
    with pytest.raises(nsd.InputError, match="norm 1e\\+160"):
        deq.kernel([[1e160, 0.0], [1.0, 1.0]])
    K = deq.kernel([[1e-170, 0.0], [1.0, 1.0]])
    assert K[0, 1] == pytest.approx(1e-170 * deq.kernel([[1.0, 0.0], [1.0, 1.0]])[0, 1], rel=1e-13)


# --- shapes, tiles, dtypes ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "relu_shifted", "tanh", "hard_tanh"])
def test_tiles_do_not_show(name, monkeypatch):
    """n that no tile divides: the same numbers as the rectangular kernel, whatever the tiling."""
    monkeypatch.setattr(gram, "_PANEL", 37)
    monkeypatch.setattr(gram, "_TILE", 23)
    deq = nsd.DEQ(ACTIVATIONS[name], recurrent=RECURRENT, input=0.8, bias=0.1)
    X = points(101, 5) / 2
    square = deq.kernel(X, kind="ntk")
    rectangle = deq.kernel(X[:41], X, kind="ntk")
    np.testing.assert_allclose(square[:41], rectangle, rtol=1e-12, atol=1e-12)
    assert np.array_equal(square, square.T)


def test_chunks_longer_than_the_buffer():
    deq = nsd.DEQ("tanh", recurrent=RECURRENT, input=0.8)
    X = points(700, 3) * 0.5
    K = deq.kernel(X, kind="ntk")
    some = np.array([0, 255, 256, 257, 511, 699])
    np.testing.assert_allclose(K[np.ix_(some, some)], deq.kernel(X[some], kind="ntk"), atol=1e-13)


def test_one_sample_and_one_pair():
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    x = points(1)
    assert deq.kernel(x, kind="ntk").shape == (1, 1)
    assert deq.kernel(x, kind="ntk")[0, 0] == deq.kernel_diag(x, kind="ntk")[0]
    assert deq.kernel(x, points(1, seed=3)).shape == (1, 1)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_diagonal_alone_is_the_matrix_diagonal(name):
    X = points(60) * np.linspace(0.1, 0.4, 60)[:, None]
    for model in (nsd.DEQ(ACTIVATIONS[name], 0.2, 0.7, 0.1), nsd.Explicit([ACTIVATIONS[name], "tanh"])):
        for kind in ("ck", "ntk"):
            np.testing.assert_array_equal(np.diag(model.kernel(X, kind=kind)), model.kernel_diag(X, kind=kind))
    k = nsd.DEQ(ACTIVATIONS[name], 0.2, 0.7, 0.1).kernel_diag(X[:3], kind=KINDS, depth=4)
    assert k.ntk.shape == (3,)


def test_sphere_gives_the_same_as_the_general_method():
    """Equal norms take the one-polynomial path; an outlier row forces the general one."""
    X = points(12, 6)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for name in ("tanh", "swish", "gelu", "softplus"):
        deq = nsd.DEQ(ACTIVATIONS[name], recurrent=RECURRENT, input=0.8, bias=0.1)
        fast, info = deq.kernel(X, kind=KINDS, return_info=True)
        slow, other = deq.kernel(np.vstack([X, 1.5 * X[:1]]), kind=KINDS, return_info=True)
        assert (info.method, other.method != "polynomial") == ("polynomial", True)
        for a, b in zip(fast, slow, strict=True):
            np.testing.assert_allclose(a, b[:12, :12], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("transform", [
    lambda X: X.astype(np.float16), lambda X: np.asfortranarray(X), lambda X: X[::-1][::-1], lambda X: X.tolist(),
    lambda X: (X * 10).astype(int), lambda X: (X > 0), lambda X: X.astype(">f8"), lambda X: X.astype(object),
])  # fmt: skip
def test_any_real_layout_is_accepted(transform):
    X = transform(points())
    plain = np.array(X, dtype=np.float64)
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    np.testing.assert_array_equal(deq.kernel(X, kind="ntk"), deq.kernel(plain, kind="ntk"))


def test_read_only_and_memory_mapped_inputs(tmp_path):
    X = points()
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    expected = deq.kernel(X)
    X.setflags(write=False)
    np.testing.assert_array_equal(deq.kernel(X), expected)
    np.save(tmp_path / "X.npy", X)
    np.testing.assert_array_equal(deq.kernel(np.load(tmp_path / "X.npy", mmap_mode="r")), expected)


def test_out_is_filled_and_returned():
    X = points()
    out = np.empty((7, 7))
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    result = deq.kernel(X, kind="ntk", out=out)
    assert np.shares_memory(result, out)
    np.testing.assert_array_equal(out, deq.kernel(X, kind="ntk"))


@pytest.mark.parametrize(("call", "message"), [
    (lambda d, X: d.kernel(X, kind="nkt"), "did you mean 'ntk'"),
    (lambda d, X: d.kernel(X, kind=("ck", "ck")), "twice"),
    (lambda d, X: d.kernel(X, kind=()), "kind is empty"),
    (lambda d, X: d.kernel(X, X[:, :2]), "Y has 2 features but X has 4"),
    (lambda d, X: d.kernel(X[0]), "reshape"),
    (lambda d, X: d.kernel(X * 1j), "complex"),
    (lambda d, X: d.kernel(X[:0]), "empty"),
    (lambda d, X: d.kernel(np.where(X > 1, np.nan, X)), "NaN or infinite"),
    (lambda d, X: d.kernel(X, np.where(X > 1, np.inf, X)), "Y holds"),
    (lambda d, X: d.kernel(X, dtype="float16"), "float64' or 'float32"),
    (lambda d, X: d.kernel(X, dtype="flaot"), "dtype='flaot'"),
    (lambda d, X: d.kernel(X, depth=-1), "depth=-1"),
    (lambda d, X: d.kernel(X, depth=2.5), "depth=2.5"),
    (lambda d, X: d.kernel(X, out=np.empty((2, 2))), "out has shape"),
    (lambda d, X: d.kernel(X, kind=("ck", "ntk"), out=np.empty((7, 7))), "one kind at a time"),
    (lambda d, X: d.kernel(X, out=np.empty((14, 7))[::2]), "C-contiguous"),
    (lambda d, X: d.kernel(X, progress=3), "progress=3"),
    (lambda d, X: d.kernel([["a", "b"]]), "numbers"),
    (lambda d, X: nsd.Explicit(["relu"]).kernel(X, kind="nngp"), "kind='nngp'"),
    (lambda d, X: nsd.Explicit(["relu"]).kernel(X, depth=2), "depth=2"),
    (lambda d, X: nsd.DEQ("relu", 2.5, 1).kernel(X), "recurrent=2.5 is not well-posed"),
    (lambda d, X: nsd.DEQ("tanh", 1.2, 1).kernel(X), "use recurrent < 1"),
])  # fmt: skip
def test_bad_input_is_one_clear_error(call, message):
    with pytest.raises(nsd.InputError, match=re.escape(message)):
        call(nsd.DEQ("relu", recurrent=0.2, input=0.8), points())


def test_a_model_that_is_not_well_posed_still_has_finite_depth():
    K = nsd.DEQ("relu", recurrent=2.5, input=1).kernel(points(), kind="ntk", depth=3)
    assert np.isfinite(K).all()


# --- engine ---------------------------------------------------------------------------------


def test_progress_reaches_the_total_and_may_interrupt(monkeypatch):
    monkeypatch.setattr(gram, "_PANEL", 8)
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    seen = []
    deq.kernel(points(30), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (465, 465)
    assert [s[0] for s in seen] == sorted(s[0] for s in seen)
    before = threading.active_count()

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deq.kernel(points(30), progress=stop)
    assert threading.active_count() <= before  # no thread is left behind


def test_concurrent_calls_do_not_disturb_each_other():
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    inputs = [points(200, seed=s) for s in range(4)]
    expected = [deq.kernel(X, kind="ntk") for X in inputs]
    found = [None] * 4

    def work(k):
        found[k] = deq.kernel(inputs[k], kind="ntk")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("function", ["polynomial_pass", "hermite_pass"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_hot_loops_are_vectorised(function, dtype):
    """Packed square roots, divisions and multiply-adds in the machine code."""
    deq = nsd.DEQ("relu" if function == "polynomial_pass" else "tanh", recurrent=0.2, input=0.8)
    from notsodeep.kernels.plans import choose, network_levels
    from notsodeep.kernels.samples import Samples

    samples = Samples.of(points(), np.dtype(dtype))
    levels = [network_levels(deq, samples, None)] * 2
    plan = choose(deq, samples, samples, levels, ("ntk",), None)
    dispatcher = getattr(passes, function)
    assert plan.function is dispatcher
    fresh = numba.njit(error_model="numpy", fastmath={"contract", "nsz", "nnan", "reassoc"})(dispatcher.py_func)
    arguments = (np.empty((1, 7, 7), dtype), *plan.bound(slice(None), slice(None)), 0, 0, 0, 0, True)
    fresh.compile(tuple(numba.typeof(a) for a in arguments))
    assembly = "\n".join(fresh.inspect_asm().values())
    letter = "d" if dtype == np.float64 else "s"
    wanted = ["sqrt", "mul"] if function == "polynomial_pass" else ["div", "mul"]
    for operation in wanted:
        assert re.search(rf"\bv?{operation}p{letter}\b", assembly), operation


def test_info_says_which_method_and_how_good():
    X = points(20)
    for name, method in [("relu", "polynomial"), ("tanh", "hermite newton"), ("hard_tanh", "layer by layer")]:
        _, info = nsd.DEQ(ACTIVATIONS[name], 0.2, 0.8).kernel(X, kind="ntk", return_info=True)
        assert info.method == method
        assert 0 < info.error < 1e-12
        assert info.seconds >= info.compile_seconds >= 0
    _, info = nsd.DEQ("normalized_relu", 0.995, 0.005).kernel(X, kind="ntk", return_info=True)
    assert info.method == "newton in the angle"


def test_a_series_that_is_too_short_says_so():
    """A kinked callable has an algebraic Hermite tail; duplicates then need more terms than there are."""
    deq = nsd.DEQ(lambda x: np.maximum(x, 0.0), recurrent=0.2, input=0.8)
    X = points(6)
    twin = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    np.testing.assert_allclose(deq.kernel(X[:3]), twin.kernel(X[:3]), atol=1e-9)
    with pytest.warns(nsd.ConvergenceWarning, match="nearly coincide"):
        K, info = deq.kernel(np.vstack([X, X[:1] * 1.001]), kind="ntk", return_info=True)
    truth = twin.kernel(np.vstack([X, X[:1] * 1.001]), kind="ntk")
    assert np.abs(K - truth).max() <= info.error * np.abs(truth).max()


# --- invariants -----------------------------------------------------------------------------

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
