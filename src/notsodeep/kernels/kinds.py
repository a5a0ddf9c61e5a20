"""The kinds of kernels, from (G, Ġ, Λ): one set of formulas for arrays and one for compiled loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba

from notsodeep.checks import InputError, choice
from notsodeep.kinds import Kind

__all__ = ["CK", "FROZEN", "INJECTED", "NNGP", "NTK", "combine", "combine_compiled", "kind_codes", "requested_kinds"]

CK, NNGP, NTK, FROZEN, INJECTED = (int(kind) for kind in Kind)


def requested_kinds(model: Any, kind: str | Sequence[str]) -> tuple[str, ...]:
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
    """Number of each kernel, for the compiled loops."""
    return tuple(int(Kind.of(name)) for name in names)


def combine(kind: str, power: Any, slope: Any, covariance: Any, recurrent: float) -> Any:
    """The kernel `kind` of a DEQ from G (`power`), Ġ (`slope`) and Λ (`covariance`); formulas in :class:`Kind`."""
    return combine_compiled.py_func(Kind.of(kind), power, slope, covariance, recurrent, 1.0)


@numba.njit(inline="always")
def combine_compiled(code: int, power: float, slope: float, covariance: float, recurrent: float, one: float) -> float:
    """The kernel of a DEQ for one entry inside a compiled loop; `one` carries the precision."""
    if code == CK:
        return power
    if code == NNGP:
        return covariance
    gain = one / (one - recurrent * slope)
    if code == NTK:
        return power + covariance * slope * gain
    if code == FROZEN:
        return power * gain
    return covariance * gain
