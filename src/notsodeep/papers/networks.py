"""The networks of [Ling24, §5]: a DEQ, the explicit network designed for it, and those that are not."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from notsodeep.activations import activation
from notsodeep.checks import choice
from notsodeep.matching import match
from notsodeep.models import DEQ, Explicit

__all__ = ["LABELS", "TOLERANCE", "build", "describe"]

RECURRENT, INPUT = 0.2, 0.8
TOLERANCE = 1e-4  # tolerance of the equilibrium, usual in the training of DEQs
LEAK = 0.2  # of the network that is not designed
LABELS = {
    "deq": "DEQ",
    "matched": "explicit, designed",
    "tangent": "explicit, designed for the NTK",
    "unmatched": "explicit, not designed",
    "tanh": "Tanh network",
    "relu": "ReLU network",
}


@lru_cache(maxsize=16)
def describe(name: str, phi: str) -> DEQ | Explicit:
    """One of the six for inputs with τ0 = 1; explicit ones are as deep as the one designed for the DEQ.

    ``matched`` has the CK of the DEQ, which decides if only the readout is trained; ``tangent`` has its NTK, which
    decides if all weights are trained and move little. ``unmatched`` has activations of the designed family with usual
    parameters: max(x, x/5), or clip(x, −1, 1).
    """
    choice(name, LABELS, "network")
    deq = DEQ(phi, RECURRENT, INPUT)
    if name == "deq":
        return deq.centered(1.0)
    designed = match(deq, tau0=1.0)
    if name == "matched":
        return designed.network
    if name == "tangent":
        return match(deq, tau0=1.0, kind="ntk").network
    everyday = activation("leaky_relu", a=1.0, b=LEAK) if designed.family == "leaky_relu" else activation("hard_tanh")
    layer = everyday if name == "unmatched" else activation(name)
    return Explicit([layer] * designed.depth).centered(1.0)


def build(name: str, phi: str, in_features: int, width: int, classes: int, seed: int) -> Any:
    """The same as a PyTorch network with random weights."""
    from notsodeep import nn

    model = describe(name, phi)
    if isinstance(model, DEQ):
        return nn.DEQNet(model, in_features, width, classes, tol=TOLERANCE, seed=seed)
    return nn.ExplicitNet(model, in_features, width, classes, seed=seed)
