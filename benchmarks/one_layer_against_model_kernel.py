"""How far is the kernel of the designed single layer from the model's?"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import common
import numpy as np

import notsodeep as nsd
from notsodeep import data

AREA = "matching"
ARCTAN = nsd.activation(np.arctan, derivative=lambda x: 1 / (1 + x * x))
ACTIVATIONS = {
    **{name: name for name in ("relu", "leaky_relu", "abs", "tanh", "erf", "swish", "gelu", "hard_tanh")},
    "callable": ARCTAN,
}


def _rows(quick: bool) -> dict[str, np.ndarray]:
    sets = {"digits": data.load("digits").X[: 150 if quick else 300].astype(np.float64)}
    for p in (3, 30, 300):
        sets[f"p={p}"] = np.random.default_rng(p).standard_normal((100 if quick else 200, p))
    return {name: X / np.linalg.norm(X, axis=1, keepdims=True) for name, X in sets.items()}


def _models(quick: bool) -> dict[str, tuple[Any, tuple[str, ...]]]:
    found: dict[str, tuple[Any, tuple[str, ...]]] = {}
    for name, phi in ACTIVATIONS.items():
        limit = 1 / nsd.DEQ(phi, 1e-9, 1.0).well_posed.infinite_width.value * 1e-9
        for bias in (0.0, 0.5):
            found[f"{name}, bias {bias:g}"] = nsd.DEQ(phi, 0.2, 0.8, bias), ("ck", "ntk")
        found[f"{name}, 0.99 of the limit"] = nsd.DEQ(phi, 0.99 * limit, 0.8, 0.5), ("ck", "ntk")
    found["swish, every kind"] = nsd.DEQ("swish", 0.2, 0.8, 0.5), ("nngp", "ntk_frozen_input", "ntk_injected")
    found["relu, every kind"] = nsd.DEQ("relu", 0.2, 0.8, 0.5), ("nngp", "ntk_frozen_input", "ntk_injected")
    found["five relu layers"] = nsd.Explicit(["relu"] * 5), ("ck", "ntk")
    layers = [nsd.Layer("relu", 0.5, 0.7), nsd.Layer("tanh", 0.6, 0.4, 0.1), nsd.Layer("swish", 0.3, 0.5)]
    found["cell of two layers"] = nsd.DeepDEQ(layers[:2]), ("ck", "ntk")
    found["cell of three layers"] = nsd.DeepDEQ(layers), ("ck", "ntk")
    return {name: found[name] for name in ("relu, bias 0", "tanh, bias 0.5")} if quick else found


def _row(name: str, kind: str, match: Any, sets: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        "model": name,
        "kind": kind,
        "sup over t": f"{match.distance:.1e}",
        **{where: f"{match.distance_on(X):.1e}" for where, X in sets.items()},
        "E[σ⁴]/E[σ²]²": round(match.fourth, 2),
        "sup |σ'|": round(match.lipschitz, 2),
    }


def run(quick: bool = False) -> dict[str, Any]:
    """Distances of the designs, then of those with few kinks."""
    sets = _rows(quick)
    rows, largest = [], {"ck": 0.0, "ntk": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nsd.ConvergenceWarning)
        for name, (model, kinds) in _models(quick).items():
            for kind in kinds:
                rows.append(_row(name, kind, nsd.match(model, tau0=1.0, kind=kind, on="sphere"), sets))
                group = "ck" if kind in ("ck", "nngp") else "ntk"
                largest[group] = max(largest[group], *(float(rows[-1][where]) for where in sets))
                print(rows[-1], file=sys.stderr, flush=True)
        relu = nsd.DEQ("relu", 0.2, 0.8)
        for kinks in (1, 3) if quick else (1, 2, 3, 8):
            for kind in ("ck", "ntk"):
                match = nsd.match(relu, tau0=1.0, kind=kind, on="sphere", kinks=kinks)
                rows.append(_row(f"relu, bias 0, {kinks} kinks", kind, match, sets))
    met = largest["ck"] <= 1e-9 and largest["ntk"] <= 1e-8
    return {
        "question": "How far is the kernel of one hidden layer from that of the model on rows of equal norm? "
        "Relative spectral distances; 0.2/0.8 where no variances are given, bias 0.5 near the limit.",
        "target": "≤ 1e-9 (ck, nngp) and ≤ 1e-8 (tangent kinds) on all rows for the series",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}: {largest['ck']:.1e} and {largest['ntk']:.1e} at the worst",
    }


if __name__ == "__main__":
    common.main(__file__, run)
