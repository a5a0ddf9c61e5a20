"""Convert Matplotlib axes to the Plotly plots of a page."""

from __future__ import annotations

import math
import re
import unicodedata
from html import escape, unescape
from typing import Any

import numpy as np

from notsodeep.checks import InputError
from notsodeep.extras import need
from notsodeep.report.page import Plot, color, plain
from notsodeep.report.style import COLORS
from notsodeep.text import printable

__all__ = ["from_matplotlib", "tell"]

_DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
_SYMBOLS = {
    **{"o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "D": "diamond", ".": "circle"},
    **{"x": "x-thin", "+": "cross-thin", "_": "line-ew", "*": "star"},
}


def tell(artist: Any, **words: Any) -> Any:
    """Attach text to an artist that only the page shows, and return the artist.

    Parameters
    ----------
    artist : Axes, or a line, scatter, image, step or bar container in it
    words
        For axes: `alt`, `caption` and `height` as in :class:`notsodeep.report.page.Plot`, and `ticks`, tick labels of
        both axes. For other artists: `hover`, Plotly's template, and `text`, one per mark, which the template calls
        ``%{hovertext}``. Ticks and text may be untrusted; they are escaped.
    """
    artist.live = words
    return artist


def from_matplotlib(figure: Any, *, height: int = 380) -> list[Plot]:
    """One plot for each axes that shows data, with its titles, labels, scales and limits.

    Lines, error bars, bars, steps, dots, filled areas and images are converted; anything else with data raises
    `InputError` (show its picture instead). Colours of the style follow the reader's theme.

    Examples
    --------
    >>> from notsodeep.report.live import from_matplotlib
    >>> from notsodeep.report.style import style
    >>> with style() as plt:
    ...     figure, axis = plt.subplots()
    ...     _ = axis.loglog([1, 10], [1, 0.1], label="∝ n$^{-1}$")
    ...     (plot,) = from_matplotlib(figure)
    >>> plot.figure["data"][0]["name"], plot.figure["layout"]["xaxis"]["type"]
    ('∝ n<sup>-1</sup>', 'log')
    """
    need("matplotlib")
    figure.draw_without_rendering()  # sets limits and ticks
    return [_plot(axis, height) for axis in figure.axes if axis.has_data() and axis.get_label() != "<colorbar>"]


def _plot(axis: Any, height: int) -> Plot:
    data = _traces(axis)
    named = sum(trace["showlegend"] for trace in data)
    lines = math.ceil(named / 2)  # of the legend: two names per line fit a phone
    words = {"height": height, "ticks": {}, **_told(axis)}
    words["height"] += 20 * max(0, lines - 1)
    sides = {
        "xaxis": _axis(axis.xaxis, axis.get_xlim(), axis.get_xscale(), axis.get_xlabel()),
        "yaxis": _axis(axis.yaxis, axis.get_ylim(), axis.get_yscale(), axis.get_ylabel()),
    }
    if ticks := words.pop("ticks"):
        for side in sides.values():
            side |= _ticks(ticks, [_verbatim(text) for text in ticks.values()])
    if axis.get_aspect() != "auto":
        sides["xaxis"] |= {"constrain": "domain"}
        sides["yaxis"] |= {"constrain": "domain", "scaleanchor": "x"}
    layout = {
        **sides,
        "showlegend": named > 0,
        "barmode": "overlay",
        "margin": {"t": 10 + 8 * (named > 0) + 20 * lines},
        "annotations": _annotations(axis),
    }
    title = axis.get_title()
    alt = f"{title or 'Plot'}: {axis.get_ylabel() or 'values'} against {axis.get_xlabel() or 'position'}"
    names = ", ".join(dict.fromkeys(trace["name"] for trace in data if trace["showlegend"]))
    alt = _plain(alt + (f"; {names}" if names else ""))
    return Plot({"data": data, "layout": layout}, title=_title(title), **{"alt": alt, **words})


def _axis(axis: Any, limits: tuple[float, float], scale: str, label: str) -> dict[str, Any]:
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = map(float, limits)
    result: dict[str, Any] = {"title": {"text": _html(label)}, "showgrid": axis.get_tick_params()["gridOn"]}
    if scale == "log":
        decades = abs(math.log10(high / low))
        # 1, 10, 100, or 1, 2, 5, 10, or finer ones
        steps = {"dtick": 1 if decades > 2.5 else "D2"} if decades > 1 else {}
        result |= {"type": "log", "tickformat": "~g", **steps}
        low, high = np.log10([low, high]).tolist()
    elif scale != "linear":
        raise InputError(f"scale={scale!r} of an axis is not known to a live plot; use linear or log")
    if isinstance(axis.get_major_locator(), FixedLocator | NullLocator) or axis.units is not None:
        ticks = axis.get_majorticklocs()
        result |= _ticks(ticks, [_html(text) for text in axis.get_major_formatter().format_ticks(ticks)])
    return {**result, "range": [low, high]}


def _ticks(places: Any, text: list[str]) -> dict[str, Any]:
    return {"tickmode": "array", "tickvals": [float(place) for place in places], "ticktext": text}


def _annotations(axis: Any) -> list[dict[str, Any]]:
    """Text that `annotate` and `bar_label` wrote above points."""
    from matplotlib.text import Annotation

    scales = (axis.get_xscale(), axis.get_yscale())
    found = []
    for text in axis.texts:
        if isinstance(text, Annotation):
            place = [math.log10(one) if scale == "log" else one for one, scale in zip(text.xy, scales, strict=True)]
            x, y = map(float, place)
            found.append({"x": x, "y": y, "text": _html(text.get_text()), "showarrow": False, "yanchor": "bottom"})
    return found


def _traces(axis: Any) -> list[dict[str, Any]]:
    """All artists of the axes, in drawing order."""
    from matplotlib.collections import LineCollection, PathCollection, PolyCollection
    from matplotlib.container import BarContainer, ErrorbarContainer
    from matplotlib.patches import StepPatch

    traces: list[tuple[int, dict[str, Any]]] = []
    done: set[int] = set()

    def add(artist: Any, trace: dict[str, Any], told: Any = None) -> None:
        words = _told(artist if told is None else told)
        if "hover" in words:
            trace |= {"hovertemplate": f"{words['hover']}<extra></extra>", "hoverinfo": "all"}
        if "text" in words:
            trace["hovertext"] = [_verbatim(text) for text in words["text"]]
        traces.append((math.floor(artist.get_zorder()), trace))  # error bars have the zorder of their line plus 0.1

    for container in axis.containers:
        if isinstance(container, ErrorbarContainer):
            line, caps, bars = container.lines
            done |= {id(part) for part in (line, *caps, *bars)}
            trace = _line(line, str(container.get_label()))
            sides = [side for side, there in (("x", container.has_xerr), ("y", container.has_yerr)) if there]
            for side, spread in zip(sides, bars, strict=True):
                ends = np.array(spread.get_segments())[:, :, "xy".index(side)]
                halves = np.abs(ends[:, 1] - ends[:, 0]) / 2
                bar = {"type": "data", "array": halves, "thickness": 1.2, "width": 3}
                trace[f"error_{side}"] = {**bar, "color": trace["line"]["color"]}  # a hollow mark's face is its inside
            add(line, trace, container)
        elif isinstance(container, BarContainer):
            done |= {id(part) for part in container.patches}
            add(container.patches[0], _bars(container), container)
    for line in axis.lines:
        if id(line) not in done:
            add(line, _line(line, line.get_label()))
    for patch in axis.patches:
        if isinstance(patch, StepPatch):
            add(patch, _steps(patch))
        elif id(patch) not in done:
            raise _unknown(patch)
    for part in axis.collections:
        if id(part) in done:
            continue
        if isinstance(part, PathCollection):
            x, y = np.asarray(part.get_offsets()).T
            size = 1.5 * math.sqrt(part.get_sizes()[0])
            look = {"size": size, "opacity": part.get_alpha() or 1, "color": _color(part.get_facecolor()[0])}
            add(part, {**_scatter(part, x, y), "mode": "markers", "marker": look})
        elif isinstance(part, PolyCollection):
            for path in part.get_paths():
                x, y = np.asarray(path.vertices).T
                look = {"fill": "toself", "fillcolor": _color(part.get_facecolor()[0], part.get_alpha())}
                add(part, {**_scatter(part, x, y), "line": {"width": 0}, "hoverinfo": "skip", **look})
        elif not isinstance(part, LineCollection):
            raise _unknown(part)
        else:
            for x, y in (segment.T for segment in part.get_segments()):
                look = {"color": _color(part.get_color()[0]), "width": 1.2}
                add(part, {**_scatter(part, x, y), "line": look, "hoverinfo": "skip", "showlegend": False})
    for image in axis.images:
        low, high = image.get_clim()
        shades = [[0, color("cold")], [0.5, color("middle")], [1, color("warm")]]
        values = np.asarray(image.get_array(), dtype=np.float32)
        heat = {"type": "heatmap", "z": values, "zmin": low, "zmax": high, "colorscale": shades}
        bar = {"thickness": 10, "outlinewidth": 0, "len": 0.8}
        add(image, {**heat, "colorbar": bar, "name": "", "showlegend": False})
    return [trace for _, trace in sorted(traces, key=lambda entry: entry[0])]


def _told(artist: Any) -> dict[str, Any]:
    return dict(getattr(artist, "live", {}))


def _scatter(artist: Any, x: Any, y: Any, label: str | None = None) -> dict[str, Any]:
    name = artist.get_label() if label is None else label
    shown = bool(name) and not str(name).startswith("_")  # Matplotlib's automatic labels
    values = {"x": np.asarray(x, dtype=np.float64), "y": np.asarray(y, dtype=np.float64)}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": _html(str(name)) if shown else "",
        "showlegend": shown,
        **values,
    }


