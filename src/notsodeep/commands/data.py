"""``notsodeep data``: list, fetch and describe data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.commands.console import Command, Commands, emit, number, progress, say, table
from notsodeep.commands.options import FETCHED, Ignore, Json, Label, flag

if TYPE_CHECKING:
    from notsodeep.data import Data

app = typer.Typer(cls=Commands, rich_markup_mode=None, no_args_is_help=True, help="List, fetch and look at data sets.")

Cache = Annotated[
    Path | None, typer.Option(help="Where fetched sets are kept; $NOTSODEEP_DATA or the user's cache when absent.")
]


@app.command("list", cls=Command)
def list_(cache: Cache = None, json: Json = False) -> None:
    """List the data sets that have a name."""
    from notsodeep import data as datasets

    rows = [_entry(name, cache) for name in datasets.NAMES]
    if json:
        emit(rows)
        return
    cells = [
        (row["name"], row["train"], row["test"] or "–", "×".join(map(str, row["shape"])), row["here"]) for row in rows
    ]
    columns = ("name", "samples", "to test on", "sample", "here")
    say(table("data sets", columns, [tuple(map(str, line)) for line in cells]))
    say(f"fetched ones are kept in {datasets.cache_folder(cache)}")


def _entry(name: str, cache: Path | None) -> dict[str, Any]:
    from notsodeep import data as datasets
    from notsodeep.data.catalog import CATALOG

    if name not in CATALOG:
        loaded = datasets.load(name)
        shape = loaded.image_shape or loaded.X.shape[1:]
        return {"name": name, "train": len(loaded.X), "test": 0, "shape": list(shape), "here": "always", "path": None}
    entry = CATALOG[name]
    path = entry.path(cache)
    return {
        "name": name,
        "train": entry.train,
        "test": entry.test,
        "shape": list(entry.image_shape),
        "here": _size(path.stat().st_size) if path.is_file() else "no",
        "path": str(path) if path.is_file() else None,
    }


@app.command("fetch", cls=Command)
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help=f"{FETCHED}, or all.")],
    cache: Cache = None,
    force: Annotated[bool, flag("--force", help="Fetch again what is here already.")] = False,
    json: Json = False,
) -> None:
    """Fetch data sets into the cache, from the first source that gives the right bytes."""
    from notsodeep import data as datasets
    from notsodeep.data.catalog import CATALOG

    results = []
    for name in CATALOG if names == ["all"] else names:
        with progress(f"fetching {name}", quiet=json) as report:
            found = datasets.fetch(name, cache=cache, force=force, progress=report)
        results.append({**vars(found), "path": str(found.path)})
        if not json:
            for refusal in found.refusals:
                say(f"{found.name}: not from {refusal}")
            say(f"{found.name}: {'fetched' if found.new else 'here already'}, from {found.source}: {found.path}")
    if json:
        emit(results)


@app.command("info", cls=Command)
def info(
    source: Annotated[str, typer.Argument(metavar="DATA", help="A name, or a file or folder of your own.")],
    label: Label = None,
    ignore: Ignore = None,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Say what is in a data set: samples, classes, mean and deviation, source and checksum."""
    import numpy as np

    from notsodeep import data as datasets
    from notsodeep.data.catalog import CATALOG

    loaded = datasets.load(source, label=label, ignore=ignore or (), fetch=False, cache=cache)
    entry = CATALOG.get(datasets.canonical(source) or "")
    mean, deviation = _moments(loaded)
    content: dict[str, Any] = {
        "name": loaded.name,
        "source": loaded.source,
        "notes": list(loaded.notes),
        "samples": len(loaded.X),
        "features": loaded.X.shape[1],
        "image_shape": loaded.image_shape,
        "samples_test": 0 if loaded.X_test is None else len(loaded.X_test),
        "dtype": str(loaded.X.dtype),
        "classes": _counts(loaded.labels),
        "classes_test": _counts(loaded.labels_test),
        "mean": float(loaded.X.mean(dtype=np.float64)),
        "std": float(loaded.X.std(dtype=np.float64)),
        "channel_means": mean,
        "channel_stds": deviation,
        "sha256": entry.sha256 if entry else None,
        "path": str(entry.path(cache)) if entry else None,
        "bytes": entry.path(cache).stat().st_size if entry else loaded.X.nbytes,
    }
    if json:
        emit(content)
        return
    shape = "" if loaded.image_shape is None else f", images {'×'.join(map(str, loaded.image_shape))}"
    say(f"{loaded.name}: {content['samples']} samples × {content['features']} features{shape}, {content['dtype']}")
    if loaded.X_test is not None:
        say(f"to test on: {content['samples_test']} samples")
    say(f"mean {number(content['mean'])}, standard deviation {number(content['std'])}")
    if len(mean) > 1:
        say(f"of the channels: {', '.join(map(number, mean))}; {', '.join(map(number, deviation))}")
    say(f"source {loaded.source}", *loaded.notes)
    if entry:
        say(f"sha256 {entry.sha256}", f"file {content['path']}, {_size(content['bytes'])}")
    if classes := content["classes"]:
        tests = content["classes_test"] or {}
        rows = [(name, str(count), str(tests.get(name, "–"))) for name, count in classes.items()]
        say(table(f"{len(classes)} classes", ("class", "samples", "to test on"), rows, limit=30))


def _moments(loaded: Data) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel; empty lists where there are no images."""
    if loaded.image_shape is None:
        return [], []
    import numpy as np

    channels = loaded.X.reshape(-1, loaded.image_shape[2])
    return channels.mean(axis=0, dtype=np.float64).tolist(), channels.std(axis=0, dtype=np.float64).tolist()


def _counts(labels: Any) -> dict[str, int] | None:
    if labels is None:
        return None
    import numpy as np

    names, counts = np.unique(labels, return_counts=True)
    return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


def _size(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
