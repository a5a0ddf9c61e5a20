"""Our own: where classes differ in covariance alone, the design of a network decides about its accuracy.

Both classes have mean 0 and the same trace. With equal traces c₂ has nothing to act on, and with equal means neither
has c₁; c₃ alone tells the classes apart, and c₁ and d are noise. Odd activations have c₃ = 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from notsodeep.checks import AssumptionWarning
from notsodeep.highdim import coefficients
from notsodeep.highdim import forecast as predict
from notsodeep.matching import match
from notsodeep.models import DEQ, Explicit
from notsodeep.papers.entry import OURS, Check, Entry, Judgement, Row, Settings, select
from notsodeep.papers.forecast import features, mixture
from notsodeep.papers.summary import Estimate, mean
from notsodeep.report.style import COLORS

__all__ = ["ENTRIES", "table"]

Array: TypeAlias = NDArray[Any]

RECURRENT, INPUT, RIDGE = 0.2, 0.8, 0.02
TESTS = 2000
LABELS = {
    "deq": "{} DEQ",
    "two": "two layers, designed",
    "one": "one layer, designed",
    "raw": "one layer, norms left as they are",
    "plain": "two {} layers",
}
NETWORKS = {"relu": tuple(LABELS), "swish": ("deq", "two", "plain"), "tanh": ("deq", "plain")}


def plan(p: int, n: int, width: int, repetitions: int) -> Iterator[Settings]:
    """Width 0 stands for the exact kernel."""
    for phi, networks in NETWORKS.items():
        for network in networks:
            finite = (phi == "relu" and network != "raw") or (phi == "tanh" and network == "plain")
            for wide in (0, width) if finite else (0,):
                for seed in range(repetitions):
                    yield {"phi": phi, "network": network, "width": wide, "p": p, "n": n, "seed": seed}


@lru_cache(maxsize=32)
def model(phi: str, network: str) -> tuple[DEQ | Explicit, DEQ]:
    """A network for rows of mean square norm 1, and the DEQ whose predictions it should have."""
    deq = DEQ(phi, RECURRENT, INPUT)
    if network in ("one", "raw"):
        found = match(deq, tau0=1.0, kind="ck", on="sphere").network
        return (found if network == "one" else Explicit(found.activations)), deq
    centred = deq.centered(1.0)
    if network == "deq":
        return centred, centred
    return match(deq, tau0=1.0).network if network == "two" else Explicit([phi, phi]).centered(1.0), centred


def measure(phi: str, network: str, width: int, p: int, n: int, seed: int) -> dict[str, Any]:
    """Accuracy, its forecast, and the relative distance of the scores to those of the DEQ's exact kernel."""
    mix, (net, deq) = mixture("shapes", p), model(phi, network)
    X, labels = mix.sample(n, seed=seed)
    new, truth = mix.sample(TESTS, seed=10_000 + seed)
    goal = _goal(deq, p, n, seed)
    if width:
        F, G = features(net, X, new, width, seed)
        scores = _scores(F @ F.T, G @ F.T, labels)
    else:
        scores = goal if net == deq else _scores(net.kernel(X), net.kernel(new, X), labels)
    described = net if network != "one" else deq  # its kernel is the DEQ's
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        said = predict(described, mix, n=n, ridge=RIDGE, targets="sign", width=width or None)
    numbers = coefficients(described.centered(1.0), 1.0).weights("ck")
    return {
        "accuracy": float(np.mean((scores > 0) == (truth > 0))),
        "apart": float(np.linalg.norm(scores - goal) / np.linalg.norm(goal)),
        "predicted": float(said.accuracy),
        **{name: float(value) for name, value in numbers._asdict().items()},
    }


@lru_cache(maxsize=32)
def _goal(deq: DEQ, p: int, n: int, seed: int) -> Array:
    """Scores of the DEQ's exact kernel, which all networks of its φ are compared with."""
    mix = mixture("shapes", p)
    X, labels = mix.sample(n, seed=seed)
    new, _ = mix.sample(TESTS, seed=10_000 + seed)
    return _scores(deq.kernel(X), deq.kernel(new, X), labels)


def _scores(gram: Array, cross: Array, labels: Array) -> Array:
    gram = gram.copy()
    gram[np.diag_indices(len(gram))] += RIDGE
    return np.asarray(cross @ cho_solve(cho_factor(gram, overwrite_a=True), 2.0 * labels - 1))


def _average(rows: Sequence[Row], column: str, **settings: Any) -> Estimate:
    return mean([row[column] for row in select(rows, **settings)])


def name_of(phi: str, network: str) -> str:
    return LABELS[network].format(phi)


def cases(rows: Sequence[Row]) -> list[tuple[str, str, int]]:
    """(φ, network, width), in the order of the plan."""
    return list(dict.fromkeys((row["phi"], row["network"], row["width"]) for row in rows))


def table(rows: Sequence[Row]) -> list[str]:
    """The lines of a Markdown table: accuracy measured and predicted, and how far the scores are apart."""
    lines = [
        "| φ | network | c3/d | accuracy, exact kernel | forecast | scores apart | accuracy, finite width |",
        "|:--|:--|--:|--:|--:|--:|--:|",
    ]
    for phi, network, width in cases(rows):
        if width:
            continue
        here = {"phi": phi, "network": network}
        found, finite = (
            _average(rows, "accuracy", width=0, **here),
            [row for row in select(rows, **here) if row["width"]],
        )
        one = select(rows, width=0, **here)[0]
        apart = _average(rows, "apart", width=0, **here).value
        lines.append(
            f"| {phi} | {name_of(phi, network)} | {one['c3'] / one['d']:.3f} | {_percent(found)} | "
            f"{100 * one['predicted']:.1f} % | {'–' if network == 'deq' else f'{apart:.1e}'} | "
            f"{_percent(mean([row['accuracy'] for row in finite])) if finite else '–'} |"
        )
    return lines


