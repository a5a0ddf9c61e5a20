"""Random features of the matched explicit network against those of the DEQ: cost at equal error."""

from __future__ import annotations

import common
import numpy as np
from sklearn.linear_model import Ridge

from notsodeep import data
from notsodeep.learn import DEQFeatures, DEQKernelRegressor

AREA = "learn"

MODELS = {"relu": (0.2, 0.8), "tanh": (0.2, 0.8)}
TRAIN, TEST, RIDGE = 1000, 797, 1.0
TOL = 1e-3  # of an equilibrium: far below the noise of the features, so that the DEQ does no needless work


def run(quick: bool = False) -> dict:
    widths = [128, 256, 512] if quick else [256, 512, 1024, 2048, 4096]
    seeds = 2 if quick else 5
    digits = data.load("digits")
    order = np.random.default_rng(0).permutation(len(digits.X))
    X, X_test = digits.X[order[:TRAIN]], digits.X[order[TRAIN : TRAIN + TEST]]
    y = np.where(digits.labels[order[:TRAIN]][:, None] == np.arange(10), 0.9, -0.1)
    rows = []
    for activation, (recurrent, input) in MODELS.items():
        curves = measure(activation, recurrent, input, X, y, X_test, widths, seeds)
        for k, width in enumerate(widths):
            error, deq_ms = curves["deq"]["error"][k], curves["deq"]["ms"][k]
            rows.append(
                {
                    "activation": activation,
                    "width": width,
                    "error deq": error,
                    "error explicit": curves["explicit"]["error"][k],
                    "transform deq ms": deq_ms,
                    "transform explicit ms": curves["explicit"]["ms"][k],
                    "explicit ms at the error of the DEQ": at_error(curves["explicit"], error),
                    "cost ratio": at_error(curves["explicit"], error) / deq_ms,
                }
            )
    worst = max(row["cost ratio"] for row in rows)
    return {
        "question": "At equal distance to the predictions of the exact kernel machine of the DEQ, what do random "
        f"features of the matched explicit network cost, relative to those of the DEQ (digits, {TRAIN} + {TEST} "
        f"samples, solver tolerance {TOL})?",
        "target": "cost ratio ≤ 1/3 at every width",
        "rows": rows,
        "verdict": f"{'met' if worst <= 1 / 3 else 'missed'}: at most {worst:.2f}",
    }


def measure(activation, recurrent, input, X, y, X_test, widths, seeds) -> dict:
    """Relative error of predictions (mean over seeds) and milliseconds to transform all samples, for each width."""
    deq = DEQFeatures(activation, recurrent, input, width=2).fit(X).model_
    machine = DEQKernelRegressor(deq.activation, deq.recurrent, deq.input, 0.0, kind="ck", ridge=RIDGE)
    goal = machine.fit(X, y).predict(X_test)
    both = np.concatenate([X, X_test])
    curves = {kind: {"error": [], "ms": []} for kind in ("deq", "explicit")}
    for width in widths:
        transformers = {}
        for kind, curve in curves.items():
            errors = []
            for seed in range(seeds):
                features = DEQFeatures(
                    activation, recurrent, input, width=width, features=kind, random_state=seed, tol=TOL
                )
                Z = features.fit(X).transform(both)
                ridge = Ridge(alpha=RIDGE, fit_intercept=False).fit(Z[: len(X)], y)
                errors.append(np.linalg.norm(ridge.predict(Z[len(X) :]) - goal) / np.linalg.norm(goal))
            curve["error"].append(float(np.mean(errors)))
            transformers[kind] = features
        times = common.best_times({k: lambda f=f: f.transform(both) for k, f in transformers.items()}, repeats=3)
        for kind, curve in curves.items():
            curve["ms"].append(1e3 * times[kind])
    return curves


def at_error(curve: dict, error: float) -> float:
    """Milliseconds at which the curve reaches `error`: a line in the doubly logarithmic plot, by least squares."""
    slope, _ = np.polyfit(np.log(curve["error"]), np.log(curve["ms"]), 1)
    order = np.argsort(curve["error"])
    errors, times = np.array(curve["error"])[order], np.array(curve["ms"])[order]
    if errors[0] <= error <= errors[-1]:
        return float(np.exp(np.interp(np.log(error), np.log(errors), np.log(times))))
    end = 0 if error < errors[0] else -1  # beyond the last point, along the fitted slope from there
    return float(times[end] * (error / errors[end]) ** slope)


if __name__ == "__main__":
    common.main(__file__, run)
