"""[Ling23] Figure 1: gradient descent on wide DEQs, with the bounds of the theorem."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from notsodeep.checks import InputError
from notsodeep.norms import spectral_norm
from notsodeep.papers.entry import Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.inputs import labelled
from notsodeep.papers.summary import Estimate, mean
from notsodeep.report.style import COLORS

__all__ = ["ENTRIES"]

RECURRENT = 0.08  # σ_w²
TOLERANCE = 1e-5  # of equilibria and adjoints, in float32
DATA = {
    "sphere": "sphere, Gaussian labels",
    "mnist": "MNIST 0 vs 1",
    "cifar10": "CIFAR-10 0 vs 1",
    "digits": "digits 0 vs 1",
}
PROMISES = ("norm below 1", "eigenvalue above λ0/2", "loss below the bound")


def plan(data: dict[str, int], features: int, widths: Sequence[int], steps: int, networks: int) -> Iterator[Settings]:
    """Samples by data set; the step is that of the widest network, for all of them."""
    for seed in range(networks):
        for name, n in data.items():
            for width in widths:
                yield {
                    "data": name,
                    "n": n,
                    "features": features if name == "sphere" else 0,
                    "width": width,
                    "widest": max(widths),
                    "steps": steps,
                    "seed": seed,
                }


# covers: [Ling23] Figure 1; [Ling23] Condition 1; [Ling23] Thm 1
def measure(data: str, n: int, features: int, width: int, widest: int, steps: int, seed: int) -> dict[str, Any]:
    """Φ(τ), its bound, ‖W(τ)‖ and λ_τ of one random network; and Condition 1 at the start."""
    from notsodeep import nn

    X, y = _tensors(data, n, features)
    step = 1 / _widest_curvature(data, n, features, widest, seed)
    seen = nn.descend(_network(width, X, seed), X, y, steps=steps, step=step, exact_norm=True)
    condition = seen.certificate
    return {
        "step": step,
        "loss": seen.loss.tolist(),
        "bound": seen.bound.tolist(),
        "norm": seen.norm.tolist(),
        "smallest": seen.smallest.tolist(),
        "lambda0": condition.lambda0,
        "condition": condition.holds,
        "margins": [line.margin for line in condition.inequalities],
        "max_step": condition.max_step,
        **{f"kept: {name}": kept for name, kept in seen.checks.items()},
    }


def _tensors(data: str, n: int, features: int) -> Any:
    import torch

    return [torch.as_tensor(one, dtype=torch.float32) for one in _samples(data, n, features, 0)]  # the same for all


def _network(width: int, X: Any, seed: int) -> Any:
    from notsodeep import nn

    return nn.ling23_network(width, X.shape[1], RECURRENT, seed=seed, dtype=X.dtype, tol=TOLERANCE)


@lru_cache(maxsize=64)
def _widest_curvature(data: str, n: int, features: int, width: int, seed: int) -> float:
    """Kept for the trials of the other widths, which take the same step."""
    X, _ = _tensors(data, n, features)
    return _curvature(_network(width, X, seed), X)


def _samples(data: str, n: int, features: int, seed: int) -> tuple[Any, Any]:
    """Rows of norm √d, half of each class with labels ±1; or uniform on the sphere with Gaussian labels."""
    rng = np.random.default_rng(seed)
    if data == "sphere":
        X, y = rng.normal(size=(n, features)), rng.normal(size=n)
    else:
        loaded, _ = labelled(data)
        rows = []
        for digit in (0, 1):
            found = np.flatnonzero(np.asarray(loaded.labels) == digit)
            if found.size < n // 2:
                raise InputError(f"n={n} asks for {n // 2} samples of class {digit}, but {data} holds {found.size}")
            rows.append(rng.choice(found, n // 2, replace=False))
        X = np.asarray(loaded.X[np.concatenate(rows)], dtype=np.float64)
        y = np.repeat([-1.0, 1.0], n // 2)
    return X * (math.sqrt(X.shape[1]) / np.linalg.norm(X, axis=1, keepdims=True)), y


def _curvature(net: Any, X: Any) -> float:
    """λ_max of the kernel JJᵀ of the weights W, U, a: descent is stable below 2/λ_max.

    The kernels of the standard weights A, B differ by the factors of W = √(2σ_w²/m) A, U = √(2/d) B, a ← a/√m.
    """
    from notsodeep import nn

    ck, frozen, full = (
        nn.empirical_kernel(net, X, kind).double().detach().numpy() for kind in ("ck", "ntk_frozen_input", "ntk")
    )
    recurrent = (frozen - ck) * net.width / (2 * net.deq.recurrent)
    return spectral_norm(net.width * ck + recurrent + (full - frozen) * net.in_features / 2)


def judge(rows: Sequence[Row]) -> Judgement:
    """The loss falls, faster and further in wider networks on average, and ‖W(τ)‖ stays below 1."""
    checks, words = [], []
    for data in dict.fromkeys(row["data"] for row in rows):
        part = select(rows, data=data)
        networks = len({row["seed"] for row in part})
        why = (
            "the intervals of the narrowest and the widest overlap"
            if networks > 1
            else "one network a width tells little"
        )
        falling = all(b <= a for row in part for a, b in pairwise(row["loss"]))
        relative, final = _means(part, lambda loss: loss[-1] / loss[0]), _means(part, lambda loss: loss[-1])
        for what, paper, symbol, means, agrees in (
            ("the loss falls at every step", "it does", "Φ(T)/Φ(0)", relative, falling),
            ("wider networks are fitted faster", "they are", "Φ(T)/Φ(0)", relative, _fall(relative)),
            ("the final loss is smaller in wider networks", "it is", "Φ(T)", final, _fall(final)),
        ):
            text = f"{symbol}, geometric means of {networks} networks: {_by_width(means)}"
            checks.append(Check(f"{DATA[data]}: {what}", paper, text, agrees, why if agrees is None else ""))
        checks += [_promise(part, promise, DATA[data]) for promise in PROMISES]
        words.append(f"{DATA[data]} {_by_width(final)}")
    certified = sum(row["condition"] for row in rows)
    return Judgement(
        "gradient descent fits wide DEQs at a linear rate, faster and to a smaller loss with the width, while ‖W(τ)‖ "
        "stays below 1",
        f"after {rows[0]['steps']} steps Φ is " + "; ".join(words) + ". Condition 1 itself holds at the start of "
        f"{certified} of {len(rows)} runs: it is sufficient, not necessary",
        checks,
        finding="final loss: " + "; ".join(words),
    )


def _promise(rows: Sequence[Row], promise: str, name: str) -> Check:
    """Whether it was kept in all runs. The paper observes ‖W‖ < 1; the others are promised under Condition 1 only."""
    kept = f"kept: {promise}"
    under = [row for row in rows if promise == PROMISES[0] or row["condition"]]
    agrees = all(row[kept] for row in under) if under else None
    why = "" if under else "Condition 1, which it needs, holds in none of these runs"
    widths = [
        width for width in sorted({row["width"] for row in rows}) if all(row[kept] for row in select(rows, width=width))
    ]
    return Check(f"{name}: {promise}", "at every step", f"in all runs of widths {widths}", agrees, why)


def _means(rows: Sequence[Row], measure: Callable[[Sequence[float]], float]) -> dict[int, Estimate]:
    """Means of the logarithm of a measure of the loss, by width."""
    widths = sorted({row["width"] for row in rows})
    return {width: mean([math.log(measure(row["loss"])) for row in select(rows, width=width)]) for width in widths}


def _by_width(means: dict[int, Estimate]) -> str:
    return ", ".join(f"m = {width}: {math.exp(one.value):.3g}" for width, one in means.items())


def _fall(means: dict[int, Estimate]) -> bool | None:
    """Whether the means fall with the width; None where the intervals of the narrowest and the widest overlap."""
    narrow, *_, wide = means.values()
    if wide.high < narrow.low:
        return all(b.value < a.value for a, b in pairwise(means.values()))
    return False if wide.low > narrow.high else None


def draw(plt: Any, rows: Sequence[Row]) -> Any:
    """Mean losses with their bounds above, the largest ‖W(τ)‖ below; one column a data set."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    size = (max(4.2 * len(names), 8.0), 7.0)
    figure, axes = plt.subplots(2, len(names), figsize=size, layout="constrained", squeeze=False, sharex=True)
    colors = (COLORS["other2"], COLORS["theory"], COLORS["implicit"], COLORS["explicit"], COLORS["other"])
    for above, below, data in zip(*axes, names, strict=True):
        part = select(rows, data=data)
        for color, width in zip(colors, sorted({row["width"] for row in part}), strict=False):
            own = select(part, width=width)
            losses, bounds, norms = (np.array([row[name] for row in own]) for name in ("loss", "bound", "norm"))
            time = np.arange(losses.shape[1])
            above.plot(time, _middle(losses), color=color, label=f"m = {width}")
            above.fill_between(time, losses.min(axis=0), losses.max(axis=0), color=color, alpha=0.15, lw=0)
            above.plot(time, _middle(bounds), color=color, lw=1.2, ls=(0, (4, 2)), label=f"bound, m = {width}")
            below.plot(time, norms.max(axis=0), color=color, label=f"m = {width}")
        below.axhline(1.0, color=COLORS["ink"], lw=1, ls=":", label="promised below 1")
        above.set(yscale="log", title=f"{DATA[data]}\nn = {part[0]['n']}, {len(own)} networks a width")
        below.set(xlabel="step τ")
    axes[0][0].set_ylabel("loss Φ(τ), geometric mean and range")
    axes[1][0].set_ylabel("largest ‖W(τ)‖")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(handles)))
    return figure


