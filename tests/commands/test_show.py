"""``notsodeep show``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.command_line import Run

import notsodeep as nsd


def test_show(run: Run, tmp_path: Path) -> None:
    path = nsd.DEQ("tanh", 0.3, 0.8).save(tmp_path / "deq.json")
    result = run("show", path)
    assert "DEQ(tanh(x), recurrent=0.3, input=0.8, bias=0)" in result.out
    assert "a finite network may have no unique equilibrium" in " ".join(result.out.split())
    assert run("show", path, "--json").json["well_posed"] is False


def test_show_of_a_single_layer(run: Run, tmp_path: Path) -> None:
    """``match.json`` holds what the command printed."""
    pytest.importorskip("matplotlib"), pytest.importorskip("plotly")
    words = ("--on", "sphere", "--kinks", 3, "--data", "digits", "--limit", 60)
    printed = run("match", *words, "--report", tmp_path / "out")
    file = tmp_path / "out" / "match.json"
    assert "relative distance" in printed.out
    assert printed.out.startswith(run("show", file).out)
    content = run("show", file, "--json").json
    assert content["on"] == "sphere"
    del content["network"]["activations"]
    file.write_text(json.dumps(content), encoding="utf-8")
    result = run("show", file)
    assert result.code == 2
    assert "is damaged: its match is incomplete" in result.err


def test_show_of_a_match_of_version_0_1(run: Run) -> None:
    """Written by ``notsodeep match --data digits --limit 40 --no-train --report`` of version 0.1.0."""
    file = Path(__file__).parent / "files" / "match-0.1.json"
    result = run("show", file)
    assert result.code == 0
    for words in ("digits: 40 samples", "exact in all four numbers", "0.0213 %", "plain tanh"):
        assert words in " ".join(result.out.split())
    assert run("show", file, "--json").json == json.loads(file.read_text(encoding="utf-8"))
