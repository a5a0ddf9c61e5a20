"""Variances and ridge chosen on training images alone, then one machine on the whole data set.

What is best for few images need not be best for many. So all variances are cross-validated on a small subset, the best
for each σ_a² go into a second round with more images and one part held out, and the winner's ridge is chosen there.
Each record is one process and one file, ``benchmarks/records/<data>-tuned.json``; what is there is not done again.
"""

from __future__ import annotations

import json
import math
import sys
import time

import common
from full_data_sets_on_one_machine import FK20, RECORDS, accuracy_and_cost, images, left_out, measured, percent

AREA = "learn"

# variances tried, (σ_a², σ_b², σ_0²), and ridges in units of the kernel's diagonal
GRID = [
    (a, b, max(0.0, round(1 - a - b, 9)))
    for a in (0.1, 0.25, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
    for b in sorted({0.05, 0.1, 0.25, 0.5, round(1 - a, 9)})
    if a + b < 1 + 1e-9
]
RIDGES = (0.0, 1e-4, 1e-3, 1e-2, 3e-2)
SMALL_RIDGE = 1e-3  # while variances are compared
SUBSET, FOLDS = 6000, 3  # first round
TRAIN, HELD_OUT = 15_000, 5000  # second round
TESTS = 10_000
BEST_PUBLISHED = {"cifar10": 0.5977, "mnist": 0.986}  # [FK20]


def run(quick: bool = False) -> dict:
    chosen = ["mnist"] if quick else BEST_PUBLISHED
    absent = left_out([f"{source}-tuned" for source in chosen])
    rows = [
        measured(__file__, source, f"{source}-tuned", quick) for source in chosen if f"{source}-tuned" not in absent
    ]
    gains = {row["data"]: 100 * (row["test accuracy"] - row["published"]) for row in rows}
    rows += [] if quick else first_attempts()
    for row in rows:
        row["± 95 %"] = f"{100 * interval(row['test accuracy']):.2f}"
        row |= {key: percent(row[key]) for key in ("published", "held-out accuracy", "test accuracy")}
    return {
        "question": "How accurate are machines whose variances and ridge were chosen on training images alone "
        f"({FOLDS}-fold cross-validation of {len(GRID)} settings on {SUBSET} images, then the best for each σ_a² with "
        f"{TRAIN} images and {HELD_OUT} others held out), fitted to whole data sets? ± is the 95 % interval of "
        f"{TESTS} test images",
        "target": "more than the best accuracy of [FK20]",
        "rows": rows,
        "verdict": f"{'met' if gains and min(gains.values()) > 0 else 'missed'}: "
        + ", ".join(f"{data} {gain:+.2f} points" for data, gain in gains.items())
        + "".join(edge(row) for row in rows)
        + (f"; not run yet: {', '.join(absent)}" if absent else ""),
    }


def first_attempts() -> list[dict]:
    """The choice made before there was a second round, kept because it came first."""
    old = json.loads((RECORDS / "cifar10-first-round.json").read_text(encoding="utf-8"))
    old["held-out accuracy"] = old.pop("best validated accuracy")
    return [{**old, "data": "cifar10, first attempt (one round; accuracy of its folds)"}]


def interval(accuracy: float) -> float:
    """Half of the 95 % interval that the number of test images leaves."""
    return 1.96 * math.sqrt(accuracy * (1 - accuracy) / TESTS)


def edge(row: dict) -> str:
    """A choice that a wider grid might improve."""
    if row["σ_a²"] in (GRID[0][0], GRID[-1][0]):
        return f"; for {row['data']} the choice lies on the edge of the grid"
    return ""


def record(source: str, quick: bool) -> dict:
    X, y, _, _ = images(source, quick)
    began = time.perf_counter()
    variances, ridge, validated = tune(X, y, quick)
    tuning = {"held-out accuracy": validated, "tuning seconds": time.perf_counter() - began}
    return {
        "data": source,
        "published": BEST_PUBLISHED[source],
        **tuning,
        **accuracy_and_cost(source, variances, quick, ridge),
    }


def tune(X, y, quick: bool) -> tuple:
    """Variances, ridge, and the accuracy on the images held out in the second round."""
    import numpy as np
    from sklearn.model_selection import StratifiedKFold

    from notsodeep.learn import DEQKernelClassifier

    def accuracy(variances, relative: float, rows, labels, splits) -> float:
        a, b, c = variances
        ridge = relative / (1 - a)  # the diagonal of ntk_injected on unit rows with variances summing to 1
        machine = DEQKernelClassifier(recurrent=a, input=b, bias=c, dtype="float32", **{**FK20, "ridge": ridge})
        return float(np.mean([machine.fit(rows[i], labels[i]).score(rows[j], labels[j]) for i, j in splits]))

    order = np.random.default_rng(0).permutation(len(X))
    first = np.sort(order[: 600 if quick else SUBSET])
    rows, labels = X[first], y[first]
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(rows, labels))
    scores = {v: accuracy(v, SMALL_RIDGE, rows, labels, folds) for v in (GRID[::6] if quick else GRID)}
    finalists = {v[0]: v for v in sorted(scores, key=scores.__getitem__)}.values()  # the best for each σ_a²

    size, held = (900, 300) if quick else (TRAIN, HELD_OUT)
    # images of the first round may train here, but none of them judges
    part = [(np.sort(order[:size]), np.sort(order[size : size + held]))]
    found = {(v, SMALL_RIDGE): accuracy(v, SMALL_RIDGE, X, y, part) for v in finalists}
    winner = max(found, key=found.__getitem__)[0]
    for relative in RIDGES:
        if (winner, relative) not in found:
            found[winner, relative] = accuracy(winner, relative, X, y, part)
    (variances, relative), best = max(found.items(), key=lambda item: item[1])
    return variances, relative / (1 - variances[0]), best


if __name__ == "__main__":
    if "--record" in sys.argv:
        print(json.dumps(record(sys.argv[sys.argv.index("--record") + 1], "--quick" in sys.argv)))
    else:
        common.main(__file__, run)
