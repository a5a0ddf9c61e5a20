"""Kernels estimated from one wide random DEQ, as the papers' figures do."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import choice
from notsodeep.models import DEQ

__all__ = ["estimated_kernel"]

Array: TypeAlias = NDArray[Any]


def estimated_kernel(deq: DEQ, X: Array, kind: str, width: int, seed: int) -> Array:
    """Ĝ = ZᵀZ for the CK, Ĝ ⊘ (1 − σ_a² Ĝ') for the NTK of [Ling24, Eq. (7)], from one network.

    Z holds the equilibria of a random network of this width, Ĝ' = Σ_k φ'(u_k)φ'(v_k)/m at its pre-activations.

    Parameters
    ----------
    deq : DEQ
        Centred.
    X : array (n, p)
    kind : {"ck", "ntk_frozen_input"}
    width, seed : int
    """
    import torch

    from notsodeep import nn

    choice(kind, ("ck", "ntk_frozen_input"), "kind")
    net = nn.DEQNet(deq, X.shape[1], width, seed=seed, dtype=torch.float32)
    inputs = torch.as_tensor(X, dtype=torch.float32)
    with torch.no_grad():
        state = net.equilibrium(inputs)
        ck = (state @ state.T).double().numpy()
        if kind == "ck":
            return ck
        weights = net.effective_weights()
        point = math.sqrt(width) * state @ weights.W.T + inputs @ weights.U.T
    slopes = np.asarray(deq.activation.derivative(point.numpy()), dtype=np.float32)
    return ck / (1 - deq.recurrent * (slopes @ slopes.T).astype(np.float64) / width)
