"""Kernel machines against dense linear algebra, refits and scikit-learn's Gaussian process.

Also covers: learn/base.py, learn/tasks.py.
"""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import notsodeep as nsd
from notsodeep import data, learn
from notsodeep.kernels import KernelBlocks
from notsodeep.learn import (
    DEQKernelClassifier,
    DEQKernelRegressor,
    ExplicitKernelClassifier,
    ExplicitKernelRegressor,
)
from notsodeep.learn.tasks import calibrate
from notsodeep.solvers import CG, Nystrom

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 5))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], axis=1)
NEW = RNG.standard_normal((17, 5))
WEIGHT = RNG.uniform(0.5, 3, 60)
DEQ = nsd.DEQ("normalized_relu", 0.25, 0.25, 0.5)


@pytest.mark.parametrize("kind", ["ck", "nngp", "ntk", "ntk_frozen_input", "ntk_injected"])
def test_predictions_are_those_of_dense_algebra(kind: str) -> None:
    machine = DEQKernelRegressor(kind=kind, ridge=0.1, normalize="none").fit(X, Y, sample_weight=WEIGHT)
    K = DEQ.kernel(X, kind=kind)
    expected = DEQ.kernel(NEW, X, kind=kind) @ np.linalg.solve(K + np.diag(0.1 / WEIGHT), Y)
    np.testing.assert_allclose(machine.predict(NEW), expected, rtol=1e-9)
    np.testing.assert_allclose(
        machine.predict(NEW)[:, 0],
        DEQKernelRegressor(kind=kind, ridge=0.1, normalize="none").fit(X, Y[:, 0], WEIGHT).predict(NEW),
        rtol=1e-9,
    )
    assert machine.residual_ < 1e-10
    assert machine.condition_ > 1


def test_finite_depth_and_explicit_networks() -> None:
    unrolled = DEQKernelRegressor(depth=3, ridge=0.1, normalize="none").fit(X, Y)
    K, k = (DEQ.kernel(A, X, kind="ntk_injected", depth=3) for A in (X, NEW))
    np.testing.assert_allclose(unrolled.predict(NEW), k @ np.linalg.solve(K + 0.1 * np.eye(60), Y), rtol=1e-9)
    network = nsd.Explicit(["relu", "tanh"])
    for activations in (["relu", "tanh"], network):
        machine = ExplicitKernelRegressor(activations, kind="ck", ridge=0.1, normalize="none").fit(X, Y)
        expected = network.kernel(NEW, X) @ np.linalg.solve(network.kernel(X) + 0.1 * np.eye(60), Y)
        np.testing.assert_allclose(machine.predict(NEW), expected, rtol=1e-9)
        assert clone(machine).get_params()["activations"] == activations


def leave_one_out(machine: Any, X: Any, Y: Any, weight: Any) -> Any:
    """The slow way: one fit a row."""
    answers = []
    for i in range(len(X)):
        others = np.delete(np.arange(len(X)), i)
        answers.append(clone(machine).fit(X[others], Y[others], weight[others]).predict(X[[i]])[0])
    return np.array(answers)


def test_leave_one_out_equals_as_many_fits() -> None:
    machine = DEQKernelRegressor(ridge=0.3, normalize="none").fit(X, Y, WEIGHT)
    refits = leave_one_out(machine, X, Y, WEIGHT)
    error = np.average(np.mean((refits - Y) ** 2, axis=1), weights=WEIGHT)
    assert machine.leave_one_out_error_ == pytest.approx(error, rel=1e-8)


