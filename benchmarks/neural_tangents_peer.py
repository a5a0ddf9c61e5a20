"""Runs inside the environment of neural-tangents: an input-injected network, one request per line.

A request is ``{"prepare": {...}}``, which compiles the kernel of a network and writes its value to a file, or
``{"evaluate": true}``. The environment variable JAX_ENABLE_X64 chooses double precision.
"""

from __future__ import annotations

import json
import math
import sys
import time
import types
import warnings
from typing import Any

# the package imports its TensorFlow experiments, two gigabytes that this benchmark has no use for
sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")
warnings.filterwarnings("ignore", message="`FanIn` layers assume independent inputs")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from neural_tangents import stax  # noqa: E402

# layers are chained by hand: `stax.serial` nested to these depths exceeds the recursion limit
IDENTITY, ADD = stax.Identity()[2], stax.FanInSum()[2]


def dense(recurrent: float, input: float, bias: float, depth: int) -> Any:
    """X ↦ NTK after `depth` layers g ← σ_a W √2·relu(g) + σ_b U x + σ_0 b, from g = Vx [FK20, Thm 1]."""
    first = stax.Dense(1)[2]
    drive = stax.Dense(1, W_std=math.sqrt(input), b_std=math.sqrt(bias))[2]
    layer = stax.serial(stax.Relu(), stax.Dense(1, W_std=math.sqrt(2 * recurrent)))[2]

    def ntk(X: Any) -> Any:
        data = IDENTITY(X * math.sqrt(X.shape[1]), None)  # the package divides x·y by the number of features
        state, injection = first(data), drive(data)
        for _ in range(depth):
            state = ADD((layer(state), injection))
        return state.ntk

    return ntk


def conv(recurrent: float, input: float, filter_size: int, depth: int) -> Any:
    """(X, Y) ↦ Tr(G + Ġ Θ) after `depth` layers g ← σ_a W∗√2·relu(g) + σ_b U∗x, from g = σ_b U∗x.

    Padding is circular, where the package's convolution and the one of [FK20] coincide; the flattened readout lets it
    keep one number per position too.
    """
    size = (filter_size, filter_size)
    drive = stax.Conv(1, size, padding="CIRCULAR", W_std=math.sqrt(input))[2]
    layer = stax.serial(stax.Relu(), stax.Conv(1, size, padding="CIRCULAR", W_std=math.sqrt(2 * recurrent)))[2]
    readout = stax.serial(stax.Relu(), stax.Flatten(), stax.Dense(1, W_std=math.sqrt(2)))[2]

    def ntk(X: Any, Y: Any) -> Any:
        # the package divides x·y by the number of channels, and the readout by that of positions
        scale = math.sqrt(X.shape[3])
        state = injection = drive(IDENTITY(X * scale, Y * scale, diagonal_spatial=True))
        for _ in range(depth):
            state = ADD((layer(state), injection))
        return readout(state).ntk * X.shape[1] * X.shape[2]

    return ntk


def explicit(activation: str, weights: float, bias: float, depth: int, kind: str) -> Any:
    """X ↦ NNGP or NTK of `depth` hidden layers with these variances, and a readout of variance 1 without bias."""
    dense = stax.Dense(1, W_std=math.sqrt(weights), b_std=math.sqrt(bias))[2]
    nonlinear = {"relu": stax.Relu, "erf": stax.Erf}[activation]()[2]
    readout = stax.Dense(1, W_std=1.0)[2]

    def kernel(X: Any) -> Any:
        state = IDENTITY(X * math.sqrt(X.shape[1]), None)
        for _ in range(depth):
            state = nonlinear(dense(state))
        return getattr(readout(state), kind)

    return kernel


NETWORKS = {"dense": dense, "conv": conv, "explicit": explicit}


def main() -> None:
    compiled: Any = None
    arrays: list[Any] = []
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        if "prepare" in request:
            task = request["prepare"]
            arrays = [jnp.asarray(np.load(path)) for path in task["data"]]
            compiled = jax.jit(NETWORKS[task["network"]](**task["model"])).lower(*arrays).compile()
            seconds = time.perf_counter() - began
            np.save(task["result"], np.asarray(compiled(*arrays)))
        else:
            compiled(*arrays).block_until_ready()
            seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds}), flush=True)


main()
