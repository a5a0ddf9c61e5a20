"""The report of a match: a directory with the page, the pictures, the numbers and the designed network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep import files
from notsodeep.checks import InputError, matrix
from notsodeep.data import Data, load, subsample
from notsodeep.extras import need
from notsodeep.matching import Match
from notsodeep.progress import Progress, reporter
from notsodeep.report import pictures
from notsodeep.report.match_page import match_page
from notsodeep.study import Study, comparable, compare

__all__ = ["Report", "write_report"]

_FILES = (
    *("match.json", "network.json", "index.html"),
    *(f"{name}.{kind}" for name in pictures.NAMES for kind in ("png", "svg")),
)


@dataclass(frozen=True)
class Report:
    """Path and content of a report.

    Attributes
    ----------
    page : Path
        ``index.html``; the other files are in the same folder.
    content : dict
        What ``match.json`` holds.
    replaced : bool
        Whether an earlier report was replaced.
    """

    page: Path
    content: dict[str, Any] = field(repr=False)
    replaced: bool = field(default=False, repr=False)


def write_report(
    match: Match,
    directory: str | Path,
    X: ArrayLike | Data | str | Path | None = None,
    y: ArrayLike | None = None,
    *,
    limit: int | None = 2000,
    train: bool = True,
    source: str | None = None,
    progress: Progress = None,
) -> Report:
    """Measure a match on data and write its report; see :meth:`notsodeep.Match.report`."""
    need("matplotlib"), need("plotly")  # a missing extra is reported before the work, not after
    folder = Path(directory)
    data = _data(X, y, limit)
    replaced = (folder / "match.json").is_file()
    with reporter("report", progress=progress) as step, _new(folder) as fresh:
        study = Study.of(match, data, progress=step)
        comparison = compare(study, progress=step) if train and comparable(study) else None
        step.stage("forecast")
        outlook = study.outlook
        step.stage("drawing")
        content = {
            **study.to_dict(),
            "forecast": outlook.to_dict(),
            "comparison": comparison.to_dict() if comparison else None,
        }
        plots = pictures.draw(study, comparison, fresh)
        match.network.save(fresh / "network.json")
        (fresh / "match.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
        name = source or (str(X) if isinstance(X, str | Path) else None)
        (fresh / "index.html").write_text(match_page(study, comparison, plots, folder, name), "utf-8")
    return Report(folder / "index.html", content, replaced)


def _data(X: ArrayLike | Data | str | Path | None, y: ArrayLike | None, limit: int | None) -> Data | None:
    if X is None or isinstance(X, Data | str | Path):
        if y is not None:
            raise InputError("y belongs to an array X; a data set has its own labels")
        return None if X is None else subsample(X if isinstance(X, Data) else load(X), limit)
    rows, labels = matrix(X, "X"), None if y is None else np.asarray(y)
    if labels is not None and labels.shape != (len(rows),):
        raise InputError(f"y has shape {labels.shape} but X has {len(rows)} samples; pass one label per row")
    return subsample(Data("your data", rows, labels), limit)


@contextmanager
def _new(path: Path) -> Iterator[Path]:
    """Yield an empty directory; it becomes `path` only if the block succeeds.

    An existing `path` is replaced if it is empty or holds only a report. Anything else may be the user's work and is
    refused.
    """

    def check(place: Path) -> None:
        if place.is_dir() and (present := sorted(entry.name for entry in place.iterdir())):
            strangers = [name for name in present if name not in _FILES]
            if "match.json" not in present or strangers:
                named = strangers[0] if strangers else present[0]
                raise InputError(
                    f"report={str(path)!r} holds files that are not a report ({named!r} for one), and a report "
                    "replaces the whole directory; pass an empty or a new directory"
                )

    check(path)
    with files.building(path, parameter="report", check=check) as fresh:
        yield fresh
