"""Ctrl-C, answered so that no code is left halfway.

Python raises KeyboardInterrupt wherever it happens to be, also in functions that C code has called: while Numba
compiles, or while an extension module is being imported. The exception is then lost, or the process ends with a
segmentation fault. Therefore:

- In the command line Ctrl-C raises nothing. It removes what is unfinished (:func:`before_end`), prints one line and
  exits with code 130. The package imports this module first, and it imports little itself: before its last line, Ctrl-C
  still gives a traceback.
- In other processes Ctrl-C is left to Python. :func:`deferred` delays it while code runs that must not be interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from types import FrameType
from typing import Any

__all__ = ["STATUS", "before_end", "deferred"]

STATUS = 128 + signal.SIGINT

_unfinished: dict[object, Callable[[], object]] = {}  # of all threads


@contextmanager
def before_end(action: Callable[[], object]) -> Iterator[None]:
    """Call `action` if Ctrl-C ends the process inside the block: what ``finally`` does there after an exception."""
    key = object()
    _unfinished[key] = action
    try:
        yield
    finally:
        _unfinished.pop(key, None)


@contextmanager
def deferred() -> Iterator[None]:
    """Handle Ctrl-C at the end of the block; a second one is handled at once."""
    answer = signal.getsignal(signal.SIGINT)
    foreign = threading.current_thread() is not threading.main_thread()  # only the main thread receives signals
    if foreign or isinstance(answer, _Wait) or answer is _end or not callable(answer):
        yield
        return
    wait = _Wait(answer)
    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, answer)
        if wait.pressed == 1:
            answer(signal.SIGINT, None)


class _Wait:
    def __init__(self, answer: Callable[[int, FrameType | None], Any]) -> None:
        self.answer = answer
        self.pressed = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.pressed += 1
        if self.pressed > 1:
            self.answer(number, frame)


def _end(*_: object) -> None:
    while _unfinished:  # the latest first; other threads may still add to it
        with suppress(Exception):
            _unfinished.popitem()[1]()
    with suppress(OSError):
        os.write(2, b"error: interrupted\n")
    os._exit(STATUS)


def _own_command() -> bool:
    """Whether this process is ``notsodeep`` or ``python -m notsodeep``."""
    name = sys.argv[0] if getattr(sys, "argv", None) else ""
    if name == "-m":  # Python's name for a module that it is about to run
        return ("-m", "notsodeep") in pairwise(sys.orig_argv)
    return os.path.splitext(os.path.basename(name))[0] == "notsodeep"


if _own_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
