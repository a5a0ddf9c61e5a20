"""[Ling24] Tables 1 and 2: time of inference and of training, implicit against explicit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.figures import plot_curve, size_axis
from notsodeep.papers.inputs import fingerprint, split
from notsodeep.papers.ling24_accuracy import title
from notsodeep.papers.ling24_times import EPOCH, NETWORKS, SECONDS, WIDTHS, printed_ratio
from notsodeep.papers.networks import build
from notsodeep.papers.summary import curve, one_more
from notsodeep.report.style import COLORS, plain_log_ticks
from notsodeep.study.timing import best_times, predict, torch_on_one_thread

__all__ = ["ENTRIES"]

ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh"}
BATCH = 128
SINGLE = 64  # images, one by one
TABLES = {"inference": 1, "training": 2}


def plan(
    data: Sequence[str], samples: int, batches: Sequence[int], widths: Sequence[int], rounds: int, repetitions: int
) -> Iterator[Settings]:
    """Data set by data set, narrow networks first; batches of 1 are single images."""
    contents = {source: fingerprint(source) for source in data}
    for source, content in contents.items():
        for width in widths:
            for activation in ACTIVATIONS:
                for batch in batches:
                    for seed in range(repetitions):
                        yield {
                            "data": source,
                            "content": content,
                            "activation": activation,
                            "width": width,
                            "batch": batch,
                            "samples": SINGLE if batch == 1 else samples,
                            "rounds": rounds,
                            "seed": seed,
                        }


# covers: [Ling24] Table 1 @ ling24-table1; [Ling24] Table 2 @ ling24-table2
def measure(
    job: str, data: str, content: str, activation: str, width: int, batch: int, samples: int, rounds: int, seed: int
) -> dict[str, Any]:
    """Milliseconds a sample, both networks in turns on one thread."""
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
        for some in X.split(batch):
            predict(network, some)

    def train(network: Any) -> None:
        # a small step: the weights, and with them the number of iterations, stay what they are
        nn.fit(network, X, part.labels, epochs=1, batch_size=batch, lr=1e-6, progress=False)

    call = infer if job == "inference" else train
    with torch_on_one_thread():
        for network in networks.values():  # caches and threads warm up
            infer(network)
        times = best_times({who: partial(call, network) for who, network in networks.items()}, rounds)
    infer(networks["implicit"])
    return {
        **{f"{who}_ms": 1e3 * seconds / samples for who, seconds in times.items()},
        "ratio": times["implicit"] / times["explicit"],
        "iterations": float(networks["implicit"].last_solve.sample_iterations.float().mean()),
        "layers": len(networks["explicit"].activations),
    }


def judge(rows: Sequence[Row], job: str) -> Judgement:
    """The explicit network is faster everywhere; and by as much as printed?"""
    checks, words = [], []
    for batch in sorted({row["batch"] for row in rows}):
        how = "one image at a time" if batch == 1 else f"batches of {batch}"
        for activation, label in ACTIVATIONS.items():
            part = select(rows, activation=activation, batch=batch)
            ratios = [row["ratio"] for row in part]
            least, most = min(ratios), max(ratios)
            checks.append(
                Check(
                    f"{label}, {how}: the explicit network is faster",
                    "it is",
                    f"{least:.2g} to {most:.2g} times over all data and widths",
                    least > 1,
                )
            )
            words.append(f"{label}, {how}: {least:.2g} to {most:.2g} times")
            if job == "inference" and batch != 1:
                continue  # the paper times single images
            for data in dict.fromkeys(row["data"] for row in part):
                checks += _numbers(select(part, data=data), job, f"{label} on {title(data)}, {how}")
                checks += _seconds(select(part, data=data), job)
    return Judgement(
        f"{job} with the explicit network is faster than with the DEQ"
        + (", by a factor of 2 to 3" if job == "inference" else ", by a factor of 20 to 300"),
        f"{job} is faster, " + "; ".join(words),
        checks,
        finding="faster by " + "; ".join(words),
    )


def _numbers(rows: Sequence[Row], job: str, where: str) -> list[Check]:
    """Printed ratios against ours, at the widths that both have."""
    first, checks = rows[0], []
    for width in sorted({row["width"] for row in rows}):
        printed = printed_ratio(job, first["data"], first["activation"], width)
        ours = [row["ratio"] for row in select(rows, width=width)]
        if printed is None or len(ours) < 2:
            continue
        one = one_more(ours)
        why = (
            "theirs on a graphics card and over a DEQ whose samples pass one after the other, ours over one that "
            "solves whole batches, drops converged samples and differentiates by the implicit function theorem"
        )
        low, high = max(one.low, 0.0), one.high
        checks.append(Check.number(f"times faster, {where}, width {width}", printed, low, high, digits=1, why=why))
    return checks


def _seconds(rows: Sequence[Row], job: str) -> list[Check]:
    """The printed rows beside ours: of one image, or of an epoch."""
    data, activation, checks = rows[0]["data"], rows[0]["activation"], []
    what, images = ("an image", 1) if job == "inference" else ("an epoch", EPOCH)
    for who in ("implicit", "explicit"):
        printed = dict(zip(WIDTHS, SECONDS[job].get((data, activation, who), ()), strict=False))
        ours = {width: one.value for width, one in zip(*curve(rows, f"{who}_ms", "width"), strict=True)}
        both = [width for width in WIDTHS if width in printed and width in ours]
        if both:
            where = f"seconds of {what}, {NETWORKS[activation, who]} on {title(data)}, widths {both[0]} to {both[-1]}"
            paper = ", ".join(f"{printed[width]:g}" for width in both)
            measured = ", ".join(f"{ours[width] * images / 1000:.2g}" for width in both)
            checks.append(Check(where, paper, measured, None, kind="shown"))
    return checks


def draw(plt: Any, rows: Sequence[Row], job: str) -> Any:
    """Times on the left, ratios beside the printed ones on the right; one line a data set and batch size."""
    lines = list(dict.fromkeys((row["data"], row["batch"]) for row in rows))
    size = (10.6, max(3.4 * len(lines), 4.4))
    figure, axes = plt.subplots(len(lines), 2, figsize=size, layout="constrained", squeeze=False)
    for (left, right), (data, batch) in zip(axes, lines, strict=True):
        part = select(rows, data=data, batch=batch)
        how = "single images" if batch == 1 else f"batches of {batch}"
        for activation, marker in (("relu", "o"), ("tanh", "s")):
            one, label = select(part, activation=activation), ACTIVATIONS[activation]
            look: dict[str, Any] = {"marker": marker, "ls": "-" if activation == "relu" else "--"}
            for who in ("implicit", "explicit"):
                plot_curve(left, one, f"{who}_ms", "width", label=f"{label}, {who}", color=COLORS[who], **look)
            plot_curve(
                right, one, "ratio", "width", label=f"{label}, implicit / explicit", color=COLORS["theory"], **look
            )
            _draw_printed(right, one, job, f"{label}, printed", look)
        right.axhline(1.0, color=COLORS["ink"], lw=1)
        for axis in (left, right):
            size_axis(axis, part)
            axis.set_yscale("log")
            plain_log_ticks(axis.yaxis)
        left.set(title=f"{title(data)}: {job}, {how}", ylabel="ms a sample")
        right.set(title=f"{title(data)}: implicit / explicit", ylabel="times faster")
    handles, labels = (
        a + b
        for a, b in zip(axes[0][0].get_legend_handles_labels(), axes[0][1].get_legend_handles_labels(), strict=True)
    )
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _draw_printed(axis: Any, rows: Sequence[Row], job: str, label: str, look: dict[str, Any]) -> None:
    if job == "inference" and rows[0]["batch"] != 1:
        return
    ends = [min(row["width"] for row in rows), max(row["width"] for row in rows)]
    ratios = {width: printed_ratio(job, rows[0]["data"], rows[0]["activation"], width) for width in WIDTHS}
    shown = {width: ratio for width, ratio in ratios.items() if ratio is not None and ends[0] <= width <= ends[1]}
    if shown:
        style = {**look, "color": COLORS["muted"], "lw": 1.2, "ms": 4}
        axis.plot(list(shown), list(shown.values()), label=label, **style)


def _entry(job: str) -> Entry:
    single = (1, BATCH) if job == "inference" else (BATCH,)
    return Entry(
        name=f"ling24-table{TABLES[job]}",
        paper=f"[Ling24] Table {TABLES[job]}",
        title=f"Time of {job} with a DEQ and with the explicit network designed for it",
        revision=3,  # single images, equilibria solved as in the paper
        plan=plan,
        measure=partial(measure, job),
        judge=partial(judge, job=job),
        draw=partial(draw, job=job),
        quick={
            **{"data": ("digits",), "samples": 512, "batches": single},
            **{"widths": (32, 128), "rounds": 5, "repetitions": 3},
        },
        full={
            **{"data": ("mnist", "fashion-mnist", "cifar10"), "samples": 1024, "batches": single},
            **{"widths": WIDTHS, "rounds": 3 if job == "training" else 5, "repetitions": 3},
        },
        assumptions=(
            "the optimiser is Adam, with a step so small that the number of iterations stays"
            if job == "training"
            else f"{SINGLE} single images, one after the other",
            "CIFAR-10 as pixels; features of your own: --data vgg.npz",
            "both networks take turns, and the best round of each counts",
        ),
        differences=(
            "the DEQ solves whole batches, drops converged samples and differentiates by the implicit function "
            "theorem: a fair opponent, and a faster one than the paper's own, over which its factors were measured",
            "one thread of one processor in place of a graphics card: ratios are judged, seconds only shown",
            "inputs are centred and scaled to mean ‖x‖² = 1, as the theory asks",
            *(
                (
                    "1024 samples in place of a whole epoch; seconds of an epoch are scaled to the scripts' 50 000",
                    "all weights are trained; the scripts train the readout alone",
                )
                if job == "training"
                else (f"batches of {BATCH} beside single images",)
            ),
            "the quick run takes scikit-learn's 8×8 digits and narrow networks",
        ),
    )


ENTRIES = tuple(_entry(job) for job in TABLES)
