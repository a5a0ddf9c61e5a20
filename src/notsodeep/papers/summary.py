"""Means and slopes with their 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import linregress
from scipy.stats import t as student

from notsodeep.checks import InputError
from notsodeep.papers.entry import Row, select

__all__ = ["Estimate", "curve", "mean", "one_more", "slope"]


class Estimate(NamedTuple):
    """A value with the half-width of its 95 % interval (NaN from a single trial)."""

    value: float
    half: float

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half

    def __str__(self) -> str:
        return f"{self.value:.3g}" if math.isnan(self.half) else f"{self.value:.3g} ± {self.half:.2g}"


def mean(values: Sequence[float]) -> Estimate:
    """Mean over repetitions, with Student's interval.

    Examples
    --------
    >>> str(mean([1.0, 2.0, 3.0]))
    '2 ± 2.5'
    """
    sample = np.asarray(values, dtype=np.float64)
    if not sample.size:
        raise InputError("there are no values to average")
    if sample.size == 1:
        return Estimate(float(sample[0]), math.nan)
    spread = sample.std(ddof=1) / math.sqrt(sample.size)
    return Estimate(float(sample.mean()), float(student.ppf(0.975, sample.size - 1) * spread))


def one_more(values: Sequence[float]) -> Estimate:
    """Where one more repetition lies with 95 % probability: for a number that a paper prints from a single run.

    Examples
    --------
    >>> str(one_more([1.0, 2.0, 3.0]))
    '2 ± 5'
    """
    found = mean(values)
    return Estimate(found.value, found.half * math.sqrt(len(values) + 1))


def slope(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Exponent of y ∝ x^slope, by least squares of log y on log x over all trials.

    Examples
    --------
    >>> estimate = slope([100, 200, 400, 800], [4.0, 2.0, 1.0, 0.5])
    >>> round(estimate.value, 12), estimate.half < 1e-12
    (-1.0, True)
    """
    u, v = np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64))
    if u.size < 3 or np.ptp(u) == 0:
        raise InputError("a slope with an interval needs three trials at two sizes or more")
    line = linregress(u, v)
    error = line.stderr if np.ptp(v) else 0.0  # SciPy's is NaN where nothing varies
    return Estimate(float(line.slope), float(student.ppf(0.975, u.size - 2) * error))


def curve(rows: Sequence[Row], y: str, x: str = "n") -> tuple[list[float], list[Estimate]]:
    """Means of a column at every value of another, in ascending order."""
    places = sorted({row[x] for row in rows})
    return places, [mean([row[y] for row in select(rows, **{x: place})]) for place in places]
