"""Notebooks: execute them and keep their outputs, ``python -m docs.notebook [NAME ...]``, and turn them into pages.

A notebook in ``docs/notebooks`` is stored with its outputs, so that the site shows them without executing anything.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
PICTURE = "image/png"


def execute(path: Path, timeout: float = 300) -> Any:
    """The notebook, executed from top to bottom in a fresh kernel and an empty directory."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            timeout=timeout,
            kernel_name=KERNEL["name"],
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        ).execute()
    return notebook


def write(path: Path) -> None:
    """Execute a notebook and store it with its outputs, without what differs from run to run."""
    import nbformat

    notebook = execute(path)
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number}"
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]  # progress
    nbformat.write(notebook, path)


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Markdown of a stored notebook, and its pictures by file name."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    title = ""
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            if not title and (found := re.match(r"# (.+)\n?", source)):
                title = found[1]
                source = f"{found[0]}\n{_offer(path.name)}\n\n{source[found.end() :].strip()}"
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if PICTURE in data:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(data[PICTURE]))
                parts.append(f"![{cell['metadata'].get('alt', title)}]({name})")
            elif "text/html" in data:
                html = " ".join("".join(data["text/html"]).split())
                parts.append(f'<div class="notebook-output">{html}</div>')
            else:
                text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
                parts.append(f"``` {{ .text .no-copy .notebook-text }}\n{text}\n```")
    return "\n\n".join(parts) + "\n", pictures


def _offer(name: str) -> str:
    return f"[Download the notebook]({name}){{ .md-button download }} and open it with `jupyter lab {name}`."


if __name__ == "__main__":
    for one in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(FOLDER.glob("*.ipynb")):
        write(one if one.suffix else FOLDER / f"{one}.ipynb")
        print(one)
