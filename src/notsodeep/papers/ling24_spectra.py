"""[Ling24] Figures 5 to 7: eigenvalues of kernels, of their equivalents, and our limiting law."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from notsodeep.checks import AssumptionWarning
from notsodeep.convergence import ConvergenceWarning
from notsodeep.highdim import Statistics, equivalent, spectrum
from notsodeep.matching import match
from notsodeep.models import DEQ, Explicit
from notsodeep.norms import spectral_norm
from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.inputs import draw as draw_samples
from notsodeep.papers.summary import mean
from notsodeep.report.style import COLORS, plain_log_ticks

__all__ = ["ENTRIES"]

RECURRENT, INPUT = 0.2, 0.8
FEATURES = 1000  # of the mixture
ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh"}
DATA = {"gmm": "GMM", "mnist": "MNIST 6 vs 8", "digits": "digits 6 vs 8"}
CLOSE = 0.25  # a norm agrees when it is within a quarter of the printed one
SAME_LAW = 0.05  # mean distance of sorted eigenvalues, over their mean, up to which two spectra are called equal

# name: (figure, kernel, symbol in text, in the picture, printed norms by data and activation)
FIGURES: dict[str, tuple[int, str, str, str, dict[str, dict[str, float]]]] = {
    "ling24-fig5": (
        5, "ck", "G", "G", {"gmm": {"relu": 0.26, "tanh": 0.81}, "mnist": {"relu": 1.80, "tanh": 2.02}},
    ),
    "ling24-fig6": (
        6, "ntk_frozen_input", "K", "K", {"gmm": {"relu": 0.34, "tanh": 0.76}, "mnist": {"relu": 3.93, "tanh": 4.82}},
    ),
    "ling24-fig7": (
        7, "explicit", "Σ", r"\Sigma", {"gmm": {"relu": 0.32, "tanh": 0.88}, "mnist": {"relu": 2.34, "tanh": 4.79}},
    ),
}  # fmt: skip


def plan(sizes: dict[str, int], repetitions: dict[str, int]) -> Iterator[Settings]:
    """One size and one number of repetitions by data set."""
    for data, n in sizes.items():
        for activation in ACTIVATIONS:
            for seed in range(repetitions[data]):
                yield {"data": data, "activation": activation, "n": n, "seed": seed}


def measure(kernel: str, data: str, activation: str, n: int, seed: int) -> dict[str, Any]:
    """Norms, histograms and distances; `kernel` is a kind of the DEQ or ``explicit`` for the CK of its match."""
    X, stats = draw_samples(data, n, seed, FEATURES)
    deq = DEQ(activation, RECURRENT, INPUT)
    kind = "ck" if kernel == "explicit" else kernel

    def gap(X: Any, stats: Statistics) -> tuple[DEQ | Explicit, Any, float]:
        model = match(deq, stats=stats).network if kernel == "explicit" else deq
        exact = model.centered(stats.tau0).kernel(X, kind=kind)
        return model, exact, spectral_norm(exact - equivalent(model, X, stats, kind).dense())

    model, exact, difference = gap(X, stats)
    root_mean_square = math.sqrt(float(np.mean(np.sum(X**2, axis=1))))
    numbers = {
        "p": X.shape[1],
        "gap": difference,
        "gap_rms": gap(X, dataclasses.replace(stats, tau0=root_mean_square))[2],
        "norm": spectral_norm(exact),
    }
    if kernel == "explicit":
        numbers["gap_implicit"] = spectral_norm(exact - deq.centered(stats.tau0).kernel(X, kind=kind))
    elif data != "gmm":
        numbers["gap_unit"] = gap(*draw_samples(data, n, seed, unit=True))[2]
    approximate = equivalent(model, X, stats, kind).eigenvalues()
    return {**numbers, **_compare_spectra(np.linalg.eigvalsh(exact), approximate, model, stats, kind)}


def _compare_spectra(
    exact: Any, approximate: Any, model: DEQ | Explicit, stats: Statistics, kind: str
) -> dict[str, Any]:
    """Shares in logarithmic bins, and the mean distance of sorted eigenvalues over the mean eigenvalue."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # `mass` below shows it
        warnings.simplefilter("ignore", AssumptionWarning)  # the measured distances show it
        limit = spectrum(model, stats, kind)
    high = 1.1 * float(max(exact[-1], approximate[-1]))
    low = max(float(min(exact[0], approximate[0])) / 1.1, 1e-4 * high)
    edges = np.geomspace(low, high, 51)

    def shares(values: Any) -> list[float]:
        counts, _ = np.histogram(np.clip(values, low, high), edges)
        return [float(count) / len(values) for count in counts]

    average = float(np.mean(exact))
    # the law says nothing of the outliers; an integral of |F − F'| is the mean distance of sorted eigenvalues
    end = 1.05 * float(limit.support[-1, 1]) if len(limit.support) else high
    grid = np.linspace(0.0, end, 4001)
    below = np.searchsorted(exact, grid, side="right") / len(exact)
    return {
        "distance": float(np.mean(np.abs(exact - approximate))) / average,
        "distance_limit": float(np.trapezoid(np.abs(below - limit.cdf(grid)), grid)) / average,
        "limit_mass": float(limit.mass),
        "edges": edges.tolist(),
        "exact": shares(exact),
        "equivalent": shares(approximate),
        "limit": np.diff(limit.cdf(edges)).tolist(),
        "outliers": np.asarray(limit.outliers).tolist(),
        "largest_exact": exact[::-1][:8].tolist(),
        "largest_equivalent": approximate[::-1][:8].tolist(),
    }


