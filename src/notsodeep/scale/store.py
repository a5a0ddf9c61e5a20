"""A matrix in tiles on disk: a zarr array that stays valid if its writer is killed.

The directory is a zarr array (format 3): ``zarr.json`` with the manifest among its attributes, and one file a tile,
``c/i/j``. zarr, Dask and anything else that speaks the format can read it.

- A tile is complete or absent. It is written to a temporary file and renamed, so ``kill -9`` leaves no partial tile.
- Every read verifies the tile's CRC-32C; resuming verifies all tiles first.
- A tile is bound to its place: next to its checksum it stores SHA-256 over the manifest, i, j and that checksum. A tile
  of another place or store fails this check, and if the manifest is edited, all tiles do.
- Tiles are not fsynced. Tiles damaged by a power cut fail their checksum, and the same command computes them again.
- One writer at a time, and only in the directory that it locked: see :mod:`notsodeep.scale.lock`.

A tile is a zarr shard of one chunk: the entries, their CRC-32C, the SHA-256 (which zarr skips), and the shard's index:
the chunk's place and length and their CRC-32C. Tiles of format 1, written by notsodeep 0.1, have entries and CRC-32C
only; such stores can be read but not continued.

Tiles are copied directly between arrays and files, bypassing zarr's own pipeline.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep import files
from notsodeep.activations import Activation
from notsodeep.checks import InputError, choice, count
from notsodeep.extras import need
from notsodeep.kernels.matrices import KernelMatrix
from notsodeep.reading import json_file
from notsodeep.resources import available_memory
from notsodeep.scale.lock import claim_of, file_locks, locked, ours
from notsodeep.threads import Scratch

__all__ = ["DamagedTileError", "Tile", "TileStore"]

Array: TypeAlias = NDArray[Any]
Tile: TypeAlias = tuple[int, int]

FORMAT = 2
_UNBOUND = 1  # its tiles are not bound to their place
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_NAMES = {"X": "data", "Y": "second data"}  # version of the manifest, shown to users
_MOST = 10**6  # limit for the number of tiles (files) of a store
_LONGEST = 10**9  # limit for its rows and columns
_HARMLESS = 1 << 26  # tiles up to this size are read without checking the free memory
_PIECE = 1 << 20  # bytes checked at a time; they stay in the cache


class DamagedTileError(InputError):
    """A tile is missing or fails its checksum."""


class TileStore:
    """Tiles of one matrix under `path`; opened for reading: see :meth:`writing`.

    Attributes
    ----------
    shape, tile : pair of int
        Of the matrix and of a tile; the last ones may be cut short.
    dtype : dtype
    manifest : dict
        Where the matrix comes from. Contains ``"triangle"``: ``"full"``, ``"upper"`` or ``"lower"``.
    """

    def __init__(self, path: str | Path, claim: str | None = None) -> None:
        self.path = Path(path).absolute()
        self.claim = claim
        self._numbers: set[Tile] = set()  # tiles known to hold finite entries
        description = self.path / "zarr.json"
        try:
            described = json_file(description)
            attributes = described["attributes"]["notsodeep"]
            self.format = attributes["format"]
            self.shape: tuple[int, int] = _pair(described["shape"])
            self.tile: tuple[int, int] = _pair(described["chunk_grid"]["configuration"]["chunk_shape"])
            self.dtype = np.dtype({"float32": np.float32, "float64": np.float64}[described["data_type"]])
            self.manifest: dict[str, Any] = attributes
            self._triangle = choice(attributes["triangle"], ("full", "upper", "lower"), "triangle")
            encoding = _encoding(self.tile, self.format)
            other = [name for name in encoding if described.get(name, []) != encoding[name]]
            everything = [self.shape, self.tile, self.dtype.name, self.manifest]
            self._identity = hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).digest()
        except FileNotFoundError:
            raise InputError(f"{self.path} is not a kernel store: it has no zarr.json") from None
        except NotADirectoryError:
            raise InputError(f"{self.path} is a file, not a kernel store") from None
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{self.path} is not a kernel store: its zarr.json was not written by notsodeep") from None
        if type(self.format) is not int or self.format not in (FORMAT, _UNBOUND):
            known = f"this version of notsodeep reads {_UNBOUND} and {FORMAT}"
            raise InputError(f"{self.path} has format {_brief(self.format)}, but {known}")
        if other or any(step > n for step, n in zip(self.tile, self.shape, strict=True)):
            named = f"{other[0]} that notsodeep does not write" if other else "tiles larger than the matrix"
            raise InputError(f"{self.path} is not a kernel store: its zarr.json has {named}")
        if _many(self.shape, self.tile) or max(self.shape) > _LONGEST:
            limit = f"{_MOST:,} tiles or {_LONGEST:,} rows"
            raise InputError(f"{self.path} is not a kernel store: its zarr.json describes more than {limit}")
        if self._triangle != "full" and (len({*self.shape}) > 1 or len({*self.tile}) > 1):
            raise InputError(f"{self.path} is not a kernel store: a triangle of a matrix that is not square")
        self._checksum = need("google_crc32c").extend

    @classmethod
    @contextmanager
    def writing(
        cls, path: str | Path, shape: tuple[int, int], tile: tuple[int, int], dtype: Any, manifest: Mapping[str, Any]
    ) -> Iterator[TileStore]:
        """Open the store of this matrix, or begin one, and keep other writers out inside the block.

        A directory that holds anything else is refused before anything in it is touched. What a killed writer left
        is removed.
        """
        directory = Path(path).absolute()
        wanted = {"format": FORMAT, **manifest}
        what, place = ("kernel", "out") if "kind" in wanted else ("factor", "directory")
        asked = {"shape": tuple(shape), "dtype": np.dtype(dtype).name, "tile": tuple(tile), **wanted}

        def opened(claim: str | None = None) -> TileStore:
            store = cls(directory, claim)
            found = {"shape": store.shape, "dtype": store.dtype.name, "tile": store.tile, **store.manifest}
            if listed := ", ".join(_differences(found, asked)):
                raise InputError(f"{directory.name} holds another {what}: {listed}; pass another {place}, or delete it")
            return store

        if _many(shape, tile):
            raise InputError(f"tile={tile[0]} makes more than {_MOST:,} files; pass a larger tile")
        file_locks(), need("google_crc32c")  # a missing extra is reported before the work
        if (directory / "zarr.json").exists():
            opened()
        elif directory.is_dir() and (foreign := [name for name in sorted(os.listdir(directory)) if not ours(name)]):
            raise InputError(f"{directory} holds other files ({foreign[0]}); pass a new directory")
        description = None if (directory / "zarr.json").exists() else _describe(shape, tile, dtype, wanted)
        files.folder(path, place, parents=False)
        with locked(directory) as claim:
            if description is not None and not (directory / "zarr.json").exists():
                files.write(directory / "zarr.json", description)
            store = opened(claim)
            files.sweep(directory)
            # create all of them now: later, the directory may have been replaced
            tiles = _own(directory, "c")
            for row in range(store.grid[0]):
                files.sweep(_own(tiles, str(row)))
            try:
                yield store
                store.require_claim()
                opened()
            except (OSError, InputError):
                store.require_claim()  # gives a better message than "tile not found"
                raise

    def require_claim(self, *, complete: bool = False) -> None:
        """Raise unless the directory of this name is still the one that was locked, and has all tiles if `complete`."""
        kept = self.claim is not None and claim_of(self.path) == self.claim
        if not kept or (complete and not all(map(self.exists, self.tiles()))):
            raise InputError(
                f"{self.path} was moved, deleted or replaced while it was being written; leave it in place and run the "
                "same command again"
            )

    @property
    def bound(self) -> bool:
        """Whether checksums bind tiles to their place and kernel."""
        return bool(self.format != _UNBOUND)

    # --- which tiles ----------------------------------------------------------------------

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.shape[0] // self.tile[0]), -(-self.shape[1] // self.tile[1])

    def tiles(self) -> list[Tile]:
        """The tiles that the store should have, row by row."""
        rows, columns = self.grid
        upper, lower = self._triangle == "upper", self._triangle == "lower"
        return [(i, j) for i in range(rows) for j in range(i if upper else 0, i + 1 if lower else columns)]

    def span(self, tile: Tile) -> tuple[slice, slice]:
        """Rows and columns of the matrix that a tile covers."""
        i, j = (k * step for k, step in zip(tile, self.tile, strict=True))
        return slice(i, min(i + self.tile[0], self.shape[0])), slice(j, min(j + self.tile[1], self.shape[1]))

    def file(self, tile: Tile) -> Path:
        return self.path / "c" / str(tile[0]) / str(tile[1])

    def exists(self, tile: Tile) -> bool:
        """Whether the tile is there and as long as it should be."""
        try:
            found = self.file(tile).stat()
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == self._size

    # --- tiles in and out -----------------------------------------------------------------

    @property
    def _bytes(self) -> int:
        return self.tile[0] * self.tile[1] * self.dtype.itemsize

    @property
    def _size(self) -> int:
        """Of the file of a tile."""
        return self._bytes + (4 + 32 + 16 + 4 if self.bound else 4)

    def room(self, shape: tuple[int, int], dtype: Any) -> Array:
        """An array without values, if it fits into the memory."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > _HARMLESS and size > available_memory():
            raise InputError(f"{self.path}: {shape[0]} × {shape[1]} entries exceed the memory; read fewer at a time")
        return np.empty(shape, dtype)

    def read(self, tile: Tile) -> Array:
        """Return a tile after verifying its checksums; the last tiles of the matrix come without padding."""
        path = self.file(tile)
        if not os.path.lexists(path):
            raise DamagedTileError(
                f"{self.path} lacks tile {tile}; run the command that writes it again, it continues where it stopped"
            )
        if not path.is_file():
            raise DamagedTileError(f"{self.path}: tile {tile} is a directory or a device; delete it")
        damaged = f"{self.path}: tile {tile} is damaged; `notsodeep verify` lists what to repair"
        if not self.exists(tile):
            raise DamagedTileError(damaged)
        data = self.room(self.tile, self.dtype)  # sparse files may be huge
        ending = bytearray(self._size - self._bytes)
        with path.open("rb", buffering=0) as source:
            complete = _fill(source, data.data) and _fill(source, memoryview(ending))
        expected = self._ending(tile, data)
        if not complete or ending[:4] != expected[:4]:
            raise DamagedTileError(damaged)
        if ending != expected:
            raise DamagedTileError(
                f"{self.path}: tile {tile} is of another place or another kernel, or zarr.json was edited; "
                "`notsodeep verify` lists what to repair"
            )
        if tile not in self._numbers and not _finite(data):
            raise DamagedTileError(f"{self.path}: tile {tile} holds NaN or infinite entries; compute it again")
        self._numbers.add(tile)
        rows, columns = self.span(tile)
        return data[: rows.stop - rows.start, : columns.stop - columns.start]

    def write(self, tile: Tile, data: Array) -> None:
        """Write a tile atomically, if the directory is still the one that was locked."""
        full = data
        if data.shape != self.tile:
            full = np.zeros(self.tile, self.dtype)
            full[: data.shape[0], : data.shape[1]] = data
        full = np.ascontiguousarray(full, self.dtype)
        path = self.file(tile)

        def check() -> None:
            self.require_claim()
            _require_own(self.path, path.parent)

        check()
        self._numbers.discard(tile)
        with files.writing(path, durable=False, check=check) as file:
            file.write(full.data.cast("B"))
            file.write(self._ending(tile, full))

    def compute(self, tile: Tile, blocks: KernelMatrix, scratch: Scratch) -> None:
        """Write a tile of this kernel, computed in memory that `scratch` reuses."""
        rows, columns = self.span(tile)
        memory = scratch.array((rows.stop - rows.start, columns.stop - columns.start), self.dtype)
        self.write(tile, blocks.block(rows, columns, memory))

    def valid(self, tile: Tile) -> bool:
        """Whether the tile exists and passes its checksum."""
        try:
            self.read(tile)
        except DamagedTileError:
            return False
        return True

    def _ending(self, tile: Tile, data: Array) -> bytes:
        """What follows the entries in the file of a tile."""
        crc = self._sum(data.data.cast("B"))
        if not self.bound:
            return crc
        bound = hashlib.sha256(self._identity + struct.pack("<QQ", *tile) + crc).digest()
        index = struct.pack("<QQ", 0, self._bytes + len(crc))  # where zarr finds the chunk in this shard
        return crc + bound + index + self._sum(memoryview(index))

    def _sum(self, view: memoryview) -> bytes:
        """CRC-32C as zarr appends it; the extension takes only bytes, so large buffers are passed in pieces."""
        total = 0
        for start in range(0, len(view), _PIECE):
            total = self._checksum(total, bytes(view[start : start + _PIECE]))
        return int(total).to_bytes(4, "little")


