"""A tile is read only where it belongs, stores of version 0.1 are read, and a manifest cannot ask for too much."""

from __future__ import annotations

import json
import os
import shutil
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


def test_a_store_that_version_0_1_wrote() -> None:
    """The tangent kernel of 12 samples in tiles of 5, written by version 0.1.0."""
    path = Path(__file__).parent / "files" / "K-0.1.zarr"
    X = np.random.default_rng(0).standard_normal((12, 4))
    expected = nsd.DEQ("relu", 0.2, 0.8).kernel(X, kind="ntk")
    np.testing.assert_allclose(StoredBlocks(path).to_numpy(), expected, rtol=1e-12)
    found = verify(path)
    assert found.sound
    assert not found.bound
    assert found.tiles == 6


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
        ([10**39, 10**39], [10**39, 10**39], "describes more than 1,000,000 tiles or 1,000,000,000 rows"),
        ([20, 10], [10, 10], "a triangle of a matrix that is not square"),
        ([20, 20], [20, 10], "a triangle of a matrix that is not square"),
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
    with pytest.raises(InputError, match="1000000 × 1000000 entries exceed the memory"):
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
    with pytest.raises(InputError, match="4000 × 4000 entries exceed the memory"):
        verify(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"triangle": "lower"}, "holds half of a kernel; compute it again"),
        ({"kind": "\x1b[31mck"}, r"kind='\\x1b\[31mck' is not known"),
        ({"kind": ["ck"]}, "is not known"),
    ],
)
def test_a_forged_kernel_whose_checksums_fit(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Checksums need no secret: what they cover is checked as well."""
    manifest = {"triangle": "full", "kind": "ck", "model": nsd.DEQ("relu", 0.2, 0.8).to_dict(), **change}
    with TileStore.writing(tmp_path / "K.zarr", (20, 20), (10, 10), np.float64, manifest) as store:
        for tile in store.tiles():
            store.write(tile, np.zeros((10, 10)))
    assert verify(tmp_path / "K.zarr").sound
    with pytest.raises(InputError, match=message):
        StoredBlocks(tmp_path / "K.zarr")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_entries_that_no_kernel_has_are_found(value: float, tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    source = problems.source(50)
    expected = compute(source, path, tile=25).to_numpy()
    kept = TileStore(path)
    with TileStore.writing(path, kept.shape, kept.tile, kept.dtype, kept.manifest) as store:
        store.write((0, 1), np.where(np.eye(25), value, kept.read((0, 1))))
        store.write((1, 1), np.where(np.eye(25), 1e308, 0.0))  # large, but numbers
    assert verify(path).damaged == ((0, 1),)
    with pytest.raises(DamagedTileError, match=r"tile \(0, 1\) holds NaN or infinite entries; compute it again"):
        StoredBlocks(path).product(np.ones((50, 1)))
    (path / "c/1/1").unlink()
    assert np.array_equal(compute(source, path).to_numpy(), expected)


def test_a_factor_is_a_lower_triangle(tmp_path: Path) -> None:
    manifest = {"triangle": "upper", "kernel": {}, "added": 0.1}
    with TileStore.writing(tmp_path / "L.zarr", (20, 20), (10, 10), np.float64, manifest):
        pass
    with pytest.raises(InputError, match="does not hold a factor"):
        StoredFactor(tmp_path / "L.zarr")


def test_a_kernel_that_exceeds_the_memory_is_read_by_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "K.zarr"
    compute(problems.source(20), path)
    promise(path, [10**9, 10**9], [10**7, 10**7])
    stored = StoredBlocks(path)
    for use in (stored.to_numpy, lambda: np.asarray(stored), lambda: stored.columns(np.arange(1000))):
        with pytest.raises(InputError, match="entries exceed the memory; read fewer at a time"):
            use()


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
