"""Write docs/gallery.md from the results of `notsodeep reproduce`: python -m docs.gallery OUT.

The record and the picture of each entry are copied to docs/gallery/; the page is written from all records there, so
entries that are not in OUT stay. Full runs may take hours: the trials of an unfinished one are kept in
docs/gallery/unfinished/, and `python -m docs.gallery --resume OUT` puts them back, so that another machine continues.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from notsodeep.papers.registry import ENTRIES
from notsodeep.papers.trials import Trials

DOCS = Path(__file__).resolve().parent
HEAD = """# Gallery

Figures and tables of the papers, redone by `notsodeep reproduce NAME`, and some of ours. A verdict has two parts.
*The claim* of the paper, or of our theory, holds, holds in part, does not hold, or our run cannot tell. *A printed
number* is within our 95 % interval, or off, and we say by how much and why. This page is written by
`python -m docs.gallery out/papers` from the records in `docs/gallery`; [theory](theory.md) lists the papers,
[coverage](coverage.md) all their statements.
"""
ANSWERS = {"claim": {True: "holds", False: "does not hold"}, "number": {True: "within", False: "off"}}


def write(out: Path, docs: Path = DOCS) -> Path:
    """Copy records and pictures of every finished entry below `out`, and write the page from all records."""
    store = docs / "gallery"
    store.mkdir(parents=True, exist_ok=True)
    _keep_unfinished(out, store / "unfinished")
    for path in sorted(out.glob("*/verdict.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        (store / f"{record['name']}.json").write_text(text, encoding="utf-8")
        if (path.parent / "figure.png").is_file():
            shutil.copy(path.parent / "figure.png", store / f"{record['name']}.png")
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(store.glob("*.json"))]
    names = {record["name"] for record in records}
    for picture in store.glob("*.png"):
        if picture.stem not in names:
            picture.unlink()
    table = [
        "| what | the claim | printed numbers | finding |",
        "|:--|:--|:--|:--|",
        *map(_row, records),
        "",
    ]
    parts = [HEAD, *(["\n".join(table)] if records else [])]
    parts += [_entry(record, (store / f"{record['name']}.png").is_file()) for record in records]
    page = docs / "gallery.md"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def _keep_unfinished(out: Path, store: Path) -> None:
    """One file for the trials of each entry without a verdict; none for those that have one."""
    for folder in sorted(path.parent for path in out.glob("*/trials")):
        kept = store / f"{folder.name}.json"
        if (folder / "verdict.json").is_file():
            kept.unlink(missing_ok=True)
            continue
        lines = [path.read_text(encoding="utf-8").strip() for path in sorted(folder.glob("trials/*.json"))]
        if lines:
            store.mkdir(exist_ok=True)
            kept.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def resume(out: Path, docs: Path = DOCS) -> list[str]:
    """Put the trials of unfinished runs where `notsodeep reproduce --out OUT` looks for them; the names of the runs."""
    names = []
    for kept in sorted((docs / "gallery" / "unfinished").glob("*.json")):
        folder = out / kept.stem / "trials"
        folder.mkdir(parents=True, exist_ok=True)
        for trial in json.loads(kept.read_text(encoding="utf-8")):
            path = Trials(folder, trial["entry"], trial["revision"]).path(trial["settings"])
            path.write_text(json.dumps(trial) + "\n", encoding="utf-8")
        names.append(kept.stem)
    return names


def _row(record: dict[str, Any]) -> str:
    what = f"[{record['title']}](#{record['name']}), {record['paper']}"
    claim = f"**{record['claim']}**" + (", to be run again" if _stale(record) else "")
    return f"| {' | '.join(_cell(cell) for cell in (what, claim, record['numbers'], record['finding']))} |"


def _entry(record: dict[str, Any], has_figure: bool) -> str:
    name, title = record["name"], record["title"]
    claimed_by = record.get("claimed_by", "paper")
    lines = [f"## {title} {{ #{name} }}", "", f"{record['paper']}, `{name}`", ""]
    if has_figure:
        lines += [f"![{name}: {title}](gallery/{name}.png)", ""]
    if record["quick"]:
        lines += ["**A quick run with small sizes: it shows that all works, and proves nothing.**", ""]
    if _stale(record):
        lines += ["**To be run again: this is the stored run of an earlier version of the entry.**", ""]
    elif planned := _missing(record):
        lines += [f"**The first {record['trials']['total']} of {planned} trials of the full run.**", ""]
    lines += [
        f"- **{claimed_by.capitalize()} says:** {record['paper_says']}",
        f"- **We measure:** {record['we_measure']}",
        *([f"- **In short:** {record['finding']}"] if record["finding"] != record["we_measure"] else []),
        f"- **The claim** {record['claim']}. **Printed numbers:** {record['numbers']}.",
        "",
    ]
    for kind, what in (("claim", "the claim"), ("number", "printed number"), ("shown", "shown, not judged")):
        checks = [check for check in record["checks"] if check.get("kind", "claim") == kind]
        rows = [(one["what"], one["paper"], one["measured"], _answer(one), _why(one)) for one in checks]
        head = (what, claimed_by, "here", "", "why, if not")
        width = 3 if kind == "shown" else 5 if any(row[-1] for row in rows) else 4  # no room for an empty column
        head, rows = head[:width], [row[:width] for row in rows]
        if rows:
            lines += [f"| {' | '.join(head)} |", "|:--" * len(head) + "|"]
            lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
            lines += [""]
    chosen = "What was chosen:" if claimed_by == "theory" else "What the paper leaves open, and what was chosen:"
    for key, what in (("assumptions", chosen), ("differences", "Where we differ, and why:")):
        if record.get(key):
            lines += [what, "", *(f"- {text}" for text in record[key]), ""]
    trials = record.get("trials", {}).get("total")
    if trials is not None:
        counted = f"{trials} trial{'s' if trials != 1 else ''}"
        command = f"notsodeep reproduce {name}{' --quick' if record['quick'] else ''}"
        lines += [f"*{counted}; again with* `{command}`", ""]
    return "\n".join(lines)


def _answer(check: dict[str, Any]) -> str:
    if check["agrees"] is None:
        return "cannot tell"
    return f"{'✓' if check['agrees'] else '✗'}\u00a0{ANSWERS[check.get('kind', 'claim')][check['agrees']]}"


def _why(check: dict[str, Any]) -> str:
    return "" if check["agrees"] and check.get("kind", "claim") == "claim" else check["why"]


def _stale(record: dict[str, Any]) -> bool:
    """Whether the entry has changed since this run, or the run is older than records with their seconds."""
    entry = ENTRIES.get(record["name"])
    return entry is not None and (record.get("revision", 1) < entry.revision or "seconds" not in record)


def _missing(record: dict[str, Any]) -> int:
    """The number of trials of a full run, if this record has fewer."""
    entry = ENTRIES.get(record["name"])
    if entry is None or record["quick"] or "trials" not in record:
        return 0
    if record.get("sizes") == json.loads(json.dumps(entry.full)):
        return 0  # without asking for the plan, which may train the features that it names
    planned = len(list(entry.plan(**entry.full)))
    return planned if record["trials"]["total"] < planned else 0


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = Path(next((word for word in words if word != "--resume"), "out/papers"))
    print(*(resume(chosen) or ["nothing is unfinished"]) if "--resume" in words else [write(chosen)])
