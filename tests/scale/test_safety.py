"""A store is written only where it was locked, only by its own kernel, and a tile is read only where it belongs.

Also covers: scale/lock.py, scale/tiles.py.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
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


# --- a tile knows where it belongs --------------------------------------------------------------


def swapped(path: Path) -> list[tuple[int, int]]:
    first, second = (path / "c/0/1").read_bytes(), (path / "c/1/2").read_bytes()
    (path / "c/0/1").write_bytes(second)
    (path / "c/1/2").write_bytes(first)
    return [(0, 1), (1, 2)]


def copied(path: Path) -> list[tuple[int, int]]:
    other = path.with_name("other.zarr")
    compute(problems.source(100, kind="ck"), other, tile=25)
    shutil.copy(other / "c/0/1", path / "c/0/1")
    return [(0, 1)]


def edited(path: Path) -> list[tuple[int, int]]:
    described = json.loads((path / "zarr.json").read_text())
    described["attributes"]["notsodeep"]["model"]["recurrent"] = 0.26
    (path / "zarr.json").write_text(json.dumps(described))
    return [(i, j) for i in range(4) for j in range(i, 4)]


def reshaped(path: Path) -> list[tuple[int, int]]:
    described = json.loads((path / "zarr.json").read_text())
    described["shape"] = [99, 99]
    (path / "zarr.json").write_text(json.dumps(described))
    return [(i, j) for i in range(4) for j in range(i, 4)]


@pytest.mark.parametrize("harm", [swapped, copied, edited, reshaped])
def test_tiles_of_another_place_or_kernel_are_found(
    harm: Callable[[Path], list[tuple[int, int]]], tmp_path: Path
) -> None:
    path = tmp_path / "K.zarr"
    whole = compute(problems.source(100), path, tile=25).to_numpy()
    expected = problems.contents(path)
    wrong = harm(path)
    found = verify(path)
    assert (found.damaged, found.missing) == (tuple(wrong), ())
    with pytest.raises(DamagedTileError, match=r"tile \(0, 1\) is of another place or another kernel"):
        StoredBlocks(path).block(slice(0, 5), slice(30, 35))
    if harm in (swapped, copied):
        compute(problems.source(100), path)  # the same command mends it
        assert problems.contents(path) == expected
        assert np.array_equal(np.triu(zarr.open_array(path, mode="r")[:]), np.triu(whole))


def test_tiles_of_a_factor_are_bound_too(tmp_path: Path) -> None:
    path = tmp_path / "L.zarr"
    StoredFactor.of(problems.source(100), 0.1, path, tile=25)
    expected = problems.contents(path)
    first, second = (path / "c/1/0").read_bytes(), (path / "c/2/0").read_bytes()
    (path / "c/1/0").write_bytes(second)
    (path / "c/2/0").write_bytes(first)
    assert verify(path).damaged == ((1, 0), (2, 0))
    with pytest.raises(DamagedTileError):
        StoredFactor(path).solve(np.ones(100))
    StoredFactor.of(problems.source(100), 0.1, path, tile=25)
    assert problems.contents(path) == expected
    described = json.loads((path / "zarr.json").read_text())
    described["attributes"]["notsodeep"]["added"] = 0.2
    (path / "zarr.json").write_text(json.dumps(described))
    assert len(verify(path).damaged) == 10


def test_attributes_of_others_are_no_edit(tmp_path: Path) -> None:
    compute(problems.source(50), tmp_path / "K.zarr", tile=25)
    zarr.open_array(tmp_path / "K.zarr", mode="r+").attrs["title"] = "mine"
    assert verify(tmp_path / "K.zarr").sound


@pytest.mark.parametrize(
    ("within", "name", "value", "said"),
    [
        ((), "note", "mine", "note mine → null"),
        (("model",), "note", 1, "model.note 1 → null"),
        (("model",), "activation", {"name": "x"}, r'model.activation \{"name": "x"\} → '),
    ],
)
def test_a_manifest_with_more_in_it_is_not_continued(
    tmp_path: Path, within: tuple[str, ...], name: str, value: Any, said: str
) -> None:
    path = tmp_path / "K.zarr"
    compute(problems.source(50), path, tile=16)
    described = json.loads((path / "zarr.json").read_text())
    place = described["attributes"]["notsodeep"]
    for key in within:
        place = place[key]
    place[name] = value
    (path / "zarr.json").write_text(json.dumps(described))
    before = problems.contents(path)
    with pytest.raises(InputError, match=f"K.zarr holds another kernel: .*{said}"):
        compute(problems.source(50), path)
    assert problems.contents(path) == before


# --- what notsodeep 0.1 wrote ---------------------------------------------------------------------


def as_in_format_1(path: Path) -> None:
    """Take away what format 2 added: the shard's index and the bound checksum."""
    described = json.loads((path / "zarr.json").read_text())
    described["attributes"]["notsodeep"]["format"] = 1
    described["codecs"] = described["codecs"][0]["configuration"]["codecs"]
    (path / "zarr.json").write_text(json.dumps(described))
    for tile in path.glob("c/*/*"):
        tile.write_bytes(tile.read_bytes()[:-52])


