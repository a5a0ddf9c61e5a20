"""Write BENCHMARKS.md from the files in benchmarks/results/."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

HEAD = """# Benchmarks

Each benchmark is named after its question and has a script of the same name in `benchmarks/`. `make bench` writes
this page from their results (`notsodeep bench NAME` runs one of them). Ratios compare candidates inside one run,
interleaved, best of several rounds. Whole data sets, cost models and accuracies are single runs. Seconds are those of
the machine named below each table.
"""


def render(results: list[Mapping[str, Any]]) -> str:
    """The whole page."""
    if not results:
        return HEAD + "\nNothing has been measured yet.\n"
    return HEAD + "".join("\n" + _section(result) for result in results)


def _section(result: Mapping[str, Any]) -> str:
    parts = [
        f"## {result['name'].replace('_', ' ')}",
        result["question"],
        f"Target: {result['target']}. **{result['verdict']}**",
        table(result["rows"]),
        f"<sub>{_machine(result)}</sub>",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(rows: list[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    numeric = [all(isinstance(row.get(key), int | float | None) for row in rows) for key in keys]
    lines = [
        "| " + " | ".join(key.replace("_", " ") for key in keys) + " |",
        "|" + "|".join("--:" if right else ":--" for right in numeric) + "|",
        *("| " + " | ".join(_cell(row.get(key)) for key in keys) + " |" for row in rows),
    ]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value).replace("|", "\\|")


def _machine(result: Mapping[str, Any]) -> str:
    machine = result["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("numpy", "numba", "torch") if name in machine)
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['blas']}; "
        f"Python {machine['python']}, {versions}; {result['date']}, {result['seconds']} s"
    )


if __name__ == "__main__":
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    page = render([json.loads(file.read_text(encoding="utf-8")) for file in files])
    (ROOT / "BENCHMARKS.md").write_text(page, encoding="utf-8")
    print(f"BENCHMARKS.md: {len(files)} benchmarks")
    for name in ("scaling", "replacing"):
        if (ROOT / "docs" / f"{name}.py").is_file():
            subprocess.run([sys.executable, "-m", f"docs.{name}"], cwd=ROOT, check=True)
