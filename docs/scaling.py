"""Write ``docs/scaling.md`` from the results of the benchmarks: ``python -m docs.scaling``, from the root."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from scaling_model_against_measured import predict  # noqa: E402
from write import table  # noqa: E402

SIZES, WORKERS = (100_000, 1_000_000), (1, 16, 256)
ITERATIONS = 100
PRICE = 0.05  # assumed, of an hour of a core, in dollars

HEAD = """# Kernels beyond one memory and one machine

A kernel of n samples has n² entries, and solving with it takes n³/3 operations. This page says what that means in
hours, bytes and cores, from rates measured on one machine and checked there. It is written by `python -m
docs.scaling` from the results in `benchmarks/results/`; nothing in it is typed by hand but the formulas and the
assumed price.

![Time and memory of a kernel over the number of samples](images/growth.png)

Up to a machine's memory, time and memory grow like n² ([benchmark](../BENCHMARKS.md#kernel-cost-by-samples)). Beyond:

## On disk

```python
import numpy as np
import notsodeep as nsd
from notsodeep.kernels import KernelBlocks
from notsodeep.solvers import CG, OutOfCore, solve

X, y = np.random.default_rng(0).standard_normal((1000, 20)), np.ones(1000)
np.save("X.npy", X)
deq = nsd.DEQ("normalized_relu", recurrent=0.25, input=0.25, bias=0.5)
K = deq.kernel(X, kind="ntk", out="K.zarr")  # killed at any moment, the same call continues
print(K, K[:2, :2], K.dask_array().chunksize)
s = solve(K, y, ridge=0.1, solver=OutOfCore("work"))  # Cholesky on disk
s = solve(KernelBlocks(deq, X, kind="ntk"), y, ridge=0.1, solver=CG(memory=0))  # keeps nothing
print(s.residual < 1e-6, s.method)
```

On the command line, the same model finds every tile of `K.zarr` in place. Another model or other data is refused: it
needs a directory of its own.

```
notsodeep kernel X.npy --activation normalized_relu --recurrent 0.25 --input 0.25 --bias 0.5 --kind ntk --out K.zarr
notsodeep kernel X.npy --activation tanh --out tanh.zarr
notsodeep verify K.zarr
```

The directory is a zarr array, one file for each tile of about 2048², the upper triangle only. A file is written under
another name and then renamed, so it is complete or absent. It ends with the CRC-32C of its entries and a SHA-256 that
binds them to the manifest and to their place: a tile that was moved within the store or comes from another one counts
as damaged, and so do all tiles if the manifest is edited. A call that finds the directory keeps the valid tiles and
computes the others, so a kill, a full disk or a flipped bit costs only the tiles that it damaged. The manifest names
model, kind, samples (SHA-256) and version; a directory of anything else is refused before anything in it is changed.

There is one writer at a time, by a lock that the system releases when its owner dies. If a store is moved, deleted or
replaced while it is being written, the writer stops with one clear error. Links within the store are never followed
for writing. Tiles are not compressed and not fsynced: tiles damaged by a power cut fail their checksum and are
computed again. Stores of notsodeep 0.1 can be read and verified (their tiles have a CRC-32C only) but not continued.

The estimators do the same: `DEQKernelClassifier(solver=OutOfCore("work"))` keeps its factor in `work`;
a killed fit continues when it is called again; `notsodeep fit` has `--solver out_of_core --directory work`.

## On a cluster

```py
from dask.distributed import Client

client = Client("tcp://scheduler:8786")
K = deq.kernel(X, kind="ntk", out="K.zarr", client=client)  # or: notsodeep kernel … --scheduler tcp://scheduler:8786
```

The samples are sent to every worker once. Workers that see the directory write their tiles into it themselves; other
workers send their tiles to the caller, which writes them. A few workers saturate the caller, so give larger clusters
a shared file system. If a worker is lost, its tiles are computed again. Results are bit-identical to a local run on
the same kind of processor, because BLAS runs single-threaded and tiles run in parallel. The workers of
`OutOfCore("work", client)` compute the kernel, and the caller computes the factor; those of `CG(client=client)`
compute the products of every iteration, and only vectors are transferred. No port is opened unless you ask for a
cluster; bind a local one to the loopback interface, `LocalCluster(host="127.0.0.1",
dashboard_address="127.0.0.1:0")`.
"""

COSTS = {
    "kernel into a store": r"\tfrac{N(N-1)}{2}\,\text{compute} + N\,\text{diagonal} + \tfrac{N(N+1)}{2}\,\text{write}",
    "product with {columns} columns": r"\tfrac{N(N-1)}{2}\,(\text{compute} + \text{multiply})"
    r" + N\,(\text{diagonal} + \tfrac12\,\text{multiply})",
    "Cholesky on disk": r"\text{kernel} + \tfrac{N^3-N}{6}\,(\text{update} + \text{read})"
    r" + \tfrac{N(N-1)}{2}\,\text{solve}",
}

MODEL = """
## The model

