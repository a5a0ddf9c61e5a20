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
    """One statement of the paper, and our result.

    Attributes
    ----------
    what : str
    paper, measured : str
        Both as text, with units and intervals.
    agrees : bool
    why : str
        The reason for a disagreement, if known.
    """

    what: str
    paper: str
    measured: str
    agrees: bool
    why: str = ""


@dataclass(frozen=True)
class Judgement:
    """All checks of an entry, with a summary in two sentences."""

    paper: str
    measured: str
    checks: Sequence[Check]

    @property
    def verdict(self) -> str:
        """``agrees``, ``agrees in part`` or ``disagrees``."""
        kept = sum(check.agrees for check in self.checks)
        if kept == len(self.checks):
            return "agrees"
        return "agrees in part" if kept else "disagrees"

    @property
    def because(self) -> str:
        """What disagrees, and why."""
        return "; ".join(
            f"{check.what}: paper {check.paper}, here {check.measured}" + (f" — {check.why}" if check.why else "")
            for check in self.checks
            if not check.agrees
        )


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
        What the paper leaves open and what we chose; where we knowingly differ.
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