def test_gcv_is_its_definition() -> None:
    machine = DEQKernelRegressor(ridge=0.3, normalize="none").fit(X, Y)
    K = DEQ.kernel(X, kind="ntk_injected")
    rest = np.eye(60) - K @ np.linalg.inv(K + 0.3 * np.eye(60))
    expected = np.mean((rest @ Y) ** 2) / (np.trace(rest) / 60) ** 2
    assert machine.gcv_ == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_the_ridge_is_chosen_by_leave_one_out(weight: Any) -> None:
    noisy = Y + 2.0 * np.random.default_rng(1).standard_normal(Y.shape)
    ridges = [1e-3, 0.1, 1.0, 10.0, 1e3]
    chosen = DEQKernelRegressor(ridge=ridges).fit(X, noisy, weight)
    errors = [DEQKernelRegressor(ridge=r).fit(X, noisy, weight).leave_one_out_error_ for r in ridges]
    assert chosen.ridge_ == ridges[int(np.argmin(errors))]
    assert 0.001 < chosen.ridge_ < 1e3
    for criterion in ("loo", "gcv"):
        found = DEQKernelRegressor(ridge=criterion).fit(X, noisy, weight)
        assert len(found.ridge_path_.ridges) == 19
        assert found.leave_one_out_error_ <= 1.05 * min(errors)


def test_gaussian_process() -> None:
    """Against the joint normal distribution written out."""
    machine = DEQKernelRegressor(kind="nngp", ridge=0.05, normalize="none").fit(X, Y, WEIGHT)
    mean, std = machine.predict(NEW, return_std=True)
    K, k = DEQ.kernel(X, kind="nngp") + np.diag(0.05 / WEIGHT), DEQ.kernel(NEW, X, kind="nngp")
    covariance = DEQ.kernel(NEW, kind="nngp") - k @ np.linalg.solve(K, k.T)
    np.testing.assert_allclose(std, np.sqrt(np.diag(covariance))[:, None] * [1, 1], rtol=1e-8)
    assert mean.shape == std.shape == (17, 2)
    expected = sum(multivariate_normal(np.zeros(60), K).logpdf(column) for column in Y.T)
    assert machine.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-9)
    with pytest.raises(nsd.InputError, match="kind='ntk' is not the prior"):
        DEQKernelRegressor(kind="ntk").fit(X, Y).predict(NEW, return_std=True)


def test_copies_of_rows_change_nothing_but_the_size() -> None:
    """FourNumbers count copies, also in the likelihood and in probabilities."""
    copies = np.repeat(np.arange(60), RNG.integers(1, 4, 60))
    noise = 0.1 * RNG.standard_normal((len(copies), 2))
    machine = DEQKernelRegressor(kind="ck", ridge=0.05, normalize="none").fit(X[copies], Y[copies] + noise)
    assert len(machine.X_fit_) == 60
    K = DEQ.kernel(X[copies], kind="ck") + 0.05 * np.eye(len(copies))
    expected = DEQ.kernel(NEW, X[copies], kind="ck") @ np.linalg.solve(K, Y[copies] + noise)
    np.testing.assert_allclose(machine.predict(NEW), expected, rtol=1e-7)
    logs = [multivariate_normal(np.zeros(len(copies)), K).logpdf(column) for column in (Y[copies] + noise).T]
    assert machine.log_marginal_likelihood_ == pytest.approx(sum(logs), rel=1e-9)
    labels = np.where(X[:, 0] > 0, "yes", "no")
    counts = np.bincount(copies).astype(float)
    one = DEQKernelClassifier().fit(X, labels, counts)
    many = DEQKernelClassifier().fit(X[copies], labels[copies])
    np.testing.assert_allclose(one.predict_proba(NEW), many.predict_proba(NEW), rtol=1e-6)


def test_without_ridge_copies_must_agree() -> None:
    twice = np.concatenate([X, X[:3]])
    machine = DEQKernelRegressor(ridge=0.0).fit(twice, np.concatenate([Y, Y[:3]]))
    np.testing.assert_allclose(machine.predict(X), Y, atol=1e-8)
    with pytest.raises(nsd.InputError, match=r"rows 2 and 62 of X are identical.*ridge > 0"):
        DEQKernelRegressor(ridge=0.0).fit(twice, np.concatenate([Y, Y[:2], Y[2:3] + 1]))


