"""The figure of the forecasts: theory as lines, trained machines as dots with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from notsodeep.papers.entry import Row, select
from notsodeep.papers.summary import curve
from notsodeep.report.style import COLORS

__all__ = ["draw"]

_LOOK = {
    "deq": {"color": COLORS["implicit"], "marker": "o"},
    "designed": {"color": COLORS["explicit"], "marker": "s"},
    "tanh": {"color": COLORS["theory"], "marker": "^"},
}
_LABEL = {"deq": "relu DEQ", "designed": "explicit, designed for it", "tanh": "tanh DEQ"}
_PANELS = {
    "samples": ("n", "training samples n / p", "means and covariances differ"),
    "ridge": ("ridge", "ridge", "means and covariances differ, n = 2 p"),
    "shapes": ("n", "training samples n / p", "covariances alone differ"),
    "recurrence": (
        "recurrent",
        r"$\sigma_a^2$, the variance of the recurrent weights",
        "covariances alone differ, n = 4 p",
    ),
    "width": ("width", "width m / n", "readout of a finite network, n = 1.5 p"),
}
_SHIFT = {"deq": 0.97, "designed": 1.03, "tanh": 1.0}  # side by side where they would hide each other


def draw(plt: Any, rows: Sequence[Row]) -> Any:
    """Five panels, and all predictions against all measurements."""
    figure, axes = plt.subplots(2, 3, figsize=(14.4, 8.4), layout="constrained")
    for axis, panel in zip(axes.ravel(), _PANELS, strict=False):
        _panel(axis, select(rows, panel=panel), panel)
    _scatter(axes.ravel()[-1], rows)
    axes[0, 0].set_ylabel("accuracy of new samples, %")
    axes[1, 0].set_ylabel("accuracy of new samples, %")
    figure.legend(
        *_legend(max(row["width"] for row in rows if row["panel"] != "width")), loc="outside lower center", ncols=4
    )
    return figure


def _panel(axis: Any, rows: Sequence[Row], panel: str) -> None:
    column, label, title = _PANELS[panel]
    unit = {"n": rows[0]["p"], "width": rows[0]["n"]}.get(column, 1)
    for network, look in _LOOK.items():
        for wide in (False, True):
            part = [row for row in select(rows, network=network) if bool(row["width"]) == wide]
            if part:
                below = network == "deq" and not wide  # the lines of a DEQ and of its design coincide
                _line(axis, part, column, unit, look["color"], wide, below)
                _dots(axis, part, column, unit, look, network, wide)
    axis.set(xlabel=label, title=title)
    if panel != "recurrence":
        from matplotlib.ticker import FuncFormatter, NullLocator

        axis.set_xscale("log")
        axis.xaxis.set_major_locator(_places(sorted({row[column] / unit for row in rows})))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _places(values: Sequence[float]) -> Any:
    from matplotlib.ticker import FixedLocator

    return FixedLocator(list(values))


def _line(axis: Any, rows: Sequence[Row], column: str, unit: float, color: str, dashed: bool, below: bool) -> None:
    """The theory between the measured points."""
    from notsodeep.papers.forecast import predicted

    ends = [row[column] for row in rows]
    logarithmic = column != "recurrent"
    grid = np.geomspace(min(ends), max(ends), 41) if logarithmic else np.linspace(min(ends), max(ends), 41)
    settings = {name: rows[0][name] for name in ("panel", "network", "width", "p", "n", "ridge", "recurrent")}
    values = []
    for place in grid:
        moved = {**settings, column: round(place) if column in ("n", "width") else float(place)}
        values.append(100 * predicted(**moved)["predicted"])
    thick = 1.4 if dashed else 4.5 if below else 1.8
    axis.plot(grid / unit, values, color=color, ls="--" if dashed else "-", lw=thick, alpha=0.55 if below else 1)


def _dots(
    axis: Any, rows: Sequence[Row], column: str, unit: float, look: dict[str, str], network: str, hollow: bool
) -> None:
    places, estimates = curve(rows, "accuracy", column)
    x = np.array(places) / unit
    x = x + 0.4 * (_SHIFT[network] - 1) if column == "recurrent" else x * _SHIFT[network]
    values = 100 * np.array([estimate.value for estimate in estimates])
    halves = 100 * np.nan_to_num([estimate.half for estimate in estimates])
    axis.errorbar(
        *(x, values, halves),
        **{**look, "ls": "none", "ms": 6, "capsize": 3, "elinewidth": 1.2},
        mfc="white" if hollow else look["color"],
        label=f"{_LABEL[network]}{', finite width' if hollow else ''}",
    )


def _scatter(axis: Any, rows: Sequence[Row]) -> None:
    from notsodeep.papers.forecast import settings_of

    axis.plot([48, 100], [48, 100], color=COLORS["ink"], lw=1, zorder=1)
    for group in settings_of(rows):
        look = _LOOK[group[0]["network"]]
        value = 100 * float(np.mean([row["accuracy"] for row in group]))
        axis.plot(
            *([100 * group[0]["predicted"]], [value]),
            **{**look, "ls": "none", "ms": 5, "alpha": 0.8},
            mfc="white" if group[0]["width"] else look["color"],
        )
    axis.set(xlabel="predicted accuracy, %", ylabel="measured accuracy, %", title="all of them", aspect="equal")


def _legend(width: int) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D

    def mark(**look: Any) -> Any:
        return Line2D([], [], **look)

    handles = [mark(**look, ls="none", ms=6) for look in _LOOK.values()]
    labels = [_LABEL[network] for network in _LOOK]
    ink = {"color": COLORS["muted"]}
    handles += [mark(**ink, ls="-"), mark(**ink, ls="--"), mark(**ink, marker="o", ls="none")]
    labels += ["theory, infinitely wide", f"theory, width {width} or m", "exact kernel"]
    handles.append(mark(**ink, marker="o", mfc="white", ls="none"))
    labels.append(f"trained readout, width {width} or m")
    return handles, labels
