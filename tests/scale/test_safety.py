"""A store is written only where it was locked, and only by its own kernel.

Also covers: scale/lock.py, scale/tiles.py.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.scale import problems

import notsodeep as nsd
from notsodeep import InputError
from notsodeep.scale import DamagedTileError, StoredBlocks, compute, verify
from notsodeep.scale.store import TileStore
from notsodeep.solvers import StoredFactor

LOST = "was moved, deleted or replaced while it was being written; leave it in place and run the same command again"


# --- the writer and the directory it locked ----------------------------------------------


def slow_source() -> Any:
    """Tiles that take a moment each, so that what happens after the sixth happens before the last."""
    source = problems.source(100)
    plain = source.block

    def block(*arguments: Any) -> Any:
        time.sleep(0.03)
        return plain(*arguments)

    source.block = block
    return source


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere.zarr"))


def deleted(path: Path) -> None:
    while path.exists():  # the writer may just have put something there
        shutil.rmtree(path, ignore_errors=True)


def half_deleted(path: Path) -> None:
    (path / "c/0/1").unlink()


def replaced(path: Path) -> None:
    moved(path)
    compute(problems.source(100, kind="ck"), path, tile=25)


def being_replaced(path: Path) -> None:
    """Another writer has begun there, and is not finished."""
    replaced(path)
    (path / "c/2/3").unlink()
    (path / ".writer").write_text(f"process 1 on here\n{32 * '0'}\n")


def unlocked(path: Path) -> None:
    (path / ".lock").unlink()
    compute(problems.source(100), path)


@pytest.mark.parametrize("harm", [moved, deleted, half_deleted, replaced, being_replaced, unlocked])
def test_a_store_lost_under_its_writer_is_one_clear_error(harm: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"

    def strike(done: int, total: int) -> None:
        if done == 6:  # tiles off the diagonal come first
            harm(path)

    with pytest.raises(InputError, match=LOST):
        compute(slow_source(), path, tile=25, progress=strike)
    if harm in (moved, deleted):
        assert not path.exists()  # nothing was made there again
    if harm is replaced:
        assert verify(path).sound
        assert StoredBlocks(path).kind == "ck"
    if harm is being_replaced:
        assert verify(path).missing == ((2, 3),)
        assert not verify(path).damaged
    if harm is half_deleted:
        assert verify(path).missing == ((0, 1),)
    if harm in (moved, replaced, being_replaced):
        kept = tmp_path / "elsewhere.zarr"
        assert not verify(kept).damaged
        assert verify(kept).missing
        compute(problems.source(100), kept)
        assert verify(kept).sound


def test_a_store_lost_with_the_last_tile_is_not_called_complete(tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    with pytest.raises(InputError, match=LOST):
        compute(problems.source(100), path, tile=25, progress=lambda done, total: done == total and replaced(path))


def test_a_factor_lost_under_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "L.zarr"

    def strike(done: int, total: int) -> None:
        if done == 3:
            moved(path)
            StoredFactor.of(problems.source(100), 0.2, path, tile=25)

    with pytest.raises(InputError, match=LOST):
        StoredFactor.of(problems.source(100), 0.1, path, tile=25, progress=strike)
    assert verify(path).sound
    assert StoredFactor(path).store.manifest["added"] == 0.2


def test_a_store_moved_between_the_write_and_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, plain = tmp_path / "K.zarr", os.replace

    def late(source: Path, target: Path) -> None:
        if str(target).endswith(os.path.join("c", "1", "2")):
            monkeypatch.undo()
            replaced(path)
        plain(source, target)

    monkeypatch.setattr(os, "replace", late)
    with pytest.raises(InputError, match=LOST):
        compute(problems.source(100), path, tile=25)
    assert verify(path).sound
    assert StoredBlocks(path).kind == "ck"


def test_a_store_opened_for_reading_is_not_written(tmp_path: Path) -> None:
    stored = compute(problems.source(50), tmp_path / "K.zarr", tile=25)
    with pytest.raises(InputError):
        stored.store.write((0, 0), np.zeros((25, 25)))
    assert verify(tmp_path / "K.zarr").sound


# --- links ----------------------------------------------------------------------------------


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "thesis.tex"
    path.parent.mkdir()
    path.write_text("mine")
    return path


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_lock_that_is_a_link_is_refused(link: Callable[[Path, Path], None], victim: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "new.zarr", tmp_path / "K.zarr"):
        if path.name == "K.zarr":
            compute(problems.source(50), path, tile=25)
            (path / ".lock").unlink()
        else:
            path.mkdir()
        link(victim, path / ".lock")
        with pytest.raises(InputError, match=r"\.lock is a link or a directory, not the lock of a store; delete it"):
            compute(problems.source(50), path)
        assert victim.read_text() == "mine"


def test_links_within_a_store_are_not_followed_for_writing(victim: Path, tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    compute(problems.source(50), path, tile=16)
    expected = problems.contents(path)
    outside = [victim.parent / name for name in (f".0.{32 * 'a'}.partial", "1.12.34.partial")]
    for file in outside:
        file.write_text("mine")
    # tiles, the owner's name, leftovers, and a row of tiles that are links out of the store
    for name in ("c/0/1", ".writer", f".zarr.json.{32 * 'b'}.partial", f"c/0/.2.{32 * 'c'}.partial"):
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to(victim)
    (path / "c/9").symlink_to(victim.parent)
    compute(problems.source(50), path)
    assert problems.contents(path) == expected
    assert not (path / "c/0/1").is_symlink()
    shutil.rmtree(path / "c/1")
    (path / "c/1").symlink_to(victim.parent)
    with pytest.raises(InputError, match=r"c/1 is a link, and nothing is written outside the store; delete it"):
        compute(problems.source(50), path)
    shutil.rmtree(path / "c")
    (path / "c").symlink_to(victim.parent)
    with pytest.raises(InputError, match=r"K\.zarr/c is a link, and nothing is written outside the store; delete it"):
        compute(problems.source(50), path)
    (path / "c").unlink()
    (path / "zarr.json").unlink()
    (path / "zarr.json").symlink_to(victim.parent / "new")
    with pytest.raises(InputError, match=r"holds other files \(zarr\.json\)"):
        compute(problems.source(50), path, tile=16)
    assert sorted(victim.parent.iterdir()) == sorted([victim, *outside])
    assert all(file.read_text() == "mine" for file in (victim, *outside))


@pytest.mark.parametrize("name", [".lock", ".writer", "zarr.json", "c/0/1"])
def test_a_pipe_or_a_directory_within_a_store_is_no_trap(name: str, tmp_path: Path) -> None:
    for make in (os.mkfifo, os.mkdir):
        path = tmp_path / f"{make.__name__}.zarr"
        compute(problems.source(50), path, tile=25)
        (path / name).unlink(missing_ok=True)
        make(path / name)
        with pytest.raises(InputError):
            compute(problems.source(50), path)
        if name == "c/0/1":
            assert verify(path).damaged == ((0, 1),)
            with pytest.raises(DamagedTileError, match=r"tile \(0, 1\) is a directory or a device; delete it"):
                StoredBlocks(path).to_numpy()


def test_a_store_of_another_kernel_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    compute(problems.source(50), path, tile=16)
    left = [path / f".zarr.json.{32 * 'a'}.partial", path / "c/0" / f".1.{32 * 'a'}.partial"]
    for file in (*left, path / ".lock"):
        file.write_text("left")
    before = {file: file.stat().st_mtime_ns for file in (path, *path.rglob("*"))}
    for refused in ({"kind": "ck"}, {"n": 51}):
        with pytest.raises(InputError, match="holds another kernel"):
            compute(problems.source(**{"n": 50, **refused}), path)
    assert {file: file.stat().st_mtime_ns for file in (path, *path.rglob("*"))} == before
    compute(problems.source(50), path)
    assert not any(file.exists() for file in left)


def test_a_row_of_tiles_that_becomes_a_link_under_its_writer(tmp_path: Path) -> None:
    path, mine = tmp_path / "K.zarr", tmp_path / "mine"
    mine.mkdir()
    (mine / "2").write_text("mine")
    source = problems.source(50)
    compute(source, path, tile=16)
    kept = TileStore(path)
    with TileStore.writing(path, kept.shape, kept.tile, kept.dtype, kept.manifest) as store:
        tile = store.read((1, 2))
        shutil.rmtree(path / "c/1")
        (path / "c/1").symlink_to(mine)
        with pytest.raises(InputError, match="c/1 is a link, and nothing is written outside the store"):
            store.write((1, 2), tile)
    assert [(file.name, file.read_text()) for file in mine.iterdir()] == [("2", "mine")]


# --- without fcntl, as on Windows; without the extras ---------------------------------------------

BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
for name in {blocked!r}:
    sys.modules.pop(name, None)
"""


