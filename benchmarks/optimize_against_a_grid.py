"""Variances by gradient descent on a criterion, against the best of a grid, on subsets of image sets.

The grid is that of `tuned_variances_against_the_paper`, its ridge 1e-3 of the diagonal. Its best is chosen *by the test
accuracy*, which favours it: `optimize` sees training images alone. A grid search costs three folds a setting; they are
timed for a few settings and multiplied, because all of them would only repeat the same work. Seconds are those of the
processor, all threads together, so that a busy machine does not change them; those of `optimize` include its last fit.
Each data set is a record, ``benchmarks/records/optimize-<data>.json``; what is there is not done again.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
from sklearn.model_selection import StratifiedKFold
from tuned_variances_against_the_paper import FOLDS, GRID, SMALL_RIDGE, SUBSET

from notsodeep import data, files
from notsodeep.learn import DEQKernelClassifier

AREA = "learn"
POINTS, SHARE = 0.3, 0.2
TIMED = GRID[::10]  # settings whose folds are timed
OPTIONS = {"kind": "ntk_injected", "normalize": "unit", "dtype": "float32", "progress": False}


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    rows = [measure("mnist", quick)] if quick else [recorded(source) for source in ("mnist", "cifar10")]
    criteria = ("marginal_likelihood", "leave_one_out")
    best = {c: max(row["best of the grid %"] - row[f"{c} %"] for row in rows) for c in criteria}
    shares = {c: max(row[f"{c} CPU s"] / row["grid CPU s"] for row in rows) for c in criteria}
    chosen = min(criteria, key=best.__getitem__)
    met = best[chosen] <= POINTS and shares[chosen] <= SHARE
    return {
        "question": f"Do variances found by optimize= on {SUBSET} images reach the test accuracy of the best of "
        f"{len(GRID)} settings, and in which part of the grid's time? Accuracies are of 10 000 test images",
        "target": f"within {POINTS:g} points, in ≤ 1/{1 / SHARE:.0f} of the time",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}: "
        + "; ".join(
            f"{c} at most {best[c]:.2f} points below, in {100 * shares[c]:.1f} % of the time" for c in criteria
        ),
    }


def recorded(source: str) -> dict[str, Any]:
    path = Path(__file__).parent / "records" / f"optimize-{source}.json"
    if not path.exists():
        files.write(path, json.dumps(measure(source, False), indent=1, ensure_ascii=False) + "\n", parents=True)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def measure(source: str, quick: bool) -> dict[str, Any]:
    loaded = data.load(source)
    rows = np.sort(np.random.default_rng(0).permutation(len(loaded.X))[: 600 if quick else SUBSET])
    X, y = loaded.X[rows], loaded.labels[rows]
    part = slice(0, 1000 if quick else None)
    test, labels = loaded.X_test[part], loaded.labels_test[part]

    def machine(variances: tuple[float, float, float], **more: Any) -> DEQKernelClassifier:
        a, b, c = variances
        ridge = SMALL_RIDGE / (1 - a)  # the diagonal of ntk_injected on unit rows with variances summing to 1
        return DEQKernelClassifier(recurrent=a, input=b, bias=c, ridge=ridge, **OPTIONS, **more)

    accuracies = {v: machine(v).fit(X, y).score(test, labels) for v in (GRID[::8] if quick else GRID)}
    best = max(accuracies, key=accuracies.__getitem__)
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))
    began = time.process_time()
    for variances in TIMED:
        for train, held in folds:
            machine(variances).fit(X[train], y[train]).score(X[held], y[held])
    grid = (time.process_time() - began) / len(TIMED) * len(GRID)
    row: dict[str, Any] = {
        "data": source,
        "grid CPU s": grid,
        "best of the grid %": 100 * accuracies[best],
        "its σ²": "/".join(f"{v:g}" for v in best),
        "median of the grid %": 100 * float(np.median(list(accuracies.values()))),
    }
    for criterion in ("marginal_likelihood", "leave_one_out"):
        began = time.process_time()
        fitted = machine((0.25, 0.25, 0.5), optimize=criterion).fit(X, y)
        seconds = time.process_time() - began
        found = fitted.tuning_
        assert found is not None
        row |= {
            f"{criterion} CPU s": seconds,
            f"{criterion} %": 100 * fitted.score(test, labels),
            f"{criterion} σ²": f"{found.recurrent:.2g}/{found.input:.2g}/{found.bias:.2g}, ridge {found.ridge:.2g}",
        }
    return row


if __name__ == "__main__":
    common.main(__file__, run)
