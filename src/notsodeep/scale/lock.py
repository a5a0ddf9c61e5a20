"""One writer at a time, tied to the directory that it locked.

``.lock`` is an operating-system lock, released whenever its owner dies. ``.writer`` names the owner and holds a secret
of this run: if the secret differs, the directory is not (or no longer) the one that was locked.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from notsodeep import files, interrupt
from notsodeep.checks import InputError
from notsodeep.extras import need

__all__ = ["claim_of", "file_locks", "locked", "ours"]

_LOCK, _WRITER = ".lock", ".writer"
_OWNER = re.compile(r"(process \d+ on [\w.-]+)\n([0-9a-f]{32})\n")
_PATIENCE = 0.5  # seconds within which the lock of a dead process is taken over where the system does not release it


def ours(name: str) -> bool:
    """Whether a file of this name in a store's directory is a lock or was left by a killed writer."""
    return name in (_LOCK, _WRITER) or name.startswith(f"{_LOCK}.") or bool(files.UNFINISHED.fullmatch(name))


def claim_of(directory: Path) -> str | None:
    """The secret of the process that is writing into a directory, or was when it was killed."""
    found = _owner(directory)
    return None if found is None else found[2]


def file_locks() -> ModuleType:
    """The package filelock; its warning where the system has no locks of files is nothing that a user can act on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only soft file lock is available")
        return need("filelock")


@contextmanager
def locked(directory: Path) -> Iterator[str]:
    """Lock a directory against other writers; yield the secret that :func:`claim_of` returns while it is locked."""
    filelock = file_locks()
    lock = directory / _LOCK
    with suppress(FileNotFoundError):
        there = os.lstat(lock)
        if not stat.S_ISREG(there.st_mode) or (there.st_nlink > 1 and there.st_size):
            raise InputError(f"{lock} is a link or a directory, not the lock of a store; delete it")
    held = filelock.FileLock(lock, timeout=_PATIENCE)
    try:
        held.acquire()
    except filelock.Timeout:
        found = _owner(directory)
        owner = "another process" if found is None else found[1]
        raise InputError(f"{directory} is being written by {owner}; wait for it, or stop it") from None
    except OSError as error:
        raise files.explained(error, directory) from None
    claim = secrets.token_hex(16)

    def leave() -> None:
        if claim_of(directory) == claim:
            with suppress(OSError):
                (directory / _WRITER).unlink()
        held.release()

    try:
        host = re.sub(r"[^\w.-]", "-", socket.gethostname()) or "localhost"
        with interrupt.before_end(leave):
            files.write(directory / _WRITER, f"process {os.getpid()} on {host}\n{claim}\n", durable=False)
            yield claim
    finally:
        leave()


def _owner(directory: Path) -> re.Match[str] | None:
    path = directory / _WRITER
    try:
        if not path.is_file():
            return None
        with path.open(encoding="utf-8", errors="replace") as file:
            return _OWNER.fullmatch(file.read(400))
    except OSError:
        return None
