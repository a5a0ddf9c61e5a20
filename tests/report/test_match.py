"""The report of a match, written from Python.

Also covers: report/folder.py, report/pictures.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import data
from notsodeep.report import pictures
from notsodeep.study import kernels

pytest.importorskip("matplotlib")
pytest.importorskip("plotly")

MATCH = nsd.match(nsd.DEQ("tanh", 0.2, 0.8), tau0=0.9)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 50)), np.repeat(["<b>a</b>", "$b_{"], 20)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are looked at elsewhere; here their files only exist."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, file, **__: file.write(b"drawn"))
    monkeypatch.setattr(kernels, "_GAUSSIAN", (30, 40))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_arrays_with_labels(tmp_path: Path) -> None:
    found = MATCH.report(tmp_path / "out", X, Y, train=False)
    assert found.page == tmp_path / "out" / "index.html"
    assert not found.replaced
    assert json.loads((tmp_path / "out" / "match.json").read_text(encoding="utf-8")) == found.content
    rows = "centred, and scaled to mean ‖x‖² = τ0², τ0 = 0.9"
    facts = {"name": "your data", "prepared": True, "rows": rows, "samples": 40, "features": 50, "classes": 2}
    assert found.content["data"] == facts
    assert nsd.load_model(tmp_path / "out" / "network.json") == MATCH.network
    drawn = {f"{name}.{kind}" for name in pictures.NAMES if name != "training" for kind in ("png", "svg")}
    assert names(tmp_path / "out") == drawn | {"index.html", "match.json", "network.json"}
    page = found.page.read_text(encoding="utf-8")
    assert "X = 0.9 * data.prepare(" in page
    assert "<b>a</b>" not in page
    assert MATCH.report(tmp_path / "out", X, train=False).replaced


@pytest.mark.parametrize("source", ["digits", data.load("digits")], ids=["name", "data"])
def test_data_sets(source: str | data.Data, tmp_path: Path) -> None:
    found = MATCH.report(str(tmp_path / "out"), source, limit=30, train=False)
    assert found.content["data"]["samples"] == 30
    assert ("data.load(&quot;digits&quot;)" in found.page.read_text(encoding="utf-8")) is (source == "digits")


def test_without_data_and_with_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = MATCH.report(tmp_path / "out", progress=True)
    assert found.content["data"]["name"] == "Gaussian cloud, τ0 = 0.9"
    assert found.content["forecast"]["obstacle"] == "the data has no labels"
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "%" not in line] == [
        "report",
        *(f"kernel of the {name} network" for name in ("implicit", "matched", "plain relu", "plain tanh")),
        "forecast",
        "one hidden layer",
        "drawing",
    ]


def test_a_cell_of_two_layers(tmp_path: Path) -> None:
    layers = [nsd.Layer("relu", recurrent=0.3, input=0.7), nsd.Layer("tanh", recurrent=0.4, input=0.4)]
    match = nsd.match(nsd.DeepDEQ(layers), tau0=1.0)
    page = match.report(tmp_path / "out", X, Y).page.read_text(encoding="utf-8")
    assert "layer 2: " in page
    assert "implicit layer 2: φ₂" in page
    assert page.count('class="plot"') == 2 + match.depth + 3 + 3 + 2 + 3
    assert nsd.load_model(tmp_path / "out" / "network.json") == match.network


def test_both_networks_are_trained(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = MATCH.report(tmp_path / "out", X, Y)
    assert found.content["comparison"]["implicit"]["test_accuracy"] <= 1
    assert "training.png" in names(tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, Y[:-1]), r"y has shape \(39,\) but X has 40 samples"),
        (("digits", Y), "y belongs to an array X"),
        ((X[0],), "must have 2 dimensions"),
        (("dogits",), "did you mean 'digits'"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments: tuple[object, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(nsd.InputError, match=message):
        MATCH.report(tmp_path / "out", *arguments)
    assert names(tmp_path) == set()


def test_somebody_elses_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(nsd.InputError, match=r"such as 'thesis.tex'"):
        MATCH.report(tmp_path, X)
    assert names(tmp_path) == {"thesis.tex"}


def test_the_callers_pyplot_stays_as_it_is(tmp_path: Path) -> None:
    import matplotlib
    import matplotlib.pyplot as plt

    before = matplotlib.get_backend(), dict(matplotlib.rcParams), plt.get_fignums()
    MATCH.report(tmp_path / "out", X, train=False)
    assert (matplotlib.get_backend(), dict(matplotlib.rcParams), plt.get_fignums()) == before
