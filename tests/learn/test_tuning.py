"""Variances by marginal likelihood or leave-one-out: gradients, results, files and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime, check_grad

import notsodeep as nsd
from notsodeep import InputError, learn
from notsodeep.learn.tuning import CRITERIA, _factored, tune

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 2]]) + 0.1 * RNG.standard_normal((60, 2))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_derivatives_in_the_matrix(criterion: str) -> None:
    A = nsd.DEQ("erf", 0.3, 1.0).kernel(X[:8]) + 0.3 * np.eye(8)
    upper = np.triu_indices(8)

    def matrix(x: Any) -> Any:
        found = np.zeros((8, 8))
        found[upper] = x
        return np.triu(found, 1).T + found

    def value(x: Any) -> Any:
        return CRITERIA[criterion](*_factored(matrix(x), Y[:8]))[0]  # type: ignore[misc]

    def slope(x: Any) -> Any:
        found = CRITERIA[criterion](*_factored(matrix(x), Y[:8]))[1]  # type: ignore[misc]
        return (found + found.T - np.diag(np.diag(found)))[upper]  # an entry off the diagonal counts twice

    assert check_grad(value, slope, A[upper]) < 1e-5 * np.linalg.norm(approx_fprime(A[upper], value))


def test_criteria_are_those_of_the_estimator() -> None:
    machine = learn.DEQKernelRegressor("erf", 0.3, 1.0, 0.2, "nngp", ridge=0.1, normalize="none").fit(X, Y)
    found = {c: tune(machine.model_, X, Y, 0.1, "nngp", c).before for c in CRITERIA}
    assert found["leave_one_out"] == pytest.approx(machine.leave_one_out_error_)
    assert found["marginal_likelihood"] == pytest.approx(-machine.log_marginal_likelihood_ / Y.size)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("phi", ["relu", "erf"])
def test_the_optimum_has_no_slope(criterion: str, phi: str) -> None:
    """At what was found, the criterion computed by the compiled engine is flat, or a variance is at its bound."""
    machine = learn.DEQKernelRegressor(phi, 0.3, 1.0, 0.2, "nngp", ridge=0.1, normalize="none", optimize=criterion)
    tuning = machine.fit(X, Y).tuning_
    assert tuning is not None
    assert tuning.after < tuning.before - 0.01
    assert tuning.evaluations <= 30
    assert machine.ridge_ == tuning.ridge
    assert machine.model_.well_posed.infinite_width

    def at(factor: float) -> float:
        plain = learn.DEQKernelRegressor(phi, tuning.recurrent, tuning.input * factor, tuning.bias, "nngp",
                                         ridge=tuning.ridge, normalize="none").fit(X, Y)  # fmt: skip
        error = plain.leave_one_out_error_
        return float(error if criterion == "leave_one_out" else -plain.log_marginal_likelihood_ / Y.size)

    assert at(1.0) == pytest.approx(tuning.after, rel=1e-6)
    assert min(at(1.3), at(1 / 1.3)) > tuning.after - 1e-3


def test_classes_weights_and_files(tmp_path: Path) -> None:
    labels = np.where(Y[:, 0] > 0, "up", "down")
    machine = learn.DEQKernelClassifier("relu", ridge=0.1, optimize="leave_one_out", kind="ntk")
    machine.fit(X, labels, sample_weight=np.linspace(1, 2, len(X)))
    again = learn.load(machine.save(tmp_path / "machine.npz"))
    assert again.model_ == machine.model_
    assert again.tuning_ == machine.tuning_
    assert np.array_equal(again.predict(X + 0.1), machine.predict(X + 0.1))


def test_many_rows_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notsodeep.learn.tuning._ROWS", 20)
    machine = learn.DEQKernelRegressor("relu", ridge=0.1, optimize="marginal_likelihood", kind="nngp").fit(X, Y)
    assert machine.tuning_.rows == 20
    assert len(machine.X_fit_) == 60


def test_what_is_refused() -> None:
    def fit(**options: Any) -> Any:
        return learn.DEQKernelRegressor("relu", **{"ridge": 0.1, **options}).fit(X, Y)

    with pytest.raises(InputError, match="leave_one_out"):
        fit(optimize="leave_one_ou")
    with pytest.raises(InputError, match="pass one number"):
        fit(optimize="leave_one_out", ridge="loo")
    with pytest.raises(InputError, match="leave out cell and depth"):
        fit(optimize="leave_one_out", depth=3)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from notsodeep.cli import main

    options = ["--optimize", "leave_one_out", "--limit", "150", "--ridge", "0.1", "--json"]
    with pytest.raises(SystemExit) as ended:
        main(["fit", "digits", "--out", str(tmp_path / "m.npz"), *options])
    assert not ended.value.code
    facts = json.loads(capsys.readouterr().out)
    assert facts["tuning"]["after"] < facts["tuning"]["before"]
    assert facts["model"]["recurrent"] == facts["tuning"]["recurrent"]
