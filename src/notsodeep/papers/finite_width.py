"""Kernels estimated from wide random networks, as the papers' figures do."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.activations import Activation
from notsodeep.checks import choice
from notsodeep.models import DEQ, Explicit

__all__ = ["averaged_kernel"]

Array: TypeAlias = NDArray[Any]

ITERATIONS = 25


def averaged_kernel(
    deq: DEQ, X: Array, kind: str, *, width: int, networks: int, seed: int, explicit: Explicit | None = None
) -> Array:
    """The estimate of [Ling24, App. E]: averages over several networks, each iterated 25 times.

    ``ck`` and ``ntk_frozen_input`` are Ĝ and Ĝ ⊘ (1 − σ_a² Ĝ') with averaged Ĝ and Ĝ'. ``explicit`` is the difference
    Ĝ − Σ̂ of the CKs of the DEQ and of an explicit network whose layers have the weights of the DEQ: B, then A.

    Parameters
    ----------
    deq : DEQ
        Centred.
    X : array (n, p)
    kind : {"ck", "ntk_frozen_input", "explicit"}
    width, networks, seed : int
    explicit : Explicit, optional
        Of at most two layers, without bias.
    """
    choice(kind, ("ck", "ntk_frozen_input", "explicit"), "kind")
    rng = np.random.default_rng(seed)
    rows = np.ascontiguousarray(X, dtype=np.float32)
    total, slopes = np.zeros((len(X), len(X))), np.zeros((len(X), len(X)))
    for _ in range(networks):
        A, B = (rng.standard_normal((width, size), dtype=np.float32) for size in (width, X.shape[1]))
        drive = rows @ B.T
        state = np.zeros_like(drive)
        for _ in range(ITERATIONS):
            point = np.float32(math.sqrt(deq.recurrent)) * (state @ A.T) + np.float32(math.sqrt(deq.input)) * drive
            state = _layer(deq.activation, point)
        total += state @ state.T
        if kind == "ntk_frozen_input":
            slope = np.asarray(deq.activation.derivative(point), dtype=np.float32)
            slopes += slope @ slope.T / np.float32(width)
        elif kind == "explicit":
            assert explicit is not None
            first, *later = explicit.activations
            hidden = _layer(first, drive)
            for phi in later:
                hidden = _layer(phi, hidden @ A.T)
            total -= hidden @ hidden.T
    total /= networks
    return total / (1 - deq.recurrent * slopes / networks) if kind == "ntk_frozen_input" else total


def _layer(phi: Activation, point: Array) -> Array:
    return np.asarray(phi(point), dtype=np.float32) / np.float32(math.sqrt(point.shape[1]))
