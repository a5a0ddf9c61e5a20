"""Kernels of a DEQ and of explicit networks measured on data, and the forecast of their accuracy."""

from __future__ import annotations

import json

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import data
from notsodeep.study import Study, comparable, kernels

RNG = np.random.default_rng(0)
DEQ = nsd.DEQ("relu", 0.2, 0.8)


def mixture(n: int, p: int, shift: float = 1.5) -> data.Data:
    means = np.zeros((2, p))
    means[:, 0] = shift, -shift
    X, y = nsd.Mixture(means, covariances=[1.0, 1.1], proportions=[0.5, 0.5]).sample(n, seed=0)
    return data.Data("mixture", X, y)


@pytest.mark.parametrize(("kind", "explicit"), [("ck", "ck"), ("nngp", "ck"), ("ntk", "ntk")])
def test_distances_of_exact_kernels(kind: str, explicit: str) -> None:
    match = nsd.match(DEQ, tau0=0.8, kind=kind)
    found = Study.of(match, data.Data("noise", 3 + RNG.normal(size=(40, 50))), progress=False)
    X = found.data.X
    assert np.abs(X.mean(axis=0)).max() < 1e-12
    assert np.mean(np.sum(X**2, axis=1)) == pytest.approx(0.64)
    exact = DEQ.centered(0.8).kernel(X, kind=kind)
    np.testing.assert_array_equal(found.kernel, exact)
    plain = nsd.Explicit(["tanh"] * match.depth).centered(0.8)
    for entry, network in ((found.matched, match.network), (found.baselines[1], plain)):
        gap = exact - network.kernel(X, kind=explicit)
        assert entry.error == pytest.approx(np.linalg.norm(gap, 2) / np.linalg.norm(exact, 2), rel=1e-6)
        assert entry.rescaled_error <= entry.error
    assert [entry.name for entry in found.closeness] == ["matched", "plain relu", "plain tanh"]


def test_a_gaussian_cloud_where_there_is_no_data() -> None:
    found = Study.of(nsd.match(DEQ, tau0=1.7), progress=False)
    assert found.normalize is None
    assert np.mean(np.sum(found.data.X**2, axis=1)) == pytest.approx(1.7**2, rel=0.02)
    assert json.loads(json.dumps(found.to_dict()))["data"]["name"] == "Gaussian cloud, τ0 = 1.7"


def test_the_cloud_of_a_deep_cell_is_smaller() -> None:
    """So that a file with a hundred layers is answered in seconds."""
    rows = []
    for depth in (1, 7, 8, 100):
        cell = nsd.DeepDEQ([nsd.Layer("relu", recurrent=0.5, input=0.8)] * depth)
        rows.append(len(Study.of(nsd.match(cell, tau0=1.0), progress=False).data.X))
    assert rows == [400, 400, 200, 100]


def test_only_a_deq_is_studied() -> None:
    compressed = nsd.match(nsd.Explicit(["relu"] * 3), tau0=1.0)
    with pytest.raises(nsd.InputError, match="is not a DEQ"):
        Study.of(compressed)


def test_a_cell_is_studied_too() -> None:
    layers = [nsd.Layer("relu", recurrent=0.3, input=0.7), nsd.Layer("tanh", recurrent=0.4, input=0.4)]
    found = Study.of(nsd.match(nsd.DeepDEQ(layers), tau0=1.0), mixture(200, 250), progress=False)
    assert found.matched.error < 0.2 * min(entry.error for entry in found.baselines)
    assert not comparable(found)  # no equilibrium is sure at finite width


def test_progress_names_every_kernel() -> None:
    calls: list[tuple[int, int]] = []
    Study.of(nsd.match(DEQ, tau0=1.0), mixture(30, 20), progress=lambda *call: calls.append(call))
    assert sum(done == total for done, total in calls) >= 4  # one implicit and three explicit networks


def test_both_parts_have_the_scale_of_the_match() -> None:
    X = np.random.default_rng(0).normal(size=(60, 40))
    whole = data.Data("drawn", X[:40], X_test=X[40:])
    used = Study.of(nsd.match(DEQ, tau0=2.0), whole, progress=False).data
    scale = np.sqrt(np.mean(np.sum((X[:40] - X[:40].mean(axis=0)) ** 2, axis=1)))
    np.testing.assert_allclose(np.mean(np.sum(used.X**2, axis=1)), 4)
    np.testing.assert_allclose(used.X_test, 2 * (X[40:] - X[:40].mean(axis=0)) / scale)


@pytest.mark.parametrize("p", [120, 310])
def test_the_forecast_is_checked_and_equal_for_a_matched_network(p: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with one spectrum for all classes, as for many features."""
    monkeypatch.setattr(kernels, "_RIDGES", np.array([0.1, 1.0]))
    found = Study.of(nsd.match(DEQ, tau0=1.0), mixture(320, p), progress=False)
    outlook = found.outlook
    assert outlook.obstacle == ""
    assert outlook.implicit is not None
    assert outlook.explicit is not None
    np.testing.assert_allclose(outlook.implicit.accuracy, outlook.explicit.accuracy, atol=1e-6)
    for one in (outlook.implicit, outlook.explicit):
        assert one.check is not None
        assert np.abs(one.check.predicted - one.check.measured).max() < 4 * one.check.error.max()
    np.testing.assert_allclose(outlook.implicit.ridge, found.match.target.d * np.array([0.1, 1.0]))
    assert json.loads(json.dumps(outlook.to_dict()))["implicit"]["n"] == [320, 320]


@pytest.mark.parametrize(
    ("X", "labels", "obstacle"),
    [
        (RNG.normal(size=(40, 120)), None, "the data has no labels"),
        (RNG.normal(size=(40, 10)), np.arange(40) % 2, "outside the theory: the noise has an effective dimension"),
        (RNG.normal(size=(40, 120)), np.arange(40) // 39, "class 1 has 1 sample"),
        (RNG.normal(size=(40, 120)), np.zeros(40), "one class only"),
    ],
)
def test_where_there_is_no_forecast_one_line_says_why(X: np.ndarray, labels: np.ndarray | None, obstacle: str) -> None:
    outlook = Study.of(nsd.match(DEQ, tau0=1.0), data.Data("d", X, labels), progress=False).outlook
    assert obstacle in outlook.obstacle
    assert "\n" not in outlook.obstacle
    assert outlook.implicit is outlook.explicit is None
