"""The kinds of kernels, in one table."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Kind"]


# covers: [Ling24] Prop. 2.6; [FK20] Thm 2
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
