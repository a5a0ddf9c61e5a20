"""Whatever happens to the process, the disk or the files, nothing is lost and nothing false is read."""

from __future__ import annotations

import errno
import io
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.scale import problems

from notsodeep import InputError, files
from notsodeep.scale import DamagedTileError, StoredBlocks, compute, verify
from notsodeep.scale import store as store_module


def test_killed_at_ten_moments_and_resumed_the_store_is_the_same(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.zarr", tmp_path / "K.zarr"
    compute(problems.source(400), whole, tile=25)
    expected, total = problems.contents(whole), len(StoredBlocks(whole).store.tiles())
    moments = random.Random(0)
    kept: dict[str, tuple[int, int]] = {}
    killed = 0
    job = 'compute(source, line.strip(), tile=25, progress=lambda *_: os.write(1, b"."))'
    with problems.writers(400, 0.004, job) as (begin, told):
        for _ in range(10):
            begin(path)
            child = int(told.readline().replace(".", ""))
            while told.read(1) != ".":
                pass  # tiles that were there have been checked; the work begins
            time.sleep(moments.uniform(0, 0.06))
            os.kill(child, signal.SIGKILL)
            killed += "True" in told.readline()
            assert problems.contents(path).items() <= expected.items()  # complete or absent, never half
            now = problems.identities(path)
            assert kept.items() <= now.items()  # nothing that was done is done again
            kept = now
    assert killed == 10
    assert 0 < len(kept) < total
    calls: list[tuple[int, int]] = []
    compute(problems.source(400), path, progress=lambda *call: calls.append(call))
    assert calls[0] == (len(kept), total)
    assert calls[-1] == (total, total)
    assert problems.contents(path) == expected
    assert kept.items() <= problems.identities(path).items()


def test_killed_inside_a_write_leaves_no_half_tile(tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    code = """
import os, signal, sys
from tests.scale import problems
from notsodeep.scale import compute
rename = os.replace
def die(source, target):
    if str(target).endswith("c/1/2"):
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(source, target)
os.replace = die
compute(problems.source(100), sys.argv[1], tile=25)
"""
    process = problems.start(code, path)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert list(path.rglob("*.partial"))  # the write was under way
    assert not (path / "c/1/2").exists()
    assert not verify(path).damaged
    compute(problems.source(100), path)
    assert verify(path).sound
    assert not list(path.rglob("*.partial"))


@pytest.mark.parametrize("harm", ["flip", "truncate", "lengthen", "empty", "remove"])
def test_a_damaged_tile_is_found_and_computed_alone(harm: str, tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    compute(problems.source(100), path, tile=25)
    expected, before = problems.contents(path), problems.identities(path)
    victim = path / "c/1/2"
    data = bytearray(victim.read_bytes())
    if harm == "flip":
        data[1234] ^= 4
    elif harm == "truncate":
        del data[100:]
    elif harm == "lengthen":
        data.append(0)
    elif harm == "empty":
        data.clear()
    victim.unlink()
    if harm != "remove":
        victim.write_bytes(data)
    found = verify(path)
    assert not found.sound
    assert (found.missing if harm == "remove" else found.damaged) == ((1, 2),)
    assert (found.damaged if harm == "remove" else found.missing) == ()
    stored = StoredBlocks(path)
    with pytest.raises(DamagedTileError, match=r"tile \(1, 2\)"):
        stored.block(slice(30, 40), slice(60, 70))
    with pytest.raises(DamagedTileError):
        stored.block(slice(60, 70), slice(30, 40))  # the same tile, mirrored
    assert np.isfinite(stored.block(slice(0, 25), slice(None))).all()  # other tiles are readable
    compute(problems.source(100), path)
    assert problems.contents(path) == expected
    after = problems.identities(path)
    assert {name for name in after if after[name] != before[name]} == {"c/1/2"}
    assert verify(path).sound


def test_a_second_writer_is_refused_until_the_first_dies(tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    code = """
import sys, time
from tests.scale import problems
from notsodeep.scale import compute
def stop(done, total):
    print(done, flush=True)
    time.sleep(600 if done > 2 else 0)
compute(problems.source(100), sys.argv[1], tile=25, progress=stop)
"""
    process = problems.start(code, path)
    try:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "3":
            assert process.poll() is None, process.communicate()
        with pytest.raises(InputError, match=f"being written by process {process.pid} on") as refusal:
            compute(problems.source(100), path)
        assert "wait for it" in str(refusal.value)
        StoredBlocks(path)  # reading is not writing
    finally:
        process.kill()
        process.communicate()
    compute(problems.source(100), path)
    assert verify(path).sound


def test_a_lock_is_released_after_failure(tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"

    def interrupt(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute(problems.source(100), path, tile=25, progress=interrupt)
    assert not verify(path).damaged
    assert len(verify(path).missing) < 10
    compute(problems.source(100), path)
    assert verify(path).sound


def test_a_full_disk_is_a_clear_error_and_keeps_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "K.zarr"
    room = [6 * (25 * 25 * 8 + 56)]

    class FullDisk(io.FileIO):
        """A file on a disk that has `room` bytes left."""

        def write(self, view: Any) -> int:
            if room[0] <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = super().write(memoryview(view)[: room[0]])  # what a nearly full disk does: part of it
            room[0] -= written
            return written

    plain = Path.open

    def opened(self: Path, mode: str = "r", **options: Any) -> Any:
        if "c" in self.parts and "x" in mode:
            return io.BufferedWriter(FullDisk(self, "xb"))
        return plain(self, mode, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened)
        with pytest.raises(OSError, match=r"disk is full.*stays valid") as error:
            compute(problems.source(100), path, tile=25)
    assert error.value.errno == errno.ENOSPC
    found = verify(path)
    assert found.damaged == ()
    assert 0 < len(found.missing) < found.tiles
    assert not list(path.rglob("*.partial"))
    kept = problems.identities(path)
    compute(problems.source(100), path)
    assert verify(path).sound
    assert kept.items() <= problems.identities(path).items()


def test_a_real_limit_of_the_system_is_a_clear_error(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from tests.scale import problems
from notsodeep.scale import compute
source = problems.source(100)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
try:
    compute(source, sys.argv[1], tile=25)
except OSError as error:
    print(error)
"""
    process = problems.start(code, tmp_path / "K.zarr")
    out, err = process.communicate()
    assert "exceed the size allowed" in out, err
    assert not list((tmp_path / "K.zarr").rglob("*.partial"))


def test_a_read_only_directory_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sealed").mkdir()
    if os.geteuid() == 0:  # root may write anywhere: let the system refuse as it would others
        plain = os.open

        def refuse(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if str(path).startswith(str(tmp_path / "sealed")) and flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return plain(path, flags, *rest, **options)

        monkeypatch.setattr(os, "open", refuse)
        message = "read-only"
    else:
        (tmp_path / "sealed").chmod(0o500)
        message = "not permitted"
    with pytest.raises(OSError, match=message):
        compute(problems.source(100), tmp_path / "sealed" / "K.zarr")


def test_a_finished_store_can_be_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "K.zarr"
    expected = compute(problems.source(60), path, tile=25).to_numpy()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files, "writing", refuse)
    monkeypatch.setattr(store_module, "locked", refuse)
    assert np.array_equal(StoredBlocks(path).to_numpy(), expected)
    assert verify(path).sound
