"""The user's files and folders of images, tables, and mixtures that are drawn.

Also covers: data/mixtures.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.image_files import COLOR, GREY, cifar_files, idx_files, write

import notsodeep as nsd
from notsodeep import data


@pytest.mark.parametrize("compress", [False, True])
def test_idx_file_and_folder(tmp_path: Path, compress: bool) -> None:
    folder = write(tmp_path / "mine", idx_files(GREY), compress=compress)
    ending = ".gz" if compress else ""
    one = data.load(folder / f"train-images-idx3-ubyte{ending}")
    both = data.load(folder)
    for loaded in (one, both):
        assert loaded.X.dtype == np.float32
        assert loaded.image_shape == (4, 5, 1)
        np.testing.assert_array_equal(loaded.images, (GREY.images / 255).astype(np.float32))
        np.testing.assert_array_equal(loaded.labels, GREY.labels)
    assert one.X_test is None
    np.testing.assert_array_equal(both.images_test, (GREY.images_test / 255).astype(np.float32))
    np.testing.assert_array_equal(both.labels_test, GREY.labels_test)
    with pytest.raises(nsd.InputError, match="holds labels"):
        data.load(folder / f"train-labels-idx1-ubyte{ending}")
    (folder / f"train-labels-idx1-ubyte{ending}").unlink()
    assert data.load(folder / f"train-images-idx3-ubyte{ending}").labels is None
    if compress:
        file = folder / "train-images-idx3-ubyte.gz"
        file.write_bytes(file.read_bytes()[:-20])
        with pytest.raises(nsd.InputError, match="damaged"):
            data.load(file)


def test_cifar_file_and_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", cifar_files(COLOR))
    one, both = data.load(folder / "data_batch_2.bin"), data.load(folder)
    np.testing.assert_array_equal(one.images, (COLOR.images[4:8] / 255).astype(np.float32))
    np.testing.assert_array_equal(both.images, (COLOR.images / 255).astype(np.float32))
    np.testing.assert_array_equal(both.labels, COLOR.labels)
    np.testing.assert_array_equal(both.images_test, (COLOR.images_test / 255).astype(np.float32))
    assert np.shares_memory(both.images, both.X)


def test_other_files(tmp_path: Path) -> None:
    images = np.random.default_rng(0).normal(size=(3, 2, 4, 3))
    np.savez(tmp_path / "a.npz", X=images, y=[0, 1, 0], X_test=images[:1], y_test=[1])
    loaded = data.load(tmp_path / "a.npz")
    np.testing.assert_array_equal(loaded.images, images)
    assert loaded.X.shape == (3, 24)
    assert loaded.images_test is not None
    assert loaded.images_test.shape == (1, 2, 4, 3)
    np.savez(tmp_path / "objects.npz", X=np.array([[{}]], dtype=object))
    np.savez(tmp_path / "labels.npz", X=images, y=np.array([{}, 1, 2], dtype=object))
    np.savez(tmp_path / "sizes.npz", X=images, X_test=images[:, :1])
    np.savez(tmp_path / "only_labels.npz", X=images, y_test=[1])
    (tmp_path / "short.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:-50])
    (tmp_path / "empty").mkdir()
    cases = {
        "short.npz": "cannot be read",
        "objects.npz": "cannot be read",  # it would need pickle
        "labels.npz": "cannot be read",
        "sizes.npz": "two sizes",
        "only_labels.npz": "0 samples but labels",
        "empty": "has neither",
    }
    for name, message in cases.items():
        with pytest.raises(nsd.InputError, match=message):
            data.load(tmp_path / name)
    with pytest.raises(nsd.InputError, match="does not hold images"):
        data.load("gaussian-mixture:n=4,p=30").images  # noqa: B018


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    table = {"one": [1, 2, 3], "Target": ["a", "b", "a"], "two": [0.5, 1.5, 2.5]}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    loaded = data.load(tmp_path / "a.parquet")
    np.testing.assert_array_equal(loaded.X, [[1, 0.5], [2, 1.5], [3, 2.5]])
    assert loaded.labels is not None
    assert loaded.labels.tolist() == ["a", "b", "a"]
    assert loaded.labels.dtype.kind == "U"
    parquet.write_table(pyarrow.table({"one": ["x"]}), tmp_path / "b.parquet")
    (tmp_path / "c.parquet").write_bytes(b"nothing")
    parquet.write_table(pyarrow.table({"one": [1], "y": ["x"]}).slice(0, 0), tmp_path / "d.parquet")
    for name, message in (("b", "does not hold numbers"), ("c", "cannot be read"), ("d", "is empty")):
        with pytest.raises(nsd.InputError, match=message):
            data.load(tmp_path / f"{name}.parquet")


def write_parquet(path: Path, **columns: Any) -> Path:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


def test_large_labels_of_parquet_stay_apart(tmp_path: Path) -> None:
    """Neighbours above 2**53 are one number in float64."""
    from sklearn.utils.multiclass import type_of_target

    pyarrow = pytest.importorskip("pyarrow")
    for given, kind in (([1, 2**63, 2**63 + 1], "u"), ([0, 2**53, 2**53 + 1], "i")):
        labels = pyarrow.array(given, pyarrow.uint64())
        found = data.load(write_parquet(tmp_path / "a.parquet", one=[0.5, 1.5, 2.5], label=labels)).labels
        assert found is not None
        assert (found.tolist(), found.dtype.kind) == (given, kind)
        assert type_of_target(found) == "multiclass"


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        ("string", "U", ["ä", "", "bcd", "ä", "e"]),
        ("large_string", "U", ["ä", "", "bcd", "ä", "e"]),
        ("int8", "i", [-1, 3, 3, 2, 0]),
        ("float", "f", [0.5, 1.5, 0.5, 0.25, 0]),
        ("bool", "b", [True, False, True, True, False]),
    ],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_labels_of_parquet(given: str, kind: str, expected: list[Any], encoded: bool, tmp_path: Path) -> None:
    """Of every type, in several row groups with words of their own, and of categories as pandas writes them."""
    pyarrow = pytest.importorskip("pyarrow")
    labels = pyarrow.array(expected, type=pyarrow.type_for_alias(given))
    labels = labels.dictionary_encode() if encoded and given != "bool" else labels
    path = write_parquet(tmp_path / "a.parquet", label=labels, two=[1, 2, 3, 4, 5])
    found = data.load(path)
    assert found.labels is not None
    assert (found.labels.tolist(), found.labels.dtype.kind) == (expected, kind)
    np.testing.assert_array_equal(found.X, [[1], [2], [3], [4], [5]])


def test_columns_of_parquet_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for label in (["a", None], [1, None], [None, None]):
        with pytest.raises(nsd.InputError, match=r"column 'label' of a\.parquet has missing labels"):
            data.load(write_parquet(path, one=[1, 2], label=label))
    for label, kind in (([b"a", b"b"], "binary"), ([[1], [2]], "list"), ([{"b": "x"}, {"b": "y"}], "struct")):
        with pytest.raises(nsd.InputError, match=f"a.parquet holds labels of type {kind}.*; pass numbers or text"):
            data.load(write_parquet(path, one=[1, 2], label=label))
    for feature in ([True, None], [[1], [2]], [{"b": 1}, {"b": 2}], [None, None]):
        with pytest.raises(nsd.InputError, match=r"column 'one' of a\.parquet does not hold numbers"):
            data.load(write_parquet(path, one=feature, label=[1, 2]))


def test_parquet_columns_of_one_name(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = [[1, 2], [3, 4], [5, 6], [7, 8], ["u", "v"]]
    table = pyarrow.table([pyarrow.array(one) for one in columns], names=["a.b", "c", "a", "c", "a.y"])
    parquet.write_table(table, tmp_path / "a.parquet")
    found = data.load(tmp_path / "a.parquet", label="a.y")
    np.testing.assert_array_equal(found.X, np.transpose(columns[:4]))
    assert found.labels is not None
    assert found.labels.tolist() == ["u", "v"]
    table = pyarrow.table([pyarrow.array(columns[4]), pyarrow.array(columns[0])], names=["y", "y"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(nsd.InputError, match="has two columns called 'y'; rename one"):
        data.load(tmp_path / "a.parquet")


def test_gaussian_mixture() -> None:
    drawn = data.load("gaussian-mixture:n=4000, p=64, classes=3, seed=5, test=30")
    assert drawn.X_test is not None
    assert (drawn.X.shape, drawn.X_test.shape) == ((4000, 64), (30, 64))
    assert drawn.source == "drawn: gaussian-mixture:n=4000,p=64,classes=3,seed=5,test=30"
    assert drawn.labels is not None
    for a in range(3):
        cloud = np.sqrt(64) * drawn.X[drawn.labels == a]
        mean = np.zeros(64)
        mean[8 * a] = 8
        np.testing.assert_allclose(cloud.mean(axis=0), mean, atol=0.3)
        assert cloud.var(axis=0).mean() == pytest.approx(1 + 8 * a / 8, rel=0.03)
    np.testing.assert_array_equal(drawn.X, data.load(drawn.source.removeprefix("drawn: ")).X)
    assert data.load("Gaussian_Mixture").X.shape == (800, 1000)
    for settings, message in (("m=3", "no setting 'm'"), ("n=x", "must look like"), ("n=0", "n=0"), ("p=8", "p=8")):
        with pytest.raises(nsd.InputError, match=message):
            data.load(f"gaussian-mixture:{settings}")
