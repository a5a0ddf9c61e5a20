"""A matrix in tiles on disk: a zarr array that is safe against the death of its writer.

The directory is a zarr array (format 3): ``zarr.json`` with the manifest among its attributes, and one file a tile,
``c/i/j``, that ends in its own CRC-32C. zarr, Dask and anything else that speaks the format can read it.

- A tile is complete or absent. It is written beside its place and renamed, so ``kill -9`` leaves no half of one.
- A tile proves itself. Whoever resumes checks size and checksum before trusting it; so does every read.
- Files are not forced to the platter one by one. What a power cut takes away fails its checksum, and the same
  command computes it again.
- One writer at a time, by a lock (``flock``) that the system releases when its owner dies, however it dies.

Tiles go straight between arrays and files, not through zarr's own pipeline.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep import files
from notsodeep.activations import Activation
from notsodeep.checks import InputError, count
from notsodeep.scale.extra import need

__all__ = ["DamagedTileError", "TileStore", "side"]

Array: TypeAlias = NDArray[Any]
Tile: TypeAlias = tuple[int, int]

FORMAT = 1
LOCK = ".lock"
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_NAMES = {"X": "data", "Y": "second data"}  # of the manifest, for people
_TRIANGLES = ("full", "upper", "lower")
_SIDE = 2048  # of a tile, about: 32 MB in float64
_PIECE = 1 << 20  # bytes checked at a time; they stay in the cache


class DamagedTileError(InputError):
    """A tile is missing or fails its checksum."""


def side(n: int, wish: int = _SIDE) -> int:
    """The side of equal tiles that cover `n` rows, at most about `wish`, a multiple of 16.

    >>> side(20_000), side(2049), side(100)
    (2000, 1040, 100)
    """
    return min(n, -(-n // (16 * -(-n // wish))) * 16)


class TileStore:
    """Tiles of one matrix under `path`; opened, not created: see :meth:`create`.

    Attributes
    ----------
    shape, tile : pair of int
        Of the matrix and of a tile; the last ones may be cut short.
    dtype : dtype
    manifest : dict
        Where the matrix comes from. Contains ``"triangle"``: ``"full"``, ``"upper"`` or ``"lower"``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        try:
            described = json.loads((self.path / "zarr.json").read_text(encoding="utf-8"))
            attributes = described["attributes"]["notsodeep"]
            self.format = attributes["format"]
            self.shape: tuple[int, int] = _pair(described["shape"])
            self.tile: tuple[int, int] = _pair(described["chunk_grid"]["configuration"]["chunk_shape"])
            self.dtype = np.dtype({"float32": np.float32, "float64": np.float64}[described["data_type"]])
            self.manifest: dict[str, Any] = attributes
            self._triangle = _TRIANGLES.index(attributes["triangle"])
        except FileNotFoundError:
            raise InputError(f"{self.path} is not a kernel store: it has no zarr.json") from None
        except NotADirectoryError:
            raise InputError(f"{self.path} is a file, not a kernel store") from None
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{self.path} is not a kernel store: its zarr.json was not written by notsodeep") from None
        if self.format != FORMAT:
            raise InputError(f"{self.path} has format {self.format}, but this version of notsodeep reads {FORMAT}")
        self._checksum = need("google_crc32c").extend

    @classmethod
    def create(
        cls, path: str | Path, shape: tuple[int, int], tile: tuple[int, int], dtype: Any, manifest: Mapping[str, Any]
    ) -> TileStore:
        """Describe an empty store, or open the one that is there if it is of the same matrix.

        The directory must exist and the lock be held: see :func:`locked`.
        """
        directory = Path(path).absolute()
        wanted = {"format": FORMAT, **manifest}
        if not (directory / "zarr.json").exists():
            content = _describe(shape, tile, dtype, wanted)
            files.write(directory / "zarr.json", content)
        store = cls(directory)
        found = {"shape": store.shape, "dtype": store.dtype.name, "tile": store.tile, **store.manifest}
        asked = {"shape": tuple(shape), "dtype": np.dtype(dtype).name, "tile": tuple(tile), **wanted}
        listed = ", ".join(_differences(found, asked))
        if listed:
            what, place = ("kernel", "out") if "kind" in wanted else ("factor", "directory")
            raise InputError(f"{directory.name} holds another {what}: {listed}; pass another {place}, or delete it")
        return store

    # --- which tiles ----------------------------------------------------------------------

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.shape[0] // self.tile[0]), -(-self.shape[1] // self.tile[1])

    def tiles(self) -> list[Tile]:
        """The tiles that the store should have, row by row."""
        rows, columns = self.grid
        low = {0: lambda i: 0, 1: lambda i: i, 2: lambda i: 0}[self._triangle]
        high = {0: lambda i: columns, 1: lambda i: columns, 2: lambda i: i + 1}[self._triangle]
        return [(i, j) for i in range(rows) for j in range(low(i), high(i))]

    def span(self, tile: Tile) -> tuple[slice, slice]:
        """Rows and columns of the matrix that a tile covers."""
        i, j = (k * step for k, step in zip(tile, self.tile, strict=True))
        return slice(i, min(i + self.tile[0], self.shape[0])), slice(j, min(j + self.tile[1], self.shape[1]))

    def file(self, tile: Tile) -> Path:
        return self.path / "c" / str(tile[0]) / str(tile[1])

    def exists(self, tile: Tile) -> bool:
        """Whether the tile is there and as long as it should be."""
        try:
            return self.file(tile).stat().st_size == self._bytes + 4
        except OSError:
            return False

    # --- tiles in and out -----------------------------------------------------------------

    @property
    def _bytes(self) -> int:
        return self.tile[0] * self.tile[1] * self.dtype.itemsize

    def read(self, tile: Tile) -> Array:
        """Return a tile whose checksum is right; the matrix' last tiles come without their padding."""
        data = np.empty(self.tile, self.dtype)
        ending = bytearray(4)
        try:
            with self.file(tile).open("rb", buffering=0) as source:
                complete = _fill(source, data) and source.readinto(ending) == 4 and not source.read(1)
        except FileNotFoundError:
            raise DamagedTileError(
                f"{self.path} lacks tile {tile}; run the command that writes it again, it continues where it stopped"
            ) from None
        except IsADirectoryError:
            raise DamagedTileError(f"{self.path}: tile {tile} is a directory; delete it") from None
        if not complete or self._sum(data) != ending:
            raise DamagedTileError(f"{self.path}: tile {tile} is damaged; `notsodeep verify` lists what to repair")
        rows, columns = self.span(tile)
        return data[: rows.stop - rows.start, : columns.stop - columns.start]

    def write(self, tile: Tile, data: Array) -> None:
        """Put a tile in its place, complete or not at all."""
        full = data
        if data.shape != self.tile:
            full = np.zeros(self.tile, self.dtype)
            full[: data.shape[0], : data.shape[1]] = data
        full = np.ascontiguousarray(full, self.dtype)
        target = self.file(tile)
        target.parent.mkdir(parents=True, exist_ok=True)
        with files.writing(target, durable=False) as file:
            file.write(full.data.cast("B"))
            file.write(self._sum(full))

    def valid(self, tile: Tile) -> bool:
        """Whether the tile is there and its checksum right."""
        if not self.exists(tile):
            return False
        try:
            self.read(tile)
        except DamagedTileError:
            return False
        return True

    def _sum(self, data: Array) -> bytes:
        """CRC-32C as zarr appends it; the extension takes bytes only, hence the pieces."""
        view, total = data.data.cast("B"), 0
        for start in range(0, len(view), _PIECE):
            total = self._checksum(total, bytes(view[start : start + _PIECE]))
        return int(total).to_bytes(4, "little")


