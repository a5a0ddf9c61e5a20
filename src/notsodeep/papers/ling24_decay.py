"""[Ling24] Figures 1 and 4: how fast the high-dimensional equivalents approach the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from notsodeep.activations import Activation, activation
from notsodeep.highdim import equivalent
from notsodeep.models import DEQ
from notsodeep.norms import spectral_norm
from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.figures import SERIES, error_axis, plot_curve
from notsodeep.papers.finite_width import averaged_kernel
from notsodeep.papers.inputs import draw as draw_samples
from notsodeep.papers.summary import curve, slope

__all__ = ["ENTRIES"]

RECURRENT, INPUT = 0.2, 0.8
RATIO = 0.8  # p/n
ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh", "swish": "Swish", "leaky_relu": "L-ReLU"}
LEAK = 0.01  # L-ReLU = max(x, 0.01 x)


def phi(name: str) -> Activation:
    """One of the four activations of the figures."""
    return activation(name, a=1.0, b=LEAK) if name == "leaky_relu" else activation(name)


def plan(sizes: Sequence[int], repetitions: int, width: int, networks: int, estimates: int) -> Iterator[Settings]:
    """Width 0 stands for the exact kernel."""
    for name in ACTIVATIONS:
        for n in sizes:
            for wide, many, count in ((0, 0, repetitions), (width, networks, estimates)):
                for seed in range(count):
                    yield {"activation": name, "n": n, "width": wide, "networks": many, "seed": seed}


# covers: [Ling24] Figure 1 @ ling24-fig1; [Ling24] Thm 3.3 @ ling24-fig1; slides of [Ling24] Thm 1 @ ling24-fig1
# covers: [Ling24] Figure 4 @ ling24-fig4; [Ling24] Thm 3.4 @ ling24-fig4; slides of [Ling24] Thm 2 @ ling24-fig4
# covers: slides of [Ling24] Figure 1 @ ling24-fig1
def measure(kind: str, activation: str, n: int, width: int, networks: int, seed: int) -> dict[str, Any]:
    """‖M − M̄‖ and ‖M‖ of the exact or of the estimated kernel M."""
    X, stats = draw_samples("gmm", n, seed, round(RATIO * n))
    deq = DEQ(phi(activation), RECURRENT, INPUT)
    centered = deq.centered(stats.tau0)
    if width:
        kernel = averaged_kernel(centered, X, kind, width=width, networks=networks, seed=seed)
    else:
        kernel = centered.kernel(X, kind=kind)
    gap = spectral_norm(kernel - equivalent(deq, X, stats, kind).dense())
    norm = spectral_norm(kernel)
    return {"p": X.shape[1], "gap": gap, "norm": norm, "error": gap / norm}


def judge(rows: Sequence[Row], symbol: str) -> Judgement:
    """The interval of the slope must reach −1/2, the bound O(n^−1/2), and stay below −1/4, a clear decay."""
    checks, slopes = [], []
    exact = select(rows, width=0)
    for name, label in ACTIVATIONS.items():
        one = select(exact, activation=name)
        found = slope([row["n"] for row in one], [row["error"] for row in one])
        slopes.append(f"{label} {found}")
        why = "" if found.low <= -0.5 else "slower than the theorem"
        checks.append(
            Check(
                f"slope for {label}, exact kernel",
                "−1/2 or steeper",
                str(found),
                found.low <= -0.5 and found.high < -0.25,
                why,
            )
        )
    estimated = [row for row in rows if row["width"]]
    width = max(row["width"] for row in estimated)
    curves = [curve(select(estimated, activation=name), "error")[1] for name in ACTIVATIONS]
    falling = [all(b.value < a.value for a, b in pairwise(one)) for one in curves]
    checks.append(
        Check(
            f"the error with {symbol} estimated from networks of width {width} falls with every doubling of n",
            "it does",
            f"for {sum(falling)} of {len(falling)} activations; from the smallest n to the largest for "
            f"{sum(one[-1].value < one[0].value for one in curves)}",
            all(falling) or None,
            "the estimate's own noise, of relative size √(n/(width·networks)), hides the decay where it does not fall",
        )
    )
    return Judgement(
        f"‖{symbol} − {symbol}̄‖/‖{symbol}‖ falls like n^−1/2 for ReLU, Tanh, Swish and L-ReLU",
        "slope " + ", ".join(slopes),
        checks,
        finding="slopes of exact kernels " + ", ".join(slopes),
    )


def draw(plt: Any, rows: Sequence[Row], symbol: str) -> Any:
    """Exact kernels on the left, the estimate of the paper on the right."""
    figure, axes = plt.subplots(1, 2, figsize=(10.6, 4.7), layout="constrained", sharey=True)
    width = max(row["width"] for row in rows)
    for axis, wide in zip(axes, (0, width), strict=True):
        part = select(rows, width=wide)
        for series, (name, label) in zip(SERIES, ACTIVATIONS.items(), strict=True):
            one = select(part, activation=name)
            if not wide:
                label += f": slope {slope([row['n'] for row in one], [row['error'] for row in one])}"
            plot_curve(axis, one, "error", label=label, **series)
        axis.set_title(f"estimated from {one[0]['networks']} networks, width {width}" if wide else "exact kernel")
    error_axis(axes[1], rows)
    error_axis(axes[0], select(rows, width=0), reference=True)
    low, high = min(row["error"] for row in rows), max(row["error"] for row in rows)
    axes[0].set_ylim(low / 4, high * 1.6)  # room for the legend
    axes[0].legend(loc="lower left", fontsize=9)
    axes[0].set_ylabel(rf"relative error $\|{symbol} - \bar{{{symbol}}}\|\,/\,\|{symbol}\|$")
    return figure


def _entry(name: str, figure: int, symbol: str, kind: str, title: str) -> Entry:
    return Entry(
        name=name,
        paper=f"[Ling24] Figure {figure}",
        title=title,
        plan=plan,
        measure=partial(measure, kind),
        judge=partial(judge, symbol=symbol),
        draw=partial(draw, symbol=symbol),
        revision=2,  # ten networks in an estimate
        quick={"sizes": (200, 400, 800), "repetitions": 3, "width": 512, "networks": 2, "estimates": 2},
        full={"sizes": (200, 400, 800, 1600, 3200), "repetitions": 5, "width": 1000, "networks": 10, "estimates": 3},
        assumptions=(
            f"L-ReLU is max(x, {LEAK}x)",
            "the sizes n, and that the slope's interval must reach −1/2 and stay below −1/4",
        ),
        differences=(
            "exact infinite-width kernels beside the paper's estimate, whose noise would hide the decay",
            "the estimate averages 10 networks of width 1000, which the scripts use, in place of the text's width 2¹², "
            "and is repeated three times instead of five",
        ),
    )


ENTRIES = (
    _entry("ling24-fig1", 1, "G", "ck", "The conjugate kernel of a DEQ approaches its high-dimensional equivalent"),
    _entry("ling24-fig4", 4, "K", "ntk_frozen_input", "The neural tangent kernel of Eq. (7) approaches its equivalent"),
)
