"""How far the predicted accuracy and scores are from those of exact kernels, and how that falls with the dimension."""

from __future__ import annotations

import sys
import warnings

import common
import numpy as np
from forecast_reference import random_mixture, train

import notsodeep as nsd

AREA = "highdim"

FAMILIES = 20
DRAWS = {100: 40, 200: 44, 400: 28, 800: 32}  # training sets a mixture
TESTS = 4000
QUICK = (2, {50: 3, 100: 3, 150: 3}, 500)
POINTS, SLOPE, SCORES = 0.7, -0.4, 5.0  # at the largest p: points of accuracy, % of means and deviations; and over p


def run(quick: bool = False) -> dict:
    families, draws, tests = QUICK if quick else (FAMILIES, DRAWS, TESTS)
    rows = []
    for p, repetitions in draws.items():
        found = np.array([compare(seed, p, repetitions, tests) for seed in range(families)])
        gap, noise, means, deviations = found.T
        rows.append(
            {
                "p": p,
                "mixtures": families,
                "training sets each": repetitions,
                "accuracy off by, points": 100 * float(gap.mean()),
                "at most": 100 * float(gap.max()),
                "standard error of the measured one": 100 * float(np.sqrt(np.mean(noise**2))),
                "without it": 100 * float(np.sqrt(max(np.mean(gap**2 - noise**2), 1e-8))),
                "means off by, %": 100 * float(means.mean()),
                "deviations off by, %": 100 * float(deviations.mean()),
                "at most, %": 100 * float(deviations.max()),
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return {
        "question": "How close is the forecast of kernel ridge classification to exact kernels on random mixtures (2 "
        "to 5 classes, n/p from 0.3 to 4, ridge from 1e-4 to 1, relu, tanh, swish and gelu DEQs, CK and NTK, "
        "covariances that are multiples of the identity, diagonal or full)? Differences of accuracy are absolute and "
        "averaged over mixtures. Much of them is the noise of the measured accuracy, so their root mean square "
        "without it is given, too. Means and standard deviations of the scores are compared as tables, relative to "
        "their norm.",
        "target": f"{POINTS} points and {SCORES:.0f} % at p = {max(draws)}, falling like p^{SLOPE} or faster",
        "rows": rows,
        "verdict": judge(rows),
    }


def judge(rows: list[dict]) -> str:
    slope = float(np.polyfit(np.log([row["p"] for row in rows]), np.log([row["without it"] for row in rows]), 1)[0])
    last = rows[-1]
    points, means, spreads = (last[f"{name} off by, {unit}"] for name, unit in _COLUMNS)
    met = points <= POINTS and slope <= SLOPE and max(means, spreads) <= SCORES
    return (
        f"{'met' if met else 'missed'}: {points:.2f} points, means within {means:.1f} % and deviations within "
        f"{spreads:.1f} % at p = {last['p']}; without the noise, accuracy is off like p^{slope:.2f}"
    )


_COLUMNS = (("accuracy", "points"), ("means", "%"), ("deviations", "%"))


def compare(seed: int, p: int, repetitions: int, tests: int) -> tuple[float, float, float, float]:
    """Difference of accuracy, standard error of the measured one, relative differences of means and deviations."""
    mixture, settings = random_mixture(seed, p)
    model = nsd.DEQ(settings["activation"], recurrent=0.2, input=0.8)
    options = {name: settings[name] for name in ("n", "ridge", "kind")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nsd.AssumptionWarning)
        found = nsd.forecast(model, mixture, **options)
    targets = np.eye(mixture.classes)
    draws = [train(model, mixture, **options, targets=targets, seed=s, tests=tests) for s in range(repetitions)]
    accuracies = np.array([draw.accuracy(targets) @ mixture.proportions for draw in draws])
    means = np.mean([draw.means() for draw in draws], axis=0)
    spreads = np.mean([draw.covariances() for draw in draws], axis=0)
    predicted, measured = (np.sqrt(np.diagonal(c, axis1=1, axis2=2)) for c in (found.covariances, spreads))
    return (
        abs(found.accuracy - accuracies.mean()),
        accuracies.std(ddof=1) / np.sqrt(repetitions),
        float(np.linalg.norm(found.means - means) / np.linalg.norm(means)),
        float(np.linalg.norm(predicted - measured) / np.linalg.norm(measured)),
    )


if __name__ == "__main__":
    common.main(__file__, run)