def _percent(found: Estimate) -> str:
    return f"{100 * found.value:.1f} ± {100 * found.half:.1f} %" if np.isfinite(found.half) else f"{found.value:.1%}"


def judge(rows: Sequence[Row]) -> Judgement:
    """Designed networks act like the DEQ, others do not, and the four numbers say by how much."""
    exact = select(rows, width=0)
    checks = [_same(rows, "relu", "two", 0.02), _same(rows, "relu", "one", 1e-8), _same(rows, "swish", "two", 0.02)]
    for phi in ("relu", "swish"):
        gap = _average(exact, "apart", phi=phi, network="plain").value
        checks.append(Check(f"scores of two plain {phi} layers", "far from the DEQ's", f"{gap:.2g} apart", gap > 0.05))
    chance = mean([row["accuracy"] for row in select(rows, phi="tanh")])
    checks.append(
        Check("tanh networks", "chance: c2 = c3 = 0", f"{100 * chance.value:.1f} %", abs(chance.value - 0.5) < 0.03)
    )
    for what, part, limit in (
        ("exact kernels", exact, 0.02 * 400 / rows[0]["p"]),
        ("finite networks", [row for row in rows if row["width"]], 0.03 * 400 / rows[0]["p"]),
    ):
        gaps = [
            abs(_average(part, "accuracy", **here).value - select(part, **here)[0]["predicted"])
            for phi, network, _ in cases(part)
            if network != "raw" and (here := {"phi": phi, "network": network})
        ]
        checks.append(
            Check(
                f"forecast and measured accuracy, {what}, largest of {len(gaps)} differences",
                f"at most {100 * limit:.3g} points",
                f"{100 * max(gaps):.1f} points",
                max(gaps) <= limit,
            )
        )
    deq, plain = (_average(exact, "accuracy", phi="relu", network=network) for network in ("deq", "plain"))
    return Judgement(
        "networks with the four numbers of a DEQ classify as it does; with c3 = 0 they stay at chance",
        f"relu DEQ {_percent(deq)}, its designed networks the same to {checks[0].measured} (two layers) and "
        f"{checks[1].measured} (one layer), two plain relu layers {_percent(plain)}, tanh {100 * chance.value:.1f} %",
        checks,
    )


def _same(rows: Sequence[Row], phi: str, network: str, limit: float) -> Check:
    gap = _average(rows, "apart", phi=phi, network=network, width=0).value
    return Check(
        f"scores of the {phi} network with {name_of(phi, network)}",
        f"at most {limit:g} from the DEQ's",
        f"{gap:.1e} apart",
        gap <= limit,
    )


def draw(plt: Any, rows: Sequence[Row]) -> Any:
    """Accuracies with their intervals and forecasts, and how far the scores are from the DEQ's."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 5.6), layout="constrained", sharey=True)
    places = {pair: -k for k, pair in enumerate(dict.fromkeys((phi, network) for phi, network, _ in cases(rows)))}
    colors = {"relu": COLORS["implicit"], "swish": COLORS["explicit"], "tanh": COLORS["theory"]}
    for phi, network, width in cases(rows):
        part = select(rows, phi=phi, network=network, width=width)
        place = places[phi, network] - (0.22 if width else 0)
        found = mean([row["accuracy"] for row in part])
        look = {"color": colors[phi], "marker": "o", "capsize": 3, "ms": 6, "mfc": "white" if width else colors[phi]}
        left.errorbar([100 * found.value], [place], xerr=[np.nan_to_num(100 * found.half)], **look)
        left.plot([100 * part[0]["predicted"]], [place], marker="|", ms=15, color=COLORS["ink"], ls="none", zorder=1)
        if network != "deq" or width:
            apart = max(_average(part, "apart").value, 1e-16)
            right.plot(
                [apart], [place], marker="o", color=colors[phi], mfc="white" if width else colors[phi], ls="none"
            )
    left.set_yticks(list(places.values()), [f"{phi}: {name_of(phi, network)}" for phi, network in places])
    left.axvline(50, color=COLORS["muted"], lw=1, ls=":")
    left.set(xlabel="accuracy of new samples, %", title="filled: exact kernel; hollow: finite width; bar: forecast")
    right.set(xscale="log", xlabel="relative distance of the scores", title="to those of the DEQ's exact kernel")
    return figure


ENTRIES = (
    Entry(
        name="covariances",
        paper=OURS,
        title="Classes that differ in covariance alone: where the design decides",
        plan=plan,
        measure=measure,
        judge=judge,
        draw=draw,
        quick={"p": 120, "n": 480, "width": 1024, "repetitions": 2},
        full={"p": 400, "n": 1600, "width": 3200, "repetitions": 3},
        assumptions=(
            "two classes of mean 0, variances 1.6 and 0.4 on swapped halves of the features; equal traces",
            f"kernel ridge classification with targets ±1, ridge {RIDGE}; finite networks train the readout alone",
            f"σ_a² = {RECURRENT}, σ_b² = {INPUT}; all but the single layers are centred at τ0 = 1",
            "norms of the rows spread by 8 % at p = 400: the single layer for relu normalises its rows and is exact; "
            "with norms left as they are it is exact at norm 1 only",
        ),
    ),
)
