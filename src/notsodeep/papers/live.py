"""The panels of a Matplotlib figure as data, so that a page can show them alive: curves, error bars, steps, bands."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from notsodeep.report.page import Plot, color
from notsodeep.report.style import COLORS

__all__ = ["panels", "plots"]

_DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
_MARKERS = {"o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "D": "diamond", "+": "cross"}
_NAMES = {value.lower(): name for name, value in reversed(COLORS.items())}


def panels(figure: Any) -> list[dict[str, Any]]:
    """What is drawn in each of the axes, JSON-ready; nothing for bar charts, axes without curves are left out."""
    from matplotlib.container import BarContainer

    if any(isinstance(one, BarContainer) for axis in figure.axes for one in axis.containers):
        return []
    found = [_panel(axis) for axis in figure.axes if axis.get_visible()]
    return [panel for panel in found if panel["curves"]]


def _panel(axis: Any) -> dict[str, Any]:
    from matplotlib.patches import Rectangle, StepPatch

    curves = []
    errors = {one.lines[0]: one for one in axis.containers if hasattr(one, "has_yerr")}
    caps = {cap for one in errors.values() for cap in one.lines[1]}
    for line in axis.lines:
        if line in caps:
            continue
        x, y = (np.asarray(one, dtype=float) for one in line.get_data())
        if line.get_transform() != axis.transData:  # axhline: one height from edge to edge
            x = np.asarray(axis.get_xlim(), dtype=float)
        container = errors.get(line)
        label = str((container or line).get_label())
        curves.append(
            {
                "label": "" if label.startswith("_") else _plain(label),
                "x": _numbers(x),
                "y": _numbers(y),
                "error": _half_widths(container) if container is not None and container.has_yerr else [],
                "color": _color(line.get_color()),
                "dash": _DASHES.get(line.get_linestyle(), "dash") if line.get_linestyle() != "None" else "",
                "width": float(line.get_linewidth()),
                "marker": _MARKERS.get(str(line.get_marker()), ""),
                "step": False,
            }
        )
    for patch in axis.patches:
        if isinstance(patch, StepPatch):
            values, edges, _ = patch.get_data()
            label = str(patch.get_label())
            face = patch.get_facecolor() if patch.get_fill() else patch.get_edgecolor()
            curves.append(
                {
                    "label": "" if label.startswith("_") else _plain(label),
                    "x": _numbers(edges),
                    "y": _numbers([*values, values[-1]]),
                    "error": [],
                    "color": _color(face),
                    "dash": "solid" if patch.get_fill() else _DASHES.get(str(patch.get_linestyle()), "dash"),
                    "width": 1.5,
                    "marker": "",
                    "step": True,
                }
            )
    return {
        "title": _plain(axis.get_title()),
        "x": _describe(axis, "x"),
        "y": _describe(axis, "y"),
        "curves": curves,
        "bands": [
            {
                "low": one.get_y(),
                "high": one.get_y() + one.get_height(),
                "color": _color(one.get_facecolor()),
                "opacity": float(np.asarray(one.get_facecolor(), dtype=float)[-1]),
                "label": _plain(str(one.get_label())),
            }
            for one in axis.patches
            if isinstance(one, Rectangle)  # axhspan
        ],
    }


def _describe(axis: Any, which: str) -> dict[str, Any]:
    from matplotlib.ticker import FixedLocator

    one = getattr(axis, f"{which}axis")
    fixed = isinstance(one.get_major_locator(), FixedLocator)
    return {
        "label": _plain(_shared(axis, which)),
        "log": one.get_scale() == "log",
        "range": [float(limit) for limit in one.get_view_interval()],
        "ticks": _numbers(one.get_majorticklocs()) if fixed else [],
    }


def _shared(axis: Any, which: str) -> str:
    """The axis' own label, or that of the panel in its line or column that has one."""
    own = str(getattr(axis, f"get_{which}label")())
    spec = axis.get_subplotspec()
    if own or spec is None:
        return own
    span = "colspan" if which == "x" else "rowspan"
    others = (one for one in axis.figure.axes if one.get_subplotspec() is not None)
    near = (one for one in others if getattr(one.get_subplotspec(), span) == getattr(spec, span))
    return next(filter(None, (str(getattr(one, f"get_{which}label")()) for one in near)), "")


