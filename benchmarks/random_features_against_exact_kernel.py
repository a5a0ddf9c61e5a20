"""From which number of samples on random features are cheaper than the exact kernel machine, and what they lose."""

from __future__ import annotations

import time

import common
import numpy as np

AREA = "scale"

DEQ = {"activation": "relu", "recurrent": 0.2, "input": 0.8}
RIDGE = 1e-2
SIZES, WIDTHS, TESTS = (1000, 2000, 4000, 8000, 16_000), (512, 2048), 5000
QUICK = ((200, 400), (64,), 200)


def run(quick: bool = False) -> dict:
    sizes, widths, tests = QUICK if quick else (SIZES, WIDTHS, TESTS)
    X, y, X_test, y_test = images(max(sizes), tests)
    rows = []
    for n in sizes:
        candidates = {"exact": machine(), **{f"{width} features": features(width) for width in widths}}
        row: dict = {"samples": n}
        for name, model in candidates.items():
            accuracy, seconds = fitted(model, X[:n], y[:n], X_test, y_test)
            row |= {f"{name}, s": seconds, f"{name}, accuracy": accuracy}
        rows.append(row)
    return {
        "question": "From which number of samples on are random features of the matched explicit network with a "
        "linear model cheaper than the exact kernel machine (CK, Cholesky) on MNIST, and how accurate are both? "
        f"Times include the prediction of {tests} images.",
        "target": "the crossover is measured",
        "rows": rows,
        "verdict": judge(rows, widths),
    }


def judge(rows: list[dict], widths: tuple[int, ...]) -> str:
    """Where features are cheaper for the same samples, and for the same accuracy."""
    said = []
    for width in widths:
        n = crossover(rows, f"{width} features, s")
        if n < rows[0]["samples"] + 1:
            text = f"{width} features are cheaper at every number of samples measured"
        else:
            text = f"{width} features are cheaper from {f'about {n:.0f}' if np.isfinite(n) else 'no'} samples on"
        wins = [row for row in rows if row[f"{width} features, s"] < exact_seconds(rows, row, width)]
        best = max((row[f"{width} features, accuracy"] for row in wins), default=None)
        said.append(
            f"{text}, but less accurate; fewer samples of the exact machine, chosen for the same accuracy, "
            + ("always cost less" if best is None else f"cost more up to an accuracy of {best:.3f}")
        )
    return "; ".join(said)


def exact_seconds(rows: list[dict], row: dict, width: int) -> float:
    """Seconds in which the exact machine, with as many samples as it takes, is as accurate as features are here."""
    accuracy, seconds = ([one[f"exact, {key}"] for one in rows] for key in ("accuracy", "s"))
    return float(np.exp(np.interp(row[f"{width} features, accuracy"], accuracy, np.log(seconds))))


def machine():
    from notsodeep.learn import DEQKernelClassifier

    return DEQKernelClassifier(**DEQ, kind="ck", ridge=RIDGE, solver="cholesky")


def features(width: int):
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import make_pipeline

    from notsodeep.learn import CenterAndScale, DEQFeatures

    return make_pipeline(
        CenterAndScale(), DEQFeatures(**DEQ, width=width, random_state=0), RidgeClassifier(alpha=RIDGE)
    )


def fitted(model, X, y, X_test, y_test) -> tuple[float, float]:
    """Accuracy, and the seconds of the better of two fits with their predictions."""
    times, accuracy = [], 0.0
    for _ in range(2):
        began = time.perf_counter()
        accuracy = float(model.fit(X, y).score(X_test, y_test))
        times.append(time.perf_counter() - began)
    return accuracy, min(times)


def crossover(rows: list[dict], name: str) -> float:
    """The size at which the logarithms of both times, interpolated, cross; infinite if they do not."""
    sizes = np.log([row["samples"] for row in rows])
    gap = np.log([row["exact, s"] / row[name] for row in rows])
    if gap[0] > 0:
        return float(np.exp(sizes[0]))
    for k in range(1, len(rows)):
        if gap[k] > 0:
            return float(np.exp(np.interp(0.0, gap[k - 1 : k + 1], sizes[k - 1 : k + 1])))
    return float("inf")


def images(n: int, tests: int):
    from notsodeep import data

    loaded = data.load("mnist")
    return loaded.X[:n], loaded.labels[:n], loaded.X_test[:tests], loaded.labels_test[:tests]


if __name__ == "__main__":
    common.main(__file__, run)
