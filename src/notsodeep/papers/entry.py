"""The parts of a reproduction: settings of trials, numbers, a judgement and a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["OURS", "Check", "Entry", "Judgement", "Row", "Settings", "select"]

OURS = "ours"
"""In the place of a paper, for what no paper shows: the judgement then compares with our own theory."""

Settings: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Mapping[str, Any]
"""Settings and numbers of one trial; a number may also be a list, for curves and histograms."""


@dataclass(frozen=True)
class Check:
    """One claim of the paper with our evidence, or one printed number with ours; see :meth:`number`.

    Attributes
    ----------
    what : str
    paper, measured : str
        Both as text, with units and intervals.
    agrees : bool or None
        Whether the claim holds, or the printed number lies within our interval; None where this run cannot tell.
    why : str
        The reason for a disagreement, if known.
    kind : {"claim", "number", "shown"}
        What is only shown beside ours, and not judged, has `agrees` None.
    """

    what: str
    paper: str
    measured: str
    agrees: bool | None
    why: str = ""
    kind: str = "claim"

    @staticmethod
    def number(
        what: str, printed: float, low: float, high: float, *, digits: int = 2, unit: str = "", why: str = ""
    ) -> Check:
        """A printed number against our interval; rounding of its last digit is allowed for.

        Examples
        --------
        >>> Check.number("accuracy", 59.77, 58.8, 60.7, unit=" %").measured
        '58.80 to 60.70 %'
        >>> off = Check.number("norm", 0.26, 0.35, 0.36)
        >>> off.agrees, off.measured
        (False, '0.35 to 0.36: off by +0.09 (35 %)')
        """
        half = 0.5 * 10.0**-digits
        within = low - half <= printed <= high + half
        text = f"{low:.{digits}f} to {high:.{digits}f}{unit}"
        if not within:
            gap = (low if printed < low else high) - printed
            text += f": off by {gap:+.{digits}f}{unit}" + (f" ({abs(gap / printed):.0%})" if printed else "")
            text = text.replace("%)", " %)")
        return Check(what, f"{printed:.{digits}f}{unit}", text, within, why, "number")


@dataclass(frozen=True)
class Judgement:
    """What the paper says, what we measure, all claims and printed numbers, and the finding in a few words."""

    paper: str
    measured: str
    checks: Sequence[Check]
    finding: str = ""

    @property
    def claim(self) -> str:
        """``holds``, ``holds in part``, ``does not hold`` or ``cannot tell``."""
        known = [check.agrees for check in self._of("claim") if check.agrees is not None]
        if not known:
            return "cannot tell"
        if all(known):
            return "holds"
        return "holds in part" if any(known) else "does not hold"

    @property
    def numbers(self) -> str:
        """How many of the printed numbers lie within our intervals."""
        known = [check.agrees for check in self._of("number") if check.agrees is not None]
        if not known:
            return "none to compare"
        return f"{sum(known)} of {len(known)} within our interval"

    @property
    def verdict(self) -> str:
        """Both, in one line."""
        return f"claim {self.claim}" + (f"; numbers: {self.numbers}" if any(self._of("number")) else "")

    @property
    def because(self) -> str:
        """What disagrees, and why."""
        return "; ".join(
            f"{check.what}: paper {check.paper}, here {check.measured}" + (f" — {check.why}" if check.why else "")
            for check in self.checks
            if not check.agrees and check.kind != "shown"
        )

    def _of(self, kind: str) -> list[Check]:
        return [check for check in self.checks if check.kind == kind]


@dataclass(frozen=True)
class Entry:
    """One figure or table of a paper.

    Attributes
    ----------
    name : str
        ``ling24-fig1``.
    paper : str
        ``[Ling24]`` and the place in it, or :data:`OURS`.
    title : str
    plan : callable
        ``plan(**sizes)`` lists the settings of all trials: JSON values only, the seed among them.
    measure : callable
        ``measure(**settings)`` returns the numbers of one trial: JSON values, or lists of them.
    judge : callable
        From all rows to a :class:`Judgement`.
    draw : callable
        ``draw(plt, rows)`` returns a Matplotlib figure.
    quick, full : mapping
        The two choices of sizes; quick ones take less than a minute on two cores.
    assumptions : sequence of str
        What the paper and its scripts leave open, and what we chose.
    differences : sequence of str
        Where we differ from the paper and its scripts, and why.
    revision : int
        Increase it when `measure` changes its meaning: trials of older revisions are not reused.
    """

    name: str
    paper: str
    title: str
    plan: Callable[..., Iterable[Settings]]
    measure: Callable[..., dict[str, Any]]
    judge: Callable[[Sequence[Row]], Judgement]
    draw: Callable[[Any, Sequence[Row]], Any]
    quick: Settings
    full: Settings
    assumptions: Sequence[str] = field(default=())
    differences: Sequence[str] = field(default=())
    revision: int = 1

    @property
    def claimed_by(self) -> str:
        """The source of the checked statement: a paper, or our own theory."""
        return "theory" if self.paper == OURS else "paper"


def select(rows: Sequence[Row], **settings: Any) -> list[Row]:
    """Rows in which all the given columns have the given values.

    Examples
    --------
    >>> select([{"n": 1, "seed": 0}, {"n": 2, "seed": 0}], n=2)
    [{'n': 2, 'seed': 0}]
    """
    return [row for row in rows if all(row.get(key) == value for key, value in settings.items())]
