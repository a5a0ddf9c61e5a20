"""Atomic files and directories: they appear complete or not at all.

Content is written to a new file with an unguessable name in the same directory and then renamed, so ``kill -9`` leaves
either the old content or the new one. A link at the destination is replaced, never followed. Errors name the path that
the caller passed.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from notsodeep import interrupt
from notsodeep.errors import InputError

__all__ = ["UNFINISHED", "building", "explained", "folder", "scratch", "sweep", "writable", "write", "writing"]

PathLike: TypeAlias = str | os.PathLike[str]

_STALE = 3600.0  # seconds after which an unfinished file counts as abandoned
UNFINISHED = re.compile(r"\..+\.[0-9a-f]{32}\.partial")  # names of files being written, or left so by a kill


def write(path: PathLike, content: bytes | str, **options: Any) -> Path:
    """Write bytes, or text in UTF-8, as one complete file; options are those of :func:`writing`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as place:
    ...     write(Path(place) / "note.txt", "complete").read_text()
    'complete'
    """
    with writing(path, **options) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


@contextmanager
def writing(
    path: PathLike,
    *,
    parameter: str = "path",
    parents: bool = False,
    durable: bool = True,
    new: bool = False,
    check: Callable[[], None] = lambda: None,
) -> Iterator[BinaryIO]:
    """Yield a file that becomes `path` if the block succeeds; compute first, and only write inside the block.

    Parameters
    ----------
    path : path
        An existing file, or a link, is replaced.
    parameter : str
        The caller's name of the parameter, for errors.
    parents : bool
        Create the directories above it.
    durable : bool
        Wait until the content is on disk (fsync), so that it also survives a power cut.
    new : bool
        Keep a file that appeared at `path` meanwhile: the content gets the next free name, which the error states.
    check : callable
        Called just before the rename; if it raises, `path` is unchanged.
    """
    target = writable(path, parameter, parents=parents)
    partial = _beside(target)
    try:
        sweep(target.parent, of=target.name, age=_STALE)
        with interrupt.before_end(partial.unlink):
            with partial.open("xb") as file:
                yield file
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            check()
            place = _free(partial, target) if new else target
            os.replace(partial, place)
    except OSError as error:
        raise _renamed(error, partial, path) from None
    finally:
        with suppress(OSError):
            partial.unlink()
    if place != target:
        raise InputError(f"{parameter}={str(path)!r} appeared during the work and was left alone; see {str(place)!r}")


def _accept(place: Path) -> None:
    """Let any directory be replaced."""


@contextmanager
def building(path: PathLike, *, parameter: str = "path", check: Callable[[Path], None] = _accept) -> Iterator[Path]:
    """Yield an empty directory that becomes `path` if the block succeeds; an existing directory is deleted.

    A link is replaced, and its target is kept. `check` is called with the directory that will be deleted, after it was
    moved away so that nobody can add to it; if it raises, `path` is restored.
    """
    target = Path(path)
    _directory(target if target.exists() else target.parent, path, parameter, create=True)
    target = target.resolve() if target.name in ("", "..") else target.parent.resolve() / target.name
    fresh, old = _beside(target), _beside(target)

    def discard() -> None:
        if os.path.lexists(fresh) or not os.path.lexists(target):  # not in place: restore what was there
            with suppress(OSError):
                if not os.path.lexists(target):
                    os.replace(old, target)
            shutil.rmtree(fresh, ignore_errors=True)
        elif old.is_symlink():
            old.unlink()
        else:
            shutil.rmtree(old, ignore_errors=True)

    with interrupt.before_end(discard):
        try:
            fresh.mkdir()
            yield fresh
            with suppress(FileNotFoundError):
                os.replace(target, old)
            if os.path.lexists(old):
                if not old.is_dir() and not old.is_symlink():
                    raise InputError(f"{parameter}={os.fspath(path)!r} became a file meanwhile; pass another path")
                check(old)
            os.replace(fresh, target)
        except OSError as error:
            raise _renamed(error, fresh, path) from None
        finally:
            discard()


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary directory, removed at the end of the block."""
    with (
        tempfile.TemporaryDirectory() as place,
        interrupt.before_end(lambda: shutil.rmtree(place, ignore_errors=True)),
    ):
        yield Path(place)


