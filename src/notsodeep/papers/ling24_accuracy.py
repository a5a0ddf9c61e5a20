"""[Ling24] Figure 3: accuracy of a DEQ and of the explicit network designed for it, at every width."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import PureWindowsPath
from typing import Any

import numpy as np
from scipy import linalg

from notsodeep.data import Parts
from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.figures import plot_curve, size_axis
from notsodeep.papers.inputs import fingerprint, split
from notsodeep.papers.networks import LABELS, LEAK, TOLERANCE, build
from notsodeep.papers.summary import curve, mean
from notsodeep.report.style import COLORS

__all__ = ["ENTRIES"]

PHI = "relu"
TRAININGS = {"readout": "only the readout trained", "full": "all weights trained"}
RIDGE = 0.01  # of the mean diagonal of the features' Gram matrix
RATE, RATE_WIDTH, BATCH = 3e-3, 256, 64  # Adam's step at this width; it shrinks like 1/√width
TOLERATED = 0.02  # mean difference in accuracy that still counts as the same

LOOKS: dict[str, dict[str, Any]] = {
    "deq": {"color": COLORS["implicit"], "marker": "o"},
    "matched": {"color": COLORS["explicit"], "marker": "s"},
    "tangent": {"color": COLORS["theory"], "marker": "v", "lw": 1.4},
    "unmatched": {"color": COLORS["explicit"], "marker": "s", "mfc": "white", "ls": ":", "lw": 1.4},
    "tanh": {"color": COLORS["other2"], "marker": "D", "ls": "--", "lw": 1.4},
    "relu": {"color": COLORS["other"], "marker": "^", "ls": "--", "lw": 1.4},
}


def plan(
    data: Sequence[str],
    train: int,
    test: int,
    epochs: int,
    repetitions: dict[str, dict[int, int]],
) -> Iterator[Settings]:
    """How often each width is repeated, by training."""
    for source in data:
        common = {"data": source, "content": fingerprint(source), "train": train, "test": test}
        for training in TRAININGS:
            for width, times in repetitions[training].items():
                for network in networks(training):
                    for seed in range(times):
                        yield {
                            **common,
                            "training": training,
                            "network": network,
                            "width": width,
                            "epochs": epochs if training == "full" else 0,
                            "seed": seed,
                        }


def networks(training: str) -> list[str]:
    """Whatever is compared; the network designed for the NTK only where all weights are trained."""
    return [name for name in LABELS if training == "full" or name != "tangent"]


def measure(
    data: str, content: str, train: int, test: int, training: str, network: str, width: int, epochs: int, seed: int
) -> dict[str, Any]:
    """Test accuracy; the same samples for all networks of one seed."""
    part = split(data, train, test, seed).prepared().parts
    net = build(network, PHI, part.X.shape[1], width, int(part.labels.max()) + 1, seed)
    return {"accuracy": _readout_only(net, part) if training == "readout" else _fully(net, part, epochs, seed)}


def _readout_only(net: Any, part: Parts) -> float:
    """Ridge regression of one-hot targets on the random features."""
    Z, Z_test = _features(net, part.X), _features(net, part.X_test)
    targets = np.eye(net.out_features)[part.labels] - 1 / net.out_features
    ridge = RIDGE * np.mean(np.sum(Z**2, axis=1))
    if Z.shape[0] > Z.shape[1]:
        readout = linalg.solve(Z.T @ Z + ridge * np.eye(Z.shape[1]), Z.T @ targets, assume_a="pos")
    else:
        readout = Z.T @ linalg.solve(Z @ Z.T + ridge * np.eye(len(Z)), targets, assume_a="pos")
    return float(np.mean(np.argmax(Z_test @ readout, axis=1) == part.labels_test))


def _features(net: Any, X: Any) -> Any:
    import torch

    from notsodeep import nn

    hidden = net.equilibrium if isinstance(net, nn.DEQNet) else net.features
    with torch.inference_mode():
        return hidden(torch.as_tensor(X, dtype=torch.float32)).double().numpy()


def _fully(net: Any, part: Parts, epochs: int, seed: int) -> float:
    from notsodeep import nn

    history = nn.fit(
        net,
        part.X,
        part.labels,
        epochs=epochs,
        batch_size=BATCH,
        lr=RATE * math.sqrt(RATE_WIDTH / net.width),
        validation=(part.X_test, part.labels_test),
        seed=seed,
        progress=False,
    )
    return float(history.last.validation_accuracy or 0.0)


def judge(rows: Sequence[Row]) -> Judgement:
    """The designed network is close to the DEQ, and closer than one that is not designed."""
    checks, words = [], []
    for data in dict.fromkeys(row["data"] for row in rows):
        for training, label in TRAININGS.items():
            part = select(rows, data=data, training=training)
            name = f"{title(data)}, {label}"
            gaps = {network: _gap(part, network) for network in networks(training) if network != "deq"}
            others = ", ".join(f"{LABELS[key]} {100 * gap:.2g}" for key, gap in gaps.items() if key != "matched")
            measured = f"differs from the DEQ by {100 * gaps['matched']:.2g} points on average over widths ({others})"
            checks.append(
                Check(
                    f"{name}: accuracy of the designed network",
                    "as the DEQ",
                    measured,
                    gaps["matched"] <= TOLERATED,
                    f"designed for the tangent kernel instead, it differs by {100 * gaps['tangent']:.2g} points: "
                    + (
                        "training all weights follows that kernel rather than the conjugate one"
                        if gaps["tangent"] < gaps["matched"]
                        else "the kernel is not what tells them apart"
                    )
                    if training == "full"
                    else "",
                )
            )
            checks.append(
                Check(
                    f"{name}: the design matters",
                    "closer to the DEQ than the same network without it",
                    f"{100 * gaps['matched']:.2g} points from the DEQ with the design, "
                    f"{100 * gaps['unmatched']:.2g} without",
                    gaps["matched"] < gaps["unmatched"],
                    f"both are within {100 * TOLERATED:g} points: accuracy does not tell them apart"
                    if gaps["unmatched"] <= TOLERATED
                    else "",
                )
            )
            widest = select(part, width=max(row["width"] for row in part))
            deq, matched = (
                mean([100 * row["accuracy"] for row in select(widest, network=one)]) for one in ("deq", "matched")
            )
            words.append(f"{name}: DEQ {deq} %, designed {matched} %")
    return Judgement(
        "explicit networks with the designed activations classify as well as DEQs; others do not, at any width",
        "at the largest width, " + "; ".join(words),
        checks,
    )


def _gap(rows: Sequence[Row], network: str) -> float:
    """Mean over widths of |mean accuracy − that of the DEQ|."""
    _, ours = curve(select(rows, network=network), "accuracy", "width")
    _, theirs = curve(select(rows, network="deq"), "accuracy", "width")
    return float(np.mean([abs(a.value - b.value) for a, b in zip(ours, theirs, strict=True)]))


def title(source: str) -> str:
    """A data set's name for readers; a file's without its folder."""
    names = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
    return names.get(source, PureWindowsPath(source).name)  # of any system


def draw(plt: Any, rows: Sequence[Row]) -> Any:
    """One column a data set; above only the readout is trained, below everything."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    size = (max(4.1 * len(names), 6.4), 7.6)
    figure, axes = plt.subplots(2, len(names), figsize=size, layout="constrained", squeeze=False)
    for line, (training, label) in zip(axes, TRAININGS.items(), strict=True):
        for axis, data in zip(line, names, strict=True):
            part = [{**row, "percent": 100 * row["accuracy"]} for row in select(rows, data=data, training=training)]
            for network in networks(training):
                look = {"label": LABELS[network], **LOOKS[network]}
                plot_curve(axis, select(part, network=network), "percent", "width", **look)
            size_axis(axis, part)
            means = [
                100 * one.value
                for net in networks(training)
                for one in curve(select(part, network=net), "accuracy", "width")[1]
            ]
            axis.set_ylim(min(means) - 4, min(max(means) + 4, 101))  # wide intervals of narrow networks may be cut
            name = title(data).replace("$", r"\$")  # a file's name is no formula
            axis.set_title(f"{name}\n{label}", fontsize=11)
        line[0].set_ylabel("test accuracy, %")
    figure.legend(*axes[1][0].get_legend_handles_labels(), loc="outside lower center", ncols=min(6, 2 + len(names)))
    return figure


