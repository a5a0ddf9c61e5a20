"""Draw docs/images/features.png: random features against the kernel machine, error over width and over time.

Run from the root of the repository: ``python docs/features.py``; the numbers are those of
``benchmarks/results/explicit_features_against_deq_features.json``.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from notsodeep.report.style import COLORS, style

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "explicit_features_against_deq_features.json"
KINDS = {"deq": ("implicit", "equilibrium of the DEQ"), "explicit": ("explicit", "matched explicit network")}


def main() -> None:
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    rows = [row for row in rows if row.get("rows", "center") == "center"]  # unit rows have the exact single layer
    widths = np.array(sorted({row["width"] for row in rows}))
    with style() as plt:
        figure, panels = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True, layout="constrained")
        for activation, marker, line in (("relu", "o", "-"), ("tanh", "s", "--")):
            part = [row for row in rows if row["activation"] == activation]
            for kind, (color, name) in KINDS.items():
                error = [row[f"error {kind}"] for row in part]
                look = {"color": COLORS[color], "marker": marker, "ls": line, "ms": 5, "label": f"{activation}, {name}"}
                panels[0].plot(widths, error, **look)
                panels[1].plot([row[f"transform {kind} ms"] for row in part], error, **look)
        guide = 1.15 * rows[0]["error deq"] * (widths / widths[0]) ** -0.5
        panels[0].plot(widths, guide, color=COLORS["ink"], lw=1.2, ls=":", label="slope −1/2")
        panels[0].set(xscale="log", yscale="log", xlabel="width m")
        panels[0].set_xticks(widths, [str(width) for width in widths])
        panels[0].minorticks_off()
        panels[0].set_yticks([0.03, 0.05, 0.1, 0.2], ["0.03", "0.05", "0.1", "0.2"])
        panels[0].set_ylabel("relative distance to the predictions\nof the exact kernel machine of the DEQ")
        panels[1].set(xscale="log", xlabel="milliseconds to transform all samples")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=3)
        figure.suptitle("Ridge regression on random features, digits data")
        figure.savefig(ROOT / "docs" / "images" / "features.png")


if __name__ == "__main__":
    main()
