"""[Ling24] Tables 1 and 2: time of inference and of training, implicit against explicit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.figures import plot_curve, size_axis
from notsodeep.papers.inputs import fingerprint, split
from notsodeep.papers.ling24_accuracy import title
from notsodeep.papers.networks import TOLERANCE, build
from notsodeep.papers.summary import mean
from notsodeep.report.style import COLORS, plain_log_ticks
from notsodeep.study.timing import best_times, predict, torch_on_one_thread

__all__ = ["ENTRIES"]

ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh"}
BATCH = 128
# explicit over implicit, as published: against the paper's own DEQ
PUBLISHED = {"inference": (2.0, 3.0), "training": (20.0, 300.0)}
TABLES = {"inference": 1, "training": 2}


def plan(data: Sequence[str], samples: int, widths: Sequence[int], rounds: int, repetitions: int) -> Iterator[Settings]:
    """Data set by data set, narrow networks first."""
    for source in data:
        for width in widths:
            for activation in ACTIVATIONS:
                for seed in range(repetitions):
                    yield {
                        "data": source,
                        "content": fingerprint(source),
                        "activation": activation,
                        "width": width,
                        "samples": samples,
                        "rounds": rounds,
                        "seed": seed,
                    }


def measure(
    job: str, data: str, content: str, activation: str, width: int, samples: int, rounds: int, seed: int
) -> dict[str, Any]:
    """Milliseconds for a thousand samples, both networks in turns on one thread."""
    import torch

    from notsodeep import nn

    part = split(data, samples, 1, seed).prepared().parts
    X = torch.as_tensor(part.X, dtype=torch.float32)
    classes = int(part.labels.max()) + 1
    networks = {
        who: build(name, activation, X.shape[1], width, classes, seed)
        for who, name in (("implicit", "deq"), ("explicit", "matched"))
    }

    def infer(network: Any) -> None:
        for batch in X.split(BATCH):
            predict(network, batch)

    def train(network: Any) -> None:
        # a small step: the weights, and with them the number of iterations, stay what they are
        nn.fit(network, X, part.labels, epochs=1, batch_size=BATCH, lr=1e-6, progress=False)

    call = infer if job == "inference" else train
    with torch_on_one_thread():
        for network in networks.values():  # caches and threads warm up
            infer(network)
        times = best_times({who: partial(call, network) for who, network in networks.items()}, rounds)
    infer(networks["implicit"])
    return {
        **{f"{who}_ms": 1e6 * seconds / samples for who, seconds in times.items()},
        "ratio": times["implicit"] / times["explicit"],
        "iterations": float(networks["implicit"].last_solve.sample_iterations.float().mean()),
        "layers": len(networks["explicit"].activations),
    }


def judge(rows: Sequence[Row], job: str) -> Judgement:
    """The explicit network is faster everywhere; and by as much as published?"""
    low, high = PUBLISHED[job]
    checks, words = [], []
    for activation, label in ACTIVATIONS.items():
        part = select(rows, activation=activation)
        ratios = [row["ratio"] for row in part]
        checks.append(
            Check(
                f"{label}: the explicit network is faster",
                "it is",
                f"at least {min(ratios):.2g} times",
                min(ratios) > 1,
            )
        )
        widest = max(row["width"] for row in part)
        middle = mean([row["ratio"] for row in select(part, width=widest)])
        checks.append(
            Check(
                f"{label}: by how much at width {widest}",
                f"{low:g}–{high:g} times",
                f"{middle} times; {min(ratios):.2g} to {max(ratios):.2g} over all widths",
                low <= middle.value <= high,
                "the paper's factor is over its own DEQ, ours over one that solves whole batches, drops converged "
                "samples and differentiates by the implicit function theorem"
                if middle.value < low
                else "both depend on the machine; a small DEQ likely costs its solver's steps rather than arithmetic",
            )
        )
        words.append(f"{label} {middle} times")
    return Judgement(
        f"{job} with the explicit network is {low:g} to {high:g} times faster than with the DEQ",
        f"{job} faster by " + ", ".join(words),
        checks,
    )


def draw(plt: Any, rows: Sequence[Row], job: str) -> Any:
    """Times on the left, ratios with the published range on the right; one line a data set."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    size = (10.6, max(3.6 * len(names), 4.4))
    figure, axes = plt.subplots(len(names), 2, figsize=size, layout="constrained", squeeze=False)
    for (left, right), data in zip(axes, names, strict=True):
        part = select(rows, data=data)
        for activation, marker in (("relu", "o"), ("tanh", "s")):
            one, label = select(part, activation=activation), ACTIVATIONS[activation]
            for who in ("implicit", "explicit"):
                look = {"color": COLORS[who], "marker": marker, "ls": "-" if activation == "relu" else "--"}
                plot_curve(left, one, f"{who}_ms", "width", label=f"{label}, {who}", **look)
            look = {"color": COLORS["theory"], "marker": marker, "ls": "-" if activation == "relu" else "--"}
            plot_curve(right, one, "ratio", "width", label=f"{label}, implicit / explicit", **look)
        ends = [min(row["width"] for row in part), max(row["width"] for row in part)]
        right.fill_between(ends, *PUBLISHED[job], color=COLORS["shade"], zorder=0, label="published, over another DEQ")
        right.axhline(1.0, color=COLORS["ink"], lw=1)
        for axis in (left, right):
            size_axis(axis, part)
            axis.set_yscale("log")
            plain_log_ticks(axis.yaxis)
        left.set(title=f"{title(data)}: {job}", ylabel="ms for 1000 samples")
        right.set(title=f"{title(data)}: implicit / explicit", ylabel="times faster")
    handles, labels = (
        a + b
        for a, b in zip(axes[0][0].get_legend_handles_labels(), axes[0][1].get_legend_handles_labels(), strict=True)
    )
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _entry(job: str) -> Entry:
    return Entry(
        name=f"ling24-table{TABLES[job]}",
        paper=f"[Ling24] Table {TABLES[job]}",
        title=f"Time of {job} with a DEQ and with the explicit network designed for it",
        plan=plan,
        measure=partial(measure, job),
        judge=partial(judge, job=job),
        draw=partial(draw, job=job),
        quick={"data": ("digits",), "samples": 512, "widths": (32, 128), "rounds": 5, "repetitions": 3},
        full={
            "data": ("mnist", "fashion-mnist", "cifar10"),
            "samples": 1024,
            "widths": (32, 128, 512, 2048),
            "rounds": 3 if job == "training" else 5,
            "repetitions": 3,
        },
        assumptions=(
            f"Table {TABLES[job]} is taken to be the one on {job}; equal widths, σ_a² = 0.2, σ_b² = 0.8",
            f"the DEQ solves batches of {BATCH} by Anderson's method to {TOLERANCE:g}, drops converged samples and "
            "differentiates by the implicit function theorem: a fair opponent, and a faster one than the paper's own, "
            "over which its factors were measured",
            "both networks take turns on one thread of one processor, the best round of each counts; ratios are "
            "judged, times are not comparable with the paper's machine",
            "training: one epoch of Adam" if job == "training" else "inference: one pass over the samples",
            "raw pixels; VGG-19 features of your own: --data vgg.npz",
            "the quick run takes scikit-learn's 8×8 digits and narrow networks",
        ),
    )


ENTRIES = tuple(_entry(job) for job in TABLES)
