"""The README keeps its promises: its example runs, its commands exist, its files are there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def test_examples_run(tmp_path: Path) -> None:
    examples = blocks("python")
    assert examples
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for code in examples:
        command = [sys.executable, "-W", "error", "-c", code]
        finished = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
        assert finished.returncode == 0, finished.stderr
        assert "exact" in finished.stdout
    assert (tmp_path / "network.json").is_file()


def test_the_guide_to_the_kernels_runs() -> None:
    guide = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", guide, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    exec(compile(code, "docs/kernels.md", "exec"), names)
    assert names["info"].error < 1e-12  # type: ignore[attr-defined]


def test_the_guide_to_the_data_runs() -> None:
    guide = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", guide, flags=re.DOTALL | re.MULTILINE)
    assert len(examples) == 2
    for code in examples:
        exec(compile(code, "docs/data.md", "exec"), {})


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