@contextlib.contextmanager
def locked(path: str | Path) -> Iterator[Path]:
    """Create the directory if need be and keep other writers out; leftovers of a killed one are removed.

    A directory that holds anything but a store is refused before anything in it is touched.
    """
    directory = Path(path).absolute()
    if directory.exists() and not directory.is_dir():
        raise InputError(f"out={str(path)!r} is a file; pass a directory for the store")
    if not directory.parent.is_dir():
        raise InputError(f"out={str(path)!r}: the directory {str(directory.parent)!r} does not exist; create it first")
    if directory.is_symlink() and not directory.exists():
        raise InputError(f"out={str(path)!r} is a link to {str(directory.readlink())!r}, which does not exist")
    if (directory / "zarr.json").exists():
        TileStore(directory)  # refuses what is none
    elif directory.is_dir():
        foreign = [
            name for name in sorted(os.listdir(directory)) if name != LOCK and not files.UNFINISHED.fullmatch(name)
        ]
        if foreign:
            raise InputError(f"{directory} holds other files ({foreign[0]}); pass a new directory")
    lock = directory / LOCK
    try:
        directory.mkdir(exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise files.explained(error, directory) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
            raise InputError(f"{directory} is being written by {owner}; wait for it, or stop it") from None
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            for place in (directory, *directory.glob("c/*")):
                files.sweep(place)
        except OSError as error:
            raise files.explained(error, directory) from None
        yield directory
    finally:
        os.close(handle)


def _pair(sizes: Any) -> tuple[int, int]:
    rows, columns = (count(size, "size") for size in sizes)
    return rows, columns


def _fill(source: Any, data: Array) -> bool:
    view = data.data.cast("B")
    while view:
        done = source.readinto(view)
        if not done:
            return False
        view = view[done:]
    return True


def _describe(shape: tuple[int, int], tile: tuple[int, int], dtype: Any, manifest: Mapping[str, Any]) -> bytes:
    """The text of zarr.json, in zarr's own words."""
    zarr = need("zarr")
    memory: dict[str, Any] = {}
    zarr.create_array(
        zarr.storage.MemoryStore(memory),
        shape=shape,
        chunks=tile,
        dtype=np.dtype(dtype),
        compressors=zarr.codecs.Crc32cCodec(),
        fill_value=float("nan"),  # what a reader other than notsodeep sees where there is no tile
        attributes={"notsodeep": dict(manifest)},
    )
    return bytes(memory["zarr.json"].to_bytes())


def _differences(found: Mapping[str, Any], asked: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """What differs, down to the single number, as "name there → asked for"."""
    for key in asked:
        old, new = found.get(key), asked[key]
        if old == new:
            continue
        before, after = _as_written(key, old), _as_written(key, new)
        if before == after:  # formulas have six digits
            before, after = old, new
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differences(before, after, f"{within}{key}.")
        else:
            yield f"{within}{_NAMES.get(key, key)} {_brief(before)} → {_brief(after)}"


def _as_written(key: str, value: Any) -> Any:
    """Activations as their formulas, for "piecewise_linear" with kinks is not what a user called relu."""
    if key == "activation" and isinstance(value, Mapping):
        return str(Activation.from_dict(value))
    if key == "activations" and isinstance(value, list):
        return ", ".join(str(Activation.from_dict(layer)) for layer in value)
    return value


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if _FINGERPRINT.fullmatch(text):
        return text[:10]
    return text if len(text) <= 40 else text[:39] + "…"
