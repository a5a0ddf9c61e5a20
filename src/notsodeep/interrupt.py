"""Ctrl-C, answered so that no code is left halfway.

Python raises KeyboardInterrupt wherever it happens to be, also in functions that C code has called: while Numba
compiles, or while an extension module is being imported. The exception is then lost, or the process ends with a
segmentation fault. Therefore:

- In the command line Ctrl-C raises nothing. It removes what is unfinished (:func:`before_end`), prints one line and
  exits with code 130. The package imports this module before anything else, and it answers Ctrl-C before it imports
  anything that takes time; only the start of Python itself still gives a traceback.
- In other processes Ctrl-C is left to Python. :func:`deferred` delays it while code runs that must not be interrupted.
"""

# built in, or loaded by Python itself: until the handler is set, nothing may take time
import _signal  # type: ignore[import-not-found, unused-ignore]
import os
import sys

STATUS = 128 + int(_signal.SIGINT)

_unfinished: "dict[object, Callable[[], object]]" = {}  # of all threads


def _end(*_: object) -> None:
    while _unfinished:  # the latest first; other threads may still add to it
        try:  # noqa: SIM105, contextlib is not imported yet
            _unfinished.popitem()[1]()
        except Exception:
            pass
    try:  # noqa: SIM105
        os.write(2, b"error: interrupted\n")
    except OSError:
        pass
    os._exit(STATUS)


def _own_command() -> bool:
    """Whether this process is ``notsodeep`` or ``python -m notsodeep``."""
    name = sys.argv[0] if getattr(sys, "argv", None) else ""
    if name == "-m":  # Python's name for a module that it is about to run
        return ("-m", "notsodeep") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
    return os.path.splitext(os.path.basename(name))[0] == "notsodeep"


if _own_command() and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _end)

import signal  # noqa: E402
import threading  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from types import FrameType  # noqa: E402
from typing import Any  # noqa: E402

__all__ = ["STATUS", "before_end", "deferred"]


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
