"""``notsodeep forecast``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.command_line import Run

import notsodeep as nsd

RELU = nsd.DEQ("relu", recurrent=0.2, input=0.8)


@pytest.fixture
def file(tmp_path):
    means = np.zeros((2, 400))
    means[:, 0] = 2, -2
    (tmp_path / "mixture.json").write_text(json.dumps({"means": means.tolist(), "covariances": [1, 1.0]}))
    return tmp_path / "mixture.json"


MODEL = ("--activation", "relu", "--recurrent", 0.2, "--input", 0.8)


def test_command(run: Run, file):
    content = run("forecast", *MODEL, "--mixture", file, "--n", 600, "--ridge", 0.05, "--json").json
    assert content["accuracy"] == pytest.approx(0.948, abs=5e-4)
    assert content["model"]["recurrent"] == 0.2
    assert np.shape(content["covariances"]) == (2, 2, 2)
    result = run("forecast", *MODEL, "--mixture", file, "--n", 600, "--ridge", 0.05)
    assert "94.75 % of new samples" in result.out
    assert "2 classes × 400 features" in result.out
    assert result.err == ""


def test_command_prints_curves(run: Run, file):
    out = run("forecast", "--mixture", file, "--n", 300, "--n", 600, "--ridge", 0.05, "--ridge", 1).out
    assert sum(line.count("%") for line in out.splitlines()) == 8
    best = run("forecast", "--mixture", file, "--n", 600, "--json").json
    assert best["accuracy"] > 0.948
    assert run("forecast", "--mixture", file, "--n", 300, "--n", 600, "--json").json["n"] == [300, 600]


def test_command_takes_a_width(run: Run, file, tmp_path):
    result = run("forecast", "--mixture", file, "--n", 600, "--ridge", 0.05, "--width", 600)
    assert "readout at width 600" in result.out
    network = nsd.match(RELU, tau0=1.0).network.save(tmp_path / "network.json")
    options = ("--mixture", file, "--n", 600, "--ridge", 0.05, "--json")
    content = run("forecast", "--cell", network, *options, "--width", 500, "--width", 10**7).json
    assert content["width"] == [500, 10**7]
    assert content["accuracy"] < run("forecast", "--cell", network, *options).json["accuracy"] - 1e-3


def test_command_takes_networks_and_data(run: Run, file, tmp_path):
    network = nsd.match(RELU, tau0=1.0).network.save(tmp_path / "network.json")
    content = run("forecast", "--cell", network, "--mixture", file, "--n", 600, "--ridge", 0.05, "--json").json
    assert content["accuracy"] == pytest.approx(0.948, abs=5e-4)
    result = run("forecast", "--data", "digits", "--limit", 500, "--activation", "tanh", "--ridge", 1)
    assert "check      predicted" in result.out
    assert "outside    the theory: the noise has an effective dimension" in result.out
    assert result.err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "pass either --mixture file.json or --data"),
        (("--mixture", "none.json", "--n", 10), "mixture='none.json' does not exist"),
        (("--mixture", "FILE"), "n is missing; pass --n"),
        (("--mixture", "FILE", "--n", 10, "--ridge", "some"), "ridge='some' must be numbers, or best alone"),
        (("--mixture", "FILE", "--n", 10, "--ridge", -1), "may be indefinite; pass ridge >"),
        (("--mixture", "FILE", "--n", 1), "n=1 leaves"),
    ],
)
def test_command_refuses(run: Run, file, arguments, message):
    result = run("forecast", *(file if one == "FILE" else one for one in arguments))
    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1
