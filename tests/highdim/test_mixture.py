"""Mixtures and their statistics: sampling, exact values, unbiased estimates, bad input.

Also covers: highdim/statistics.py.
"""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import notsodeep as nsd


def rotated(p, seed=0, low=0.5, high=2.0):
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((p, p)))[0]
    return (basis * np.linspace(low, high, p)) @ basis.T


def three_classes(p=30):
    means = np.random.default_rng(1).standard_normal((3, p))
    return nsd.Mixture(means, [1.5, np.linspace(0.5, 2, p), rotated(p)], [0.2, 0.3, 0.5])


# covers: [Ling24] Def. 2.7; [Ling24] Asm. A.1; slides of [Ling24] Asm. 2
def test_samples_follow_the_mixture():
    mix = three_classes(p=10)
    X, labels = mix.sample(60_000, seed=3)
    full = [1.5 * np.eye(10), np.diag(np.linspace(0.5, 2, 10)), rotated(10)]
    for a in range(3):
        Z = np.sqrt(10) * X[labels == a]
        np.testing.assert_allclose(Z.mean(axis=0), mix.means[a], atol=0.06)
        np.testing.assert_allclose(np.cov(Z.T), full[a], atol=0.08)


@given(n=st.integers(1, 200), shares=st.lists(st.floats(0.05, 1), min_size=1, max_size=5))
def test_largest_remainder_counts(n, shares):
    shares = np.array(shares) / sum(shares)
    _, labels = nsd.Mixture(np.zeros((len(shares), 2)), [1.0] * len(shares), shares).sample(n)
    counts = np.bincount(labels, minlength=len(shares))
    assert labels.size == n
    assert (np.diff(labels) >= 0).all()
    assert (np.abs(counts - n * shares) < 1 + 1e-9).all()


def test_seeds_decide_the_sample():
    mix = three_classes()
    np.testing.assert_array_equal(mix.sample(9, seed=1)[0], mix.sample(9, seed=1)[0])
    assert not np.array_equal(mix.sample(9, seed=1)[0], mix.sample(9, seed=2)[0])


def test_exact_statistics():
    p = 30
    mix = three_classes(p)
    X, labels = mix.sample(100)
    stats = mix.statistics(X, labels)
    full = [1.5 * np.eye(p), np.diag(np.linspace(0.5, 2, p)), rotated(p)]
    shares = np.bincount(labels) / 100
    pooled = sum(share * C for share, C in zip(shares, full, strict=True))
    assert stats.tau0**2 == pytest.approx(np.trace(pooled) / p)
    np.testing.assert_allclose(stats.t, [np.trace(C - pooled) / np.sqrt(p) for C in full], atol=1e-12)
    np.testing.assert_allclose(stats.T, [[np.trace(A @ B) / p for B in full] for A in full])
    noise = X - mix.means[labels] / np.sqrt(p)
    expected = np.array([np.trace(C) / p for C in full])[labels]
    np.testing.assert_allclose(stats.psi, (noise**2).sum(axis=1) - expected)
    assert stats.proportions @ stats.t == pytest.approx(0, abs=1e-12)
    assert stats.one_hot.sum() == 100
    assert stats.low_rank.shape == (100, 4)


def test_directions_hold_the_population_spectrum():
    p = 30
    mix = three_classes(p)
    stats = mix.statistics()
    directions = stats.directions
    full = [1.5 * np.eye(p), np.diag(np.linspace(0.5, 2, p)), rotated(p)]
    pooled = sum(share * C for share, C in zip(mix.proportions, full, strict=True))
    np.testing.assert_allclose(np.sort(mix.proportions @ directions.variances), np.linalg.eigvalsh(pooled))
    np.testing.assert_allclose(directions.means.sum(axis=0), mix.means @ mix.means.T)
    assert directions.fractions.sum() == pytest.approx(1)
    one = nsd.Mixture(np.zeros((2, 50)), [1.0, 2.0], [0.5, 0.5]).statistics().directions
    assert one.fractions.tolist() == [1.0]  # equal directions are gathered


def test_statistics_without_samples():
    stats = three_classes().statistics()
    assert stats.n is None
    assert stats.psi is None
    assert "no samples" in str(stats)
    with pytest.raises(nsd.InputError, match="no samples"):
        _ = stats.low_rank


