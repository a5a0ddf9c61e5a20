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


def page(records: Sequence[Mapping[str, Any]], entries: Sequence[Entry], out: Path) -> str:
    """The HTML file about the records of :func:`notsodeep.papers.run.reproduce_all`, whose files are below `out`."""
    quick = any(record.get("quick") for record in records)
    command = "notsodeep reproduce all --quick" if quick else "notsodeep reproduce all"
    text = (
        f"Figures and tables of [Ling24], [Ling23] and [FK20], redone by `{command}`, and some of ours. Each says what "
        "the paper, or our theory, claims, what was measured here, and whether the two agree; where they do not, why."
    )
    if quick:
        text += "\n\n**These are quick runs with small sizes: they show that all works, and prove nothing.**"
    rows = [(f"[{one['name']}](#{one['name']})", one["paper"], _verdict(one), *_effort(one)) for one in records]
    lead: list[Part] = [
        Prose(text),
        Table(("entry", "where", "verdict", "trials", "their seconds"), rows, numbers=False),
    ]
    sections = [_section(record, entry, out) for record, entry in zip(records, entries, strict=True)]
    return render("The papers, redone", sections, lead)


def _verdict(record: Mapping[str, Any]) -> str:
    return "could not run" if "error" in record else str(record["verdict"]).partition(" (")[0]


def _effort(record: Mapping[str, Any]) -> tuple[str, str]:
    return ("–", "–") if "error" in record else (str(record["trials"]["total"]), f"{record['trial_seconds']:.0f}")


def _section(record: Mapping[str, Any], entry: Entry, out: Path) -> Section:
    name = record["name"]
    head = f"{record['paper']}: {record['title']}"
    if "error" in record:
        return Section(name, [Prose(f"**{head}**\n\nCould not run: {plain(record['error'])}")])
    claimed_by = record.get("claimed_by", "paper")
    disagreeing = [check for check in record["checks"] if not check["agrees"]]
    parts: list[Part] = [
        Prose(
            f"**{head}**\n\n**{claimed_by.capitalize()} says:** {record['paper_says']}.\n\n"
            f"**We measure:** {record['we_measure']}.\n\n**Verdict:** {record['verdict']}."
        ),
        *_figure(entry, out / name),
    ]
    if disagreeing:
        parts.append(
            Table(
                ("what disagrees", claimed_by, "here", "why"),
                [(one["what"], one["paper"], one["measured"], one["why"] or "–") for one in disagreeing],
                numbers=False,
            )
        )
    agreeing = len(record["checks"]) - len(disagreeing)
    parts.append(Prose(f"{agreeing} of {len(record['checks'])} checks agree."))
    if record["assumptions"]:
        rows = [(str(place), text) for place, text in enumerate(record["assumptions"], 1)]
        what = "what was chosen" if claimed_by == "theory" else "what the paper leaves open, and what was chosen"
        parts.append(Table(("", what), rows, numbers=False))
    links = ", ".join(f"[{file}]({name}/{file})" for file in (*record["files"], "verdict.json"))
    parts.append(Prose(f"Files: {links}"))
    return Section(name, parts)


def _figure(entry: Entry, folder: Path) -> list[Part]:
    """The panels as interactive plots, two per row; the picture where a panel cannot be converted."""
    rows = own_json(folder / "data.json", list)
    with style() as plt:
        try:
            live = from_matplotlib(entry.draw(plt, rows))
        except InputError:
            return [Picture(folder / "figure.png", f"{entry.name}: {entry.title}")]
    return [Row(live[start : start + 2]) for start in range(0, len(live), 2)]