def _middle(curves: Any) -> Any:
    return np.exp(np.mean(np.log(curves), axis=0))


ENTRIES = (
    Entry(
        name="ling23-fig1",
        paper="[Ling23] Figure 1",
        title="Gradient descent on wide DEQs converges linearly, and ‖W‖ stays below 1",
        revision=3,  # several networks a width
        plan=plan,
        measure=measure,
        judge=judge,
        draw=draw,
        quick={
            "data": {"sphere": 100, "digits": 100},
            "features": 100,
            "widths": (50, 100, 200, 400),
            "steps": 40,
            "networks": 3,
        },
        full={
            "data": {"sphere": 1000, "mnist": 1000, "cifar10": 1000},
            "features": 1000,
            "widths": (500, 1000, 2000),
            "steps": 100,
            "networks": 5,
        },
        assumptions=(
            "labels ±1 of MNIST and CIFAR-10",
            "step 1/λ_max of the tangent kernel of the widest network, for all widths; the step the theorem admits "
            "(column max_step) is smaller by orders of magnitude",
            "widths, networks a width and steps; where the width is below n, λ0 = 0 and the bound stays flat",
            f"float32, equilibria and adjoints solved to {TOLERANCE:g}",
            "a mean falls with the width if the 95 % intervals of the narrowest and the widest networks are apart; "
            "what the theorem promises under Condition 1 is judged in runs where it holds",
        ),
        differences=("the quick run takes scikit-learn's 8×8 digits in place of MNIST and CIFAR-10",),
    ),
)
