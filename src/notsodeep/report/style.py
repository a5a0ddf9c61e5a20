"""One style for all pictures: colours that colour-blind readers can tell apart, readable sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from notsodeep import files
from notsodeep.extras import need

__all__ = ["COLORS", "THEMES", "plain_log_ticks", "save", "style"]

# Okabe & Ito's palette, brighter on dark ground; the same thing has the same colour in every picture, plot and page
_PALETTE = {  # on light ground, on dark ground
    "implicit": ("#0072B2", "#56B4E9"),
    "explicit": ("#D55E00", "#FF8C42"),
    "other": ("#8C8C8C", "#9DA3AB"),
    "other2": ("#CC79A7", "#E3A0C8"),
    "theory": ("#009E73", "#35C99B"),
    "ink": ("#222222", "#E6E8EB"),
    "muted": ("#5A6068", "#A9B0BA"),
    "link": ("#005A8E", "#7CC4F2"),
    "paper": ("#FFFFFF", "#14171B"),
    "panel": ("#F4F6F8", "#1D2228"),
    "line": ("#D5D9DF", "#3A424C"),
    "grid": ("#E6E6E6", "#2C333B"),
    "shade": ("#EDEDED", "#2A3038"),
    "cold": ("#2166AC", "#57A5EA"),
    "middle": ("#F7F7F7", "#1B2026"),
    "warm": ("#B2182B", "#F2765F"),
}
THEMES: dict[str, dict[str, str]] = {
    theme: {name: pair[k] for name, pair in _PALETTE.items()} for k, theme in enumerate(("light", "dark"))
}
COLORS = THEMES["light"]

_SETTINGS: dict[str, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "grid.color": COLORS["grid"],
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 2.0,
    "svg.fonttype": "path",
    "svg.hashsalt": "notsodeep",  # makes SVG files reproducible
}


@contextmanager
def style() -> Iterator[Any]:
    """Use the house style inside the block, and yield an object with Matplotlib's ``subplots``.

    Its figures are not registered with pyplot, so the caller's pyplot state (in a notebook, say) does not change.
    """
    with need("matplotlib").rc_context(_SETTINGS):
        yield SimpleNamespace(subplots=_subplots)


def _subplots(rows: int = 1, columns: int = 1, *, figsize: Any = None, layout: Any = None, **options: Any) -> Any:
    figure = need("matplotlib.figure").Figure(figsize=figsize, layout=layout)
    return figure, figure.subplots(rows, columns, **options)


def save(figure: Any, folder: Path, name: str) -> tuple[Path, Path]:
    """Write ``name.png`` and ``name.svg``."""
    paths = (folder / f"{name}.png", folder / f"{name}.svg")
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with files.writing(path) as file:
            figure.savefig(file, format=path.suffix[1:], bbox_inches="tight", metadata=metadata)
    return paths


def plain_log_ticks(axis: Any) -> None:
    """Ticks 0.5, 1, 2, 5 … where they fit, powers of ten otherwise; no exponents."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