def judge(rows: Sequence[Row], name: str) -> Judgement:
    """The printed norms, the two distributions of eigenvalues, and the limiting law."""
    _, _, symbol, _, printed = FIGURES[name]
    checks, says, finds = [], [], []
    for data in dict.fromkeys(row["data"] for row in rows):
        for activation, label in ACTIVATIONS.items():
            part = select(rows, data=data, activation=activation)
            where = f"{label} on {DATA[data]}"
            gap, rms = mean([row["gap"] for row in part]), mean([row["gap_rms"] for row in part])
            norm = mean([row["norm"] for row in part])
            finds.append(f"{where} {gap}")
            if data in printed:
                value = printed[data][activation]
                says.append(f"{where} {value:.2f}")
                text = f"{gap} of ‖{symbol}‖ = {norm.value:.3g}"
                why = f"with τ0² = mean ‖x‖² instead of tr C°/p it is {rms}"
                if "gap_implicit" in part[0]:
                    why += f"; ‖G − Σ‖, to the CK of the DEQ, is {mean([row['gap_implicit'] for row in part])}"
                if "gap_unit" in part[0]:
                    why += f"; with images of norm 1, {mean([row['gap_unit'] for row in part])}"
                if data != "gmm":
                    why += (
                        "; a few directions hold most of the variance here, which the theory excludes, and how the "
                        "paper prepared the images and estimated C_a is unknown"
                    )
                agrees = abs(gap.value - value) <= CLOSE * value
                checks.append(Check(f"norm for {where}", f"{value:.2f}", text, agrees, why))
            for column, other in (
                ("distance", "as those of the equivalent"),
                ("distance_limit", "not in the paper: as in our limiting law"),
            ):
                apart = mean([row[column] for row in part])
                text = f"{100 * apart.value:.2g} % of the mean eigenvalue away"
                checks.append(Check(f"eigenvalues for {where}", other, text, apart.value <= SAME_LAW))
    return Judgement(
        f"‖{symbol} − {symbol}̄‖: " + (", ".join(says) or "no number for these data"),
        ", ".join(finds),
        checks,
    )


