"""Loading and preparing data.

Also covers: data/preparation.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.command_line import Run

import notsodeep as nsd
from notsodeep import InputError, data

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5], [0.0, -1.0, 2.0]])


def test_digits() -> None:
    digits = data.load("digits")
    assert digits.X.shape == (1797, 64)
    assert digits.labels is not None
    assert set(digits.labels) == set(range(10))


def test_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "b.npz", X=X, y=[0, 1, 0])
    np.savetxt(tmp_path / "c.csv", X, delimiter=",")
    (tmp_path / "d.csv").write_text('one,"label",two,three\n1,"cat",2,3\n4,dog,5,6.5\n0,cat,-1,2\n')
    np.save(tmp_path / "e.npy", np.arange(6, dtype=np.int32).reshape(2, 3))
    for name, labels in (("a.npy", None), ("b.npz", [0, 1, 0]), ("c.csv", None), ("d.csv", ["cat", "dog", "cat"])):
        loaded = data.load(tmp_path / name)
        np.testing.assert_array_equal(loaded.X, X)
        assert (loaded.labels is None) if labels is None else (list(loaded.labels) == labels)
    assert data.load(str(tmp_path / "e.npy")).X.dtype == np.float64


def test_bad_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "no_x.npz", Z=X)
    np.savez(tmp_path / "short.npz", X=X, y=[1, 2])
    np.save(tmp_path / "nan.npy", np.array([[1.0, np.nan]]))
    np.save(tmp_path / "flat.npy", np.arange(3.0))
    np.save(tmp_path / "objects.npy", np.array([[{}]], dtype=object))
    (tmp_path / "words.csv").write_text("a,b\n1,two\n")
    (tmp_path / "ragged.csv").write_text("1,2\n3\n")
    (tmp_path / "broken.npy").write_bytes(b"nothing")
    (tmp_path / "empty.npy").write_bytes(b"")
    np.save(tmp_path / "cut.npy", np.ones((9, 9)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-8])
    cases = {
        "no_x.npz": "no array called 'X'",
        "short.npz": "3 samples but labels of shape (2,)",
        "nan.npy": "holds 1 NaN",
        "flat.npy": "must have 2 dimensions",
        "objects.npy": "holds Python objects",
        "words.csv": "holds text (",
        "ragged.csv": "cannot be read",
        "broken.npy": "broken.npy' cannot be read: it is not a .npy file; np.save writes one",
        "empty.npy": "it is not a .npy file",
        "cut.npy": "cannot be read: it is cut short",
        "absent.npy": "does not exist",
        "absent.parquet": "does not exist",
        "data.xlsx": "or a file ending in .npy, .npz, .csv",
    }
    for name, message in cases.items():
        with pytest.raises(nsd.InputError) as caught:
            data.load(tmp_path / name)
        assert message in str(caught.value)
    with pytest.raises(nsd.InputError, match="did you mean 'digits'"):
        data.load("digit")


@given(arrays(np.float64, (7, 4), elements=st.floats(-1e3, 1e3)), st.floats(0.1, 100), st.floats(-10, 10))
def test_preparation(X: np.ndarray, scale: float, shift: float) -> None:
    """Mean 0, mean ‖x‖² = 1, and neither scale nor origin of the input matters."""
    X[0] += 1.0  # not all samples identical
    X[1] -= 1.0
    prepared = data.prepare(X)
    np.testing.assert_allclose(prepared.mean(axis=0), 0, atol=1e-9)
    assert np.mean(np.sum(prepared**2, axis=1)) == pytest.approx(1.0)
    np.testing.assert_allclose(data.prepare(scale * X + shift), prepared, atol=1e-7)


def test_preparation_leaves_its_input_alone() -> None:
    original = X.copy()
    data.prepare(X)
    np.testing.assert_array_equal(X, original)
    with pytest.raises(nsd.InputError, match="identical samples"):
        data.prepare(np.ones((3, 2)))


def three_classes(n: int = 60, own_test: bool = False) -> data.Data:
    rng = np.random.default_rng(0)
    y = np.resize(["a", "b", "c"], n)
    parts = (rng.normal(size=(10, 4)), np.resize(["b", "d"], 10)) if own_test else (None, None)
    return data.Data(
        "three", rng.normal(size=(n, 4)).astype(np.float32), y, *parts, image_shape=(2, 2, 1), source="here"
    )


def rows(X: Any) -> list[bytes]:
    return [row.tobytes() for row in X]


@pytest.mark.parametrize("share", [0.01, 0.25, 0.98, None])
def test_a_split_loses_nothing(share: float | None) -> None:
    whole = three_classes()
    part = whole.split(share, seed=2**70)
    assert (part.name, part.image_shape, part.source) == ("three", (2, 2, 1), "here")
    assert part.images_test is not None
    assert len(part.images_test) == math.ceil((share or 0.25) * 60)
    labels = dict(zip(rows(whole.X), whole.labels, strict=True))
    X, y, X_test, y_test = part.parts
    found = zip(rows(np.concatenate([X, X_test])), [*y, *y_test], strict=True)
    assert sorted(found) == sorted(labels.items())
    again, other = whole.split(share, seed=2**70), whole.split(share, seed=1)
    np.testing.assert_array_equal(again.X, part.X)
    assert not np.array_equal(other.X_test, part.X_test)


def test_a_stratified_split_holds_out_the_same_share_of_every_class() -> None:
    part = three_classes().split(0.2, stratify=True)
    assert {name: int(np.sum(part.parts.labels_test == name)) for name in "abc"} == {"a": 4, "b": 4, "c": 4}


def test_a_part_that_everybody_tests_on_is_kept() -> None:
    whole = three_classes(own_test=True)
    assert rows(whole.split().X_test) == rows(whole.X_test)
    part = whole.split(train=20, test=5)
    assert set(rows(part.X)) < set(rows(whole.X))
    assert set(rows(part.X_test)) < set(rows(whole.X_test))
    assert (len(part.X), len(part.parts.X_test)) == (20, 5)
    assert set(rows(whole.split(0.5).X_test)) < set(rows(whole.X))  # unless a share is asked for
    bare = data.Data("bare", whole.X, whole.labels, whole.X_test)
    assert len(bare.split().parts.X_test) == 15  # a test part without labels tests nothing
    assert whole.test is not None
    assert (whole.test.name, whole.test.image_shape, whole.test.X_test) == ("three", (2, 2, 1), None)
    assert three_classes().test is None


def test_classes_are_numbered_over_both_parts() -> None:
    numbered, names = three_classes(own_test=True).numbered()
    assert names.tolist() == ["a", "b", "c", "d"]
    assert numbered.labels is not None
    assert numbered.labels[:4].tolist() == [0, 1, 2, 0]
    assert numbered.parts.labels_test[:3].tolist() == [1, 3, 1]
    assert three_classes().numbered()[0].labels_test is None


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: three_classes().split(1.0), "test_share=1.0 must lie between 0 and 1"),
        (lambda: three_classes().split(-0.5), "test_share=-0.5 must lie between 0 and 1"),
        (lambda: three_classes().split(seed=-1), "seed=-1 must be an integer"),
        (lambda: three_classes().split(train=46), "train=46 asks for more samples than the 45 that three holds"),
        (lambda: three_classes(1).split(0.5), "test_share=0.5 leaves none of the 1 samples to train on; pass less"),
        (lambda: three_classes().split(0.99), "test_share=0.99 leaves none of the 60 samples to train on; pass less"),
        (lambda: three_classes().split(0.01, stratify=True), "cannot hold out a share of every class"),
        (lambda: three_classes().parts, "has no labelled test part"),
        (lambda: data.Data("bare", X).split(0.5).parts, "has no labels; pass a .npz with X and y"),
        (lambda: data.Data("bare", X).numbered(), "has no labels; pass a .npz with X and y"),
        (lambda: three_classes().prepared("centre"), "did you mean 'center'?"),
    ],
)
def test_what_cannot_be_split_or_prepared(act: Callable[[], Any], message: str) -> None:
    with pytest.raises(nsd.InputError, match=message):
        act()


def test_held_out_samples_have_no_part_in_the_preparation() -> None:
    part = three_classes().split(0.25)
    mean = part.X.astype(np.float64).mean(axis=0)
    scale = np.sqrt(np.mean(np.sum((part.X - mean) ** 2, axis=1)))
    ready = part.prepared()
    np.testing.assert_allclose(ready.X, (part.X - mean) / scale, rtol=1e-12)
    np.testing.assert_allclose(ready.X_test, (part.X_test - mean) / scale, rtol=1e-12)
    assert (ready.image_shape, ready.source, ready.X.dtype) == ((2, 2, 1), "here", np.float64)
    np.testing.assert_allclose(np.linalg.norm(part.prepared("unit").parts.X_test, axis=1), 1)


def test_training_does_not_see_what_it_is_tested_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """The rows to train on are prepared alike whatever the others hold."""
    nn = pytest.importorskip("notsodeep.nn", exc_type=ImportError)
    values, labels = three_classes().X.astype(np.float64), np.resize(["a", "b", "c"], 60)
    seen: list[tuple[Any, Any]] = []

    def fit(network: Any, X: Any, targets: Any, *, validation: Any, **_: Any) -> None:
        seen.append((np.array(X), np.array(validation[0])))
        raise nsd.InputError("seen")

    monkeypatch.setattr(nn, "fit", fit)

    def train() -> tuple[Any, Any]:
        np.savez(tmp_path / "d.npz", X=values, y=labels)
        assert "seen" in run("train", "--data", tmp_path / "d.npz", "--test-share", 0.25, "--width", 8).err
        return seen[-1]

    X, X_test = train()
    ranks = np.argsort(np.argsort(np.concatenate([X, X_test])[:, 0]))  # no preparation changes the order
    held = np.argsort(values[:, 0])[ranks][len(X) :]
    values[held] *= 1000
    again, loud = train()
    np.testing.assert_array_equal(again, X)
    assert np.abs(loud).max() > 100 * np.abs(X_test).max()


def test_subsample() -> None:
    digits = data.load("digits")
    few = data.subsample(digits, 100, seed=1)
    assert few.X.shape == (100, 64)
    assert few.labels is not None
    np.testing.assert_array_equal(few.X, data.subsample(digits, 100, seed=1).X)
    # labels travel with their rows
    lookup = {row.tobytes(): label for row, label in zip(digits.X, digits.labels, strict=True)}  # type: ignore[arg-type]
    assert all(lookup[row.tobytes()] == label for row, label in zip(few.X, few.labels, strict=True))
    assert data.subsample(digits, 5000) is digits
    with pytest.raises(nsd.InputError, match="limit=0"):
        data.subsample(digits, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,,3\n4,5,6\n", "a value is missing in record 1"),  # a sample, not a line of names
        ("1,2\n3,\n", "a value is missing in record 2"),
        ("1,2\n#3,4\n5,6\n", r"column '1' holds text \('#3' in record 2\)"),
        ("label,x\n,1\nb,2\n", "column 'label' of a.csv has missing labels"),
        ("a,b\n1,2\n3\n", "record 3 has 1 values but the first has 2"),
        ("", "is empty"),
        ("a,b\n", "is empty"),
    ],
)
def test_no_line_of_a_table_is_lost(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        data.load(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("text", "X", "labels"),
    [
        ('"x,1",label,z\n1,a,2\n3,b,4\n', [[1, 2], [3, 4]], ["a", "b"]),
        ("\ufeff1,2\n3,4\n", [[1, 2], [3, 4]], None),
        ("\ufefflabel,x\nu,1\nv,2\n", [[1], [2]], ["u", "v"]),
        ("0,1,label\n1,2,u\n3,4,v\n", [[1, 2], [3, 4]], ["u", "v"]),
        ("label,x\nC#,1\nD,2\n", [[1], [2]], ["C#", "D"]),
        ("x, label\r\n1, u\r\n\r\n2, v\r\n", [[1], [2]], ["u", "v"]),
    ],
)
def test_tables_as_programs_write_them(
    text: str, X: list[list[float]], labels: list[str] | None, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text, encoding="utf-8", newline="")
    loaded = data.load(tmp_path / "a.csv")
    np.testing.assert_array_equal(loaded.X, X)
    assert (None if loaded.labels is None else loaded.labels.tolist()) == labels


def test_arrays_and_archives_under_each_others_names(tmp_path: Path) -> None:
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, np.ones((2, 2)))
    with (tmp_path / "a.npy").open("wb") as file:
        np.savez(file, X=np.ones((2, 2)))
    for name in ("a.npz", "a.npy"):
        with pytest.raises(InputError, match="cannot be read"):
            data.load(tmp_path / name)
