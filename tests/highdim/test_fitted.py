"""Forecasts from data, and mixtures in files.

Also covers: highdim/mixture_file.py.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests import forecast_oracle as oracle

import notsodeep as nsd
from notsodeep.highdim.fitted import COVARIANCES, LabelledRows, fit

RELU = nsd.DEQ("relu", recurrent=0.2, input=0.8)


@pytest.fixture(scope="module")
def drawn():
    mixture, settings = oracle.random_mixture(8, 200)  # four classes, full covariances
    assert settings["shape"] == "full"
    return mixture, *mixture.sample(900, seed=5)


# --- estimates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_data_forecasts_what_its_mixture_does(drawn, covariance):
    mixture, X, labels = drawn
    sizes = [300, 900, 3000]
    known = nsd.forecast(RELU, mixture, n=sizes, ridge=0.05)
    found = nsd.forecast(RELU, X=X, y=labels, n=sizes, ridge=0.05, covariance=covariance)
    np.testing.assert_allclose(found.accuracy, known.accuracy, atol=0.025)
    assert found.check.n + found.check.tests == 900
    assert abs(found.check.predicted - found.check.measured) < 4 * found.check.error
    assert found.check.ridge == [0.05]


def test_averages_are_freed_of_their_noise(drawn):
    """Noise lengthens class averages; the forms of the means must not see it, on average over samples."""
    mixture = drawn[0]
    true = mixture.population.resolve(0.5, np.full(4, 0.4)).forms
    naive, found = np.zeros((4, 4)), np.zeros((4, 4))
    for seed in range(6):
        stats, population = fit(LabelledRows.of(*mixture.sample(600, seed=seed)), "oas")
        naive += population.base.resolve(0.5, np.full(4, 0.4)).forms / 6
        found += population.resolve(0.5, np.full(4, 0.4)).forms / 6
        assert np.linalg.eigvalsh(population.mean_products()).min() >= -1e-15
        assert stats.tau0 == pytest.approx(mixture.statistics().tau0, rel=0.01)
    assert np.trace(naive) > 1.12 * np.trace(true)
    assert np.trace(found) == pytest.approx(np.trace(true), rel=0.03)
    np.testing.assert_allclose(population.mean_products(), mixture.means @ mixture.means.T / 200, atol=0.015)


def test_labels_may_be_words_and_n_the_data(drawn):
    _, X, labels = drawn
    names = np.array(["ash", "beech", "cedar", "douglas fir"])[labels]
    found = nsd.forecast(RELU, X=X, y=names, ridge=0.05, holdout=0)
    assert found.n == 900
    assert found.check is None
    assert found.classes.tolist() == ["ash", "beech", "cedar", "douglas fir"]
    assert found.to_dict()["classes"][3] == "douglas fir"


def test_a_check_covers_every_ridge_and_is_written_down(drawn):
    _, X, labels = drawn
    found = nsd.forecast(RELU, X=X, y=labels, ridge=[0.01, 1.0], holdout=0.4, seed=3)
    check = found.check
    assert check.measured.shape == check.predicted.shape == (2,)
    assert check.tests == pytest.approx(360, abs=4)
    assert check.to_dict()["ridge"] == [0.01, 1.0]
    assert "held-out samples (n=" in str(check)
    again = nsd.forecast(RELU, X=X, y=labels, ridge=[0.01, 1.0], holdout=0.4, seed=3).check
    assert (again.measured == check.measured).all()


def test_a_measured_accuracy_is_that_of_the_exact_kernel(drawn):
    """The check's own kernel machine against the oracle's way of solving."""
    _, X, labels = drawn
    check = nsd.forecast(RELU, X=X, y=labels, ridge=0.3).check
    from notsodeep.highdim.fitted import _exact

    train, test = LabelledRows.of(X[::2], labels[::2]), LabelledRows.of(X[1::2], labels[1::2])
    exact = RELU.centered(1.0)
    alpha = np.linalg.solve(exact.kernel(train.X) + 0.3 * np.eye(len(train.X)), np.eye(4)[train.labels])
    expected = np.mean((exact.kernel(test.X, train.X) @ alpha).argmax(axis=1) == test.labels)
    assert _exact(exact, train, test, np.eye(4), "ck", np.array([0.3])) == [expected]
    assert 0 < check.error[0] < 0.1


def test_real_images_are_said_to_be_outside():
    from notsodeep import data

    digits = data.load("digits")
    with pytest.warns(nsd.AssumptionWarning, match="this data is outside the theory: the noise has an effective dim"):
        found = nsd.forecast(RELU, X=data.prepare(digits.X), y=digits.labels, ridge=0.1)
    assert len(found.outside) == 3
    assert found.check.measured > 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": [0, 1]}, r"y has shape \(2,\) but X has 40 samples"),
        ({"y": np.zeros(40)}, "y holds one class only"),
        ({"y": np.r_[np.zeros(39), 1]}, r"class 1\.0 has 1 sample in y"),
        ({"covariance": "ledoit"}, "covariance='ledoit' is not known; did you mean 'ledoit-wolf'"),
        ({"holdout": 0.001}, "holdout=0.001 holds out none of the 40 samples; pass more, or 0"),
        ({"holdout": 1.5}, "holdout=1.5 must lie between 0 and 1"),
        ({"y": [0, 1, *([2] * 38)], "holdout": 0.6}, "class 0 has 1 sample in y"),
        ({"y": [0, 1, 0, 1, *([2] * 36)], "holdout": 0.6}, "holdout=0.6 leaves fewer than 2 samples of class 0"),
        ({"holdout": -0.5}, "holdout=-0.5 must lie between 0 and 1"),
        ({"X": np.full((40, 10), np.nan)}, "X holds 400 NaN"),
    ],
)
def test_bad_data_is_one_clear_line(options, message):
    X = np.random.default_rng(0).standard_normal((40, 10))
    arguments = {"X": X, "y": np.arange(40) % 2, "ridge": 0.1, **options}
    with pytest.raises(nsd.InputError, match=message):
        nsd.forecast(RELU, **arguments)


# --- files ----------------------------------------------------------------------------------------------------


def test_mixtures_survive_a_file(tmp_path):
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((5, 5))
    mixture = nsd.Mixture(rng.standard_normal((3, 5)), [2.0, rng.random(5), factor @ factor.T], [0.2, 0.3, 0.5])
    read = nsd.load_mixture(mixture.save(tmp_path / "mixture.json"))
    np.testing.assert_array_equal(read.means, mixture.means)
    np.testing.assert_array_equal(read.proportions, mixture.proportions)
    for one, two in zip(read.covariances, mixture.covariances, strict=True):
        np.testing.assert_array_equal(one, two)
    assert json.loads((tmp_path / "mixture.json").read_text())["covariances"][0] == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["mixture.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a readable JSON file"),
        ("[" * 100_000, "is not a readable JSON file"),
        ("[1]", "must hold an object with means, covariances, proportions"),
        ('{"covariances": [1]}', "lacks 'means', a list with one entry per class"),
        ('{"means": [[0, 0]], "covariance": [1]}', "has an entry 'covariance'; did you mean 'covariances'"),
        ('{"means": [[0, 0]], "covariances": 1}', "lacks 'covariances', a list"),
        ('{"means": [[0, 0], [0]], "covariances": [1, 1]}', "lists of unequal lengths"),
        ('{"means": [[0, 0]], "covariances": [[[1, 2], [2, 1]]]}', r"covariances\[0\] is not positive semi-definite"),
        ('{"means": [[0, 0]], "covariances": [[-1, 1]]}', "holds negative variances"),
        ('{"means": [["a", 0]], "covariances": [1]}', "means"),
        ('{"means": [[NaN, 0]], "covariances": [1]}', "means holds 1 NaN"),
        ('{"means": [[0, 0]], "covariances": [1], "proportions": [2]}', "must be positive and sum to 1"),
        (
            '{"means": [[0], [0]], "covariances": [1, 1], "proportions": [1e308, 1e308]}',
            "must be positive and sum to 1",
        ),
        (
            '{"means": [[0, 0]], "covariances": [[[1e308, 1e308], [-1e308, 1e308]]]}',
            r"covariances\[0\] is not symmetric",
        ),
        ('{"means": [[1e308, 0]], "covariances": [1]}', "means holds a number out of range, 1e\\+308"),
    ],
)
def test_damaged_files_are_one_clear_line(tmp_path, text, message):
    path = tmp_path / "mixture.json"
    path.write_text(text)
    with pytest.raises(nsd.InputError, match=message) as caught:
        nsd.load_mixture(path)
    assert "\n" not in str(caught.value)
    assert "mixture.json" in str(caught.value)


def test_files_are_bounded(tmp_path, monkeypatch):
    from notsodeep.highdim import mixture_file

    monkeypatch.setattr(mixture_file, "_LARGEST", 10)
    path = oracle.two_classes(4, 1, [1.0, 1.0]).save(tmp_path / "mixture.json")
    with pytest.raises(nsd.InputError, match="more than 0 MiB"):
        nsd.load_mixture(path)
    with pytest.raises(nsd.InputError, match="does not exist"):
        nsd.load_mixture(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"means": [[0.0, 0.0]] * 101}, "has 101 classes; at most 100 are possible"),
        ({"means": [[1e308, 0.0], [0.0, 0.0]]}, "means holds a number out of range"),
        ({"covariances": [1e-300, 1e300]}, "covariances holds a number out of range"),
        ({"means": [[1e20, 0.0], [0.0, 0.0]]}, "beside deviations of at most 1; scale the means down"),
    ],
)
def test_a_file_asks_for_nothing_that_has_no_digits_or_no_end(change, message, tmp_path):
    content = {"means": [[0.0, 1.0], [1.0, 0.0]], "covariances": [1.0, 1.0], **change}
    (tmp_path / "mixture.json").write_text(json.dumps(content))
    with pytest.raises(nsd.InputError, match=message):
        nsd.load_mixture(tmp_path / "mixture.json")
    with pytest.raises(nsd.InputError, match="at most 100 classes, not 101"):
        nsd.Mixture([[0.0]] * 101, [1.0] * 101, [1 / 101] * 101).save(tmp_path / "many.json")
