"""Run tests as other processors would round: OpenBLAS picks its kernels by processor, Numba its instructions.

    python scripts/portable.py               every environment this machine can imitate, all tests
    python scripts/portable.py --quick       one that differs from most machines, the numerical tests only

Further arguments go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NUMERICAL = (
    *(f"tests/test_{name}.py" for name in ("gaussian", "cells", "matching")),
    *(f"tests/highdim/test_{name}.py" for name in ("four_numbers", "equivalents", "limiting")),
    "tests/kernels",
    "tests/learn",
    "tests/one_layer",
    "tests/solvers",
    "tests/scale/test_stored.py",
)
# the kernels that OpenBLAS has for x86-64, and the instructions that each needs beyond the common ones
ALIASES = {"Katmai": "Prescott"}  # one set of kernels, named by the older processor
CORES = {"Prescott": "", "Nehalem": "sse4_2", "Haswell": "avx2", "SkylakeX": "avx512f"}


@dataclass(frozen=True)
class Environment:
    """One way to round: OpenBLAS' kernels, Numba's instructions, threads per process."""

    core: str
    generic: bool
    threads: int

    @property
    def variables(self) -> dict[str, str]:
        count = str(self.threads)
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        return {
            "OPENBLAS_CORETYPE": self.core,
            **({"NUMBA_CPU_NAME": "generic"} if self.generic else {}),
            **dict.fromkeys(names, count),
        }

    def __str__(self) -> str:
        return f"{self.core}, {'generic' if self.generic else 'native'} Numba, {self.threads} thread(s)"


def features() -> set[str]:
    """The instruction sets of this processor; empty where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def environments() -> list[Environment]:
    """Every core with one and two threads, with Numba's own choice and with the least common instructions."""
    known = features()
    cores = [core for core, needed in CORES.items() if not needed or needed in known]
    return [Environment(core, generic, threads) for core in cores for generic, threads in ((True, 1), (False, 2))]


def architectures(environment: Environment) -> set[str]:
    """What the BLAS libraries say they use; an unknown name would be ignored in silence."""
    code = (
        "import numpy, scipy.linalg, threadpoolctl;"
        "print(*(p.get('architecture', '') for p in threadpoolctl.threadpool_info() if p['user_api'] == 'blas'))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment.variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return {ALIASES.get(name, name) for name in found.stdout.split()}


def run(environment: Environment, arguments: list[str]) -> bool:
    """Run pytest there; True where all passed."""
    used = architectures(environment)
    print(f"== {environment}; BLAS uses {', '.join(sorted(used)) or 'an unknown architecture'}", flush=True)
    if used and used != {environment.core}:
        print(f"   OpenBLAS does not obey OPENBLAS_CORETYPE={environment.core} here; skipped", flush=True)
        return True
    workers = ["-n", str(os.cpu_count() or 1)]  # most of a test is Python, so that two threads each do no harm
    began = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *workers, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment.variables},
        check=False,
    )
    print(f"   {time.perf_counter() - began:.0f} s, exit {ended.returncode}", flush=True)
    return ended.returncode == 0


def main(words: list[str]) -> int:
    quick = "--quick" in words
    rest = [word for word in words if word != "--quick"]
    chosen = environments()
    if quick:
        chosen = [e for e in chosen if e.core == "Haswell" and e.generic] or chosen[:1]
        rest = rest or list(NUMERICAL)
    failed = [environment for environment in chosen if not run(environment, rest)]
    for environment in failed:
        print(f"FAILED: {environment}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
