"""Available memory."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

__all__ = ["available_memory", "readable"]


def available_memory() -> int:
    """Bytes available without swapping, within the limit of the container if there is one."""
    if sys.platform == "win32":
        return _available_to_windows()
    free = int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_PHYS_PAGES"))
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = _lines("/sys/fs/cgroup/memory.max"), _lines("/sys/fs/cgroup/memory.current")
    if limit and used and limit[0].isdigit() and used[0].isdigit():
        cached = sum(int(line.split()[1]) for line in _lines("/sys/fs/cgroup/memory.stat") if line.startswith("file "))
        free = min(free, int(limit[0]) - int(used[0]) + cached)
    return max(free, 0)


def _available_to_windows() -> int:
    class Status(ctypes.Structure):
        """MEMORYSTATUSEX."""

        _fields_ = (
            *((name, ctypes.c_uint32) for name in ("length", "load")),
            *(
                (name, ctypes.c_uint64)
                for name in ("total", "available", "page", "pages", "virtual", "free", "extended")
            ),
        )

    status = Status(length=ctypes.sizeof(Status))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined, unused-ignore]
    return int(status.available)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def readable(size: float) -> str:
    """Bytes in a readable unit.

    >>> readable(8e12), readable(1.5e9), readable(2e6)
    ('8 TB', '1.5 GB', '2 MB')
    """
    unit, name = next((pair for pair in ((1e12, "TB"), (1e9, "GB")) if size >= pair[0]), (1e6, "MB"))
    return f"{size / unit:.3g} {name}"
