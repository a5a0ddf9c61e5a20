"""[Ling24] Figure 3: accuracy of a DEQ and of the explicit network designed for it, at every width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PureWindowsPath
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.data import Parts, canonical
from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.figures import plot_curve, size_axis
from notsodeep.papers.inputs import VGG, fingerprint, split
from notsodeep.papers.networks import INPUT, LABELS, RECURRENT, build
from notsodeep.papers.summary import Estimate, curve, mean
from notsodeep.report.style import COLORS

__all__ = ["ENTRIES", "title"]

Array: TypeAlias = NDArray[Any]

ACTIVATIONS = {"tanh": "Tanh", "relu": "ReLU"}  # the two rows of the figure
RATE, BATCH, PASS = 1.0, 128, 2048  # of gradient descent; and samples whose features are computed at once
TOLERATED = 1.0  # points of accuracy by which a network may differ and still follow another

LOOKS: dict[str, dict[str, Any]] = {
    "deq": {"color": COLORS["implicit"], "marker": "o"},
    "matched": {"color": COLORS["explicit"], "marker": "s"},
    "theirs": {"color": COLORS["other2"], "marker": "D", "ls": "--", "lw": 1.4},
    "fair": {"color": COLORS["explicit"], "marker": "s", "mfc": "white", "ls": ":", "lw": 1.4},
}


def plan(
    data: Sequence[str], train: int, test: int, epochs: int, widths: Sequence[int], repetitions: int
) -> Iterator[Settings]:
    """Narrow networks first, so that a stopped run has curves."""
    contents = {source: fingerprint(source) for source in data}
    for width in widths:
        for seed in range(repetitions):
            for source, content in contents.items():
                for phi in ACTIVATIONS:
                    for network in LABELS:
                        yield {
                            **{"data": source, "content": content, "train": train, "test": test},
                            **{"phi": phi, "network": network, "width": width, "epochs": epochs, "seed": seed},
                        }


# covers: [Ling24] Figure 3; slides of [Ling24] Figure 3
def measure(
    data: str, content: str, train: int, test: int, phi: str, network: str, width: int, epochs: int, seed: int
) -> dict[str, Any]:
    """Test accuracy; the same samples for all networks of one seed."""
    part = _samples(data, train, test, seed)
    net = build(network, phi, part.X.shape[1], width, int(part.labels.max()) + 1, seed, tanh_variance(data))
    return {"accuracy": _readout(_features(net, part.X), _features(net, part.X_test), part, epochs, seed)}


def tanh_variance(source: str) -> float:
    """σ² of the input weights of the paper's Tanh-ENN: 0.2 for images of one channel, 0.8 for CIFAR-10 and features."""
    return RECURRENT if canonical(source.partition(":")[0]) in ("digits", "mnist", "fashion-mnist") else INPUT


@lru_cache(maxsize=1)
def _samples(data: str, train: int, test: int, seed: int) -> Parts:
    """Kept for the networks that follow: preparing 50 000 images takes longer than training a narrow readout."""
    return split(data, train, test, seed).prepared().parts


def _readout(F: Array, F_test: Array, part: Parts, epochs: int, seed: int) -> float:
    """Train a linear readout by cross-entropy, gradient descent of step 1 in batches of 128, and test it.

    Written out: the steps are short, so that automatic differentiation would take most of the time.
    """
    classes = np.arange(int(part.labels.max()) + 1)
    targets = (part.labels[:, None] == classes).astype(F.dtype)
    weight, bias = np.zeros((F.shape[1], classes.size), F.dtype), np.zeros(classes.size, F.dtype)
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(F))
        for start in range(0, len(F), BATCH):
            rows = order[start : start + BATCH]
            inputs = F[rows]
            outputs = inputs @ weight
            outputs += bias
            outputs -= outputs.max(axis=1, keepdims=True)
            np.exp(outputs, out=outputs)
            outputs /= outputs.sum(axis=1, keepdims=True)
            outputs -= targets[rows]
            outputs *= RATE / len(rows)  # the gradient in the outputs
            weight -= inputs.T @ outputs
            bias -= outputs.sum(axis=0)
    return float(np.mean((F_test @ weight + bias).argmax(axis=1) == part.labels_test))


def _features(net: Any, X: Any) -> Array:
    import torch

    from notsodeep import nn

    hidden = net.equilibrium if isinstance(net, nn.DEQNet) else net.features
    with torch.no_grad():
        found = torch.cat([hidden(rows) for rows in torch.as_tensor(X, dtype=torch.float32).split(PASS)])
    return np.asarray(found)


def judge(rows: Sequence[Row]) -> Judgement:
    """The designed network follows the DEQ, closer as the width grows; the paper's competitor stays behind."""
    checks, words = [], []
    widest = max(row["width"] for row in rows)
    for data in dict.fromkeys(row["data"] for row in rows):
        for phi, label in ACTIVATIONS.items():
            part = select(rows, data=data, phi=phi)
            name = f"{label} on {title(data)}"
            gaps = {network: _gap(part, network) for network in LABELS if network != "deq"}
            last = {network: _gap(select(part, width=widest), network) for network in gaps}
            fair = f"a centred network of the same activation differs by {gaps['fair']} points on average"
            checks.append(
                Check(
                    f"{name}: the designed network follows the DEQ",
                    "equal accuracy as the width grows",
                    f"{last['matched']} points from the DEQ at width {widest}, {gaps['matched']} over all widths",
                    bool(abs(last["matched"].value) <= TOLERATED),
                )
            )
            checks.append(
                Check(
                    f"{name}: a noticeable gap to the {label}-ENN",
                    "it exists",
                    f"{gaps['theirs']} points from the DEQ over all widths, {last['theirs']} at width {widest}",
                    bool(-gaps["theirs"].value > max(TOLERATED, abs(gaps["matched"].value))),
                    fair,
                )
            )
            if len({row["width"] for row in part}) > 1:
                checks.append(_closer(part, name))
            words.append(
                f"{name}: designed {last['matched']}, {label}-ENN {last['theirs']}, centred {last['fair']} points"
            )
    return Judgement(
        "the designed network follows the DEQ as the width grows, while networks of the same activation that are not "
        "designed stay noticeably behind",
        f"difference from the DEQ at width {widest}: " + "; ".join(words),
        checks,
        finding=f"points from the DEQ at width {widest}: " + "; ".join(words),
    )


