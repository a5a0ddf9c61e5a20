"""Compute a kernel tile by tile into a store; resume, verify and repair it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notsodeep.checks import count
from notsodeep.kernels.matrices import ComputedBlocks, KernelMatrix
from notsodeep.progress import Progress, reporter
from notsodeep.scale.store import Tile, TileStore
from notsodeep.scale.stored import StoredBlocks
from notsodeep.threads import Scratch, each

__all__ = ["Verification", "compute", "verify"]


def compute(
    blocks: ComputedBlocks,
    out: str | Path,
    *,
    tile: int | None = None,
    client: Any = None,
    progress: Progress = None,
) -> StoredBlocks:
    """Write every tile of a kernel that `out` does not have yet, and open it.

    If the process is killed, the same call continues: tiles that pass their checksum are kept, all others are
    computed. Results are bit-identical for any number of threads and workers. A store of another model, other data or
    another version is refused.

    Parameters
    ----------
    blocks : KernelBlocks
        One kind of kernel.
    out : str or Path
        The directory, ``K.zarr``; only the upper triangle is written when the kernel is symmetric.
    tile : int, optional
        Side of a tile; by default that of the store, or about 2048.
    client : dask.distributed.Client, optional
        Compute on its workers: see :mod:`notsodeep.scale.distributed`.
    progress : bool or callable, optional
        ``callable(done, total)`` counts tiles.

    Returns
    -------
    StoredBlocks
        Its `reused` says how many tiles were kept.
    """
    described = {"triangle": "upper" if blocks.symmetric else "full", **blocks.provenance}
    sides = _sides(blocks, Path(out), tile)
    with TileStore.writing(out, blocks.shape, sides, blocks.dtype, described) as store:
        wanted = len(store.tiles())
        with reporter("kernel", wanted, progress) as report:
            # tiles on the diagonal take less time: schedule them last, so that threads end together
            missing = sorted(_invalid(store), key=lambda tile: tile[0] == tile[1])
            reused = wanted - len(missing)

            def moved(done: int, _: int) -> None:
                report(reused + done, wanted)

            moved(0, 0)
            if client is not None:
                from notsodeep.scale.distributed import write_tiles

                write_tiles(client, blocks, store, missing, moved)
            else:
                scratch = Scratch()
                each(lambda tile: store.compute(tile, blocks, scratch), missing, moved)
            store.require_claim(complete=True)
    return StoredBlocks(out, reused=reused)


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found.

    Attributes
    ----------
    path : str
    tiles : int
    missing, damaged : tuple of pairs of int
    bound : bool
        Whether checksums also bind every tile to its place and its kernel; those of notsodeep 0.1 do not.
    """

    path: str
    tiles: int
    missing: tuple[Tile, ...]
    damaged: tuple[Tile, ...]
    bound: bool = True

    @property
    def sound(self) -> bool:
        return not self.missing and not self.damaged

    def __bool__(self) -> bool:
        return self.sound

    def __str__(self) -> str:
        if self.sound and not self.bound:
            return (
                f"{self.path}: the checksums of all {self.tiles} tiles fit, but format 1 (notsodeep 0.1) does not bind "
                "tiles to their place and kernel: swapped ones are not found; compute it again into a new directory"
            )
        if self.sound:
            return f"{self.path}: all {self.tiles} tiles are there and sound"
        return f"{self.path}: of {self.tiles} tiles {len(self.missing)} are missing and {len(self.damaged)} damaged"


def verify(path: str | Path, *, progress: Progress = None) -> Verification:
    """Check every tile of a store against its checksum; nothing is changed.

    :func:`compute` into the same store computes those it finds missing or damaged, and no others.
    """
    store = TileStore(path)
    with reporter("verify", len(store.tiles()), progress) as report:
        bad = _invalid(store, report)
    there = {tile for tile in bad if os.path.lexists(store.file(tile))}
    gone = [tile for tile in bad if tile not in there]
    return Verification(str(store.path), len(store.tiles()), tuple(gone), tuple(sorted(there)), store.bound)


def _invalid(store: TileStore, report: Any = lambda *_: None) -> Sequence[Tile]:
    bad = [tile for tile in store.tiles() if not store.exists(tile)]
    absent = set(bad)

    def check(tile: Tile) -> None:
        if not store.valid(tile):
            bad.append(tile)

    each(check, [tile for tile in store.tiles() if tile not in absent], report)
    return sorted(bad)


def _sides(blocks: KernelMatrix, directory: Path, tile: int | None) -> tuple[int, int]:
    rows, columns = blocks.shape
    if tile is not None:
        wish = count(tile, "tile")
        return min(wish, rows), min(wish, columns)
    if (directory / "zarr.json").exists():
        return TileStore(directory).tile
    return blocks.tile
