"""Write docs/gallery.md and its pictures from what `notsodeep reproduce` left behind: python -m docs.gallery OUT."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
HEAD = """# Gallery

Figures and tables of the papers, redone by `notsodeep reproduce NAME`, and some of ours. Each says what the paper, or
our theory, claims, what was measured here, and whether the two agree; where they do not, why. This page is written by
`python -m docs.gallery out/papers`, which keeps the entries that are not there; [theory](theory.md) lists the papers.
"""
ROW = re.compile(r"^\| \[(?P<name>[^]]+)\]\(#.*\|$", re.MULTILINE)


def write(out: Path, docs: Path = DOCS) -> Path:
    """Write the page and copy the pictures of every finished entry below `out`; of others, keep what the page says."""
    page, pictures = docs / "gallery.md", docs / "gallery"
    rows, entries = _present(page)
    pictures.mkdir(parents=True, exist_ok=True)
    for path in sorted(out.glob("*/verdict.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        name, figure = record["name"], path.parent / "figure.png"
        if figure.is_file():
            shutil.copy(figure, pictures / f"{name}.png")
        rows[name], entries[name] = _row(record), _entry(record, figure.is_file())
    for picture in pictures.iterdir():
        if not any(f"(gallery/{picture.name})" in text for text in entries.values()):
            picture.unlink()
    overview = ["| entry | where | verdict |", "|:--|:--|:--|", *(rows[name] for name in sorted(rows)), ""]
    parts = [HEAD, *(["\n".join(overview)] if rows else []), *(entries[name] for name in sorted(entries))]
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _present(page: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Rows of the table and entries that the page has now."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    rows = {found["name"]: found[0] for found in ROW.finditer(text)}
    entries = {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in text.split("\n## ")[1:]}
    return rows, entries


def _row(record: dict[str, Any]) -> str:
    return f"| [{record['name']}](#{record['name']}) | {_cell(record['paper'])} | {_cell(record['verdict'])} |"


def _entry(record: dict[str, Any], has_figure: bool) -> str:
    name, title = record["name"], record["title"]
    claimed_by = record.get("claimed_by", "paper")
    lines = [f"## {name}", "", f"{record['paper']}: {title}", ""]
    if has_figure:
        lines += [f"![{name}: {title}](gallery/{name}.png)", ""]
    lines += [
        f"- **{claimed_by.capitalize()} says:** {record['paper_says']}",
        f"- **We measure:** {record['we_measure']}",
    ]
    lines += [f"- **Verdict:** {record['verdict']}"]
    for check in record.get("checks", []):
        if not check["agrees"]:
            why = f"; {check['why']}" if check["why"] else ""
            lines += [f"    - {check['what']}: {claimed_by} {check['paper']}, here {check['measured']}{why}"]
    if record.get("assumptions"):
        chosen = "What was chosen:" if claimed_by == "theory" else "What the paper leaves open, and what was chosen:"
        lines += ["", chosen, ""]
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