def _gap(rows: Sequence[Row], network: str) -> Estimate:
    """Accuracy minus that of the DEQ on the same samples, in points: means over widths, interval over repetitions."""
    return mean([float(np.mean(list(one.values()))) for one in _differences(rows, network).values()])


def _closer(rows: Sequence[Row], name: str) -> Check:
    """Whether the designed network differs less from the DEQ in the wide half of the widths than in the narrow one."""
    widths = sorted({row["width"] for row in rows})
    half = len(widths) // 2
    narrow, wide = (
        [float(np.mean([abs(one[width]) for width in some])) for one in _differences(rows, "matched").values()]
        for some in (widths[:half], widths[-half:])
    )
    change = mean([b - a for a, b in zip(narrow, wide, strict=True)])
    agrees = True if change.high <= 0 else False if change.low > 0 else None
    return Check(
        f"{name}: the designed network comes closer to the DEQ as the width grows",
        "it does",
        f"|difference| {mean(narrow)} points over the narrow half of the widths, {mean(wide)} over the wide half: "
        f"changed by {change}",
        agrees,
        "the interval of the change contains 0" if agrees is None else "",
    )


def _differences(rows: Sequence[Row], network: str) -> dict[int, dict[int, float]]:
    """Accuracy minus that of the DEQ on the same samples, in points, by seed and width."""
    theirs = {(row["width"], row["seed"]): row["accuracy"] for row in select(rows, network="deq")}
    seeds: dict[int, dict[int, float]] = {}
    for row in select(rows, network=network):
        gap = 100 * (row["accuracy"] - theirs[row["width"], row["seed"]])
        seeds.setdefault(row["seed"], {})[row["width"]] = gap
    return seeds


def title(source: str) -> str:
    """A data set's name for readers; a file's without its folder."""
    names = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", VGG: "CIFAR-10 features"}
    return names.get(source, PureWindowsPath(source).name)  # of any system


def draw(plt: Any, rows: Sequence[Row]) -> Any:
    """One column a data set; Tanh above, ReLU below."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    size = (max(4.1 * len(names), 6.4), 7.6)
    figure, axes = plt.subplots(2, len(names), figsize=size, layout="constrained", squeeze=False)
    for line, (phi, label) in zip(axes, ACTIVATIONS.items(), strict=True):
        for axis, data in zip(line, names, strict=True):
            part = [{**row, "percent": 100 * row["accuracy"]} for row in select(rows, data=data, phi=phi)]
            for network, look in LOOKS.items():
                plot_curve(axis, select(part, network=network), "percent", "width", label=LABELS[network], **look)
            size_axis(axis, part)
            means = [one.value for net in LABELS for one in curve(select(part, network=net), "percent", "width")[1]]
            axis.set_ylim(min(means) - 4, min(max(means) + 4, 101))  # wide intervals of narrow networks may be cut
            name = title(data).replace("$", r"\$")  # a file's name is no formula
            axis.set_title(f"{label}-DEQ, {name}", fontsize=11)
        line[0].set_ylabel("test accuracy, %")
    figure.legend(*axes[1][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


ENTRIES = (
    Entry(
        name="ling24-fig3",
        paper="[Ling24] Figure 3",
        title="Classification with DEQs and with explicit networks, against the width",
        revision=4,  # features from a file have the scale of CIFAR-10
        plan=plan,
        measure=measure,
        judge=judge,
        draw=draw,
        quick={
            **{"data": ("digits",), "train": 1000, "test": 400},
            **{"epochs": 10, "widths": (32, 128, 512), "repetitions": 3},
        },
        full={
            **{"data": ("mnist", "fashion-mnist", VGG), "train": 50_000, "test": 8000},
            **{"epochs": 100, "widths": tuple(2**k for k in range(5, 13)), "repetitions": 5},
        },
        assumptions=(
            "Tanh-ENN has the scale of the scripts' MNIST on Fashion-MNIST, and that of their CIFAR-10 on features "
            "from a file",
            f"to follow the DEQ is to differ by at most {TOLERATED:g} point at the largest width; to stay behind is to "
            "be worse by more than that on average over widths, and by more than the designed network differs; to come "
            "closer is to have a smaller mean |difference| over the wide half of the widths than over the narrow half",
        ),
        differences=(
            f"CIFAR-10: 256 features of a small VGG-like network that the entry trains once ({VGG}), in place of a "
            "VGG-19, which takes far longer; others from a file with X, y, X_test, y_test: notsodeep reproduce "
            "ling24-fig3 --data vgg.npz",
            "pixels, too, are centred and scaled to mean ‖x‖² = 1, as the theory asks; the paper takes raw ones",
            "the centred competitor, layers of the same activation minus their means, is ours",
            "the quick run takes scikit-learn's 8×8 digits",
        ),
    ),
)
