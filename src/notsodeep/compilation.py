"""Compiled loops, cached on disk by Numba; a problem with the cache never stops a run.

Numba caches compiled code next to the package, or in the user's cache if the package is read-only. If neither is
writable, or other users can write there, a private temporary directory is used, or none. A damaged file, or one of
another user, counts as a miss and is written again: every file ends with the SHA-256 of its content, which is checked
before anything is unpickled. A change in any file of ``kernels``, or in ``kinds.py``, invalidates all of them, because
loops inline the loops that they call.

Ctrl-C waits for the compiler. Numba calls Python from inside LLVM and loses exceptions there; the loop would then have
no code, and the process would end with a ``RuntimeError`` or a segmentation fault.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache

from notsodeep import interrupt

__all__ = ["jit"]

_settings: Any = numba.config
_SEAL = hashlib.sha256().digest_size
_told: list[str] = []


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit(cache=True, **options)`` with the cache described above."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = numba.njit(**options)(function)
        if hasattr(compiled, "_cache"):  # not under NUMBA_DISABLE_JIT
            compiled._cache = _cache(function)
            compiled.compile = interrupt.deferred()(compiled.compile)
        return compiled

    return decorate


def _cache(function: Callable[..., Any]) -> Any:
    try:
        return _Cache(function)
    except RuntimeError:  # no directory can be written, or others can write there too
        place, before = _private(), _settings.CACHE_DIR
    if place is not None:
        _settings.CACHE_DIR = str(place)
        try:
            return _Cache(function, f"compiled kernels are kept in {place}: package and home cannot be used")
        except RuntimeError:
            pass
        finally:
            _settings.CACHE_DIR = before
    return _NoCache()


class _Cache(FunctionCache):
    """The overloads of one function on disk."""

    def __init__(self, function: Callable[..., Any], note: str | None = None) -> None:
        super().__init__(function)
        self._note = note
        if not _ours(self._cache_path):
            raise RuntimeError("others can write there")
        name, stamp = f"{self._impl.filename_base}.sealed", (self._impl.locator.get_source_stamp(), _kernels())
        self._cache_file = _Files(self._cache_path, name, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        if self._note is not None:
            _tell(self._note)
        try:
            return super().load_overload(sig, target_context)
        except Exception:
            self._attempt(self.flush)  # where this fails, its note says more
            _tell(f"compiled kernels in {self._cache_path} are damaged; they are compiled again")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        self._attempt(lambda: super(_Cache, self).save_overload(sig, data))

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            _tell(f"compiled kernels cannot be kept in {self._cache_path}: {error.strerror}")
            self.disable()


class _NoCache(NullCache):
    def load_overload(self, sig: Any, target_context: Any) -> None:
        _tell("kernels are compiled anew in each run: set NUMBA_CACHE_DIR to a directory that can be written")


class _Files(IndexDataCacheFile):
    """Index and data, each followed by its SHA-256."""

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (key, data))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        # two processes may have chosen the same number for their overloads
        return None if found is None or found[0] != key else found[1]

    def _load_index(self) -> Any:
        _require_seal(self._index_path)
        return super()._load_index()

    def _load_data(self, name: str) -> Any:
        _require_seal(self._data_path(name))
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


def _require_seal(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return  # not there yet
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is no file")  # reading from a pipe would never end
    if not _ours(path):
        raise ValueError(f"{path} was written by somebody else")
    content = Path(path).read_bytes()
    if hashlib.sha256(content[:-_SEAL]).digest() != content[-_SEAL:]:
        raise ValueError(f"{path} is damaged")


def _ours(path: str) -> bool:
    """Whether only trusted users can write there: files there are executed."""
    found = os.stat(path)
    return not hasattr(os, "getuid") or (found.st_uid in _trusted() and not found.st_mode & stat.S_IWOTH)


@functools.cache
def _trusted() -> set[int]:
    """User ids of this user, of root, and of the owner of the sources."""
    return {os.getuid(), 0, os.stat(__file__).st_uid}


@functools.cache
def _kernels() -> str:
    """SHA-256 over all sources of compiled loops."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for source in (package / "kinds.py", *sorted((package / "kernels").rglob("*.py"))):
        digest.update(source.read_bytes())
    return digest.hexdigest()


@functools.cache
def _private() -> Path | None:
    """A temporary directory that only this user can write to, because files there are executed."""
    user = os.getuid() if hasattr(os, "getuid") else None
    place = Path(tempfile.gettempdir()) / ("notsodeep" if user is None else f"notsodeep-{user}")
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError:
        return None
    ours = user is None or (found.st_uid == user and not found.st_mode & 0o077)
    return place if ours and stat.S_ISDIR(found.st_mode) else None


def _tell(text: str) -> None:
    """Print the first note of a run on stderr: every directory may have its own, and one line says enough."""
    if not _told:
        _told.append(text)
        sys.stderr.write(f"note: {text}\n")
