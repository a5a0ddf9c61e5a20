"""[FK20] Figure 1: the NTK freezes with depth, the DEQ-NTK approaches its limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import linalg

from notsodeep.models import DEQ, Explicit
from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.figures import plot_curve, size_axis
from notsodeep.papers.inputs import split
from notsodeep.papers.summary import Estimate, mean
from notsodeep.report.style import COLORS

__all__ = ["ENTRIES"]

BIAS = 0.1  # of the DEQ; its input weights have the rest of the NTK's bias
RIDGE = 1e-3  # ε, in units of Θ(x, x)/n
LABELS = {"deq": "DEQ-NTK of this depth", "plain": "NTK of this depth", "exact": "DEQ-NTK, limit"}
CLASSES = 10
CHANCE = 1 / CLASSES
TOLERATED = 0.01
FROZEN = 0.03  # above chance; the most frequent class of a training set has a little more than its share


def plan(train: int, test: int, variances: Sequence[float], depths: Sequence[int], draws: int) -> Iterator[Settings]:
    """Draw by draw, so that a stopped run has all curves; all depths are one trial."""
    for seed in range(draws):
        for recurrent in variances:
            yield {"recurrent": recurrent, "depths": list(depths), "train": train, "test": test, "seed": seed}


# covers: [FK20] Figure 1; [FK20] Thm 1; [FK20] Rem. 2
def measure(recurrent: float, depths: Sequence[int], train: int, test: int, seed: int) -> dict[str, Any]:
    """Test accuracy of kernel regression at every depth and in the limit, and how many classes the NTK predicts."""
    part = split("cifar10", train, test, seed).parts
    X, X_test = (rows.astype(np.float64) for rows in (part.X, part.X_test))
    X, X_test = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, X_test))
    targets = np.eye(CLASSES)[part.labels] - 1 / CLASSES

    def predicted(network: str, depth: int | None) -> Any:
        kernel, cross = tangent(network, recurrent, depth, X), tangent(network, recurrent, depth, X_test, X)
        kernel[np.diag_indices(train)] += RIDGE * np.mean(np.diag(kernel)) / train
        scores = cross @ linalg.cho_solve(linalg.cho_factor(kernel, overwrite_a=True), targets)
        return np.argmax(scores, axis=1)

    found = {network: [predicted(network, depth) for depth in depths] for network in ("deq", "plain")}
    return {
        **{name: [float(np.mean(one == part.labels_test)) for one in each] for name, each in found.items()},
        "exact": float(np.mean(predicted("deq", None) == part.labels_test)),
        "plain_classes": [len(np.unique(one)) for one in found["plain"]],
    }


def tangent(network: str, recurrent: float, depth: int | None, X: Any, Y: Any = None) -> Any:
    """Θ⁽ᴸ⁾ of [FK20, Eq. (6)]; without injection, σ_U² = 0 and σ_b² = 1 − σ_W²; depth None is the limit of the DEQ."""
    rest = 1 - recurrent
    if network == "deq":
        return DEQ("normalized_relu", recurrent, rest - BIAS, BIAS).kernel(X, Y, kind="ntk_injected", depth=depth)
    assert depth is not None
    later = depth - 1  # the first layer sees x without bias; the readout has weights σ_W² and a bias
    net = Explicit(["normalized_relu"] * depth, bias=[0.0] + [rest] * later, weights=[1.0] + [recurrent] * later)
    return recurrent * net.kernel(X, Y, kind="ntk") + rest


def rows_by_depth(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row a draw, variance, network and depth; depth 0 is the limit."""
    flat = []
    for row in rows:
        place = {"recurrent": row["recurrent"], "seed": row["seed"]}
        flat.append({**place, "network": "exact", "depth": 0, "accuracy": row["exact"]})
        for network in ("deq", "plain"):
            for depth, accuracy in zip(row["depths"], row[network], strict=True):
                flat.append({**place, "network": network, "depth": depth, "accuracy": accuracy})
    return flat


def frozen_at(rows: Sequence[Row]) -> int | None:
    """The least depth from which on the mean accuracy of the NTK is that of chance; None if there is none."""
    depths = rows[0]["depths"]
    chance = [mean([row["plain"][k] for row in rows]).value <= CHANCE + FROZEN for k in range(len(depths))]
    from_here = [all(chance[k:]) for k in range(len(depths))]
    return depths[from_here.index(True)] if any(from_here) else None


