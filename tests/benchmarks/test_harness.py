"""The benchmark harness: fair timing, stored results, the page written from them, the command.

Also covers: commands/bench.py, study/timing.py.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from notsodeep.commands import bench as command

ROOT = Path(__file__).resolve().parents[2]
RESULT = {
    "question": "How long does counting take?",
    "target": "≤ 2×",
    "rows": [{"n": 10, "ratio": 1.2345, "note": "a|b"}, {"n": 20, "ratio": 12345.6, "note": None}],
    "verdict": "met",
}


@pytest.fixture
def modules(benchmarks: None) -> Any:
    import common
    import write

    return common, write


def test_timing_interleaves_and_keeps_the_best(modules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    common, _ = modules
    calls: list[str] = []
    now = 0.0
    durations = {"slow": iter([9.0, 5.0, 2.0, 4.0]), "fast": iter([0.0, 1.0, 1.0, 0.5])}  # the first warms up
    monkeypatch.setattr(common.time, "perf_counter", lambda: now)

    def work(name: str) -> None:
        nonlocal now
        calls.append(name)
        now += next(durations[name])

    times = common.best_times({name: functools.partial(work, name) for name in durations}, repeats=3)
    assert calls == ["slow", "fast"] * 4
    assert times == {"slow": 2.0, "fast": 0.5}
    assert common.ratios({"a": 2.0, "b": 1.0}, "b") == {"a": 2.0, "b": 1.0}


def test_results_of_another_processor_are_kept(modules: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    common, _ = modules
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    for name, ratio in (("one", 1.0), ("two", 2.0), ("one", 3.0), ("two", 4.0)):
        rows = [{"processor": name, "ratio": ratio}]
        common.save("a", {"question": "?", "target": "≤ 2", "rows": rows, "verdict": f"worst {ratio:g}"}, 0.1)
    stored = json.loads((tmp_path / "results" / "a.json").read_text(encoding="utf-8"))
    assert stored["rows"] == [{"processor": "one", "ratio": 3.0}, {"processor": "two", "ratio": 4.0}]
    assert stored["verdict"] == "one: worst 3; two: worst 4"


def test_saved_results_become_the_page(modules: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    common, write = modules
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    stored = json.loads(common.save("time_of_counting", RESULT, 1.25).read_text())
    assert {"cpu", "cores", "blas", "numpy", "python"} <= set(stored["machine"])
    page = write.render([stored])
    assert "## time of counting" in page
    assert "| 10 | 1.23 | a\\|b |" in page
    assert "| 20 | 12346 | – |" in page
    assert "|--:|--:|:--|" in page
    with pytest.raises(ValueError, match="lacks rows"):
        common.save("x", {k: v for k, v in RESULT.items() if k != "rows"}, 0.0)
    assert "Nothing has been measured" in write.render([])


def test_a_result_of_stored_records_has_their_time(
    modules: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its verdict counts the networks that it is about."""
    common, _ = modules
    pytest.importorskip("torch")
    import what_replaces_a_trained_deq as benchmark

    monkeypatch.setattr(common, "RESULTS", tmp_path)
    records, missing = benchmark.stored()
    narrow = [one for one in records if (one["data"], one["width"]) == ("mnist", 256)]
    agreement = {
        (one["seed"], one["activation"]): next(r for r in one["table"] if r["network"] == one["chosen"])["agreement"]
        for one in narrow
    }
    able = [one for one in narrow if one["table"][0]["accuracy"] >= 0.95]
    worst = min(agreement[one["seed"], one["activation"]] for one in able)
    verdict = benchmark.summary(records, missing)["verdict"]
    assert f"≥ {100 * worst:.2f} % for the {len(able)} of {len(narrow)} DEQs of ≥ 95 %" in verdict
    assert f"(for all {len(narrow)}: ≥ {100 * min(agreement.values()):.2f} %)" in verdict
    stored = json.loads(common.save("a", benchmark.summary(records, missing), 0.01).read_text(encoding="utf-8"))
    assert stored["seconds"] == pytest.approx(sum(one["seconds"] for one in records), abs=0.1)
    assert stored["date"] == max(one["date"] for one in records)
    assert stored["machine"] in [one["machine"] for one in records]


def test_the_page_is_up_to_date(modules: Any) -> None:
    _, write = modules
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    stored = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    assert (ROOT / "BENCHMARKS.md").read_text(encoding="utf-8") == write.render(stored)


def test_names_are_one_set(modules: Any) -> None:
    """Results belong to scripts, and former names lead to scripts."""
    folder = ROOT / "benchmarks"
    scripts = {path.stem for path in folder.glob("*.py")}
    results = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("results/*.json")]
    former = json.loads((folder / "former_names.json").read_text(encoding="utf-8"))
    assert {result["name"] for result in results} == {path.stem for path in folder.glob("results/*.json")}
    assert {result["name"] for result in results} | {*former.values()} <= scripts
    assert not scripts & {*former}


