"""[FK20] Figure 1: kernels of finite depth against the kernel of the equilibrium."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from notsodeep.models import DEQ, Explicit
from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.figures import plot_curve, size_axis
from notsodeep.papers.inputs import split
from notsodeep.papers.summary import Estimate, mean
from notsodeep.report.style import COLORS

__all__ = ["ENTRIES"]

VARIANCES = (0.6, 0.4, 0.0)  # σ_a², σ_b², σ_0²
LABELS = {"deq": "finite-depth DEQ-NTK", "plain": "finite-depth NTK", "exact": "DEQ-NTK, exact"}
TOLERATED = 0.01
ROUNDING = 1e-12  # relative to the largest eigenvalue: smaller ones cannot be distinguished from zero and are left out


def plan(train: int, test: int, depths: Sequence[int], draws: int) -> Iterator[Settings]:
    """Draw by draw; depth 0 stands for the equilibrium."""
    for seed in range(draws):
        yield {"network": "exact", "depth": 0, "train": train, "test": test, "seed": seed}
        for network in ("deq", "plain"):
            for depth in depths:
                yield {"network": network, "depth": depth, "train": train, "test": test, "seed": seed}


def measure(network: str, depth: int, train: int, test: int, seed: int) -> dict[str, Any]:
    """Test accuracy of kernel regression without ridge on one-hot targets 0.9 and −0.1."""
    part = split("cifar10", train, test, seed).parts
    X, X_test = (rows.astype(np.float64) for rows in (part.X, part.X_test))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X_test /= np.linalg.norm(X_test, axis=1, keepdims=True)
    targets = np.eye(10)[part.labels] - 0.1

    def kernel(X: Any, Y: Any = None) -> Any:
        if network == "plain":
            return Explicit(["normalized_relu"] * depth).kernel(X, Y, kind="ntk")
        return DEQ("normalized_relu", *VARIANCES).kernel(X, Y, kind="ntk_injected", depth=depth or None)

    values, vectors = np.linalg.eigh(kernel(X))
    kept = values > ROUNDING * values[-1]
    coefficients = vectors[:, kept] @ ((vectors[:, kept].T @ targets) / values[kept, None])
    found = np.argmax(kernel(X_test, X) @ coefficients, axis=1)
    return {
        "accuracy": float(np.mean(found == part.labels_test)),
        "condition": float(values[-1] / values[kept][0]),
        "rank": int(kept.sum()),
    }


def judge(rows: Sequence[Row]) -> Judgement:
    """Deep unrolled DEQ-NTKs agree with the exact one; deep NTKs degenerate."""
    deepest = max(row["depth"] for row in rows)
    deq, plain = (_minus_exact(rows, network, deepest) for network in ("deq", "plain"))
    exact = mean([100 * row["accuracy"] for row in select(rows, network="exact")])
    checks = [
        Check(
            f"DEQ-NTK of depth {deepest}",
            "as the equilibrium's",
            f"{_points(deq)} points from it",
            abs(deq.value) <= TOLERATED,
        ),
        Check(
            f"NTK without injection of depth {deepest}",
            "below the DEQ-NTK",
            f"{_points(plain)} points from it",
            plain.high < 0,
            "not tested, but likely: with depth the entries of this kernel off the diagonal tend to one constant and "
            "those on it to another; the contrast between samples fades slowly, and regression without ridge makes up "
            "for it",
        ),
    ]
    return Judgement(
        "with depth the DEQ-NTK converges to its equilibrium, while the NTK without input injection degenerates",
        f"accuracy of the exact DEQ-NTK {exact} %; at depth {deepest} the finite DEQ-NTK differs by {_points(deq)}, "
        f"the NTK by {_points(plain)} points",
        checks,
    )


def _points(estimate: Estimate) -> Estimate:
    return Estimate(100 * estimate.value, 100 * estimate.half)


def _minus_exact(rows: Sequence[Row], network: str, depth: int) -> Estimate:
    """Difference in accuracy on the same draws."""
    exact = {row["seed"]: row["accuracy"] for row in select(rows, network="exact")}
    return mean([row["accuracy"] - exact[row["seed"]] for row in select(rows, network=network, depth=depth)])


def draw(plt: Any, rows: Sequence[Row]) -> Any:
    """Accuracy against depth with 95 % intervals over draws, and how ill-conditioned the kernels are."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.6, 4.6), layout="constrained")
    finite = [{**row, "percent": 100 * row["accuracy"]} for row in rows if row["depth"]]
    exact = mean([100 * row["accuracy"] for row in select(rows, network="exact")])
    depths = sorted({row["depth"] for row in finite})
    half = 0.0 if np.isnan(exact.half) else exact.half
    left.axhline(exact.value, color=COLORS["theory"], label=LABELS["exact"])
    band = (exact.value - half, exact.value + half)
    left.fill_between([depths[0], depths[-1]], *band, color=COLORS["theory"], alpha=0.15, lw=0)
    for network, color, marker in (("deq", "implicit", "o"), ("plain", "explicit", "s")):
        one = select(finite, network=network)
        look = {"color": COLORS[color], "marker": marker, "label": LABELS[network]}
        plot_curve(left, one, "percent", "depth", **look)
        plot_curve(right, one, "condition", "depth", **look)
    right.axhline(np.mean([row["condition"] for row in select(rows, network="exact")]), color=COLORS["theory"])
    for axis in (left, right):
        size_axis(axis, finite, "depth", "depth")
    left.set(
        ylabel="test accuracy, %", title=f"CIFAR-10, {rows[0]['train']} training and {rows[0]['test']} test images"
    )
    right.set(yscale="log", ylabel="condition number of the kernel", title="what the solver sees")
    left.set_xlim(depths[0] / 1.2, depths[-1] * 1.2)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


ENTRIES = (
    Entry(
        name="fk20-fig1",
        paper="[FK20] Figure 1",
        title="Kernels of finite depth against the kernel of the equilibrium",
        plan=plan,
        measure=measure,
        judge=judge,
        draw=draw,
        quick={"train": 300, "test": 100, "depths": (1, 4, 16, 64), "draws": 3},
        full={"train": 1000, "test": 100, "depths": (1, 2, 4, 8, 16, 32, 64, 128), "draws": 20},
        assumptions=(
            "σ_W² = 0.6, σ_U² = 0.4, σ_b² = 0, one of the settings of Table 2; the figure's own are not known here",
            "the NTK without injection is that of d layers of √2·relu",
            "raw pixels, each image divided by its norm; one-hot targets 0.9 and −0.1, no ridge",
            "the figure is read as saying that the NTK gets worse than the DEQ-NTK as it gets deeper",
            f"eigenvalues below {ROUNDING:g} of the largest, which rounding hides, are left out of the inverse",
            "new training and test images in every draw; differences are taken draw by draw",
        ),
    ),
)