def test_estimates_are_unbiased():
    """Averages over many small samples approach the truth, where the plug-in tr(S²)/p is far off."""
    p, repeats = 40, 300
    spread = np.linspace(0.5, 3, p)
    mix = nsd.Mixture(np.zeros((2, p)), [spread, 2.0], [0.5, 0.5])
    truth = mix.statistics()
    estimates, plug_in = [], []
    for seed in range(repeats):
        X, labels = mix.sample(24, seed)
        estimates.append(nsd.estimate_statistics(X, labels))
        S = np.cov(np.sqrt(p) * X[labels == 0].T)
        plug_in.append(np.sum(S**2) / p)
    T = np.array([e.T for e in estimates])
    error = np.abs(T.mean(axis=0) - truth.T) / (T.std(axis=0) / np.sqrt(repeats))
    assert error.max() < 4  # standard errors
    assert abs(np.mean(plug_in) - truth.T[0, 0]) > 20 * T[:, 0, 0].std() / np.sqrt(repeats)
    t = np.array([e.t for e in estimates])
    assert (np.abs(t.mean(axis=0) - truth.t) < 4 * t.std(axis=0) / np.sqrt(repeats)).all()
    assert np.mean([e.tau0**2 for e in estimates]) == pytest.approx(truth.tau0**2, rel=0.02)


def test_unbiased_for_skewed_data_too():
    """The estimate of tr C² does not lean on normality."""
    rng = np.random.default_rng(0)
    p, repeats = 20, 600
    values = [nsd.estimate_statistics((rng.exponential(size=(10, p)) - 1) / np.sqrt(p)).T[0, 0] for _ in range(repeats)]
    assert abs(np.mean(values) - 1) < 4 * np.std(values) / np.sqrt(repeats)


def test_both_sides_give_the_same_traces():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 30))
    wide = nsd.estimate_statistics(X, [0] * 5 + [1] * 7)
    tall = nsd.estimate_statistics(np.hstack([X, np.zeros((12, 0))]), ["a"] * 5 + ["b"] * 7)
    np.testing.assert_allclose(wide.T, tall.T)
    narrow, rotation = X[:, :8], np.linalg.qr(rng.standard_normal((8, 8)))[0]
    one, two = nsd.estimate_statistics(narrow), nsd.estimate_statistics(narrow @ rotation)
    padded = nsd.estimate_statistics(np.hstack([narrow, np.zeros((12, 22))]))  # p > n: through the Gram matrix
    np.testing.assert_allclose(one.T, two.T)
    np.testing.assert_allclose(padded.T * 30 / (30 / 8) ** 2, one.T * 8)  # √p x has another √p
    np.testing.assert_allclose(padded.psi, one.psi)
    assert padded.tau0 == pytest.approx(one.tau0)


def test_psi_is_recovered():
    mix = three_classes(p=300)
    X, labels = mix.sample(400)
    truth, estimate = mix.statistics(X, labels), nsd.estimate_statistics(X, labels)
    assert np.corrcoef(truth.psi, estimate.psi)[0, 1] > 0.97
    assert estimate.psi.std() == pytest.approx(truth.psi.std(), rel=0.05)


@pytest.mark.parametrize("aspect", [0.3, 0.8, 1.6])
def test_population_spectrum_is_deconvolved(aspect):
    """Half the variances 1 and half 4: the sample spectrum spreads them widely, the inversion gathers them."""
    n = 800
    p = int(aspect * n)
    spread = np.where(np.arange(p) % 2, 1.0, 4.0)
    means = np.zeros((2, p))
    means[0, 0], means[1, 1] = 5.0, 5.0  # on a strong and on a weak direction
    X, labels = nsd.Mixture(means, [spread, spread], [0.5, 0.5]).sample(n, seed=2)
    directions = nsd.estimate_statistics(X, labels).directions
    level = np.array([0.5, 0.5]) @ directions.variances
    assert directions.fractions @ level == pytest.approx(2.5, rel=0.02)
    assert directions.fractions @ level**2 == pytest.approx(8.5, rel=0.05)
    assert directions.fractions[level < 2.2].sum() == pytest.approx(0.5, abs=0.12)
    np.testing.assert_allclose(directions.means.sum(axis=0), 25 * np.eye(2), atol=5)
    weak = directions.means[level < 2.2].sum(axis=0)
    assert weak[1, 1] > weak[0, 0]


def test_labels_of_any_type():
    X = np.random.default_rng(0).standard_normal((6, 4))
    numbers, words = nsd.estimate_statistics(X, [1, 1, 1, 7, 7, 7]), nsd.estimate_statistics(X, list("aaabbb"))
    np.testing.assert_array_equal(numbers.T, words.T)
    assert words.classes.tolist() == ["a", "b"]
    assert nsd.estimate_statistics(X).proportions.tolist() == [1.0]
    assert nsd.estimate_statistics(X, [True, False] * 3).classes.tolist() == [False, True]


def test_tiny_classes_borrow_the_pooled_shape():
    X = np.random.default_rng(0).standard_normal((40, 30)) / np.sqrt(30)
    stats = nsd.estimate_statistics(X, [0] * 2 + [1] * 3 + [2] * 35)
    assert (np.diag(stats.T) > 0).all()
    assert np.isfinite(nsd.estimate_statistics(X[:2]).T).all()