def _line(line: Any, label: str) -> dict[str, Any]:
    x, y = (np.atleast_1d(values) for values in line.get_data(orig=False))
    if line.get_transform() != line.axes.transData and line.axes is not None:  # axhline, axvline
        blend = line.get_transform() - line.axes.transData
        x, y = blend.transform(np.column_stack([x, y])).T
    tint, symbol = _color(line.get_color()), _SYMBOLS.get(str(line.get_marker()))
    dash = _DASHES.get(line.get_linestyle())
    mode = "+".join(name for name, there in (("lines", dash), ("markers", symbol)) if there) or "lines"
    trace = {**_scatter(line, x, y, label), "mode": mode, "line": {"color": tint, "dash": dash or "solid"}}
    trace["opacity"] = line.get_alpha() or 1
    trace["line"]["width"] = float(line.get_linewidth())
    if symbol:
        inside, edge = _color(line.get_markerfacecolor()), {"color": tint, "width": float(line.get_markeredgewidth())}
        trace["marker"] = {"symbol": symbol, "size": 1.3 * float(line.get_markersize()), "color": inside, "line": edge}
    return trace


def _bars(container: Any) -> dict[str, Any]:
    boxes = [patch.get_bbox() for patch in container.patches]
    middle = [(box.x0 + box.x1) / 2 for box in boxes]
    tints = [_color(patch.get_facecolor(), None) for patch in container.patches]
    shape = {"base": [box.y0 for box in boxes], "width": [box.width for box in boxes], "marker": {"color": tints}}
    trace = _scatter(container, middle, [box.height for box in boxes])
    del trace["mode"]
    return {**trace, "type": "bar", **shape}


