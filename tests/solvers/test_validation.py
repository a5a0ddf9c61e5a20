"""Errors from one factorisation against refits, eigenvalues and SciPy's Gaussian."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from tests.solvers.matrices import outlier, wishart

from notsodeep.checks import InputError
from notsodeep.kernels import MatrixBlocks
from notsodeep.solvers import (
    NotPositiveDefiniteError,
    generalized_cross_validation,
    leave_one_out,
    log_marginal_likelihood,
    posterior_variance,
    ridge_path,
    solve,
)


def refit(K, Y, ridge, w):
    """Leave each sample out in turn."""
    errors = np.empty_like(Y)
    for i in range(len(K)):
        rest = np.delete(np.arange(len(K)), i)
        alpha = np.linalg.solve(K[np.ix_(rest, rest)] + np.diag(ridge / w[rest]), Y[rest])
        errors[i] = Y[i] - K[i, rest] @ alpha
    return errors


@settings(max_examples=20, deadline=None)
@given(
    n=st.integers(2, 25), k=st.integers(1, 3), ridge=st.floats(1e-3, 10), weighted=st.booleans(), seed=st.integers(0, 9)
)
def test_leave_one_out_is_what_refitting_gives(n, k, ridge, weighted, seed):
    rng = np.random.default_rng(seed)
    K, Y = wishart(n, seed), rng.standard_normal((n, k))
    w = rng.uniform(0.5, 2, n) if weighted else np.ones(n)
    expected = refit(K, Y, ridge, w)
    s = solve(MatrixBlocks(K), Y, ridge=ridge, weights=w if weighted else None)
    np.testing.assert_allclose(leave_one_out(s), expected, atol=1e-9)
    path = ridge_path(MatrixBlocks(K), Y, [ridge, 2 * ridge], weights=w)
    assert path.leave_one_out[0] == pytest.approx((w[:, None] * expected**2).sum() / (k * w.sum()), rel=1e-8)
    np.testing.assert_allclose(path.coefficients[0], s.coefficients, atol=1e-9)
    np.testing.assert_allclose(path.gcv[0], generalized_cross_validation(s).mean(), rtol=1e-8)
    evidence = log_marginal_likelihood(s, Y)
    np.testing.assert_allclose(path.log_marginal_likelihood[0], evidence.sum(), rtol=1e-8)
    gaussian = multivariate_normal(np.zeros(n), K + np.diag(ridge / w))
    np.testing.assert_allclose(evidence, [gaussian.logpdf(y) for y in Y.T], rtol=1e-8)


def test_generalised_cross_validation_is_its_definition():
    """(1/n)‖(I − S)y‖²/((1/n) tr(I − S))² with the smoother S = K(K + ridge)⁻¹."""
    K, y = outlier(60), np.random.default_rng(0).standard_normal(60)
    rest = np.eye(60) - K @ np.linalg.inv(K + 0.2 * np.eye(60))
    expected = np.mean((rest @ y) ** 2) / np.mean(np.diag(rest)) ** 2
    assert generalized_cross_validation(solve(MatrixBlocks(K), y, ridge=0.2)) == pytest.approx(expected, rel=1e-9)


def test_one_column_and_interpolation():
    K, y = wishart(20), np.arange(20.0)
    s = solve(MatrixBlocks(K), y)
    np.testing.assert_allclose(leave_one_out(s), refit(K, y[:, None], 0.0, np.ones(20))[:, 0], rtol=1e-8)
    path = ridge_path(MatrixBlocks(K), y, [0.0, 1.0])
    assert path.coefficients.shape == (2, 20)
    np.testing.assert_allclose(path.coefficients[0], s.coefficients, rtol=1e-8)


def test_posterior_variance_is_the_schur_complement():
    K = wishart(90)
    fitted, new = K[:70, :70], K[70:, 70:]
    s = solve(MatrixBlocks(fitted), np.ones(70), ridge=0.3)
    variance = posterior_variance(s.factor, MatrixBlocks(K[70:, :70]), new.diagonal())
    expected = new - K[70:, :70] @ np.linalg.solve(fitted + 0.3 * np.eye(70), K[:70, 70:])
    np.testing.assert_allclose(variance, expected.diagonal(), rtol=1e-10)
    exact = solve(MatrixBlocks(fitted), np.ones(70))
    itself = posterior_variance(exact.factor, MatrixBlocks(fitted, symmetric=False), fitted.diagonal())
    assert itself.min() >= 0
    assert itself.max() < 1e-12
    with pytest.raises(InputError, match=r"they must be \(m, n\), \(n, n\) and \(m,\)"):
        posterior_variance(s.factor, MatrixBlocks(K), K.diagonal())


def test_a_ridge_too_small_has_infinite_errors():
    x = np.random.default_rng(0).standard_normal((10, 3))
    K = x @ x.T
    path = ridge_path(MatrixBlocks(K), np.ones(10), [0.0, 0.1])
    assert np.isinf(path.leave_one_out[0])
    assert np.isnan(path.coefficients[0]).all()
    assert path.best == 1
    with pytest.raises(NotPositiveDefiniteError, match="raise ridge"):
        ridge_path(MatrixBlocks(K), np.ones(10), [0.0])
    with pytest.raises(InputError, match="ridges is empty"):
        ridge_path(MatrixBlocks(K), np.ones(10), [])


def test_without_a_factor_there_is_one_clear_error():
    s = solve(MatrixBlocks(wishart(30)), np.ones(30), solver="cg")
    with pytest.raises(InputError, match=r"no factorisation .*by cg.* use solver='cholesky'"):
        leave_one_out(s)


def test_weights_count_without_a_ridge_too():
    rng = np.random.default_rng(0)
    K, Y, w = wishart(20), rng.standard_normal(20), rng.uniform(0.2, 3, 20)
    expected = ridge_path(MatrixBlocks(K), Y, [0.0], weights=w).gcv[0]
    found = generalized_cross_validation(solve(MatrixBlocks(K), Y, ridge=0.0, weights=w))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
