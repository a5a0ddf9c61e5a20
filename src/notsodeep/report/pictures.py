"""The pictures of a match as PNG and SVG files: activations, spectra, kernel closeness, training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.report import views
from notsodeep.report.compare import Comparison
from notsodeep.report.study import Study
from notsodeep.report.style import COLORS, plain_log_ticks, save, style

__all__ = ["draw"]


def draw(study: Study, comparison: Comparison | None, folder: Path) -> list[str]:
    """Write all pictures into `folder` and return their names."""
    with style() as plt:
        figures = {
            "closeness": _closeness(plt, study),
            **({"training": _training(plt, comparison)} if comparison else {}),
            "activations": _activations(plt, study),
            "spectra": _spectra(plt, study),
        }
        for name, figure in figures.items():
            save(figure, folder, name)
    return list(figures)


def _activations(plt: Any, study: Study) -> Any:
    panels = views.activations(study)
    figure, axes = plt.subplots(1, len(panels), figsize=(3.9 * len(panels), 3.6), layout="constrained")
    for axis, panel in zip(axes, panels, strict=True):
        x, y = panel.x, panel.y
        span = float(np.ptp(y))
        low, high = float(y.min()) - 0.08 * span, float(y.max()) + 0.08 * span
        axis.fill_between(x, low, low + 0.45 * (high - low) * panel.density, color=COLORS["shade"], lw=0, zorder=0)
        axis.plot(x, y, color=COLORS[panel.color])
        axis.set(title=panel.title, xlabel="pre-activation", xlim=(x[0], x[-1]), ylim=(low, high))
        axis.text(
            0.03, 0.96, _wrap(str(panel.activation)), transform=axis.transAxes, va="top", fontsize=9,
            color=COLORS["ink"], bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 2},
        )  # fmt: skip
    axes[0].set_ylabel("activation")
    figure.suptitle("Activations, over the Gaussian density they act on (grey)", fontsize=12)
    return figure


def _wrap(formula: str) -> str:
    formula = re.sub(r"\d+\.\d{5,}", lambda found: f"{float(found[0]):.4g}", formula)
    return formula.replace("; ", ";\n  ").replace(") - ", ")\n− ").replace(") + ", ")\n+ ")


def _spectra(plt: Any, study: Study) -> Any:
    """Eigenvalues of the exact kernels and of the equivalent; the limiting law with its outliers."""
    bins, top = views.histogram(study), views.largest(study)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.4, 4.4), layout="constrained", width_ratios=(1.35, 1))
    left.stairs(bins.implicit, bins.edges, color=COLORS["implicit"], alpha=0.35, fill=True, label="implicit")
    left.stairs(bins.explicit, bins.edges, color=COLORS["explicit"], lw=1.6, label="explicit, matched")
    left.stairs(bins.limit, bins.edges, color=COLORS["theory"], lw=1.6, ls=(0, (4, 2)), label="limiting law")
    left.set(xscale="log", yscale="log", xlabel="eigenvalue", ylabel="share of eigenvalues")
    left.set_ylim(bins.floor, bins.ceiling)
    n, p = study.data.X.shape
    note = views.caveat(study)
    left.set_title(f"All eigenvalues\n{note}" if note else f"All eigenvalues (p/n = {p / n:.2g})")
    if len(bins.outliers):
        height = np.full(len(bins.outliers), 1.5 * bins.floor)
        left.plot(bins.outliers, height, "v", ms=7, color=COLORS["theory"], label="its outliers", ls="none")
    plain_log_ticks(left.xaxis)
    left.legend(loc="upper right")

    ranks = np.arange(1, len(top.implicit) + 1)
    right.plot(ranks, top.implicit, "o", ms=7, color=COLORS["implicit"], alpha=0.45, label="implicit")
    right.plot(ranks, top.explicit, "+", ms=8, mew=1.6, color=COLORS["explicit"], label="explicit, matched")
    right.plot(ranks, top.equivalent, "_", ms=9, mew=1.8, color=COLORS["theory"], label="equivalent")
    right.set(yscale="log", xlabel="rank", ylabel="eigenvalue", title=f"The {len(ranks)} largest")
    plain_log_ticks(right.yaxis)
    right.legend(loc="upper right")
    return figure


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
        axis.set(title=title, xticks=[], yticks=[], xlabel=f"{len(content)} samples")
        axis.grid(visible=False)
    axes[0][0].set_ylabel("samples" if maps.labels is None else "sorted by label")
    figure.colorbar(image, ax=axes[0], shrink=0.85, label="kernel value", pad=0.01, extend="both")

    dots = views.pairs(study, 20_000)
    for axis, entry, y in zip(axes[1], study.closeness, dots.explicit, strict=True):
        color = COLORS["explicit"] if entry is study.matched else COLORS["other"]
        axis.plot(dots.limits, dots.limits, color=COLORS["ink"], lw=1, ls="--", label="equal", zorder=1)
        axis.scatter(dots.implicit, y, s=5, color=color, alpha=0.2, linewidths=0, rasterized=True, zorder=2)
        axis.set(title=f"{entry.name}: error {100 * entry.error:.2g} %", aspect="equal")
        axis.set(xlim=dots.limits, ylim=dots.limits, xlabel="implicit kernel entry")
    axes[1][0].set_ylabel("explicit kernel entry")
    axes[1][0].legend(loc="upper left")
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
        curve.plot(epochs, accuracy, "o-", ms=4, color=COLORS[network.name], label=network.name)
    curve.set(xlabel="epoch", ylabel="test accuracy [%]", title="Accuracy")
    curve.xaxis.get_major_locator().set_params(integer=True)
    curve.legend(loc="lower right")
    costs = [
        (inference, "Inference, 1000 samples", "ms", [network.inference_ms for network in networks]),
        (epoch, "One training epoch", "s", [network.epoch_seconds for network in networks]),
    ]
    for axis, title, unit, values in costs:
        names = [network.name for network in networks]
        bars = axis.bar(names, values, color=[COLORS[name] for name in names], width=0.6)
        axis.bar_label(bars, labels=[f"{value:.3g} {unit}" for value in values], padding=3)
        axis.set(title=title, ylabel=f"time [{unit}]", ylim=(0, 1.15 * max(values)))
        axis.grid(visible=False, axis="x")
    return figure
