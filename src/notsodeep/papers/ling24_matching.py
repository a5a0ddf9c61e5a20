"""[Ling24] Figure 2: the activations of a DEQ and of its explicit equivalent, and how close their kernels are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from notsodeep.matching import match
from notsodeep.models import DEQ, Explicit
from notsodeep.norms import spectral_norm
from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.figures import error_axis, plot_curve
from notsodeep.papers.inputs import draw as draw_samples
from notsodeep.papers.summary import mean, slope
from notsodeep.report.style import COLORS

__all__ = ["ENTRIES"]

RECURRENT, INPUT = 0.2, 0.8
RATIO = 0.8  # p/n of the mixture
ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh"}
MATCHED = {"relu": "two L-ReLU layers", "tanh": "one H-Tanh layer"}
DATA = {"gmm": "GMM", "mnist": "MNIST 6 vs 8", "digits": "digits 6 vs 8"}


def plan(sizes: dict[str, Sequence[int]], repetitions: dict[str, int]) -> Iterator[Settings]:
    """Sizes and repetitions by data set."""
    for data, counts in sizes.items():
        for activation in ACTIVATIONS:
            for n in counts:
                for seed in range(repetitions[data]):
                    yield {"data": data, "activation": activation, "n": n, "seed": seed}


# covers: [Ling24] Figure 2; [Ling24] Ex. 3.10; [Ling24] Ex. 3.11
# covers: slides of [Ling24] Figure 2; slides of [Ling24] Examples
def measure(data: str, activation: str, n: int, seed: int) -> dict[str, Any]:
    """‖G − Σ‖/‖G‖ for the matched network and for one that keeps the DEQ's own activation; exact kernels."""
    X, stats = draw_samples(data, n, seed, round(RATIO * n))
    deq = DEQ(activation, RECURRENT, INPUT)
    found = match(deq, stats=stats)
    plain = Explicit([activation] * found.depth).centered(stats.tau0)
    implicit = deq.centered(stats.tau0).kernel(X, kind="ck")
    norm = spectral_norm(implicit)

    def error(network: Explicit) -> float:
        return spectral_norm(implicit - network.kernel(X, kind="ck")) / norm

    return {
        "p": X.shape[1],
        "norm": norm,
        "error": error(found.network),
        "unmatched": error(plain),
        "residual": found.residual,
        "network": str(found.network),
    }


def judge(rows: Sequence[Row]) -> Judgement:
    """Close on both data sets, closer with n on the mixture, and closer than without matching."""
    checks, words = [], []
    for data in dict.fromkeys(row["data"] for row in rows):
        for activation, label in ACTIVATIONS.items():
            part = select(rows, data=data, activation=activation)
            name = f"{label} on {DATA[data]}"
            if data == "gmm":
                found = slope([row["n"] for row in part], [row["error"] for row in part])
                checks.append(Check(f"{name}: error against n", "falls", f"slope {found}", found.high < 0))
            largest = select(part, n=max(row["n"] for row in part))
            matched = mean([row["error"] for row in largest])
            plain = mean([row["unmatched"] for row in largest])
            checks.append(
                Check(
                    f"{name}: explicit network with the designed activation",
                    "as the DEQ",
                    f"‖G − Σ‖/‖G‖ = {matched}; {plain} without the design",
                    matched.value < 0.05 and matched.value < plain.value,
                )
            )
            words.append(f"{name} {matched}")
    return Judgement(
        "the explicit network with the designed activation has the CK of the DEQ, on GMM and on MNIST",
        "‖G − Σ‖/‖G‖ at the largest n: " + ", ".join(words),
        checks,
    )


def draw(plt: Any, rows: Sequence[Row]) -> Any:
    """Top: activations. Bottom: errors on the two data sets."""
    figure, axes = plt.subplots(2, 2, figsize=(10.6, 7.6), layout="constrained")
    for axis, activation in zip(axes[0], ACTIVATIONS, strict=True):
        _draw_activations(axis, activation)
    names = list(dict.fromkeys(row["data"] for row in rows))
    for axis, data in zip(axes[1], names, strict=True):
        part = select(rows, data=data)
        for activation, color, marker in (("relu", "implicit", "o"), ("tanh", "explicit", "s")):
            one = select(part, activation=activation)
            label = ACTIVATIONS[activation]
            plot_curve(axis, one, "error", color=COLORS[color], marker=marker, label=f"{label}, designed")
            plot_curve(
                axis, one, "unmatched", color=COLORS[color], marker=marker, mfc="white", ls=":", lw=1.4,
                label=f"{label}, not designed",
            )  # fmt: skip
        error_axis(axis, part, ("error", "unmatched"))
        axis.set_title(DATA[data] + (f", p/n = {RATIO}" if data == "gmm" else f", p = {part[0]['p']} fixed"))
    figure.legend(*axes[1][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    axes[1][0].set_ylabel("relative error ‖G − Σ‖ / ‖G‖")
    return figure


def _draw_activations(axis: Any, activation: str) -> None:
    deq = DEQ(activation, RECURRENT, INPUT).centered(1.0)
    network = match(deq, tau0=1.0).network
    x = np.linspace(-4, 4, 801)
    axis.fill_between(x, 0, np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi), color="#EDEDED", lw=0, zorder=0)
    axis.plot(x, deq.activation(x), color=COLORS["implicit"], label=f"DEQ: {ACTIVATIONS[activation]}, centred")
    for k, layer in enumerate(network.activations, 1):
        axis.plot(x, layer(x), color=COLORS["explicit"], ls=("-", "--")[k - 1], label=f"explicit, layer {k}")
    axis.set(title=f"{ACTIVATIONS[activation]} DEQ → {MATCHED[activation]}", xlabel="pre-activation (τ0 = 1)")
    axis.legend(loc="upper left", fontsize=9)


ENTRIES = (
    Entry(
        name="ling24-fig2",
        paper="[Ling24] Figure 2",
        title="A shallow explicit network with designed activations has the kernel of a DEQ",
        plan=plan,
        measure=measure,
        judge=judge,
        draw=draw,
        quick={"sizes": {"gmm": (100, 200, 400), "digits": (80, 160, 320)}, "repetitions": {"gmm": 3, "digits": 3}},
        full={
            "sizes": {"gmm": (200, 400, 800, 1600), "mnist": (400, 800, 1600, 3000)},
            "repetitions": {"gmm": 5, "mnist": 3},
        },
        assumptions=(
            "the sizes n; on MNIST p = 784 is fixed, so no decay is due",
            "close means a relative distance below 5 %, and below that of a network that was not designed",
        ),
        differences=(
            "exact infinite-width kernels in place of averages over networks, whose noise would hide the distance",
            "random images of 6 and 8 in place of the first ones, to have intervals; three repetitions on MNIST",
            "the H-Tanh moments of App. D are misprinted; the design uses the right ones",
            "the quick run takes scikit-learn's 8×8 digits in place of MNIST",
        ),
    ),
)
