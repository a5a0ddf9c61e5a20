"""The README keeps its promises: its example runs, its commands exist, its files are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

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