def test_a_singular_matrix_is_said_to_be_so() -> None:
    line = np.linspace(1, 2, 8)[:, None] * np.ones((1, 3))  # without bias, relu kernels of a ray have rank one
    machine = DEQKernelRegressor(bias=0.0, ridge=0.0, normalize="none")
    with pytest.raises(nsd.InputError, match="ridge"):
        machine.fit(line, np.arange(8.0))
    fitted = machine.set_params(ridge=0.1).fit(line, line[:, 0])
    assert fitted.score(line, line[:, 0]) > 0.9


@pytest.mark.parametrize("normalize", ["center", "unit", "none"])
def test_hard_rows(normalize: str) -> None:
    constant = np.column_stack([X[:, :2], np.full(60, 7.0), np.zeros(60)])
    assert np.isfinite(DEQKernelRegressor(normalize=normalize).fit(constant, Y).predict(constant)).all()
    wide = np.random.default_rng(2).standard_normal((8, 300))
    machine = DEQKernelRegressor(ridge=0.0, normalize=normalize).fit(wide, np.arange(8))
    np.testing.assert_allclose(machine.predict(wide), np.arange(8), atol=1e-8)
    single = DEQKernelRegressor(ridge=0.0, normalize=normalize).fit([[1.0, 2.0]], [3.0])
    assert single.predict([[1.0, 2.0]]) == pytest.approx([3.0])
    same = DEQKernelRegressor(ridge=1e-6, normalize=normalize).fit(np.full((5, 2), 0.3), np.arange(5))
    assert same.predict([[0.3, 0.3]]) == pytest.approx([2.0], rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "rellu"}, "did you mean 'relu'"),
        ({"kind": "ntkk"}, "did you mean 'ntk'"),
        ({"recurrent": 2.0}, "recurrent=2 is not well-posed"),
        ({"ridge": -1.0}, "ridge=-1.0 must not be negative"),
        ({"ridge": "lo"}, "did you mean 'loo'"),
        ({"ridge": []}, "ridge is empty"),
        ({"normalize": "centre"}, "did you mean 'center'"),
        ({"dtype": "float16"}, "dtype='float16' is not supported"),
        ({"solver": "choleski"}, "did you mean 'cholesky'"),
        ({"solver": "out_of_cor"}, "did you mean 'out_of_core'"),
        ({"solver": None}, "solver=None is not known"),
    ],
)
def test_bad_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(nsd.InputError, match=message):
        DEQKernelRegressor(**options).fit(X, Y)


@pytest.mark.parametrize("name", [name for name in learn.__all__ if "Kernel" in name])
def test_a_misspelt_parameter_names_the_class_that_was_called(name: str) -> None:
    with pytest.raises(nsd.InputError, match=f"^{name} has no parameter 'rigde'; did you mean 'ridge'"):
        getattr(learn, name)(rigde=1.0)
    assert getattr(learn, name)(ridge=1.0).ridge == 1.0


def test_a_subclass_may_pass_parameters_on() -> None:
    class Mine(DEQKernelRegressor):
        def __init__(self, extra: int = 1, **others: Any) -> None:
            super().__init__(**others)
            self.extra = extra

    assert Mine(extra=2, ridge=0.5).ridge == 0.5


