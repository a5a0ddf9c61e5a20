"""What several figures share: series, error bars, log-log axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from notsodeep.papers.entry import Row
from notsodeep.papers.summary import curve
from notsodeep.report.style import COLORS, plain_log_ticks

__all__ = ["SERIES", "error_axis", "plot_curve", "size_axis"]

# told apart by colour and by marker
SERIES: tuple[dict[str, str], ...] = (
    {"color": COLORS["implicit"], "marker": "o"},
    {"color": COLORS["explicit"], "marker": "s"},
    {"color": COLORS["theory"], "marker": "^"},
    {"color": COLORS["other2"], "marker": "D"},
)


def plot_curve(axis: Any, rows: Sequence[Row], y: str, x: str = "n", **look: Any) -> None:
    """Means with 95 % intervals; a single trial has none."""
    places, estimates = curve(rows, y, x)
    values = np.array([estimate.value for estimate in estimates])
    halves = np.nan_to_num(np.array([estimate.half for estimate in estimates]))
    axis.errorbar(places, values, yerr=halves, **{"ms": 5, "capsize": 3, "elinewidth": 1.2, **look})


def error_axis(axis: Any, rows: Sequence[Row], columns: Sequence[str] = ("error",), *, reference: bool = False) -> None:
    """Log-log over n with plain ticks, limits that fit the means, and on demand the line n^−1/2 through the middle."""
    places = sorted({row["n"] for row in rows})
    size_axis(axis, rows, "n", "number of samples n")
    axis.set_yscale("log")
    values = np.array([row[column] for row in rows for column in columns])
    if reference:
        middle, center = np.exp(np.mean(np.log(values))), np.exp(np.mean(np.log(places)))
        ends = np.array([places[0], places[-1]], dtype=float)
        axis.plot(ends, middle * np.sqrt(center / ends), color=COLORS["ink"], lw=1.2, ls="--", label="∝ 1/√n")
    axis.set_ylim(values.min() / 1.6, values.max() * 1.6)
    plain_log_ticks(axis.yaxis)


def size_axis(axis: Any, rows: Sequence[Row], column: str = "width", label: str = "width m") -> None:
    """Logarithmic, with a tick at every width, or at every other one where there are many."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    places = sorted({row[column] for row in rows})
    axis.set(xscale="log", xlabel=label)
    axis.xaxis.set_major_locator(FixedLocator(places if len(places) < 6 else places[1::2]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
