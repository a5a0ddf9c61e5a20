"""Write the table of the README, and copy its picture, from the report of `make demo`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- written by `make readme` -->", "<!-- end -->"


def table(content: dict[str, Any]) -> str:
    """Closeness of the kernels, then accuracy and cost of the trained networks."""
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
    if comparison := content.get("comparison"):
        lines += [
            "",
            comparison["setting"] + ":",
            "",
            "| " + " | ".join(comparison["columns"]) + " |",
            "|:--|" + "--:|" * (len(comparison["columns"]) - 1),
            *("| " + " | ".join(row) + " |" for row in comparison["rows"]),
        ]
    return "\n".join(lines)


def main(report: Path) -> None:
    content = json.loads((report / "match.json").read_text(encoding="utf-8"))
    readme = ROOT / "README.md"
    head, rest = readme.read_text(encoding="utf-8").split(BEGIN)
    _, tail = rest.split(END)
    readme.write_text(f"{head}{BEGIN}\n{table(content)}\n{END}{tail}", encoding="utf-8")
    images = ROOT / "docs" / "images"
    images.mkdir(parents=True, exist_ok=True)
    shutil.copy(report / "closeness.png", images / "closeness.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
