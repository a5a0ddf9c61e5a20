"""Kernels on disk: what is written is what is computed, in a format others read, and wrong use is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.command_line import Run
from tests.scale import problems

import notsodeep as nsd
from notsodeep import InputError
from notsodeep.kernels import kernel_matrix
from notsodeep.kernels.conv import ConvBlocks
from notsodeep.kernels.matrices import side
from notsodeep.scale import DamagedTileError, StoredBlocks, compute, verify
from notsodeep.scale.store import TileStore


def test_a_store_knows_the_blocks_that_are_pooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conv, path = nsd.ConvDEQ("normalized_relu", 0.65, 0.35), tmp_path / "conv.zarr"
    images = np.random.default_rng(0).standard_normal((10, 4, 4, 2))

    def stored(path: Path, **options: Any) -> StoredBlocks:
        return conv.kernel(images, kind="ntk", out=path, tile=4, **options)

    expected = conv.kernel(images, kind="ntk", readout="average_pool", pool=2)
    np.testing.assert_allclose(stored(path, readout="average_pool", pool=2).to_numpy(), expected, rtol=1e-12)
    assert stored(path, readout="average_pool", pool=2).reused == 6
    for pool, shown in ((1, "1"), (None, "null")):
        with pytest.raises(InputError, match=f"holds another kernel: pool 2 → {shown}"):
            stored(path, readout="average_pool", pool=pool)
    with monkeypatch.context() as earlier:  # stores from before there were blocks
        earlier.setattr(ConvBlocks, "options", {"depth": None, "readout": "flatten"})
        stored(tmp_path / "old.zarr")
    assert stored(tmp_path / "old.zarr").reused == 6


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", [problems.DEQ, nsd.DEQ("gelu", 0.2, 0.8), nsd.Explicit(["relu", "tanh"])], ids=str)
def test_the_store_holds_the_kernel(model: nsd.DEQ, dtype: str, tmp_path: Path) -> None:
    X, Y = problems.samples(70), problems.samples(45, seed=1)
    for second in (None, Y):
        path = tmp_path / f"{second is None}.zarr"
        stored = compute(kernel_matrix(model, X, second, kind="ntk", dtype=dtype), path, tile=16)
        expected = model.kernel(X, second, kind="ntk", dtype=dtype)
        tolerance = 1e-12 if dtype == "float64" else 1e-5
        np.testing.assert_allclose(stored.to_numpy(), expected, rtol=tolerance, atol=tolerance)
        assert stored.dtype == dtype
        assert stored.symmetric == (second is None)
        assert stored.shape == expected.shape
        assert stored.kind == "ntk"
        assert stored.model == model
        assert verify(path).sound


def test_only_the_upper_triangle_is_written_and_zarr_reads_it(tmp_path: Path) -> None:
    stored = compute(problems.source(50), tmp_path / "K.zarr", tile=16)
    written = {tuple(map(int, file.parts[-2:])) for file in (tmp_path / "K.zarr" / "c").glob("*/*")}
    assert written == {(i, j) for i in range(4) for j in range(i, 4)}
    foreign = zarr.open_array(tmp_path / "K.zarr", mode="r")[:]
    upper = np.triu_indices(50)
    assert np.array_equal(foreign[upper], stored.to_numpy()[upper])
    assert np.isnan(foreign[48, 0])  # what was not written is not zero


def test_kernel_writes_to_a_path(tmp_path: Path) -> None:
    X = problems.samples(30)
    stored, info = problems.DEQ.kernel(X, kind="ntk", out=tmp_path / "K.zarr", return_info=True)
    assert isinstance(stored, StoredBlocks)
    assert info.method == "polynomial"
    np.testing.assert_allclose(np.asarray(stored), problems.DEQ.kernel(X, kind="ntk"), rtol=1e-13)
    again = problems.DEQ.kernel(X, kind="ntk", out=str(tmp_path / "K.zarr"))
    assert np.array_equal(again.to_numpy(), stored.to_numpy())
    with pytest.raises(InputError, match="one kind at a time"):
        problems.DEQ.kernel(X, kind=("ck", "ntk"), out=tmp_path / "two.zarr")
    assert not (tmp_path / "two.zarr").exists()
    with pytest.raises(InputError, match=r'pass out="K.zarr"'):
        problems.DEQ.kernel(X, client=object())


slices = st.one_of(
    st.integers(-60, 59), st.slices(60).filter(lambda s: s.step is None or s.step != 0), st.just(slice(None))
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredBlocks:
    return compute(problems.source(60), tmp_path_factory.mktemp("store") / "K.zarr", tile=16)


@settings(max_examples=60)
@given(rows=slices, columns=slices)
def test_indexing_is_that_of_numpy(stored: StoredBlocks, rows: int | slice, columns: int | slice) -> None:
    whole = stored.to_numpy()
    assert np.array_equal(stored[rows, columns], whole[rows, columns])
    assert np.array_equal(stored[rows], whole[rows])


def test_reading_obeys_the_protocol_of_blocks(stored: StoredBlocks) -> None:
    whole = stored.to_numpy()
    assert np.array_equal(whole, whole.T)
    assert np.array_equal(stored.diagonal(), whole.diagonal())
    out = np.empty((13, 40))
    assert stored.block(slice(7, 20), slice(10, 50), out) is out
    assert np.array_equal(out, whole[7:20, 10:50])
    single = stored.astype("float32")
    assert single.dtype == np.float32
    assert np.array_equal(single[3:9], whole[3:9].astype(np.float32))
    assert np.array_equal(pickle.loads(pickle.dumps(stored))[5], whole[5])
    lazy = stored.dask_array()
    assert lazy.chunksize == stored.tile
    assert np.array_equal(lazy.compute(scheduler="threads"), whole)
    with pytest.raises(IndexError, match="integers and slices"):
        stored[[1, 2]]
    with pytest.raises(IndexError, match="out of bounds"):
        stored[60]
    assert len(stored) == 60
    assert "60 × 60" in repr(stored)


def test_bits_do_not_depend_on_threads_or_on_who_asks(tmp_path: Path) -> None:
    # with two BLAS threads these products round differently, so the store must not use them
    code = (
        "import sys; from tests.scale import problems; from notsodeep.scale import compute;"
        "from notsodeep.kernels import kernel_matrix;"
        "compute(kernel_matrix(problems.DEQ, problems.samples(1500, 784), kind='ntk'), sys.argv[1], tile=700)"
    )
    for threads in (1, 2):
        process = problems.start(code, tmp_path / f"{threads}.zarr", threads=threads)
        errors = process.communicate()[1]
        assert process.returncode == 0, errors
    assert problems.contents(tmp_path / "1.zarr") == problems.contents(tmp_path / "2.zarr")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"kind": "ck"}, "kind ntk → ck"),
        ({"dtype": "float32"}, "dtype float64 → float32"),
        ({"depth": 3}, "depth null → 3"),
        ({"n": 51}, "shape"),
    ],
    ids=str,
)
def test_another_kernel_is_refused(other: dict[str, object], named: str, tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    compute(problems.source(50), path, tile=16)
    before = problems.contents(path)
    with pytest.raises(
        InputError, match=r"^K\.zarr holds another kernel: .*; pass another out, or delete it$"
    ) as refusal:
        compute(problems.source(**{"n": 50, **other}), path)
    assert named in str(refusal.value)
    assert len(str(refusal.value)) < 200
    assert problems.contents(path) == before


def test_other_data_model_tile_or_version_is_refused(tmp_path: Path) -> None:
    path, X = tmp_path / "K.zarr", problems.samples(50)
    compute(problems.source(50), path, tile=16)
    changed = X.copy()
    changed[17, 3] = np.nextafter(changed[17, 3], 1)
    with pytest.raises(InputError, match=r"kernel: data [0-9a-f]{10} → [0-9a-f]{10}; pass"):
        compute(kernel_matrix(problems.DEQ, changed, kind="ntk"), path)
    with pytest.raises(InputError, match=r"kernel: model\.recurrent 0\.25 → 0\.3; pass"):
        compute(kernel_matrix(nsd.DEQ("normalized_relu", 0.3, 0.25, 0.5), X, kind="ntk"), path)
    with pytest.raises(InputError, match=r"kernel: model\.activation 1\.41421·relu\(x\) → tanh\(x\); pass"):
        compute(kernel_matrix(nsd.DEQ("tanh", 0.25, 0.25, 0.5), X, kind="ntk"), path)
    with pytest.raises(InputError, match=r"kernel: model\.activation\.scale 1\.4142\d* → 1\.4142\d*; pass"):
        compute(
            kernel_matrix(nsd.DEQ((1 + 1e-9) * nsd.activation("normalized_relu"), 0.25, 0.25, 0.5), X, kind="ntk"), path
        )
    with pytest.raises(InputError, match="tile"):
        compute(problems.source(50), path, tile=17)
    described = json.loads((path / "zarr.json").read_text())
    described["attributes"]["notsodeep"]["version"] = "0.0.0"
    (path / "zarr.json").write_text(json.dumps(described))
    with pytest.raises(InputError, match=r"version 0\.0\.0 → \d"):
        compute(problems.source(50), path)
    described["attributes"]["notsodeep"]["format"] = 99
    (path / "zarr.json").write_text(json.dumps(described))
    with pytest.raises(InputError, match="format 99"):
        StoredBlocks(path)


def test_what_is_not_a_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        compute(problems.source(), tmp_path / "file")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match=r"other files \(thesis\.tex\)"):
        compute(problems.source(), tmp_path / "work")
    with pytest.raises(InputError, match="does not exist"):
        compute(problems.source(), tmp_path / "no" / "K.zarr")
    with pytest.raises(InputError, match="not a kernel store"):
        verify(tmp_path / "absent.zarr")
    (tmp_path / "work" / "zarr.json").write_text('{"zarr_format": 3, "shape": [1]}')
    with pytest.raises(InputError, match="not written by notsodeep"):
        StoredBlocks(tmp_path / "work")
    with pytest.raises(InputError, match="tile=0"):
        compute(problems.source(), tmp_path / "K.zarr", tile=0)


def test_files_of_others_are_never_deleted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "c" / "0").mkdir(parents=True)
    for name in ("thesis.partial", "c/0/chapter.partial"):
        (home / name).write_text("mine")
    before = sorted(home.rglob("*"))
    with pytest.raises(InputError, match="holds other files"):
        compute(problems.source(), home)
    (home / "zarr.json").write_text('{"zarr_format": 3, "shape": [1]}')
    with pytest.raises(InputError, match="not written by notsodeep"):
        compute(problems.source(), home)
    assert sorted(home.rglob("*")) == sorted([*before, home / "zarr.json"])


def test_a_kill_before_the_first_tile_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    path.mkdir()
    (path / f".zarr.json.{32 * 'a'}.partial").write_text('{"zarr')
    assert compute(problems.source(20), path).shape == (20, 20)
    assert not list(path.glob("*.partial"))


def test_links(tmp_path: Path) -> None:
    stored = compute(problems.source(20), tmp_path / "K.zarr")
    (tmp_path / "link.zarr").symlink_to("K.zarr")
    np.testing.assert_array_equal(compute(problems.source(20), tmp_path / "link.zarr")[:], stored[:])
    (tmp_path / "loose.zarr").symlink_to("gone")
    with pytest.raises(InputError, match="is a link to nothing, not a directory"):
        compute(problems.source(20), tmp_path / "loose.zarr")


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [50]},
        {"shape": [-5, -5]},
        {"shape": "50"},
        {"data_type": "int32"},
        {"chunk_grid": {"configuration": {"chunk_shape": [0, 0]}}},
        {"attributes": []},
    ],
    ids=str,
)
def test_an_edited_description_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "K.zarr"
    compute(problems.source(20), path)
    described = json.loads((path / "zarr.json").read_text())
    (path / "zarr.json").write_text(json.dumps(described | change))
    with pytest.raises(InputError, match="not a kernel store"):
        verify(path)


def test_a_directory_in_place_of_a_tile(tmp_path: Path) -> None:
    stored = compute(problems.source(20), tmp_path / "K.zarr", tile=16)
    stored.store.file((0, 1)).unlink()
    stored.store.file((0, 1)).mkdir()
    with pytest.raises(DamagedTileError, match=r"tile \(0, 1\) is a directory"):
        stored.to_numpy()
    assert verify(tmp_path / "K.zarr").damaged == ((0, 1),)


def test_a_python_function_cannot_be_remembered(tmp_path: Path) -> None:
    model = nsd.DEQ(nsd.activation(np.arctan), 0.2, 0.8)
    with pytest.raises(InputError, match="Python function"):
        compute(kernel_matrix(model, problems.samples(20)), tmp_path / "K.zarr")
    assert not (tmp_path / "K.zarr").exists()


@given(n=st.integers(1, 10**7))
def test_tiles_are_even(n: int) -> None:
    length = side(n)
    tiles = -(-n // length)
    assert tiles <= -(-n // 2048)
    assert length <= 2048
    assert tiles * length - n <= 16 * tiles + length * (n <= 2048)


def test_the_grid_covers_the_matrix_once(tmp_path: Path) -> None:
    for triangle, keep in (("full", lambda i, j: True), ("upper", lambda i, j: i <= j), ("lower", lambda i, j: i >= j)):
        description = (50, 50), (16, 16), "float64", {"triangle": triangle}
        with TileStore.writing(tmp_path / triangle, *description) as store:
            for tile in store.tiles():
                store.write(tile, np.zeros((16, 16)))
        covered = np.zeros((50, 50), int)
        for tile in store.tiles():
            covered[store.span(tile)] += 1
        expected = np.array([[keep(i // 16, j // 16) for j in range(50)] for i in range(50)])
        assert np.array_equal(covered, expected)


def test_the_commands(tmp_path: Path, run: Run) -> None:
    X, path = tmp_path / "X.npy", tmp_path / "K.zarr"
    np.save(X, problems.samples(60))
    code, out, _ = run("kernel", X, "--kind", "ntk", "--out", path, "--tile", 25, "--json")
    assert code == 0
    assert json.loads(out)["shape"] == [60, 60]
    assert json.loads(out)["tiles"] == {"total": 6, "reused": 0, "computed": 6}
    assert np.isclose(json.loads(out)["trace"], np.trace(StoredBlocks(path).to_numpy()))
    code, out, _ = run("verify", path)
    assert (code, "all 6 tiles are there and sound" in out) == (0, True)
    data = bytearray((path / "c/0/1").read_bytes())
    data[5] ^= 1
    (path / "c/0/1").write_bytes(data)
    code, out, _ = run("verify", path)
    assert (code, "damaged: tile (0, 1)" in out) == (1, True)
    code, out, _ = run("verify", path, "--json")
    assert (code, json.loads(out)["damaged"]) == (1, [[0, 1]])
    code, _, err = run("kernel", X, "--kind", "ck", "--out", path)
    assert (code, "kind ntk → ck; pass another out" in err, len(err.splitlines())) == (2, True, 1)
    code, out, _ = run("kernel", X, "--kind", "ntk", "--out", path)
    assert (code, out.splitlines()[-1]) == (0, "tiles: 5 of 6 there already, 1 computed")
    assert run("verify", path)[0] == 0
    code, out, _ = run("kernel", X, "--kind", "ntk", "--out", path)
    assert (code, out.splitlines()[-1]) == (0, "tiles: 6 of 6 there already, nothing left to compute")
    for wrong, named in (
        (("--out", path, "--force"), "delete"),
        (("--out", tmp_path / "K.npy", "--tile", 25), "for a .zarr directory"),
        (("--out", tmp_path / "K.txt"), "must end in .npy or .zarr"),
    ):
        code, _, err = run("kernel", X, *wrong)
        assert (code, named in err, len(err.splitlines())) == (2, True, 1)
    assert run("verify", tmp_path / "absent.zarr")[0] == 2
