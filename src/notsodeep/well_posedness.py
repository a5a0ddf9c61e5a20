"""Whether a model has one equilibrium: the conditions, their margins and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from notsodeep.activations import Activation
from notsodeep.display import card
from notsodeep.gaussian import slope_power_supremum

__all__ = ["Condition", "Verdict", "largest_recurrent", "verdict_on"]

_MARGIN = 1e-4  # below the limit of well-posedness, near which kernels grow like the inverse of the distance


@dataclass(frozen=True)
class Condition:
    """One inequality ``value < 1`` with its margin ``1 − value``."""

    name: str
    value: float

    @property
    def margin(self) -> float:
        return 1.0 - self.value

    @property
    def holds(self) -> bool:
        return self.value < 1.0

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        relation = "<" if self.holds else "≥"
        return f"{self.name} = {self.value:.6g} {relation} 1 (margin {self.margin:+.6g})"

    def _repr_html_(self) -> str:
        return card("Condition", verdict=(self.holds, str(self)))


@dataclass(frozen=True)
class Verdict:
    """Whether a DEQ has a unique equilibrium, and why.

    Attributes
    ----------
    finite_width : Condition
        4 σ_a² L² < 1: well-posed with high probability at finite width, because
        ‖A‖ ≈ 2√m [Ling24, Asm. 2.4]. The truth value of the verdict.
    infinite_width : Condition
        σ_a² sup_τ E[φ'(τξ)²] < 1: the infinite-width kernels exist [FK20, Thm 2].
    """

    finite_width: Condition
    infinite_width: Condition

    def __bool__(self) -> bool:
        return self.finite_width.holds

    @property
    def reason(self) -> str:
        return f"{self.summary}: {self.finite_width}; {self.infinite_width}"

    @property
    def summary(self) -> str:
        """The answer in a few words."""
        if self.finite_width.holds:
            return "well-posed at finite and infinite width"
        if self.infinite_width.holds:
            return "kernels exist at infinite width, but a finite network may have no unique equilibrium"
        return "not well-posed, not even at infinite width"

    def __str__(self) -> str:
        return self.reason

    def _repr_html_(self) -> str:
        conditions = {"finite width": self.finite_width, "infinite width": self.infinite_width}
        rows = [(where, f"{one.name} = {one.value:.6g}", f"{one.margin:+.6g}") for where, one in conditions.items()]
        return card("Verdict", rows, header=("", "below 1", "margin"), verdict=(bool(self), self.summary))


# covers: [Ling24] Asm. 2.4; slides of [Ling24] Remark on Asm. 1; [FK20] Lemma 1; [Ling23] Lemma 1
def verdict_on(phi: Activation, recurrent: float) -> Verdict:
    """The verdict on a layer with activation φ whose recurrent weights have variance σ_a²."""
    return Verdict(
        Condition("4·recurrent·L²", 4 * recurrent * phi.lipschitz**2),
        Condition("recurrent·sup E[φ'²]", recurrent * slope_power_supremum(phi)),
    )


def largest_recurrent(phi: Activation) -> float:
    """The largest σ_a² to be learned: a little below 1/sup E[φ'²], where kernels cease to exist."""
    return (1 - _MARGIN) / slope_power_supremum(phi)
