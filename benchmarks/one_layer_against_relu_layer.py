"""A layer with the designed activation against a relu layer and against the DEQ of equal width."""

from __future__ import annotations

from functools import partial
from typing import Any

import common
import torch

import notsodeep as nsd
from notsodeep import nn

AREA = "networks"
COSTS = ("designed / relu",)
GAINS = ("deq / designed",)
FEATURES, ROWS = 784, 512


def _step(net: torch.nn.Module, X: torch.Tensor) -> None:
    net.zero_grad()
    net(X).square().mean().backward()


@torch.no_grad()
def _forward(net: torch.nn.Module, X: torch.Tensor) -> None:
    net(X)


def run(quick: bool = False) -> dict[str, Any]:
    """Forward pass and training step, float32."""
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    design = nsd.match(deq, tau0=1.0, on="sphere")
    X = torch.nn.functional.normalize(torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(0)))
    rows = []
    for width in (256,) if quick else (1024, 4096):
        nets = {
            "relu": nn.ExplicitNet(nsd.Explicit(["relu"]), FEATURES, width, 10),
            "designed": nn.ExplicitNet(nsd.Explicit(design.network.activations), FEATURES, width, 10),
            "deq": nn.DEQNet(deq, FEATURES, width, 10, tol=1e-5),
        }
        for work, call in (("forward", _forward), ("training step", _step)):
            times = common.best_times({name: partial(call, net, X) for name, net in nets.items()}, repeats=5)
            rows.append(
                {
                    "width": width,
                    "work": work,
                    "relu ms": round(1e3 * times["relu"], 2),
                    "designed / relu": round(times["designed"] / times["relu"], 2),
                    "deq / designed": round(times["deq"] / times["designed"], 1),
                }
            )
    met = all(row["designed / relu"] <= 2 for row in rows)
    return {
        "question": "How long does one layer with the designed activation take, relative to a relu layer of the same "
        "width?",
        "target": "≤ 2×",
        "rows": rows,
        "verdict": "met" if met else "missed",
    }


if __name__ == "__main__":
    common.main(__file__, run)
