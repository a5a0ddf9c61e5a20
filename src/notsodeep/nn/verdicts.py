"""What is said about a replacement, in sentences: how close and fast it is, its limits, and what plain networks do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from notsodeep.nn.measurement import Agreement, gain

__all__ = ["chosen_against_plain", "design_against_plain", "limits_text", "summary"]


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


def design_against_plain(designed: str, plain: str, measured: Mapping[str, Agreement]) -> str:
    """Whether the design pays, from paired differences on the held-out rows."""
    figures = _figures(designed, plain, measured)
    ahead = gain(measured[designed], measured[plain])
    if ahead > 0:
        return f"The design pays here: “{designed}” is closer to the module than “{plain}” ({figures})."
    if ahead < 0:
        return f"The design does not pay here: “{plain}” is closer to the module ({figures}, designed first)."
    return (
        f"The plain network is as good: “{plain}” and “{designed}” do not differ by more than chance "
        f"({figures}, designed first)."
    )


def chosen_against_plain(chosen: str, plain: str, measured: Mapping[str, Agreement]) -> str:
    """Whether what was chosen is closer to the module than the best plain network within the limit on the time."""
    figures = _figures(chosen, plain, measured)
    ahead = gain(measured[chosen], measured[plain])
    if ahead > 0:
        return f"“{chosen}” is closer to the module than the best plain network of that time, “{plain}” ({figures})."
    if ahead < 0:
        return (
            f"On the held-out rows the plain network “{plain}” is closer to the module than “{chosen}” ({figures}, "
            "the chosen first); the rows that chose did not show it."
        )
    return (
        f"“{chosen}” and the best plain network of that time, “{plain}”, do not differ by more than chance "
        f"({figures}, the chosen first)."
    )


def _figures(one: str, other: str, measured: Mapping[str, Agreement]) -> str:
    return f"{100 * measured[one].agreement:.2f} against {100 * measured[other].agreement:.2f} %"
