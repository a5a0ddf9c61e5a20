"""``notsodeep kernel`` and ``notsodeep verify``: the exact kernel matrix of a data file, in memory or tile by tile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from notsodeep import data, files
from notsodeep.checks import InputError
from notsodeep.commands.console import DATA, Json, Limit, emit, new_file, parse_activation, progress, say, wrapped
from notsodeep.models import DEQ, load_model
from notsodeep.resources import available_memory, readable
from notsodeep.scale import verify as check
from notsodeep.scale.distributed import connected


def kernel(
    source: Annotated[str, typer.Argument(metavar="DATA", help=DATA)],
    out: Annotated[Path, typer.Option(help="The .npy file to write, or a .zarr directory to write tile by tile.")],
    activation: Annotated[str, typer.Option(help="φ by name.")] = "relu",
    param: Annotated[list[str] | None, typer.Option(help="A parameter of φ, as name=value; repeat.")] = None,
    recurrent: Annotated[float, typer.Option(help="Variance σ_a² of the recurrent weights.")] = 0.2,
    input: Annotated[float, typer.Option(help="Variance σ_b² of the input weights.")] = 0.8,
    bias: Annotated[float, typer.Option(help="σ_0²")] = 0.0,
    model: Annotated[
        Path | None, typer.Option("--model", "--cell", help="A model file in place of the five options above.")
    ] = None,
    kind: Annotated[str, typer.Option(help="ck, nngp, ntk, ntk_frozen_input or ntk_injected.")] = "ck",
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    limit: Limit = None,
    tile: Annotated[int | None, typer.Option(help="Side of a tile of a .zarr directory; about 2048.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Compute the tiles on this Dask cluster, tcp://host:port.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing .npy file.")] = False,
    json: Json = False,
) -> None:
    """Write the exact infinite-width kernel matrix of a data set.

    A .zarr directory is written tile by tile and need not fit in memory. If the command is killed, the same command
    continues; damaged tiles are computed again, and a directory of another kernel is refused.
    """
    suffix = out.suffix.lower()
    if suffix not in (".npy", ".zarr"):
        raise InputError(f"out={str(out)!r} must end in .npy or .zarr")
    network: Any = (
        load_model(model) if model else DEQ(parse_activation(activation, param or []), recurrent, input, bias)
    )
    summary: dict[str, Any] = {"out": str(out), "model": network.to_dict(), "kind": kind}

    def compute(write: Callable[..., Any]) -> Any:
        X = data.subsample(data.load(source), limit).X
        with progress(f"{kind} of {len(X)} samples", quiet=json) as report:
            return write(X, kind=kind, dtype=dtype, progress=report)

    if suffix == ".zarr":
        if force:
            raise InputError(f"force is for .npy files; delete {str(out)!r} yourself if it is to be replaced")
        with connected(scheduler) as client:
            matrix = compute(partial(network.kernel, out=out, tile=tile, client=client))
        trace = float(matrix.diagonal().sum())
        there, total = matrix.reused, len(matrix.store.tiles())
        summary["tiles"] = {"total": total, "reused": there, "computed": total - there}
    else:
        if tile is not None or scheduler is not None:
            raise InputError("tile and scheduler are for a .zarr directory; pass --out K.zarr")
        new_file(out, force=force)
        matrix = compute(partial(_in_memory, network, out))
        with files.writing(out, parameter="out", new=not force) as file:
            np.save(file, matrix)
        trace = float(np.trace(matrix))
    if json:
        emit({**summary, "shape": list(matrix.shape), "dtype": str(matrix.dtype), "trace": trace})
    else:
        say(*wrapped(None, f"{kind} of {network}"))
        say(f"{out}: {matrix.shape[0]} × {matrix.shape[1]} {matrix.dtype}")
        if "tiles" in summary:
            say(_tiles(total, there))


def _in_memory(network: Any, out: Path, X: Any, *, dtype: str, **options: Any) -> Any:
    """The matrix, if there is room for it."""
    size = len(X) ** 2 * (4 if dtype == "float32" else 8)
    for free, place in ((available_memory(), "memory"), (shutil.disk_usage(out.parent).free, "disk")):
        if size > free:
            raise InputError(
                f"out={str(out)!r} would take {readable(size)}, but {readable(free)} of {place} are free; "
                f"pass --out {out.stem}.zarr, written tile by tile and half as large, or --limit"
            )
    return network.kernel(X, dtype=dtype, **options)


def _tiles(total: int, reused: int) -> str:
    """How many tiles were reused and how many computed.

    >>> _tiles(6, 4)
    'tiles: 4 of 6 there already, 2 computed'
    >>> _tiles(6, 6)
    'tiles: 6 of 6 there already, nothing left to compute'
    """
    rest = f"{total - reused} computed" if reused < total else "nothing left to compute"
    return f"tiles: {reused} of {total} there already, {rest}"


def verify(
    store: Annotated[Path, typer.Argument(metavar="K.zarr", help="A directory written by notsodeep kernel.")],
    json: Json = False,
) -> None:
    """Check every tile of a kernel on disk; the command that wrote it computes damaged ones again, and only those."""
    with progress(f"verify {store}", quiet=json) as report:
        found = check(store, progress=report)
    if json:
        emit({**asdict(found), "sound": found.sound})
    else:
        lines = [f"{word}: tile {tile}" for word in ("missing", "damaged") for tile in getattr(found, word)]
        say(str(found), *lines[:20], *([f"and {len(lines) - 20} more"] if len(lines) > 20 else []))
    if not found.sound:
        raise typer.Exit(1)
