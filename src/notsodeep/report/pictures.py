"""The pictures of a match, drawn once: PNG and SVG files, and the same axes as plots of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.highdim.fitted import HeldOut
from notsodeep.models import Explicit
from notsodeep.one_layer import SphereMatch
from notsodeep.report import views
from notsodeep.report.live import from_matplotlib, tell
from notsodeep.report.page import Plot
from notsodeep.report.style import COLORS, plain_log_ticks, save, style
from notsodeep.study import Comparison, Designs, Study

__all__ = ["NAMES", "draw", "draw_one_layer"]

NAMES = ("closeness", "training", "activations", "one_layer", "spectra")


def draw(
    study: Study, comparison: Comparison | None, both: Designs, folder: Path | None = None
) -> dict[str, list[Plot]]:
    """Return the plots of each picture by its name; with a folder, write its files as well."""
    plots = {}
    with style() as plt:
        figures = {
            "closeness": _closeness(plt, study),
            **({"training": _training(plt, comparison)} if comparison else {}),
            "activations": _activations(plt, study),
            "one_layer": _one_layer(plt, both.single),
            "spectra": _spectra(plt, study),
        }
        for name, figure in figures.items():
            plots[name] = from_matplotlib(figure)
            if folder is not None:
                save(figure, folder, name)
    return plots


def draw_one_layer(single: SphereMatch, folder: Path) -> list[Plot]:
    """The picture of a single layer alone."""
    with style() as plt:
        figure = _one_layer(plt, single)
        save(figure, folder, "one_layer")
        return from_matplotlib(figure)


def _activations(plt: Any, study: Study) -> Any:
    panels = views.activations(study)
    figure, axes = plt.subplots(1, len(panels), figsize=(3.9 * len(panels), 3.6), layout="constrained")
    for axis, panel in zip(axes, panels, strict=True):
        x, y = panel.x, panel.y
        span = float(np.ptp(y))
        low, high = float(y.min()) - 0.08 * span, float(y.max()) + 0.08 * span
        axis.fill_between(x, low, low + 0.45 * (high - low) * panel.density, color=COLORS["shade"], lw=0, zorder=0)
        (line,) = axis.plot(x, y, color=COLORS[panel.color])
        tell(line, hover="x = %{x:.3f}<br>y = %{y:.4f}")
        axis.set(title=panel.title, xlabel="pre-activation", xlim=(x[0], x[-1]), ylim=(low, high))
        axis.text(
            0.03, 0.96, _wrap(str(panel.activation)), transform=axis.transAxes, va="top", fontsize=9,
            color=COLORS["ink"], bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 2},
        )  # fmt: skip
        alt = f"Graph of {panel.activation} over the Gaussian density of its pre-activations"
        tell(axis, alt=alt, caption=f"`{panel.activation}`", height=330)
    axes[0].set_ylabel("activation")
    figure.suptitle("Activations, over the Gaussian density they act on (grey)", fontsize=12)
    return figure


def _one_layer(plt: Any, single: SphereMatch) -> Any:
    """k(t) with the sums of its first terms, its coefficients, and the activation that they make."""
    view, name = views.one_layer(single), "network" if isinstance(single.reference, Explicit) else "DEQ"
    figure, axes = plt.subplots(1, 3, figsize=(13.2, 4.2), layout="constrained")
    curve, terms, shape = axes
    (line,) = curve.plot(view.t, view.kernel, color=COLORS["implicit"], lw=4, alpha=0.6, label=f"k(t) of the {name}")
    tell(line, hover="t = %{x:.3f}<br>k = %{y:.4f}")
    for count, (values, dashes) in view.sums.items():
        curve.plot(view.t, values, color=COLORS["muted"], lw=1.3, ls=dashes, label=f"{count} terms")
    curve.plot(view.t, view.layer, color=COLORS["explicit"], lw=1.5, label="one hidden layer")
    curve.set(xlabel="cosine t of two rows", ylabel=single.kind, title=r"$k(t) = \sum_k b_k t^k$")
    curve.legend()
    tell(curve, alt="The kernel as a function of the cosine, sums of its first terms, and the kernel of the layer")
    terms.plot(view.orders, view.coefficients, color=COLORS["implicit"], marker="o", ms=3, ls="none")
    terms.set(xscale="log", yscale="log", xlabel="order k", title=r"coefficients $b_k \geq 0$")
    tell(terms, alt="The coefficients of the kernel's power series against their order")
    shape.plot(view.x, view.sigma, color=COLORS["explicit"], label="σ of the layer")
    shape.plot(view.x, view.phi, color=COLORS["implicit"], ls="--", lw=1.3, label=f"φ of the {name}")
    shape.set(xlabel="pre-activation", title="the designed activation")
    shape.legend()
    tell(shape, alt=f"The activation of the single layer beside that of the {name}")
    return figure


def _wrap(formula: str) -> str:
    formula = re.sub(r"\d+\.\d{5,}", lambda found: f"{float(found[0]):.4g}", formula)
    return formula.replace("; ", ";\n  ").replace(") - ", ")\n− ").replace(") + ", ")\n+ ")


def _spectra(plt: Any, study: Study) -> Any:
    """Eigenvalues of the kernels, of the equivalent and of the limiting law, and any forecast of the accuracy."""
    forecasts = views.checks(study)
    widths = (1.35, 1, 1) if forecasts else (1.35, 1)
    figure, axes = plt.subplots(
        1, len(widths), figsize=(4.85 * sum(widths), 4.4), layout="constrained", width_ratios=widths
    )
    _all_eigenvalues(axes[0], study)
    _largest(axes[1], *views.eigenvalues(study))
    if forecasts:
        _forecast(axes[2], forecasts)
    return figure


def _all_eigenvalues(axis: Any, study: Study) -> None:
    bins = views.histogram(study)
    series = {
        "implicit": (bins.implicit, {"color": COLORS["implicit"], "alpha": 0.45, "fill": True}),
        "explicit, matched": (bins.explicit, {"color": COLORS["explicit"], "lw": 1.6}),
        "limiting law": (bins.limit, {"color": COLORS["theory"], "lw": 1.6, "ls": (0, (4, 2))}),
    }
    spans = [f"{low:.4g} to {high:.4g}" for low, high in zip(bins.edges[:-1], bins.edges[1:], strict=True)]
    for name, (shares, look) in series.items():
        text = [f"{span}: {100 * share:.3g} %" for span, share in zip(spans, shares, strict=True)]
        tell(axis.stairs(shares, bins.edges, label=name, **look), hover=f"{name}<br>%{{hovertext}}", text=text)
    if len(bins.outliers):
        height = np.full(len(bins.outliers), 1.5 * bins.floor)
        (marks,) = axis.plot(bins.outliers, height, "v", ms=7, color=COLORS["theory"], label="its outliers", ls="none")
        tell(marks, hover="predicted outlier %{x:.5g}")
    axis.set(xscale="log", yscale="log", xlabel="eigenvalue", ylabel="share of eigenvalues", title="All eigenvalues")
    axis.set(xlim=(bins.edges[0], bins.edges[-1]), ylim=(bins.floor, bins.ceiling))
    plain_log_ticks(axis.xaxis)
    plain_log_ticks(axis.yaxis)
    axis.legend(loc="upper right")
    alt = "Histogram of the eigenvalues of both kernels with the limiting law of the equivalent and its outliers"
    n, p = study.data.X.shape
    tell(axis, alt=alt, caption=f"{views.few_features(study) or f'p/n = {p / n:.2g}'}.", height=400)


def _largest(axis: Any, implicit: views.Array, explicit: views.Array, equivalent: views.Array, count: int = 30) -> None:
    ranks = np.arange(1, len(implicit) + 1)[:count]
    series = {
        "implicit": (implicit, {"marker": "o", "ms": 7, "color": COLORS["implicit"], "alpha": 0.45}),
        "explicit, matched": (explicit, {"marker": "+", "ms": 8, "mew": 1.6, "color": COLORS["explicit"]}),
        "equivalent": (equivalent, {"marker": "_", "ms": 9, "mew": 1.8, "color": COLORS["theory"]}),
    }
    for name, (values, look) in series.items():
        (marks,) = axis.plot(ranks, values[::-1][:count], ls="none", label=name, **look)
        tell(marks, hover=f"{name}<br>number %{{x}}: %{{y:.5g}}")
    axis.set(yscale="log", xlabel="rank", ylabel="eigenvalue", title=f"The {len(ranks)} largest")
    plain_log_ticks(axis.yaxis)
    axis.legend(loc="upper right")
    alt = f"The {len(ranks)} largest eigenvalues of both kernels and of the equivalent, by rank"
    tell(axis, alt=alt, height=400)


def _forecast(axis: Any, checks: dict[str, HeldOut]) -> None:
    """Theory as lines, exact kernels trained on the same samples as dots with their 95 % intervals."""
    looks = {"implicit": {"lw": 5, "alpha": 0.4, "ms": 8}, "explicit": {"lw": 1.8, "ms": 5}}
    for name, look in looks.items():
        check, tint = checks[name], COLORS[name]
        line = {key: look[key] for key in look if key != "ms"}
        (drawn,) = axis.plot(check.ridge, 100 * check.predicted, color=tint, label=f"{name}, forecast", **line)
        tell(drawn, hover=f"{name}, forecast<br>ridge %{{x:.3g}}: %{{y:.2f}} %")
        alpha, marker = look.get("alpha", 1), "o" if name == "implicit" else "s"
        dots = {"fmt": marker, "ms": look["ms"], "alpha": alpha, "color": tint, "capsize": 2, "elinewidth": 1}
        accuracy, half = 100 * check.measured, 196 * check.error
        measured = axis.errorbar(check.ridge, accuracy, half, label=f"{name}, measured", **dots)
        tell(measured, hover=f"{name}, measured<br>ridge %{{x:.3g}}: %{{y:.2f}} %")
    axis.set(xscale="log", xlabel="ridge", ylabel="accuracy [%]", title="Accuracy, before training")
    plain_log_ticks(axis.xaxis)
    axis.legend(loc="best", fontsize=9)
    alt = "Forecast and measured accuracy of kernel ridge classification with both kernels against the ridge"
    tell(axis, alt=alt, caption=f"n = {check.n}; measured on {check.tests} held-out samples.", height=400)


def _closeness(plt: Any, study: Study) -> Any:
    """Heat maps of both kernels, and their entries against each other."""
    figure, axes = plt.subplots(2, 3, figsize=(11.4, 7.6), layout="constrained")
    maps = views.heat_maps(study)
    panels = [
        ("implicit kernel", maps.implicit),
        ("explicit kernel, matched", maps.explicit),
        ("difference" if maps.factor == 1 else f"difference × {maps.factor}", maps.difference),
    ]
    for axis, (title, content) in zip(axes[0], panels, strict=True):
        image = axis.imshow(content, cmap="RdBu_r", vmin=-maps.bound, vmax=maps.bound, interpolation="nearest")
        tell(image, hover="samples %{y} and %{x}<br>%{z:.4g}")
        axis.set(title=title, xticks=[], yticks=[], xlabel=f"{len(content)} samples")
        axis.grid(visible=False)
        tell(axis, alt=f"Heat map of the {title} on {len(content)} samples", ticks=maps.ticks, height=330)
    axes[0][0].set_ylabel("samples" if maps.labels is None else "sorted by label")
    figure.colorbar(image, ax=axes[0], shrink=0.85, label="kernel value", pad=0.01, extend="both")

    dots = views.pairs(study, 2000)
    for axis, entry, y in zip(axes[1], study.closeness, dots.explicit, strict=True):
        color = COLORS["explicit"] if entry is study.matched else COLORS["other"]
        axis.plot(dots.limits, dots.limits, color=COLORS["ink"], lw=1, ls="--", label="_equal", zorder=1)
        cloud = axis.scatter(dots.implicit, y, s=7, color=color, alpha=0.45, linewidths=0, rasterized=True, zorder=2)
        tell(cloud, hover="samples %{hovertext}<br>implicit %{x:.4f}<br>explicit %{y:.4f}", text=dots.names)
        axis.set(title=f"{entry.name}: error {100 * entry.error:.2g} %", aspect="equal")
        axis.set(xlim=dots.limits, ylim=dots.limits, xlabel="implicit kernel entry", ylabel="explicit kernel entry")
        distance = f"the relative distance of the kernels is {100 * entry.error:.3g} %"
        tell(axis, alt=f"Scatter plot of kernel entries, implicit against {entry.name}; {distance}", height=350)
    return figure


def _training(plt: Any, comparison: Comparison) -> Any:
    """Accuracy after each epoch, and the cost of inference and training."""
    networks = (comparison.implicit, comparison.explicit)
    figure, (curve, inference, epoch) = plt.subplots(
        1, 3, figsize=(11.4, 3.8), layout="constrained", width_ratios=(1.6, 1, 1)
    )
    for network in networks:
        epochs = range(1, len(network.curve) + 1)
        accuracy = [100 * value for value in network.curve]
        (line,) = curve.plot(epochs, accuracy, "o-", ms=4, color=COLORS[network.name], label=network.name)
        tell(line, hover=f"{network.name}<br>epoch %{{x}}: %{{y:.2f}} %")
    curve.set(xlabel="epoch", ylabel="test accuracy [%]", title="Accuracy")
    curve.xaxis.get_major_locator().set_params(integer=True)
    curve.legend(loc="lower right")
    tell(curve, alt="Test accuracy of the implicit and the explicit network after each epoch", height=330)
    costs = [
        (inference, "Inference, 1000 samples", "ms", [network.inference_ms for network in networks]),
        (epoch, "One training epoch", "s", [network.epoch_seconds for network in networks]),
    ]
    for axis, title, unit, values in costs:
        names = [network.name for network in networks]
        text = [f"{name}: {value:.3g} {unit}" for name, value in zip(names, values, strict=True)]
        bars = axis.bar(names, values, color=[COLORS[name] for name in names], width=0.6)
        axis.bar_label(bars, labels=[f"{value:.3g} {unit}" for value in values], padding=3)
        axis.set(title=title, ylabel=f"time [{unit}]", ylim=(0, 1.15 * max(values)))
        axis.grid(visible=False, axis="x")
        tell(bars, hover="%{hovertext}", text=text)
        tell(axis, alt=f"{title}: {', '.join(text)}", height=330)
    return figure