def test_statistics_travel_to_other_processes():
    X, labels = three_classes().sample(30)
    for stats in (three_classes().statistics(X, labels), nsd.estimate_statistics(X, labels)):
        copy = pickle.loads(pickle.dumps(stats))
        np.testing.assert_array_equal(copy.psi, stats.psi)
        np.testing.assert_allclose(copy.directions.fractions, stats.directions.fractions)


M, S, W = np.zeros((2, 4)), [1.0, 1.0], [0.5, 0.5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nsd.Mixture(np.zeros(4), S, W), "means has shape"),
        (lambda: nsd.Mixture(M, 1.0, W), "one number but means has 2 classes"),
        (lambda: nsd.Mixture(M, [1.0], W), "1 entries"),
        (lambda: nsd.Mixture(M, [1.0, -1.0], W), r"covariances\[1\] holds negative"),
        (lambda: nsd.Mixture(M, [1.0, np.ones(3)], W), r"covariances\[1\] has shape \(3,\)"),
        (lambda: nsd.Mixture(M, [1.0, np.triu(np.ones((4, 4)))], W), "not symmetric"),
        (lambda: nsd.Mixture(M, [1.0, np.diag([1.0, 1, 1, -1])], W), "not positive semi-definite"),
        (lambda: nsd.Mixture(M, [1.0, np.nan], W), r"covariances\[1\] holds 1 NaN"),
        (lambda: nsd.Mixture(M, S, [0.5, 0.6]), "sum to 1"),
        (lambda: nsd.Mixture(M, S, [1.0]), "proportions has 1 entries"),
        (lambda: nsd.Mixture(M, S, W).sample(0), "n=0"),
        (lambda: nsd.Mixture(M, S, W).statistics(np.ones((3, 4))), "pass both or neither"),
        (lambda: nsd.Mixture(M, S, W).statistics(np.ones((3, 5)), [0, 1, 0]), "5 features"),
        (lambda: nsd.Mixture(M, S, W).statistics(np.ones((3, 4)), [0, 1]), "labels has shape"),
        (lambda: nsd.Mixture(M, S, W).statistics(np.ones((3, 4)), [0, 1, 2]), "labels must be integers 0…1"),
        (lambda: nsd.estimate_statistics(np.ones(5)), "2 dimensions"),
        (lambda: nsd.estimate_statistics(np.empty((0, 3))), "empty"),
        (lambda: nsd.estimate_statistics([[1.0, np.inf], [0, 1]]), "NaN or infinite"),
        (lambda: nsd.estimate_statistics(np.ones((4, 2)) * 1j), "complex"),
        (lambda: nsd.estimate_statistics(np.eye(4), [0, 1, 1]), "labels has shape"),
        (lambda: nsd.estimate_statistics(np.eye(4), [0, 1, 1, 1]), "class .*0.* has 1 sample"),
        (lambda: nsd.estimate_statistics(np.eye(4), [0, 1, np.nan, 1]), "labels holds NaN"),
        (lambda: nsd.estimate_statistics(np.ones((4, 2))), "does not vary"),
        (lambda: nsd.estimate_statistics(np.ones((1, 2))), "at least 2 samples"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(nsd.InputError, match=message):
        call()


@pytest.mark.parametrize("dip", [-1e-6, -0.99e-8, 0.0])
def test_eigenvalues_below_zero_are_refused_or_rounding(dip):
    """Singular covariances pass, and so do those whose rounding is below zero; an indefinite one does not."""
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((40, 40)))[0]
    values = np.linspace(0.5, 1.5, 40)
    values[:7] = 0
    spread = (basis * values) @ basis.T
    spread /= np.abs(spread).max()
    spread += dip * np.outer(basis[:, 0], basis[:, 0])  # the eigenvalue of a null direction
    if dip < -1e-8:
        with pytest.raises(
            nsd.InputError, match=r"covariances\[0\] is not positive semi-definite \(eigenvalue -1e-06\)"
        ):
            nsd.Mixture(np.zeros((1, 40)), [spread], [1.0])
    else:
        (kept,) = nsd.Mixture(np.zeros((1, 40)), [spread], [1.0]).covariances
        np.testing.assert_array_equal(kept, kept.T)
        np.testing.assert_allclose(kept, spread, atol=1e-15)


def test_a_covariance_of_zero_is_allowed_beside_others():
    mixture = nsd.Mixture(np.zeros((2, 5)), [np.zeros((5, 5)), 1.0], [0.5, 0.5])
    assert mixture.statistics().tau0 == pytest.approx(math.sqrt(0.5))
