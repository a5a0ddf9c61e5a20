"""[Ling24] Figures 5 to 7: eigenvalues of kernels, of their equivalents and twins, and the norms of differences."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import AssumptionWarning
from notsodeep.convergence import ConvergenceWarning
from notsodeep.highdim import Statistics, equivalent, spectrum
from notsodeep.matching import match
from notsodeep.models import DEQ
from notsodeep.norms import spectral_norm
from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.finite_width import averaged_kernel
from notsodeep.papers.inputs import draw as draw_samples
from notsodeep.papers.summary import Estimate, mean, one_more
from notsodeep.report.style import COLORS, plain_log_ticks

__all__ = ["ENTRIES"]

Array: TypeAlias = NDArray[Any]

RECURRENT, INPUT = 0.2, 0.8
FEATURES = 1000  # of the mixture
ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh"}
DATA = {"gmm": "GMM", "mnist": "MNIST 6 vs 8", "digits": "digits 6 vs 8"}
SAME_LAW = 0.05  # mean distance of sorted eigenvalues, over their mean, up to which two spectra are called equal
SCRIPTS = 400  # n of MNIST in the scripts of the paper; the captions say 3000
TEXT = 4096  # the width that the text names; the scripts average several narrower networks
SAME_SIZE = 0.1  # relative difference up to which a norm of ours is said to explain a printed one
SIZES = {"gmm": (800,), "mnist": (SCRIPTS, 3000)}  # for which norms are printed

# name: (figure, kernel, the norm in text, in the picture, printed norms by data and activation)
FIGURES: dict[str, tuple[int, str, str, str, dict[str, dict[str, float]]]] = {
    "ling24-fig5": (
        5, "ck", "‖G − Ḡ‖", r"\|G-\bar G\|",
        {"gmm": {"relu": 0.26, "tanh": 0.81}, "mnist": {"relu": 1.80, "tanh": 2.02}},
    ),
    "ling24-fig6": (
        6, "ntk_frozen_input", "‖K − K̄‖", r"\|K-\bar K\|",
        {"gmm": {"relu": 0.34, "tanh": 0.76}, "mnist": {"relu": 3.93, "tanh": 4.82}},
    ),
    "ling24-fig7": (
        7, "explicit", "‖G − Σ‖", r"\|G-\Sigma\|",
        {"gmm": {"relu": 0.32, "tanh": 0.88}, "mnist": {"relu": 2.34, "tanh": 4.79}},
    ),
}  # fmt: skip


def plan(
    points: Sequence[tuple[str, int]], repetitions: int, width: int, networks: int, singles: int
) -> Iterator[Settings]:
    """Points are (data, n). Width 0 is an exact kernel; on the mixture, `singles` are networks of the text's width."""
    for data, n in points:
        for activation in ACTIVATIONS:
            place = {"data": data, "activation": activation, "n": n}
            text = (TEXT, 1, singles if data == "gmm" else 0)
            for wide, many, count in ((0, 0, repetitions), (width, networks, repetitions), text):
                for seed in range(count):
                    yield {**place, "width": wide, "networks": many, "seed": seed}


# covers: [Ling24] Figure 5 @ ling24-fig5; [Ling24] Figure 6 @ ling24-fig6; [Ling24] Figure 7 @ ling24-fig7
def measure(kernel: str, data: str, activation: str, n: int, width: int, networks: int, seed: int) -> dict[str, Any]:
    """The norm of the figure; `kernel` is a kind of the DEQ, or ``explicit`` for the distance to its match.

    Exact kernels also give the norm with τ0² = mean ‖x‖², histograms and distances of eigenvalues; estimates on as
    few images as the scripts take also give the norm by their recipe.
    """
    X, stats = draw_samples(data, n, seed, FEATURES)
    deq = DEQ(activation, RECURRENT, INPUT)
    kind = "ck" if kernel == "explicit" else kernel
    centered, twin = deq.centered(stats.tau0), match(deq, stats=stats).network
    if networks:
        estimate = averaged_kernel(centered, X, kernel, width=width, networks=networks, seed=seed, explicit=twin)
        other = 0.0 if kernel == "explicit" else equivalent(deq, X, stats, kind).dense()
        gap = spectral_norm(estimate - other)
        if data == "gmm" or n > SCRIPTS:
            return {"p": X.shape[1], "gap": gap}
        return {"p": X.shape[1], "gap": gap, "gap_scripts": _by_scripts(kernel, data, deq, n, width, networks, seed)}
    exact = centered.kernel(X, kind=kind)
    if kernel == "explicit":
        other, moved = twin.kernel(X, kind=kind), None
        values = np.linalg.eigvalsh(other)
    else:
        reach = _reaching(X, stats)
        moved = deq.centered(reach.tau0).kernel(X, kind=kind) - equivalent(deq, X, reach, kind).dense()
        structured = equivalent(deq, X, stats, kind)
        other, values = structured.dense(), structured.eigenvalues()
    return {
        "p": X.shape[1],
        "gap": spectral_norm(exact - other),
        **({} if moved is None else {"gap_rms": spectral_norm(moved)}),
        "norm": spectral_norm(exact),
        **_compare_spectra(np.linalg.eigvalsh(exact), values, deq, stats, kind),
    }


