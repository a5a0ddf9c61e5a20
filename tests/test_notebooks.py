"""The notebooks run, are stored with their outputs, and become pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from docs import notebook
from tests.examples import ROOT

NOTEBOOKS = sorted(notebook.FOLDER.glob("*.ipynb"))
OPTIONAL = ("torch", "gpytorch", "botorch", "zarr", "matplotlib")
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(content: Any) -> list[Any]:
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


@pytest.mark.docs
@each
def test_notebooks_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    source = path.read_text(encoding="utf-8")
    for package in OPTIONAL:
        if re.search(rf"\b(import|from) {package}\b", source):
            pytest.importorskip(package)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    for cell in cells(notebook.execute(path)):
        for output in cell["outputs"]:
            assert output.get("name") != "stderr" or "Warning" not in output["text"], output["text"]


@each
def test_notebooks_are_stored_with_their_outputs(path: Path) -> None:
    """Executed from top to bottom, with a picture, and without paths of the machine."""
    code = cells(json.loads(path.read_text(encoding="utf-8")))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "python -m docs.notebook"
    assert any("image/png" in output.get("data", {}) for output in outputs)
    shown = json.dumps([{k: v for k, v in o.items() if k != "data"} | {"data": _texts(o)} for o in outputs])
    assert not re.search(r"/(home|tmp|work|usr|Users)/| at 0x[0-9a-f]{6}", shown)
    assert path.stat().st_size < 400_000


def _texts(output: Any) -> list[Any]:
    return [value for kind, value in output.get("data", {}).items() if kind.startswith("text/")]


@each
def test_notebooks_are_in_the_navigation(path: Path) -> None:
    assert f"notebooks/{path.stem}.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_page_of_a_notebook(tmp_path: Path) -> None:
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
        {"output_type": "display_data", "data": {"image/png": "cG5n", "text/plain": "<Figure>"}},
        {"output_type": "execute_result", "data": {"text/html": "<b>\n\n  3</b>", "text/plain": "3"}},
    ]
    code = {"cell_type": "code", "source": ["f()"], "metadata": {"alt": "A curve"}, "outputs": outputs}
    text = {"cell_type": "markdown", "source": ["# Title\n", "\n", "Some words."]}
    path = tmp_path / "some.ipynb"
    path.write_text(json.dumps({"cells": [text, code]}), encoding="utf-8")
    page, pictures = notebook.page(path)
    assert pictures == {"some-1.png": b"png"}
    assert page.startswith("# Title\n\n[Download the notebook](some.ipynb)")
    assert "Some words.\n\n```python\nf()\n```\n" in page
    assert "\none\ntwo\n```" in page
    assert "![A curve](some-1.png)" in page
    assert '<div class="notebook-output"><b> 3</b></div>' in page
