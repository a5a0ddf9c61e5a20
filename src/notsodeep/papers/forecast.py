"""Our own: forecast accuracy against exact kernels, finite DEQs and the explicit networks designed for them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from notsodeep.checks import AssumptionWarning
from notsodeep.highdim import Mixture
from notsodeep.highdim import forecast as predict
from notsodeep.matching import match
from notsodeep.models import DEQ, Explicit
from notsodeep.papers.entry import OURS, Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.forecast_figure import draw
from notsodeep.papers.summary import mean

__all__ = ["ENTRIES", "features", "mixture"]

Array: TypeAlias = NDArray[Any]

RECURRENT, INPUT, RIDGE = 0.2, 0.8, 0.02
TESTS = 4000
NETWORKS = {"deq": "relu DEQ", "designed": "explicit, designed for it", "tanh": "tanh DEQ"}
FINITE = ("deq", "designed")


def plan(
    p: int, ratios: Sequence[float], ridges: Sequence[float], recurrences: Sequence[float], width: int, repetitions: int
) -> Iterator[Settings]:
    """Width 0 stands for the exact kernel; a finite network is as wide as `width`, or a multiple of n."""
    points: list[dict[str, Any]] = []
    for ratio in ratios:
        for panel in ("samples", "shapes"):
            points.append({"panel": panel, "n": round(ratio * p)})
    points += [{"panel": "ridge", "n": 2 * p, "ridge": ridge} for ridge in ridges]
    points += [{"panel": "recurrence", "n": 4 * p, "recurrent": rate} for rate in recurrences]
    for point in points:
        full = {"p": p, "ridge": RIDGE, "recurrent": RECURRENT, **point}
        for network in NETWORKS:
            for wide in (0, width):
                if wide and (network not in FINITE or 4 * full["recurrent"] >= 1):
                    continue  # below 1/4 a finite DEQ certainly has an equilibrium
                if network == "tanh" and full["recurrent"] >= 1:
                    continue
                for seed in range(repetitions):
                    yield {**full, "network": network, "width": wide, "seed": seed}
    n = round(1.5 * p)
    for share in (0.25, 0.5, 1.0, 2.0):
        for network in FINITE:
            for seed in range(repetitions):
                yield {
                    **{"p": p, "n": n, "ridge": 1e-3, "recurrent": RECURRENT, "panel": "width"},
                    **{"network": network, "width": round(share * n), "seed": seed},
                }


@lru_cache(maxsize=4)
def mixture(panel: str, p: int) -> Mixture:
    """Two classes: variances 1.6 and 0.4 on swapped halves alone, or means ±1.2 and variances 1.3 and 0.7."""
    alone = panel in ("shapes", "recurrence")
    size = 0.6 if alone else 0.3
    signs = np.where(np.arange(p) < p // 2, 1.0, -1.0)
    means = np.zeros((2, p))
    means[:, 0] = (0.0, 0.0) if alone else (1.2, -1.2)
    return Mixture(means, [1 + size * signs, 1 - size * signs], [0.5, 0.5])


@lru_cache(maxsize=32)
def model(network: str, recurrent: float) -> DEQ | Explicit:
    """One of the networks, for inputs with τ0 = 1, which both mixtures have."""
    deq = DEQ("tanh" if network == "tanh" else "relu", recurrent, INPUT)
    return match(deq, tau0=1.0).network if network == "designed" else deq


def measure(
    panel: str, network: str, width: int, p: int, n: int, ridge: float, recurrent: float, seed: int
) -> dict[str, Any]:
    """Predicted and measured accuracy of one training set, and the mean squared error of its scores ±1."""
    mix, net = mixture(panel, p), model(network, recurrent)
    X, labels = mix.sample(n, seed=seed)
    new, truth = mix.sample(TESTS, seed=10_000 + seed)
    centered = net.centered(1.0)
    if width:
        F, G = features(centered, X, new, width, seed)
        gram, cross = F @ F.T, G @ F.T
    else:
        gram, cross = centered.kernel(X), centered.kernel(new, X)
    gram[np.diag_indices(n)] += ridge
    scores = cross @ cho_solve(cho_factor(gram, overwrite_a=True), 2.0 * labels - 1)
    goal = 2.0 * truth - 1
    return {
        **predicted(panel, network, width, p, n, ridge, recurrent),
        "accuracy": float(np.mean(np.sign(scores) == goal)),
        "error": float(np.mean((scores - goal) ** 2)),
    }


def predicted(panel: str, network: str, width: int, p: int, n: int, ridge: float, recurrent: float) -> dict[str, float]:
    """The forecast for the same settings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        found = predict(
            model(network, recurrent), mixture(panel, p), n=n, ridge=ridge, targets="sign", width=width or None
        )
    return {"predicted": found.accuracy, "predicted error": found.test_error}