SCRIPT = """
AREA = "counting"
import common
def run(quick=False):
    return {"question": "c", "target": "t", "rows": [{"quick": quick}], "verdict": "met"}
if __name__ == "__main__":
    common.main(__file__, run)
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small checkout with one benchmark."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    for name in ("common.py", "write.py"):
        (folder / name).write_text((ROOT / "benchmarks" / name).read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "time_of_counting.py").write_text(SCRIPT)
    monkeypatch.setattr(command, "_folder", lambda: folder)
    return tmp_path


def test_command_runs_a_benchmark(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command.bench(["counting"], quick=True, json=True)
    assert json.loads(capfd.readouterr().out)[0]["rows"] == [{"quick": True}]
    assert not (checkout / "benchmarks" / "results").exists()  # a quick run keeps nothing
    command.bench(["time_of_counting"], json=True)
    assert json.loads(capfd.readouterr().out)[0]["verdict"] == "met"
    assert "time of counting" in (checkout / "BENCHMARKS.md").read_text()
    command.bench(list_=True, json=True)
    assert json.loads(capfd.readouterr().out) == [{"name": "time_of_counting", "area": "counting"}]
    with pytest.raises(ValueError, match="did you mean 'counting'"):
        command.bench(["countin"])
    (checkout / "benchmarks" / "time_of_counting.py").write_text("def run(): ...\nraise SystemExit(3)")
    with pytest.raises(ValueError, match="failed with exit code 3"):
        command.bench()


def test_results_are_utf8_whatever_the_console_speaks(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = checkout / "benchmarks" / "time_of_counting.py"
    script.write_text(SCRIPT.replace('"c"', '"σ ≤ 2×"'), encoding="utf-8")
    for name, value in (("PYTHONUTF8", "0"), ("PYTHONIOENCODING", "cp1252"), ("LC_ALL", "C")):
        monkeypatch.setenv(name, value)
    command.bench(["counting"], json=True)
    assert json.loads(capfd.readouterr().out)[0]["question"] == "σ ≤ 2×"
    assert "σ ≤ 2×" in (checkout / "BENCHMARKS.md").read_text(encoding="utf-8")


TIMED = """
AREA = "counting"
COSTS = ("ratio",)
GAINS = ("speed",)
import common
def run(quick=False):
    rows = [{"n": 10, "name": "x", "ratio": 1.3, "speed": 9.0, "own s": 5.0}, {"n": 20, "name": "x", "ratio": 1.0}]
    return {"question": "c", "target": "t", "rows": rows, "verdict": "met"}
if __name__ == "__main__":
    common.main(__file__, run)
"""


def test_what_got_slower(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script, old = checkout / "benchmarks" / "time_of_counting.py", checkout / "old.json"
    script.write_text(TIMED)
    rows = [{"n": 10, "name": "x", "ratio": 1.0, "speed": 10.5, "own s": 1.0}, {"n": 30, "name": "x", "ratio": 0.1}]
    old.write_text(json.dumps([{"name": "time_of_counting", "rows": rows}, {"name": "gone", "rows": []}]))
    command.bench(compare=old, json=True)
    expected = {"name": "time_of_counting", "row": "10 x"}
    assert json.loads(capfd.readouterr().out)["slower"] == [
        {**expected, "column": "ratio", "before": 1.0, "now": 1.3},
        {**expected, "column": "speed", "before": 10.5, "now": 9.0},
    ]
    command.bench(compare=old)
    assert "slower than in" in capfd.readouterr().out
    script.write_text(TIMED.replace('COSTS = ("ratio",)\nGAINS = ("speed",)\n', ""))  # seconds are compared then
    command.bench(compare=old, json=True)
    assert [row["column"] for row in json.loads(capfd.readouterr().out)["slower"]] == ["own s"]
    command.bench(compare=checkout / "benchmarks" / "results" / "time_of_counting.json")
    assert "nothing is more than 1.1 times slower" in " ".join(capfd.readouterr().out.split())


NO_RESULTS = [
    *("", "3", "[]", "[1]", '{"results": []}', '{"rows": []}', '[{"name": "x", "rows": [4]}]'),
    *('[{"name": "time_of_counting", "rows": [{"a": []}]}]', '[{"name": "time_of_counting", "rows": [{"a": {}}]}]'),
]


@pytest.mark.parametrize("content", NO_RESULTS)
def test_an_earlier_run_that_is_none(checkout: Path, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before any work."""
    monkeypatch.delattr(command, "_run")
    (checkout / "old.json").write_text(content)
    with pytest.raises(ValueError, match="is not a result of `notsodeep bench --json`"):
        command.bench(compare=checkout / "old.json")


def test_an_earlier_run_of_other_benchmarks_starts_none(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, all of them were run, and the page rewritten."""
    monkeypatch.delattr(command, "_run")
    (checkout / "old.json").write_text('[{"name": "gone", "rows": []}]')
    with pytest.raises(ValueError, match=r"names no benchmark of this checkout \(it has gone\)"):
        command.bench(compare=checkout / "old.json")
    with pytest.raises(ValueError, match="names no benchmark of this checkout"):
        command.bench(compare=checkout / "old.json", list_=True)


def test_without_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "__file__", str(tmp_path / "a" / "b" / "c" / "bench.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="part of the source checkout"):
        command.bench()
