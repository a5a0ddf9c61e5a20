"""The matched explicit network against the DEQ it replaces: inference and one training epoch, at equal width.

The DEQ is batched, starts well, drops converged samples and stops at relative residual 1e-4. [Ling24] reports
explicit inference 2–3 times faster and training 20–300 times faster than its own, unbatched DEQ.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from common import best_times, main

import notsodeep as nsd
from notsodeep import nn

AREA = "nn"
TOL = 1e-4
BATCH = 128
FEATURES = 784
SAMPLES = 1024


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    widths = (32, 128, 512) if quick else (32, 128, 512, 2048, 4096)
    samples = 256 if quick else SAMPLES
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(samples, FEATURES, generator=generator) / math.sqrt(FEATURES)
    y = torch.randint(10, (samples,), generator=generator)
    rows: list[dict[str, Any]] = []
    for name in ("relu", "tanh"):
        deq = nsd.DEQ(name, recurrent=0.2, input=0.8)
        explicit = nsd.match(deq, tau0=1.0).network
        for width in widths:
            deep = nn.DEQNet(deq, FEATURES, width, 10, tol=TOL, on_failure="ignore")
            shallow = nn.ExplicitNet(explicit, FEATURES, width, 10)
            repeats = 3
            inference = best_times(
                {"deq": lambda n=deep: infer(n, X), "explicit": lambda n=shallow: infer(n, X)}, repeats=repeats
            )
            # a small step: the weights, and with them the number of iterations, stay what they are
            epoch = best_times(
                {
                    who: lambda n=net: nn.fit(n, X, y, epochs=1, batch_size=BATCH, lr=1e-6, progress=False)
                    for who, net in (("deq", deep), ("explicit", shallow))
                },
                repeats=1,
            )
            rows.append(
                {
                    "activation": name,
                    "width": width,
                    "layers": explicit.depth,
                    "solver iterations": deep.last_solve.iterations if deep.last_solve else 0,
                    "inference deq ms": 1e3 * inference["deq"],
                    "inference explicit ms": 1e3 * inference["explicit"],
                    "inference speedup": inference["deq"] / inference["explicit"],
                    "epoch deq ms": 1e3 * epoch["deq"],
                    "epoch explicit ms": 1e3 * epoch["explicit"],
                    "epoch speedup": epoch["deq"] / epoch["explicit"],
                }
            )
    forward = [row["inference speedup"] for row in rows]
    training = [row["epoch speedup"] for row in rows]
    slower = min(min(forward), min(training)) <= 1
    return {
        "question": "How much faster is the matched explicit network than a batched DEQ of equal width at tolerance "
        "1e-4?",
        "target": "speedup > 1 everywhere ([Ling24]: 2–3 inference, 20–300 training, against its own DEQ)",
        "rows": rows,
        "verdict": f"{'missed' if slower else 'met'}: inference {min(forward):.1f}–{max(forward):.1f} times, "
        f"training epoch {min(training):.1f}–{max(training):.1f} times",
    }


@torch.no_grad()
def infer(net: torch.nn.Module, X: torch.Tensor) -> None:
    for batch in X.split(BATCH):
        net(batch)


if __name__ == "__main__":
    main(__file__, run)
