"""A few ratios of times against loose limits, for continuous integration.

The limits are far above what BENCHMARKS.md shows, so a busy machine passes, and a loop that is no longer compiled or
a matrix that is computed twice does not. A ratio beyond its limit is measured again before it counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import common
import numpy as np
import torch

import notsodeep as nsd
from notsodeep import nn
from notsodeep.learn import DEQKernelClassifier

_TRIES = 3


class Ratio(NamedTuple):
    """The time of `call` over that of `reference`, and what it may be at most."""

    name: str
    call: Callable[[], Any]
    reference: Callable[[], Any]
    limit: float

    def measure(self) -> float:
        times = common.best_times({"call": self.call, "reference": self.reference}, repeats=5, budget=10.0)
        return times["call"] / times["reference"]


def guarded() -> Iterator[Ratio]:
    """The ratios, each with a limit of about three times its usual value."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3000, 784))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    unequal = unit * np.exp(0.25 * rng.standard_normal((3000, 1)))

    def gram() -> Any:
        return unit @ unit.T

    deq = nsd.DEQ("normalized_relu", recurrent=0.25, input=0.25, bias=0.5)
    yield Ratio("DEQ-NTK / Gram matrix", lambda: deq.kernel(unit, kind="ntk"), gram, 4.0)
    tanh = nsd.DEQ("tanh", recurrent=0.2, input=0.8)
    yield Ratio("tanh, unequal norms / Gram matrix", lambda: tanh.kernel(unequal), gram, 8.0)

    labels = np.arange(3000) % 10
    machine = DEQKernelClassifier(recurrent=0.25, input=0.25, bias=0.5, kind="ntk_injected", ridge=1e-3)
    yield Ratio("fit / kernel", lambda: machine.fit(unit, labels), lambda: deq.kernel(unit, kind="ntk_injected"), 25.0)

    sizes = {"in_features": 784, "width": 1024, "out_features": 10, "seed": 0}
    model = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    deep = nn.DEQNet(model, **sizes)
    shallow = nn.ExplicitNet(nsd.match(model, tau0=1.0, kind="ck", on="sphere").network, **sizes)
    images = torch.tensor(unit[:256], dtype=torch.float32)
    with torch.no_grad():
        yield Ratio("single layer / DEQ, inference", lambda: shallow(images), lambda: deep(images), 0.5)

    samples = torch.tensor(unit)
    exact = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    yield Ratio("kernel as a tensor / engine", lambda: nn.kernel(exact, samples), lambda: exact.kernel(unit), 4.0)


def main() -> int:
    """Print the ratios; 1 if one of them is beyond its limit."""
    beyond = 0
    for ratio in guarded():
        found, tries = ratio.measure(), 1
        while found > ratio.limit and tries < _TRIES:
            found, tries = min(found, ratio.measure()), tries + 1
        beyond += found > ratio.limit
        verdict = "beyond its limit" if found > ratio.limit else "ok"
        print(f"{ratio.name:40s} {found:8.3g}  at most {ratio.limit:g}  {verdict}")
    return int(beyond > 0)


if __name__ == "__main__":
    sys.exit(main())
