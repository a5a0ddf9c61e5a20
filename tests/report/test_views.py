"""The arrays behind the pictures of a report, against numbers obtained in another way."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import data
from notsodeep.report import views
from notsodeep.study import Study

RNG = np.random.default_rng(0)


def study(found: data.Data, name: str = "relu", tau0: float = 1.0) -> Study:
    return Study.of(nsd.match(nsd.DEQ(name, 0.2, 0.8), tau0=tau0), found)


@pytest.fixture(scope="module")
def digits() -> Study:
    return study(data.subsample(data.load("digits"), 150))


@pytest.fixture(scope="module")
def unlabelled() -> Study:
    return study(data.Data("noise", RNG.normal(size=(50, 60))), "tanh", tau0=0.7)


def test_activations_lie_over_the_density_of_their_input(unlabelled: Study) -> None:
    """By Monte Carlo through the layers, and by iterating the variance of the DEQ."""
    first, *layers = views.activations(unlabelled)
    assert (first.color, {layer.color for layer in layers}) == ("implicit", {"explicit"})
    assert len(layers) == unlabelled.network.depth
    variance = 1.0
    for _ in range(200):  # the fixed point of q = σ_a² E[φ(√q ξ)²] + σ_b² τ0²
        samples = math.sqrt(variance) * np.random.default_rng(1).normal(size=200_000)
        variance = 0.2 * float(np.mean(np.tanh(samples) ** 2)) + 0.8 * 0.7**2
    widths = [math.sqrt(variance), 0.7]
    for panel, width in zip((first, layers[0]), widths, strict=True):
        assert panel.x[-1] == pytest.approx(4 * width, rel=5e-3)
        np.testing.assert_allclose(panel.y, panel.activation(panel.x))
        assert panel.density[200] == panel.density.max() == 1
        assert panel.density[-1] == pytest.approx(math.exp(-8))


def test_shares_of_eigenvalues_and_of_the_law(digits: Study) -> None:
    bins = views.histogram(digits)
    n = len(digits.kernel)
    for shares, kernel in ((bins.implicit, digits.kernel), (bins.explicit, digits.matched.kernel)):
        values = np.linalg.eigvalsh(kernel)
        inside = (values >= bins.edges[0]) & (values <= bins.edges[-1])
        assert shares.sum() == pytest.approx(inside.mean())
        place = np.searchsorted(bins.edges, values[-1]) - 1
        assert shares[place] >= 1 / n
    assert bins.limit.sum() == pytest.approx(1, abs=1e-4)  # all of it, by quadrature
    assert bins.limit.min() >= 0
    assert bins.floor == 0.5 / n
    assert bins.ceiling > bins.implicit.max()


def test_eigenvalues(digits: Study) -> None:
    implicit, explicit, equivalent = (values[-5:] for values in views.eigenvalues(digits))
    np.testing.assert_allclose(implicit, np.linalg.eigvalsh(digits.kernel)[-5:])
    np.testing.assert_allclose(explicit, np.linalg.eigvalsh(digits.matched.kernel)[-5:])
    dense = nsd.equivalent(digits.deq, digits.data.X, digits.statistics).dense()
    np.testing.assert_allclose(equivalent, np.linalg.eigvalsh(dense)[-5:], rtol=1e-6)


def test_heat_maps_are_sorted_by_label(digits: Study) -> None:
    maps = views.heat_maps(digits, 40)
    assert maps.labels is not None
    assert list(maps.labels) == sorted(maps.labels)
    np.testing.assert_allclose(maps.difference, maps.factor * (maps.explicit - maps.implicit))
    off_diagonal = np.abs(maps.implicit[~np.eye(40, dtype=bool)])
    assert np.mean(off_diagonal <= maps.bound) == pytest.approx(0.995, abs=2e-3)
    for place, name in maps.ticks.items():
        assert str(maps.labels[round(place)]) == name
    assert list(maps.ticks.values()) == [str(name) for name in np.unique(maps.labels)]


def test_ticks_are_short_and_few(digits: Study) -> None:
    maps = views.heat_maps(digits, 26)
    named = dataclasses.replace(maps, labels=np.array(["a" * 16] * 13 + ["b" * 17] * 13))
    assert named.ticks == {6.0: "a" * 16, 19.0: "b" * 15 + "…"}
    assert dataclasses.replace(maps, labels=np.arange(26) // 2).ticks == {}  # 13 classes
    assert dataclasses.replace(maps, labels=None).ticks == {}


def test_a_perfect_network_has_no_difference(unlabelled: Study) -> None:
    same = dataclasses.replace(unlabelled.matched, kernel=unlabelled.kernel)
    maps = views.heat_maps(dataclasses.replace(unlabelled, matched=same))
    assert maps.factor == 1
    assert not maps.difference.any()


def test_pairs_are_different_samples_and_named(digits: Study) -> None:
    found = views.pairs(digits, 30)
    labels = digits.data.labels
    assert labels is not None
    for place, name in enumerate(found.names):
        first, second = (part.partition(" (label ") for part in name.split(" and "))
        a, b = int(first[0]), int(second[0])
        assert a != b
        assert (first[2], second[2]) == (f"{labels[a]})", f"{labels[b]})")
        assert found.implicit[place] == digits.kernel[a, b]
        for values, entry in zip(found.explicit, digits.closeness, strict=True):
            assert values[place] == entry.kernel[a, b]
    everything = np.concatenate([found.implicit, *found.explicit])
    assert found.limits[0] < everything.min() < everything.max() < found.limits[1]


def test_all_pairs_where_they_are_few(unlabelled: Study) -> None:
    found = views.pairs(unlabelled, 10**6)
    expected = {f"{a} and {b}" for a, b in itertools.combinations(range(50), 2)}
    assert set(found.names) == expected
    assert len(found.names) == len(expected)


@pytest.mark.parametrize(("p", "told"), [(10, True), (20, False)])
def test_few_features_are_told(p: int, told: bool) -> None:
    found = study(data.Data("thin", RNG.normal(size=(60, p))))
    assert views.few_features(found) == (
        "p/n = 0.17 is small: only the large eigenvalues follow the theory" if told else ""
    )


def test_forecasts_beside_what_is_measured(digits: Study, unlabelled: Study) -> None:
    assert views.checks(unlabelled) == {}  # no labels
    assert views.checks(digits) == {}  # outside the theory
    means = np.zeros((2, 120))
    means[:, 0] = 1.5, -1.5
    X, y = nsd.Mixture(means, covariances=[1.0, 1.1], proportions=[0.5, 0.5]).sample(240, seed=0)
    found = study(data.Data("mixture", X, y))
    checks = views.checks(found)
    implicit, explicit = checks["implicit"], checks["explicit"]
    assert (implicit.n, implicit.tests) == (180, 60)
    forecast = found.outlook.implicit
    assert forecast is not None
    np.testing.assert_array_equal(implicit.ridge, forecast.ridge)
    np.testing.assert_allclose(implicit.predicted, explicit.predicted, atol=1e-5)  # they share the four numbers
    p = implicit.measured
    np.testing.assert_allclose(implicit.error, np.sqrt(np.maximum(p * (1 - p), 1 / 60) / 60))
