"""Data in the user's own files."""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError, MissingExtraError, matrix, missing_extra
from notsodeep.data.formats import cifar_records, content, idx, pixels
from notsodeep.data.samples import Data

__all__ = ["ENDINGS", "read_path"]

ENDINGS = (".npy", ".npz", ".csv", ".parquet", "-idx3-ubyte", "-idx3-ubyte.gz", ".bin")
_LABEL_COLUMNS = ("label", "labels", "target", "class", "y")
_NPY = np.lib.format.MAGIC_PREFIX
_IDX = re.compile(r"[-.]idx\d-[a-z]+(\.gz)?$")


class _Arrays(NamedTuple):
    X: Any
    labels: Any = None
    X_test: Any = None
    labels_test: Any = None


def read_path(path: Path) -> Data | None:
    """Read a file or a folder; None if nothing is known of this kind of file."""
    reader = _reader(path)
    if reader is None:
        return None
    if not path.exists():
        raise InputError(f"data={str(path)!r} does not exist")
    try:
        arrays = reader(path)
    except (InputError, MissingExtraError):
        raise
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"data={str(path)!r} cannot be read: {reason}") from None
    X, image_shape = _rows(arrays.X, path.name)
    X_test = None
    if arrays.X_test is not None:
        X_test, shape_test = _rows(arrays.X_test, f"X_test of {path.name}")
        if (shape_test, X_test.shape[1]) != (image_shape, X.shape[1]):
            raise InputError(f"{path.name} holds samples of two sizes, to train and to test on; pass equal ones")
    labels, labels_test = _labels(arrays.labels, X, path.name), _labels(arrays.labels_test, X_test, path.name)
    return Data(path.stem, X, labels, X_test, labels_test, image_shape, source=str(path))


def _reader(path: Path) -> Callable[[Path], _Arrays] | None:
    if path.is_dir():
        return _cifar_folder if any(path.glob("data_batch*.bin*")) else _idx_folder
    if _IDX.search(path.name):
        return _idx
    return {".npy": _npy, ".npz": _npz, ".csv": _csv, ".parquet": _parquet, ".bin": _cifar}.get(path.suffix.lower())


def _rows(array: Any, name: str) -> tuple[NDArray[Any], tuple[int, int, int] | None]:
    """Images (n, P, Q, C) become rows."""
    if np.ndim(array) != 4:
        return matrix(array, name), None
    images = matrix(array, name, rank=4)
    _, height, width, channels = images.shape
    return images.reshape(len(images), -1), (height, width, channels)


def _labels(labels: Any, X: NDArray[Any] | None, name: str) -> NDArray[Any] | None:
    if labels is None:
        return None
    samples = 0 if X is None else len(X)
    if np.shape(labels) != (samples,):
        raise InputError(f"{name} holds {samples} samples but labels of shape {np.shape(labels)}; pass one a sample")
    return np.asarray(labels)


def _npy(path: Path) -> _Arrays:
    with path.open("rb") as file:
        if file.read(len(_NPY)) != _NPY:
            raise ValueError("it is not a .npy file; np.save writes one")
        file.seek(0)
        try:
            return _Arrays(_double(np.lib.format.read_array(file, allow_pickle=False)))
        except (ValueError, EOFError) as error:
            if "Object arrays" in str(error):
                raise ValueError("it holds Python objects; save an array of numbers") from None
            raise ValueError("it is cut short or damaged; save it again") from None


def _npz(path: Path) -> _Arrays:
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not an .npz archive")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        if "X" not in archive:
            raise InputError(f"{path.name} has no array called 'X' (it holds {', '.join(archive) or 'nothing'})")
        samples, tests = _double(archive["X"]), archive.get("X_test")
        return _Arrays(samples, archive.get("y"), None if tests is None else _double(tests), archive.get("y_test"))


def _double(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float64, copy=False) if array.dtype.kind in "fiub" else array  # others are refused later


