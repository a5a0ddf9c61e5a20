"""Random features: the right limit at the right rate, tiles, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import notsodeep as nsd
from notsodeep.learn import DEQFeatures, DEQKernelRegressor, ExplicitKernelRegressor, load
from notsodeep.learn.features import orthogonal_normal

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 40)) + np.r_[np.ones(20), np.zeros(20)]
Y = np.tanh(X[:, 0]) + 0.3 * X[:, 1]
NEW = RNG.standard_normal((60, 40)) + np.r_[np.ones(20), np.zeros(20)]
RIDGE = 2.0  # errors are then linear in the noise of the kernel already at moderate widths
WIDTHS = 2 ** np.arange(6, 13)


def machines(activation: str) -> tuple[Any, Any]:
    """Predictions of the exact machines of the centred DEQ and of its explicit network."""
    features = DEQFeatures(activation, width=2).fit(X)
    deq = features.model_
    implicit = DEQKernelRegressor(deq.activation, deq.recurrent, deq.input, 0.0, kind="ck", ridge=RIDGE).fit(X, Y)
    explicit = ExplicitKernelRegressor(features.network_, kind="ck", ridge=RIDGE).fit(X, Y)
    return implicit.predict(NEW), explicit.predict(NEW)


def errors(goal: Any, widths: Any, seeds: int, **options: Any) -> Any:
    """Relative distance of predictions to `goal`, shape (widths, seeds)."""
    result = np.empty((len(widths), seeds))
    for i, width in enumerate(widths):
        for seed in range(seeds):
            features = DEQFeatures(width=int(width), random_state=seed, **options)
            found = make_pipeline(features, Ridge(alpha=RIDGE, fit_intercept=False)).fit(X, Y).predict(NEW)
            result[i, seed] = np.linalg.norm(found - goal) / np.linalg.norm(goal)
    return result


def slope(widths: Any, values: Any) -> tuple[float, float]:
    """Slope in a doubly logarithmic plot, and its standard error over seeds."""
    each = np.polyfit(np.log(widths), np.log(values), 1)[0]
    return float(each.mean()), float(each.std(ddof=1) / np.sqrt(values.shape[1]))


@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize("features", ["deq", "explicit"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_predictions_converge_to_the_kernel_machine(activation: str, features: str, orthogonal: bool) -> None:
    implicit, explicit = machines(activation)
    goal = implicit if features == "deq" else explicit
    widths, seeds = WIDTHS[1:5], 6
    values = errors(goal, widths, seeds, activation=activation, features=features, orthogonal=orthogonal, tol=1e-4)
    found, deviation = slope(widths, values)
    assert abs(found + 0.5) < 0.04 + 3 * deviation
    # and the two kinds of features have the same limit, up to the high-dimensional equivalence
    assert np.linalg.norm(implicit - explicit) < 0.02 * np.linalg.norm(implicit)


@pytest.mark.slow
@pytest.mark.parametrize("features", ["deq", "explicit"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_rate_over_all_widths(activation: str, features: str) -> None:
    implicit, explicit = machines(activation)
    goal = implicit if features == "deq" else explicit
    values = errors(goal, WIDTHS, 4, activation=activation, features=features, tol=1e-4)
    found, deviation = slope(WIDTHS, values)
    assert abs(found + 0.5) < 0.04 + 3 * deviation
    assert values[-1].mean() < 0.15


@pytest.mark.parametrize("kind", ["ck", "nngp"])
def test_inner_products_approach_the_kernel_of_the_plain_deq(kind: str) -> None:
    deq = nsd.DEQ("tanh", 0.2, 0.8, 0.3)
    goal = deq.kernel(X / 8, kind=kind)
    gaps = []
    for width in (128, 2048):
        features = DEQFeatures(
            "tanh", bias=0.3, width=width, features="deq", kind=kind, centered=False, normalize="none"
        )
        Z = features.fit_transform(X / 8)
        assert Z.shape == (60, width + (41 if kind == "nngp" else 0))
        gaps.append(np.linalg.norm(Z @ Z.T - goal) / np.linalg.norm(goal))
    assert gaps[1] < 0.04
    assert gaps[0] / gaps[1] > 2.5  # 4 at slope −1/2


def test_states_are_equilibria() -> None:
    features = DEQFeatures("relu", width=200, features="deq", tol=1e-9).fit(X)
    B, A, _ = features.weights_
    Z = features.transform(NEW)
    deq = features.model_
    rows = features.preparation_(NEW)
    again = deq.activation(np.sqrt(deq.recurrent) * Z @ A.T + np.sqrt(deq.input) * rows @ B.T) / np.sqrt(200)
    np.testing.assert_allclose(Z, again, rtol=0, atol=2e-9 * np.linalg.norm(Z, axis=1).max())


def test_orthogonal_weights_are_standard_normal() -> None:
    rng = np.random.default_rng(0)
    for shape in [(300, 7), (7, 300), (50, 50)]:
        W = orthogonal_normal(rng, *shape)
        assert W.shape == shape
        block = W[: min(shape)]
        products = block @ block.T
        np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-9 * shape[1])
    draws = np.array([orthogonal_normal(rng, 5, 3) for _ in range(4000)])
    np.testing.assert_allclose(np.einsum("nij,nik->ijk", draws, draws) / 4000, np.tile(np.eye(3), (5, 1, 1)), atol=0.1)
    assert np.mean(draws**4) == pytest.approx(3.0, rel=0.05)


def test_tiles_and_seeds_and_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    features = DEQFeatures(width=64, features="deq", tol=1e-10).fit(X)
    whole = features.transform(NEW)
    monkeypatch.setattr("notsodeep.learn.features._TILE_BYTES", 64 * 8 * 7)
    np.testing.assert_allclose(features.transform(NEW), whole, rtol=1e-6, atol=1e-9)
    assert (
        DEQFeatures(width=64, random_state=1).fit_transform(X) != DEQFeatures(width=64, random_state=2).fit_transform(X)
    ).any()
    assert (
        DEQFeatures(width=64, random_state=1).fit_transform(X) == DEQFeatures(width=64, random_state=1).fit_transform(X)
    ).all()
    single = DEQFeatures(width=64, features="deq", dtype="float32", tol=1e-5).fit(X).transform(NEW)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, whole, atol=1e-4)


def test_output_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = DEQFeatures(width=3).set_output(transform="pandas").fit_transform(X)
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["deqfeatures0", "deqfeatures1", "deqfeatures2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "ntk"}, "would need a feature for every weight"),
        ({"kind": "cck"}, "did you mean 'ck'"),
        ({"features": "implicit"}, "features='implicit' is not known"),
        ({"features": "deq", "recurrent": 0.5}, "a finite network may have no unique equilibrium"),
        ({"bias": 0.1}, "needs bias=0"),
        ({"centered": False}, "has no explicit match"),
        ({"width": 0}, "width=0 must be an integer"),
        ({"dtype": "int8"}, "dtype='int8' is not supported"),
    ],
)
def test_bad_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(nsd.InputError, match=message):
        DEQFeatures(**options).fit(X)


def test_an_unfinished_solve_is_not_silent() -> None:
    features = DEQFeatures(width=50, features="deq", max_iter=2, tol=1e-8).fit(X)
    with pytest.warns(nsd.ConvergenceWarning, match="stopped at relative residual") as told:
        make_pipeline(features, Ridge()).fit(X, Y)
    assert told[0].filename == __file__  # not scikit-learn's


def test_the_steps_of_an_equilibrium_are_counted() -> None:
    """Each step gains a factor of about √(σ_a² E[φ'²]), here √0.1: three times the digits take three times as many."""
    few, many = (DEQFeatures(width=300, features="deq", tol=tol).fit(X).n_iter_ for tol in (1e-4, 1e-12))
    assert 2.5 < many / few < 3.5
    assert DEQFeatures(width=300).fit(X).n_iter_ == 1


def test_the_old_name_of_max_iter_still_works() -> None:
    with pytest.warns(DeprecationWarning, match=r"max_iterations will go .* max_iter and random_state now") as told:
        features = DEQFeatures(width=5, max_iterations=7)
    assert told[0].filename == __file__
    assert features.get_params()["max_iter"] == 7
    with pytest.warns(DeprecationWarning, match="max_iterations will go"):
        assert features.set_params(max_iterations=9, width=6).get_params()["max_iter"] == 9
    assert features.width == 6


def test_unit_rows_get_one_layer() -> None:
    """No m×m product; closer to the kernel than the DEQ's own features, with bias and without centring."""
    X = np.random.default_rng(0).standard_normal((80, 20))
    errors = {}
    for features in ("explicit", "deq"):
        t = DEQFeatures("tanh", bias=0.3, width=2000, features=features, normalize="unit", centered=False).fit(X)
        Z = t.transform(X)
        K = t.model_.kernel(t.preparation_(X))
        errors[features] = np.linalg.norm(Z @ Z.T - K, 2) / np.linalg.norm(K, 2)
    assert t.network_ is None
    assert len(DEQFeatures(normalize="unit").fit(X).weights_) == 1
    assert errors["explicit"] < 1.5 * errors["deq"]
    single = DEQFeatures(normalize="unit", dtype="float32", random_state=3).fit(X).transform(X)
    double = DEQFeatures(normalize="unit", dtype="float64", random_state=3).fit(X).transform(X)
    assert np.abs(single - double).max() < 2e-5


def test_random_states_as_in_scikit_learn(tmp_path: Path) -> None:
    def drawn(state: object) -> np.ndarray:
        return DEQFeatures(width=8, random_state=state).fit(X).weights_[0]

    for kind in (np.random.default_rng, np.random.RandomState):
        assert (drawn(kind(3)) == drawn(kind(3))).all()
    assert (drawn(None) != drawn(None)).any()
    features = DEQFeatures(width=8, random_state=np.random.default_rng(0)).fit(X)
    again = load(features.save(tmp_path / "f.npz"))
    assert (again.transform(X) == features.transform(X)).all()
    with pytest.raises(nsd.InputError, match="random_state=-1"):
        drawn(-1)
    with pytest.warns(DeprecationWarning, match="seed will go"):
        assert DEQFeatures(seed=5).random_state == 5
