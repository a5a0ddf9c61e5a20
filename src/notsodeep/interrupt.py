"""Ctrl-C while the command line is still importing: one line and exit code 130, no traceback.

The package imports this module before all others, and it imports little itself: until its last line, Ctrl-C ends in a
traceback. In a process that is not its own command, it does nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise

__all__ = ["STATUS", "release"]

STATUS = 128 + signal.SIGINT


def release() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again: the command line can answer it now."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(STATUS)


def _own_command() -> bool:
    """Whether this process is ``notsodeep`` or ``python -m notsodeep``."""
    name = sys.argv[0] if getattr(sys, "argv", None) else ""
    if name == "-m":  # as Python calls a module that it is about to run
        return ("-m", "notsodeep") in pairwise(sys.orig_argv)
    return os.path.splitext(os.path.basename(name))[0] == "notsodeep"


if _own_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
