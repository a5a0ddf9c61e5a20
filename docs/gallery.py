"""Write docs/gallery.md and its pictures from what `notsodeep reproduce` left behind: python -m docs.gallery OUT."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
HEAD = """# Gallery

Figures and tables of the papers, redone by `notsodeep reproduce NAME`. Each says what the paper reports, what was
measured here, and whether the two agree; where they do not, why. This page is written by
`python -m docs.gallery out/papers`; [theory](theory.md) lists the papers.
"""


def write(out: Path, docs: Path = DOCS) -> Path:
    """Write the page and copy the pictures of every finished entry below `out`; what is missing is left out."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*/verdict.json"))]
    pictures = docs / "gallery"
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir(parents=True)
    parts = [HEAD]
    if records:
        parts.append(_overview(records))
    for record in records:
        figure = out / record["name"] / "figure.png"
        if figure.is_file():
            shutil.copy(figure, pictures / f"{record['name']}.png")
        parts.append(_entry(record, figure.is_file()))
    page = docs / "gallery.md"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _overview(records: list[dict[str, Any]]) -> str:
    rows = [f"| [{one['name']}](#{one['name']}) | {_cell(one['paper'])} | {_cell(one['verdict'])} |" for one in records]
    return "\n".join(["| entry | where | verdict |", "|:--|:--|:--|", *rows, ""])


def _entry(record: dict[str, Any], has_figure: bool) -> str:
    name, title = record["name"], record["title"]
    lines = [f"## {name}", "", f"{record['paper']}: {title}", ""]
    if has_figure:
        lines += [f"![{name}: {title}](gallery/{name}.png)", ""]
    lines += [f"- **Paper says:** {record['paper_says']}", f"- **We measure:** {record['we_measure']}"]
    lines += [f"- **Verdict:** {record['verdict']}"]
    for check in record.get("checks", []):
        if not check["agrees"]:
            why = f"; {check['why']}" if check["why"] else ""
            lines += [f"    - {check['what']}: paper {check['paper']}, here {check['measured']}{why}"]
    if record.get("assumptions"):
        lines += ["", "What the paper leaves open, and what was chosen:", ""]
        lines += [f"- {text}" for text in record["assumptions"]]
    trials = record.get("trials", {}).get("total")
    if trials is not None:
        counted = f"{trials} trial{'s' if trials != 1 else ''}"
        command = f"notsodeep reproduce {name}{' --quick' if record['quick'] else ''}"
        lines += ["", f"*{counted}; again with* `{command}`"]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(write(Path(sys.argv[1] if len(sys.argv) > 1 else "out/papers")))
