"""One page about all reproductions: statements of the papers, our results, and interactive figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from notsodeep.checks import InputError
from notsodeep.papers.entry import Entry
from notsodeep.papers.trials import own_json
from notsodeep.report.live import from_matplotlib
from notsodeep.report.page import Part, Picture, Prose, Row, Section, Table, plain, render
from notsodeep.report.style import style

__all__ = ["page"]


def page(records: Sequence[Mapping[str, Any]], entries: Sequence[Entry], out: Path, names: str = "all") -> str:
    """The HTML file about the records of :func:`notsodeep.papers.run.reproduce_all`, whose files are below `out`."""
    quick = any(record.get("quick") for record in records)
    command = f"notsodeep reproduce {names}" + (" --quick" if quick else "")
    text = (
        f"Figures and tables of [Ling24], [Ling23] and [FK20], redone by `{command}`, and some of ours. Each says what "
        "the paper, or our theory, claims, what was measured here, and whether the two agree; where they do not, why."
    )
    if quick:
        text += "\n\n**These are quick runs with small sizes: they show that all works, and prove nothing.**"
    rows = [(f"[{one['title']}](#{one['name']})", one["paper"], *_verdict(one), *_effort(one)) for one in records]
    head = ("what", "where", "the claim", "printed numbers", "finding", "trials", "their seconds")
    lead: list[Part] = [Prose(text), Table(head, rows, numbers=False)]
    sections = [_section(record, entry, out) for record, entry in zip(records, entries, strict=True)]
    return render("The papers, redone", sections, lead)


def _verdict(record: Mapping[str, Any]) -> tuple[str, str, str]:
    if "error" in record:
        return "could not run", "–", "–"
    return record["claim"], record["numbers"], record["finding"]


def _effort(record: Mapping[str, Any]) -> tuple[str, str]:
    return ("–", "–") if "error" in record else (str(record["trials"]["total"]), f"{record['trial_seconds']:.0f}")


def _section(record: Mapping[str, Any], entry: Entry, out: Path) -> Section:
    name, title = record["name"], record["title"]
    head = f"{record['paper']}, `{name}`"
    if "error" in record:
        return Section(title, [Prose(f"{head}\n\nCould not run: {plain(record['error'])}")], name)
    claimed_by = record.get("claimed_by", "paper")
    parts: list[Part] = [
        Prose(
            f"{head}\n\n**{claimed_by.capitalize()} says:** {record['paper_says']}.\n\n"
            f"**We measure:** {record['we_measure']}.\n\n**The claim** {record['claim']}. "
            f"**Printed numbers:** {record['numbers']}."
        ),
        *_figure(entry, out / name),
    ]
    for kind, what in (("claim", "the claim"), ("number", "printed number"), ("shown", "shown, not judged")):
        checks = [one for one in record["checks"] if one["kind"] == kind]
        columns = (what, claimed_by, "here", "", "why, if not")[: 3 if kind == "shown" else 5]
        lines = [(one["what"], one["paper"], one["measured"], _answer(one), one["why"] or "–") for one in checks]
        if lines:
            parts.append(Table(columns, [line[: len(columns)] for line in lines], numbers=False))
    chosen = "what was chosen" if claimed_by == "theory" else "what the paper leaves open, and what was chosen"
    for key, what in (("assumptions", chosen), ("differences", "where we differ, and why")):
        rows = [(str(place), text) for place, text in enumerate(record.get(key, ()), 1)]  # old records have one list
        if rows:
            parts.append(Table(("", what), rows, numbers=False))
    links = ", ".join(f"[{file}]({name}/{file})" for file in (*record["files"], "verdict.json"))
    parts.append(Prose(f"Files: {links}"))
    return Section(title, parts, name)


def _answer(check: Mapping[str, Any]) -> str:
    """Whether a claim holds, or a number lies within our interval."""
    words = {"claim": ("✓\u00a0holds", "✗\u00a0does not hold"), "number": ("✓\u00a0within", "✗\u00a0off")}
    return "cannot tell" if check["agrees"] is None else words[check["kind"]][not check["agrees"]]


def _figure(entry: Entry, folder: Path) -> list[Part]:
    """The panels as interactive plots, two per row; the picture where a panel cannot be converted."""
    rows = own_json(folder / "data.json", list)
    with style() as plt:
        try:
            live = from_matplotlib(entry.draw(plt, rows))
        except InputError:
            return [Picture(folder / "figure.png", f"{entry.name}: {entry.title}")]
    return [Row(live[start : start + 2]) for start in range(0, len(live), 2)]