def _finite(data: Array) -> bool:
    """Whether all entries are finite; their sum says so without memory for one flag an entry."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(data.sum()) or np.isfinite(data).all())


def _own(directory: Path, name: str) -> Path:
    """A subdirectory, created if needed; a link in its place is refused, so nothing is written elsewhere."""
    place = files.folder(directory / name)
    _require_own(directory, place)
    return place


def _require_own(directory: Path, place: Path) -> None:
    if place.resolve() != directory.resolve() / place.relative_to(directory):
        raise InputError(f"{place} is a link, and nothing is written outside the store; delete it")


def _many(shape: tuple[int, int], tile: tuple[int, int]) -> bool:
    return math.prod(-(-n // step) for n, step in zip(shape, tile, strict=True)) > _MOST


def _pair(sizes: Any) -> tuple[int, int]:
    rows, columns = (count(size, "size") for size in sizes)
    return rows, columns


def _fill(source: Any, content: memoryview) -> bool:
    view = content.cast("B")
    while view:
        done = source.readinto(view)
        if not done:
            return False
        view = view[done:]
    return True


def _describe(shape: tuple[int, int], tile: tuple[int, int], dtype: Any, manifest: Mapping[str, Any]) -> str:
    """The text of zarr.json."""
    described = {"shape": shape, "data_type": np.dtype(dtype).name, **_encoding(tile)}
    return json.dumps({**described, "attributes": {"notsodeep": dict(manifest)}}, indent=2)


def _encoding(tile: tuple[int, int], version: Any = FORMAT) -> dict[str, Any]:
    """How zarr reads the tiles: zarr.json without the matrix. If it were edited, zarr would show other entries."""
    plain = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
    shard = {"chunk_shape": list(tile), "codecs": plain, "index_codecs": plain, "index_location": "end"}
    return {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(tile)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "NaN",  # other readers see this in place of missing tiles
        "codecs": plain if version == _UNBOUND else [{"name": "sharding_indexed", "configuration": shard}],
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }


def _differences(found: Mapping[str, Any], asked: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """The differing numbers, as "name stored → requested"."""
    for key in dict.fromkeys([*asked, *found]):
        old, new = found.get(key), asked.get(key)
        if old == new:
            continue
        before, after = _as_written(key, old), _as_written(key, new)
        if before == after:  # formulas show six digits
            before, after = old, new
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differences(before, after, f"{within}{key}.")
        else:
            yield f"{within}{_NAMES.get(key, key)} {_brief(before)} → {_brief(after)}"


def _as_written(key: str, value: Any) -> Any:
    """Activations as their formulas: a user who wrote relu would not recognise "piecewise_linear" with kinks."""
    with suppress(InputError):  # an edited description is shown unchanged
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
