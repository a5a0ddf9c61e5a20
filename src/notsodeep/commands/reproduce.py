"""``notsodeep reproduce``: redo a figure or a table of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from notsodeep.commands.console import emit, say, wrapped
from notsodeep.commands.options import Json, flag
from notsodeep.errors import InputError

_MARGIN = 15


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Entries, such as ling24-fig1; or all.")
    ] = None,
    quick: Annotated[bool, flag("--quick", help="Small sizes, less than a minute each.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where results go; out/papers, or out/papers-quick with --quick.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Classify these features instead: a data set, or a file with X, y, X_test, y_test."),
    ] = None,
    list_: Annotated[bool, flag("--list", help="List the entries and stop.")] = False,
    json: Json = False,
) -> None:
    """Redo figures and tables of the papers: data, a picture and a verdict each. A stopped run is resumed."""
    from notsodeep.papers.registry import ENTRIES, find

    if list_:
        entries = [{"name": e.name, "paper": e.paper, "title": e.title} for e in ENTRIES.values()]
        if json:
            emit(entries)
        else:
            for e in entries:
                say(*wrapped(e["name"], f"{e['paper']}: {e['title']}", margin=_MARGIN))
        return
    if not names:
        raise InputError("names is empty; pass one or several entries, or all (--list shows them)")
    everything = "all" in names
    chosen = list(ENTRIES.values()) if everything else [find(name) for name in dict.fromkeys(names)]
    target = out if out is not None else Path("out") / ("papers-quick" if quick else "papers")
    progress = False if json else None

    from notsodeep.papers.run import reproduce_all, reproduce_some

    if everything:
        if data is not None:
            raise InputError("data goes with single entries, such as ling24-fig3, not with all")
        records = reproduce_all(chosen, target, quick=quick, progress=progress)
    else:
        records = reproduce_some(chosen, target, ENTRIES.values(), quick=quick, data=data, progress=progress)
    if json:
        emit(records)
    else:
        for record in records:
            _print(record, target)
        say(f"all of it on one page: {target / 'index.html'}")
    failed = [record["name"] for record in records if "error" in record]
    if failed:
        raise InputError(f"could not run {', '.join(failed)}; the reasons are in {target / 'summary.json'}")


def _print(record: dict[str, Any], out: Path) -> None:
    say(*wrapped(record["name"], f"{record['paper']}: {record['title']}", margin=_MARGIN))
    if "error" in record:
        say(*wrapped("  not run", record["error"], margin=_MARGIN), "")
        return
    claimed_by = record.get("claimed_by", "paper")
    lines = [
        (f"{claimed_by} says", record["paper_says"]),
        ("we measure", record["we_measure"]),
        ("claim", f"{record['claim']} (quick: small sizes, no proof)" if record["quick"] else record["claim"]),
        ("numbers", record["numbers"]),
    ]
    for check in record["checks"]:
        if not check["agrees"] and check["kind"] != "shown":
            reason = f" — {check['why']}" if check["why"] else ""
            lines.append(("", f"{check['what']}: {claimed_by} {check['paper']}, here {check['measured']}{reason}"))
    trials = record["trials"]
    reused = f"{trials['total']}, {trials['reused']} of them reused"
    lines.append(("trials", f"{reused}; {record['seconds']} s"))
    for label, text in lines:
        say(*wrapped(f"  {label}", text, margin=_MARGIN))
    say(f"  {'files':<{_MARGIN - 2}}{out / record['name']}", "")
