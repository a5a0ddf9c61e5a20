"""``notsodeep kernel`` and ``notsodeep verify``: the exact kernel matrix of a data file, in memory or tile by tile."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from notsodeep import files
from notsodeep.commands import options
from notsodeep.commands.console import emit, new_file, progress, say, say_lines
from notsodeep.errors import InputError


def kernel(
    source: Annotated[str, typer.Argument(metavar="DATA", help=options.DATA)],
    out: Annotated[Path, typer.Option(help="The .npy file to write, or a .zarr directory to write tile by tile.")],
    activation: options.ActivationName = "relu",
    param: options.Param = None,
    recurrent: options.Recurrent = 0.2,
    input: options.Input = 0.8,
    bias: options.Bias = 0.0,
    cell: options.Cell = None,
    model: options.OldModel = None,
    kind: options.KindName = "ck",
    label: options.Label = None,
    ignore: options.Ignore = None,
    limit: options.Limit = None,
    normalize: options.Normalize = "none",
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    tile: Annotated[int | None, typer.Option(help="Side of a tile of a .zarr directory; about 2048.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Compute the tiles on this Dask cluster, tcp://host:port.")
    ] = None,
    force: Annotated[bool, options.flag("--force", help="Replace an existing .npy file.")] = False,
    json: options.Json = False,
) -> None:
    """Write the exact infinite-width kernel matrix of a data set.

    A .zarr directory is written tile by tile and need not fit in memory. If the command is killed, the same command
    continues; damaged tiles are computed again, and a directory of another kernel is refused.
    """
    import numpy as np

    from notsodeep.data import Preparation
    from notsodeep.scale.distributed import connected

    suffix = out.suffix.lower()
    if suffix not in (".npy", ".zarr"):
        raise InputError(f"out={str(out)!r} must end in .npy or .zarr")
    network = options.described(activation, param, recurrent, input, bias, cell, model)
    kind = options.kind_called(kind)
    if suffix == ".npy":
        if tile is not None or scheduler is not None:
            raise InputError("tile and scheduler are for a .zarr directory; pass --out K.zarr")
        new_file(out, force=force)
    elif force:
        raise InputError(f"force is for .npy files; delete {str(out)!r} yourself if it is to be replaced")
    with connected(scheduler) as client:
        loaded = options.read(source, label, ignore, limit)
        preparation = Preparation.of(loaded.X, normalize or "none")
        X = preparation(loaded.X)
        if suffix == ".npy":
            _require_room(out, len(X), dtype)
        place = {"out": out, "tile": tile, "client": client} if suffix == ".zarr" else {}
        with progress(f"{kind} of {len(X)} samples", quiet=json) as report:
            matrix = network.kernel(X, kind=kind, dtype=dtype, progress=report, **place)
    summary: dict[str, Any] = {"out": str(out), "model": network.to_dict(), "kind": kind, "data": loaded.name}
    summary |= {"normalize": preparation.mode, "rows": str(preparation)}
    if suffix == ".npy":
        with files.writing(out, parameter="out", new=not force) as file:
            np.save(file, matrix)
    else:
        total, reused = len(matrix.store.tiles()), matrix.reused
        summary["tiles"] = {"total": total, "reused": reused, "computed": total - reused}
    if json:
        trace = float(matrix.diagonal().sum())
        emit({**summary, "shape": list(matrix.shape), "dtype": str(matrix.dtype), "trace": trace})
        return
    say_lines([("kernel", f"{kind} of {network}")])
    say_lines([("data", f"{loaded.name}: {len(X)} samples × {X.shape[1]} features")])
    say_lines(options.rows_line(loaded, summary["rows"]))
    say(f"{out}: {matrix.shape[0]} × {matrix.shape[1]} {matrix.dtype}")
    if suffix == ".zarr":
        say(_tiles(total, reused))


def _require_room(out: Path, n: int, dtype: str) -> None:
    """Refuse a matrix that memory or disk cannot hold."""
    from notsodeep.resources import available_memory, readable

    size = n**2 * (4 if dtype == "float32" else 8)
    for free, place in ((available_memory(), "memory"), (shutil.disk_usage(out.parent).free, "disk")):
        if size > free:
            raise InputError(
                f"out={str(out)!r} would take {readable(size)}, but {readable(free)} of {place} are free; "
                f"pass --out {out.stem}.zarr, written tile by tile and half as large, or --limit"
            )


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
    json: options.Json = False,
) -> None:
    """Check every tile of a kernel on disk; the command that wrote it computes damaged ones again, and only those."""
    from notsodeep.scale import verify as check

    with progress(f"verify {store}", quiet=json) as report:
        found = check(store, progress=report)
    if json:
        emit({**asdict(found), "sound": found.sound})
    else:
        lines = [f"{word}: tile {tile}" for word in ("missing", "damaged") for tile in getattr(found, word)]
        say(str(found), *lines[:20], *([f"… {len(lines) - 20} more"] if len(lines) > 20 else []))
    if not found.sound:
        raise typer.Exit(1)
