"""Read untrusted files as data, within limits: JSON, ``.npy``, ``.npz``, compressed bytes.

A reader returns plain data or raises `OSError` or `ValueError` with the reason. Sizes that a file declares are compared
with its length and with the free memory before anything is unpacked, so a small file costs little memory and time,
whatever it declares. Nothing in a file is executed.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import stat
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.resources import available_memory, readable

__all__ = ["Npz", "affordable", "content", "json_file", "json_text", "npy_file", "opened", "regular"]

Array: TypeAlias = NDArray[Any]

_HARMLESS = 64 << 20  # every file may unpack to this many bytes
_RATIO = 200  # larger ones to at most this many times their length: real measurements never compress so well
_TEXT = 16 << 20  # limit for JSON in bytes, where a kind of file has no other
_PARSED = {",": 64, "[": 100, "{": 400}  # bytes of memory at most that a value, list or object of JSON takes
_DIGITS = 40  # of an integer in JSON
_DEEPEST = 100  # brackets within brackets in JSON: what is written, shown or compared later recurses
_MAGIC = np.lib.format.MAGIC_PREFIX
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what numpy writes


def regular(path: str | os.PathLike[str]) -> Path:
    """The path of a regular file; reading from a pipe or device might never end."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise ValueError(f"it is {'a directory' if stat.S_ISDIR(mode) else 'a device or a pipe'}, not a file")
    return Path(path)


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, open for reading."""
    return regular(path).open("rb")


def affordable(size: int, stored: int) -> None:
    """Raise `ValueError` if a file of `stored` bytes may not become `size` bytes in memory."""
    if size > max(_HARMLESS, _RATIO * stored):
        raise ValueError(
            f"it would unpack from {readable(stored)} to {readable(size)}, which no file of numbers does; "
            "if it is meant, save it uncompressed"
        )
    if size > (free := available_memory()):
        raise ValueError(f"it needs {readable(size)} of memory and {readable(free)} are free")


def content(path: Path) -> bytes:
    """The bytes of a file, unpacked if it is a ``.gz``."""
    stored = regular(path).stat().st_size
    if path.suffix != ".gz":
        affordable(stored, stored)
        return path.read_bytes()
    limit = max(_HARMLESS, _RATIO * stored)
    try:
        with gzip.open(path) as file:
            raw = file.read(min(limit, available_memory()) + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path.name} is damaged: {error}") from None
    affordable(len(raw), stored)
    return raw


# --- JSON -----------------------------------------------------------------------------------


def json_file(path: str | os.PathLike[str], limit: int = _TEXT) -> Any:
    """Parse a JSON file in UTF-8 of at most `limit` bytes."""
    with opened(path) as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise ValueError(f"it has more than {limit >> 20} MiB, which no such file has")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    return json_text(text, limit)


def json_text(text: str, limit: int = _TEXT) -> Any:
    """Parse JSON of at most `limit` characters, if there is memory for what it holds; an object names all once."""
    if len(text) > limit:
        raise ValueError(f"its JSON has more than {limit >> 20} MiB, which no such file has")
    affordable(5 * len(text) + sum(size * text.count(sign) for sign, size in _PARSED.items()), len(text))
    try:
        content = json.loads(text, parse_int=_integer, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    level = [content]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _parts(outer) if isinstance(inner, dict | list)]
    if level:
        raise ValueError("its brackets are nested too deeply")
    return content


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of two values under one name, other programs may take the other one."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it names {name[:40]!r} twice")
        found[name] = value
    return found


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"it holds an integer of {len(digits)} digits")
    return int(digits)


# --- arrays ---------------------------------------------------------------------------------


def npy_file(path: str | os.PathLike[str]) -> Array:
    """Read one array from a ``.npy`` file."""
    with opened(path) as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("it is not a .npy file; np.save writes one")
        file.seek(0)
        length = os.fstat(file.fileno()).st_size
        return _npy(file, length, length)


def _npy(stream: IO[bytes], length: int, stored: int) -> Array:
    """Read an array from `length` bytes that take `stored` bytes on disk."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about headers of Python 2, or malformed ones
            version = np.lib.format.read_magic(stream)
            header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, fortran, dtype = header(stream)
        count = math.prod(shape)
    except Exception:  # the header is Python syntax; parsing it can raise many kinds of exceptions
        raise ValueError("its header is damaged; save it again") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects; save an array of numbers")
    if min(shape, default=0) < 0 or len(shape) > 32 or dtype.itemsize == 0:
        raise ValueError(f"its header declares an array of shape {shape} and type {dtype}; save it again")
    size, held = count * dtype.itemsize, length - stream.tell()
    if size != held:
        what = "it is cut short or damaged" if size > held else "it is damaged, or holds more than one array"
        raise ValueError(f"{what}: it declares {size} bytes of numbers and holds {held}")
    affordable(size, stored)
    raw = np.empty(size, np.uint8)
    view = memoryview(raw)  # type: ignore[arg-type]
    while view:
        done = stream.readinto(view)  # type: ignore[attr-defined]
        if not done:
            raise ValueError("it is cut short; save it again")
        view = view[done:]
    if dtype.kind == "U" and not _is_text(raw.view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))):
        raise ValueError("it holds text with characters that do not exist; save it again")
    flat = raw.view(dtype)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _is_text(codes: Array) -> bool:
    """Whether all of these are valid Unicode code points, without lone surrogates."""
    return bool(np.all((codes < 0xD800) | ((codes > 0xDFFF) & (codes <= 0x10FFFF))))


