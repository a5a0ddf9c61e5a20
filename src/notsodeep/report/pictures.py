"""The pictures of a match: activations, spectra, kernel closeness."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.activations import Activation
from notsodeep.gaussian import moments
from notsodeep.report.compare import Comparison
from notsodeep.report.study import Study
from notsodeep.report.style import COLORS, save, style

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
    """φ of the DEQ and σ_l of every explicit layer, over the density of what they act on."""
    deq = study.deq.centered(study.tau0)
    tau = math.sqrt(deq.fixed_variance(deq.input * study.tau0**2, centered=True))
    panels: list[tuple[str, Activation, float, str]] = [("implicit: φ", deq.activation, tau, "implicit")]
    tau = study.tau0
    for k, layer in enumerate(study.network.activations, 1):
        panels.append((f"explicit layer {k}: σ$_{k}$", layer, tau, "explicit"))
        tau = math.sqrt(moments(layer, tau).power)
    figure, axes = plt.subplots(1, len(panels), figsize=(3.9 * len(panels), 3.6), layout="constrained")
    for axis, (title, act, width, color) in zip(axes, panels, strict=True):
        x = np.linspace(-4 * width, 4 * width, 801)
        y = np.asarray(act(x))
        span = float(np.ptp(y))
        low, high = float(y.min()) - 0.08 * span, float(y.max()) + 0.08 * span
        density = np.exp(-((x / width) ** 2) / 2)
        axis.fill_between(x, low, low + 0.45 * (high - low) * density, color="#EDEDED", lw=0, zorder=0)
        axis.plot(x, y, color=COLORS[color])
        axis.set(title=title, xlabel="pre-activation", xlim=(x[0], x[-1]), ylim=(low, high))
        axis.text(
            0.03, 0.96, _wrap(str(act)), transform=axis.transAxes, va="top", fontsize=9, color=COLORS["ink"],
            bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 2},
        )  # fmt: skip
    axes[0].set_ylabel("activation")
    figure.suptitle("Activations, over the Gaussian density they act on (grey)", fontsize=12)
    return figure


def _wrap(formula: str) -> str:
    formula = re.sub(r"\d+\.\d{5,}", lambda found: f"{float(found[0]):.4g}", formula)
    return formula.replace("; ", ";\n  ").replace(") - ", ")\n− ").replace(") + ", ")\n+ ")


def _spectra(plt: Any, study: Study) -> Any:
    """Eigenvalues of the exact kernels and of the equivalent; the limiting law with its outliers."""
    exact, matched = np.linalg.eigvalsh(study.kernel), np.linalg.eigvalsh(study.matched.kernel)
    limit, equivalent = study.spectrum, np.sort(study.equivalent_eigenvalues)
    figure, (bulk, top) = plt.subplots(1, 2, figsize=(11.4, 4.4), layout="constrained", width_ratios=(1.35, 1))

    low, high = float(min(exact[0], equivalent[0])), float(max(exact[-1], equivalent[-1]))
    low = max(low, 1e-4 * high)  # a log axis has no room for the rounding of zero eigenvalues
    bins = np.geomspace(low / 1.1, high * 1.1, 56)
    share = np.full(len(exact), 1 / len(exact))
    bulk.hist(exact, bins, weights=share, color=COLORS["implicit"], alpha=0.35, label="implicit")
    bulk.hist(
        matched, bins, weights=share, color=COLORS["explicit"], histtype="step", lw=1.6, label="explicit, matched"
    )
    expected = np.diff(limit.cdf(bins))  # atoms included
    bulk.stairs(expected, bins, color=COLORS["theory"], lw=1.6, ls=(0, (4, 2)), label="limiting law")
    bulk.set(xscale="log", yscale="log", xlabel="eigenvalue", ylabel="share of eigenvalues")
    bulk.set_ylim(0.5 / len(exact), 4 * max(np.histogram(exact, bins)[0].max() / len(exact), expected.max()))
    n, p = study.data.X.shape
    bulk.set_title(f"All eigenvalues (features / samples = {p / n:.2g})")
    if len(limit.outliers):
        height = np.full(len(limit.outliers), 0.75 / len(exact))
        bulk.plot(limit.outliers, height, "v", ms=7, color=COLORS["theory"], label="its outliers", ls="none")
    _plain_log_ticks(bulk.xaxis)
    bulk.legend(loc="upper right")

    count = min(30, len(exact))
    ranks = np.arange(1, count + 1)
    top.plot(ranks, exact[::-1][:count], "o", ms=7, color=COLORS["implicit"], alpha=0.45, label="implicit")
    top.plot(ranks, matched[::-1][:count], "+", ms=8, mew=1.6, color=COLORS["explicit"], label="explicit, matched")
    top.plot(ranks, equivalent[::-1][:count], "_", ms=9, mew=1.8, color=COLORS["theory"], label="equivalent")
    top.set(yscale="log", xlabel="rank", ylabel="eigenvalue", title=f"The {count} largest")
    _plain_log_ticks(top.yaxis)
    top.legend(loc="upper right")
    return figure


def _plain_log_ticks(axis: Any) -> None:
    """0.5, 1, 2, 5, 10 … instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 500 * low else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _closeness(plt: Any, study: Study) -> Any:
    """Heat maps of both kernels, and their entries against each other."""
    figure, axes = plt.subplots(2, 3, figsize=(11.4, 7.6), layout="constrained")
    order = _order(study)
    exact = study.kernel[np.ix_(order, order)]
    matched = study.matched.kernel[np.ix_(order, order)]
    bound = float(np.quantile(np.abs(exact[~np.eye(len(order), dtype=bool)]), 0.995))
    gap = float(np.abs(matched - exact).max())
    factor = 10 ** max(0, math.floor(math.log10(bound / gap))) if gap else 1  # else there is nothing to see
    maps = [
        ("implicit kernel", exact),
        ("explicit kernel, matched", matched),
        ("difference" if factor == 1 else f"difference × {factor}", factor * (matched - exact)),
    ]
    for axis, (title, content) in zip(axes[0], maps, strict=True):
        image = axis.imshow(content, cmap="RdBu_r", vmin=-bound, vmax=bound, interpolation="nearest")
        axis.set(title=title, xticks=[], yticks=[], xlabel=f"{len(order)} samples")
        axis.grid(visible=False)
    axes[0][0].set_ylabel("sorted by label" if study.data.labels is not None else "samples")
    figure.colorbar(image, ax=axes[0], shrink=0.85, label="kernel value", pad=0.01, extend="both")

    rows, columns = np.triu_indices(len(study.kernel), 1)
    pick = np.random.default_rng(0).choice(len(rows), min(len(rows), 20_000), replace=False)
    pairs = rows[pick], columns[pick]
    x = study.kernel[pairs]
    values = [entry.kernel[pairs] for entry in study.closeness]
    low, high = min(v.min() for v in (x, *values)), max(v.max() for v in (x, *values))
    margin = 0.04 * (high - low)
    limits = (low - margin, high + margin)
    for axis, entry, y in zip(axes[1], study.closeness, values, strict=True):
        color = COLORS["explicit"] if entry is study.matched else COLORS["other"]
        axis.plot(limits, limits, color=COLORS["ink"], lw=1, ls="--", label="equal", zorder=1)
        axis.scatter(x, y, s=5, color=color, alpha=0.2, linewidths=0, rasterized=True, zorder=2)
        axis.set(title=f"{entry.name}: error {100 * entry.error:.2g} %", xlim=limits, ylim=limits, aspect="equal")
        axis.set_xlabel("implicit kernel entry")
        axis.legend(loc="upper left")
    axes[1][0].set_ylabel("explicit kernel entry")
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


def _order(study: Study, count: int = 150) -> Any:
    """A few samples, sorted by label where there are labels."""
    rows = np.random.default_rng(0).permutation(len(study.kernel))[:count]
    if study.data.labels is None:
        return np.sort(rows)
    return rows[np.argsort(study.data.labels[rows], kind="stable")]
