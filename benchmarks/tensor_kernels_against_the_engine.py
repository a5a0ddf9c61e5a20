"""Kernels as tensors against the compiled engine, GPyTorch's RBF kernel and neural-tangents, in one run.

The kernel is the NTK of a relu DEQ, the rows are Gaussian. "forward + backward" is the kernel and the gradient of a
weighted sum of its entries in all samples, or in both variances. neural-tangents computes an injected network of 50
layers, at a smaller n, and has no gradient here.
"""

from __future__ import annotations

import subprocess
from typing import Any

import common
import gpytorch
import numpy as np
import torch
from deq_ntk_against_neural_tangents import Peer, environment

import notsodeep as nsd
from notsodeep import nn

AREA = "nn"
COSTS = ("forward", "+ backward, X", "+ backward, variances")
FORWARD, BACKWARD = 1.5, 4.0
SAMPLES, FEATURES, PEER_SAMPLES, DEPTH = 5000, 784, 1500, 50
RECURRENT, INPUT = 0.3, 0.4  # of √2·relu


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    n = 800 if quick else SAMPLES
    rows = [measure(n, dtype, quick) for dtype in ("float64", "float32")]
    rows.append(against_neural_tangents(300 if quick else PEER_SAMPLES))
    ours = [row for row in rows if row["n"] == n]
    forward = max(row["forward"] for row in ours)
    backward = max(max(row["+ backward, X"], row["+ backward, variances"]) for row in ours)
    met = forward <= FORWARD and backward <= BACKWARD
    return {
        "question": f"What do nn.kernel and its gradients cost (p={FEATURES}, relu DEQ, NTK)? forward: nn.kernel over "
        "model.kernel. + backward: forward and backward over forward. RBF: the same two of GPyTorch's kernel over "
        f"ours. neural-tangents: a network of {DEPTH} layers over nn.kernel",
        "target": f"forward ≤ {FORWARD:g}×, forward + backward ≤ {BACKWARD:g}× forward",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}: forward {forward:.2f}×, forward + backward {backward:.2f}×",
    }


def measure(n: int, dtype: str, quick: bool) -> dict[str, Any]:
    deq = nsd.DEQ("normalized_relu", RECURRENT, INPUT)
    precision = getattr(torch, dtype)
    torch.manual_seed(0)
    X = torch.randn(n, FEATURES, dtype=precision) / FEATURES**0.5
    weight = torch.randn(n, n, dtype=precision)
    free = X.clone().requires_grad_()
    numbers = {
        name: torch.tensor(value, dtype=precision, requires_grad=True)
        for name, value in (("recurrent", RECURRENT), ("input", INPUT))
    }
    rbf = gpytorch.kernels.RBFKernel().to(precision)
    candidates = {
        "engine": lambda: deq.kernel(X.numpy(), kind="ntk", progress=False),
        "forward": lambda: nn.kernel(deq, X, kind="ntk"),
        "backward, X": lambda: torch.autograd.grad(nn.kernel(deq, free, kind="ntk"), free, weight),
        "backward, variances": lambda: torch.autograd.grad(
            nn.kernel(deq, X, kind="ntk", variances=numbers), list(numbers.values()), weight
        ),
        "RBF": lambda: rbf(X).to_dense().detach(),
        "RBF backward, X": lambda: torch.autograd.grad(rbf(free).to_dense(), free, weight),
    }
    times = common.best_times(candidates, repeats=2 if quick else 4)
    return {
        "n": n,
        "dtype": dtype,
        "model.kernel s": times["engine"],
        "forward": times["forward"] / times["engine"],
        "+ backward, X": times["backward, X"] / times["forward"],
        "+ backward, variances": times["backward, variances"] / times["forward"],
        "RBF": times["RBF"] / times["forward"],
        "RBF + backward, X": times["RBF backward, X"] / times["backward, X"],
        "neural-tangents": None,
    }


def against_neural_tangents(n: int) -> dict[str, Any]:
    row: dict[str, Any] = {"n": n, "dtype": "float32", "neural-tangents": None}
    deq = nsd.DEQ("normalized_relu", RECURRENT, INPUT)
    X = np.random.default_rng(0).standard_normal((n, FEATURES)).astype(np.float32) / np.float32(FEATURES**0.5)
    tensor = torch.from_numpy(X)
    try:
        with Peer(environment(), "float32") as peer:
            model = {"recurrent": RECURRENT, "input": INPUT, "bias": 0.0, "depth": DEPTH}
            peer.prepare("dense", model, X)
            times = common.best_times(
                {
                    "engine": lambda: deq.kernel(X, kind="ntk_injected", progress=False),
                    "ours": lambda: nn.kernel(deq, tensor, kind="ntk_injected"),
                    "theirs": lambda: peer.ask(evaluate=True),
                },
                repeats=2,
            )
    except (OSError, RuntimeError, subprocess.CalledProcessError):
        return row  # there is no such environment
    return {
        **row,
        "model.kernel s": times["engine"],
        "forward": times["ours"] / times["engine"],
        "neural-tangents": times["theirs"] / times["ours"],
    }


if __name__ == "__main__":
    common.main(__file__, run)
