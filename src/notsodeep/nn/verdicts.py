"""What is said about a replacement, in sentences: how close and fast it is, its limits, and whether the design pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notsodeep.nn.candidates import Candidate
from notsodeep.nn.measurement import Agreement

__all__ = ["design_against_plain", "limits_text", "summary"]

_NOISE = 2.0  # standard errors


def summary(row: Mapping[str, Any], module: Mapping[str, Any], tested: int, classes: bool) -> str:
    """How close and how fast the chosen network is."""
    one, many = (module[key] / row[key] for key in ("ms, batch 1", "ms, large batch"))
    what = (
        f"agrees with the module on {100 * row['agreement']:.2f} % of {tested} held-out rows"
        if classes
        else f"explains {100 * row['agreement']:.2f} % of the variance of the outputs on {tested} held-out rows"
    )
    text = f"“{row['network']}” {what}, {one:.1f}× faster on one row and {many:.1f}× on {row['large batch']}"
    if row["accuracy"] is not None and classes:
        text += f"; accuracy {100 * row['accuracy']:.2f} % (the module: {100 * module['accuracy']:.2f} %)"
    return text + "."


def limits_text(row: Mapping[str, Any], fast: bool, limits: Mapping[str, float]) -> str:
    """Whether the limits on time and agreement are met."""
    time = f"time ratio ≤ {limits['max_time_ratio']:g}"
    agreement = f"agreement ≥ {100 * limits['min_agreement']:g} %"
    if not fast:
        return f"No candidate has a {time}: this is the fastest of them."
    if row["agreement"] < limits["min_agreement"]:
        return f"Not reached: {agreement}. With a {time} the best is {100 * row['agreement']:.2f} %."
    return f"Both limits are met: {time}, {agreement}."


def design_against_plain(
    found: Sequence[Candidate],
    rank: Callable[[Candidate], Any],
    measured: Mapping[str, Agreement],
    classes: bool,
) -> str:
    """Whether the design pays, from paired differences on the held-out rows."""
    best = {}
    for family in ("designed", "plain"):
        members = [one for one in found if one.family == family and one.trained]
        if not members:
            return ""
        best[family] = max(members, key=rank).name
    a, b = measured[best["designed"]], measured[best["plain"]]
    gain = a.agrees - b.agrees if classes else b.agrees - a.agrees
    mean, error = float(gain.mean()), float(gain.std()) / math.sqrt(len(gain))
    figures = f"{100 * a.agreement:.2f} against {100 * b.agreement:.2f} %"
    if mean > _NOISE * error:
        return f"The design pays here: “{best['designed']}” is closer to the module than “{best['plain']}” ({figures})."
    if mean < -_NOISE * error:
        return f"The design does not pay here: “{best['plain']}” is closer to the module ({figures}, designed first)."
    return (
        f"The plain network is as good: “{best['plain']}” and “{best['designed']}” do not differ by more than chance "
        f"({figures}, designed first)."
    )