def writable(path: PathLike, parameter: str = "path", *, parents: bool = False) -> Path:
    """The path of a file that is probably writable, checked before the work."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{parameter}={str(path)!r} is a directory; pass a file name")
    if target.exists() and not target.is_file():
        raise InputError(f"{parameter}={str(path)!r} is a device or a pipe; pass the name of an ordinary file")
    _directory(target.parent, path, parameter, create=parents)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise explained(PermissionError(errno.EACCES, ""), path)
    return target


def folder(path: PathLike, parameter: str = "path", *, parents: bool = True) -> Path:
    """The directory, created if needed, with `parents` also those above it."""
    if not parents:
        _directory(Path(path).parent, path, parameter, create=False)
    return _directory(Path(path), path, parameter, create=True)


def sweep(place: Path, *, of: str = "", age: float = 0.0) -> None:
    """Remove unfinished files that a killed process left in a directory, older than `age` seconds.

    With `of`, only those of the file of this name. Links, directories and other names are not ours and are kept.
    """
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if not UNFINISHED.fullmatch(entry.name) or not entry.name.startswith(_prefix(of) if of else "."):
                continue
            with suppress(OSError):  # its owner removed it first
                if entry.is_file(follow_symlinks=False) and time.time() - entry.stat().st_mtime >= age:
                    os.unlink(entry)


def explained(error: OSError, path: PathLike) -> OSError:
    """The same system error with the caller's path and a remedy."""
    advice = {
        errno.ENOSPC: "the disk is full; free some space",
        errno.EDQUOT: "your disk quota is used up; free some space",
        errno.EFBIG: "the file would exceed the size allowed; raise the limit",
        errno.EROFS: "the file system is read-only; make it writable or pass another path",
        errno.EACCES: "writing is not permitted; change the permissions or pass another path",
        errno.EPERM: "writing is not permitted; change the permissions or pass another path",
        errno.ENOENT: "the directory has been moved or deleted; put it back or pass another path",
    }.get(error.errno or 0, (os.strerror(error.errno) if error.errno else str(error)) + "; mend it")
    return OSError(error.errno, f"{advice}, and try again: what was complete before stays valid", os.fspath(path))


def _renamed(error: OSError, partial: Path, path: PathLike) -> OSError:
    """Translate an error about the unfinished file or directory into one about `path`; others are unchanged."""
    named = str(partial if error.filename is None else error.filename)
    if named != str(partial) and not named.startswith(f"{partial}{os.sep}"):
        return error
    return explained(error, f"{os.fspath(path)}{named.removeprefix(str(partial))}")


def _directory(wanted: Path, path: PathLike, parameter: str, *, create: bool) -> Path:
    """`wanted`, which is `path` or lies above it."""
    said = f"{parameter}={os.fspath(path)!r}"
    first = next((place for place in (wanted, *wanted.parents) if os.path.lexists(place)), wanted)
    if os.path.lexists(first) and not first.is_dir():
        what = "a link to nothing" if first.is_symlink() else "a file"
        named = said if first == Path(path) else f"{said}: {str(first)!r}"
        raise InputError(f"{named} is {what}, not a directory; pass another path")
    if first != wanted and not create:
        raise InputError(f"{said}: the directory {str(wanted)!r} does not exist; create it first")
    if create:
        try:
            wanted.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise explained(error, path) from None
    return wanted


def _free(partial: Path, target: Path) -> Path:
    """Claim `target` or the next free name; unlike a rename, a hard link never replaces anything."""
    for place in (target, *(target.with_stem(f"{target.stem}-{k}") for k in range(1, 1000))):
        try:
            os.link(partial, place)
        except FileExistsError:
            continue
        except OSError:  # this file system has no hard links
            if os.path.lexists(place):
                continue
        return place
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(partial))


def _prefix(name: str) -> str:
    return f".{name[:50]}."  # with the rest, even in four bytes a letter, no longer than a name may be


def _beside(target: Path) -> Path:
    return target.with_name(f"{_prefix(target.name)}{secrets.token_hex(16)}.partial")
