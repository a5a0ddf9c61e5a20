"""Time and memory of the DEQ-NTK against the number of samples, each n in a process of its own.

The memory is the growth of the resident set during the call, from the moment the data is there and the pass is
compiled to the peak; the output is part of it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import common
import numpy as np
from kernel_reference import samples

import notsodeep as nsd

AREA = "kernels"
SIZES = (500, 1000, 2000, 5000, 10_000, 20_000)
LARGE = 2000  # from here on the slope is fitted: smaller kernels are dominated by fixed costs
FEATURES = 784
ALLOWANCE = 200.0  # MB beyond the output


def resident(field: str) -> float:
    """MB of VmRSS (now) or VmHWM (the peak) of this process."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux: the peak, in kB or in bytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024 / 1e6


def measure(n: int, repeats: int) -> dict[str, Any]:
    """Inside the process: one first call for the memory, then the best of several for the time."""
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    deq.kernel(samples(64, FEATURES), kind="ntk")
    X = samples(n, FEATURES)
    before = resident("VmRSS")
    deq.kernel(X, kind="ntk")
    growth = resident("VmHWM") - before
    times = common.best_times({"kernel": lambda: deq.kernel(X, kind="ntk")}, repeats=repeats)
    output = 8e-6 * n * n
    return {
        "n": n,
        "seconds": times["kernel"],
        "ns per entry": 1e9 * times["kernel"] / n**2,
        "output MB": output,
        "peak MB": growth,
        "beyond output MB": growth - output,
    }


def slope(rows: list[dict[str, Any]], key: str) -> float:
    n, value = np.array([(row["n"], row[key]) for row in rows if row["n"] >= LARGE]).T
    return float(np.polyfit(np.log(n), np.log(value), 1)[0])


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    sizes, repeats = (SIZES[:4], 3) if quick else (SIZES, 4)
    rows = []
    for n in sizes:
        command = [sys.executable, __file__, "--measure", str(n), str(repeats)]
        rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))
    time, memory = slope(rows, "seconds"), slope(rows, "peak MB")
    worst = max(row["beyond output MB"] for row in rows)
    met = 1.8 <= time <= 2.2 and 1.8 <= memory <= 2.2 and worst <= ALLOWANCE
    return {
        "question": f"How do time and memory grow with the number of samples (p={FEATURES}, float64)?",
        "target": f"slopes 2 ± 0.2 in log–log from n={LARGE} on; peak memory ≤ output + {ALLOWANCE:g} MB",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}; slopes {time:.2f} (time) and {memory:.2f} (memory), "
        f"at most {worst:.0f} MB beyond the output",
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(int(sys.argv[2]), int(sys.argv[3]))))
    else:
        common.main(__file__, run)
