"""The report of a match: a directory with the page, the pictures, the numbers and the designed network."""

from __future__ import annotations

import json
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
from notsodeep.report.folder import new_report
from notsodeep.report.match_page import match_page
from notsodeep.study import Study, comparable, compare, designs

__all__ = ["Report", "data_of", "write_report"]

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
    normalize: str = "center",
    train: bool = True,
    source: str | None = None,
    progress: Progress = None,
) -> Report:
    """Measure a match on data and write its report; see :meth:`notsodeep.Match.report`."""
    need("matplotlib"), need("plotly")  # a missing extra is reported before the work, not after
    folder = Path(directory)
    data = data_of(X, y, limit)
    replaced = (folder / "match.json").is_file()
    with reporter("report", progress=progress) as step, new_report(folder, "match.json", _FILES) as fresh:
        study = Study.of(match, data, normalize=normalize, progress=step)
        comparison = compare(study, progress=step) if train and comparable(study) else None
        step.stage("forecast")
        outlook = study.outlook
        step.stage("one hidden layer")
        both = designs(study)
        step.stage("drawing")
        content = {
            **study.to_dict(),
            "designs": both.to_dict(),
            "forecast": outlook.to_dict(),
            "comparison": comparison.to_dict() if comparison else None,
        }
        plots = pictures.draw(study, comparison, both, fresh)
        match.network.save(fresh / "network.json")
        files.write(fresh / "match.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        name = source or (str(X) if isinstance(X, str | Path) else None)
        files.write(fresh / "index.html", match_page(study, comparison, both, plots, folder, name))
    return Report(folder / "index.html", content, replaced)


def data_of(X: ArrayLike | Data | str | Path | None, y: ArrayLike | None, limit: int | None) -> Data | None:
    """The samples of a report: a data set, a file or an array; None if there are none."""
    if X is None or isinstance(X, Data | str | Path):
        if y is not None:
            raise InputError("y belongs to an array X; a data set has its own labels")
        return None if X is None else subsample(X if isinstance(X, Data) else load(X), limit)
    rows, labels = matrix(X, "X"), None if y is None else np.asarray(y)
    if labels is not None and labels.shape != (len(rows),):
        raise InputError(f"y has shape {labels.shape} but X has {len(rows)} samples; pass one label per row")
    return subsample(Data("your data", rows, labels), limit)
