"""Shared by the benchmarks: fair timing, the machine, and where results go.

A benchmark is a script named after its question, not after an answer that may be refuted::

    AREA = "kernels"
    COSTS = ("ratio",)  # columns where less is better, for `notsodeep bench --compare`
    GAINS = ("speed",)  # columns where more is better

    def run(quick: bool = False) -> dict:
        return {"question": "one sentence", "target": "≤ 1.15×", "rows": [{...}, ...], "verdict": "met"}

    if __name__ == "__main__":
        common.main(__file__, run)

Rows are flat dictionaries with the same keys; they become the table of BENCHMARKS.md.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("notsodeep", "numpy", "scipy", "numba", "torch")


def best_times(
    candidates: Mapping[str, Callable[[], Any]], *, repeats: int = 5, warmups: int = 1, budget: float = 120.0
) -> dict[str, float]:
    """Seconds of each candidate: the best of several rounds that interleave all of them.

    Interleaved, a slow moment of the machine does not hit one candidate alone; a busy machine
    still shifts ratios between candidates that use it differently. Rounds stop when `budget`
    seconds are spent.
    """
    for _ in range(warmups):
        for call in candidates.values():
            call()
    times = dict.fromkeys(candidates, float("inf"))
    start = time.perf_counter()
    for _ in range(repeats):
        for name, call in candidates.items():
            gc.collect()
            began = time.perf_counter()
            call()
            times[name] = min(times[name], time.perf_counter() - began)
        if time.perf_counter() - start > budget:
            break
    return times


def ratios(times: Mapping[str, float], baseline: str) -> dict[str, float]:
    """Each time divided by the baseline's."""
    return {name: seconds / times[baseline] for name, seconds in times.items()}


def machine() -> dict[str, Any]:
    """The computer and the libraries a result was measured with."""
    np.ones((2, 2)) @ np.ones((2, 2))  # loads the BLAS that threadpoolctl then sees
    blas = next((pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"), {})
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "blas": f"{blas.get('internal_api', 'unknown')} {blas.get('version') or ''} "
        f"{blas.get('architecture', '')}, {blas.get('num_threads', '?')} threads",
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def processor() -> str:
    """The instructions that BLAS and Numba use here, which the environment may have restricted."""
    np.ones((2, 2)) @ np.ones((2, 2))
    pools = threadpoolctl.threadpool_info()
    architecture = next((pool.get("architecture") for pool in pools if pool["user_api"] == "blas"), None)
    asked = os.environ.get("NUMBA_CPU_NAME")
    return f"{architecture or 'unknown'} instructions" + (f", Numba for {asked}" if asked else "")


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


def save(name: str, result: Mapping[str, Any], seconds: float) -> Path:
    """Write ``results/<name>.json`` with the machine and the date beside the result.

    If its rows name a "processor", the stored rows of other processors are kept, with their verdicts. A result made
    from stored records brings its own "seconds", "date" and "machine".
    """
    from notsodeep import files

    missing = {"question", "target", "rows", "verdict"} - set(result)
    if missing:
        raise ValueError(f"the result of {name} lacks {', '.join(sorted(missing))}")
    path = RESULTS / f"{name}.json"
    if result["rows"] and "processor" in result["rows"][0]:
        stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"rows": []}
        result = _beside(stored, result)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    told = {"seconds": seconds, "date": today, "machine": machine(), **result}
    content = {"name": name, **{key: told[key] for key in (*result, "seconds", "date", "machine")}}
    content["seconds"] = round(content["seconds"], 1)
    files.write(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n", parents=True)
    return path


def _beside(stored: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The new result after the stored rows of other processors."""
    here = result["rows"][0]["processor"]
    others = [row for row in stored["rows"] if row.get("processor", here) != here]
    verdicts = {key: value for key, value in stored.get("verdicts", {}).items() if key != here}
    verdicts[here] = result["verdict"]
    told = "; ".join(f"{key}: {value}" for key, value in verdicts.items())
    return {**result, "rows": others + list(result["rows"]), "verdict": told, "verdicts": verdicts}


def main(file: str, run: Callable[[bool], Mapping[str, Any]]) -> None:
    """Run a benchmark script; print its result as the last line, and keep it unless it was quick."""
    parser = argparse.ArgumentParser(description=f"Measure {Path(file).stem}.")
    parser.add_argument("--quick", action="store_true", help="small sizes; the stored result stays as it is")
    quick = parser.parse_args().quick
    start = time.perf_counter()
    result = run(quick)
    if not quick:
        save(Path(file).stem, result, time.perf_counter() - start)
    print(json.dumps({"name": Path(file).stem, **result}, ensure_ascii=False))
