"""The interactive plots of a match, as Plotly figures."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.report import views
from notsodeep.report.compare import Comparison
from notsodeep.report.page import Plot, color
from notsodeep.report.study import Study

__all__ = ["activations", "heat_maps", "pairs", "spectra", "training"]

Array = NDArray[Any]
_SMALL = 330  # pixels, of plots that stand in rows
_LEGEND = 62  # pixels above a plot with a legend, which stands below the buttons


def activations(study: Study) -> list[Plot]:
    """φ of the DEQ and σ_l of every explicit layer, over the density of what they act on."""
    plots = []
    for panel in views.activations(study):
        density = {
            **_curve(panel.x, panel.density, "shade"),
            "yaxis": "y2",
            "fill": "tozeroy",
            "fillcolor": color("shade"),
            "hoverinfo": "skip",
        }
        curve = {
            **_curve(panel.x, panel.y, panel.color),
            "hovertemplate": "x = %{x:.3f}<br>y = %{y:.4f}<extra></extra>",
        }
        layout = {
            "showlegend": False,
            "xaxis": {"title": {"text": "pre-activation"}},
            "yaxis": {"overlaying": "y2", "tickmode": "auto"},
            "yaxis2": {"visible": False, "range": [0, 2.2], "fixedrange": True},
        }
        alt = f"Graph of {panel.activation} over the Gaussian density of its pre-activations"
        plots.append(
            Plot({"data": [density, curve], "layout": layout}, alt, panel.title, f"`{panel.activation}`", _SMALL)
        )
    return plots


def heat_maps(study: Study) -> list[Plot]:
    """Both kernels and their difference on a few samples."""
    maps = views.heat_maps(study)
    times = "" if maps.factor == 1 else f" × {maps.factor}"
    panels = [
        ("implicit kernel", maps.implicit),
        ("explicit kernel, matched", maps.explicit),
        (f"difference{times}", maps.difference),
    ]
    return [
        Plot(
            {"data": [_heat_map(values, maps)], "layout": _heat_layout(maps)},
            f"Heat map of the {title} on {len(values)} samples",
            title,
            height=_SMALL,
        )
        for title, values in panels
    ]


def _heat_map(values: Array, maps: views.HeatMaps) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "z": values.astype(np.float32),
        "zmin": -maps.bound,
        "zmax": maps.bound,
        "colorscale": [[0, color("cold")], [0.5, color("middle")], [1, color("warm")]],
        "colorbar": {"thickness": 10, "outlinewidth": 0, "len": 0.8},
        "hovertemplate": "samples %{y} and %{x}<br>%{z:.4g}<extra></extra>",
    }


def _heat_layout(maps: views.HeatMaps) -> dict[str, Any]:
    axis: dict[str, Any] = {"showgrid": False, "showline": False, "constrain": "domain", "title": {"text": "sample"}}
    if maps.labels is not None and len(names := np.unique(maps.labels)) <= 12:
        middles = [float(np.flatnonzero(maps.labels == name).mean()) for name in names]
        axis |= {
            "tickvals": middles,
            "ticktext": [_tick(str(name)) for name in names],
            "title": {"text": "label"},
        }
    return {"xaxis": axis, "yaxis": {**axis, "autorange": "reversed", "scaleanchor": "x"}}


def _tick(name: str) -> str:
    """A label beside an axis: short, and without what plotly.js would take for HTML."""
    return escape(name if len(name) <= 16 else f"{name[:15]}…", quote=False)


def pairs(study: Study, count: int = 2000) -> list[Plot]:
    """Entries of the implicit kernel against those of each explicit one."""
    dots = views.pairs(study, count)
    limits = list(dots.limits)
    labels = study.data.labels
    names = [
        f"{row}" if labels is None else f"{row} (label {escape(str(labels[row]), quote=False)})"
        for row in range(len(study.kernel))
    ]
    text = [f"{names[a]} and {names[b]}" for a, b in zip(dots.first, dots.second, strict=True)]
    plots = []
    for entry, values in zip(study.closeness, dots.explicit, strict=True):
        name = "explicit" if entry is study.matched else "other"
        scatter = {
            "type": "scatter",
            "mode": "markers",
            "name": entry.name,
            "x": dots.implicit.astype(np.float32),
            "y": values.astype(np.float32),
            "text": text,
            "marker": {"size": 4, "opacity": 0.45, "color": color(name)},
            "hovertemplate": "samples %{text}<br>implicit %{x:.4f}<br>explicit %{y:.4f}<extra></extra>",
        }
        equal = {**_curve(limits, limits, "ink", width=1, dash="dash"), "hoverinfo": "skip"}
        axis = {"range": limits, "constrain": "domain"}
        layout = {
            "showlegend": False,
            "xaxis": {**axis, "title": {"text": "implicit kernel entry"}},
            "yaxis": {**axis, "scaleanchor": "x", "title": {"text": "explicit kernel entry"}},
        }
        alt = (
            f"Scatter plot of kernel entries, implicit against {entry.name}; "
            f"the relative distance of the kernels is {100 * entry.error:.3g} %"
        )
        title = f"{entry.name}: error {100 * entry.error:.2g} %"
        plots.append(Plot({"data": [equal, scatter], "layout": layout}, alt, title, height=_SMALL + 20))
    return plots


def spectra(study: Study) -> list[Plot]:
    """All eigenvalues in bins with the limiting law, and the largest ones by rank."""
    return [_all_eigenvalues(study), _largest(study)]


def _all_eigenvalues(study: Study) -> Plot:
    bins = views.histogram(study)
    filled: dict[str, Any] = {"fill": "tozeroy", "opacity": 0.7}
    series: list[tuple[str, Array, str, dict[str, Any], dict[str, Any]]] = [
        ("implicit", bins.implicit, "implicit", filled, {"width": 0}),
        ("explicit, matched", bins.explicit, "explicit", {}, {"width": 1.8}),
        ("limiting law", bins.limit, "theory", {}, {"width": 1.8, "dash": "4px,3px"}),
    ]
    data: list[dict[str, Any]] = []
    for name, shares, tint, look, line in series:
        padded = np.append(shares, shares[-1])  # a step line needs the right edge of its last bin
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": bins.edges,
                # below the axis where there is nothing, for a logarithm has no zero
                "y": np.maximum(padded, bins.floor / 10),
                "customdata": np.column_stack([100 * padded, [*bins.edges[1:], bins.edges[-1]]]),
                "hovertemplate": name + "<br>%{x:.4g} to %{customdata[1]:.4g}: %{customdata[0]:.3g} %<extra></extra>",
                **look,
                "line": {"color": color(tint), "shape": "hv", **line},
            }
        )
    if len(bins.outliers):
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "its outliers",
                "x": bins.outliers,
                "y": np.full(len(bins.outliers), 1.5 * bins.floor),
                "marker": {"symbol": "triangle-down", "size": 11, "color": color("theory")},
                "hovertemplate": "predicted outlier %{x:.5g}<extra></extra>",
            }
        )
    layout = {
        "xaxis": _logarithmic("eigenvalue", bins.edges[0], bins.edges[-1]),
        "yaxis": _logarithmic("share of eigenvalues", bins.floor, bins.ceiling),
        "margin": {"t": _LEGEND},
    }
    n, p = study.data.X.shape
    alt = "Histogram of the eigenvalues of both kernels with the limiting law of the equivalent and its outliers"
    caption = views.caveat(study) or f"p/n = {p / n:.2g}"
    return Plot({"data": data, "layout": layout}, alt, "All eigenvalues", f"{caption}.", height=400)


def _largest(study: Study) -> Plot:
    top = views.largest(study)
    ranks = np.arange(1, len(top.implicit) + 1)
    series: list[tuple[str, Array, dict[str, Any]]] = [
        ("implicit", top.implicit, {"symbol": "circle", "size": 10, "opacity": 0.5, "color": color("implicit")}),
        ("explicit, matched", top.explicit, _strokes("cross-thin", 9, "explicit")),
        ("equivalent", top.equivalent, _strokes("line-ew", 9, "theory")),
    ]
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": ranks,
            "y": values,
            "marker": marker,
            "hovertemplate": f"{name}<br>number %{{x}}: %{{y:.5g}}<extra></extra>",
        }
        for name, values, marker in series
    ]
    low, high = min(values.min() for _, values, _ in series), max(values.max() for _, values, _ in series)
    layout = {
        "xaxis": {"title": {"text": "rank"}},
        "yaxis": _logarithmic("eigenvalue", low / 1.2, high * 1.2),
        "margin": {"t": _LEGEND},
    }
    alt = f"The {len(ranks)} largest eigenvalues of both kernels and of the equivalent, by rank"
    return Plot({"data": data, "layout": layout}, alt, f"The {len(ranks)} largest", height=400)


def training(comparison: Comparison) -> list[Plot]:
    """Accuracy after each epoch, and the cost of a prediction and of an epoch."""
    networks = (comparison.implicit, comparison.explicit)
    curves = [
        {
            **_curve(list(range(1, len(one.curve) + 1)), [100 * value for value in one.curve], one.name),
            "name": one.name,
            "mode": "lines+markers",
            "hovertemplate": f"{one.name}<br>epoch %{{x}}: %{{y:.2f}} %<extra></extra>",
        }
        for one in networks
    ]
    axes = {
        "xaxis": {"title": {"text": "epoch"}},
        "yaxis": {"title": {"text": "test accuracy [%]"}},
        "margin": {"t": _LEGEND},
    }
    alt = "Test accuracy of the implicit and the explicit network after each epoch"
    accuracy = Plot({"data": curves, "layout": axes}, alt, "Accuracy", height=_SMALL)
    return [
        accuracy,
        _bars("Inference, 1000 samples", "ms", {one.name: one.inference_ms for one in networks}),
        _bars("One training epoch", "s", {one.name: one.epoch_seconds for one in networks}),
    ]


def _bars(title: str, unit: str, values: dict[str, float]) -> Plot:
    bars = {
        "type": "bar",
        "x": list(values),
        "y": list(values.values()),
        "text": [f"{value:.3g} {unit}" for value in values.values()],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": {"color": [color(name) for name in values]},
        "width": 0.55,
        "hovertemplate": f"%{{x}}: %{{y:.4~g}} {unit}<extra></extra>",
    }
    layout = {
        "yaxis": {"title": {"text": f"time [{unit}]"}, "range": [0, 1.15 * max(values.values())]},
        "xaxis": {"showgrid": False},
    }
    alt = f"{title}: " + ", ".join(f"{name} {value:.3g} {unit}" for name, value in values.items())
    return Plot({"data": [bars], "layout": layout}, alt, title, height=_SMALL)


def _curve(x: Any, y: Any, tint: str, **line: Any) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"color": color(tint), **line}}


def _strokes(symbol: str, size: int, tint: str) -> dict[str, Any]:
    """A marker made of lines, which have a colour of their own."""
    return {"symbol": symbol, "size": size, "line": {"width": 2, "color": color(tint)}}


def _logarithmic(title: str, low: float, high: float) -> dict[str, Any]:
    return {
        "type": "log",
        "title": {"text": title},
        "range": [math.log10(low), math.log10(high)],
        "dtick": 1 if high > 300 * low else "D2",  # 1, 10, 100 or 1, 2, 5, 10
        "tickformat": "~g",
    }