def _by_scripts(kernel: str, data: str, deq: DEQ, n: int, width: int, networks: int, seed: int) -> float:
    """The norm as the scripts compute it: on the first images, with τ0² = mean ‖x‖² and without the term in V."""
    X, stats = draw_samples(data, n, seed, first=True)
    stats = _reaching(X, stats)
    centered, twin = deq.centered(stats.tau0), match(deq, stats=stats).network
    estimate = averaged_kernel(centered, X, kernel, width=width, networks=networks, seed=seed, explicit=twin)
    if kernel == "explicit":
        return spectral_norm(estimate)
    structured = equivalent(deq, X, stats, kernel)
    return spectral_norm(estimate - dataclasses.replace(structured, A=np.zeros_like(structured.A)).dense())


def _reaching(X: Array, stats: Statistics) -> Statistics:
    """The same with τ0² = mean ‖x‖², which contains the class means."""
    return dataclasses.replace(stats, tau0=math.sqrt(float(np.mean(np.sum(X**2, axis=1)))))


def _compare_spectra(exact: Any, approximate: Any, model: DEQ, stats: Statistics, kind: str) -> dict[str, Any]:
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
    """Two distributions of eigenvalues agree; and the printed norms lie among ours."""
    _, kernel, symbol, _, printed = FIGURES[name]
    partner = "the designed explicit network" if kernel == "explicit" else "the equivalent"
    checks, says, finds, within = [], [], [], []
    for data, n in dict.fromkeys((row["data"], row["n"]) for row in rows):
        for activation, label in ACTIVATIONS.items():
            part = select(rows, data=data, activation=activation, n=n)
            exact, where = select(part, networks=0), f"{label} on {DATA[data]}, n = {n}"
            gap, norm = (mean([row[column] for row in exact]) for column in ("gap", "norm"))
            apart = mean([row["distance"] for row in exact])
            text = f"{100 * apart.value:.2g} % of the mean eigenvalue apart; {symbol} = {gap} of {norm.value:.3g}"
            why = "" if data == "gmm" else "a few directions hold most of the variance, which the theory excludes"
            checks.append(Check(f"eigenvalues, {where}", f"as those of {partner}", text, apart.value <= SAME_LAW, why))
            finds.append(f"{where} {gap}")
            estimates = [row["gap"] for row in part if row["width"] not in (0, TEXT)]
            if data not in printed or n not in SIZES[data] or len(estimates) < 2:
                continue  # nothing is printed for these data, or for this size
            value, one = printed[data][activation], one_more(estimates)
            check = Check.number(f"{symbol}, {where}", value, max(one.low, 0.0), one.high)
            if one.half > one.value:
                check = dataclasses.replace(check, agrees=None, measured=check.measured.partition(":")[0])
            found = _others(select(rows, data=data, activation=activation), n)
            checks.append(dataclasses.replace(check, why=_why(check, value, found)))
            within.append(f"{where}: {value:.2f} printed, {one} here")
            says.append(f"{label} on {DATA[data]} {value:.2f}")
    return Judgement(
        f"the eigenvalues are those of {partner}, and {symbol} is small: "
        + (", ".join(dict.fromkeys(says)) or "no number for these data"),
        "exact kernels, " + ", ".join(finds),
        checks,
        finding="; ".join(within) or "small data only",
    )


def _others(rows: Sequence[Row], n: int) -> dict[str, Estimate]:
    """The same norm by other settings, as far as these rows have it."""
    here = select(rows, n=n)
    columns = {
        "exact kernels": (select(here, networks=0), "gap"),
        "exact kernels with τ0² = mean ‖x‖²": (select(here, networks=0), "gap_rms"),
        f"single networks of width {TEXT}": (select(here, width=TEXT), "gap"),
        f"the scripts' recipe at their n = {SCRIPTS}": (select(rows, n=SCRIPTS), "gap_scripts"),
    }
    values = {what: [row[column] for row in some if column in row] for what, (some, column) in columns.items()}
    return {what: mean(some) for what, some in values.items() if some}


def _why(check: Check, value: float, found: dict[str, Estimate]) -> str:
    """What the other settings give, and which of them has the printed size where ours has not."""
    text = ", ".join(f"{what}: {one}" for what, one in found.items())
    if check.agrees:
        return text
    if check.agrees is None:
        text = f"our interval is wider than the value itself; {text}"
    near = [what for what, one in found.items() if abs(one.value / value - 1) <= SAME_SIZE]
    return f"{text}; " + (f"of the printed size: {', '.join(near)}" if near else "not explained")


