"""Probabilities of decisions from Gaussian scores against orthant probabilities and sampling."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from notsodeep.highdim.decisions import decide


def law(k, outputs, seed):
    rng = np.random.default_rng(seed)
    factor = 0.3 * rng.standard_normal((outputs, outputs))
    return 0.6 * rng.standard_normal(outputs), factor @ factor.T + 0.02 * np.eye(outputs)


@pytest.mark.parametrize("seed", range(5))
def test_two_classes_are_exact(seed):
    mean, covariance = law(2, 2, seed)
    gap = np.array([1.0, -1.0])
    expected = norm.cdf(gap @ mean / np.sqrt(gap @ covariance @ gap))
    np.testing.assert_allclose(decide(mean, covariance, np.eye(2)), [expected, 1 - expected], atol=1e-14)
    signs = np.array([[-1.0], [1.0]])
    share = norm.cdf(mean[0] / np.sqrt(covariance[0, 0]))
    np.testing.assert_allclose(decide(mean[:1], covariance[:1, :1], signs), [1 - share, share], atol=1e-14)


def test_one_output_and_many_classes_are_intervals():
    targets, mean, deviation = np.array([[3.0], [0.0], [1.0]]), np.array([0.4]), 0.7
    edges = norm.cdf((np.array([-np.inf, 0.5, 2.0, np.inf]) - mean) / deviation)
    expected = np.diff(edges)[[2, 0, 1]]
    np.testing.assert_allclose(decide(mean, np.array([[deviation**2]]), targets), expected, rtol=1e-12)


@pytest.mark.parametrize(("k", "tolerance"), [(3, 1e-4), (4, 4e-4), (5, 8e-4)])
def test_orthants(k, tolerance):
    gaps = []
    for seed in range(4):
        mean, covariance = law(k, k, seed)
        found = decide(mean, covariance, np.eye(k))
        assert found.sum() == pytest.approx(1)
        for j in range(k):
            contrast = np.delete(np.eye(k), j, axis=0) - np.eye(k)[j]
            orthant = multivariate_normal.cdf(
                np.zeros(k - 1), contrast @ mean, contrast @ covariance @ contrast.T, abseps=1e-5, maxpts=500_000
            )
            gaps.append(abs(orthant - found[j]))
    assert max(gaps) < tolerance
    assert np.mean(gaps) < tolerance / 4


def test_ten_classes():
    for seed in range(3):
        mean, covariance = law(10, 10, seed)
        draws = np.random.default_rng(seed).multivariate_normal(mean, covariance, size=400_000)
        shares = np.bincount(draws.argmax(axis=1), minlength=10) / 400_000
        np.testing.assert_allclose(decide(mean, covariance, np.eye(10)), shares, atol=3.5e-3)


def test_more_classes_than_outputs():
    """Six targets in a plane: the cells are sectors and their sizes are counted."""
    angles = 2 * np.pi * np.arange(6) / 6
    targets = np.column_stack([np.cos(angles), np.sin(angles)])
    mean, covariance = np.array([0.3, 0.1]), np.array([[0.5, 0.2], [0.2, 0.4]])
    draws = np.random.default_rng(0).multivariate_normal(mean, covariance, size=400_000)
    nearest = ((draws[:, None] - targets) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_allclose(decide(mean, covariance, targets), np.bincount(nearest) / 400_000, atol=4e-3)


def test_scores_without_spread_are_decided_or_shared():
    assert decide(np.array([0.1, 0.3]), np.zeros((2, 2)), np.eye(2)).tolist() == [0.0, 1.0]
    assert decide(np.array([0.3, 0.3]), np.zeros((2, 2)), np.eye(2)).tolist() == [0.5, 0.5]
    common = np.ones((3, 3))  # all scores move together
    assert decide(np.array([0.1, 0.3, 0.2]), common, np.eye(3)).tolist() == [0.0, 1.0, 0.0]


def test_the_same_numbers_every_time():
    mean, covariance = law(4, 4, 0)
    assert (decide(mean, covariance, np.eye(4)) == decide(mean, covariance, np.eye(4))).all()
