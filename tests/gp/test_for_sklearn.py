"""The kernel in scikit-learn's Gaussian processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import WhiteKernel

import notsodeep as nsd
from notsodeep import InputError
from notsodeep.gp import SklearnDEQKernel

X = np.random.default_rng(0).standard_normal((12, 3))
Y = np.sin(2 * X[:, 0])


def test_it_is_the_kernel() -> None:
    k, deq = SklearnDEQKernel("relu", 0.5, 0.7, 0.3, "ntk"), nsd.DEQ("relu", 0.5, 0.7, 0.3)
    assert np.array_equal(k(X, X[:4]), deq.kernel(X, X[:4], kind="ntk"))
    np.testing.assert_allclose(k.diag(X), np.diag(k(X)), rtol=1e-14)
    assert [h.name for h in k.hyperparameters] == ["bias", "input", "recurrent"]
    assert k.bounds.shape == (3, 2)
    assert np.exp(k.bounds[2, 1]) < 2.0  # relu is well-posed below 2


@pytest.mark.parametrize(("phi", "kind"), [("relu", "nngp"), ("relu", "ntk"), ("erf", "ck"), ("erf", "ntk_injected")])
def test_gradients_are_those_of_the_engine(phi: str, kind: str) -> None:
    pytest.importorskip("torch")
    k = SklearnDEQKernel(phi, 0.5, 0.7, 0.3, kind)
    K, gradient = k(X, eval_gradient=True)
    assert np.array_equal(K, k(X))
    numeric = approx_fprime(k.theta, lambda theta: k.clone_with_theta(theta)(X).ravel(), 1e-6)
    np.testing.assert_allclose(gradient, numeric.reshape(gradient.shape), atol=2e-5 * np.abs(K).max())


def test_what_is_zero_or_fixed_has_no_gradient() -> None:
    pytest.importorskip("torch")
    k = SklearnDEQKernel("erf", 0.5, 0.7, bias=0.0, input_bounds="fixed")
    assert k.theta == pytest.approx([np.log(0.5)])
    assert k(X, eval_gradient=True)[1].shape == (12, 12, 1)
    fixed = SklearnDEQKernel("erf", recurrent_bounds="fixed", input_bounds="fixed", bias_bounds="fixed")
    assert fixed(X, eval_gradient=True)[1].shape == (12, 12, 0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a variance may end at its bound
def test_regression_raises_the_likelihood() -> None:
    pytest.importorskip("torch")
    kernel: Any = 1.0 * SklearnDEQKernel("erf") + WhiteKernel(0.01)
    gp = GaussianProcessRegressor(kernel).fit(X, Y)
    assert gp.log_marginal_likelihood_value_ > gp.log_marginal_likelihood(clone(gp).kernel.theta) + 1
    assert clone(gp).kernel == kernel


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_classification() -> None:
    pytest.importorskip("torch")
    gp = GaussianProcessClassifier(2.0 * SklearnDEQKernel("erf", recurrent_bounds="fixed", bias_bounds="fixed"))
    assert gp.fit(X, Y > 0).score(X, Y > 0) > 0.9


def test_bad_bounds() -> None:
    with pytest.raises(InputError, match="recurrent_bounds"):
        _ = SklearnDEQKernel("relu", recurrent_bounds=(3.0, 4.0)).bounds