class Npz:
    """The arrays of an ``.npz`` archive by name; the names and all declared sizes are checked when it is opened.

    Examples
    --------
    >>> import io, pathlib, tempfile
    >>> import numpy as np
    >>> from notsodeep.reading import Npz
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "data.npz"
    ...     np.savez(path, X=np.eye(2))
    ...     with Npz(path) as archive:
    ...         archive.names, archive["X"].shape, "y" in archive
    (['X'], (2, 2), False)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = opened(path)
        try:
            self._stored = os.fstat(self._file.fileno()).st_size
            if self._file.read(2) != b"PK":
                raise ValueError("it is not an .npz archive")
            self._archive = zipfile.ZipFile(self._file)
            self._members = {one.filename.removesuffix(".npy"): one for one in self._archive.infolist()}
            self._check()
        except BaseException as error:
            self._file.close()
            if isinstance(error, OSError | ValueError) or not isinstance(error, Exception):
                raise
            raise ValueError("it is not an .npz archive, or is damaged") from None

    def _check(self) -> None:
        members = self._archive.infolist()
        if len(self._members) < len(members):
            raise ValueError("two of its arrays have the same name; save it again")
        if any(one.flag_bits & 1 for one in members):
            raise ValueError("it is encrypted; unpack it and save it again")
        if any(one.compress_type not in _METHODS for one in members):
            raise ValueError("it is compressed in a way that numpy does not know; save it with np.savez")
        if sum(one.compress_size for one in members) > self._stored:
            raise ValueError("its parts declare more bytes than it has; save it again")
        affordable(sum(one.file_size for one in members), self._stored)

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> Array:
        """Read one array."""
        if name not in self._members:
            raise ValueError(f"it has no array called {name!r}")
        member = self._members[name]
        try:
            with self._archive.open(member) as stream:
                return _npy(stream, member.file_size, self._stored)
        except ValueError as error:
            raise ValueError(f"its array {name!r} cannot be read: {error}") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, LookupError):
            raise ValueError(f"its array {name!r} is damaged; save it again") from None

    def get(self, name: str) -> Array | None:
        """Read one array, or return None if there is none of this name."""
        return self[name] if name in self._members else None

    def text(self, name: str) -> str:
        """Read a text such as a header, of at most 16 MiB as it is declared."""
        if name in self._members and self._members[name].file_size > _TEXT:
            raise ValueError(f"its array {name!r} has more than {_TEXT >> 20} MiB, which no such text has")
        return str(self[name])

    def __enter__(self) -> Npz:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()
        self._file.close()
