"""Draw docs/images/features.png: random features against the kernel machine, error over width and over time.

Run from the root of the repository: ``python docs/features.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from explicit_features_cost_less import TEST, TRAIN, measure  # noqa: E402

from notsodeep import data  # noqa: E402
from notsodeep.report.style import COLORS, style  # noqa: E402

WIDTHS = [2**k for k in range(5, 12)]
SEEDS = 4


def main() -> None:
    digits = data.load("digits")
    order = np.random.default_rng(0).permutation(len(digits.X))
    X, X_test = digits.X[order[:TRAIN]], digits.X[order[TRAIN : TRAIN + TEST]]
    y = np.where(digits.labels[order[:TRAIN]][:, None] == np.arange(10), 0.9, -0.1)
    with style() as plt:
        figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
        for activation, marker, line in (("relu", "o", "-"), ("tanh", "s", "--")):
            curves = measure(activation, 0.2, 0.8, X, y, X_test, WIDTHS, SEEDS)
            for kind, color in (("deq", "implicit"), ("explicit", "explicit")):
                name = f"{activation}, {'equilibrium of the DEQ' if kind == 'deq' else 'matched explicit network'}"
                options = {"color": COLORS[color], "marker": marker, "ls": line, "ms": 5, "capsize": 3, "label": name}
                curve = curves[kind]
                panels[0].errorbar(WIDTHS, curve["error"], yerr=curve["spread"], **options)
                panels[1].errorbar(curve["ms"], curve["error"], yerr=curve["spread"], **options)
                if (activation, kind) == ("relu", "deq"):
                    guide = 0.35 * curve["error"][3] * (np.array(WIDTHS) / WIDTHS[3]) ** -0.5
        panels[0].plot(WIDTHS, guide, color=COLORS["ink"], lw=1, ls=":", label="slope −1/2")
        for panel in panels:
            panel.set_xscale("log", base=2 if panel is panels[0] else 10)
            panel.set_yscale("log")
        panels[0].set_xlabel("width m")
        panels[0].set_ylabel("relative distance to the predictions\nof the exact kernel machine of the DEQ")
        panels[1].set_xlabel(f"milliseconds to transform {TRAIN + TEST} samples")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncol=3, bbox_to_anchor=(0.5, -0.16))
        figure.suptitle("Ridge regression on random features, digits data", y=0.98)
        figure.tight_layout()
        figure.savefig(ROOT / "docs" / "images" / "features.png", bbox_inches="tight")


if __name__ == "__main__":
    main()
