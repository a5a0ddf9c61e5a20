"""Draw docs/images/conv.png: accuracy of the convolutional DEQ-NTK against the number of training images.

Run from the root of the repository: ``python docs/conv.py``; the numbers are those of
``benchmarks/results/conv_accuracy_by_training_images.json``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from notsodeep.report.style import COLORS, style

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "conv_accuracy_by_training_images.json"
PUBLISHED = (2000, 37.49)  # [FK20, Table 2]


def sampling(row: dict[str, Any]) -> float:
    """Half of the 95 % interval that so many test images leave, in points."""
    share = row["accuracy %"] / 100
    return 196 * math.sqrt(share * (1 - share) / row["test images"])


def main() -> None:
    found = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    rows = [row for row in found if row["data"] == "cifar10"]
    with style() as plt:
        figure, axis = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
        kinds = {"ridge 0.0001·K(x, x)": ("explicit", "s"), "ridge chosen on training images": ("implicit", "o")}
        for label, (color, marker) in kinds.items():
            part = [row for row in rows if row["ridge"].startswith("0.0001") == label.startswith("ridge 0.0001")]
            x, y = ([row[key] for row in part] for key in ("training images", "accuracy %"))
            spread = [row["± (95 %)"] or sampling(row) for row in part]
            axis.errorbar(x, y, yerr=spread, marker=marker, color=COLORS[color], capsize=3, label=label)
        axis.plot(*PUBLISHED, "*", ms=12, color=COLORS["ink"], ls="none", label="published, 2000 images [FK20]")
        axis.set_xscale("log")
        sizes = sorted({row["training images"] for row in rows})
        axis.set_xticks(sizes, [f"{n:,}".replace(",", " ") for n in sizes])
        axis.minorticks_off()
        axis.set(xlabel="training images", ylabel="test accuracy, %", title="Convolutional DEQ-NTK on CIFAR-10")
        axis.legend(loc="upper left")
        figure.savefig(ROOT / "docs" / "images" / "conv.png")


if __name__ == "__main__":
    main()
