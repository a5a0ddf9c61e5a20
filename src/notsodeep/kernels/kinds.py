"""The kernels a user may want, from (G, Ġ, Λ): the formulas, once for arrays and once for compiled loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba

from notsodeep.checks import InputError, choice
from notsodeep.models import DEQ, ConvDEQ, Explicit

__all__ = ["combine", "combine_compiled", "kind_codes", "requested_kinds"]


def requested_kinds(model: DEQ | Explicit | ConvDEQ, kind: str | Sequence[str]) -> tuple[str, ...]:
    """Validate `kind` (one name or several) for the model."""
    names = (kind,) if isinstance(kind, str) else tuple(kind)
    if not names:
        raise InputError(f"kind is empty; choose from {', '.join(model.kinds)}")
    for name in names:
        choice(name, model.kinds, "kind")
    if len(set(names)) < len(names):
        raise InputError(f"kind={names!r} names a kernel twice")
    return names


def kind_codes(names: Sequence[str]) -> tuple[int, ...]:
    """Position of each kernel in ``DEQ.kinds``, for the compiled loops."""
    return tuple(DEQ.kinds.index(name) for name in names)


def combine(kind: str, power: Any, slope: Any, covariance: Any, recurrent: float) -> Any:
    """The kernel `kind` of a DEQ from G (`power`), Ġ (`slope`) and Λ (`covariance`).

    ck = G, nngp = Λ, ntk = G + ΛĠ/(1 − σ_a²Ġ), ntk_frozen_input = G/(1 − σ_a²Ġ) [Ling24, Eq. (7)],
    ntk_injected = Λ/(1 − σ_a²Ġ) [FK20, Thm 2].
    """
    if kind == "ck":
        return power
    if kind == "nngp":
        return covariance
    gain = 1 / (1 - recurrent * slope)
    if kind == "ntk":
        return power + covariance * slope * gain
    return (power if kind == "ntk_frozen_input" else covariance) * gain


@numba.njit(inline="always")
def combine_compiled(code: int, power: float, slope: float, covariance: float, recurrent: float, one: float) -> float:
    """`combine` for one entry inside a compiled loop; `code` indexes DEQ.kinds, `one` carries the precision."""
    if code == 0:
        return power
    if code == 1:
        return covariance
    gain = one / (one - recurrent * slope)
    if code == 2:
        return power + covariance * slope * gain
    if code == 3:
        return power * gain
    return covariance * gain
