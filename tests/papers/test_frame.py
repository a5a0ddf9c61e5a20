"""The frame of the reproductions: resuming, atomic files, tables, verdicts and the command.

Also covers: commands/reproduce.py, papers/entry.py, papers/figures.py, papers/registry.py, papers/run.py,
papers/summary.py, papers/trials.py.
"""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import notsodeep as nsd
from notsodeep.cli import main
from notsodeep.papers import registry
from notsodeep.papers import run as running
from notsodeep.papers.entry import Check, Entry, Judgement
from notsodeep.papers.summary import curve, mean, one_more, slope
from notsodeep.papers.trials import Trials
from notsodeep.papers.trials import _digest as trials_digest

pytest.importorskip("matplotlib")


def example(measure: Any, count: int = 4) -> Entry:
    """An entry whose trials are cheap."""

    def draw(plt: Any, rows: Any) -> Any:
        figure, axis = plt.subplots()
        axis.plot([row["x"] for row in rows], [row["square"] for row in rows])
        return figure

    return Entry(
        name="example",
        paper="[Test]",
        title="Squares",
        plan=lambda count: [{"x": x, "seed": 0} for x in range(count)],
        measure=measure,
        judge=lambda rows: Judgement(
            "squares", "squares", [Check("squares", "x²", "found", all(r["square"] == r["x"] ** 2 for r in rows))]
        ),
        draw=draw,
        quick={"count": 2},
        full={"count": count},
    )


def square(x: int, seed: int) -> dict[str, Any]:
    return {"square": x**2, "third": x / 3, "curve": [x, x + 0.1], "word": "a, b"}


# --- resuming --------------------------------------------------------------------------------

KILLED = """
import sys, time
from pathlib import Path
from notsodeep.papers.run import reproduce
from tests.papers.test_frame import example
log = Path(sys.argv[2])
def measure(x, seed):
    with log.open("a") as file:
        file.write(f"{x}\\n")
    time.sleep(float(sys.argv[3]))
    return {"square": x * x}
reproduce(example(measure, 8), Path(sys.argv[1]), progress=False)
"""


def test_a_killed_run_is_resumed_and_redoes_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", KILLED, str(tmp_path / "out"), str(log)]
    root = Path(__file__).parents[2]
    trials = tmp_path / "out" / "example" / "trials"
    child = subprocess.Popen([*command, "0.4"], cwd=root)
    deadline = time.monotonic() + 240
    while len(list(trials.glob("*.json"))) < 3:
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    finished = [json.loads(path.read_text())["settings"]["x"] for path in trials.glob("*.json")]
    assert 3 <= len(finished) < 8
    assert not (tmp_path / "out" / "example" / "verdict.json").exists()

    subprocess.run([*command, "0"], cwd=root, check=True)
    calls = Counter(int(line) for line in log.read_text().split())
    assert sorted(calls) == list(range(8))
    assert all(calls[x] == 1 for x in finished)
    assert sum(calls.values()) <= 9  # only the trial that was under way is done again
    content = json.loads((tmp_path / "out" / "example" / "verdict.json").read_text())
    assert content["trials"] == {"total": 8, "measured": 8 - len(finished), "reused": len(finished)}
    kept = [json.loads(path.read_text()) for path in (tmp_path / "out" / "example" / "trials").iterdir()]
    assert content["trial_seconds"] == pytest.approx(sum(trial["seconds"] for trial in kept), abs=0.051)


def test_trials_are_kept_by_settings_revision_and_entry(tmp_path: Path) -> None:
    first = Trials(tmp_path, "one", 1)
    assert first.get({"x": 2, "seed": 0}, square)["square"] == 4
    assert first.find({"seed": 0, "x": 2}) is not None  # the order of settings does not matter
    assert first.find({"x": 2, "seed": 1}) is None
    assert Trials(tmp_path, "one", 2).find({"x": 2, "seed": 0}) is None
    assert Trials(tmp_path, "two", 1).find({"x": 2, "seed": 0}) is None


