"""``notsodeep fit`` and ``notsodeep predict``.

Also covers: commands/predict.py.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command_line import Run

from notsodeep.learn import load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Labelled samples with a test part."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 4))
    y = np.where(X[:, 0] > 0, "right", "left")
    np.savez(tmp_path / "file.npz", X=X[:90], y=y[:90], X_test=X[90:], y_test=y[90:])
    return tmp_path / "file.npz"


def test_fit_and_predict(run: Run, file: Path, tmp_path: Path) -> None:
    model, answers = tmp_path / "model.npz", tmp_path / "answers.csv"
    code, out, err = run("fit", file, "--out", model, "--ridge", "0.001,0.1,1", "--normalize", "center", "--json")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary["ridge"] in (0.001, 0.1, 1)
    assert summary["test_samples"] == 30
    assert summary["test_accuracy"] > 0.8
    assert summary["residual"] < 1e-8
    code, out, _ = run("predict", model, file, "--out", answers, "--proba")
    assert code == 0
    assert "test part: 30 samples" in out
    with answers.open(encoding="utf-8") as lines:
        rows = list(csv.reader(lines))
    assert rows[0] == ["prediction", "probability of left", "probability of right"]
    machine, X = load(model), np.load(file)["X_test"]
    assert [row[0] for row in rows[1:]] == list(machine.predict(X))
    np.testing.assert_allclose(np.array(rows[1:])[:, 1:].astype(float), machine.predict_proba(X), rtol=1e-12)
    content = json.loads(run("predict", model, file, "--json", "--limit", "5")[1])
    assert len(content["predictions"]) == 5
    assert 0 <= content["accuracy"] <= 1


def test_for_people(run: Run, tmp_path: Path) -> None:
    code, out, err = run("fit", "digits", "--limit", 300, "--test-share", "0.2", "--out", tmp_path / "m.npz")
    assert (code, err) == (0, "")
    for words in ("ntk_injected of DEQ(1.41421·relu(x)", "240 distinct", "test       accuracy 0.9"):
        assert words in out


def test_a_score_on_rows_of_the_fit_is_not_sold_as_an_estimate(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 4)), rng.integers(0, 2, 60)  # nothing to learn, so all is learnt by heart
    np.savez(tmp_path / "all.npz", X=X, y=y)
    np.savez(tmp_path / "part.npz", X=X[:40], y=y[:40])
    np.savez(tmp_path / "new.npz", X=X[40:], y=y[40:])
    for normalize in ("unit", "center", "none"):
        run(
            "fit",
            tmp_path / "part.npz",
            "--out",
            tmp_path / "m.npz",
            "--ridge",
            "0",
            "--normalize",
            normalize,
            "--force",
        )
        _, out, _ = run("predict", tmp_path / "m.npz", tmp_path / "part.npz")
        assert "accuracy 1.0000 on the rows it was fitted to" in out
        _, out, _ = run("predict", tmp_path / "m.npz", tmp_path / "all.npz")
        assert "40 of the 60 rows are among those it was fitted to, 0." in " ".join(out.split())
        content = json.loads(run("predict", tmp_path / "m.npz", tmp_path / "all.npz", "--json")[1])
        fresh = json.loads(run("predict", tmp_path / "m.npz", tmp_path / "new.npz", "--json")[1])
        assert (content["fitted_samples"], fresh["fitted_samples"]) == (40, 0)
        assert content["accuracy_of_others"] == fresh["accuracy"] < 0.9
        assert content["accuracy"] == pytest.approx((40 + 20 * fresh["accuracy"]) / 60)
    assert "fitted" not in run("predict", tmp_path / "m.npz", tmp_path / "new.npz")[1]


def test_regression(run: Run, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 50)
    table = "\n".join(["a,b,target", *(f"{v},{v**2},{np.sin(3 * v)}" for v in x)])
    (tmp_path / "table.csv").write_text(table)
    options = ("--task", "regress", "--kind", "nngp", "--normalize", "center", "--json")
    summary = json.loads(run("fit", tmp_path / "table.csv", "--out", tmp_path / "m.npz", *options)[1])
    assert summary["leave_one_out_error"] < 0.01
    assert json.loads(run("predict", tmp_path / "m.npz", tmp_path / "table.csv", "--json")[1])["r2"] > 0.99
    assert run("predict", tmp_path / "m.npz", tmp_path / "table.csv", "--proba")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--task", "clasify"), "did you mean 'classify'"),
        (("--ridge", "much"), "must be a number"),
        (("--activation", "rellu"), "did you mean 'relu'"),
        (("--test-share", "1"), "must lie between 0 and 1"),
        (("--task", "regress"), "labels that are not numbers"),
    ],
)
def test_bad_options(run: Run, file: Path, tmp_path: Path, arguments: tuple[Any, ...], message: str) -> None:
    code, out, err = run("fit", file, "--out", tmp_path / "m.npz", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file.npz"]


def test_bad_files(run: Run, file: Path, tmp_path: Path) -> None:
    assert "is not a model written by notsodeep" in run("predict", file, file)[2]
    assert "must end in .npz" in run("fit", file, "--out", tmp_path / "m.pkl")[2]
    np.save(tmp_path / "bare.npy", np.ones((3, 2)))
    assert "has no labels" in run("fit", tmp_path / "bare.npy", "--out", tmp_path / "m.npz")[2]


def test_what_is_not_known_is_null(run: Run, file: Path, tmp_path: Path) -> None:
    code, out, _ = run("fit", file, "--out", tmp_path / "m.npz", "--solver", "nystrom", "--json")
    assert code == 0
    assert json.loads(out)["condition"] is None


def test_labels_are_compared_by_what_they_mean(run: Run, tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((40, 3))
    np.savez(tmp_path / "train.npz", X=X, y=(X[:, 0] > 0).astype(int))
    lines = [",".join(map(str, [*row, float(row[0] > 0)])) for row in X]
    (tmp_path / "test.csv").write_text("\n".join(["a,b,c,label", *lines]))
    run("fit", tmp_path / "train.npz", "--out", tmp_path / "m.npz")
    _, out, _ = run("predict", tmp_path / "m.npz", tmp_path / "test.csv", "--json")
    assert json.loads(out)["accuracy"] > 0.9
    code, _, err = run("predict", tmp_path / "m.npz", "digits")
    assert code == 2
    assert "64 features a sample, but" in err


def test_out_of_core(run: Run, file: Path, tmp_path: Path) -> None:
    arguments = ("fit", file, "--solver", "out_of_core", "--directory", tmp_path / "work", "--json")
    code, out, _ = run(*arguments, "--out", tmp_path / "m.npz")
    assert code == 0
    assert "out of core" in json.loads(out)["reason"]
    assert (tmp_path / "work" / "factor.zarr").is_dir()
    run("fit", file, "--out", tmp_path / "inside.npz")
    rows = np.load(file)["X_test"]
    np.testing.assert_allclose(
        load(tmp_path / "m.npz").decision_function(rows),
        load(tmp_path / "inside.npz").decision_function(rows),
        rtol=1e-9,
        atol=1e-9,
    )
    code, _, err = run("fit", file, "--solver", "out_of_core", "--out", tmp_path / "no.npz")
    assert code == 2
    assert "needs a directory" in err