def features(net: DEQ | Explicit, X: Array, new: Array, width: int, seed: int) -> tuple[Array, Array]:
    """Hidden states of one random network, of the training and of the test samples."""
    import torch

    from notsodeep import nn

    rows = torch.as_tensor(np.concatenate([X, new]), dtype=torch.float32)
    with torch.no_grad():
        if isinstance(net, DEQ):
            state = nn.DEQNet(net, X.shape[1], width, tol=1e-4, seed=seed).equilibrium(rows)
        else:
            state = nn.ExplicitNet(net, X.shape[1], width, seed=seed).features(rows)
    F = state.double().numpy()
    return F[: len(X)], F[len(X) :]


def judge(rows: Sequence[Row]) -> Judgement:
    """Predicted against measured, and what the theory says about designs, recurrence and width."""
    kernels, finite = [row for row in rows if not row["width"]], [row for row in rows if row["width"]]
    checks = [
        _close("exact kernels", kernels, 0.01),
        _close("finite networks", finite, 0.015),
        _chance(select(kernels, panel="shapes", network="tanh")),
        _design(rows),
        *(_peak(select(rows, panel="width", network=network), NETWORKS[network]) for network in FINITE),
    ]
    return Judgement(
        "accuracy follows from four numbers of the network and from the mixture, before training",
        f"predicted and measured accuracy differ by {checks[0].measured} for exact kernels, and by "
        f"{checks[1].measured} for finite networks",
        checks,
    )


def settings_of(rows: Sequence[Row]) -> list[list[Row]]:
    """Repetitions of the same settings, together."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("panel", "network", "width", "p", "n", "ridge", "recurrent"))
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _close(what: str, rows: Sequence[Row], limit: float) -> Check:
    gaps = [abs(mean([row["accuracy"] for row in group]).value - group[0]["predicted"]) for group in settings_of(rows)]
    found, limit = float(np.mean(gaps)), limit * 400 / rows[0]["p"]
    return Check(
        f"mean difference of predicted and measured accuracy, {what}, {len(gaps)} settings",
        f"none in the limit, at most {100 * limit:.3g} points at p = {rows[0]['p']}",
        f"{100 * found:.2f} points",
        found <= limit,
    )


def _chance(rows: Sequence[Row]) -> Check:
    found = mean([row["accuracy"] for row in rows])
    return Check(
        "tanh DEQ where classes differ in covariance alone",
        "chance: c2 = c3 = 0",
        f"{100 * found.value:.1f} % of {len(rows)} trainings",
        abs(found.value - 0.5) < 0.01,
    )


def _design(rows: Sequence[Row]) -> Check:
    gaps = []
    for group in settings_of([row for row in rows if row["network"] == "designed" and not row["width"]]):
        one = group[0]
        same = {name: one[name] for name in ("panel", "width", "p", "n", "ridge", "recurrent")}
        twin = mean([row["accuracy"] for row in select(rows, network="deq", **same)]).value
        gaps.append(abs(mean([row["accuracy"] for row in group]).value - twin))
    found = float(np.mean(gaps))
    return Check(
        f"mean difference of the designed network's and the DEQ's kernel, {len(gaps)} settings",
        "none in the limit: the four numbers agree",
        f"{100 * found:.2f} points",
        found < 0.01,
    )


def _peak(rows: Sequence[Row], label: str) -> Check:
    errors = {width: mean([row["error"] for row in select(rows, width=width)]).value for width in _widths(rows)}
    worst = max(errors, key=lambda width: errors[width])
    n = rows[0]["n"]
    return Check(f"width of the largest test error, {label}", f"n = {n}", str(worst), worst == n)


def _widths(rows: Sequence[Row]) -> list[int]:
    return sorted({row["width"] for row in rows})


ENTRIES = (
    Entry(
        name="forecast",
        paper=OURS,
        title="Accuracy before training, from four numbers",
        plan=plan,
        measure=measure,
        judge=judge,
        draw=draw,
        quick={
            **{"p": 160, "ratios": (1, 4), "ridges": (1e-3, 1.0), "recurrences": (0.1, 1.0)},
            **{"width": 320, "repetitions": 3},
        },
        full={
            **{"p": 400, "ratios": (0.5, 1, 2, 4), "ridges": (1e-3, 1e-2, 0.1, 1.0, 10.0)},
            **{"recurrences": (0.05, 0.2, 0.5, 1.0, 1.5), "width": 1024, "repetitions": 4},
        },
        assumptions=(
            "kernel ridge classification with targets ±1; the readout alone is trained in finite networks",
            f"σ_b² = {INPUT}, σ_a² = {RECURRENT} and ridge {RIDGE} where they do not vary; ridge 0.001 and n = 1.5 p "
            "where the width does",
            "means ±1.2 and variances 1.3 and 0.7 on swapped halves; where covariances alone differ, 1.6 and 0.4",
        ),
    ),
)
