"""Equivalents against exact kernels: n^−1/2 decay, misprints that break it, and the structured operator."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import cg
from sklearn.datasets import load_digits
from tests import oracles

import notsodeep as nsd
from notsodeep.papers.misprints import ERRATA, FURTHER, IMPLICIT, INPUT, RECURRENT, SLIDES, SLOPES, Sample

SEEDS = {200: 4, 400: 3, 800: 2, 1600: 1}  # fewer where a single draw fluctuates less


@pytest.fixture(scope="module")
def samples():
    return {n: [Sample.draw(n, seed) for seed in range(seeds)] for n, seeds in SEEDS.items()}


def slope(samples, error):
    """Log-log slope of the mean error over n = 200…1600."""
    errors = [np.mean([error(sample) for sample in draws]) for draws in samples.values()]
    print(" ".join(f"{n}: {e:.4f}" for n, e in zip(samples, errors, strict=True)))
    return np.polyfit(np.log(list(samples)), np.log(errors), 1)[0]


def test_the_kernels_of_the_samples_are_those_of_the_oracles(samples):
    sample = samples[200][0]
    P = sample.X @ sample.X.T
    implicit, explicit = sample.models["deq"], sample.models["explicit"]
    duals = [oracles.leaky_dual(a, b, layer.shift) for (a, b), layer in zip(SLOPES, explicit.activations, strict=True)]
    expected = {
        "deq": oracles.deq_kernels(P, oracles.relu_dual(implicit.activation.shift), RECURRENT, INPUT),
        "explicit": oracles.explicit_kernels(P, duals),
    }
    for model, kernels in expected.items():
        for kind, kernel in kernels.items():
            np.testing.assert_allclose(sample.kernel(model, kind), kernel, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "kind"), [("deq", kind) for kind in nsd.DEQ.kinds] + [("explicit", kind) for kind in nsd.Explicit.kinds]
)
# covers: [Ling24] Thm 3.3; [Ling24] Thm 3.4; [Ling24] Thm 3.8; slides of [Ling24] Thm 1
# covers: slides of [Ling24] Thm 2; slides of [Ling24] Thm 3
def test_error_decays(samples, model, kind):
    assert slope(samples, lambda s: s.error(model, kind, s.weights(model, kind))) <= -0.4


@pytest.mark.parametrize("erratum", [*ERRATA, *SLIDES, FURTHER[1]], ids=lambda e: e.name)
def test_misprints_do_not_decay(samples, erratum):
    assert slope(samples, lambda s: s.error(erratum.model, erratum.kind, erratum.weights(s))) > -0.25


def test_estimated_statistics_serve_as_well_as_the_true_ones(samples):
    def error(sample):
        estimated = nsd.estimate_statistics(sample.X, sample.stats.labels)
        return oracles.relative_spectral_error(
            sample.kernel("deq", "ntk"), nsd.equivalent(IMPLICIT, sample.X, estimated, "ntk").dense()
        )

    assert slope({n: samples[n][:1] for n in (200, 400, 800)}, error) < -0.3
    assert error(samples[800][0]) < 0.06


# --- the matched network ------------------------------------------------------------------


def leaky_dual_of(layer):
    low, high = layer.derivative(np.array([-1.0, 1.0]))
    return oracles.leaky_dual(high, low, -layer(0.0))


def test_matched_network_has_the_same_kernel_on_a_mixture(samples):
    def error(sample):
        m = nsd.match(IMPLICIT, stats=sample.stats, kind="ck")
        assert m.family == "leaky_relu"
        P = sample.X @ sample.X.T
        explicit = oracles.explicit_kernels(P, [leaky_dual_of(layer) for layer in m.network.activations])
        return oracles.relative_spectral_error(sample.kernel("deq", "ck"), explicit["ck"])

    assert slope(samples, error) <= -0.4
    assert error(samples[1600][0]) < 0.02


def test_matched_network_has_nearly_the_same_kernel_on_digits():
    """Real data, p = 64 only: the closeness of the GMM at that dimension, not of a limit."""
    X, labels = load_digits(return_X_y=True)
    X = X - X.mean(axis=0)
    X = X / math.sqrt((X**2).sum(axis=1).mean())
    stats = nsd.estimate_statistics(X, labels)
    m = nsd.match(IMPLICIT, stats=stats, kind="ck")
    P = X @ X.T
    shift = IMPLICIT.centered(stats.tau0).activation.shift
    implicit = oracles.deq_kernels(P, oracles.relu_dual(shift), RECURRENT, INPUT)["ck"]
    explicit = oracles.explicit_kernels(P, [leaky_dual_of(layer) for layer in m.network.activations])["ck"]
    matched = oracles.relative_spectral_error(implicit, explicit)
    print(f"digits: {matched:.4f}")
    assert matched < 0.05


# --- the operator -------------------------------------------------------------------------


def problem(n, p, seed=0):
    means = np.zeros((2, p))
    means[0, 0] = 2.0
    mix = nsd.Mixture(means, [1.0, 1.3], [0.3, 0.7])
    X, labels = mix.sample(n, seed)
    return X, mix.statistics(X, labels)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(8, 60), p=st.integers(3, 60), kind=st.sampled_from(nsd.DEQ.kinds))
def test_structure_agrees_with_the_dense_matrix(n, p, kind):
    X, stats = problem(n, p)
    M = nsd.equivalent(nsd.DEQ("relu", 0.2, 0.8), X, stats, kind)
    dense = M.dense()
    rng = np.random.default_rng(0)
    assert M.shape == dense.shape == (n, n)
    np.testing.assert_allclose(dense, dense.T, atol=1e-14)
    for b in (rng.standard_normal(n), rng.standard_normal((n, 3))):
        np.testing.assert_allclose(M @ b, dense @ b, atol=1e-10)
        np.testing.assert_allclose(M @ M.solve(b), b, atol=1e-7)
        np.testing.assert_allclose(M.solve(b, ridge=0.5), np.linalg.solve(dense + 0.5 * np.eye(n), b), atol=1e-9)
    np.testing.assert_allclose(M.eigenvalues(), np.linalg.eigvalsh(dense), atol=1e-10)
    assert M.trace() == pytest.approx(np.trace(dense))


def test_float32_stays_float32():
    X, stats = problem(40, 20)
    M = nsd.equivalent(nsd.DEQ("relu", 0.2, 0.8), X.astype(np.float32), stats)
    assert M.dtype == np.float32
    assert M.dense().dtype == np.float32
    assert (M @ np.ones(40, dtype=np.float32)).dtype == np.float32


def test_linear_operator_works_in_scipy():
    X, stats = problem(80, 30)
    M = nsd.equivalent(nsd.DEQ("relu", 0.2, 0.8), X, stats, "ntk")
    x, flag = cg(M.aslinearoperator(), np.ones(80), rtol=1e-10, maxiter=500)
    assert flag == 0
    np.testing.assert_allclose(x, M.solve(np.ones(80)), rtol=1e-6)


def test_a_singular_equivalent_is_reported():
    X, stats = problem(40, 10)
    M = nsd.equivalent(nsd.DEQ("identity", 0.2, 0.8), X, stats)  # δ = 0 and p < n
    with pytest.raises((nsd.InputError, nsd.ConvergenceWarning), match="ridge"):
        M.solve(np.ones(40))
    np.testing.assert_allclose(M @ (x := M.solve(np.ones(40), ridge=0.1)) + 0.1 * x, 1.0, atol=1e-8)


def test_equivalent_bad_input():
    X, stats = problem(20, 10)
    deq = nsd.DEQ("relu", 0.2, 0.8)
    M = nsd.equivalent(deq, X, stats)
    table = [
        (lambda: nsd.equivalent(deq, X[:10], stats), "stats describes 20 samples"),
        (lambda: nsd.equivalent(deq, X[:, :5], stats), "of 10 features"),
        (lambda: nsd.equivalent(deq, X[0], stats), "2 dimensions"),
        (lambda: nsd.equivalent(deq, X * 1j, stats), "complex"),
        (lambda: nsd.equivalent(deq, X * np.nan, stats), "NaN"),
        (lambda: nsd.equivalent(deq, X, None), "stats=None"),
        (lambda: nsd.equivalent(deq, X, stats, "nntk"), "did you mean 'ntk'"),
        (lambda: nsd.equivalent(nsd.Explicit(["relu"]), X, stats, "nngp"), "choose from ck, ntk"),
        (lambda: M @ np.ones(7), "pass 20 rows"),
        (lambda: M.solve(np.ones(20), ridge=-1), "ridge=-1"),
    ]
    for call, message in table:
        with pytest.raises(nsd.InputError, match=message):
            call()
