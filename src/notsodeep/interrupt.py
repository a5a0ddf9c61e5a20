"""Ctrl-C in places where Python's default handling is not good enough.

While the command line is still importing, Ctrl-C prints one line and exits with code 130, without a traceback. The
package imports this module first, and it imports little itself: before its last line, Ctrl-C still gives a traceback.
Other processes that import the package are not affected.

``deferred`` delays Ctrl-C while code runs that must not be interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Any

__all__ = ["STATUS", "deferred", "release"]

STATUS = 128 + signal.SIGINT


def release() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again: from now on the command line handles it."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Handle Ctrl-C at the end of the block; a second one is handled at once."""
    answer = signal.getsignal(signal.SIGINT)
    foreign = threading.current_thread() is not threading.main_thread()  # only the main thread receives signals
    if foreign or isinstance(answer, _Wait) or not callable(answer):
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