def draw(plt: Any, rows: Sequence[Row], name: str) -> Any:
    """One line a data set and size, one column an activation; the first repetition."""
    _, kernel, _, symbol, printed = FIGURES[name]
    points = list(dict.fromkeys((row["data"], row["n"]) for row in rows))
    size = (10.8, 4.2 * len(points))
    figure, axes = plt.subplots(len(points), 2, figsize=size, layout="constrained", squeeze=False)
    for line, (data, n) in zip(axes, points, strict=True):
        for axis, (activation, label) in zip(line, ACTIVATIONS.items(), strict=True):
            part = select(rows, data=data, activation=activation, n=n)
            exact = select(part, networks=0)
            _draw_panel(axis, exact[0], kernel)
            text = rf"${symbol}$ = {mean([row['gap'] for row in exact])} exact"
            estimates = [row["gap"] for row in part if row["width"] not in (0, TEXT)]
            if estimates:
                text += f"\n{mean(estimates)} estimated"
            if data in printed and n in SIZES[data]:
                text += f"; paper {printed[data][activation]:.2f}"
            axis.set_title(f"{label}, {DATA[data]} (n = {n}, p = {part[0]['p']})\n{text}", fontsize=11)
        line[0].set_ylabel("share of eigenvalues")
    for axis in axes[-1]:
        axis.set_xlabel("eigenvalue")
    axes[0][0].legend(loc="upper right", fontsize=9)
    return figure


def _draw_panel(axis: Any, row: Row, kernel: str) -> None:
    edges, floor = row["edges"], 0.5 / row["n"]
    look = {"baseline": floor, "fill": True, "color": COLORS["implicit"]}
    partner, color = ("explicit network", "explicit") if kernel == "explicit" else ("equivalent", "ink")
    axis.stairs(np.maximum(row["exact"], floor), edges, alpha=0.35, label="DEQ, exact kernel", **look)
    axis.stairs(row["equivalent"], edges, color=COLORS[color], lw=1.3, label=partner)
    axis.stairs(row["limit"], edges, color=COLORS["theory"], lw=1.6, ls=(0, (4, 2)), label="limiting law (ours)")
    axis.set(xscale="log", yscale="log", ylim=(floor, min(3.0, 12 * max(row["exact"] + row["equivalent"]))))
    if row["outliers"]:
        height = np.full(len(row["outliers"]), 0.75 / row["n"])
        axis.plot(row["outliers"], height, "v", ms=7, color=COLORS["theory"], ls="none", label="its outliers")
    for side in (axis.xaxis, axis.yaxis):
        plain_log_ticks(side)


def _entry(name: str) -> Entry:
    figure, kernel, *_ = FIGURES[name]
    what = {
        "ck": "the conjugate kernel of a DEQ and of its equivalent",
        "ntk_frozen_input": "the neural tangent kernel of Eq. (7) and of its equivalent",
        "explicit": "the conjugate kernels of a DEQ and of the explicit network designed for it",
    }[kernel]
    return Entry(
        name=name,
        paper=f"[Ling24] Figure {figure}",
        title=f"Eigenvalues of {what}",
        revision=3,  # the scripts' recipe on images, five repetitions everywhere
        plan=plan,
        measure=partial(measure, kernel),
        judge=partial(judge, name=name),
        draw=partial(draw, name=name),
        quick={"points": (("gmm", 400), ("digits", 340)), "repetitions": 2, "width": 256, "networks": 3, "singles": 0},
        full={
            "points": tuple((data, n) for data, sizes in SIZES.items() for n in sizes),
            **{"repetitions": 5, "width": 800, "networks": 10, "singles": 3},
        },
        assumptions=(
            f"eigenvalues agree within {100 * SAME_LAW:g} % of their mean; a printed norm agrees if one more "
            "repetition of ours may give it, and we cannot tell where that interval is wider than the value",
            f"a setting explains a printed norm if its mean is within {100 * SAME_SIZE:g} % of it",
        ),
        differences=(
            "exact infinite-width kernels beside the paper's estimate from networks; eigenvalues are those of the "
            "exact ones, and their limiting law is ours",
            "estimates average 10 networks of width 800, as the scripts do; single networks of the text's width "
            f"{TEXT} on the mixture alone, three of them, because they take long",
            "random images of 6 and 8, to have an interval, and statistics as in the theorems; the scripts take the "
            "first images, τ0² = mean ‖x‖² (gap_rms), and leave out most of the term in V (all three: gap_scripts)",
            *(
                ("the hard tanh has its right moments; what the scripts' misprinted ones would give was not measured",)
                if kernel == "explicit"
                else ()
            ),
            "the quick run takes smaller mixtures and scikit-learn's 8×8 digits, for which nothing is printed",
        ),
    )


ENTRIES = tuple(_entry(name) for name in FIGURES)