def test_a_damaged_trial_is_done_again(tmp_path: Path) -> None:
    trials = Trials(tmp_path, "one", 1)
    row = trials.get({"x": 2, "seed": 0}, square)
    path = trials.path({"x": 2, "seed": 0})
    for damage in ("", path.read_text()[:30], "[1]", "null"):
        path.write_text(damage)
        assert trials.find({"x": 2, "seed": 0}) is None
        assert trials.get({"x": 2, "seed": 0}, square) == row


@pytest.mark.parametrize("number", ["x", [1] * 1000])
def test_forged_trials_are_named(number: Any, tmp_path: Path) -> None:
    """Numbers of another kind behind a right checksum: one line, not the traceback of a picture."""
    entry = example(square)
    running.reproduce(entry, tmp_path, progress=False)
    for path in (tmp_path / "example" / "trials").iterdir():
        content = json.loads(path.read_text())
        content.pop("sha256"), content.pop("seconds")
        content["numbers"]["square"] = number if content["settings"]["x"] else content["numbers"]["square"]
        path.write_text(json.dumps({**content, "sha256": trials_digest(content), "seconds": 1.0}))
    entry = replace(entry, judge=lambda rows: Judgement("", f"{np.mean([row['square'] for row in rows])}", []))
    with pytest.raises(nsd.InputError, match="do not hold what example measures"):
        running.reproduce(entry, tmp_path, progress=False)


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": {"square": 5}},
        {"numbers": {"square": 4, "x": 99}},
        {"numbers": [["square", 4]]},
        {"entry": "two"},
        {"revision": 0},
        {"version": "0.0"},
        {"settings": {"x": 2.0, "seed": False}},
        {"note": "mine"},
        {"sha256": "0" * 64},
    ],
    ids=str,
)
def test_a_trial_that_was_changed_or_is_another_one_is_done_again(tmp_path: Path, change: dict[str, Any]) -> None:
    trials = Trials(tmp_path, "one", 1)
    settings = {"x": 2, "seed": 0}
    row = trials.get(settings, square)
    path = trials.path(settings)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    again = Trials(tmp_path, "one", 1)
    assert again.get(settings, square) == row
    assert (again.measured, again.reused) == (1, 0)


def test_a_trial_with_numbers_for_names_is_found_again(tmp_path: Path) -> None:
    trials = Trials(tmp_path, "one", 1)
    trials.get({"x": 2}, lambda x: {"curve": {10: 1.0, 9: (2.0,)}})
    assert trials.find({"x": 2}) == ({"curve": {"10": 1.0, "9": [2.0]}}, pytest.approx(0, abs=1))


