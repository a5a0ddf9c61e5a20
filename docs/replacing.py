"""Write the table of ``docs/replacing.md`` from the stored runs: ``python -m docs.replacing``, from the root."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from docs.one_layer import replaced

PAGE = Path(__file__).resolve().parent / "replacing.md"
RECORDS = PAGE.parents[1] / "benchmarks" / "records"
FAMILIES = {"designed": "designed", "plain": "plain", "cell": "steps of the cell"}


def records() -> list[dict[str, Any]]:
    """The stored runs of ``benchmarks/what_replaces_a_trained_deq.py``."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RECORDS.glob("replace-*.json"))]


LIMIT = 0.125  # of the time of the DEQ, the default of `nn.replace`


def best(record: dict[str, Any], family: str, limit: float = math.inf) -> float:
    """Per cent of the test images on which the best network of a family gives the class of the DEQ; 0 without any."""
    rows = [row for row in record["table"] if row["family"] == family and row["time ratio"] <= limit]
    return max((100 * row["agreement"] for row in rows), default=0.0)


def returned(record: dict[str, Any]) -> dict[str, Any]:
    """The row of the network that `nn.replace` returned."""
    return next(row for row in record["table"] if row["network"] == record["chosen"])


def missed(record: dict[str, Any]) -> float:
    """By how many points another network within the limit agrees more than the one that was returned."""
    return max(best(record, family, LIMIT) for family in FAMILIES) - 100 * float(returned(record)["agreement"])


def _cell(record: dict[str, Any]) -> tuple[str, int]:
    return record["activation"], record["width"]


def ahead(records: Sequence[dict[str, Any]], limit: float) -> list[dict[str, Any]]:
    """The runs in which steps of the cell agree more than designed and plain networks, all within the limit."""
    return [
        one for one in records if best(one, "cell", limit) > max(best(one, f, limit) for f in ("designed", "plain"))
    ]


def solved(record: dict[str, Any]) -> bool:
    """Whether the trained DEQ still had an equilibrium, so that networks were designed for it."""
    return any(row["family"] == "designed" for row in record["table"])


def table(records: Sequence[dict[str, Any]]) -> str:
    """Means over seeds of those DEQs that have an equilibrium, how often each family was ahead, and the others."""
    runs = [one for one in records if solved(one)]
    head = ["DEQ", "seeds", "its accuracy", *FAMILIES.values(), "consistency", "returned", "times faster"]
    lines = ["| " + " | ".join(head) + " |", "|:--|" + "--:|" * (len(head) - 1)]
    settings = sorted({(one["data"], one["activation"], one["width"]) for one in runs}, reverse=True)
    for setting in settings:
        group = [one for one in runs if (one["data"], one["activation"], one["width"]) == setting]
        values = [mean(100 * one["table"][0]["accuracy"] for one in group)]
        values += [mean(best(one, family) for one in group) for family in FAMILIES]
        values.append(mean(100 * max(one["consistency"].values()) for one in group))
        values.append(mean(100 * returned(one)["agreement"] for one in group))
        faster = mean(1 / returned(one)["time ratio"] for one in group)
        cells = [", ".join(map(str, setting)), str(len(group)), *(f"{value:.2f}" for value in values), f"{faster:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    gains = [best(one, "designed") - best(one, "plain") for one in runs]
    quick = ahead(runs, LIMIT)
    settings = sorted({_cell(one) for one in runs} - {_cell(one) for one in quick})
    never = " and ".join(f"{name}, width {width}" for name, width in settings)
    lines += [
        "",
        f"In {len(runs)} runs the best designed network agrees {min(gains):+.2f} to {max(gains):+.2f} points more than "
        f"the best plain one (mean {mean(gains):+.2f}). In {len(ahead(runs, math.inf))} of them steps of the cell "
        "agree more than both, whatever time they take; "
        f"within {LIMIT} of the time of the DEQ, the default limit, in {len(quick)}"
        + (f", and never with {never}." if never else "."),
    ]
    losses = [missed(one) for one in records]
    lines += [
        "",
        "These runs returned the network with the largest agreement on 1500 other rows. In "
        f"{sum(loss > 0 for loss in losses)} of {len(losses)} another network within the limit agreed more on the test "
        f"images, by up to {max(losses):.2f} points. The choice described below is newer: KL decides as well.",
    ]
    lost = [one for one in records if not solved(one)]
    if lost:
        which, norms, agreements = (
            " and ".join(dict.fromkeys(text(one) for one in lost))
            for text in (
                lambda one: f"{one['data']}, {one['activation']}, width {one['width']}",
                lambda one: f"{one['contraction']:.1f}",
                lambda one: f"{best(one, 'plain'):.1f}",
            )
        )
        subject = (
            f"1 further DEQ ({which}) lost its" if len(lost) == 1 else f"{len(lost)} further DEQs ({which}) lost their"
        )
        lines += [
            "",
            f"{subject} equilibrium in training: ‖W‖·L grew to {norms}, the solver no longer converges, and the best "
            f"plain network agrees on {agreements} % with where it stops. "
            "`nn.fit(..., contraction=0.95)` keeps the equilibrium.",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replaced(page, "runs", table(records())), encoding="utf-8")
    print(PAGE)
