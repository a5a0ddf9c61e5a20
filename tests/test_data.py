"""Loading and preparing data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import notsodeep as nsd
from notsodeep import data

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
    cases = {
        "no_x.npz": "no array called 'X'",
        "short.npz": "3 samples but labels of shape (2,)",
        "nan.npy": "holds 1 NaN",
        "flat.npy": "must have 2 dimensions",
        "objects.npy": "cannot be read",
        "words.csv": "cannot be read: could not convert string to float",
        "ragged.csv": "cannot be read",
        "broken.npy": "cannot be read",
        "empty.npy": "cannot be read",
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
