"""Write the measured parts of the README.

`readme.py` writes the performance table from benchmarks/results, `readme.py OUT` also the table and the picture from
the report of `make demo` in OUT.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DEMO, BENCH, END = "<!-- written by `make readme` -->", "<!-- written by `make bench` -->", "<!-- end -->"


def table(content: dict[str, Any]) -> str:
    """Closeness of the kernels, both designs, then accuracy and cost of the trained networks."""
    facts = content["data"]
    lines = [
        f"`{content['text']}` against explicit networks of {len(content['formulas'])} hidden layers on {facts['name']} "
        f"({facts['samples']} samples, {facts['features']} features):",
        "",
        "| explicit network | distance of its kernel to the implicit one (spectral norm) | after the best rescaling |",
        "|:--|--:|--:|",
        *(
            f"| {row['network']} | {100 * row['error']:.3g} % | {100 * row['rescaled_error']:.3g} % |"
            for row in content["closeness"]
        ),
    ]
    for comparison in (content.get("designs"), content.get("comparison")):
        if not comparison:
            continue
        lines += [
            "",
            comparison["setting"] + ":",
            "",
            "| " + " | ".join(comparison["columns"]) + " |",
            "|:--|" + "--:|" * (len(comparison["columns"]) - 1),
            *("| " + " | ".join(row) + " |" for row in comparison["rows"]),
        ]
    return "\n".join(lines)


def factors(results: Path = RESULTS) -> list[tuple[str, str, str, list[float]]]:
    """The job, what it is compared with, the benchmark, and how many times faster ours is in each of its cases."""

    def of(name: str, factor: Callable[[dict[str, Any]], float], method: str = "") -> tuple[str, list[float]]:
        return name, [factor(row) for row in _rows(name, results) if method in row.get("method", "")]

    named = (
        ("tangent kernel of a DEQ, 10 000 samples", "one Gram matrix, NumPy's `X @ X.T`",
         of("deq_ntk_against_one_gram_matrix", lambda row: 1 / row["fresh"])),
        ("tangent kernel of a DEQ, 2000 samples", "neural-tangents, 50 layers unrolled",
         of("deq_ntk_against_neural_tangents", lambda row: row["factor"])),
        ("convolutional tangent kernel", "neural-tangents, 20 layers unrolled",
         of("conv_kernel_against_whole_tensor", lambda row: row["times slower"], "neural-")),
        ("a DEQ layer, forward and backward", "the fastest solver of torchdeq, same tolerance",
         of("deq_layer_against_torchdeq", lambda row: 1 / row["ratio"])),
        ("a DEQ layer, forward and backward", "the fastest solver of torchdeq, same measured residual",
         of("deq_layer_against_torchdeq", lambda row: 1 / row["ratio, loosened"])),
        ("inference of the designed network", "our own DEQ of the same width",
         of("explicit_network_against_deq", lambda row: row["inference speedup"])),
    )  # fmt: skip
    return [(job, other, *found) for job, other, found in named]


def performance(results: Path = RESULTS) -> str:
    """Ours against others, from what the benchmarks stored: the worst and the best of each."""

    def spread(values: Sequence[float]) -> str:
        low, high = min(values), max(values)
        text = [f"{value:.2f}" if value < 3 else f"{value:.0f}" for value in (low, high)]
        return f"{text[0]}×" if text[0] == text[1] else f"{text[0]} to {text[1]}×"

    comparison = "classifiers_on_ten_thousand_images"
    accuracy = _rows(comparison, results)
    lines = [
        "| job | compared with | times faster |",
        "|:--|:--|--:|",
        *(f"| [{job}]({_link(name)}) | {other} | {spread(values)} |" for job, other, name, values in factors(results)),
        "",
        f"[Accuracy]({_link(comparison)}) with 10 000 training images; the others' parameters are chosen from grids:",
        "",
        "| data | DEQ-NTK, as it comes | with `optimize` | the best other | which |",
        "|:--|--:|--:|--:|:--|",
    ]
    for source in dict.fromkeys(row["data"] for row in accuracy):
        here = [row for row in accuracy if row["data"] == source]
        ours = [row["test accuracy"] for row in here if row["method"].startswith("DEQ-NTK")]
        other = max((row for row in here if "notsodeep" not in row["method"]), key=lambda row: row["test accuracy"])
        shares = (f"{share:.1%}" for share in (*ours, other["test accuracy"]))
        lines.append("| " + " | ".join((source, *shares, other["method"])).replace("%", " %") + " |")
    return "\n".join(lines)


def _rows(name: str, results: Path) -> list[dict[str, Any]]:
    return list(json.loads((results / f"{name}.json").read_text(encoding="utf-8"))["rows"])


def _link(benchmark: str) -> str:
    return f"BENCHMARKS.md#{benchmark.replace('_', '-')}"


def written(text: str, begin: str, part: str) -> str:
    """The text with the part between two marks replaced."""
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{part}\n{END}{rest.partition(END)[2]}"


def main(report: Path | None = None) -> None:
    readme = ROOT / "README.md"
    text = written(readme.read_text(encoding="utf-8"), BENCH, performance())
    if report is not None:
        text = written(text, DEMO, table(json.loads((report / "match.json").read_text(encoding="utf-8"))))
        images = ROOT / "docs" / "images"
        images.mkdir(parents=True, exist_ok=True)
        shutil.copy(report / "closeness.png", images / "closeness.png")
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
