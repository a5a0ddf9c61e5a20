"""Training the implicit and the explicit network side by side."""

from __future__ import annotations

import json

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import data
from notsodeep.study import Study, comparable, compare

pytest.importorskip("torch")


def study(found: data.Data, recurrent: float = 0.2) -> Study:
    return Study.of(nsd.match(nsd.DEQ("relu", recurrent, 0.8), tau0=1.0), found)


@pytest.fixture(scope="module")
def digits() -> Study:
    return study(data.subsample(data.load("digits"), 400))


def test_both_networks_learn_and_the_explicit_one_is_cheaper(digits: Study) -> None:
    result = compare(digits, width=64, epochs=10)
    for network in (result.implicit, result.explicit):
        assert network.test_accuracy == network.curve[-1]
        assert network.test_accuracy > 0.5  # ten classes; chance is 0.1
        assert len(network.curve) == 10
    assert result.implicit.parameters == result.explicit.parameters  # σ_a A and W_2 have the same shape
    assert result.explicit.evaluations == 2
    assert result.implicit.evaluations > 3
    assert min(one.inference_ms for one in (result.implicit, result.explicit)) > 0
    content = json.loads(json.dumps(result.to_dict()))
    assert all(len(row) == len(content["columns"]) for row in content["rows"])


def test_a_cell_of_two_layers_is_trained_too() -> None:
    cell = nsd.DeepDEQ([nsd.Layer("relu", 0.2, 0.7), nsd.Layer("relu", 0.2, 0.4)])
    found = Study.of(nsd.match(cell, tau0=1.0), data.subsample(data.load("digits"), 400))
    assert comparable(found)
    result = compare(found, width=64, epochs=10)
    assert result.implicit.test_accuracy > 0.5
    assert result.implicit.evaluations > 6  # two layers in every iteration
    unsure = nsd.DeepDEQ([nsd.Layer("relu", 0.9, 0.7), nsd.Layer("relu", 0.9, 0.4)])
    assert not comparable(Study.of(nsd.match(unsure, tau0=1.0), found.data))


def test_the_same_seed_gives_the_same_networks(digits: Study) -> None:
    one, other = (compare(digits, width=16, epochs=2, seed=3) for _ in range(2))
    assert one.implicit.curve == other.implicit.curve
    assert one.explicit.curve == other.explicit.curve


def test_what_cannot_be_compared(digits: Study) -> None:
    assert comparable(digits)
    rng = np.random.default_rng(0)
    unlabelled = data.Data("noise", rng.normal(size=(30, 40)))
    plain = study(unlabelled)
    assert not comparable(plain)
    with pytest.raises(nsd.InputError, match="has no labels"):
        compare(plain)
    labelled = data.Data("noise", unlabelled.X, np.arange(30) % 2)
    assert not comparable(study(labelled, recurrent=0.3))  # no equilibrium is sure at finite width
