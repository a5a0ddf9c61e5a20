"""Draw the pictures of the guides into ``docs/images``: ``python -m docs.pictures [NAME ...]``, from the root."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import notsodeep as nsd
from notsodeep import data

IMAGES = Path(__file__).resolve().parent / "images"
DEQ = nsd.DEQ("relu", recurrent=0.2, input=0.8)
BLUE, ORANGE, GREY = "#0b6fb8", "#d1590b", "#667080"


def promise(plt: Any) -> Any:
    """A DEQ, the explicit network, and their kernels on the same digits."""
    digits = data.load("digits")
    order = np.argsort(digits.labels[:300], kind="stable")
    X = data.prepare(digits.X)[:300][order]
    match = nsd.match(DEQ, tau0=1.0)
    kernels = match.reference.kernel(X), match.network.kernel(X)
    figure, axes = plt.subplots(1, 4, figsize=(11, 3), width_ratios=[1.15, 1, 1, 1.15])
    for axis, kernel, tint in zip(axes[1:3], kernels, (BLUE, ORANGE), strict=True):
        off = kernel[~np.eye(len(X), dtype=bool)]
        axis.imshow(kernel, vmin=np.quantile(off, 0.02), vmax=np.quantile(off, 0.98), cmap="viridis")
        axis.set(xticks=[], yticks=[])
        axis.set_xlabel("its kernel on 300 digits", color=tint)
    _network(axes[0], ["z"], BLUE, "implicit: solves z = φ(Az + Bx)\nat every prediction")
    axes[0].annotate(
        "",
        (0.38, 0.66),
        (0.62, 0.66),
        arrowprops={"arrowstyle": "->", "color": BLUE, "connectionstyle": "arc3,rad=1.6"},
    )
    _network(axes[3], ["σ₁", "σ₂"], ORANGE, "explicit: two layers,\nactivations by design")
    distance = np.linalg.norm(kernels[0] - kernels[1], 2) / np.linalg.norm(kernels[0], 2)
    words = f"the two kernels differ by {100 * distance:.2f} % in spectral norm"
    figure.text(0.5, 0.97, words, ha="center", va="top", weight="bold")
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.16, top=0.86, wspace=0.06)
    return figure


def _network(axis: Any, layers: list[str], tint: str, words: str) -> None:
    names = ["x", *layers, "f"]
    places = np.linspace(0.1, 0.9, len(names))
    for place, name in zip(places, names, strict=True):
        hidden = name in layers
        look = {"boxstyle": "round,pad=0.45", "facecolor": tint if hidden else "white", "edgecolor": tint}
        axis.text(place, 0.55, name, ha="center", va="center", size=13, color="white" if hidden else tint, bbox=look)
    for left, right in itertools.pairwise(places):
        axis.annotate("", (right - 0.09, 0.55), (left + 0.09, 0.55), arrowprops={"arrowstyle": "->", "color": GREY})
    axis.text(0.5, 0.18, words, ha="center", va="center", color=tint, size=10)
    axis.set(xlim=(0, 1), ylim=(0, 1))
    axis.axis("off")


def kinds(plt: Any) -> Any:
    """Every kind of kernel as a function of the cosine."""
    deq = nsd.DEQ("normalized_relu", recurrent=0.25, input=0.25, bias=0.5)
    t = np.linspace(-1, 1, 201)
    figure, axis = plt.subplots(figsize=(6, 3.2))
    for kind, dash in zip(nsd.DEQ.kinds, ("-", "--", "-", "-.", ":"), strict=True):
        kernel = deq.on_sphere(kind)
        axis.plot(t, kernel(t) / kernel(1.0), dash, label=kind)
    axis.set(xlabel="cosine of two rows", ylabel="kernel, relative")
    axis.legend(frameon=False)
    return figure


def spectrum(plt: Any) -> Any:
    """Eigenvalues of an exact kernel and their limiting law."""
    means = np.zeros((2, 400))
    means[0, 0], means[1, 1] = 4, 4
    mixture = nsd.Mixture(means, [1.0, 1.2], [0.5, 0.5])
    X, labels = mixture.sample(800, seed=0)
    stats = mixture.statistics(X, labels)
    values = np.linalg.eigvalsh(DEQ.centered(stats.tau0).kernel(X))
    law = nsd.spectrum(DEQ, stats, kind="ck")
    figure, axis = plt.subplots(figsize=(7, 3))
    edges = np.linspace(law.support.min(), law.support.max(), 60)
    axis.hist(values, bins=edges, weights=np.full(values.size, 1 / values.size / np.diff(edges)[0]), color="0.82")
    axis.plot(law.x, law.y, color=BLUE, label="limiting density")
    axis.plot(
        values[-law.outliers.size :], np.zeros(law.outliers.size), "k|", markersize=16, label="largest eigenvalues"
    )
    axis.plot(law.outliers, np.zeros(law.outliers.size), "v", color=ORANGE, clip_on=False, label="predicted outliers")
    axis.set(xlabel="eigenvalue of the kernel of 800 samples", ylabel="density")
    axis.legend(frameon=False)
    return figure


def one_layer(plt: Any) -> Any:
    """The designed activation and its kernel."""
    exact = nsd.match(DEQ, tau0=1.0, kind="ck", on="sphere")
    few = nsd.match(DEQ, tau0=1.0, kind="ck", on="sphere", kinks=3)
    t, x = np.linspace(-1, 1, 201), np.linspace(-3, 3, 301)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    left.plot(t, DEQ.on_sphere("ck")(t), color=BLUE, linewidth=5, alpha=0.35, label="infinitely deep")
    left.plot(t, exact.network.on_sphere("ck")(t), color="k", linewidth=1, label="one layer")
    left.set(xlabel="cosine t", ylabel="kernel k(t)")
    right.plot(x, exact.network.activations[0](x), color=ORANGE, label="exact")
    right.plot(x, few.network.activations[0](x), "--", color=GREY, label="three kinks")
    right.set(xlabel="x", ylabel="activation σ(x)")
    for axis in (left, right):
        axis.legend(frameon=False)
    return figure


def certificate(plt: Any) -> Any:
    """Gradient descent with a guarantee."""
    import torch

    from notsodeep import nn

    net = nn.ling23_network(width=300, in_features=8, recurrent=0.001, readout_norm=0.02, seed=0)
    X = torch.eye(2, 8, dtype=torch.float64) * 8**0.5
    path = nn.descend(net, X, net(X)[:, 0].detach() + 0.01, steps=200)
    figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
    axis.plot(path.bound / path.loss[0], "--", color=GREY, label="proven bound")
    axis.plot(path.loss / path.loss[0], color=BLUE, label="loss")
    axis.set(xlabel="step", ylabel="loss, relative", ylim=(0, None))
    axis.legend(frameon=False)
    return figure


PICTURES: dict[str, Callable[[Any], Any]] = {
    one.__name__: one for one in (promise, kinds, spectrum, one_layer, certificate)
}


def main(names: list[str]) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    for name in names or PICTURES:
        with plt.rc_context({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10}):
            PICTURES[name](plt).savefig(IMAGES / f"{name}.png", dpi=110, facecolor="white")
        print(IMAGES / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
