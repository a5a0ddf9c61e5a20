"""Run entries: trials, then data, figure and verdict in ``<out>/<name>/``."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from notsodeep import __version__, files
from notsodeep.checks import InputError, MissingExtraError
from notsodeep.extras import need
from notsodeep.papers.entry import Entry, Row
from notsodeep.papers.page import page
from notsodeep.papers.trials import Trials, own_json
from notsodeep.progress import Progress, reporter
from notsodeep.report.style import save, style
from notsodeep.text import cell

__all__ = ["collect", "reproduce", "reproduce_all", "reproduce_some"]


def reproduce(
    entry: Entry, out: Path, *, quick: bool = False, data: str | None = None, progress: Progress = None
) -> dict[str, Any]:
    """Run one entry and return the content of its ``verdict.json``.

    Written to ``<out>/<name>/``: ``trials/`` as they finish; then ``data.csv`` and ``data.json`` (one row a trial),
    ``curves.csv`` where trials hold lists, ``figure.svg``, ``figure.png`` and, last, ``verdict.json``.

    Parameters
    ----------
    entry : Entry
    out : Path
    quick : bool
        Use small sizes; the verdict says so.
    data : str, optional
        Another data set in place of the paper's, by name or file, for entries that classify (``ling24-fig3`` and
        the like): features of a pretrained network, say.
    progress : bool, callable or None
        See :func:`notsodeep.progress.reporter`.
    """
    need("matplotlib")  # a missing extra is reported before the work, not after
    sizes = entry.quick if quick else entry.full
    if data is not None:
        if not isinstance(sizes.get("data"), tuple):
            raise InputError(f"{entry.name} takes no other data; leave out data={data!r}")
        sizes = {**sizes, "data": (data,)}
        entry = replace(entry, name=f"{entry.name}-{Path(data).stem}")  # keeps the paper's own results
    folder = _folder(entry, out, quick)
    plan = list(entry.plan(**sizes))
    trials = Trials(folder / "trials", entry.name, entry.revision)
    began = time.perf_counter()
    rows: list[Row] = []
    with reporter(entry.name, len(plan), progress) as report:
        for done, settings in enumerate(plan):
            report(done, len(plan))
            rows.append(trials.get(settings, entry.measure))
        report(len(plan), len(plan))
    try:
        judgement = entry.judge(rows)
        written = [*_write_rows(rows, folder), *_write_figure(entry, rows, folder)]
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        if not trials.reused:
            raise
        raise InputError(
            f"the trials in {folder / 'trials'} do not hold what {entry.name} measures ({error!r}); delete them"
        ) from error
    content = {
        "name": entry.name,
        "paper": entry.paper,
        "title": entry.title,
        "revision": entry.revision,
        "claimed_by": entry.claimed_by,
        "quick": quick,
        "sizes": dict(sizes),
        "paper_says": judgement.paper,
        "we_measure": judgement.measured,
        "verdict": f"{judgement.verdict} (quick: small sizes, no proof)" if quick else judgement.verdict,
        "claim": judgement.claim,
        "numbers": judgement.numbers,
        "finding": judgement.finding or judgement.measured,
        "because": judgement.because,
        "checks": [asdict(check) for check in judgement.checks],
        "assumptions": list(entry.assumptions),
        "differences": list(entry.differences),
        "trials": {"total": len(plan), "measured": trials.measured, "reused": trials.reused},
        "seconds": round(time.perf_counter() - began, 1),
        "trial_seconds": round(trials.seconds, 1),
        "files": written,
        "version": __version__,
    }
    files.write(folder / "verdict.json", _json(content))
    return content


def reproduce_all(
    entries: Iterable[Entry], out: Path, *, quick: bool = False, progress: Progress = None
) -> list[dict[str, Any]]:
    """Run entry after entry and write ``<out>/summary.json`` and the page ``<out>/index.html``.

    An entry that cannot run (a data set cannot be fetched, an extra is missing) does not stop the others: its
    record gives the reason.
    """
    records: list[dict[str, Any]] = []
    need("plotly")  # before the work, not after
    chosen = list(entries)
    for entry in chosen:
        try:
            records.append(reproduce(entry, out, quick=quick, progress=progress))
        except (InputError, MissingExtraError, OSError) as error:
            records.append({"name": entry.name, "paper": entry.paper, "title": entry.title, "error": str(error)})
    files.write(out / "summary.json", _json({"quick": quick, "version": __version__, "entries": records}))
    files.write(out / "index.html", page(records, chosen, out))
    return records


def reproduce_some(
    chosen: Sequence[Entry],
    out: Path,
    known: Iterable[Entry],
    *,
    quick: bool = False,
    data: str | None = None,
    progress: Progress = None,
) -> list[dict[str, Any]]:
    """Run some entries and write ``<out>/index.html`` about them and about earlier results of `known` ones there."""
    need("plotly")  # before the work, not after
    records = [reproduce(entry, out, quick=quick, data=data, progress=progress) for entry in chosen]
    done = zip(records, chosen, strict=True)
    shown = {record["name"]: (record, replace(entry, name=record["name"])) for record, entry in done}
    for entry in known:
        verdict = out / entry.name / "verdict.json"
        if entry.name not in shown and verdict.is_file():
            earlier = own_json(verdict, dict)
            if earlier.get("quick") is quick and earlier.get("version") == __version__:
                shown[entry.name] = (earlier, entry)
    content, entries = zip(*shown.values(), strict=True)
    try:
        text = page(content, entries, out, " ".join(shown))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        stored = [record["name"] for record in records if record["trials"]["reused"]]
        if len(shown) == len(records) and not stored:
            raise
        earlier_ones = ", ".join([*stored, *list(shown)[len(records) :]])
        raise InputError(
            f"out={str(out)!r}: earlier results are damaged ({error!r}); delete those of {earlier_ones}"
        ) from error
    files.write(out / "index.html", text)
    return records


def collect(out: Path) -> list[dict[str, Any]]:
    """The verdicts below `out`, each with its folder and its rows, for a page about them."""
    records = []
    for path in sorted(out.glob("*/verdict.json")):
        record, rows = own_json(path, dict), own_json(path.parent / "data.json", list)
        records.append({**record, "folder": str(path.parent), "rows": rows})
    return records


def _folder(entry: Entry, out: Path, quick: bool) -> Path:
    folder = files.folder(out, "out") / entry.name
    verdict = folder / "verdict.json"
    if quick and verdict.is_file() and own_json(verdict, dict).get("quick") is not True:
        raise InputError(f"out={str(out)!r} holds the full run of {entry.name}; pass another directory to --quick")
    return files.folder(folder, "out")


def _write_rows(rows: Sequence[Row], folder: Path) -> list[str]:
    """Scalars to data.csv, lists to curves.csv in long form, everything to data.json."""
    files.write(folder / "data.json", _json(rows))
    scalars = list(dict.fromkeys(key for row in rows for key, value in row.items() if not isinstance(value, list)))
    files.write(folder / "data.csv", _csv([scalars, *([_cell(row.get(key)) for key in scalars] for row in rows)]))
    points = [
        (trial, key, index, _cell(value))
        for trial, row in enumerate(rows)
        for key, values in row.items()
        if isinstance(values, list)
        for index, value in enumerate(values)
    ]
    if not points:
        return ["data.csv", "data.json"]
    files.write(folder / "curves.csv", _csv([("trial", "curve", "index", "value"), *points]))
    return ["data.csv", "data.json", "curves.csv"]


def _write_figure(entry: Entry, rows: Sequence[Row], folder: Path) -> list[str]:
    with style() as plt:
        return [path.name for path in save(entry.draw(plt, rows), folder, "figure")]


def _csv(lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    return repr(value) if isinstance(value, float) else cell(value)  # all digits


def _json(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