def _csv(path: Path) -> _Arrays:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    if not rows:
        raise InputError(f"{path.name} is empty; pass at least one sample and one feature")
    names = rows[0]
    has_header = any(name and not _is_number(name) for name in names)  # a number may be missing in a first sample
    for line, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise ValueError(f"record {line} has {len(row)} values but the first has {len(names)}")
    table = np.array(rows[int(has_header) :], dtype=str).reshape(-1, len(names))
    label = _label_column(names) if has_header else None
    if label is None:
        return _Arrays(_numbers(table, has_header))
    labels = table[:, label]
    if (labels == "").any():
        raise InputError(f"column {names[label]!r} of {path.name} has missing labels; drop those rows")
    return _Arrays(_numbers(np.delete(table, label, axis=1), has_header), labels)


def _numbers(table: NDArray[Any], has_header: bool) -> NDArray[np.float64]:
    try:
        return table.astype(np.float64)
    except ValueError:
        bad = next((i, j) for i, row in enumerate(table) for j, cell in enumerate(row) if not _is_number(cell))
        cell = str(table[bad])
        reason = f"could not convert string to float: {cell!r}" if cell else "a value is missing"
        raise ValueError(f"{reason} in record {bad[0] + 1 + has_header}") from None


def _parquet(path: Path) -> _Arrays:
    try:
        import pyarrow.parquet
    except ImportError:
        raise missing_extra("Parquet files need pyarrow", "data") from None
    table = pyarrow.parquet.read_table(path)
    label = _label_column(table.column_names)
    features = [k for k in range(table.num_columns) if k != label]
    columns = []
    for k in features:
        values = table.column(k).to_numpy()
        if values.dtype.kind not in "fiub":
            raise InputError(f"column {table.column_names[k]!r} of {path.name} does not hold numbers; drop it")
        columns.append(values.astype(np.float64))
    X = np.column_stack(columns) if columns else np.empty((table.num_rows, 0))
    if label is None:
        return _Arrays(X)
    labels = np.array(table.column(label).to_pylist())  # words become an array of text, not of objects
    if labels.dtype == object:
        raise InputError(f"column {table.column_names[label]!r} of {path.name} has missing labels; drop those rows")
    return _Arrays(X, labels)


def _label_column(names: list[str]) -> int | None:
    lowered = [name.lower() for name in names]
    return next((lowered.index(name) for name in _LABEL_COLUMNS if name in lowered), None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _idx(path: Path) -> _Arrays:
    values = idx(content(path), path.name)
    if values.ndim == 1:
        raise InputError(f"{path.name} holds labels; pass the file of images, the labels beside it are found")
    beside = path.name.replace("images", "labels").replace("idx3", "idx1")
    options = [path.with_name(beside), path.with_name(f"{beside}.gz"), path.with_name(beside.removesuffix(".gz"))]
    labels = next((option for option in options if option.is_file() and option != path), None)
    if values.dtype == np.uint8 and values.ndim in (3, 4):
        values = pixels(values if values.ndim == 4 else values[..., None])
    elif values.ndim == 3:
        values = values[..., None]
    return _Arrays(values, None if labels is None else idx(content(labels), labels.name).astype(np.int64))


def _idx_folder(path: Path) -> _Arrays:
    parts = {}
    for part in ("train", "t10k"):
        found = sorted(file for file in path.glob(f"{part}-images*") if _IDX.search(file.name))
        parts[part] = _idx(found[0]) if found else None
    if (train := parts["train"]) is None:
        raise InputError(f"{path} has neither train-images-idx3-ubyte[.gz] nor data_batch_1.bin in it; pass a file")
    test = parts["t10k"]
    return train if test is None else _Arrays(*train[:2], *test[:2])


def _cifar(path: Path) -> _Arrays:
    images, labels = cifar_records(content(path), path.name)
    return _Arrays(pixels(images), labels.astype(np.int64))


def _cifar_folder(path: Path) -> _Arrays:
    images, labels = zip(*(_cifar(batch)[:2] for batch in sorted(path.glob("data_batch*.bin*"))), strict=True)
    test = [_cifar(batch)[:2] for batch in sorted(path.glob("test_batch.bin*"))[:1]]
    return _Arrays(np.concatenate(images), np.concatenate(labels), *(test[0] if test else ()))
