"""Seconds of one forecast, and of a curve, for covariances that are multiples of the identity, diagonal or full."""

from __future__ import annotations

import math
import time
from typing import Any

import common
import numpy as np

import notsodeep as nsd

AREA = "highdim"
CLASSES, FEATURES = 5, (500, 2000)
REPEATS, POINTS = 5, 8
SHAPES = ("multiples of I", "diagonal", "full, common eigenvectors", "full")
LIMIT = 1.0  # seconds of one forecast


def run(quick: bool = False) -> dict[str, Any]:
    features, repeats, points = ((60,), 1, 2) if quick else (FEATURES, REPEATS, POINTS)
    rows = [measure(shape, p, repeats, points) for p in features for shape in SHAPES]
    return {
        "question": f"How long does the forecast of {CLASSES} classes take (relu DEQ, n = 2p, ridge 0.05)? The mixture "
        "is new in every round, so that nothing is left from the last one; checking its covariances is timed apart. "
        f"Curves have {points} ridges and one mixture. CPU seconds add those of all threads.",
        "target": f"a forecast of {max(features)} features in ≤ {LIMIT:.0f} s",
        "rows": rows,
        "verdict": judge(rows),
    }


def judge(rows: list[dict[str, Any]]) -> str:
    slowest = max(rows, key=lambda row: row["forecast, s"])
    seconds, check = (slowest[name] for name in ("forecast, s", "covariances checked, s"))
    return (
        f"{'met' if seconds <= LIMIT else 'missed'}: at most {seconds:.2f} s, and {check:.2f} s for the check of the "
        f"covariances ({slowest['covariances']}, p = {slowest['p']})"
    )


def measure(shape: str, p: int, repeats: int, points: int) -> dict[str, Any]:
    """The best of several rounds; a curve once."""
    model = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    means, spreads, shares = parts(shape, p)
    nsd.forecast(model, nsd.Mixture(np.zeros((CLASSES, 200)), np.ones(CLASSES), shares), n=400, ridge=0.05)  # imports
    best: dict[str, float] = {}
    for _ in range(repeats):
        began = time.perf_counter()
        mixture = nsd.Mixture(means, spreads, shares)
        built, used = time.perf_counter(), time.process_time()
        nsd.forecast(model, mixture, n=2 * p, ridge=0.05)
        used, done = time.process_time() - used, time.perf_counter()
        now = {"covariances checked, s": built - began, "forecast, s": done - built, "forecast, CPU s": used}
        best = {name: min(best.get(name, math.inf), seconds) for name, seconds in now.items()}
    began = time.perf_counter()
    nsd.forecast(model, mixture, n=2 * p, ridge=np.geomspace(1e-3, 1, points))
    best["point of a curve, s"] = (time.perf_counter() - began) / points
    return {"covariances": shape, "p": p, "classes": CLASSES, **best}


def parts(shape: str, p: int) -> tuple[Any, list[Any], Any]:
    """Means, covariances and proportions of a random mixture within the theory."""
    rng = np.random.default_rng(p)
    scales = 1 + np.linspace(-1, 1, CLASSES) / math.sqrt(p)
    if shape == "multiples of I":
        spreads = list(scales)
    elif shape == "diagonal":
        spreads = [scale * np.exp(0.3 * rng.standard_normal(p)) for scale in scales]
    elif shape == "full":
        factors = (rng.standard_normal((p, 2 * p)) / math.sqrt(2 * p) for _ in scales)
        spreads = [
            scale * (0.5 * np.eye(p) + 0.5 * factor @ factor.T) for scale, factor in zip(scales, factors, strict=True)
        ]
    else:
        basis = np.linalg.qr(rng.standard_normal((p, p)))[0]
        spreads = [(basis * (scale * np.exp(0.3 * rng.standard_normal(p)))) @ basis.T for scale in scales]
    return 2 * rng.standard_normal((CLASSES, p)) / math.sqrt(p), spreads, np.full(CLASSES, 1 / CLASSES)


if __name__ == "__main__":
    common.main(__file__, run)
