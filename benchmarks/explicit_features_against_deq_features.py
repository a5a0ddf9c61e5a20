"""Random features of the matched explicit network against those of the DEQ: cost at equal error."""

from __future__ import annotations

import itertools
from functools import partial

import common
import numpy as np
from sklearn.linear_model import Ridge

from notsodeep import data
from notsodeep.learn import DEQFeatures, DEQKernelRegressor

AREA = "learn"
COSTS = ("cost ratio",)

ACTIVATIONS = ("relu", "tanh")
LARGEST = {"center": 1 / 3, "unit": 0.06}  # cost ratios
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
    for normalize, activation in itertools.product(("center", "unit"), ACTIVATIONS):
        layers, curves = measure(activation, normalize, X, y, X_test, widths, seeds)
        for k, width in enumerate(widths):
            error, deq_ms = curves["deq"]["error"][k], curves["deq"]["ms"][k]
            rows.append(
                {
                    "activation": activation,
                    "rows": normalize,
                    "layers": layers,
                    "width": width,
                    "error deq": error,
                    "error explicit": curves["explicit"]["error"][k],
                    "transform deq ms": deq_ms,
                    "transform explicit ms": curves["explicit"]["ms"][k],
                    "explicit ms at the error of the DEQ": at_error(curves["explicit"], error),
                    "cost ratio": at_error(curves["explicit"], error) / deq_ms,
                }
            )
    worst = {case: max(row["cost ratio"] for row in rows if row["rows"] == case) for case in LARGEST}
    met = all(worst[case] <= limit for case, limit in LARGEST.items())
    return {
        "question": "At equal distance to the predictions of the exact kernel machine of the DEQ, what do random "
        f"features of the explicit network cost, relative to those of the DEQ (digits, {TRAIN} + {TEST} samples, "
        f"float32, solver tolerance {TOL})? Centred rows use the matched network, unit rows the exact single layer.",
        "target": "cost ratio ≤ 1/3 (centred rows) and ≤ 0.06 (unit rows) at every width",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}: at most {worst['center']:.2f} (centred rows) and "
        f"{worst['unit']:.3f} (unit rows)",
    }


def measure(activation, normalize, X, y, X_test, widths, seeds) -> tuple[int, dict]:
    """Layers of the network; relative error of predictions (mean over seeds) and milliseconds for each width."""
    start = DEQFeatures(activation, width=2, normalize=normalize).fit(X)
    deq = start.model_
    machine = DEQKernelRegressor(
        deq.activation, deq.recurrent, deq.input, 0.0, kind="ck", ridge=RIDGE, normalize=normalize
    )
    goal = machine.fit(X, y).predict(X_test)
    both = np.concatenate([X, X_test]).astype(np.float32)
    curves = {kind: {"error": [], "ms": []} for kind in ("deq", "explicit")}
    for width in widths:
        transformers = {}
        for kind, curve in curves.items():
            errors = []
            for seed in range(seeds):
                features = DEQFeatures(
                    activation, width=width, features=kind, normalize=normalize, random_state=seed, tol=TOL
                )
                Z = features.fit(both[: len(X)]).transform(both).astype(np.float64)
                ridge = Ridge(alpha=RIDGE, fit_intercept=False).fit(Z[: len(X)], y)
                errors.append(np.linalg.norm(ridge.predict(Z[len(X) :]) - goal) / np.linalg.norm(goal))
            curve["error"].append(float(np.mean(errors)))
            transformers[kind] = features
        times = common.best_times({k: partial(f.transform, both) for k, f in transformers.items()}, repeats=5)
        for kind, curve in curves.items():
            curve["ms"].append(1e3 * times[kind])
    return start.network_.depth, curves


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
