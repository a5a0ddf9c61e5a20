"""The networks of [Ling24, §5]: a DEQ, the explicit network designed for it, and those that are not."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from notsodeep.activations import activation
from notsodeep.checks import choice
from notsodeep.gaussian import moments
from notsodeep.matching import match
from notsodeep.models import DEQ, Explicit

__all__ = ["LABELS", "TOLERANCE", "build", "describe"]

RECURRENT, INPUT = 0.2, 0.8
TOLERANCE, MOST_STEPS = 1e-2, 25  # of Anderson's method with five states, as in the paper's scripts
LABELS = {
    "deq": "DEQ",
    "matched": "explicit, designed",
    "theirs": "explicit, the paper's competitor",
    "fair": "explicit, centred competitor",
}


@lru_cache(maxsize=16)
def describe(name: str, phi: str, drive: float = INPUT) -> DEQ | Explicit:
    """One of the four for inputs with τ0 = 1; explicit ones are as deep as the one designed for the DEQ.

    The competitors keep the activation of the DEQ. ``theirs`` are those of the paper's scripts: two relu layers that
    subtract their constants inside the relu, relu(√0.8 Wx − √0.2/√2π) and relu(Wy − τ1/√2π), or one layer
    tanh(√drive Wx). ``fair`` has layers of the plain activation, centred.
    """
    choice(name, LABELS, "network")
    deq = DEQ(phi, RECURRENT, INPUT)
    if name == "deq":
        return deq.centered(1.0)
    designed = match(deq, tau0=1.0).network
    if name == "matched":
        return designed
    if name == "fair":
        return Explicit([phi] * designed.depth).centered(1.0)
    if phi != "relu":
        return Explicit([activation(phi).stretched(math.sqrt(drive))])
    first = _late_relu(math.sqrt(INPUT), math.sqrt(RECURRENT / (2 * math.pi)))
    tau = math.sqrt(moments(first, 1.0).power)
    return Explicit([first, _late_relu(1.0, tau / math.sqrt(2 * math.pi))])


def _late_relu(slope: float, threshold: float) -> Any:
    """relu(slope·x − threshold)."""
    return activation("piecewise_linear", kinks=[threshold / slope], slopes=[0.0, slope])


def build(name: str, phi: str, in_features: int, width: int, classes: int, seed: int, drive: float = INPUT) -> Any:
    """The same as a PyTorch network with random weights."""
    from notsodeep import nn

    model = describe(name, phi, drive)
    if isinstance(model, DEQ):
        return nn.DEQNet(
            model, in_features, width, classes,
            solver="anderson", memory=5, tol=TOLERANCE, max_iter=MOST_STEPS, seed=seed,
        )  # fmt: skip
    return nn.ExplicitNet(model, in_features, width, classes, seed=seed)