def _half_widths(container: Any) -> list[float | None]:
    segments = container.lines[2][0].get_segments()
    return _numbers([(end[1] - start[1]) / 2 for start, end in segments])


def _numbers(values: Any) -> list[float | None]:
    return [float(one) if math.isfinite(one) else None for one in np.asarray(values, dtype=float)]


def _color(given: Any) -> str:
    """A name of the style where it is one, otherwise the colour itself."""
    from matplotlib.colors import to_hex

    text = to_hex(given).lower()
    return _NAMES.get(text, text)


def _plain(text: str) -> str:
    """Mathematics in Matplotlib's notation, as plain text."""
    if "$" not in text:
        return text
    text = re.sub(r"\\bar\{(\w)\}", "\\1\u0304", text).replace(r"\|", "‖").replace(r"\,", " ").replace("$", "")
    return text.replace("^2", "²").replace(" - ", " − ")


def plots(content: list[dict[str, Any]], name: str) -> list[Plot]:
    """Panels as interactive plots."""
    return [_plot(panel, f"{name}, panel {place}") for place, panel in enumerate(content, 1)]


def _plot(panel: dict[str, Any], name: str) -> Plot:
    title = panel["title"].replace("\n", " — ")
    layout = {
        **{f"{which}axis": _axis(panel[which]) for which in ("x", "y")},
        "showlegend": any(curve["label"] for curve in panel["curves"]),
        "legend": {"orientation": "h", "y": -0.25, "yanchor": "top"},
        "margin": {"t": 30},
        "shapes": [_band(band) for band in panel["bands"]],
    }
    alt = f"{name}: {title}, {panel['y']['label']} against {panel['x']['label']}"
    height = 380 + 11 * sum(bool(curve["label"]) for curve in panel["curves"])
    return Plot({"data": [_trace(curve) for curve in panel["curves"]], "layout": layout}, alt, title, height=height)


def _axis(axis: dict[str, Any]) -> dict[str, Any]:
    limits = [math.log10(one) for one in axis["range"]] if axis["log"] else axis["range"]
    settings = {"type": "log" if axis["log"] else "linear", "range": limits, "title": {"text": axis["label"]}}
    if axis["ticks"]:
        return {**settings, "tickmode": "array", "tickvals": axis["ticks"]}
    if axis["log"]:  # 1, 2, 5 where they fit
        return {**settings, "dtick": "D2" if abs(limits[1] - limits[0]) < 2.5 else 1}
    return settings


def _band(band: dict[str, Any]) -> dict[str, Any]:
    named = band["label"] and not band["label"].startswith("_")
    text = {"label": {"text": band["label"], "font": {"color": color("muted")}}} if named else {}
    return {
        "type": "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": band["low"],
        "y1": band["high"],
        "fillcolor": _shade(band["color"]),
        "opacity": band["opacity"],
        "line": {"width": 0},
        "layer": "below",
        **text,
    }


def _shade(name: str) -> str:
    return color(name) if name in COLORS else name


def _trace(curve: dict[str, Any]) -> dict[str, Any]:
    shade = _shade(curve["color"])
    parts = [part for part, there in (("lines", curve["dash"]), ("markers", curve["marker"])) if there]
    trace: dict[str, Any] = {
        "type": "scatter",
        "name": curve["label"],
        "showlegend": bool(curve["label"]),
        "x": curve["x"],
        "y": curve["y"],
        "mode": "+".join(parts) or "lines",
        "line": {"color": shade, "dash": curve["dash"] or "solid", "width": curve["width"]}
        | ({"shape": "hv"} if curve["step"] else {}),
        "marker": {"color": shade, "symbol": curve["marker"] or "circle", "size": 7},
        "hovertemplate": "%{x:.4g}: %{y:.4g}<extra>%{fullData.name}</extra>",
    }
    if curve["error"]:
        trace["error_y"] = {"type": "data", "array": curve["error"], "color": shade, "thickness": 1.2}
    return trace
