"""Classes that differ in covariance alone: judgements that can fail, and trials that measure what they say."""

from __future__ import annotations

from typing import Any

import pytest

from notsodeep.papers import covariances
from notsodeep.papers.registry import ENTRIES

pytest.importorskip("matplotlib")

APART = {"deq": 0.0, "two": 1e-3, "one": 1e-13, "raw": 0.02, "plain": 0.15}


def rows(**changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows as the theory expects them; `changes` of networks by name."""
    found = []
    for settings in covariances.plan(400, 1600, 64, 2):
        accuracy = 0.5 if settings["phi"] == "tanh" else 0.94
        numbers = {
            "accuracy": accuracy,
            "predicted": accuracy,
            "apart": APART[settings["network"]],
            "c3": 0.07,
            "d": 0.3,
        }
        found.append({**settings, **numbers, **changes.get(settings["network"], {})})
    return found


def test_the_judgement_can_fail() -> None:
    assert all(check.agrees for check in covariances.judge(rows()).checks)
    for broken in (
        {"two": {"apart": 0.1}},
        {"one": {"apart": 1e-6}},
        {"plain": {"apart": 0.01}},
        {"deq": {"predicted": 0.7}},
        {"plain": {"accuracy": 0.8}},
    ):
        assert not all(check.agrees for check in covariances.judge(rows(**broken)).checks), broken


def test_the_table_has_a_row_for_every_network() -> None:
    lines = covariances.table(rows())
    assert len(lines) == 2 + sum(map(len, covariances.NETWORKS.values()))
    assert "| relu | one layer, designed | 0.233 | 94.0 ± 0.0 % | 94.0 % | 1.0e-13 | 94.0 ± 0.0 % |" in lines


def test_a_trial_measures_designs() -> None:
    assert ENTRIES["covariances"].claimed_by == "theory"
    place = {"width": 0, "p": 60, "n": 120, "seed": 0}
    deq, two, one, plain = (
        covariances.measure(phi="relu", network=network, **place) for network in ("deq", "two", "one", "plain")
    )
    assert deq["apart"] == 0
    assert one["apart"] < 1e-9 < two["apart"] < 0.02 < plain["apart"]
    assert deq["accuracy"] > 0.6
    assert two["c3"] == pytest.approx(deq["c3"], rel=1e-8)
    tanh = covariances.measure(phi="tanh", network="plain", **place)
    assert tanh["c3"] == pytest.approx(0, abs=1e-12)
    assert abs(tanh["accuracy"] - 0.5) < 0.1
