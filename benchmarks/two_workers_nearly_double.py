"""The same kernel into a store by one and by two worker processes of a Dask cluster on this machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import common
from kernel_reference import samples

import notsodeep as nsd
from notsodeep.kernels import blocks
from notsodeep.scale import compute

AREA = "scale"
FEATURES = 3072
TARGET = 1.7
DEQ = nsd.DEQ("normalized_relu", recurrent=0.25, input=0.25, bias=0.5)


def run(quick: bool = False) -> dict[str, Any]:
    from distributed import Client, LocalCluster

    n = 3000 if quick else 16_000
    source = blocks(DEQ, samples(n, FEATURES), kind="ntk")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def cluster(workers: int) -> Callable[[], None]:
            options = {"processes": True, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
            running = stack.enter_context(LocalCluster(n_workers=workers, threads_per_worker=1, **options))
            client = stack.enter_context(Client(running, set_as_default=False))

            def call() -> None:
                shutil.rmtree(folder / "K.zarr", ignore_errors=True)
                compute(source, folder / "K.zarr", client=client)

            return call

        # the first round scatters the samples and compiles; it is not counted
        found = common.best_times({"1": cluster(1), "2": cluster(2)}, repeats=1 if quick else 3)
    tiles = len(list(range(0, n, 2048)))
    rows = [
        {
            "workers": int(workers),
            "n": n,
            "seconds": seconds,
            "speed": found["1"] / seconds,
            "tiles per second": tiles * (tiles + 1) / 2 / seconds,
        }
        for workers, seconds in found.items()
    ]
    gain = found["1"] / found["2"]
    return {
        "claim": "Two workers compute a kernel nearly twice as fast as one.",
        "target": f"≥ {TARGET}×",
        "rows": rows,
        "verdict": f"{'met' if gain >= TARGET else 'missed'}: {gain:.2f}×",
    }


if __name__ == "__main__":
    common.main(__file__, run)
