"""Interleaved timing: contenders take turns, and each is represented by its best time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def best_times(contenders: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Best wall time in seconds of each contender over `repeats` rounds, after one warm-up round."""
    best = dict.fromkeys(contenders, float("inf"))
    for turn in range(repeats + 1):
        for name, call in contenders.items():
            begin = time.perf_counter()
            call()
            elapsed = time.perf_counter() - begin
            if turn:
                best[name] = min(best[name], elapsed)
    return best


def publish(result: dict[str, Any], name: str) -> None:
    """Print the rows as a table and write ``benchmarks/results/<name>.json``."""
    rows = result["rows"]
    columns = list(rows[0])
    cells = [[f"{row[c]:.4g}" if isinstance(row[c], float) else str(row[c]) for c in columns] for row in rows]
    widths = [max(len(c), *(len(line[k]) for line in cells)) for k, c in enumerate(columns)]
    print(f"{result['claim']} (target: {result['target']})")
    for line in [columns, *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print(f"verdict: {result['verdict']}")
    target = Path(__file__).parent / "results" / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
