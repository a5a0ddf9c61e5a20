"""Progress of long work: a bar on a terminal once it has lasted a moment, or the caller's own callback."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from notsodeep.checks import InputError
from notsodeep.text import printable

__all__ = ["Callback", "Progress", "compilation", "reporter"]

Callback: TypeAlias = Callable[[int, int], None]
Progress: TypeAlias = bool | Callback | None

_PATIENCE = 1.5  # seconds of silence before a bar appears
_COMPILING = "compiling kernels for their first use here; later runs may find them compiled"


@contextmanager
def reporter(description: str, total: int, progress: Progress = None) -> Iterator[Callback]:
    """Yield ``report(done, total)``.

    Parameters
    ----------
    description : str
    total : int
    progress : bool, callable or None
        A callable receives (done, total). True shows a bar, False nothing; None shows one on a terminal
        when the work lasts longer than a moment.
    """
    if callable(progress):
        yield progress
        return
    if not _shown(progress):
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(printable(description), total=total)
    began = time.monotonic()
    started = False

    def report(done: int, total: int) -> None:
        nonlocal started
        if not started and (progress is True or time.monotonic() - began > _PATIENCE):
            bar.start()
            started = True
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if started:
            bar.stop()


@contextmanager
def compilation(progress: Progress = None, say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Say once if loops are compiled inside the block; nothing when they come from the cache.

    Parameters
    ----------
    progress : bool, callable or None
        As in :func:`reporter`: the line goes to stderr where a bar would be shown. A callable knows only numbers, so
        there is none.
    say : callable, optional
        Told the line instead.
    """
    if say is None and (callable(progress) or not _shown(progress)):
        yield
        return
    tell = say or _to_stderr
    from numba.core import event

    class Once(event.Listener):
        told = False

        def on_start(self, event: object) -> None:
            if not self.told:
                self.told = True
                tell(_COMPILING)

        def on_end(self, event: object) -> None:
            pass

    with event.install_listener("numba:compile", Once()):  # Numba tells of compilations, not of what it loads
        yield


def _shown(progress: Progress) -> bool:
    if progress not in (None, True, False):
        raise InputError(f"progress={progress!r} must be True, False, None or a callable(done, total)")
    return sys.stderr.isatty() if progress is None else bool(progress)


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _silent(done: int, total: int) -> None:
    return None
