"""What several figures share: series, error bars, log-log axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from notsodeep.papers.entry import Row
from notsodeep.papers.summary import curve
from notsodeep.report.style import COLORS

__all__ = ["SERIES", "error_axis", "plain_log_ticks", "plot_curve"]

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
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    places = sorted({row["n"] for row in rows})
    axis.set(xscale="log", yscale="log", xlabel="number of samples n")
    values = np.array([row[column] for row in rows for column in columns])
    if reference:
        middle, center = np.exp(np.mean(np.log(values))), np.exp(np.mean(np.log(places)))
        ends = np.array([places[0], places[-1]], dtype=float)
        axis.plot(ends, middle * np.sqrt(center / ends), color=COLORS["ink"], lw=1.2, ls="--", label="∝ n$^{-1/2}$")
    axis.set_ylim(values.min() / 1.6, values.max() * 1.6)
    axis.xaxis.set_major_locator(FixedLocator(places))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    plain_log_ticks(axis.yaxis)


def plain_log_ticks(axis: Any) -> None:
    """0.5, 1, 2, 5 … where they fit, powers of ten otherwise; written plainly."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