_POWERS = tuple(2**k for k in range(5, 13))

ENTRIES = (
    Entry(
        name="ling24-fig3",
        paper="[Ling24] Figure 3",
        title="Classification with DEQs and with explicit networks, against the width",
        plan=plan,
        measure=measure,
        judge=judge,
        draw=draw,
        quick={
            "data": ("digits",),
            "train": 1000,
            "test": 400,
            "epochs": 8,
            "repetitions": {"readout": {32: 3, 128: 3, 512: 3}, "full": {32: 3, 128: 3}},
        },
        full={
            "data": ("mnist", "fashion-mnist", "cifar10"),
            "train": 2000,
            "test": 2000,
            "epochs": 5,
            "repetitions": {
                "readout": dict.fromkeys(_POWERS, 3),
                "full": {width: 3 if width <= 1024 else 1 for width in _POWERS},
            },
        },
        assumptions=(
            "a ReLU DEQ with σ_a² = 0.2, σ_b² = 0.8; the network designed for it has two L-ReLU layers",
            f"the network that is not designed has two layers max(x, {LEAK}x), centred",
            "raw pixels, centred and scaled to mean ‖x‖² = 1; the paper feeds CIFAR-10 through VGG-19 first. Such "
            "features are read from a file with X, y, X_test, y_test: notsodeep reproduce ling24-fig3 --data vgg.npz",
            "2000 random training and 2000 test samples a repetition, fewer than in the paper; where all weights are "
            "trained, 5 epochs (8 in the quick run), and above a width of 1024 one repetition, without an interval",
            "the network designed for the NTK, with which all weights are trained, is not in the paper",
            f"only the readout trained: ridge regression, {RIDGE} of the Gram matrix's mean diagonal",
            f"all weights trained: cross-entropy, Adam in batches of {BATCH}, step {RATE}·√({RATE_WIDTH}/width), for "
            f"all networks; equilibria to {TOLERANCE:g}",
            f"the same accuracy means within {100 * TOLERATED:g} points on average over widths",
            "the quick run takes scikit-learn's 8×8 digits",
        ),
    ),
)
