"""One look for all pictures: colours that colour-blind readers tell apart, sizes one can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from notsodeep.checks import MissingExtraError

__all__ = ["COLORS", "pyplot", "save", "style"]

# Okabe & Ito's palette; the same thing has the same colour in every picture
COLORS = {
    "implicit": "#0072B2",
    "explicit": "#D55E00",
    "other": "#8C8C8C",
    "other2": "#CC79A7",
    "theory": "#009E73",
    "ink": "#222222",
}

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
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 2.0,
    "svg.fonttype": "path",
    "svg.hashsalt": "notsodeep",  # the same picture is the same file
}


def pyplot() -> ModuleType:
    """Matplotlib without a window, or the one-line hint how to install it."""
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError('pictures need matplotlib; install it with: pip install "notsodeep[report]"') from None
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    return plt


@contextmanager
def style() -> Iterator[ModuleType]:
    """Use the house style inside the block."""
    plt = pyplot()
    with plt.rc_context(_SETTINGS):
        yield plt


def save(figure: Any, folder: Path, name: str) -> tuple[Path, Path]:
    """Write ``name.png`` and ``name.svg``."""
    paths = (folder / f"{name}.png", folder / f"{name}.svg")
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, bbox_inches="tight", metadata=metadata)
    pyplot().close(figure)
    return paths
