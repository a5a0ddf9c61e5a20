"""Shared by the tests of stores and solvers: samples, models, and processes that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from distributed import LocalCluster

import notsodeep as nsd
from notsodeep.kernels import KernelBlocks

DEQ = nsd.DEQ("normalized_relu", recurrent=0.25, input=0.25, bias=0.5)


def samples(n: int, p: int = 20, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, p)) / p**0.5


def source(n: int = 100, **options: object) -> KernelBlocks:
    return KernelBlocks(DEQ, samples(n), **{"kind": "ntk", **options})


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a store but its lock, and what a killed writer leaves."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.name.startswith(".")
    }


def identities(path: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every tile: another one, if it was written again."""
    tiles = [file for file in sorted(path.glob("c/*/*")) if not file.name.startswith(".")]
    return {str(file.relative_to(path)): (file.stat().st_ino, file.stat().st_mtime_ns) for file in tiles}


def start(code: str, *arguments: object, threads: int = 1) -> subprocess.Popen[str]:
    """Run `code` in an interpreter of its own that can import this file."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)]),
    }
    for name in ("OMP", "OPENBLAS", "NUMBA"):
        environment[f"{name}_NUM_THREADS"] = str(threads)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


# forks a child for every line it reads, which costs less than starting and importing anew
_WRITERS = """
import os, sys, time
from tests.scale import problems
from notsodeep.scale import compute
from notsodeep.solvers import StoredFactor
source = problems.source({n})
plain = source.block
def block(*arguments):
    time.sleep({pause})  # so that the work lasts as long on a fast machine
    return plain(*arguments)
source.block = block
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if not child:
        {job}
        os._exit(0)
    print(child, flush=True)
    print("ended", os.WIFSIGNALED(os.waitpid(child, 0)[1]), flush=True)
"""


@contextmanager
def writers(n: int, pause: float, job: str) -> Iterator[tuple[Callable[[Path], None], IO[str]]]:
    """Yield a function that lets a process of its own do `job` for a path, ``line.strip()``, and what is printed."""
    with start(_WRITERS.format(n=n, pause=pause, job=job)) as process:
        tell, told = process.stdin, process.stdout
        assert tell is not None
        assert told is not None
        assert told.readline() == "ready\n", process.communicate()

        def begin(path: Path) -> None:
            tell.write(f"{path}\n")
            tell.flush()

        yield begin, told
        tell.close()


def cluster() -> LocalCluster:
    """Two worker processes on the loopback interface."""
    addresses = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    return LocalCluster(n_workers=2, threads_per_worker=1, processes=True, silence_logs=60, **addresses)
