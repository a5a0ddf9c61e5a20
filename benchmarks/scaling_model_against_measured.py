"""The cost of a few single tiles predicts the time of whole kernels, products and factors.

All threads at once compute, write, read and multiply tiles of their own; from the seconds each of them needs

    kernel   N(N−1)/2 · compute + N · diagonal + N(N+1)/2 · write        N = n / tile
    product  N(N−1)/2 · (compute + multiply) + N · (diagonal + multiply/2)
    factor   kernel + (N³−N)/6 · (update + read) + N(N−1)/2 · solve

divided by the number of threads. Alone a thread is faster than beside others that share caches and memory, so rates of
a single one would promise too much. ``docs/scaling.py`` applies the same formulas to sizes and clusters that are not
here.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numba
import numpy as np
import scipy.linalg
from kernel_reference import samples

import notsodeep as nsd
from notsodeep.kernels import kernel_matrix
from notsodeep.kernels.matrices import multiply
from notsodeep.scale import compute
from notsodeep.scale.store import TileStore
from notsodeep.solvers import StoredFactor
from notsodeep.threads import pool

AREA = "scale"
FEATURES, COLUMNS, TILE = 784, 10, 2000
TOGETHER = 4  # tiles of each thread between two looks at the clock
DEQ = nsd.DEQ("normalized_relu", recurrent=0.25, input=0.25, bias=0.5)
TOLERANCE = 0.35


def rates(tile: int, dtype: str, threads: int) -> dict[str, float]:
    """Seconds of a thread for each thing that is done with a tile, while all do the same."""
    source = kernel_matrix(DEQ, samples(2 * tile, FEATURES), kind="ntk", dtype=dtype)
    span = slice(0, tile), slice(tile, 2 * tile)
    data, vectors = source.block(*span), np.ones((tile, COLUMNS))
    lower = np.tril(data) + np.eye(tile, dtype=dtype)
    others, outs = ([part.copy() for _ in range(threads)] for part in (data.T, data))
    described = (threads * tile, 100 * tile), (tile, tile), dtype, {"triangle": "full"}
    with tempfile.TemporaryDirectory() as folder, TileStore.writing(Path(folder) / "K.zarr", *described) as store:
        written = [0] * threads

        def write(worker: int) -> None:  # always another tile, as in a new store
            store.write((worker, written[worker]), data)
            written[worker] += 1

        def update(worker: int) -> None:
            outs[worker] -= data @ others[worker].T

        jobs: dict[str, Callable[[int], Any]] = {
            "compute": lambda worker: source.block(*span, outs[worker]),
            "diagonal": lambda worker: source.block(span[0], span[0], outs[worker]),
            "write": write,
            "read": lambda worker: store.read((worker, 0)),
            "multiply": lambda _: multiply(data, vectors, vectors),
            "update": update,
            "solve": lambda _: scipy.linalg.solve_triangular(lower, data.T, lower=True, check_finite=False),
        }
        with pool() as crew:

            def together(job: Callable[[int], Any]) -> Callable[[], None]:
                def several(worker: int) -> None:
                    for _ in range(TOGETHER):
                        job(worker)

                return lambda: list(crew.map(several, range(threads)))

            found = common.best_times({name: together(job) for name, job in jobs.items()}, repeats=5, budget=60)
    return {name: seconds / TOGETHER for name, seconds in found.items()}


def predict(job: str, n: int, tile: int, rate: dict[str, float], threads: int) -> float:
    """Seconds on so many threads, wherever they are."""
    side = n / tile
    pairs = side * (side - 1) / 2
    kernel = pairs * (rate["compute"] + rate["write"]) + side * (rate["diagonal"] + rate["write"])
    seconds = {
        "kernel": kernel,
        "product": pairs * (rate["compute"] + rate["multiply"]) + side * (rate["diagonal"] + rate["multiply"] / 2),
        "factor": kernel + (side**3 - side) / 6 * (rate["update"] + rate["read"]) + pairs * rate["solve"],
    }
    return seconds[job] / threads


def measure(job: str, n: int, tile: int, dtype: str) -> float:
    """Seconds of the whole, the better of two runs."""
    return min(once(job, n, tile, dtype) for _ in range(2))


def once(job: str, n: int, tile: int, dtype: str) -> float:
    source = kernel_matrix(DEQ, samples(n, FEATURES), kind="ntk", dtype=dtype)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        if job == "kernel":
            compute(source, Path(folder) / "K.zarr", tile=tile)
        elif job == "product":
            source.product(np.ones((n, COLUMNS)), deterministic=True)
        else:
            StoredFactor.of(source, 0.1, Path(folder) / "L.zarr", tile=tile)
        return time.perf_counter() - began


def run(quick: bool = False) -> dict[str, Any]:
    tile, sizes = (500, (1500,)) if quick else (TILE, (10_000, 20_000))
    threads = numba.get_num_threads()
    measured = {dtype: rates(tile, dtype, threads) for dtype in ("float32", "float64")}
    rows = []
    for dtype, rate in measured.items():
        for job in ("kernel", "product", "factor"):
            for n in sizes:
                expected, found = predict(job, n, tile, rate, threads), measure(job, n, tile, dtype)
                rows.append(
                    {
                        "job": job,
                        "dtype": dtype,
                        "n": n,
                        "predicted s": expected,
                        "measured s": found,
                        "measured / predicted": found / expected,
                    }
                )
    worst = max(abs(np.log(row["measured / predicted"])) for row in rows)
    met = worst <= np.log1p(TOLERANCE)
    return {
        "question": "How well do rates of single tiles predict the time of whole kernels, products and factors?",
        "target": f"within a factor of {1 + TOLERANCE}",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}: within a factor of {np.exp(worst):.2f}",
        "rates": measured,
        "tile": tile,
        "features": FEATURES,
        "columns": COLUMNS,
        "threads": threads,
    }


if __name__ == "__main__":
    common.main(__file__, run)
