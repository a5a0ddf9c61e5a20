"""Draw the pictures of the guides into ``docs/images``: ``python -m docs.pictures [NAME ...]``, from the root."""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import notsodeep as nsd
from notsodeep import data

IMAGES = Path(__file__).resolve().parent / "images"
RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
DEQ = nsd.DEQ("relu", recurrent=0.2, input=0.8)
DEQ_BIASED = nsd.DEQ("relu", recurrent=0.2, input=0.8, bias=0.2)
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
    figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
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
    figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
    edges = np.linspace(law.support.min(), law.support.max(), 60)
    axis.hist(values, bins=edges, weights=np.full(values.size, 1 / values.size / np.diff(edges)[0]), color="0.82")
    axis.plot(law.x, law.y, color=BLUE, label="limiting density")
    below, above = int((law.outliers < edges[0]).sum()), int((law.outliers > edges[-1]).sum())
    outside = np.concatenate([values[:below], values[values.size - above :]])
    axis.plot(outside, np.zeros_like(outside), "k|", markersize=16, label="eigenvalues outside")
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


def replacing(plt: Any) -> Any:
    """What is offered in place of a DEQ trained on digits."""
    import torch

    from notsodeep import nn

    digits = data.load("digits").split(0.3, seed=0).prepared()
    X, y, X_test, y_test = (torch.as_tensor(part) for part in digits.parts)
    X, X_test = X.float(), X_test.float()
    deep = nn.DEQNet(DEQ.centered(1.0), in_features=64, width=128, out_features=10, seed=0)
    nn.fit(deep, X, y, epochs=15, seed=0, progress=False)
    found = nn.replace(deep, X, y, test=(X_test, y_test), samples=6000, epochs=12, seed=0)
    rows = sorted((row for row in found.table if row["family"] != "module"), key=lambda row: row["agreement"])
    figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
    tints = [ORANGE if row["network"] == found.name else GREY for row in rows]
    bars = axis.barh([row["network"] for row in rows], [100 * row["agreement"] for row in rows], color=tints)
    axis.bar_label(bars, fmt="%.1f", padding=3, size=8)
    axis.set(xlabel="same class as the DEQ on rows that none has seen, %", xlim=(90, 100))
    axis.tick_params(axis="y", labelsize=8)
    return figure


def cells(plt: Any) -> Any:
    """Kernels of cells with and without normalisation and skips."""
    first = nsd.Layer("relu", recurrent=0.1, input=0.7)
    last = {"recurrent": 0.1, "input": 0.9, "normalize": "layer"}
    shown = {
        "one relu layer": nsd.DEQ("relu", recurrent=0.1, input=0.9),
        "relu, then tanh": nsd.DeepDEQ([nsd.Layer("relu", recurrent=0.6, input=0.1), nsd.Layer("tanh", recurrent=0.9)]),
        "two relu layers, layer norm": nsd.DeepDEQ([first, nsd.Layer("relu", **last)]),
        "two relu layers, layer norm, skip": nsd.DeepDEQ([first, nsd.Layer("relu", **last, skip=0.5)]),
    }
    t = np.linspace(-1, 1, 201)
    figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for (name, model), dash in zip(shown.items(), ("-", "--", "-.", ":"), strict=True):
        kernel = model.on_sphere("ntk")
        axis.plot(t, kernel(t) / kernel(1.0), dash, label=name)
    axis.set(xlabel="cosine of two rows", ylabel="tangent kernel, relative")
    axis.legend(frameon=False)
    return figure


