"""How much memory there is, on Windows too, and commands that ask for it before they begin."""

from __future__ import annotations

import ctypes
import shutil
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.command_line import Run

from notsodeep import resources


@pytest.mark.parametrize(
    ("memory", "disk", "message"),
    [
        (3_000, 10**9, "would take 0.0032 MB, but 0.003 MB of memory are free"),
        (10**9, 3_000, "would take 0.0032 MB, but 0.003 MB of disk are free"),
        (3_200, 3_200, None),
    ],
)
def test_a_kernel_in_one_file_asks_for_room_first(
    memory: int, disk: int, message: str | None, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", np.eye(20))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(resources, "available_memory", lambda: memory)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(disk, 0, disk))
    result = run("kernel", "X.npy", "--out", "K.npy")
    assert result.code == (0 if message is None else 2)
    assert Path("K.npy").exists() == (message is None)
    if message is not None:
        assert message in result.err
        assert "pass --out K.zarr" in result.err
        assert len(result.err.splitlines()) == 1
        assert run("kernel", "X.npy", "--out", "K.npy", "--dtype", "float32").code == 0  # half the size


def test_a_kernel_of_a_hundred_thousand_samples_is_refused_at_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "X.npy", np.ones((100_000, 1)))
    here = resources.available_memory()
    monkeypatch.setattr(resources, "available_memory", lambda: min(here, 79 * 10**9))
    result = run("kernel", tmp_path / "X.npy", "--out", tmp_path / "K.npy")
    assert result.code == 2
    assert "would take 80 GB" in result.err
    assert len(result.err.splitlines()) == 1


def test_the_memory_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(reference: Any) -> int:
        status = reference._obj
        assert (status.length, ctypes.sizeof(status)) == (64, 64)  # of MEMORYSTATUSEX
        status.available = 7 << 30
        return 1

    library = SimpleNamespace(kernel32=SimpleNamespace(GlobalMemoryStatusEx=fill))
    monkeypatch.setattr(ctypes, "windll", library, raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    assert resources.available_memory() == 7 << 30
