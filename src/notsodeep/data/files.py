"""Data in the user's own files."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError, MissingExtraError, matrix
from notsodeep.data.dataset import Data
from notsodeep.data.formats import cifar_records, idx, pixels
from notsodeep.extras import need
from notsodeep.reading import Npz, affordable, content, npy_file, regular

__all__ = ["ENDINGS", "read_path"]

ENDINGS = (".npy", ".npz", ".csv", ".parquet", "-idx3-ubyte", "-idx3-ubyte.gz", ".bin")
_LABEL_COLUMNS = ("label", "labels", "target", "class", "y")
_IDX = re.compile(r"[-.]idx\d-[a-z]+(\.gz)?$")


class _Arrays(NamedTuple):
    X: Any
    labels: Any = None
    X_test: Any = None
    labels_test: Any = None


def read_path(path: Path) -> Data | None:
    """Read a file or a folder; None for an unknown kind of file."""
    reader = _reader(path)
    if reader is None:
        return None
    if not path.exists():
        raise InputError(f"data={str(path)!r} does not exist")
    try:
        arrays = reader(path)
    except (InputError, MissingExtraError):
        raise
    except UnicodeDecodeError:
        raise InputError(f"data={str(path)!r} cannot be read: it is not UTF-8 text") from None
    except (ValueError, OSError) as error:
        raise InputError(f"data={str(path)!r} cannot be read: {' '.join(str(error).split())}") from None
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
    if labels.dtype.kind not in "biufU":
        raise InputError(f"{name} holds labels of type {labels.dtype}; pass numbers or text")
    if labels.dtype.kind == "f" and (missing := int(np.count_nonzero(~np.isfinite(labels)))):
        raise InputError(f"{name}: {missing} of its {samples} labels are NaN or infinite; drop those samples")
    return np.asarray(labels)


def _npy(path: Path) -> _Arrays:
    return _Arrays(_double(npy_file(path)))


def _npz(path: Path) -> _Arrays:
    with Npz(path) as archive:
        if "X" not in archive:
            raise InputError(f"{path.name} has no array called 'X' (it holds {', '.join(archive.names) or 'nothing'})")
        samples, tests = _double(archive["X"]), archive.get("X_test")
        return _Arrays(samples, archive.get("y"), None if tests is None else _double(tests), archive.get("y_test"))


def _double(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float64, copy=False) if array.dtype.kind in "fiub" else array  # others are refused later


def _csv(path: Path) -> _Arrays:
    with regular(path).open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            return _table(([cell.strip() for cell in row] for row in reader if row), path)
        except csv.Error as error:
            raise ValueError(f"line {reader.line_num} is not CSV: {error}") from None


def _table(rows: Iterator[list[str]], path: Path) -> _Arrays:
    names = next(rows, None)
    if names is None:
        raise InputError(f"{path.name} is empty; pass at least one sample and one feature")
    has_header = any(name and not _is_number(name) for name in names)  # the first sample may have a missing number
    label = _label_column(names) if has_header else None
    values, labels = array("d"), []
    for record, row in enumerate(rows if has_header else chain([names], rows), 1 + has_header):
        if len(row) != len(names):
            raise ValueError(f"record {record} has {len(row)} values but the first has {len(names)}")
        if label is not None:
            labels.append(row.pop(label))
        try:
            values.extend(map(float, row))
        except ValueError:
            bad = next(cell for cell in row if not _is_number(cell))
            reason = f"could not convert string to float: {bad[:40]!r}" if bad else "a value is missing"
            raise ValueError(f"{reason} in record {record}") from None
    features = len(names) - (label is not None)
    X = np.frombuffer(values, np.float64).reshape(-1, features) if features else np.empty((len(labels), 0))
    if label is None:
        return _Arrays(X)
    if "" in labels:
        raise InputError(f"column {names[label]!r} of {path.name} has missing labels; drop those rows")
    affordable(4 * len(labels) * max(map(len, labels), default=0), path.stat().st_size)  # as an array of text
    return _Arrays(X, np.array(labels, dtype=str))


def _parquet(path: Path) -> _Arrays:
    pyarrow = need("pyarrow")
    need("pyarrow.parquet")
    try:
        with pyarrow.parquet.ParquetFile(regular(path)) as file:
            described = file.metadata
            cells = described.num_rows * max(described.num_columns, 1)
            unpacked = sum(described.row_group(k).total_byte_size for k in range(described.num_row_groups))
            affordable(max(8 * cells, unpacked), path.stat().st_size)
            return _columns(file.read(), path)
    except (pyarrow.ArrowException, RuntimeError, TypeError, LookupError, OverflowError) as error:
        raise ValueError(f"it is damaged: {error}") from None


def _columns(table: Any, path: Path) -> _Arrays:
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
    given = table.column(label).to_pylist()
    if any(one is None for one in given):
        raise InputError(f"column {table.column_names[label]!r} of {path.name} has missing labels; drop those rows")
    words = [one for one in given if isinstance(one, str)]
    affordable(4 * len(given) * max(map(len, words), default=0), path.stat().st_size)  # as an array of text
    return _Arrays(X, np.array(given))  # words become an array of text, not of objects


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
