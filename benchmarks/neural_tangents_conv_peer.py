"""Runs inside the environment of neural-tangents: an input-injected convolutional network, one request per line.

The same protocol as in ``neural_tangents_peer.py``. Padding is circular, where the package's convolution and the one
of [FK20] coincide; the flattened readout lets it keep one number per position too.
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


def injected(recurrent: float, input: float, filter_size: int, depth: int) -> Any:
    """(X, Y) ↦ Tr(G + Ġ Θ) after `depth` layers g ← σ_a W∗√2·relu(g) + σ_b U∗x, from g = σ_b U∗x."""
    size = (filter_size, filter_size)
    start = stax.Identity()[2]
    drive = stax.Conv(1, size, padding="CIRCULAR", W_std=math.sqrt(input))[2]
    layer = stax.serial(stax.Relu(), stax.Conv(1, size, padding="CIRCULAR", W_std=math.sqrt(2 * recurrent)))[2]
    add = stax.FanInSum()[2]
    readout = stax.serial(stax.Relu(), stax.Flatten(), stax.Dense(1, W_std=math.sqrt(2)))[2]

    def ntk(X: Any, Y: Any) -> Any:
        # the package divides x·y by the number of channels, and the readout by that of positions
        scale = math.sqrt(X.shape[3])
        data = start(X * scale, Y * scale, diagonal_spatial=True)
        state = injection = drive(data)
        for _ in range(depth):
            state = add((layer(state), injection))
        return readout(state).ntk * X.shape[1] * X.shape[2]

    return ntk


def main() -> None:
    compiled: Any = None
    arrays: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        if "prepare" in request:
            task = request["prepare"]
            arrays = [jnp.asarray(np.load(path)) for path in task["data"]]
            compiled = jax.jit(injected(**task["model"])).lower(*arrays).compile()
            seconds = time.perf_counter() - began
            np.save(task["result"], np.asarray(compiled(*arrays)))
        else:
            compiled(*arrays).block_until_ready()
            seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds}), flush=True)


main()
