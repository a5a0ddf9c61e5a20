"""Rows that coincide, vanish or explode, against thirty digits and limits known in closed form."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from tests.dual_oracles import ACTIVATIONS, KINDS, RECURRENT, points, relu_pair_mp

import notsodeep as nsd
from notsodeep.kernels import tables


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


@pytest.mark.parametrize("ratio", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("name", ["hard_tanh", "tanh"])
def test_a_short_row_beside_a_long_one_keeps_its_digits(name, ratio):
    """E[φ(u)φ(v)] = φ'(0) Cov(u, v) E[φ'(u)] + O(|v|²) for short v: the correlation of K has a limit."""
    phi = ACTIVATIONS[name] + ACTIVATIONS[name].shift
    x, y = np.array([3.0, 1.0]), np.array([1.0, 2.0])

    def correlation(model, size):
        K = model.kernel(np.stack([x, size * y]))
        return K[0, 1] / math.sqrt(K[0, 0] * K[1, 1])

    for model in (nsd.Explicit([phi, phi]), nsd.DEQ(phi, 0.5, 0.5)):
        limit = correlation(model, 1e-12)
        assert abs(correlation(model, ratio) - limit) < 1e-13 + 10 * (0 if name == "hard_tanh" else ratio**2)
    slope = nsd.moments(phi, math.sqrt(10.0)).slope
    first = nsd.Explicit([phi]).kernel(np.stack([x, 1e-9 * y]))
    assert first[0, 1] == pytest.approx(phi.derivative(0.0) * 1e-9 * 5 * slope, rel=1e-13)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_signals_far_beyond_the_kinks_are_nearly_signs(rho):
    """A clipped line of slope 1 is nearly a sign: (2/π) arcsin ρ, from which it differs by O(1/‖x‖)."""
    X = 1e5 * np.array([[1.0, 0.0], [1.2 * rho, 1.2 * math.sqrt(1 - rho**2)]])
    K, info = nsd.Explicit(["hard_tanh"]).kernel(X, return_info=True)
    assert abs(K[0, 1] - 2 / np.pi * np.arcsin(rho)) < 2e-5
    assert info.error < 1e-9


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


@pytest.mark.parametrize("length", [0.6, 1.8])
@pytest.mark.parametrize("name", ["erf", "sin", "cos", "gaussian", "gelu"])
def test_closed_forms_agree_with_the_series(name, length, monkeypatch):
    deq = nsd.DEQ(0.7 * nsd.activation(name).stretched(1.2) - 0.1, 0.2, 0.8, 0.1)
    X = points(5, 3) * length
    series, info = deq.kernel(X, kind=KINDS, return_info=True)
    assert info.method == "hermite newton"
    monkeypatch.setattr(tables, "_LARGE_ON_SLICES", 0.0)
    monkeypatch.setattr(tables, "_LARGE", 0.0)
    closed, info = deq.kernel(X, kind=KINDS, return_info=True)
    assert info.method == "layer by layer"
    for a, b in zip(series, closed, strict=True):
        np.testing.assert_allclose(a, b, rtol=4e-15, atol=2e-15)


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