def judge(rows: Sequence[Row]) -> Judgement:
    """The deep NTK is at chance, the deep DEQ-NTK at its limit, and freezing takes more depth for a larger σ_W²."""
    flat, checks, words = rows_by_depth(rows), [], []
    deepest, freezes = max(row["depth"] for row in flat), []
    for recurrent in sorted({row["recurrent"] for row in rows}):
        part, own = select(flat, recurrent=recurrent), select(rows, recurrent=recurrent)
        plain = mean([row["accuracy"] for row in select(part, network="plain", depth=deepest)])
        exact = mean([row["accuracy"] for row in select(part, network="exact")])
        gap = mean([row["deq"][-1] - row["exact"] for row in own])
        freezes.append(frozen_at(own))
        checks += [
            Check(
                f"σ_W² = {recurrent:g}: NTK of depth {deepest}",
                "frozen, at chance",
                f"accuracy {_percent(plain)}, at chance from depth {freezes[-1]} on; one class is predicted in "
                f"{sum(row['plain_classes'][-1] == 1 for row in own)} of {len(own)} draws",
                freezes[-1] is not None,
            ),
            Check(
                f"σ_W² = {recurrent:g}: DEQ-NTK of depth {deepest}",
                "has reached its limit",
                f"{_percent(gap)[:-2]} points from the limit {_percent(exact)}",
                abs(gap.value) <= TOLERATED,
            ),
        ]
        words.append(f"σ_W² = {recurrent:g}: NTK {_percent(plain)}, DEQ-NTK {_percent(exact)}")
    known = [depth for depth in freezes if depth is not None]
    checks.append(
        Check(
            "a larger σ_W² takes more depth to freeze",
            "it does",
            f"at chance from depth {', '.join(map(str, freezes))} on",
            len(known) == len(freezes) and all(a < b for a, b in pairwise(known)),
        )
    )
    return Judgement(
        "with depth the NTK freezes and its accuracy falls to chance, later for a larger σ_W², while the DEQ-NTK "
        "stabilises",
        f"at depth {deepest}: " + "; ".join(words),
        checks,
        finding=f"NTK at chance from depth {', '.join(map(str, freezes))} on; DEQ-NTK at its limit",
    )


def _percent(estimate: Estimate) -> str:
    half = "" if np.isnan(estimate.half) else f" ± {100 * estimate.half:.1f}"
    return f"{100 * estimate.value:.1f}{half} %"


def draw(plt: Any, rows: Sequence[Row]) -> Any:
    """Accuracy against depth with 95 % intervals over draws, one panel a variance."""
    variances = sorted({row["recurrent"] for row in rows})
    size = (4.4 * len(variances), 4.4)
    figure, axes = plt.subplots(1, len(variances), figsize=size, layout="constrained", sharey=True, squeeze=False)
    for axis, recurrent in zip(axes[0], variances, strict=True):
        flat = [{**row, "percent": 100 * row["accuracy"]} for row in rows_by_depth(select(rows, recurrent=recurrent))]
        finite = [row for row in flat if row["depth"]]
        limit = mean([row["percent"] for row in select(flat, network="exact")])
        axis.axhline(limit.value, color=COLORS["theory"], label=LABELS["exact"])
        axis.axhline(100 * CHANCE, color=COLORS["ink"], lw=1, ls=":", label="chance")
        for network, color, marker in (("deq", "implicit", "o"), ("plain", "explicit", "s")):
            look = {"color": COLORS[color], "marker": marker, "label": LABELS[network]}
            plot_curve(axis, select(finite, network=network), "percent", "depth", **look)
        size_axis(axis, finite, "depth", "depth")
        axis.set_title(rf"$\sigma_W^2$ = {recurrent:g}, $\sigma_b^2$ = {1 - recurrent:g}")
        axis.set_ylim(0, None)
    axes[0][0].set_ylabel("test accuracy, %")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


ENTRIES = (
    Entry(
        name="fk20-fig1",
        paper="[FK20] Figure 1",
        title="With depth the NTK freezes and the DEQ-NTK reaches its limit",
        revision=2,  # with bias
        plan=plan,
        measure=measure,
        judge=judge,
        draw=draw,
        quick={
            "train": 300,
            "test": 100,
            "variances": (0.25, 0.5, 0.75),
            "depths": (1, 5, 20, 40, 100, 200),
            "draws": 3,
        },
        full={
            "train": 1000,
            "test": 100,
            "variances": (0.25, 0.5, 0.75),
            "depths": (1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200),
            "draws": 20,
        },
        assumptions=(
            "σ_W² = 0.25, 0.5 and 0.75; the depths are ours",
            f"the ridge is ε Θ(x, x)/n with ε = {RIDGE:g}, whose value the paper leaves open",
            "new training and test images in every draw; differences are taken draw by draw",
            f"frozen means a mean accuracy of at most {100 * FROZEN:g} points above chance. We first asked for one "
            "predicted class in every draw, but in one draw two classes are equally frequent, and rounding decides",
        ),
    ),
)