def test_a_store_of_format_1_is_read_and_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    whole = compute(problems.source(50), path, tile=16).to_numpy()
    as_in_format_1(path)
    assert np.array_equal(np.triu(zarr.open_array(path, mode="r")[:]), np.triu(whole))  # it is what zarr expects
    assert np.array_equal(StoredBlocks(path).to_numpy(), whole)
    found = verify(path)
    assert found.sound
    assert not found.bound
    assert "sound" not in str(found)
    assert "does not bind tiles to their place and kernel" in str(found)
    before = problems.contents(path)
    with pytest.raises(InputError, match=r"holds another kernel: format 1 → 2; pass another out, or delete it"):
        compute(problems.source(50), path)
    assert problems.contents(path) == before
    data = bytearray((path / "c/0/1").read_bytes())
    data[7] ^= 1
    (path / "c/0/1").write_bytes(data)
    assert verify(path).damaged == ((0, 1),)
    factor = tmp_path / "L.zarr"
    expected = StoredFactor.of(problems.source(50), 0.1, factor, tile=16).solve(np.ones(50))
    as_in_format_1(factor)
    assert np.array_equal(StoredFactor(factor).solve(np.ones(50)), expected)


# --- manifests that promise too much -----------------------------------------------------------------


def rewritten(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    described = json.loads((path / "zarr.json").read_text())
    edit(described)
    (path / "zarr.json").write_text(json.dumps(described))


def promise(path: Path, shape: list[int], tile: list[int]) -> None:
    def edit(described: dict[str, Any]) -> None:
        described["shape"], described["chunk_grid"]["configuration"]["chunk_shape"] = shape, tile
        described["codecs"][0]["configuration"]["chunk_shape"] = tile

    rewritten(path, edit)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda d: d.update(fill_value=0.0), "its zarr.json has fill_value that notsodeep does not write"),
        (lambda d: d.update(codecs=[{"name": "bytes", "configuration": {"endian": "big"}}]), "has codecs that"),
        (lambda d: d["codecs"][0]["configuration"]["codecs"].pop(), "has codecs that"),
        (lambda d: d.pop("codecs"), "has codecs that"),
        (lambda d: d["chunk_key_encoding"]["configuration"].update(separator="."), "has chunk_key_encoding that"),
        (lambda d: d.update(storage_transformers=[{"name": "x"}]), "has storage_transformers that"),
        (lambda d: d["attributes"]["notsodeep"].update(format=True), "has format true, but"),
        (lambda d: d["attributes"]["notsodeep"].update(format=2.0), "has format 2.0, but"),
        (lambda d: d["attributes"]["notsodeep"].update(format=[2]), r"has format \[2\], but"),
    ],
)
def test_what_others_read_is_what_was_written(
    edit: Callable[[dict[str, Any]], object], said: str, tmp_path: Path
) -> None:
    """zarr trusts zarr.json alone: another filling or encoding would show it another matrix than verify sees."""
    path = tmp_path / "K.zarr"
    compute(problems.source(50), path, tile=25)
    rewritten(path, edit)
    for use in (verify, StoredBlocks, lambda path: compute(problems.source(50), path)):
        with pytest.raises(InputError, match=said):
            use(path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zarr_describes_the_array_in_the_same_words(dtype: str, tmp_path: Path) -> None:
    compute(problems.source(50, dtype=dtype), tmp_path / "K.zarr", tile=25)
    ours = json.loads((tmp_path / "K.zarr" / "zarr.json").read_text())
    memory: dict[str, Any] = {}
    zarr.create_array(
        zarr.storage.MemoryStore(memory),
        shape=(50, 50),
        chunks=(25, 25),
        shards=(25, 25),
        dtype=dtype,
        compressors=zarr.codecs.Crc32cCodec(),
        fill_value=float("nan"),
        attributes=ours["attributes"],
    )
    assert ours == json.loads(memory["zarr.json"].to_bytes())


def test_a_long_manifest_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    compute(problems.source(20), path)
    rewritten(path, lambda described: described["attributes"].update(note="x" * (17 << 20)))
    with pytest.raises(InputError, match="not written by notsodeep"):
        verify(path)


@pytest.mark.parametrize(
    ("shape", "tile", "message"),
    [
        ([10**7, 10**7], [1, 1], "describes more than 1,000,000 tiles"),
        ([10**39, 10**39], [1, 1], "describes more than 1,000,000 tiles"),
        ([10**300, 10**300], [1, 1], "zarr.json was not written by notsodeep"),
        ([20, 20], [21, 20], "its zarr.json has tiles larger than the matrix"),
        ([20, 20], [10**9, 10**9], "its zarr.json has tiles larger than the matrix"),
        ([10**9, 10**9], [10**9, 10**9], None),
        ([10**39, 10**39], [10**39, 10**39], None),
    ],
)
def test_a_manifest_that_promises_too_much(
    shape: list[int], tile: list[int], message: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "K.zarr"
    compute(problems.source(20), path)
    promise(path, shape, tile)  # to do what it promises would end in the timeout of every test
    if message is None:
        assert verify(path).damaged == ((0, 0),)
        with pytest.raises(DamagedTileError):
            StoredBlocks(path).store.read((0, 0))
    else:
        for use in (verify, StoredBlocks, lambda path: compute(problems.source(20), path)):
            with pytest.raises(InputError, match=message):
                use(path)


def test_a_tile_larger_than_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    compute(problems.source(20), path)
    promise(path, [10**6, 10**6], [10**6, 10**6])
    try:
        os.truncate(path / "c/0/0", 8 * 10**12 + 56)
    except OSError:
        pytest.skip("no sparse files of 8 TB here")
    with pytest.raises(InputError, match="a tile of 1000000 × 1000000 exceeds the memory"):
        verify(path)


def test_a_tile_with_holes_is_not_read_into_memory_that_is_not_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux gives out more memory than it has: a tile must be judged before it is read."""
    path = tmp_path / "K.zarr"
    compute(problems.source(20), path)
    promise(path, [4000, 4000], [4000, 4000])
    os.truncate(path / "c/0/0", 8 * 4000**2 + 56)
    assert verify(path).damaged == ((0, 0),)
    monkeypatch.setattr("notsodeep.scale.store.available_memory", lambda: 10**8)
    with pytest.raises(InputError, match="a tile of 4000 × 4000 exceeds the memory"):
        verify(path)


def test_a_manifest_of_great_depth(tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    compute(problems.source(20), path)
    (path / "zarr.json").write_text('{"attributes": ' + "[" * 10**5)
    for use in (verify, lambda path: compute(problems.source(20), path)):
        with pytest.raises(InputError, match="not written by notsodeep"):
            use(path)


def test_too_small_a_tile_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tile=1 makes more than 1,000,000 files; pass a larger tile"):
        compute(problems.source(1001), tmp_path / "K.zarr", tile=1)
    assert not (tmp_path / "K.zarr").exists()


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
import time, warnings
warnings.simplefilter("ignore")
from notsodeep.scale import compute, verify
import filelock
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
