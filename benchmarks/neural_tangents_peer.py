"""Runs inside the environment of neural-tangents: a 50-layer input-injected network, one request per line.

A request is ``{"prepare": {...}}``, which compiles the kernel and writes its value to a file, or
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


def injected(recurrent: float, input: float, bias: float, depth: int) -> Any:
    """x ↦ NTK after `depth` layers g ← σ_a W √2·relu(g) + σ_b U x + σ_0 b, from g = Vx [FK20, Thm 1].

    Chained by hand: `stax.serial` nested to this depth exceeds the recursion limit.
    """
    kernel_of = stax.Identity()[2]
    first = stax.Dense(1)[2]
    drive = stax.Dense(1, W_std=math.sqrt(input), b_std=math.sqrt(bias))[2]
    layer = stax.serial(stax.Relu(), stax.Dense(1, W_std=math.sqrt(2 * recurrent)))[2]
    add = stax.FanInSum()[2]

    def ntk(X: Any) -> Any:
        data = kernel_of(X * math.sqrt(X.shape[1]), None)  # the package divides x·y by the number of features
        state, injection = first(data), drive(data)
        for _ in range(depth):
            state = add((layer(state), injection))
        return state.ntk

    return ntk


def main() -> None:
    compiled: Any = None
    X: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        if "prepare" in request:
            task = request["prepare"]
            X = jnp.asarray(np.load(task["data"]))
            compiled = jax.jit(injected(**task["model"])).lower(X).compile()
            seconds = time.perf_counter() - began
            np.save(task["result"], np.asarray(compiled(X)))
        else:
            compiled(X).block_until_ready()
            seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds}), flush=True)


main()
