"""The same kernel into a store by one and by two worker processes of a Dask cluster on this machine.

Beside it, as a floor, as many bare matrix products of the size of a tile on the same workers: what two processes gain
where nothing but the processor is shared.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import common
import numpy as np
from kernel_reference import samples

import notsodeep as nsd
from notsodeep.kernels import kernel_matrix
from notsodeep.scale import compute

AREA = "scale"
GAINS = ("kernel speed",)
FEATURES = 3072
TARGET = 1.7
DEQ = nsd.DEQ("normalized_relu", recurrent=0.25, input=0.25, bias=0.5)


def bare(count: int, tile: int) -> None:
    """On a worker: this many products of the size of a tile."""
    from notsodeep.threads import single_threaded

    left, right, out = np.ones((tile, FEATURES)), np.ones((tile, FEATURES)), np.empty((tile, tile))
    with single_threaded():
        for _ in range(count):
            np.matmul(left, right.T, out=out)


def run(quick: bool = False) -> dict[str, Any]:
    from distributed import Client, LocalCluster

    n = 3000 if quick else 16_000
    source = kernel_matrix(DEQ, samples(n, FEATURES), kind="ntk")
    tile = source.tile[0]
    tiles = -(-n // tile) * (-(-n // tile) + 1) // 2
    calls: dict[str, Callable[[], None]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def cluster(workers: int) -> None:
            options = {"processes": True, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
            running = stack.enter_context(LocalCluster(n_workers=workers, threads_per_worker=1, **options))
            client = stack.enter_context(Client(running, set_as_default=False))

            def kernel() -> None:
                shutil.rmtree(folder / "K.zarr", ignore_errors=True)
                compute(source, folder / "K.zarr", client=client)

            def products() -> None:
                count = tiles // workers
                client.gather(
                    [client.submit(bare, count, tile, workers=[one], pure=False) for one in client.nthreads()]
                )

            calls[f"kernel {workers}"], calls[f"products {workers}"] = kernel, products

        cluster(1)
        cluster(2)
        # the first round scatters the samples and compiles; it is not counted
        found = common.best_times(calls, repeats=1 if quick else 3)
    rows = [
        {
            "workers": workers,
            "n": n,
            "kernel s": found[f"kernel {workers}"],
            "kernel speed": found["kernel 1"] / found[f"kernel {workers}"],
            "bare products s": found[f"products {workers}"],
            "bare products speed": found["products 1"] / found[f"products {workers}"],
        }
        for workers in (1, 2)
    ]
    gain, floor = rows[1]["kernel speed"], rows[1]["bare products speed"]
    return {
        "question": "How much faster do two workers compute a kernel than one?",
        "target": f"≥ {TARGET}×",
        "rows": rows,
        "verdict": f"{'met' if gain >= TARGET else 'missed'}: {gain:.2f}×; bare matrix products gain {floor:.2f}×",
    }


if __name__ == "__main__":
    common.main(__file__, run)