def _steps(patch: Any) -> dict[str, Any]:
    values, edges, _ = patch.get_data()
    values = np.append(values, values[-1])
    low = patch.axes.get_ylim()[0]
    if patch.axes.get_yscale() == "log":
        values = np.maximum(values, low / 10)  # log axes cannot show zero
    trace = _scatter(patch, edges, values)
    if patch.get_fill():
        look = {"fill": "tozeroy", "fillcolor": _color(patch.get_facecolor(), patch.get_alpha())}
        return {**trace, "line": {"shape": "hv", "width": 0, "color": _color(patch.get_facecolor())}, **look}
    dash = _DASHES.get(patch.get_linestyle(), "dash" if isinstance(patch.get_linestyle(), tuple) else "solid")
    return {**trace, "line": {"shape": "hv", "color": _color(patch.get_edgecolor()), "width": 1.8, "dash": dash}}


def _color(value: Any, alpha: float | None = 1.0) -> str:
    """The name of a colour of the style, or its numbers; `alpha` None keeps its own."""
    from matplotlib.colors import to_hex, to_rgba

    red, green, blue, strength = to_rgba(value, alpha)
    text = to_hex(value).upper()
    known = next((name for name, other in COLORS.items() if other.upper() == text), None)
    if known is not None:
        return color(known, strength)
    return text if strength == 1 else f"rgba({255 * red:.0f},{255 * green:.0f},{255 * blue:.0f},{strength:.3g})"


def _verbatim(text: str) -> str:
    return escape(printable(text), quote=False)  # plotly.js interprets some HTML


def _html(text: str) -> str:
    """Convert the Mathtext that labels use: Greek letters, powers, indices, bars, norms, thin spaces."""
    text = escape(text, quote=False)
    text = _signs(text) if "$" in text else text
    text = re.sub(r"\^\{([^}]*)\}|\^(\w)", lambda m: f"<sup>{m[1] or m[2]}</sup>", text) if "$" in text else text
    text = re.sub(r"_\{([^}]*)\}|_(\w)", lambda m: f"<sub>{m[1] or m[2]}</sub>", text) if "$" in text else text
    return text.replace("$", "").replace("\\", "").replace("\n", "<br>")


def _signs(text: str) -> str:
    """Mathtext with letters and signs instead of commands; indices and powers remain."""
    text = re.sub(r"\\([A-Za-z][a-z]+)", _greek, text).replace("\\,", "\u2009")
    return re.sub(r"\\bar\{(\w)\}|\\bar (\w)", lambda m: f"{m[1] or m[2]}\u0304", text).replace("\\|", "‖")


def _title(text: str) -> str:
    """Markup of the page, which typesets indices and powers itself."""
    parts = re.split(r"(?<!\\)\$", text.replace("\n", " "))
    return "".join(_signs(part) if k % 2 else plain(part.replace("\\$", "$")) for k, part in enumerate(parts))


_SIGNS = {"sum": "Σ", "geq": "≥", "leq": "≤", "approx": "≈", "times": "×", "cdot": "·", "infty": "∞", "to": "→"}


def _greek(command: re.Match[str]) -> str:
    """The sign of \\sum, the letter of \\Sigma or \\sigma; any other command unchanged."""
    if command[1] in _SIGNS:
        return _SIGNS[command[1]]
    case = "CAPITAL" if command[1][0].isupper() else "SMALL"
    name = command[1].upper().replace("LAMBDA", "LAMDA")  # as Unicode spells it
    try:
        return unicodedata.lookup(f"GREEK {case} LETTER {name}")
    except KeyError:
        return command[0]


def _plain(text: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", _html(text).replace("<br>", " ")))


def _unknown(artist: Any) -> InputError:
    return InputError(f"{type(artist).__name__} is not known to a live plot; show the picture of this figure instead")
