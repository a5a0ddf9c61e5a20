"""The matched explicit network against the DEQ it replaces: inference and one training epoch, at equal width.

The DEQ is batched, starts well, drops converged samples and stops at relative residual 1e-4. [Ling24] reports
explicit inference 2–3 times faster and training 20–300 times faster than its own, unbatched DEQ.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from common import best_times, main

import notsodeep as nsd
from notsodeep import nn

AREA = "nn"
GAINS = ("inference speedup", "epoch speedup")
TOL = 1e-4
BATCH = 128
FEATURES = 784
SAMPLES = 1024


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    widths = (32, 128, 512) if quick else (32, 128, 512, 2048, 4096)
    samples = 256 if quick else SAMPLES
    generator = torch.Generator().manual_seed(0)
    X = torch.nn.functional.normalize(torch.randn(samples, FEATURES, generator=generator))
    y = torch.randint(10, (samples,), generator=generator)
    rows: list[dict[str, Any]] = []
    for name in ("relu", "tanh"):
        deq = nsd.DEQ(name, recurrent=0.2, input=0.8)
        designs = {on: nsd.match(deq, tau0=1.0, on=on).network for on in ("mixture", "sphere")}
        for width in widths:
            nets: dict[str, Any] = {"deq": nn.DEQNet(deq, FEATURES, width, 10, tol=TOL, on_failure="ignore")}
            nets |= {on: nn.ExplicitNet(network, FEATURES, width, 10) for on, network in designs.items()}
            inference = best_times({who: partial(infer, net, X) for who, net in nets.items()}, repeats=3)
            # a small step: the weights, and with them the number of iterations, stay what they are
            epoch = best_times(
                {
                    who: partial(nn.fit, net, X, y, epochs=1, batch_size=BATCH, lr=1e-6, progress=False)
                    for who, net in nets.items()
                },
                repeats=1,
            )
            rows += [
                {
                    "activation": name,
                    "width": width,
                    "design": on,
                    "layers": network.depth,
                    "solver iterations": nets["deq"].last_solve.iterations if nets["deq"].last_solve else 0,
                    "inference deq ms": 1e3 * inference["deq"],
                    "inference explicit ms": 1e3 * inference[on],
                    "inference speedup": inference["deq"] / inference[on],
                    "epoch deq ms": 1e3 * epoch["deq"],
                    "epoch explicit ms": 1e3 * epoch[on],
                    "epoch speedup": epoch["deq"] / epoch[on],
                }
                for on, network in designs.items()
            ]
    forward = [row["inference speedup"] for row in rows]
    training = [row["epoch speedup"] for row in rows]
    widest = next(row for row in rows[::-1] if row["activation"] == "relu" and row["design"] == "sphere")
    met = min(*forward, *training) > 1 and widest["inference speedup"] >= 30 and widest["epoch speedup"] >= 12
    return {
        "question": "How much faster is the explicit network than a batched DEQ of equal width at tolerance 1e-4, rows "
        "of norm 1? Design: mixture matches four numbers, sphere is the exact single layer.",
        "target": "speedup > 1 everywhere, and for the single layer (relu, widest) ≥ 30 in inference and ≥ 12 in an "
        "epoch ([Ling24]: 2–3 inference, 20–300 training, against its own DEQ)",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}: inference {min(forward):.1f}–{max(forward):.1f} times, training "
        f"epoch {min(training):.1f}–{max(training):.1f} times; the single layer (relu, m = {widest['width']}) "
        f"{widest['inference speedup']:.0f} and {widest['epoch speedup']:.0f}",
    }


@torch.no_grad()
def infer(net: torch.nn.Module, X: torch.Tensor) -> None:
    for batch in X.split(BATCH):
        net(batch)


if __name__ == "__main__":
    main(__file__, run)