@pytest.mark.parametrize("normalize", ["unit", "center", "none"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_of_the_fit_are_known_in_any_layout(normalize: str, dtype: str) -> None:
    rows = np.random.default_rng(5).standard_normal((40, 7)).astype(dtype)
    machine = DEQKernelRegressor(normalize=normalize).fit(rows[:30], rows[:30, 0])
    for same in (rows, np.asfortranarray(rows), rows.astype("float64")):
        assert machine.fitted_to(same).tolist() == [True] * 30 + [False] * 10


def test_bad_data() -> None:
    hole = X.copy()
    hole[3, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        DEQKernelRegressor().fit(hole, Y)
    with pytest.raises(nsd.InputError, match="y holds one class only"):
        DEQKernelClassifier().fit(X, np.ones(60))
    with pytest.raises(ValueError, match="at least one non-zero"):
        DEQKernelRegressor().fit(X, Y, np.zeros(60))
    with pytest.raises(ValueError, match=re.escape("X has 4 features, but DEQKernelRegressor is expecting 5")):
        DEQKernelRegressor().fit(X, Y).predict(X[:, :4])


def test_two_classes_need_one_column() -> None:
    """±1 in one column decides as 0.9/−0.1 in two."""
    labels = np.where(X[:, 0] + X[:, 1] > 0, "up", "down")
    machine = DEQKernelClassifier(ridge=0.01).fit(X, labels)
    onehot = np.where(labels[:, None] == ["down", "up"], 0.9, -0.1)
    scores = DEQKernelRegressor(ridge=0.01).fit(X, onehot).predict(NEW)
    np.testing.assert_allclose(machine.decision_function(NEW), scores[:, 1] - scores[:, 0], rtol=1e-8)
    assert (machine.predict(NEW) == np.array(["down", "up"])[scores.argmax(1)]).all()


def test_many_classes_and_calibration() -> None:
    digits = data.load("digits")
    train, test, y, truth = train_test_split(digits.X, digits.labels, train_size=900, random_state=0)
    machine = DEQKernelClassifier(normalize="unit", ridge=1e-2).fit(train, y)
    probability = machine.predict_proba(test)
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.log(probability), machine.predict_log_proba(test), rtol=1e-6, atol=1e-8)
    assert (machine.classes_[probability.argmax(1)] == machine.predict(test)).all()
    assert machine.score(test, truth) > 0.97
    assert machine.calibration_.rows == 512
    assert machine.calibration_.accuracy == pytest.approx(machine.score(test, truth), abs=0.02)
    # among those predicted with confidence c, about a share c is right
    confidence = probability.max(axis=1)
    assert confidence.mean() == pytest.approx(np.mean(machine.predict(test) == truth), abs=0.03)
    uncalibrated = machine._scores(test)
    assert (
        -np.log(probability[np.arange(897), truth]).mean()
        < -np.log(np.exp(uncalibrated)[np.arange(897), truth] / np.exp(uncalibrated).sum(axis=1)).mean()
    )


def test_the_temperature_has_a_closed_form() -> None:
    """Scores ±s, right with frequency p: the best logit is log(p/(1 − p))."""
    scores = np.tile([[0.0, 2.0], [2.0, 0.0]], (500, 1))
    share = np.zeros((1000, 2))
    right = np.arange(1000) % 10 != 0
    best = scores.argmax(1)
    share[np.arange(1000), np.where(right, best, 1 - best)] = 1
    found = calibrate(scores, share, "")
    p = (900 + 1) / (1000 + 2)
    assert 2 / found.temperature == pytest.approx(np.log(p / (1 - p)), rel=1e-13)
    assert found.accuracy == pytest.approx(0.9)
    assert np.isfinite(calibrate(np.zeros((3, 2)), np.eye(2)[[0, 1, 0]], "").temperature)


def test_predict_asks_for_tiles_only(monkeypatch: pytest.MonkeyPatch) -> None:
    many = np.random.default_rng(3).standard_normal((10_000, 5))
    train = np.random.default_rng(4).standard_normal((1500, 5))
    machine = DEQKernelClassifier(dtype="float32").fit(train, (train[:, 0] > 0).astype(int))
    sizes: list[int] = []
    original = KernelBlocks.planes

    def planes(self: Any, *arguments: Any, **options: Any) -> Any:
        result = original(self, *arguments, **options)
        sizes.append(result.size)
        return result

    monkeypatch.setattr(KernelBlocks, "planes", planes)
    assert machine.predict(many).shape == (10_000,)
    assert sum(sizes) >= 10_000 * 1500
    assert max(sizes) <= 2048 * 2048 < 10_000 * 1500


def test_scikit_learn_tools() -> None:
    labels = np.where(X[:, 0] > 0, "plus", "minus")
    search = GridSearchCV(
        make_pipeline(StandardScaler(), DEQKernelClassifier()),
        {"deqkernelclassifier__recurrent": [0.1, 0.5], "deqkernelclassifier__ridge": [1e-3, 1.0]},
        cv=3,
    )
    search.fit(X, labels)
    assert search.best_score_ > 0.75
    assert set(search.predict(NEW)) <= {"plus", "minus"}
    again = clone(search.best_estimator_).fit(X, labels)
    assert (again.predict(NEW) == search.predict(NEW)).all()


def test_solvers_are_parameters_like_any_other() -> None:
    machine = DEQKernelRegressor(solver=CG(tol=1e-9, rank=20))
    for copied in (clone(machine), pickle.loads(pickle.dumps(machine))):
        assert copied.get_params() == machine.get_params()
        assert repr(copied) == repr(machine)
    exact = machine.set_params(solver="cholesky").fit(X, Y).predict(NEW)
    search = GridSearchCV(machine, {"solver": ["cholesky", CG(tol=1e-11), Nystrom(rank=5)]}, cv=3).fit(X, Y)
    assert search.best_params_["solver"] in ("cholesky", CG(tol=1e-11))
    np.testing.assert_allclose(search.predict(NEW), exact, rtol=1e-7, atol=1e-9)
    assert Nystrom(rank=5) in search.cv_results_["param_solver"]


def test_frames() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    names = [f"x{k}" for k in range(5)]
    expected = DEQKernelRegressor().fit(X, Y[:, 0]).predict(NEW)
    frame = pandas.DataFrame(X, columns=names)
    machine = DEQKernelRegressor().fit(frame, pandas.Series(Y[:, 0]))
    np.testing.assert_allclose(machine.predict(pandas.DataFrame(NEW, columns=names)), expected, rtol=1e-10)
    assert list(machine.feature_names_in_) == names
    with pytest.raises(ValueError, match="feature names should match"):
        machine.predict(pandas.DataFrame(NEW, columns=names[::-1]))
    machine = DEQKernelRegressor().fit(polars.DataFrame(X, schema=names), polars.Series(Y[:, 0]))
    np.testing.assert_allclose(machine.predict(polars.DataFrame(NEW, schema=names)), expected, rtol=1e-10)
    assert list(machine.feature_names_in_) == names


def test_a_linear_network_is_ridge_regression() -> None:
    machine = ExplicitKernelRegressor(["identity"], kind="ck", ridge=0.7, normalize="none").fit(X, Y)
    expected = Ridge(alpha=0.7, fit_intercept=False).fit(X, Y).predict(NEW)
    np.testing.assert_allclose(machine.predict(NEW), expected, rtol=1e-8)


def test_float32_is_close() -> None:
    labels = np.where(X[:, 0] > 0, 1, 0)
    single, double = (ExplicitKernelClassifier(dtype=t, ridge=0.1).fit(X, labels) for t in ("float32", "float64"))
    np.testing.assert_allclose(single.decision_function(NEW), double.decision_function(NEW), atol=1e-4)
    assert DEQKernelRegressor().fit(X.astype(np.float32), Y).X_fit_.dtype == np.float32


def test_small_weights_do_not_drown_in_the_smoothing() -> None:
    """K + ridge·W⁻¹ is the same when ridge and weights change together; the calibration nearly so."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4))
    labels, weight = X[:, 0] > 0, rng.uniform(0.5, 2, 30)
    found = [
        DEQKernelClassifier(ridge=1e-3 * unit).fit(X, labels, sample_weight=unit * weight).predict_proba(X[:4])
        for unit in (1.0, 1e-3)
    ]
    np.testing.assert_allclose(found[1], found[0], atol=0.02)