def draw(plt: Any, rows: Sequence[Row], name: str) -> Any:
    """One panel a data set and activation; the first repetition."""
    _, kernel, _, symbol, printed = FIGURES[name]
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = plt.subplots(len(names), 2, figsize=(10.8, 3.9 * len(names)), layout="constrained", squeeze=False)
    for line, data in zip(axes, names, strict=True):
        for axis, (activation, label) in zip(line, ACTIVATIONS.items(), strict=True):
            part = select(rows, data=data, activation=activation)
            _draw_panel(axis, part[0], kernel)
            text = rf"$\|{symbol}-\bar{{{symbol}}}\|$ = {mean([row['gap'] for row in part])}"
            if data in printed:
                text += f"; paper {printed[data][activation]:.2f}"
            axis.set_title(f"{label}, {DATA[data]} (n = {part[0]['n']}, p = {part[0]['p']})\n{text}", fontsize=11)
        line[0].set_ylabel("share of eigenvalues")
    for axis in axes[-1]:
        axis.set_xlabel("eigenvalue")
    axes[0][0].legend(loc="upper right", fontsize=9)
    return figure


def _draw_panel(axis: Any, row: Row, kernel: str) -> None:
    edges, floor = row["edges"], 0.5 / row["n"]
    look = {"baseline": floor, "fill": True, "color": COLORS["explicit" if kernel == "explicit" else "implicit"]}
    axis.stairs(np.maximum(row["exact"], floor), edges, alpha=0.35, label="exact kernel", **look)
    axis.stairs(row["equivalent"], edges, color=COLORS["ink"], lw=1.3, label="equivalent")
    axis.stairs(row["limit"], edges, color=COLORS["theory"], lw=1.6, ls=(0, (4, 2)), label="limiting law")
    axis.set(xscale="log", yscale="log", ylim=(floor, min(3.0, 12 * max(row["exact"] + row["equivalent"]))))
    if row["outliers"]:
        height = np.full(len(row["outliers"]), 0.75 / row["n"])
        axis.plot(row["outliers"], height, "v", ms=7, color=COLORS["theory"], ls="none", label="its outliers")
    for side in (axis.xaxis, axis.yaxis):
        plain_log_ticks(side)


def _entry(name: str) -> Entry:
    figure, kernel, symbol, _, _ = FIGURES[name]
    what = {
        "ck": "the conjugate kernel of a DEQ",
        "ntk_frozen_input": "the neural tangent kernel of a DEQ",
        "explicit": "the conjugate kernel of the explicit network designed for a DEQ",
    }[kernel]
    assumptions = [
        f"the two printed norms are taken to be ‖{symbol} − {symbol}̄‖ for ReLU and Tanh, with {symbol} {what}",
        "exact infinite-width kernels; the paper's come from averages over finite random networks",
        "τ0² = tr C°/p as in the theorems; the column gap_rms uses the mean of ‖x‖² instead, as one may on real data",
        f"a norm agrees within {100 * CLOSE:g} %, eigenvalues within {100 * SAME_LAW:g} % of their mean",
        "MNIST: digits 6 and 8 centred and scaled together to mean ‖x‖² = 1; statistics estimated from the samples",
        "the quick run takes scikit-learn's 8×8 digits, for which nothing is printed, in place of MNIST",
    ]
    if kernel != "explicit":
        assumptions.append("in the column gap_unit each of these images is divided by its norm")
    else:
        assumptions.append("the distance between the two CKs themselves, ‖G − Σ‖, is in the column gap_implicit")
    return Entry(
        name=name,
        paper=f"[Ling24] Figure {figure}",
        title=f"Eigenvalues of {what}, of its equivalent, and the limiting law",
        plan=plan,
        measure=partial(measure, kernel),
        judge=partial(judge, name=name),
        draw=partial(draw, name=name),
        quick={"sizes": {"gmm": 800, "digits": 340}, "repetitions": {"gmm": 3, "digits": 3}},
        full={"sizes": {"gmm": 800, "mnist": 3000}, "repetitions": {"gmm": 10, "mnist": 3}},
        assumptions=assumptions,
    )


ENTRIES = tuple(_entry(name) for name in FIGURES)
