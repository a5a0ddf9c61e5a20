"""The misprints of the papers: with the printed formula the error stalls, with the right one it decays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings
from notsodeep.papers.figures import error_axis, plot_curve
from notsodeep.papers.misprints import (
    ERRATA,
    FURTHER,
    INPUT,
    RECURRENT,
    Sample,
    border_variances,
    guaranteed_corner,
)
from notsodeep.papers.summary import slope
from notsodeep.report.style import COLORS

__all__ = ["ENTRIES"]

CURVES = ERRATA + FURTHER
DECAYS = -0.4  # a slope at least as steep is called a decay like n^−1/2
SIZE = 8  # side of the image for the border of a convolution


def plan(sizes: Sequence[int], repetitions: int) -> Iterator[Settings]:
    """All misprints are measured on the same samples."""
    for n in sizes:
        for seed in range(repetitions):
            yield {"n": n, "seed": seed}


# covers: [Ling24] Thm 3.8; [Ling24] App. D; slides of [Ling24] Thm 3
def measure(n: int, seed: int) -> dict[str, Any]:
    """Relative error of each equivalent, as printed and corrected."""
    sample = Sample.draw(n, seed)
    numbers: dict[str, Any] = {"p": sample.X.shape[1]}
    kernels = {(e.model, e.kind) for e in CURVES}
    correct = {(model, kind): sample.error(model, kind, sample.weights(model, kind)) for model, kind in kernels}
    for e in CURVES:
        numbers[f"printed {e.name}"] = sample.error(e.model, e.kind, e.weights(sample))
        numbers[f"correct {e.name}"] = correct[e.model, e.kind]
    return numbers


def judge(rows: Sequence[Row]) -> Judgement:
    """A printed formula agrees if it decays; every corrected one must. So the theorems hold in part."""
    sizes = [row["n"] for row in rows]
    checks, corrected = [], []
    for e in CURVES:
        printed = slope(sizes, [row[f"printed {e.name}"] for row in rows])
        correct = slope(sizes, [row[f"correct {e.name}"] for row in rows])
        corrected.append(correct)
        checks.append(
            Check(
                f"{e.where}, {e.printed}",
                "error O(n^−1/2)",
                f"slope {printed}",
                printed.value <= DECAYS,
                f"misprint: with {e.correct} the slope is {correct}",
            )
        )
    variances = border_variances(SIZE)
    low, high = float(variances.min()), float(variances.max())
    checks.append(
        Check(
            "[FK20] Eq. (18), (25): 1/(S S') inside the window sum",
            "pixel variances 1",
            f"{low:.3f} to {high:.3f} on {SIZE}×{SIZE} pixels",
            abs(low - 1) < 1e-12 and abs(high - 1) < 1e-12,
            "misprint: with 1/(S S') outside the sum, at the output position, they are 1",
        )
    )
    corner = guaranteed_corner()
    checks.append(
        Check(
            "[Ling23] Eq. (9): λ0 ≥ 4(c_w² + c_u²)‖X‖²",
            f"the loss falls by ηλ0/2 = {corner.claimed:.1e} of itself a step",
            f"its proof gives {corner.proved:.1e}, where the condition holds with margin {corner.margin:.2f}",
            corner.proved >= corner.claimed,
            "misprint: with 8(c_w² + c_u²)‖X‖² the last step of the proof gives ηλ0/2",
        )
    )
    worst = max(corrected)
    checks.append(
        Check("all corrected formulas (ours)", "error O(n^−1/2)", f"slope {worst} or steeper", worst.value <= DECAYS)
    )
    wrong = sum(not check.agrees for check in checks[:-1])
    return Judgement(
        "the equivalents approach the kernels like n^−1/2, pixel variances stay 1, and a rate of training is proved",
        f"{wrong} of {len(checks) - 1} formulas fail as printed; with our corrections the equivalents do approach the "
        f"kernels, slopes {worst} or steeper",
        checks,
    )


def draw(plt: Any, rows: Sequence[Row]) -> Any:
    """One panel a misprint."""
    figure, axes = plt.subplots(2, 6, figsize=(19.5, 7.8), layout="constrained")
    panels = axes.ravel()
    for axis, e in zip(panels, CURVES, strict=False):
        for label, color, marker in (("printed", "explicit", "s"), ("correct", "theory", "o")):
            plot_curve(axis, rows, f"{label} {e.name}", color=COLORS[color], marker=marker, label=label)
        error_axis(axis, rows, (f"printed {e.name}", f"correct {e.name}"))
        model = {"deq": "DEQ", "explicit": "explicit", "hard_tanh": "H-Tanh"}[e.model]
        kind = {"ck": "CK", "ntk": "NTK", "ntk_frozen_input": "NTK, B frozen"}[e.kind]
        axis.set_title(f"{e.where}\n{_NOTE[e.name]}\n{model} {kind}", fontsize=10)
    for axis in axes[:, 0]:
        axis.set_ylabel("relative error")
    panels[0].legend(loc="lower left")
    _draw_border(panels[len(CURVES)])
    _draw_rate(panels[len(CURVES) + 1])
    for axis in panels[len(CURVES) + 2 :]:
        axis.set_axis_off()
    return figure


_NOTE = {
    "explicit alpha2": "α̃₂: α̃₄ not squared",
    "explicit alpha3": "α̃₃: α̃₁ not squared",
    "explicit alpha4": "α̃₄: (σ²)′ for (σ²)″",
    "alpha4": "α₄: (φ²)′ for (φ²)″",
    "alpha2": "α₂: α₄ not squared",
    "kappa": "κ from τ, E[φ′]²",
    "beta3": "β₃: misplaced $σ_b^2$",
    "hard tanh": "moments of sin + cos",
    "eq7": "NTK without the input weights",
}


def _draw_border(axis: Any) -> None:
    places = np.arange(1, SIZE + 1)
    axis.plot(places, border_variances(SIZE)[0], "s-", ms=5, color=COLORS["explicit"])
    axis.plot(places, np.ones(SIZE), "o-", ms=5, color=COLORS["theory"])
    axis.set(xlabel="pixel of the first row", ylabel="variance", ylim=(0, 1.5))
    axis.set_title("[FK20] Eq. (18), (25)\n1/(S S′) inside the window sum\nConvDEQ", fontsize=10)


def _draw_rate(axis: Any) -> None:
    corners = [guaranteed_corner(margin) for margin in np.geomspace(1.01, 4, 25)]
    margins = [corner.margin for corner in corners]
    axis.plot(margins, [corner.claimed for corner in corners], "s-", ms=4, color=COLORS["explicit"])
    axis.plot(margins, [corner.proved for corner in corners], "o-", ms=4, color=COLORS["theory"])
    axis.axvline(2, color=COLORS["theory"], lw=1, ls=":")  # 8 in the place of 4
    axis.set(xlabel=r"$\lambda_0 / 4(c_w^2 + c_u^2)\|X\|^2$", ylabel="decrease of the loss a step", ylim=(0, None))
    axis.set_title("[Ling23] Eq. (9)\n4 for 8\nclaimed and proved", fontsize=10)


ENTRIES = (
    Entry(
        name="errata",
        paper="[Ling24], [Ling23], [FK20]",
        title="Misprinted formulas stall, corrected ones decay",
        plan=plan,
        measure=measure,
        judge=judge,
        draw=draw,
        quick={"sizes": (200, 400, 800), "repetitions": 3},
        full={"sizes": (200, 400, 800, 1600), "repetitions": 5},
        assumptions=(
            f"two classes of different means and covariances, p/n = 0.8; relu DEQ, σ_a² = {RECURRENT}, σ_b² = {INPUT}",
            "each misprint alone, the other formulas being right",
            "Condition 1 of [Ling23] at the norms that wide networks tend to, the readout being what leaves its margin",
            "a condition on (φ²)' in [Ling24] Asm. 3.1, meant for (φ²)'', changes no number and has no curve",
        ),
    ),
)
