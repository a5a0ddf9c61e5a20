"""Forecasts against exact kernels, the long form of the theory, and known results of ridge regression.

Also covers: highdim/curves.py, highdim/fixed_point.py, highdim/population.py, highdim/ridge.py, highdim/validity.py.
"""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import pytest
from scipy.stats import norm
from tests import forecast_oracle as oracle

import notsodeep as nsd
from notsodeep.highdim import fixed_point, traces
from notsodeep.highdim.population import Directions
from notsodeep.highdim.ridge import KernelRidge
from notsodeep.highdim.validity import outside_theory

RELU, TANH = (nsd.DEQ(name, recurrent=0.2, input=0.8) for name in ("relu", "tanh"))
SIGNS = np.array([[-1.0], [1.0]])


def forecast(*args, **options):
    """Without the warning of small dimensions, which tests use for speed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nsd.AssumptionWarning)
        return nsd.forecast(*args, **options)


# --- the figures that were checked when the theory was written down -----------------------------------------


@pytest.mark.parametrize(
    ("model", "mixture", "n", "ridge", "expected"),
    [
        (RELU, oracle.two_classes(400, 2, [1.0, 1.0]), 600, 0.05, (0.948, 0.948)),
        (TANH, oracle.two_classes(400, 2, [1.0, 1.0]), 600, 0.05, (0.925, 0.925)),
        (RELU, oracle.two_classes(400, 2, [1.0, 1.0]), 600, 1e-3, (0.939, 0.939)),
        (TANH, oracle.two_classes(400, 2, [1.0, 1.0]), 600, 1e-3, (0.898, 0.898)),
        (RELU, oracle.two_classes(400, 0, [1.0, 1.15]), 600, 0.05, (0.687, 0.686)),
        (TANH, oracle.two_classes(400, 0, [1.0, 1.15]), 600, 0.05, (0.5, 0.5)),
        (RELU, oracle.two_classes(400, 0, oracle.swapped_halves(400)), 1600, 0.01, (0.958, 0.958)),
        (TANH, oracle.two_classes(400, 0, oracle.swapped_halves(400)), 1600, 0.01, (0.5, 0.5)),
    ],
)
def test_the_checked_figures(model, mixture, n, ridge, expected):
    found = nsd.forecast(model, mixture, n=n, ridge=ridge, targets="sign")
    np.testing.assert_allclose(found.per_class, expected, atol=5.1e-4)
    one_hot = nsd.forecast(model, mixture, n=n, ridge=ridge)  # the same decisions from two outputs
    np.testing.assert_allclose(one_hot.per_class, found.per_class, atol=1e-12)


def test_the_spread_of_scores_when_shapes_alone_differ():
    mixture = oracle.two_classes(400, 0, oracle.swapped_halves(400))
    found = nsd.forecast(RELU, mixture, n=1600, ridge=0.01, targets="sign")
    assert math.sqrt(found.covariances[0, 0, 0]) == pytest.approx(0.265, abs=5e-4)


# --- the derivation, step by step ----------------------------------------------------------------------------

MIXTURES = {
    "full": oracle.full_mixture(),
    "diagonal": nsd.Mixture(
        np.random.default_rng(1).standard_normal((2, 50)) / 3,
        np.exp(np.random.default_rng(2).standard_normal((2, 50)) / 3),
        [0.4, 0.6],
    ),
    "identity": oracle.two_classes(40, 1.5, [1.0, 1.3]),
}


@pytest.mark.parametrize("kind", ["ck", "nngp", "ntk", "ntk_frozen_input", "ntk_injected"])
@pytest.mark.parametrize("name", MIXTURES)
def test_short_form_equals_the_long_form(name, kind):
    """Eliminating the means' block and solving for the covariances give what three blocks and differences give."""
    mixture = MIXTURES[name]
    targets = np.random.default_rng(0).standard_normal((mixture.classes, 2))
    found = forecast(RELU, mixture, n=70, ridge=0.03, kind=kind, targets=targets)
    means, covariances = oracle.long_form(found.weights, mixture, 70, 0.03, targets)
    np.testing.assert_allclose(found.means, means, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.covariances, covariances, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("name", MIXTURES)
def test_coupling_is_the_derivative_of_the_fixed_point_map(name):
    population = MIXTURES[name].population
    k = MIXTURES[name].classes
    c1, z, loads, delta = 0.4, 0.2, np.linspace(0.5, 1.0, k), np.linspace(0.8, 1.2, k)

    def image(x):
        return population.resolve(z, c1 * loads / (1 + c1 * x)).traces

    step = 1e-5
    columns = [(image(delta + step * e) - image(delta - step * e)) / (2 * step) for e in np.eye(k)]
    products = population.resolve(z, c1 * loads / (1 + c1 * delta)).products
    np.testing.assert_allclose(products * c1**2 * loads / (1 + c1 * delta) ** 2, np.array(columns).T, rtol=1e-7)
    # and both of them against dense inverses
    covariances = oracle.matrices(MIXTURES[name])
    R = np.linalg.inv(z * np.eye(population.p) + sum(0.3 * c for c in covariances))
    resolved = population.resolve(z, np.full(k, 0.3))
    M = MIXTURES[name].means.T / math.sqrt(population.p)
    np.testing.assert_allclose(resolved.traces, [np.trace(c @ R) / population.p for c in covariances])
    np.testing.assert_allclose(resolved.forms, M.T @ R @ M)
    np.testing.assert_allclose(resolved.curved, [M.T @ R @ c @ R @ M for c in covariances], atol=1e-15)


@pytest.mark.parametrize("seed", range(40))
def test_the_fixed_point_is_found_from_everywhere(seed):
    """z down to 1e-10, n = p among the loads, null directions, and guesses wrong by six orders of magnitude."""
    rng = np.random.default_rng(seed)
    k, directions = int(rng.integers(1, 6)), int(rng.integers(2, 40))
    variances = np.exp(rng.uniform(0, 3) * rng.standard_normal((k, directions)))
    variances[:, : int(rng.integers(0, directions // 2 + 1))] = 0
    fractions = rng.dirichlet(np.ones(directions))
    population = traces.Diagonal(Directions(fractions, variances, np.zeros((directions, k, k))), 1000)
    c1, z = 10 ** rng.uniform(-3, 1), 10 ** rng.uniform(-10, 4)
    loads = rng.dirichlet(np.ones(k)) * (1 if seed % 3 == 0 else 10 ** rng.uniform(-2, 2))
    guess = None if seed % 2 else variances.mean(axis=1) * 10 ** rng.uniform(-6, 6)
    found = fixed_point.solve(population, c1, z, loads, guess)
    image = population.resolve(z, c1 * loads / (1 + c1 * found.delta)).traces
    np.testing.assert_allclose(found.delta, image, rtol=1e-8)
    assert np.abs(np.linalg.eigvals(found.coupling)).max() < 1


def test_equivalents_are_the_average_of_draws():
    """q_a, tr(C_aQ̃), the form in the means, QWC WᵀQ and Q̃CQ̃, averaged over 60 draws; their gap falls with p."""
    c1, z, gaps = 0.5, 0.3, []
    for p in (60, 240):
        mixture = oracle.full_mixture(p, seed=3)
        covariances, n = oracle.matrices(mixture), 2 * p
        M = mixture.means.T / math.sqrt(p)
        sums = None
        for seed in range(60 if p == 60 else 15):
            X, labels = mixture.sample(n, seed=seed)
            W = X - mixture.means[labels] / math.sqrt(p)
            dual = np.linalg.inv(c1 * W.T @ W + z * np.eye(p))
            primal = (np.eye(n) - c1 * W @ dual @ W.T) / z
            inner = primal @ W @ covariances[0] @ W.T @ primal
            parts = [
                np.array([primal.diagonal()[labels == a].mean() for a in range(3)]),
                np.array([np.sum(c * dual) / p for c in covariances]),
                M.T @ dual @ M,
                M.T @ dual @ covariances[0] @ dual @ M,
                np.array([inner.diagonal()[labels == a].mean() for a in range(3)]),
            ]
            sums = parts if sums is None else [x + y for x, y in zip(sums, parts, strict=True)]
        averages = [x / (seed + 1) for x in sums]
        loads = np.bincount(labels) / p
        delta, coupling, resolved = fixed_point.solve(mixture.population, c1, z, loads)
        gains = 1 / (z * (1 + c1 * delta))
        spread = np.linalg.solve(np.eye(3) - coupling, np.eye(3))
        expected = [
            gains,
            delta,
            resolved.forms,
            np.tensordot(spread[0], resolved.curved, 1),
            # n_b κ_b c1²/p = [(I − N)⁻¹ N]_ab
            (spread @ coupling)[0] / (c1**2 * loads),
        ]
        gaps.append([np.abs(x - y).max() / np.abs(y).max() for x, y in zip(averages, expected, strict=True)])
    print(gaps)
    assert (np.array(gaps[0]) < [0.01, 0.01, 0.06, 0.12, 0.02]).all()
    assert (np.array(gaps[1]) < [0.003, 0.003, 0.02, 0.04, 0.01]).all()


def test_training_residuals_are_shrunk_test_residuals():
    """ridge²‖α‖²/n two ways: from the law of new scores, and as sᵀ… = −∂/∂z of the quadratic form yᵀ(M + zI)⁻¹y."""
    mixture, targets, n = MIXTURES["full"], np.eye(3), 90
    found = forecast(RELU, mixture, n=n, ridge=0.05)

    def energy(ridge):  # yᵀα = ηᵀs
        means = forecast(RELU, mixture, n=n, ridge=ridge)
        pull = n * mixture.proportions * means.gains
        return float(np.sum(targets * (pull[:, None] * (targets - means.means))))

    derivative = -(energy(0.05 + 1e-5) - energy(0.05 - 1e-5)) / 2e-5  # ‖α‖²
    assert found.train_error == pytest.approx(0.05**2 * derivative / n, rel=1e-6)


# --- ridge regression without classes, and with linear networks ----------------------------------------------


def test_one_class_is_marchenko_and_pastur():
    """One class, identity covariance, linear network: δ and tr Q² have closed forms."""
    p, n, ridge = 300, 450, 0.2
    mixture = nsd.Mixture(np.zeros((1, p)), [1.0], [1.0])
    found = nsd.forecast(nsd.Explicit(["identity"]), mixture, n=n, ridge=ridge, targets=[1.0])

    def stieltjes(z):
        """tr Q/n: eigenvalues of WWᵀ are n/p times those of a Wishart matrix over n, and n − p zeros."""
        ratio, scaled = p / n, z * p / n
        root = math.sqrt((1 - ratio + scaled) ** 2 + 4 * ratio * scaled)
        wishart = (root - (1 - ratio + scaled)) / (2 * ratio * scaled)
        return (1 - ratio) / z + ratio * wishart * p / n

    assert found.gains[0] == pytest.approx(stieltjes(ridge), rel=1e-9)
    square = -(stieltjes(ridge + 1e-5) - stieltjes(ridge - 1e-5)) / 2e-5
    assert found.train_error == pytest.approx(ridge**2 * square, rel=1e-6)
    X, _ = mixture.sample(n, seed=0)
    values = np.linalg.eigvalsh(X @ X.T)
    assert found.train_error == pytest.approx(ridge**2 * np.mean(1 / (values + ridge) ** 2), rel=0.01)


def test_large_ridge_is_the_matched_filter():
    """Score ∝ xᵀΣ y_i x_i: accuracy Φ(‖μ‖²/√(‖μ‖² + p/n)), known from signal detection."""
    p, shift = 500, 2.0
    mixture = oracle.two_classes(p, shift, [1.0, 1.0])
    for n in (100, 500, 3000):
        found = nsd.forecast(nsd.Explicit(["identity"]), mixture, n=n, ridge=1e7)
        assert found.accuracy == pytest.approx(norm.cdf(shift**2 / math.sqrt(shift**2 + p / n)), abs=1e-5)


def test_many_samples_are_the_best_linear_rule():
    """For n → ∞ and equal covariances ridge regression finds C⁻¹(μ₁ − μ₂): accuracy Φ(½ Mahalanobis distance)."""
    p = 60
    mixture = oracle.full_mixture(p)
    shared = nsd.Mixture([mixture.means[0], -mixture.means[0]], [mixture.covariances[0]] * 2, [0.5, 0.5])
    gap = shared.means[0] - shared.means[1]
    distance = math.sqrt(gap @ np.linalg.solve(shared.covariances[0], gap))
    found = forecast(nsd.Explicit(["identity"]), shared, n=10**7, ridge=1e-3)
    assert found.accuracy == pytest.approx(norm.cdf(distance / 2), abs=1e-4)


# --- against exact kernels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 4, 8, 11, 18, 23])  # every activation, both kernels, every shape of covariance
def test_forecast_of_exact_kernels(seed):
    p = 300
    mixture, settings = oracle.random_mixture(seed, p)
    model = nsd.DEQ(settings["activation"], recurrent=0.2, input=0.8)
    targets = np.eye(mixture.classes)
    options = {name: settings[name] for name in ("n", "ridge", "kind")}
    found = forecast(model, mixture, **options)
    draws = [oracle.train(model, mixture, **options, targets=targets, seed=s) for s in range(4)]
    accuracy = np.mean([draw.accuracy(targets) @ mixture.proportions for draw in draws])
    means, covariances = (np.mean([getattr(d, name)() for d in draws], axis=0) for name in ("means", "covariances"))
    deviations = [np.sqrt(np.diagonal(c, axis1=1, axis2=2)) for c in (found.covariances, covariances)]
    train = np.mean([np.mean(np.sum(draw.residuals**2, axis=1)) for draw in draws])
    assert found.accuracy == pytest.approx(accuracy, abs=0.015)
    assert np.linalg.norm(found.means - means) < 0.08 * np.linalg.norm(means)
    assert np.linalg.norm(deviations[0] - deviations[1]) < 0.05 * np.linalg.norm(deviations[1])
    assert found.train_error == pytest.approx(train, rel=0.08)
    confusion = found.confusion
    np.testing.assert_allclose(confusion.sum(axis=1), 1)
    assert found.accuracy == pytest.approx(mixture.proportions @ found.per_class)


@pytest.mark.parametrize("kind", ["nngp", "ntk_frozen_input", "ntk_injected"])
def test_forecast_of_the_other_kinds(kind):
    mixture = oracle.two_classes(300, 1.6, [1.0, 1.15])
    found = nsd.forecast(RELU, mixture, n=450, ridge=0.1, kind=kind, targets="sign")
    draws = [oracle.train(RELU, mixture, 450, 0.1, kind, SIGNS, seed=s) for s in range(4)]
    np.testing.assert_allclose(found.accuracy, np.mean([d.accuracy(SIGNS) for d in draws]), atol=0.015)


def test_explicit_networks_and_their_designed_twins():
    mixture = oracle.two_classes(300, 1.5, oracle.swapped_halves(300, 0.4))
    designed = nsd.match(RELU, tau0=1.0).network
    one, two = (nsd.forecast(model, mixture, n=600, ridge=0.02) for model in (RELU, designed))
    assert two.accuracy == pytest.approx(one.accuracy, abs=1e-6)
    np.testing.assert_allclose(two.covariances, one.covariances, rtol=1e-5)
    draws = [oracle.train(designed, mixture, 600, 0.02, "ck", np.eye(2), seed=s) for s in range(3)]
    assert two.accuracy == pytest.approx(np.mean([d.accuracy(np.eye(2)) for d in draws]), abs=0.015)


def test_the_error_of_the_forecast_falls_with_p():
    gaps = []
    for p, draws in ((50, 40), (200, 8)):
        mixture = oracle.two_classes(p, 0, oracle.swapped_halves(p))
        found = forecast(RELU, mixture, n=4 * p, ridge=0.05, targets="sign")
        scores = [oracle.train(RELU, mixture, 4 * p, 0.05, "ck", SIGNS, seed=s) for s in range(draws)]
        deviation = np.mean([np.sqrt(s.covariances()[:, 0, 0]).mean() for s in scores])
        gaps.append(abs(math.sqrt(found.covariances[0, 0, 0]) / deviation - 1))
    print(gaps)
    assert gaps[1] < 0.5 * gaps[0]  # a fourth, were it O(1/p) and free of noise


# --- curves, ridges, targets ----------------------------------------------------------------------------------


def test_arrays_give_curves():
    mixture = oracle.two_classes(300, 2, [1.0, 1.1])
    n, ridge = np.array([200, 600]), np.array([1e-3, 0.1, 1.0])
    grid = nsd.forecast(RELU, mixture, n=n[:, None], ridge=ridge)
    assert grid.accuracy.shape == grid.ridge.shape == (2, 3)
    assert grid.confusion.shape == (2, 3, 2, 2)
    assert grid.covariances.shape == (2, 3, 2, 2, 2)
    for i, size in enumerate(n):
        for j, level in enumerate(ridge):
            one = nsd.forecast(RELU, mixture, n=size, ridge=level)
            assert isinstance(one.accuracy, float)
            for name in ("accuracy", "train_error", "test_error", "train_accuracy"):
                assert getattr(grid, name)[i, j] == pytest.approx(getattr(one, name), abs=1e-10), name
            np.testing.assert_allclose(grid.means[i, j], one.means, rtol=1e-9)
    assert "2 × 3 points" in str(grid)


def test_the_best_ridge_is_best():
    mixture = oracle.two_classes(300, 2, [1.0, 1.0])
    best = nsd.forecast(RELU, mixture, n=[150, 900], ridge="best")
    grid = nsd.forecast(RELU, mixture, n=np.array([[150], [900]]), ridge=np.geomspace(1e-5, 1e2, 200))
    assert (best.accuracy >= grid.accuracy.max(axis=1) - 1e-7).all()
    assert best.ridge.shape == (2,)
    # at chance every ridge is as accurate; then the squared error decides
    chance = nsd.forecast(TANH, oracle.two_classes(400, 0, oracle.swapped_halves(400)), n=800)
    errors = nsd.forecast(TANH, oracle.two_classes(400, 0, oracle.swapped_halves(400)), n=800, ridge=[0.01, 1, 100])
    assert chance.accuracy == pytest.approx(0.5)
    assert chance.test_error <= errors.test_error.min()


def test_targets_and_classes_can_be_renamed():
    mixture = oracle.full_mixture()
    base = forecast(RELU, mixture, n=100, ridge=0.1)
    order = [2, 0, 1]
    other = nsd.Mixture(mixture.means[order], [mixture.covariances[a] for a in order], mixture.proportions[order])
    turned = forecast(RELU, other, n=100, ridge=0.1)
    np.testing.assert_allclose(turned.confusion, base.confusion[np.ix_(order, order)], atol=2e-4)
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    rotated = forecast(RELU, mixture, n=100, ridge=0.1, targets=rotation)  # scores rotate along
    np.testing.assert_allclose(rotated.means, base.means @ rotation, atol=1e-12)
    np.testing.assert_allclose(rotated.confusion, base.confusion, atol=2e-4)
    assert forecast(RELU, mixture, n=100, ridge=0.1, targets=[0.0, 1.0, 5.0]).means.shape == (3, 1)


def test_sensitivity_is_the_change_of_accuracy():
    mixture = oracle.two_classes(300, 1.2, oracle.swapped_halves(300, 0.4))
    found = nsd.forecast(RELU, mixture, n=[300, 1200], ridge=0.02)
    stats = mixture.statistics()
    for name in ("c1", "c2", "c3", "d"):
        moved = found.weights._replace(**{name: 1.002 * getattr(found.weights, name)})
        response = KernelRidge.of(moved, stats, mixture.population).respond(1200, 0.02, np.eye(2))
        right = [
            norm.cdf(abs(m[0] - m[1]) / math.sqrt(np.array([1, -1]) @ c @ [1, -1]))
            for m, c in zip(*response[:2], strict=True)
        ]
        change = (np.mean(right) - found.accuracy[1]) / 0.002
        assert getattr(found.sensitivity, name)[1] == pytest.approx(change, rel=0.05, abs=1e-4), name
    # multiplying all numbers and the ridge by one factor changes nothing
    twice = nsd.forecast(RELU, mixture, n=1200, ridge=1e-9)
    assert sum(twice.sensitivity) == pytest.approx(0, abs=1e-6)
    with pytest.raises(nsd.InputError, match="depends on more than four numbers"):
        _ = nsd.forecast(RELU, mixture, n=300, ridge=0.02, width=300).sensitivity


def test_negative_ridges_down_to_the_smallest_eigenvalue():
    mixture = oracle.two_classes(300, 2, [1.0, 1.0])
    found = nsd.forecast(RELU, mixture, n=200, ridge=-0.03)
    draws = [oracle.train(RELU, mixture, 200, -0.03, "ck", np.eye(2), seed=s) for s in range(4)]
    assert found.accuracy == pytest.approx(np.mean([d.accuracy(np.eye(2)) for d in draws]), abs=0.015)
    with pytest.raises(nsd.InputError, match=r"ridge=-0\.1 .* may be indefinite; pass ridge > -0\.08"):
        nsd.forecast(RELU, mixture, n=200, ridge=-0.1)


def test_singular_covariances_are_allowed():
    p = 300
    half = np.where(np.arange(p) < p // 2, 2.0, 0.0)
    found = nsd.forecast(RELU, oracle.two_classes(p, 1.5, [half, half]), n=300, ridge=0.05)
    draws = [
        oracle.train(RELU, oracle.two_classes(p, 1.5, [half, half]), 300, 0.05, "ck", np.eye(2), s) for s in (0, 1)
    ]
    assert found.accuracy == pytest.approx(np.mean([d.accuracy(np.eye(2)) for d in draws]), abs=0.02)


def test_an_even_activation_sees_no_means():
    found = nsd.forecast(nsd.Explicit(["abs"]), oracle.two_classes(400, 2, [1.0, 1.0]), n=400, ridge=0.1)
    assert found.accuracy == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n=0 must be a positive integer"),
        ({"n": 1.5}, "n=1.5 must be a positive integer"),
        ({"n": []}, r"n=\[\] must be a positive integer"),
        ({"n": None}, "n is missing"),
        ({"n": 3}, r"n=3 leaves class 1 without samples \(its share is 0.1\); pass n ≥ 10"),
        ({"ridge": "Best"}, "ridge='Best' is not known; did you mean 'best'"),
        ({"ridge": math.nan}, "ridge=nan must be a finite number"),
        ({"ridge": [1.0, None]}, "ridge=.* must be a finite number"),
        ({"kind": "nkt"}, "kind='nkt' is not known; did you mean 'ntk'"),
        ({"targets": "one_hot"}, "targets='one_hot' is not known; did you mean 'one-hot'"),
        ({"targets": [1.0, 1.0]}, "targets holds two equal rows"),
        ({"targets": np.eye(3)}, "targets has 3 rows but there are 2 classes"),
        ({"targets": [1.0, math.inf]}, "targets holds 1 NaN or infinite"),
        ({"mixture": None}, "mixture=None must be a Mixture; or pass X and y"),
        ({"X": np.eye(4)}, "X and y belong together"),
        ({"X": np.eye(4), "y": [0, 0, 1, 1]}, "mixture and X exclude each other"),
        ({"model": "relu"}, "model='relu' has no high-dimensional coefficients"),
        ({"model": nsd.DEQ("relu", 0.2, 0.8, bias=0.5)}, "needs bias=0"),
        ({"model": nsd.Explicit(["identity"]), "ridge": 0.0}, "ridge=0 leaves the kernel system .* pass ridge > 0"),
    ],
)
def test_bad_input_is_one_clear_line(options, message):
    means = np.zeros((2, 200))
    means[:, 0] = 2, -2
    mixture = nsd.Mixture(means, [1.0, 1.0], [0.9, 0.1])
    with pytest.raises(nsd.InputError, match=message) as caught:
        nsd.forecast(**{"model": RELU, "mixture": mixture, "n": 400, "ridge": 0.1, **options})
    assert "\n" not in str(caught.value)


def test_three_classes_have_no_sign():
    with pytest.raises(nsd.InputError, match="targets='sign' needs two classes, not 3"):
        nsd.forecast(RELU, oracle.full_mixture(), n=100, targets="sign")


# --- where the theory ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mixture", "n", "reason"),
    [
        (oracle.two_classes(50, 1, [1.0, 1.0]), 100, r"effective dimension .* of 50 only \(p = 50\)$"),
        (oracle.two_classes(400, 1, [np.r_[400.0, np.ones(399)]] * 2), 400, "a few directions carry most of it"),
        (oracle.two_classes(400, 1, [1.0, 2.0]), 400, "mean squared norms of the classes vary from 0.668 to 1.3"),
        (oracle.two_classes(200, 12, [1.0, 1.0]), 400, "class means have products of up to 0.72 times τ0²"),
        (oracle.two_classes(200, 1, [1.0, 1.0]), 8, "a class has 4 training samples only"),
    ],
)
def test_what_is_outside_the_theory_is_said(mixture, n, reason):
    with pytest.warns(nsd.AssumptionWarning, match="the mixture is outside the theory") as caught:
        found = nsd.forecast(RELU, mixture, n=n, ridge=0.1)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert any(re.search(reason, one) for one in found.outside)
    assert outside_theory(oracle.two_classes(400, 2, [1.0, 1.1]).statistics(), np.zeros((2, 2)), 400) == ()


def test_numbers_go_to_json():
    found = nsd.forecast(RELU, oracle.two_classes(200, 2, [1.0, 1.0]), n=300, ridge=0.1)
    content = found.to_dict()
    assert content["accuracy"] == found.accuracy
    assert np.shape(content["confusion"]) == (2, 2)
    assert content["weights"]["c1"] == found.weights.c1
    assert content["check"] is None


def test_populations_report_their_moments():
    mixture = oracle.full_mixture()
    diagonal = traces.Diagonal(Directions.gather(np.ones((2, 30)), np.ones((2, 30))), 30)
    np.testing.assert_allclose(diagonal.mean_variances(), 1)
    np.testing.assert_allclose(diagonal.mean_products(), 1)
    np.testing.assert_allclose(mixture.population.mean_products(), mixture.means @ mixture.means.T / 60)
    np.testing.assert_allclose(
        mixture.population.mean_variances(), [np.trace(c) / 60 for c in mixture.covariances], rtol=1e-12
    )


@pytest.mark.usefixtures("benchmarks")
def test_the_benchmark_runs_and_its_verdict_can_fail():
    import importlib

    script = importlib.import_module("forecast_against_exact_kernels")
    result = script.run(quick=True)
    assert [row["p"] for row in result["rows"]] == [50, 100, 150]
    good = [
        {
            **{"p": p, "accuracy off by, points": 60 / p, "without it": 50 / p},
            **{"means off by, %": 400 / p, "deviations off by, %": 300 / p},
        }
        for p in (200, 400, 800)
    ]
    assert script.judge(good).startswith("met: 0.07 points")
    for change in (
        {"accuracy off by, points": 0.8},
        {"means off by, %": 6.0},
        {"deviations off by, %": 5.1},
        {"without it": 0.3},  # no longer falls
    ):
        assert script.judge([*good[:-1], {**good[-1], **change}]).startswith("missed"), change


@pytest.mark.usefixtures("benchmarks")
def test_the_benchmark_of_cost_runs_and_its_verdict_can_fail():
    import importlib

    script = importlib.import_module("forecast_cost_by_covariances")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nsd.AssumptionWarning)
        result = script.run(quick=True)
    assert [row["covariances"] for row in result["rows"]] == list(script.SHAPES)
    populations = [nsd.Mixture(*script.parts(shape, 60)).population for shape in script.SHAPES]
    assert [type(one) for one in populations] == [traces.Diagonal] * 3 + [traces.Dense]
    row = {"covariances": "full", "p": 2000, "covariances checked, s": 0.4}
    assert script.judge([{**row, "forecast, s": 0.6}]).startswith("met: at most 0.60 s")
    assert script.judge([{**row, "forecast, s": 0.6}, {**row, "forecast, s": 1.1}]).startswith("missed: at most 1.10 s")
