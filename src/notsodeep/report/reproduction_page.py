"""The page of `notsodeep reproduce all`: what the papers say, what was measured, and whether the two agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from notsodeep.report.page import Facts, Part, Picture, Plot, Prose, Row, Section, Table, render

__all__ = ["reproduction_page"]


def reproduction_page(records: Sequence[Mapping[str, Any]], figures: Mapping[str, Sequence[Plot]] | None = None) -> str:
    """Return the page.

    Parameters
    ----------
    records : sequence of mappings
        Contents of the files ``verdict.json``, each with the ``folder`` it lies in; or with an ``error`` that kept it
        from running.
    figures : mapping of name to plots, optional
        The figure of an entry as interactive plots; without them its ``figure.png`` is shown.
    """
    finished = [record for record in records if "error" not in record]
    agreeing = sum(record["verdict"].startswith("agrees") for record in finished)
    lead: list[Part] = [
        Prose(
            "Figures and tables of the papers, redone. Nothing was tuned to agree; where a result differs, it says so, "
            "and why where that is known."
        ),
        Facts([(f"{len(finished)}", "figures and tables redone"), (f"{agreeing}", "agree, wholly or in part")]),
    ]
    rows = [(_link(record), record["paper"], record.get("verdict", "not run")) for record in records]
    overview = Section("Overview", [Table(("entry", "where", "verdict"), rows, numbers=False)])
    sections = [_section(record, (figures or {}).get(record["name"], ())) for record in records]
    return render("The papers, redone", [overview, *sections], lead)


def _judged(agrees: bool, why: str) -> str:
    return "yes" if agrees else f"no: {why}" if why else "no"


def _link(record: Mapping[str, Any]) -> str:
    return f"[{record['name']}](#{record['name']})"


def _section(record: Mapping[str, Any], plots: Sequence[Plot]) -> Section:
    parts: list[Part] = [Prose(f"{record['paper']}: {record['title']}")]
    if "error" in record:
        return Section(record["name"], [*parts, Prose(f"**Not run:** {record['error']}")])
    picture = Path(record["folder"]) / "figure.png"
    if plots:
        parts.append(Row(plots))
    elif picture.is_file():
        parts.append(Picture(picture, f"{record['name']}: {record['title']}"))
    parts.append(
        Prose(
            f"**Paper says:** {record['paper_says']}\n\n**We measure:** {record['we_measure']}\n\n"
            f"**Verdict:** {record['verdict']}."
        )
    )
    if record["checks"]:
        rows = [
            (one["what"], one["paper"], one["measured"], _judged(one["agrees"], one["why"])) for one in record["checks"]
        ]
        parts.append(Table(("what", "paper", "here", "agrees"), rows, numbers=False))
    if record["assumptions"]:
        parts.append(Prose("What the paper leaves open, and what was chosen: " + "; ".join(record["assumptions"])))
    return Section(record["name"], parts)
