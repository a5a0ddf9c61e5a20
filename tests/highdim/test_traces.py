"""Covariances of a mixture: common eigenvectors, factorisations of large ones, traces by blocks, memory."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from tests import forecast_oracle as oracle

import notsodeep as nsd
from notsodeep.highdim import traces
from notsodeep.highdim.ridge import KernelRidge

RELU = nsd.DEQ("relu", recurrent=0.2, input=0.8)
# dimensions are small for speed
pytestmark = pytest.mark.filterwarnings("ignore::notsodeep.AssumptionWarning")


def test_shared_eigenvectors_are_found_and_change_nothing():
    p = 80
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((p, p)))[0]
    variances, means = np.exp(rng.standard_normal((3, p)) / 2), rng.standard_normal((3, p)) / 4
    plain = nsd.Mixture(means, variances, [0.2, 0.3, 0.5])
    turned = nsd.Mixture(means @ basis.T, [(basis * v) @ basis.T for v in variances], [0.2, 0.3, 0.5])
    assert isinstance(turned.population, traces.Diagonal)
    one, two = (nsd.forecast(RELU, mixture, n=100, ridge=0.1) for mixture in (plain, turned))
    np.testing.assert_allclose(one.covariances, two.covariances, rtol=1e-9)
    dense = traces.Dense(np.stack(turned.covariances), turned.means)
    stats = plain.statistics()
    system = KernelRidge.of(one.weights, stats, dense)
    np.testing.assert_allclose(system.respond(100, 0.1, np.eye(3)).covariances, one.covariances, rtol=1e-8)


def test_large_full_covariances_take_few_factorisations(monkeypatch):
    """The path for p > 700: probes, float32, one exact evaluation."""
    mixture = oracle.full_mixture(250)
    exact = nsd.forecast(RELU, mixture, n=300, ridge=0.02)
    monkeypatch.setattr(traces, "_SMALL", 100)
    calls = []
    resolve = traces.Dense.resolve
    monkeypatch.setattr(traces.Dense, "resolve", lambda self, z, theta: calls.append(z) or resolve(self, z, theta))
    quick = nsd.forecast(RELU, nsd.Mixture(mixture.means, mixture.covariances, mixture.proportions), n=300, ridge=0.02)
    assert len(calls) <= 2
    np.testing.assert_allclose(quick.means, exact.means, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(quick.covariances, exact.covariances, rtol=5e-3, atol=1e-4)
    assert quick.accuracy == pytest.approx(exact.accuracy, abs=3e-4)


@pytest.mark.parametrize("width", [None, 200])
def test_common_eigenvectors_of_large_covariances_are_computed_for_curves_only(monkeypatch, width):
    """One point costs less than the decomposition; many points share it, with the same results."""
    monkeypatch.setattr(traces, "_SMALL", 100)
    calls = []
    plain = traces._shared
    monkeypatch.setattr(traces, "_shared", lambda full, means: calls.append(1) or plain(full, means))
    base = oracle.full_mixture(150)
    mixture = nsd.Mixture(base.means, [scale * base.covariances[0] for scale in (1.0, 1.05, 0.9)], base.proportions)
    ridges = [0.01, 0.1, 0.3, 1.0]
    one = nsd.forecast(RELU, mixture, n=300, ridge=ridges[1], width=width)
    assert not calls
    curve = nsd.forecast(RELU, mixture, n=300, ridge=ridges, width=width)
    best = nsd.forecast(RELU, mixture, n=300, width=width)
    assert calls == [1]
    np.testing.assert_allclose(one.covariances, curve.covariances[1], rtol=5e-3, atol=1e-4)
    assert one.accuracy == pytest.approx(curve.accuracy[1], abs=3e-4)
    assert best.accuracy >= curve.accuracy.max() - 1e-6


def test_the_best_ridge_of_large_full_covariances_takes_one_exact_evaluation(monkeypatch):
    mixture = oracle.full_mixture(250)
    exact = nsd.forecast(RELU, mixture, n=300)
    monkeypatch.setattr(traces, "_SMALL", 100)
    calls = []
    resolve = traces.Dense.resolve
    monkeypatch.setattr(traces.Dense, "resolve", lambda self, z, theta: calls.append(z) or resolve(self, z, theta))
    quick = nsd.forecast(RELU, nsd.Mixture(mixture.means, mixture.covariances, mixture.proportions), n=300)
    assert len(calls) <= 2
    assert nsd.forecast(RELU, mixture, n=300, ridge=quick.ridge).accuracy == pytest.approx(exact.accuracy, abs=5e-4)


def test_float32_is_left_where_the_system_is_nearly_singular(monkeypatch):
    monkeypatch.setattr(traces, "_SMALL", 10)
    mixture = oracle.full_mixture(60)
    dense = mixture.population
    assert dense.factorised(1.0, np.ones(3))[1].dtype == np.float32
    assert dense.factorised(1e-3, np.ones(3))[1].dtype == np.float64


@pytest.mark.slow
def test_five_full_covariances_of_two_thousand_features_take_few_factorisations(monkeypatch):
    rng = np.random.default_rng(0)
    spreads = []
    for _ in range(5):
        factor = rng.standard_normal((2000, 4000)) / math.sqrt(4000)
        spreads.append(0.5 * np.eye(2000) + 0.5 * factor @ factor.T)
    mixture = nsd.Mixture(2 * rng.standard_normal((5, 2000)) / math.sqrt(2000), spreads, [0.2] * 5)
    calls = []
    for name in ("factorised", "resolve"):
        plain = getattr(traces.Dense, name)
        counted = lambda self, z, theta, name=name, plain=plain: calls.append(name) or plain(self, z, theta)  # noqa: E731
        monkeypatch.setattr(traces.Dense, name, counted)
    nsd.forecast(RELU, mixture, n=4000, ridge=0.05)
    assert calls.count("resolve") == 1  # the only one with p³ operations for each class
    assert calls.count("factorised") <= 3


def test_a_forecast_holds_no_array_of_samples():
    rng = np.random.default_rng(0)
    mixture = nsd.Mixture(
        2 * rng.standard_normal((5, 2000)) / math.sqrt(2000),
        np.exp(rng.standard_normal((5, 2000)) / 3),
        [0.2] * 5,
    )
    nsd.forecast(RELU, mixture, n=2000, ridge=0.1)  # fills caches
    tracemalloc.start()
    found = nsd.forecast(RELU, mixture, n=[10**6, 10**7], ridge=0.1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6  # one float64 for a million samples each would take 8e6, their kernel 8e12
    assert found.accuracy[1] >= found.accuracy[0] > 0.9


@pytest.mark.parametrize("p", [3, 256, 300])  # one block, exactly one, and two
def test_traces_by_blocks_are_those_of_dense_inverses(p):
    rng = np.random.default_rng(p)
    factors = rng.standard_normal((3, p, p)) / math.sqrt(p)
    spreads, means = [factor @ factor.T for factor in factors], rng.standard_normal((3, p))
    z, theta = 0.3, np.array([0.2, 0.5, 0.1])
    found = traces.Dense(spreads, means).resolve(z, theta)
    images = [c @ np.linalg.inv(z * np.eye(p) + np.tensordot(theta, spreads, 1)) for c in spreads]
    np.testing.assert_allclose(found.traces, [np.trace(one) / p for one in images], rtol=1e-12)
    products = [[np.sum(one * two.T) / p for two in images] for one in images]
    np.testing.assert_allclose(found.products, products, rtol=1e-12)
