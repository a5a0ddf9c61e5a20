"""Progress of long work: a bar on a terminal once it has lasted a moment, or the caller's own callback."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from notsodeep.checks import InputError

__all__ = ["Callback", "Progress", "reporter"]

Callback: TypeAlias = Callable[[int, int], None]
Progress: TypeAlias = bool | Callback | None

_PATIENCE = 1.5  # seconds of silence before a bar appears


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
    if progress not in (None, True, False):
        raise InputError(f"progress={progress!r} must be True, False, None or a callable(done, total)")
    if progress is False or (progress is None and not sys.stderr.isatty()):
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(description, total=total)
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


def _silent(done: int, total: int) -> None:
    return None