def gaussian_process(plt: Any) -> Any:
    """Prior draws and the posterior of a process whose covariance is that of an infinitely wide DEQ."""
    rng = np.random.default_rng(0)
    deq, noise = nsd.DEQ("erf", recurrent=0.5, input=2.0, bias=0.5), 0.01
    X, x = rng.uniform(-3, 3, (12, 1)), np.linspace(-5, 5, 201)[:, None]
    y = np.tanh(2 * X[:, 0]) + 0.1 * rng.standard_normal(12)
    K, cross, prior = (deq.kernel(a, b, kind="nngp") for a, b in ((X, X), (x, X), (x, x)))
    gain = np.linalg.solve(K + noise * np.eye(12), cross.T)
    mean, deviation = gain.T @ y, np.sqrt(np.diag(prior - cross @ gain).clip(0))
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    root = np.linalg.cholesky(prior + 1e-8 * np.eye(201))
    left.plot(x[:, 0], root @ rng.standard_normal((201, 4)), color=BLUE, alpha=0.7)
    left.set(xlabel="x", title="four random networks")
    right.fill_between(x[:, 0], mean - 2 * deviation, mean + 2 * deviation, color=BLUE, alpha=0.2)
    right.plot(x[:, 0], mean, color=BLUE)
    right.plot(X[:, 0], y, "o", color=ORANGE)
    right.set(xlabel="x", title="given twelve samples, ± 2 deviations")
    return figure


def variances(plt: Any) -> Any:
    """The negative log-likelihood over two variances, and the path of Adam."""
    import torch

    from notsodeep import nn

    generator = torch.Generator().manual_seed(0)
    X = torch.randn(60, 3, dtype=torch.float64, generator=generator) / 3**0.5
    y = torch.sin(2 * X[:, 0])
    noise = 0.01 * torch.eye(60, dtype=torch.float64)

    def loss(K: Any) -> Any:
        return -torch.distributions.MultivariateNormal(torch.zeros_like(y), K + noise).log_prob(y)

    k = nn.DEQKernel("erf", recurrent=0.1, input=0.3, bias=0.0, kind="nngp", dtype=torch.float64)
    optimiser, path = torch.optim.Adam(k.parameters(), lr=0.1), []
    for _ in range(120):
        path.append((k.model.recurrent, k.model.input))
        optimiser.zero_grad()
        loss(k(X)).backward()
        optimiser.step()
    a, b = np.linspace(0.01, 0.78, 24), np.geomspace(0.2, 10, 28)
    surface = np.array([[float(loss(nn.kernel(nsd.DEQ("erf", i, j), X, kind="nngp"))) for i in a] for j in b])
    above = surface - surface.min() + 1
    figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
    drawn = axis.contourf(a, b, above, levels=np.geomspace(1, above.max(), 16), norm="log", cmap="viridis_r")
    axis.plot(*np.array(path).T, color=ORANGE, linewidth=2.5)
    axis.plot(*path[-1], "o", color=ORANGE)
    axis.set(xlabel="recurrent", ylabel="input", yscale="log")
    figure.colorbar(drawn, label="above the least − log-likelihood, + 1", format="%.3g")
    return figure


def dynamics(plt: Any) -> Any:
    """Losses over time, on the samples and on others."""
    from notsodeep import learn

    rng = np.random.default_rng(0)
    X, X_test = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, (200, 2))
    y, y_test = (np.sin(3 * rows[:, 0]) * rows[:, 1] for rows in (X, X_test))
    training = learn.TrainingDynamics(DEQ_BIASED, X, y + 0.1 * rng.standard_normal(40), kind="ntk")
    times = np.logspace(0, 6, 121)
    train, test = training.loss(times), training.loss(times, X_test, y_test)
    best = int(np.argmin(test))
    figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
    axis.loglog(times, train, color=BLUE, label="on the training samples")
    axis.loglog(times, test, color=ORANGE, label="on others, without noise")
    axis.axvline(times[best], color=GREY, linestyle=":", label="best time to stop")
    axis.set(xlabel="time t", ylabel="mean squared error", ylim=(1e-4, 2))
    axis.legend(frameon=False)
    return figure


def preconditioners(plt: Any) -> Any:
    """Iterations of conjugate gradients, as the benchmark counted them."""
    result = json.loads((RESULTS / "preconditioners_of_cg.json").read_text(encoding="utf-8"))
    names = [row["preconditioner"] for row in result["rows"]]
    figure, axis = plt.subplots(figsize=(6, 2.4), layout="constrained")
    for shift, column, tint in ((-0.2, "steps, separate columns", GREY), (0.2, "steps", BLUE)):
        counts = [row[column] for row in result["rows"]]
        label = "directions shared by ten targets" if column == "steps" else "target by target"
        axis.bar_label(axis.barh(np.arange(len(names)) + shift, counts, 0.38, color=tint, label=label), padding=3)
    axis.set(xlabel="iterations to a residual of 1e-6", yticks=range(len(names)), yticklabels=names)
    axis.invert_yaxis()
    axis.legend(frameon=False)
    return figure


