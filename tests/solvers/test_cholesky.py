"""The blocked factorisation against SciPy's, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.solvers.matrices import MATRICES, decaying, outlier, wishart

from notsodeep import threads
from notsodeep.kernels import MatrixBlocks
from notsodeep.solvers import CholeskyFactor, NotPositiveDefiniteError
from notsodeep.solvers import cholesky as module


@pytest.fixture(params=[16, 512])
def panel(request, monkeypatch):
    """Small panels make many of them, ragged ends included."""
    for name in ("_SOUND", "_PANEL", "_STEP", "_ROWS"):
        monkeypatch.setattr(module, name, request.param)


@pytest.mark.usefixtures("panel")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "float64") for name in MATRICES]
    + [(name, "float32") for name, K in MATRICES.items() if np.linalg.cond(K) < 1e6],
)
def test_factor_is_scipys(name, dtype):
    K = MATRICES[name].astype(dtype)
    rng = np.random.default_rng(1)
    B = rng.standard_normal((len(K), 3))
    shift = rng.uniform(0, 0.1, len(K))
    A = K.astype(np.float64) + np.diag(shift)
    eps = np.finfo(dtype).eps * len(K) * np.linalg.cond(A)
    factor = CholeskyFactor.of(K.copy(), shift)
    size = np.abs(scipy.linalg.cholesky(A)).max()
    L = np.tril(factor._storage)
    np.testing.assert_allclose(L, scipy.linalg.cholesky(A, lower=True), rtol=0, atol=10 * eps * size)
    np.testing.assert_allclose(L @ L.T, A, rtol=0, atol=100 * np.finfo(dtype).eps * np.abs(A).max())
    expected = scipy.linalg.solve(A, B, assume_a="pos")
    np.testing.assert_allclose(factor.solve(B), expected, rtol=0, atol=10 * eps * np.abs(expected).max())
    assert factor.solve(B[:, 0]).shape == (len(K),)
    assert factor.logdet() == pytest.approx(np.linalg.slogdet(A)[1], abs=10 * eps)
    inverse = np.diag(np.linalg.inv(A))
    np.testing.assert_allclose(factor.inverse_diagonal(progress=False), inverse, rtol=100 * eps)
    energy = np.einsum("ij,ij->j", factor.half_solve(B), factor.half_solve(B))
    np.testing.assert_allclose(energy, np.einsum("ij,ij->j", B, expected), rtol=100 * eps)


@pytest.mark.usefixtures("panel")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_kernel_survives_above_the_diagonal(dtype):
    K = outlier(530).astype(dtype)
    V = np.random.default_rng(0).standard_normal((530, 2))
    factor = CholeskyFactor.of(K.copy(), 0.25)
    A = K.astype(np.float64) + 0.25 * np.eye(530)
    np.testing.assert_allclose(factor.kept @ V, A @ V, rtol=1e-11)
    np.testing.assert_array_equal(factor.kept.block(slice(100, 200), slice(20, 150)), A[100:200, 20:150].astype(dtype))
    np.testing.assert_array_equal(factor.kept.diagonal(), A.diagonal())


def test_threads_give_the_same_factor(monkeypatch):
    K = wishart(700)
    monkeypatch.setattr(module, "_SOUND", 64)
    monkeypatch.setattr(module, "_PANEL", 64)
    alone = CholeskyFactor.of(K.copy())._storage
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    np.testing.assert_allclose(CholeskyFactor.of(K.copy())._storage, alone, rtol=0, atol=1e-13)
    np.testing.assert_allclose(MatrixBlocks(K) @ K[:, :4], K @ K[:, :4], rtol=1e-12)


@pytest.mark.usefixtures("panel")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("lowest", [-1e-3, -1.0])
def test_an_indefinite_matrix_is_refused_with_the_ridge_that_helps(dtype, lowest):
    values = np.linspace(0.5, 2, 100)
    values[3] = lowest
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((100, 100)))[0]
    K = ((Q * values) @ Q.T).astype(dtype)
    K = (K + K.T) / 2
    with pytest.raises(
        NotPositiveDefiniteError, match=f"not positive definite in {dtype}: pivot .* raise ridge by"
    ) as e:
        CholeskyFactor.of(K.copy())
    assert lowest - 1e-5 <= e.value.eigenvalue < 0.6 * lowest  # a bound, of the right size
    assert 0 <= e.value.pivot < 100
    CholeskyFactor.of(K.copy(), e.value.ridge)  # the ridge it named


@pytest.mark.usefixtures("panel")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_duplicate_is_the_bad_pivot_and_the_ridge_named_helps(dtype):
    x = np.random.default_rng(0).standard_normal((40, 60))
    x[31] = x[4]
    K = (x @ x.T).astype(dtype)
    with pytest.raises(NotPositiveDefiniteError) as error:
        CholeskyFactor.of(K.copy())
    assert error.value.pivot == 31
    assert error.value.eigenvalue == pytest.approx(0, abs=1e-12 if dtype == "float64" else 1e-4)
    CholeskyFactor.of(K.copy(), error.value.ridge)


def test_progress_counts_up_to_the_end_and_an_interruption_gets_through(monkeypatch):
    monkeypatch.setattr(module, "_SOUND", 32)
    monkeypatch.setattr(module, "_PANEL", 32)
    seen = []
    CholeskyFactor.of(wishart(130), progress=lambda done, total: seen.append(done / total))
    assert seen == sorted(seen)
    assert seen[-1] == 1
    assert len(seen) == 5

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CholeskyFactor.of(wishart(130), progress=stop)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 60), k=st.integers(1, 4), decades=st.floats(0, 6), seed=st.integers(0, 99))
def test_solving_undoes_multiplying(n, k, decades, seed):
    K = decaying(n, 10**decades, seed)
    X = np.random.default_rng(seed).standard_normal((n, k))
    np.testing.assert_allclose(CholeskyFactor.of(K.copy()).solve(K @ X), X, atol=1e-11 * 10**decades * n)


def test_wrong_sizes_are_refused():
    factor = CholeskyFactor.of(np.eye(3))
    with pytest.raises(ValueError, match="B has 2 rows but the factor has 3"):
        factor.solve(np.ones(2))
