"""How far is the kernel of the designed single layer from the model's?

The rows of an activation are a record, ``benchmarks/records/one-layer-<activation>.json``; what is there is not done
again, so that a stopped benchmark resumes. ``--record NAME`` makes one of them.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import common
import numpy as np
from scipy.sparse.linalg import eigsh

import notsodeep as nsd
from notsodeep import data, files

AREA = "matching"
RECORDS = Path(__file__).parent / "records"
ARCTAN = nsd.activation(np.arctan, derivative=lambda x: 1 / (1 + x * x))
ACTIVATIONS = {
    **{name: name for name in ("relu", "leaky_relu", "abs", "tanh", "erf", "swish", "gelu", "hard_tanh")},
    "callable": ARCTAN,
}


EVERY_KIND = ("relu", "hard_tanh", "swish")
OTHER_KINDS = ("nngp", "ntk_frozen_input", "ntk_injected")


def _rows(quick: bool) -> dict[str, np.ndarray]:
    sets = {"digits": data.load("digits").X[: 150 if quick else 300].astype(np.float64)}
    if not quick:
        sets["MNIST"] = data.load("mnist").X[:3000].astype(np.float64)
    for p in (3, 30, 300):
        sets[f"p={p}"] = np.random.default_rng(p).standard_normal((100 if quick else 200, p))
    return {name: X / np.linalg.norm(X, axis=1, keepdims=True) for name, X in sets.items()}


def _models(group: str) -> dict[str, tuple[Any, tuple[str, ...]]]:
    """Models of one activation, or of several layers, and kinds."""
    if group == "several layers":
        layers = [nsd.Layer("relu", 0.5, 0.7), nsd.Layer("tanh", 0.6, 0.4, 0.1), nsd.Layer("swish", 0.3, 0.5)]
        return {
            "five relu layers": (nsd.Explicit(["relu"] * 5), ("ck", "ntk")),
            "cell of two layers": (nsd.DeepDEQ(layers[:2]), ("ck", "ntk")),
            "cell of three layers": (nsd.DeepDEQ(layers), ("ck", "ntk")),
        }
    phi = ACTIVATIONS[group]
    limit = 1 / nsd.DEQ(phi, 1e-9, 1.0).well_posed.infinite_width.value * 1e-9
    found: dict[str, tuple[Any, tuple[str, ...]]] = {}
    for bias in (0.0, 0.5):
        more = OTHER_KINDS if group in EVERY_KIND and bias else ()
        found[f"{group}, bias {bias:g}"] = nsd.DEQ(phi, 0.2, 0.8, bias), ("ck", "ntk", *more)
        found[f"{group}, bias {bias:g}, 0.99 of the limit"] = nsd.DEQ(phi, 0.99 * limit, 0.8, bias), ("ck", "ntk")
    return found


def _measured(group: str, sets: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nsd.ConvergenceWarning)
        for name, (model, kinds) in _models(group).items():
            for kind in kinds:
                rows.append(_row(name, kind, nsd.match(model, tau0=1.0, kind=kind, on="sphere"), sets))
                print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _few_kinks(counts: tuple[int, ...], sets: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    relu, rows = nsd.DEQ("relu", 0.2, 0.8), []
    for kinks in counts:
        for kind in ("ck", "ntk"):
            match = nsd.match(relu, tau0=1.0, kind=kind, on="sphere", kinks=kinks)
            rows.append(_row(f"relu, bias 0, {kinks} kinks", kind, match, sets))
    return rows


def _record(group: str) -> list[dict[str, Any]]:
    """The rows of a group, measured unless they are there."""
    path = RECORDS / f"one-layer-{group.replace(' ', '-')}.json"
    if not path.exists():
        rows = _few_kinks((1, 2, 3, 8), _rows(False)) if group == "kinks" else _measured(group, _rows(False))
        files.write(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n", parents=True)
    return list(json.loads(path.read_text(encoding="utf-8")))


def _row(name: str, kind: str, match: Any, sets: dict[str, np.ndarray]) -> dict[str, Any]:
    wanted = sets if kind in ("ck", "ntk") and "limit" not in name else set(sets) - {"MNIST"}
    return {
        "model": name,
        "kind": kind,
        "sup over t": f"{match.distance:.1e}",
        **{where: f"{_distance(match, X):.1e}" if where in wanted else None for where, X in sets.items()},
        "E[σ⁴]/E[σ²]²": round(match.fourth, 2),
        "sup |σ'|": round(match.lipschitz, 2),
    }


def _distance(match: Any, X: np.ndarray) -> float:
    """As `match.distance_on(X)`; for many rows two digits are enough, because differences may be rounding alone."""
    if len(X) <= 300:
        return match.distance_on(X)
    kinds = (match.kind, "ck" if match.kind in ("ck", "nngp") else "ntk")
    exact, found = (model.kernel(X, kind=kind) for model, kind in zip((match.model, match.network), kinds, strict=True))
    start = np.ones(len(X))
    apart, size = (abs(eigsh(M, k=1, v0=start, tol=1e-2)[0][0]) for M in (found - exact, exact))
    return float(apart / size)


def run(quick: bool = False) -> dict[str, Any]:
    """Distances of the designs, then of those with few kinks."""
    if quick:
        sets = _rows(True)
        rows, few = _measured("tanh", sets)[:2], _few_kinks((1, 3), sets)
    else:
        rows = [row for group in (*ACTIVATIONS, "several layers") for row in _record(group)]
        few = _record("kinks")
    largest = {"ck": 0.0, "ntk": 0.0}
    for row in rows:
        found = max(float(row[where]) for where in ("digits", "MNIST", "p=3", "p=30", "p=300") if row.get(where))
        group = "ck" if row["kind"] in ("ck", "nngp") else "ntk"
        largest[group] = max(largest[group], found)
    met = largest["ck"] <= 1e-9 and largest["ntk"] <= 1e-8
    return {
        "question": "How far is the kernel of one hidden layer from that of the model on rows of equal norm? "
        "Relative spectral distances on unit rows: 300 digits, 3000 of MNIST, 200 random ones; variances 0.2/0.8.",
        "target": "≤ 1e-9 (ck, nngp) and ≤ 1e-8 (tangent kinds) on all rows for the series",
        "rows": rows + few,
        "verdict": f"{'met' if met else 'missed'}: {largest['ck']:.1e} and {largest['ntk']:.1e} at the worst",
    }


if __name__ == "__main__":
    if "--record" in sys.argv:
        _record(sys.argv[sys.argv.index("--record") + 1])
    else:
        common.main(__file__, run)
