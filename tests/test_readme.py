"""The README keeps its promises: its example runs, its commands exist, its files are there."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest
from tests.examples import ROOT, blocks, run

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_examples_run(tmp_path: Path) -> None:
    printed = run("\n".join(blocks(README)), tmp_path)  # a later example goes on where an earlier one ended
    assert "exact" in printed
    assert float(re.search(r"kernel machine: ([\d.]+)", printed)[1]) > 0.9  # type: ignore[index]
    assert (tmp_path / "network.json").is_file()


def test_every_extra_is_named() -> None:
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    named = set(re.findall(r"^\| `(\w+)` \|", README, flags=re.MULTILINE))
    assert named == extras - {"all", "test", "docs", "lint"}
    assert 'pip install -c constraints.txt -e ".[all]"' in README


def test_links_and_pictures_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).is_file(), target


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for target in set(
        re.findall(r"make ([a-z]+)\b(?=[`\s\"])", "\n".join(re.findall(r"`make [^`]*`|^make .*", text, re.M)))
    ):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_table_comes_from_the_demo() -> None:
    table = README.split("<!-- written by `make readme` -->")[1].split("<!-- end -->")[0]
    assert "| " in table


def test_the_performance_table_is_that_of_the_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    readme = importlib.import_module("readme")
    assert readme.written(README, readme.BENCH, readme.performance()) == README


def test_promise_and_limits_come_first() -> None:
    """On the first screen: what is promised, where it ends, a picture, how to install."""
    first = "\n".join(README.splitlines()[:40])
    for words in (
        "exactly",
        "n^−1/2",
        "nothing is promised",
        "not the same function",
        "images/promise.png",
        "pip install",
    ):
        assert words in first
    for section in ("Install", "Three tasks", "How close, how fast", "What is inside"):
        assert f"## {section}\n" in README
    assert len(re.findall(r"^\*\*I ", README, flags=re.MULTILINE)) == 3 == len(blocks(README))
    assert "**What `centered` means.**" in README
