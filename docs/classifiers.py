"""Write the table and the picture of ``docs/classifiers.md`` from the stored run: ``python -m docs.classifiers``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.one_layer import replaced

from notsodeep.papers.ling24_accuracy import title
from notsodeep.report.style import COLORS, plain_log_ticks, style

PAGE = Path(__file__).resolve().parent / "classifiers.md"
RESULT = PAGE.parents[1] / "benchmarks" / "results" / "classifiers_on_ten_thousand_images.json"


def rows() -> list[dict[str, Any]]:
    """The stored run of ``benchmarks/classifiers_on_ten_thousand_images.py``."""
    return list(json.loads(RESULT.read_text(encoding="utf-8"))["rows"])


def seconds(row: dict[str, Any]) -> float:
    """From the training images to a classifier, the choice of its parameters included."""
    return float(row["tuning s"] + row["fit s"])


def table(found: list[dict[str, Any]]) -> str:
    """One line a method: accuracy, seconds and memory on every data set."""
    sets = list(dict.fromkeys(row["data"] for row in found))
    head = [
        "classifier",
        *(f"{title(name)}, %" for name in sets),
        *(f"{title(name)}, s" for name in sets),
        "memory, MB",
    ]
    lines = ["| " + " | ".join(head) + " |", "|:--|" + "--:|" * (len(head) - 1)]
    best = {name: max(row["test accuracy"] for row in found if row["data"] == name) for name in sets}
    for method in dict.fromkeys(row["method"] for row in found):
        own = {row["data"]: row for row in found if row["method"] == method}
        shares = []
        for name in sets:
            share = f"{100 * own[name]['test accuracy']:.1f}"
            shares.append(f"**{share}**" if own[name]["test accuracy"] == best[name] else share)
        times = [f"{seconds(own[name]):.0f}" for name in sets]
        memory = f"{max(row['peak MB'] for row in own.values()):.0f}"
        lines.append("| " + " | ".join([method, *shares, *times, memory]) + " |")
    gaps = []
    for name in sets:
        own = max(row["test accuracy"] for row in found if row["data"] == name and row["method"].startswith("DEQ"))
        first = next(row for row in found if row["data"] == name and row["test accuracy"] == best[name])
        gaps.append(f"{100 * (best[name] - own):.1f} points behind {first['method']} on {title(name)}")
    return "\n".join([*lines, "", f"The better DEQ-NTK is {', '.join(gaps[:-1])} and {gaps[-1]}."])


def draw(plt: Any, found: list[dict[str, Any]]) -> Any:
    """Accuracy against seconds, a panel for each data set."""
    sets = list(dict.fromkeys(row["data"] for row in found))
    methods = list(dict.fromkeys(row["method"] for row in found))
    figure, axes = plt.subplots(1, len(sets), figsize=(3.4 * len(sets), 4.2), layout="constrained", squeeze=False)
    for axis, name in zip(axes[0], sets, strict=True):
        for method, marker in zip(methods, "oD^svP*X", strict=True):
            row = next(row for row in found if row["data"] == name and row["method"] == method)
            ours = "notsodeep" in method
            look = {"marker": marker, "ms": 8, "ls": "none", "color": COLORS["implicit" if ours else "other"]}
            axis.plot(seconds(row), 100 * row["test accuracy"], label=method, **look)
        axis.set_xscale("log")
        plain_log_ticks(axis.xaxis)
        axis.set(title=title(name), xlabel="seconds to choose and fit")
    axes[0][0].set_ylabel("test accuracy, %")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    measured = rows()
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), "run", table(measured)), encoding="utf-8")
    with style() as plt:
        draw(plt, measured).savefig(PAGE.parent / "images" / "classifiers.png")
    print(PAGE)
