"""NNGP and NTK of explicit networks with biases and weight variances, in both packages at the same finite depth."""

from __future__ import annotations

import subprocess
from itertools import product
from typing import Any

import common
import mpmath
import numpy as np
from deq_ntk_against_neural_tangents import Peer, environment
from kernel_reference import samples

import notsodeep as nsd

AREA = "kernels"
TARGET = 1e-11
NETWORKS = (("relu", 2.0, 0.01, 3), ("relu", 0.5, 0.5, 20), ("erf", 1.5, 0.1, 4), ("erf", 3.0, 0.0, 2))


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    head = {
        "question": "Do both packages give the same NNGP kernel and NTK of explicit networks with biases and weight "
        "variances (float64, largest difference off the diagonal, relative to the largest entry)?",
        "target": f"within {TARGET:g}",
    }
    try:
        python = environment()
    except (OSError, subprocess.CalledProcessError) as reason:
        return {**head, "rows": [], "verdict": f"not measured: no environment for neural-tangents ({reason})"}
    rows = [measure(python, *network, kind) for network, kind in product(NETWORKS, ("nngp", "ntk"))]
    worst = max(rows, key=lambda row: row["difference"])
    apart, ours, theirs = (worst[name] for name in ("difference", "ours off by", "theirs off by"))
    verdict = f"{'met' if apart <= TARGET else 'missed'}: {apart:.1e} at most"
    return {**head, "rows": rows, "verdict": f"{verdict}, where ours is off by {ours:.1e}, theirs by {theirs:.1e}"}


def measure(python: Any, activation: str, weights: float, bias: float, depth: int, kind: str) -> dict[str, Any]:
    """One kernel in both packages."""
    X = samples(60, 40, "arbitrary")[4:-4]  # without pairs that nearly coincide, where arccos loses half of the digits
    model = {"activation": activation, "weights": weights, "bias": bias, "depth": depth, "kind": kind}
    with Peer(python, "float64") as peer:
        theirs, _ = peer.prepare("explicit", model, X)
    net = nsd.Explicit([activation] * depth, bias=bias, weights=weights)
    ours = net.kernel(X, kind="ck" if kind == "nngp" else "ntk")
    apart = np.abs(ours - theirs)
    np.fill_diagonal(apart, 0.0)
    place = np.unravel_index(int(apart.argmax()), apart.shape)
    exact = float(reference(*X[list(place)], activation, weights, bias, depth, kind))
    found = {"ours": ours, "theirs": theirs}
    return {
        "activation": activation,
        "weights": weights,
        "bias": bias,
        "depth": depth,
        "kernel": kind,
        "difference": float(apart.max() / np.abs(ours).max()),
        **{f"{who} off by": float(abs(K[place] - exact) / np.abs(ours).max()) for who, K in found.items()},
    }


def reference(x: Any, y: Any, activation: str, weights: float, bias: float, depth: int, kind: str) -> Any:
    """One entry in forty digits, by the closed forms of relu and erf."""
    with mpmath.workdps(40):
        rows = [[mpmath.mpf(float(value)) for value in row] for row in (x, y)]
        state = {(a, b): mpmath.fdot(rows[a], rows[b]) for a, b in ((0, 0), (1, 1), (0, 1))}
        tangent = mpmath.mpf(0)
        for _ in range(depth):
            inner = {pair: mpmath.mpf(weights) * value + mpmath.mpf(bias) for pair, value in state.items()}
            state = {pair: DUALS[activation](inner, *pair)[0] for pair in inner}
            slope = DUALS[activation](inner, 0, 1)[1]
            tangent = slope * (inner[0, 1] + mpmath.mpf(weights) * tangent)
        return state[0, 1] + (tangent if kind == "ntk" else 0)


def _relu(inner: Any, a: int, b: int) -> tuple[Any, Any]:
    """E[φ(u)φ(v)] and E[φ'(u)φ'(v)]."""
    scale = mpmath.sqrt(inner[a, a] * inner[b, b])
    angle = mpmath.acos(min(inner[a, b] / scale, mpmath.mpf(1)))
    rest = mpmath.pi - angle
    return scale * (mpmath.sin(angle) + rest * mpmath.cos(angle)) / (2 * mpmath.pi), rest / (2 * mpmath.pi)


def _erf(inner: Any, a: int, b: int) -> tuple[Any, Any]:
    product = (1 + 2 * inner[a, a]) * (1 + 2 * inner[b, b])
    value = 2 / mpmath.pi * mpmath.asin(2 * inner[a, b] / mpmath.sqrt(product))
    return value, 4 / mpmath.pi / mpmath.sqrt(product - 4 * inner[a, b] ** 2)


DUALS = {"relu": _relu, "erf": _erf}


if __name__ == "__main__":
    common.main(__file__, run)