def test_without_fcntl_a_store_is_written_locked_and_freed_by_a_kill(tmp_path: Path) -> None:
    X, path = tmp_path / "X.npy", tmp_path / "K.zarr"
    np.save(X, problems.samples(100))
    code = (
        BLOCKED.format(blocked=["fcntl"])
        + """
import time
from notsodeep.scale import compute, verify
from notsodeep.scale.lock import file_locks
filelock = file_locks()
assert filelock.FileLock is filelock.SoftFileLock, "not a platform without fcntl"
import numpy as np
import notsodeep as nsd
source = nsd.kernels.kernel_matrix(nsd.DEQ("relu", 0.2, 0.8), np.load(sys.argv[1]), kind="ntk")
def stop(done, total):
    print(done, flush=True)
    time.sleep(600 if done == 3 and "stop" in sys.argv else 0)
try:
    compute(source, sys.argv[2], tile=25, progress=stop)
    print(verify(sys.argv[2]))
except ValueError as error:
    print(error)
"""
    )
    first = problems.start(code, X, path, "stop")
    try:
        assert first.stdout is not None
        while first.stdout.readline().strip() != "3":
            assert first.poll() is None, first.communicate()
        out, err = problems.start(code, X, path).communicate()
        assert f"is being written by process {first.pid} on" in out, err
    finally:
        first.kill()
        first.communicate()
    out, err = problems.start(code, X, path).communicate()
    assert "all 10 tiles are there and sound" in out, err
    assert "soft file lock" not in err
    assert not {file.name for file in path.iterdir()} - {".lock", "c", "zarr.json"}
    nsd.DEQ("relu", 0.2, 0.8).kernel(np.load(X), kind="ntk", out=tmp_path / "plain.zarr", tile=25)
    assert problems.contents(path) == problems.contents(tmp_path / "plain.zarr")


@pytest.mark.parametrize("package", ["filelock", "google_crc32c"])
def test_a_missing_extra_leaves_nothing_behind(package: str, tmp_path: Path) -> None:
    code = (
        BLOCKED.format(blocked=[package])
        + """
import numpy as np
import notsodeep as nsd
try:
    nsd.DEQ("relu", 0.2, 0.8).kernel(np.eye(3), out=sys.argv[1])
except nsd.MissingExtraError as error:
    print(error)
"""
    )
    out, err = problems.start(code, tmp_path / "K.zarr").communicate()
    assert f'need {package}; pip install "notsodeep[scale]"' in out, err
    assert len(out.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_modules_of_this_room_need_no_posix() -> None:
    code = (
        BLOCKED.format(blocked=["fcntl", "resource", "pwd", "grp", "termios"])
        + """
import importlib, importlib.util, pkgutil
import notsodeep
def optional(name):
    assert importlib.util.find_spec("torch") is None, name
for module in pkgutil.walk_packages(notsodeep.__path__, "notsodeep.", onerror=optional):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except notsodeep.MissingExtraError:
            optional(module.name)
print("all")
"""
    )
    out, err = problems.start(code).communicate()
    assert out == "all\n", err