def test_numbers_that_json_does_not_have_leave_nothing(tmp_path: Path) -> None:
    trials = Trials(tmp_path / "trials", "one", 1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        trials.get({"x": 1}, lambda x: {"bad": math.nan})
    assert not (tmp_path / "trials").exists()


# --- what a run writes -----------------------------------------------------------------------


def test_tables_and_json_say_the_same(tmp_path: Path) -> None:
    content = running.reproduce(example(square), tmp_path)
    folder = tmp_path / "example"
    assert set(content["files"]) <= {path.name for path in folder.iterdir()}
    assert {"figure.svg", "figure.png", "data.csv", "data.json", "curves.csv"} == set(content["files"])
    rows = json.loads((folder / "data.json").read_text())
    with (folder / "data.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(rows) == 4
    for line, row in zip(table, rows, strict=True):
        scalars = {key: value for key, value in row.items() if not isinstance(value, list)}
        assert set(line) == set(scalars)
        for key, value in scalars.items():
            assert (line[key] if isinstance(value, str) else float(line[key])) == value  # to the last digit
    with (folder / "curves.csv").open(newline="") as file:
        points = [(int(p["trial"]), p["curve"], int(p["index"]), float(p["value"])) for p in csv.DictReader(file)]
    assert points == [(t, "curve", i, value) for t, row in enumerate(rows) for i, value in enumerate(row["curve"])]
    assert not list(tmp_path.rglob("*.partial"))


def test_a_wrong_measurement_is_not_called_agreement(tmp_path: Path) -> None:
    wrong = running.reproduce(example(lambda x, seed: {"square": x**3}), tmp_path)
    assert (wrong["verdict"], wrong["claim"]) == ("claim does not hold", "does not hold")
    assert wrong["because"] == "squares: paper x², here found"


def test_a_quick_run_says_so_and_never_replaces_a_full_one(tmp_path: Path) -> None:
    quick = running.reproduce(example(square), tmp_path, quick=True)
    assert quick["quick"] is True
    assert quick["verdict"] == "claim holds (quick: small sizes, no proof)"
    full = running.reproduce(example(square), tmp_path)
    assert full["verdict"] == "claim holds"
    assert full["trials"] == {"total": 4, "measured": 2, "reused": 2}
    with pytest.raises(nsd.InputError, match="holds the full run of example"):
        running.reproduce(example(square), tmp_path, quick=True)
    (record,) = running.collect(tmp_path)
    assert record["verdict"] == "claim holds"
    assert len(record["rows"]) == 4


def test_one_entry_that_cannot_run_does_not_stop_the_others(tmp_path: Path) -> None:
    def absent(x: int, seed: int) -> dict[str, Any]:
        raise FileNotFoundError("mnist is not here")

    records = running.reproduce_all([example(absent), example(square)], tmp_path, progress=False)
    assert [record.get("error") for record in records] == ["mnist is not here", None]
    assert json.loads((tmp_path / "summary.json").read_text())["entries"] == records


def test_progress_is_told(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    running.reproduce(example(square), tmp_path, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(k, 4) for k in range(5)]


# --- verdicts ---------------------------------------------------------------------------------


def test_claims_and_numbers_are_told_apart() -> None:
    claims = [Check("a", "", "", agrees) for agrees in (True, False, None)]
    words = {
        (0,): "holds",
        (1,): "does not hold",
        (2,): "cannot tell",
        (0, 1): "holds in part",
        (0, 2): "holds",
        (): "cannot tell",
    }
    for chosen, claim in words.items():
        assert Judgement("", "", [claims[k] for k in chosen]).claim == claim
    numbers = [Check.number("x", 1.0, 0.5, 0.7), Check.number("x", 1.0, 0.9, 1.2)]
    both = Judgement("", "", [claims[0], *numbers])
    assert (both.claim, both.numbers) == ("holds", "1 of 2 within our interval")
    assert both.verdict == "claim holds; numbers: 1 of 2 within our interval"
    assert "off by -0.30" in both.because


@given(st.floats(0.1, 100), st.floats(0, 10), st.integers(0, 3))
def test_a_printed_number_is_within_or_off(center: float, half: float, digits: int) -> None:
    rounded = round(center, digits)
    assert Check.number("x", rounded, center - half, center + half, digits=digits).agrees
    assert not Check.number("x", center + half + 1.01, center - half, center + half, digits=digits).agrees


# --- intervals -------------------------------------------------------------------------------


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    sizes = np.repeat([100, 200, 400, 800], 3)
    hits = np.zeros(2)
    for _ in range(1000):
        found = mean(rng.normal(3.0, 2.0, size=5).tolist())
        line = slope(sizes.tolist(), (7 * sizes**-0.5 * np.exp(rng.normal(0, 0.1, sizes.size))).tolist())
        hits += [found.low <= 3.0 <= found.high, line.low <= -0.5 <= line.high]
    assert np.all(np.abs(hits / 1000 - 0.95) < 0.025)


@given(st.floats(-2, 2), st.floats(0.1, 10))
def test_an_exact_power_has_its_slope(power: float, factor: float) -> None:
    sizes = [100, 200, 400, 800]
    found = slope(sizes, [factor * n**power for n in sizes])
    assert found.value == pytest.approx(power, abs=1e-9)
    assert found.half < 1e-6


def test_curves_are_means_at_each_place() -> None:
    rows = [{"n": n, "error": float(n + k)} for n in (20, 10) for k in (0, 2)]
    places, estimates = curve(rows, "error")
    assert places == [10, 20]
    assert [estimate.value for estimate in estimates] == [11, 21]
    assert math.isnan(mean([1.0]).half)
    assert one_more([1.0, 2.0, 3.0]).half == pytest.approx(2 * mean([1.0, 2.0, 3.0]).half)
    assert str(mean([1.0])) == "1"
    for call in (lambda: mean([]), lambda: slope([1, 1, 1], [1, 2, 3])):
        with pytest.raises(nsd.InputError):
            call()


# --- the command -----------------------------------------------------------------------------


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(list(arguments))
    return int(exit_.value.code or 0)


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("reproduce", "--list") == 0
    text = capsys.readouterr().out
    assert call("reproduce", "--list", "--json") == 0
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)]
    assert names == list(registry.ENTRIES)
    assert all(name in text for name in names)
    assert {"ling24-fig1", "ling24-fig2", "ling24-fig4", "ling24-fig5", "ling24-fig6", "ling24-fig7", "errata"} <= {
        *names
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ling24-fig11",), "did you mean 'ling24-fig1'?"),
        ((), "pass one or several entries, or all"),
        (("all", "--data", "vgg.npz"), "data goes with single entries"),
        (("errata", "--data", "vgg.npz"), "errata takes no other data"),
    ],
)
def test_bad_names(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("reproduce", *arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


def test_the_command_runs_entries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "ENTRIES", {"example": example(square)})
    assert call("reproduce", "example", "--out", str(tmp_path), "--json") == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert "example" in (tmp_path / "index.html").read_text(encoding="utf-8")  # one entry also has its page
    assert record == json.loads((tmp_path / "example" / "verdict.json").read_text())
    assert call("reproduce", "all", "--out", str(tmp_path)) == 0
    text = capsys.readouterr().out
    assert "claim        holds" in text
    assert "4 of them reused" in text
    assert "all of it on one page" in text
    assert (tmp_path / "summary.json").is_file()
    assert (tmp_path / "index.html").is_file()
    (tmp_path / "file").write_text("")
    assert call("reproduce", "example", "--out", str(tmp_path / "file")) == 2
    assert "is a file, not a directory" in capsys.readouterr().err


def test_some_entries_share_a_page_with_earlier_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {name: replace(example(square), name=name) for name in ("one", "two", "three", "never")}
    monkeypatch.setattr(registry, "ENTRIES", entries)
    assert call("reproduce", "one", "--out", str(tmp_path)) == 0
    assert call("reproduce", "two", "three", "--out", str(tmp_path)) == 0
    assert f"all of it on one page: {tmp_path / 'index.html'}" in capsys.readouterr().out
    written = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert [f"#{name}" in written for name in entries] == [True, True, True, False]
    assert "notsodeep reproduce two three one" in written


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("verdict.json", '{"quick": false, "version": "VERSION"}'),
        ("verdict.json", '{"quick": false, "version": "VERSION", "name": 3, "paper": [], "checks": 5}'),
        ("verdict.json", "{"),
        ("data.json", "{}"),
        ("data.json", "[1]"),
    ],
)
def test_damaged_results_of_earlier_entries_are_one_line(
    file: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {name: replace(example(square), name=name) for name in ("one", "two")}
    monkeypatch.setattr(registry, "ENTRIES", entries)
    assert call("reproduce", "one", "--out", str(tmp_path)) == 0
    (tmp_path / "one" / file).write_text(content.replace("VERSION", nsd.__version__))
    capsys.readouterr()
    assert call("reproduce", "two", "--out", str(tmp_path)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "delete" in error


def test_all_fails_when_an_entry_could_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(x: int, seed: int) -> dict[str, Any]:
        raise FileNotFoundError("mnist is not here")

    monkeypatch.setattr(registry, "ENTRIES", {"example": example(absent)})
    assert call("reproduce", "all", "--out", str(tmp_path)) == 2
    out, err = capsys.readouterr()
    assert "mnist is not here" in out
    assert "could not run example" in err