There are N rows of tiles, n = N · tile. The words in the formulas are the seconds that a thread needs for one tile
while all others of the machine do the same, as measured; the sum is divided by the number of threads.

| job | seconds |
|:--|:--|
{costs}

A store has n²/2 entries, its factor as many; a worker receives n·p entries once, and
a product moves two vectors for each tile.
"""


def render(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page."""
    page = HEAD
    model = results.get("scaling_model_against_measured")
    if model is None:
        return page + "\n## The model\n\nNot measured yet; `notsodeep bench scale` does.\n"
    costs = "\n".join(f"| {job.format(**model)} | ${cost}$ |" for job, cost in COSTS.items())
    page += MODEL.format(costs=costs)
    rates = [
        {
            "dtype": dtype,
            **{f"{job} ms": 1e3 * seconds for job, seconds in rate.items()},
            "written GB/s": model["tile"] ** 2 * _bytes(dtype) / 1e9 / rate["write"],
            "read GB/s": model["tile"] ** 2 * _bytes(dtype) / 1e9 / rate["read"],
        }
        for dtype, rate in model["rates"].items()
    ]
    page += f"\nTiles of {model['tile']}², {model['features']} features a sample, {model['threads']} threads at once:\n"
    page += f"\n{table(rates)}\n"
    page += f"\n### Checked here\n\n{_sentence(model['verdict'])}, on {model['threads']} threads.\n\n"
    page += table(model["rows"]) + "\n\n### Predicted\n\n"
    page += (
        f"float32, one thread a worker, {model['features']} features; {ITERATIONS} iterations of conjugate gradients\n"
        f"with {model['columns']} columns; ${PRICE} for an hour of a core is an assumption. Disks and networks are\n"
        "assumed to keep up with the workers; the columns of bytes show the rates that this needs. Starting workers,\n"
        "sending samples and compiling are not included; they dominate jobs of less than a minute.\n\n"
    )
    page += table([_forecast(model, n, workers) for n in SIZES for workers in WORKERS]) + "\n"
    for n in SIZES:
        hours = predict("factor", n, model["tile"], model["rates"]["float32"], 1) / 3600
        reads = ((n / model["tile"]) ** 3 - n / model["tile"]) / 6 * model["tile"] ** 2 * 4e-12
        page += (
            f"\nA Cholesky factor at n = {n:,} takes {hours:.3g} core hours and {n * n * 2 / 1e9:,.0f} GB on disk; "
            f"{reads:.3g} TB are read in total,\nat the speed of a page cache. The caller alone computes it.\n"
        )
    for name, title in (
        ("on_disk_against_in_memory", "On disk or in memory"),
        ("two_workers_against_one", "One worker or two"),
        ("random_features_against_exact_kernel", "When to use `DEQFeatures` instead"),
    ):
        if name in results:
            found = results[name]
            answer = f"Target: {found['target']}. {_sentence(found['verdict'])}."
            page += f"\n## {title}\n\n{found['question']} {answer}\n\n{table(found['rows'])}\n"
    return page


def _forecast(model: Mapping[str, Any], n: int, workers: int) -> dict[str, Any]:
    rate, tile = model["rates"]["float32"], model["tile"]
    kernel = predict("kernel", n, tile, rate, workers) / 3600
    iterations = ITERATIONS * predict("product", n, tile, rate, workers) / 3600
    return {
        "n": f"{n:,}",
        "workers": workers,
        "kernel hours": kernel,
        "written GB": 2e-9 * n * n,
        "written GB/s": 2e-9 * n * n / kernel / 3600,
        "samples sent GB": 4e-9 * n * model["features"] * workers,
        "kernel $": kernel * workers * PRICE,
        f"{ITERATIONS} iterations, hours": iterations,
        "iterations $": iterations * workers * PRICE,
    }


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _bytes(dtype: str) -> int:
    return {"float32": 4, "float64": 8}[dtype]


def stored() -> dict[str, Any]:
    """The results that are there, by name."""
    files = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


if __name__ == "__main__":
    (ROOT / "docs" / "scaling.md").write_text(render(stored()), encoding="utf-8")
    print("docs/scaling.md")
