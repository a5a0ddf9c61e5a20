"""Block conjugate gradients: right answers, no breakdown, exact resumption; preconditioners that help.

Also covers: solvers/preconditioners.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from tests.solvers.matrices import MATRICES, decaying, wishart

import notsodeep as nsd
from notsodeep.checks import InputError
from notsodeep.kernels import KernelBlocks, MatrixBlocks
from notsodeep.solvers import ConjugateGradients
from notsodeep.solvers.conjugate_gradients import largest_eigenvalue
from notsodeep.solvers.preconditioners import LowRankPlusDiagonal, linearised, precondition


def run(cg, tol=1e-10, limit=2000):
    while cg.residual > tol and cg.iteration < limit:
        cg.step()
    return cg


@pytest.mark.parametrize("name", [name for name in MATRICES if name != "decaying 1e10"])
def test_solutions_are_numpys(name):
    K = MATRICES[name]
    B = np.random.default_rng(0).standard_normal((len(K), 3))
    cg = run(ConjugateGradients(lambda V: K @ V, B), 1e-12)
    expected = np.linalg.solve(K, B)
    np.testing.assert_allclose(cg.X, expected, atol=1e-11 * np.linalg.cond(K) * np.abs(expected).max())
    low, high = np.linalg.eigvalsh(K)[[0, -1]]
    assert low * (1 - 1e-9) <= cg.extremes[0] <= cg.extremes[1] <= high * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 40), k=st.integers(1, 6), seed=st.integers(0, 99))
def test_dependent_columns_do_not_break_it(n, k, seed):
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((n, 1)) @ rng.integers(-1, 2, (1, k)) + np.eye(n, k) * rng.integers(0, 2)
    K = wishart(n, seed)
    cg = run(ConjugateGradients(lambda V: K @ V, B), 1e-9, 4 * n + 10)
    np.testing.assert_allclose(K @ cg.X, B, atol=1e-7)


def test_shared_directions_save_iterations():
    K = decaying(300, 1e4)
    B = np.random.default_rng(0).standard_normal((300, 10))
    block = run(ConjugateGradients(lambda V: K @ V, B), 1e-8).iteration
    alone = run(ConjugateGradients(lambda V: K @ V, B[:, :1]), 1e-8).iteration
    assert block < alone / 3


def test_a_state_resumes_bit_for_bit(tmp_path):
    K = decaying(120, 1e3)
    B = np.random.default_rng(0).standard_normal((120, 2))

    def start():
        return ConjugateGradients(lambda V: K @ V, B, lambda R: R / K.diagonal()[:, None])

    whole, first = start(), start()
    for _ in range(9):
        whole.step()
    for _ in range(4):
        first.step()
    first.save(tmp_path / "state.npz", "this")
    second = start()
    second.load(tmp_path / "state.npz", "this")
    for _ in range(5):
        second.step()
    np.testing.assert_array_equal(second.X, whole.X)
    assert (second.iteration, second.residual, second.best) == (9, whole.residual, whole.best)
    assert [path.name for path in tmp_path.iterdir()] == ["state.npz"]
    with pytest.raises(InputError, match="belongs to another problem"):
        start().load(tmp_path / "state.npz", "that")
    (tmp_path / "state.npz").write_bytes((tmp_path / "state.npz").read_bytes()[:500])
    with pytest.raises(InputError, match="cannot be read"):
        start().load(tmp_path / "state.npz", "this")


def test_an_interrupted_step_changes_nothing():
    K = wishart(50)
    calls = []

    def operator(V):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return K @ V

    cg = ConjugateGradients(operator, np.ones((50, 1)))
    cg.step()
    cg.step()
    before = {name: value.copy() for name, value in cg.state().items()}
    with pytest.raises(KeyboardInterrupt):
        cg.step()
    for name, value in cg.state().items():
        np.testing.assert_array_equal(value, before[name])
    np.testing.assert_allclose(K @ run(cg).X, 1, atol=1e-8)


def test_negative_curvature_is_an_error():
    K = np.diag([1.0, 2.0, -0.5])
    with pytest.raises(InputError, match=r"not positive definite: .*raise ridge"):
        run(ConjugateGradients(lambda V: K @ V, np.ones((3, 1))))


def test_zero_targets_need_no_steps():
    cg = ConjugateGradients(lambda V: V, np.zeros((4, 2)))
    assert cg.residual == 0
    cg.step()
    assert cg.iteration == 0


def test_woodbury_is_the_inverse():
    rng = np.random.default_rng(0)
    F, D, R = rng.standard_normal((30, 5)), rng.uniform(0.5, 2, 30), rng.standard_normal((30, 4))
    M = LowRankPlusDiagonal.of(F, D, "test")
    np.testing.assert_allclose(M(R), np.linalg.solve(F @ F.T + np.diag(D), R), rtol=1e-11)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = X[:600] / np.linalg.norm(X[:600], axis=1, keepdims=True)
    return X, np.where(y[:600, None] == np.arange(10), 0.9, -0.1)


@pytest.mark.parametrize("norms", ["unit", "spread"])
@pytest.mark.parametrize(
    "model", [nsd.DEQ("normalized_relu", 0.25, 0.25, 0.5), nsd.DEQ("tanh", 0.3, 0.6, 0.1)], ids=str
)
def test_preconditioners_save_iterations_and_the_combination_is_best(digits, model, norms):
    X, Y = digits
    if norms == "spread":
        X = X * np.exp(0.3 * np.random.default_rng(0).standard_normal((len(X), 1)))
    blocks = KernelBlocks(model, X, kind="ntk_injected")
    K, shift = blocks.block(slice(None), slice(None)), np.full(len(X), 1e-3)
    A = K + np.diag(shift)
    exact = np.linalg.solve(A, Y)
    steps = {}
    for kind in ("none", "equivalent", "nystrom", "both"):
        cg = run(ConjugateGradients(lambda V: A @ V, Y, precondition(blocks, shift, kind, rank=80)), 1e-9)
        np.testing.assert_allclose(cg.X, exact, atol=1e-5 * np.abs(exact).max())
        steps[kind] = cg.iteration
    assert max(steps["equivalent"], steps["nystrom"]) < steps["none"]
    assert steps["both"] <= min(steps["equivalent"], steps["nystrom"])
    assert precondition(blocks, shift, "auto").name.startswith("equivalent and nystrom")


def test_the_linearised_kernel_is_the_equivalent():
    """On high-dimensional noise, c₀ and c₁ are the kernel function and its slope at zero."""
    n, p = 800, 1500
    X = np.random.default_rng(0).standard_normal((n, p)) / np.sqrt(p)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    deq = nsd.DEQ("tanh", 0.3, 0.6, 0.2)
    blocks = KernelBlocks(deq, X, kind="ck")
    F = linearised(blocks, blocks.diagonal(), np.random.default_rng(1))
    step = 1e-4
    near = [deq.kernel(np.eye(1, 2), np.array([[t, np.sqrt(1 - t * t)]]), kind="ck")[0, 0] for t in (-step, 0, step)]
    fitted = F @ F.T
    off = ~np.eye(n, dtype=bool)
    assert np.median(fitted[off]) == pytest.approx(near[1], rel=1e-2)
    t = X @ X.T
    slope = np.polyfit(t[off], fitted[off], 1)[0]
    assert slope == pytest.approx((near[2] - near[0]) / (2 * step), rel=2e-2)


def test_matrices_without_samples_use_landmarks():
    blocks = MatrixBlocks(wishart(60))
    assert precondition(blocks, np.zeros(60), "auto", rank=10).name == "nystrom of rank 10"
    with pytest.raises(InputError, match="use preconditioner='nystrom'"):
        precondition(blocks, np.zeros(60), "equivalent")
    with pytest.raises(InputError, match="did you mean 'nystrom'"):
        precondition(blocks, np.zeros(60), "nystrm")
    assert precondition(MatrixBlocks(np.zeros((3, 3))), np.ones(3), "auto") is None


@pytest.mark.parametrize("name", MATRICES)
def test_largest_eigenvalue_from_below(name):
    K = MATRICES[name]
    top = np.linalg.eigvalsh(K)[-1]
    assert 0.8 * top <= largest_eigenvalue(lambda V: K @ V, len(K)) <= top * (1 + 1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"R": np.ones((6, 1))},
        {"X": np.ones((5, 2))},
        {"R": np.array(1.0)},
        {"R": np.full((6, 2), np.nan)},
        {"X": np.ones((6, 2), np.float32)},
        {"directions": np.ones(6)},
        {"directions": np.ones((5, 2))},
        {"numbers": np.ones(3)},
        {"numbers": None},
        {"numbers": np.array([np.inf, 1.0, 1.0, 1.0])},
        {"numbers": np.array([-1.0, 1.0, 1.0, 1.0])},
        {"X": np.full((6, 2), np.inf)},
        {"R": np.full((6, 2), np.inf)},
        {"directions": np.full((6, 2), np.inf)},
        {"directions": np.ones((6, 3))},
        {"more": np.ones(3)},
        {"R": np.zeros((6, 2))},  # fits, but was not written with the rest
    ],
    ids=str,
)
def test_a_checkpoint_that_was_changed_is_refused(change, tmp_path):
    path, K = tmp_path / "state.npz", decaying(6, 1e3)
    cg = ConjugateGradients(lambda V: K @ V, np.arange(12.0).reshape(6, 2))
    cg.step()
    cg.save(path, "this")
    with np.load(path) as archive:
        content = {name: value for name, value in ({**archive} | change).items() if value is not None}
    np.savez(path, **content)
    before = cg.state()
    with pytest.raises(InputError, match=r"state\.npz' was changed after it was written; delete it to start anew"):
        cg.load(path, "this")
    assert all(np.array_equal(value, before[name]) for name, value in cg.state().items())
    if not set(change) & {"more"} and not np.array_equal(change.get("R"), np.zeros((6, 2))):
        with pytest.raises(InputError, match="is not one of 6 × 2 unknowns"):
            cg.resume({name: value for name, value in (before | change).items() if value is not None})


def test_a_checkpoint_without_directions(tmp_path):
    """Nothing is left to do where the residual is 0; such a state is written and read like others."""
    path, K = tmp_path / "state.npz", decaying(6, 1e3)
    cg = ConjugateGradients(lambda V: K @ V, np.zeros((6, 2)))
    assert cg.state()["directions"].shape == (6, 0)
    cg.save(path, "this")
    cg.load(path, "this")
    cg.step()
    assert cg.iteration == 0
