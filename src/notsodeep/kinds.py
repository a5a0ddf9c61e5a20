"""The kinds of kernels: names, numbers, formulas and counterparts, in one place."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from notsodeep.errors import InputError, choice

__all__ = ["CK", "FROZEN", "INJECTED", "NNGP", "NTK", "Kind", "combine", "kind_codes", "requested_kinds"]


# covers: [Ling24] Prop. 2.6; slides of [Ling24] Implicit NTK; [FK20] Thm 2
class Kind(IntEnum):
    """A kernel of a network; compiled loops use its number.

    With G = E[φ(u)φ(v)], Ġ = E[φ'(u)φ'(v)] and (u, v) ~ N(0, Λ):

    ================  =================================  =========================
    name              of a DEQ                           trained
    ================  =================================  =========================
    ck                G                                  the readout
    nngp              Λ                                  (prior of the hidden signal)
    ntk               G + ΛĠ/(1 − σ_a²Ġ)                 everything
    ntk_frozen_input  G/(1 − σ_a²Ġ) [Ling24, Eq. (7)]    all but input weights
    ntk_injected      Λ/(1 − σ_a²Ġ) [FK20, Thm 2]        the hidden signal is the output
    ================  =================================  =========================

    Examples
    --------
    >>> Kind.of("nngp").explicit, Kind.of("ntk_injected").explicit
    ('ck', 'ntk')
    >>> Kind.of("ntk").is_process
    False
    """

    CK = 0
    NNGP = 1
    NTK = 2
    NTK_FROZEN_INPUT = 3
    NTK_INJECTED = 4

    @staticmethod
    def of(name: str) -> Kind:
        """The kind with this (valid) name."""
        return Kind[name.upper()]

    @property
    def label(self) -> str:
        """The name a user types."""
        return self.name.lower()

    @property
    def is_process(self) -> bool:
        """Whether the kernel is the prior covariance of a Gaussian process: the network's output or hidden signal."""
        return self in (Kind.CK, Kind.NNGP)

    @property
    def is_tangent(self) -> bool:
        return not self.is_process

    @property
    def explicit(self) -> str:
        """The kernel of an explicit network that stands for this one."""
        return "ck" if self.is_process else "ntk"


CK, NNGP, NTK, FROZEN, INJECTED = (int(kind) for kind in Kind)  # plain numbers, for compiled loops


def combine(kind: int, power: Any, slope: Any, covariance: Any, recurrent: float, one: float = 1.0) -> Any:
    """The kernel of a DEQ from G (`power`), Ġ (`slope`) and Λ (`covariance`); formulas in :class:`Kind`.

    For numbers and arrays, and compiled for single entries, where `one` carries the precision.
    """
    if kind == CK:
        return power
    if kind == NNGP:
        return covariance
    gain = one / (one - recurrent * slope)
    if kind == NTK:
        return power + covariance * slope * gain
    if kind == FROZEN:
        return power * gain
    return covariance * gain


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