def growth(plt: Any) -> Any:
    """Time and memory of a kernel over the number of samples, as the benchmark measured them."""
    rows = json.loads((RESULTS / "kernel_cost_by_samples.json").read_text(encoding="utf-8"))["rows"]
    n = np.array([row["n"] for row in rows])
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    left.loglog(n, [row["seconds"] for row in rows], "o-", color=BLUE, label="measured")
    left.loglog(n, rows[-1]["seconds"] * (n / n[-1]) ** 2, ":", color=GREY, label="n²")
    left.set(xlabel="samples n", ylabel="seconds, two cores")
    right.loglog(n, [row["peak MB"] for row in rows], "o-", color=BLUE, label="peak memory")
    right.loglog(n, [row["output MB"] for row in rows], ":", color=GREY, label="the matrix itself")
    right.set(xlabel="samples n", ylabel="MB")
    for axis in (left, right):
        axis.legend(frameon=False)
    return figure


def speed(plt: Any) -> Any:
    """How many times faster than the alternative, from the stored benchmarks: worst to best case."""
    from scripts.readme import factors

    found = factors()
    figure, axis = plt.subplots(figsize=(8, 2.8), layout="constrained")
    for place, (_, _, _, values) in enumerate(found):
        axis.plot([min(values), max(values)], [place, place], "o-", color=BLUE, linewidth=7, markersize=7)
    axis.axvline(1, color=GREY, linestyle=":")
    words = [f"{job}\nagainst {other}".replace("`", "") for job, other, _, _ in found]
    axis.set(xscale="log", xlabel="times faster, worst to best case", ylim=(len(found) - 0.5, -0.5))
    axis.set_yticks(range(len(found)), words, size=8)
    axis.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    return figure


def sets(plt: Any) -> Any:
    """One image of each class of the digits."""
    digits = data.load("digits")
    figure, axes = plt.subplots(1, 10, figsize=(8, 1.2), layout="constrained")
    for k, axis in enumerate(axes):
        axis.imshow(digits.images[np.flatnonzero(digits.labels == k)[0], :, :, 0], cmap="gray_r")
        axis.set(xticks=[], yticks=[], xlabel=f"class {k}")
        axis.spines[:].set_visible(False)
    return figure


PICTURES: dict[str, Callable[[Any], Any]] = {
    one.__name__: one
    for one in (
        *(promise, kinds, spectrum, one_layer, certificate, replacing, cells, gaussian_process, variances),
        *(dynamics, preconditioners, growth, speed, sets),
    )
}


def explorer() -> None:
    """A screenshot of the page of `notsodeep explore`."""
    from tests.browser import open_browser, wait

    from notsodeep.explore import serve

    found: list[str] = []
    threading.Thread(target=serve, kwargs={"tell": found.append}, daemon=True).start()
    wait(lambda: found)
    with tempfile.TemporaryDirectory() as profile, open_browser(Path(profile)) as browser:
        browser.set_window_size(1280, 1290)
        browser.get(found[0])
        wait(
            lambda: browser.execute_script(
                "return document.documentElement.dataset.network && document.documentElement.dataset.kernel"
            )
        )
        browser.find_element("id", "design").click()
        wait(lambda: browser.execute_script("return document.documentElement.dataset.kinks"))
        time.sleep(1)  # until the curves are drawn
        browser.save_screenshot(str(IMAGES / "explorer.png"))


def main(names: list[str]) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    for name in names or (*PICTURES, "explorer"):
        if name == "explorer":
            explorer()
            continue
        with plt.rc_context({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10}):
            PICTURES[name](plt).savefig(IMAGES / f"{name}.png", dpi=110, facecolor="white")
        print(IMAGES / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
