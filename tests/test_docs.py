"""The documentation keeps its promises: its examples run, its pages are in the navigation, its makers work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from docs import gallery
from tests.examples import ROOT, blocks, run

from notsodeep.papers.registry import ENTRIES
from notsodeep.papers.trials import Trials

DOCS = ROOT / "docs"
# what must hold after a page's examples have run one after the other; a block fenced as `py` is shown and not run
HOLDS = {
    "index.md": "assert m.exact and np.linalg.norm(G - S, 2) < 1e-3 * np.linalg.norm(G, 2)",
    "report.md": "assert 'var(--theory)' in open('rate.html', encoding='utf-8').read()",
    "choosing.md": "assert m.exact",
    "theory.md": "assert np.linalg.norm(exact - theory, 2) < 0.1 * np.linalg.norm(exact, 2)",
    "kernels.md": "assert info.error < 1e-12",
    "cells.md": "assert m.exact",
    "one_layer.md": "assert m.exact and m.distance_on(X) < 1e-9",
    "forecast.md": "assert abs(f.check.predicted - f.check.measured) < 4 * f.check.error",
    "dynamics.md": "assert apart < 0.1",
    "extend.md": "assert m.exact and np.linalg.norm(G - S, 2) < 0.03 * np.linalg.norm(G, 2)",
    "gp.md": "assert losses[-1] < losses[0]",
    "tensors.md": "assert losses[-1] < losses[0]",
    "training.md": "assert nn.certificate(net, X, y).holds",
}
END = "--- end of an example ---"
PAGES = sorted(path.name for path in DOCS.glob("*.md") if blocks(path.read_text(encoding="utf-8")))


def test_all_guides_have_examples() -> None:
    assert set(HOLDS) <= set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_examples_run(name: str, tmp_path: Path) -> None:
    examples = blocks((DOCS / name).read_text(encoding="utf-8"))
    for package in ("torch", "gpytorch", "botorch"):
        if any(re.search(rf"\b{package}\b", example) for example in examples):
            pytest.importorskip(package)
    code = "".join(f"{example}print({END!r})\n" for example in examples)
    printed = run(f"{code}\n{HOLDS.get(name, '')}", tmp_path).split(END)
    for example, shown in zip(examples, printed, strict=False):
        assert shown.strip(), f"an example shows nothing:\n{example}"


def test_every_page_of_a_task_has_an_example_and_a_picture() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    tasks = navigation.partition("- I have a slow DEQ:")[2].partition("- I want to reproduce a figure:")[0]
    pages = re.findall(r": (\w+\.md)$", tasks, re.MULTILINE)
    assert len(pages) >= 19
    for name in pages:
        text = (DOCS / name).read_text(encoding="utf-8")
        shown = re.findall(r"!\[[^\]]{20,}\]\(((?:images|gallery)/[\w-]+\.png)\)", text)
        assert shown, f"{name} shows nothing"
        assert all((DOCS / picture).is_file() for picture in shown), name
        assert name in PAGES, f"{name} has no example"


def test_one_store_is_one_kernel() -> None:
    """Whoever follows several pages in one folder meets no store of another page."""
    pages = [ROOT / "README.md", *DOCS.glob("*.md")]
    stores = [set(re.findall(r"out[ =]\"?([\w-]+\.zarr)", path.read_text(encoding="utf-8"))) for path in pages]
    assert sum(map(len, stores)) == len(set().union(*stores)) >= 3


def record(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "paper": "[Ling24] Fig. 1",
        "title": "Errors | and sizes",
        "quick": False,
        "paper_says": "falls",
        "we_measure": "falls like n^-0.5",
        "claim": "holds",
        "numbers": "none to compare",
        "finding": "as | expected",
        "checks": [],
        "assumptions": [],
        **changes,
    }


MISPRINT = {"what": "slope", "paper": "−1/2", "measured": "0", "agrees": False, "why": "a misprint"}


def test_the_tables_of_the_forecasts_are_those_computed_now() -> None:
    from docs import forecast

    text = (DOCS / "forecast.md").read_text(encoding="utf-8")
    assert forecast.written(text) == text


def test_the_forecasts_name_tests_that_exist() -> None:
    """The derivation says which test checks a step."""
    text = (DOCS / "forecast.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "highdim").glob("test_*.py"))
    assert len(named) >= 10
    assert [name for name in sorted(named) if f"def {name}(" not in source] == []
    for path in re.findall(r"`(tests/[\w/]+\.py)`", text):
        assert (ROOT / path).is_file(), path


def test_the_gallery_shows_what_was_reproduced(tmp_path: Path) -> None:
    out, docs = tmp_path / "out", tmp_path / "docs"
    seconds = {**MISPRINT, "what": "seconds", "agrees": None, "why": "", "kind": "shown"}
    for content in (
        record("ling24-fig1", assumptions=["p/n = 0.8"], differences=["exact kernels"], trials={"total": 12}),
        record("fk20-table1", claim="does not hold", checks=[MISPRINT, {**MISPRINT, "agrees": True}], quick=True),
        record("ling24-table1", checks=[seconds], revision=ENTRIES["ling24-table1"].revision, seconds=1.0),
    ):
        folder = out / content["name"]
        folder.mkdir(parents=True)
        (folder / "verdict.json").write_text(json.dumps(content), encoding="utf-8")
    (out / "ling24-fig1" / "figure.png").write_bytes(b"png")
    (out / "unfinished").mkdir()
    (docs / "gallery").mkdir(parents=True)
    (docs / "gallery" / "stale.png").write_bytes(b"old")
    text = gallery.write(out, docs).read_text(encoding="utf-8")
    assert sorted(path.name for path in (docs / "gallery").iterdir()) == [
        *("fk20-table1.json", "ling24-fig1.json", "ling24-fig1.png", "ling24-table1.json")
    ]
    assert "![ling24-fig1: Errors | and sizes](gallery/ling24-fig1.png)" in text
    assert "gallery/fk20-table1.png" not in text  # a table has no picture
    assert text.count("- **The claim** does not hold. **Printed numbers:** none to compare.") == 1
    assert text.count("| slope | −1/2 | 0 | ✗\u00a0does not hold | a misprint |") == 1
    assert text.count("| slope | −1/2 | 0 | ✓\u00a0holds |  |") == 1
    assert text.count("a misprint") == 1
    assert text.count("A quick run") == 1
    assert text.count("**To be run again: this is the stored run of an earlier version of the entry.**") == 2
    head, *rows = re.findall(r"^\| .* \|$", text.partition("## ")[0], re.MULTILINE)
    assert head == "| what | the claim | printed numbers | finding |"
    shown = r"| [Errors \| and sizes](#{}), [Ling24] Fig. 1 | {} | none to compare | as \| expected |"
    assert rows == [
        shown.format("fk20-table1", "**does not hold**, to be run again"),
        shown.format("ling24-fig1", "**holds**, to be run again"),
        shown.format("ling24-table1", "**holds**"),
    ]
    assert text.count("- **In short:** as | expected") == 3
    assert "What the paper leaves open, and what was chosen:\n\n- p/n = 0.8\n" in text
    assert "Where we differ, and why:\n\n- exact kernels\n" in text
    assert "| shown, not judged | paper | here |\n|:--|:--|:--|\n| seconds | −1/2 | 0 |\n" in text
    assert "*12 trials; again with* `notsodeep reproduce ling24-fig1`" in text
    assert "unfinished" not in text


def test_the_gallery_keeps_what_was_not_run_again(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    for time, names in (("first", ("fk20-fig1", "ling24-fig1")), ("second", ("forecast", "ling24-fig1"))):
        for name in names:
            ours = {"paper": "ours", "claimed_by": "theory", "checks": [MISPRINT]} if name == "forecast" else {}
            folder = tmp_path / time / name
            folder.mkdir(parents=True)
            content = record(name, assumptions=["all"], we_measure=f"{time} time", **ours)
            (folder / "verdict.json").write_text(json.dumps(content), encoding="utf-8")
            (folder / "figure.png").write_bytes(time.encode())
        text = gallery.write(tmp_path / time, docs).read_text(encoding="utf-8")
    assert re.findall(r"^\| \[.*?\]\(#(.*?)\)", text, re.MULTILINE) == ["fk20-fig1", "forecast", "ling24-fig1"]
    assert text.count("first time") == 1
    assert text.count("second time") == 2
    assert json.loads((docs / "gallery" / "fk20-fig1.json").read_text(encoding="utf-8"))["we_measure"] == "first time"
    pictures = {path.name: path.read_text() for path in (docs / "gallery").glob("*.png")}
    assert pictures == {"fk20-fig1.png": "first", "forecast.png": "second", "ling24-fig1.png": "second"}
    assert text.count("**Theory says:**") == 1
    assert "| the claim | theory | here |  | why, if not |" in text
    assert text.count("What was chosen:") == 1
    assert gallery.write(tmp_path / "nothing", docs).read_text(encoding="utf-8") == text


def test_an_unfinished_run_continues_elsewhere(tmp_path: Path) -> None:
    docs, here, there = tmp_path / "docs", tmp_path / "here", tmp_path / "there"
    settings = [{"n": n, "seed": 0} for n in (100, 200)]
    begun = Trials(here / "ling24-fig1" / "trials", "ling24-fig1", 2)
    for one in settings:
        begun.get(one, lambda n, seed: {"error": 1 / n})
    gallery.write(here, docs)
    assert gallery.resume(there, docs) == ["ling24-fig1"]
    continued = Trials(there / "ling24-fig1" / "trials", "ling24-fig1", 2)
    assert [continued.get(one, dict)["error"] for one in settings] == [0.01, 0.005]
    assert (continued.reused, continued.measured) == (2, 0)
    (there / "ling24-fig1" / "verdict.json").write_text(json.dumps(record("ling24-fig1")), encoding="utf-8")
    gallery.write(there, docs)
    assert gallery.resume(tmp_path / "nowhere", docs) == []  # finished: its record is kept instead


def test_every_statement_of_the_papers_is_covered() -> None:
    from docs import coverage

    assert coverage.gaps() == []
    assert (DOCS / "coverage.md").read_text(encoding="utf-8") == coverage.page()  # else: python -m docs.coverage


def test_a_marker_that_points_nowhere_is_found(tmp_path: Path) -> None:
    from docs import coverage

    for folder in ("src", "tests"):
        (tmp_path / folder).mkdir()
    text = "# covers: [Ling24] Thm 9.9\n# covers: [FK20] Thm 2; [FK20] Thm 1\ndef kernel(): ...\n"
    text += "# covers: [FK20] Thm 3\nx = 1\n"
    (tmp_path / "src" / "one.py").write_text(text, encoding="utf-8")
    text = "# covers: [FK20] Thm 2\ndef rows(): ...\n# covers: [FK20] Thm 1 @ fk20-fig1\ndef test_rows(): ...\n"
    (tmp_path / "tests" / "test_one.py").write_text(text, encoding="utf-8")
    wrong = [one.replace("\\", "/") for one in coverage.gaps(tmp_path)]
    assert "src/one.py:1 names '[Ling24] Thm 9.9', which no paper states" in wrong
    assert sum("stands above no function" in one for one in wrong) == 1
    assert "tests/test_one.py:1 stands above rows, which is no test" in wrong
    assert "tests/test_one.py:3 names 'fk20-fig1', which is not measured there" in wrong
    assert "[FK20] Thm 2 has no code and no reason" not in wrong
    assert "[Ling23] Lemma 2 has no code and no reason" in wrong
    assert "[FK20] Thm 1 has code but no test" not in wrong


def test_a_figure_needs_the_entry_that_shows_it(tmp_path: Path) -> None:
    from docs import coverage

    (tmp_path / "tests").mkdir()
    module = tmp_path / "src" / "papers" / "fk20_accuracy.py"  # two entries share its function
    module.parent.mkdir(parents=True)
    for text, said in (
        ("[FK20] Table 1", "must say which entry shows it: @ fk20-table1 or fk20-table2"),
        ("[FK20] Table 1 @ fk20-table1", "[FK20] Table 1 has code but no test"),
        ("[FK20] Table 1 @ fk20-fig1", "'fk20-fig1', which is not measured there"),
        ("[FK20] Thm 3 @ fk20-table2", "[FK20] Thm 3 has no code and no reason"),  # an entry shows, but is no code
    ):
        module.write_text(f"# covers: {text}\ndef measure(): ...\n", encoding="utf-8")
        assert any(said in one for one in coverage.gaps(tmp_path)), text
    module.rename(tmp_path / "src" / "one.py")
    (tmp_path / "src" / "one.py").write_text("# covers: [FK20] Table 1\ndef measure(): ...\n", encoding="utf-8")
    assert "[FK20] Table 1 is shown by no entry" in coverage.gaps(tmp_path)


def test_every_entry_is_named_by_the_figure_it_redoes() -> None:
    from docs import coverage

    shown = {(one.statement, one.entry or one.choices[0]) for one in coverage.markers() if one.choices}
    drawn = {(entry.paper, entry.name) for entry in coverage.ENTRIES.values() if entry.paper in coverage.statements()}
    assert len(drawn) == 13
    assert drawn <= shown


def test_the_gallery_tells_a_part_of_a_full_run(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "errata"
    folder.mkdir(parents=True)
    sizes = json.loads(json.dumps(ENTRIES["errata"].full))
    for total, asked, said in ((7, {}, 1), (20, {}, 0), (7, sizes, 0)):
        content = record("errata", trials={"total": total}, sizes=asked, seconds=1.0)
        (folder / "verdict.json").write_text(json.dumps(content), encoding="utf-8")
        text = gallery.write(tmp_path / "out", tmp_path).read_text(encoding="utf-8")
        assert text.count("**The first 7 of 20 trials of the full run.**") == said


def test_an_empty_gallery_is_a_page_too(tmp_path: Path) -> None:
    assert gallery.write(tmp_path / "nothing", tmp_path).read_text(encoding="utf-8").startswith("# Gallery")


def test_pages_made_from_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mkdocs")
    from docs import hooks

    commands = hooks.commands_page()
    assert "## notsodeep match" in commands
    assert "| `--recurrent` | `0.2` |" in commands
    assert "| `DATA` |" in commands
    page = hooks.api_page("nn/__init__.py")
    assert page.startswith("# notsodeep.nn\n\nPyTorch networks")
    assert "::: notsodeep.nn.DEQNet\n" in page
    assert "*Examples with* `certificate`:" in page
    assert "[Networks in PyTorch](../training.md)" in page


def test_the_table_of_replaced_networks_is_made_from_the_runs():
    from docs import replacing

    def run(seed: int, designed: float, plain: float, cell: float) -> dict[str, object]:
        families = {"module": 1.0, "designed": designed, "plain": plain, "cell": cell}
        table = [
            {
                "network": name,
                "family": name,
                "agreement": value,
                "accuracy": 0.95,
                "time ratio": 0.1 + (name == "cell"),
            }
            for name, value in families.items()
        ]
        table.append({**table[2], "network": "other", "agreement": 0.1})  # the best of a family counts
        found = {"data": "mnist", "activation": "relu", "width": 256, "seed": seed, "chosen": "plain"}
        return {**found, "table": table, "consistency": {"1": 0.9, "2": 0.94}}

    lines = replacing.table([run(0, 0.98, 0.97, 0.99), run(1, 0.96, 0.97, 0.965)]).splitlines()
    assert lines[2] == "| mnist, relu, 256 | 2 | 95.00 | 97.00 | 97.00 | 97.75 | 94.00 | 97.00 | 10 |"
    assert "-1.00 to +1.00 points" in lines[4]
    assert "In 1 of them" in lines[4]
    assert "in 0, and never with relu, width 256." in lines[4]  # steps of the cell take too long
    assert "In 1 of 2 another network within the limit agreed more on the test images, by up to 1.00 points" in lines[6]
    unstable = {**run(2, 0.5, 0.9, 0.5), "contraction": 4.28}  # the solver does not converge: nothing was designed
    unstable["table"] = [row for row in unstable["table"] if row["family"] in ("module", "plain")]
    text = replacing.table([run(0, 0.98, 0.97, 0.99), unstable])
    assert "| mnist, relu, 256 | 1 | 95.00 | 98.00 |" in text
    assert "1 further DEQ (mnist, relu, width 256) lost its equilibrium" in text
    assert "4.3" in text
