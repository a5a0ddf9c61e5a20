"""Data in the user's own files."""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError, MissingExtraError, matrix, nearest
from notsodeep.data.dataset import Data
from notsodeep.data.formats import cifar_records, idx, pixels
from notsodeep.extras import need
from notsodeep.reading import Npz, affordable, content, npy_file, opened, regular
from notsodeep.text import listed

__all__ = ["ENDINGS", "Column", "read_path"]

Column: TypeAlias = str | int

ENDINGS = (".npy", ".npz", ".csv", ".parquet", "-idx3-ubyte", "-idx3-ubyte.gz", ".bin")
_LABEL_COLUMNS = ("label", "labels", "target", "class", "y")
_COUNTERS = ("id", "index", "row", "unnamed: 0", "")  # names of columns that often count the rows
_LONGEST = 16 << 20  # characters of a record in a CSV file
_IDX = re.compile(r"[-.]idx\d-[a-z]+(\.gz)?$")


class _Arrays(NamedTuple):
    X: Any
    labels: Any = None
    X_test: Any = None
    labels_test: Any = None
    notes: tuple[str, ...] = ()


class _Columns(NamedTuple):
    """Columns of a table: the labels, those to leave out, and the others."""

    label: int | None
    features: list[int]
    notes: tuple[str, ...]


def read_path(path: Path, label: Column | None = None, ignore: Sequence[Column] = ()) -> Data | None:
    """Read a file or a folder; None for an unknown kind of file."""
    reader = _reader(path)
    if reader is None:
        return None
    if not path.exists():
        raise InputError(f"data={str(path)!r} does not exist")
    try:
        arrays = _named(reader, path, label, ignore)
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
    return Data(path.stem, X, labels, X_test, labels_test, image_shape, source=str(path), notes=arrays.notes)


def _named(reader: Callable[..., _Arrays], path: Path, label: Column | None, ignore: Sequence[Column]) -> _Arrays:
    """Columns can be named in tables, and the array of labels in an archive."""
    if reader in (_csv, _parquet):
        return reader(path, label, ignore)
    if reader is _npz and not ignore:
        return _npz(path, "y" if label is None else str(label))
    if label is not None or ignore:
        name = f"ignore={ignore[0]!r}" if ignore else f"label={label!r}"
        raise InputError(f"{name} names a column, but {path.name} has none; columns are in .csv and .parquet files")
    return reader(path)


def _reader(path: Path) -> Callable[..., _Arrays] | None:
    if path.is_dir():
        return _cifar_folder if any(path.glob("data_batch*.bin*")) else _idx_folder
    if _IDX.search(path.name):
        return _idx
    readers: dict[str, Callable[..., _Arrays]] = {
        ".npy": _npy,
        ".npz": _npz,
        ".csv": _csv,
        ".parquet": _parquet,
        ".bin": _cifar,
    }
    return readers.get(path.suffix.lower())


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


def _npz(path: Path, label: str) -> _Arrays:
    with Npz(path) as archive:
        for name in ("X", *((label,) if label != "y" else ())):
            if name not in archive:
                held = listed(archive.names) or "nothing"
                raise InputError(f"{path.name} has no array called {name!r} (it holds {held})")
        samples, tests = _double(archive["X"]), archive.get("X_test")
        labels, labels_test = archive.get(label), archive.get(f"{label}_test")
        return _Arrays(samples, labels, None if tests is None else _double(tests), labels_test)


def _double(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "fiub":
        return array  # is refused later
    with np.errstate(over="ignore", invalid="ignore"):  # so is what float64 cannot hold
        return array.astype(np.float64, copy=False)


def _csv(path: Path, label: Column | None, ignore: Sequence[Column]) -> _Arrays:
    with regular(path).open(encoding="utf-8-sig", newline="") as file:
        records = _Records(file)
        try:
            return _table((row for row in records if row), path, label, ignore)
        except csv.Error as error:
            raise ValueError(f"line {records.reader.line_num} is not CSV: {error}") from None


class _Records:
    """The records of a CSV file, each of bounded length: a line may never end, and neither may a quotation."""

    def __init__(self, file: TextIO) -> None:
        self.reader = csv.reader(self._lines(file))
        self._length = 0

    def _lines(self, file: TextIO) -> Iterator[str]:
        while line := file.readline(_LONGEST + 1):
            self._length += len(line)
            if self._length > _LONGEST:
                raise ValueError(f"line {self.reader.line_num + 1} ends a record of more than {_LONGEST >> 20} MiB")
            yield line

    def __iter__(self) -> Iterator[list[str]]:
        for row in self.reader:
            self._length = 0
            yield [cell.strip() for cell in row]


def _lines_of(path: Path) -> int:
    """How many lines a file has at most, without keeping them."""
    ends = {b"\n": 1, b"\r": 1}
    with opened(path) as file:
        while chunk := file.read(1 << 20):
            ends = {sign: count + chunk.count(sign) for sign, count in ends.items()}
    return max(ends.values())


def _table(rows: Iterator[list[str]], path: Path, label: Column | None, ignore: Sequence[Column]) -> _Arrays:
    names = next(rows, None)
    if names is None:
        raise InputError(f"{path.name} is empty; pass at least one sample and one feature")
    has_header = any(name and not _is_number(name) for name in names)  # the first sample may have a missing number
    columns = _columns(names, path.name, label, ignore, has_header)
    stored, lines = path.stat().st_size, _lines_of(path)
    # numbers while the array grows, and words as Python has them; a number takes at least two bytes of the file
    affordable(min(16 * len(columns.features) * lines, 8 * stored) + (columns.label is not None) * 80 * lines, stored)
    values, labels = array("d"), []
    for record, row in enumerate(rows if has_header else chain([names], rows), 1 + has_header):
        if len(row) != len(names):
            raise ValueError(f"record {record} has {len(row)} values but the first has {len(names)}")
        if columns.label is not None:
            labels.append(row[columns.label])
        try:
            values.extend(float(row[k]) for k in columns.features)
        except ValueError:
            bad = next(k for k in columns.features if not _is_number(row[k]))
            raise ValueError(_not_a_number(row[bad], names[bad] if has_header else str(bad + 1), record)) from None
    features = len(columns.features)
    X = np.frombuffer(values, np.float64).reshape(-1, features) if features else np.empty((len(labels), 0))
    if columns.label is None:
        return _Arrays(X, notes=columns.notes)
    if "" in labels:
        raise InputError(f"column {names[columns.label]!r} of {path.name} has missing labels; drop those rows")
    affordable(4 * len(labels) * max(map(len, labels), default=0), path.stat().st_size)  # as an array of text
    return _Arrays(X, np.array(labels, dtype=str), notes=columns.notes)


def _not_a_number(cell: str, column: str, record: int) -> str:
    if not cell:
        return f"a value is missing in record {record}, column {column!r}"
    return (
        f"column {column!r} holds text ({cell[:40]!r} in record {record}); if these are the labels, pass "
        f"--label {column} (label= in Python), otherwise --ignore {column} (ignore=)"
    )


def _columns(
    names: Sequence[str], file: str, label: Column | None, ignore: Sequence[Column], has_header: bool = True
) -> _Columns:
    """Find the named columns; without a name, labels are in a column called label, target, class or y."""
    place = _default_label(names) if has_header else None
    if label is not None:
        place = _place(label, names, file, "label", has_header)
    ignored = [_place(one, names, file, "ignore", has_header) for one in ignore]
    if place is not None and place in ignored:
        raise InputError(f"ignore={label if label is not None else names[place]!r} is the column of the labels")
    features = [k for k in range(len(names)) if k != place and k not in ignored]
    called = names if has_header else [str(k) for k in range(1, len(names) + 1)]
    notes = [] if has_header else [f"{file} has no header line: columns are numbered from 1 to {len(names)}"]
    if place is not None:
        notes.append(f"labels in column {called[place]!r}")
    if ignored:
        notes.append(f"without {'columns' if len(ignored) > 1 else 'column'} {listed(called[k] for k in ignored)}")
    if has_header and (counters := [names[k] for k in features if names[k].lower() in _COUNTERS]):
        notes.append(f"column {counters[0]!r} is used as a feature; leave it out with --ignore if it counts the rows")
    return _Columns(place, features, tuple(notes))


def _place(column: Column, names: Sequence[str], file: str, parameter: str, has_header: bool) -> int:
    """The position of a column, by its name in any case or, without a header line, by its number from 1."""
    if has_header:
        lowered, wanted = [name.lower() for name in names], str(column).strip()
        if wanted in names:
            return list(names).index(wanted)
        if wanted.lower() in lowered:
            return lowered.index(wanted.lower())
        hint = nearest(wanted, names)
        raise InputError(f"{parameter}={column!r} is not a column of {file}{hint} (it has {listed(names)})")
    number = int(column) if str(column).strip().isdecimal() else 0
    if not 1 <= number <= len(names):
        raise InputError(
            f"{parameter}={column!r}: {file} has no header line; pass the number of a column, from 1 to {len(names)}"
        )
    return number - 1


def _parquet(path: Path, label: Column | None, ignore: Sequence[Column]) -> _Arrays:
    pyarrow = need("pyarrow")
    need("pyarrow.parquet")
    try:
        with pyarrow.parquet.ParquetFile(regular(path)) as file:
            described, schema = file.metadata, file.schema_arrow
        chosen = _columns(schema.names, path.name, label, ignore)
        words = _parquet_words(schema, chosen, path.name)
        # every different word once: a few bytes of a file may repeat a long one in each of millions of rows
        with pyarrow.parquet.ParquetFile(path, metadata=described, read_dictionary=words) as file:
            if words and not pyarrow.types.is_dictionary(file.schema_arrow.types[chosen.label]):
                raise InputError(f"{path.name} has two columns called {words[0]!r}; rename one of them")
            cells = described.num_rows * (len(chosen.features) + (chosen.label is not None))
            unpacked = sum(described.row_group(k).total_byte_size for k in range(described.num_row_groups))
            affordable(max(8 * cells, unpacked), path.stat().st_size)
            return _parquet_table(file, chosen, path)
    except (pyarrow.ArrowException, RuntimeError, TypeError, LookupError, OverflowError) as error:
        raise ValueError(f"it is damaged: {error}") from None


def _parquet_words(schema: Any, chosen: _Columns, file: str) -> list[str]:
    """The names of columns of text that are read; what cannot be used is refused by its type, before it is read."""
    types, held = need("pyarrow").types, schema.types

    def is_number(kind: Any) -> bool:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))

    def is_text(kind: Any) -> bool:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))

    for k in chosen.features:
        if not is_number(held[k]):
            raise _no_numbers(schema.names[k], file)
    if chosen.label is None or is_number(held[chosen.label]) or types.is_null(held[chosen.label]):
        return []
    if not is_text(held[chosen.label]):
        raise InputError(f"{file} holds labels of type {held[chosen.label]}; pass numbers or text")
    return [schema.names[chosen.label]]


def _no_numbers(column: str, file: str) -> InputError:
    return InputError(
        f"column {column!r} of {file} does not hold numbers; if these are the labels, pass "
        f"--label {column} (label= in Python), otherwise --ignore {column} (ignore=)"
    )


def _parquet_table(file: Any, chosen: _Columns, path: Path) -> _Arrays:
    names = file.schema_arrow.names
    table = _parquet_columns(file, [*chosen.features, *([] if chosen.label is None else [chosen.label])], path.name)
    columns = []
    for k in chosen.features:
        values = table[k].to_numpy()
        if values.dtype.kind not in "fiub":  # truth values of which some are missing
            raise _no_numbers(names[k], path.name)
        columns.append(values.astype(np.float64))
    X = np.column_stack(columns) if columns else np.empty((file.metadata.num_rows, 0))
    if chosen.label is None:
        return _Arrays(X, notes=chosen.notes)
    given = table[chosen.label]
    if given.null_count:
        raise InputError(f"column {names[chosen.label]!r} of {path.name} has missing labels; drop those rows")
    return _Arrays(X, _parquet_labels(given, path.stat().st_size), notes=chosen.notes)


def _parquet_columns(file: Any, places: Sequence[int], name: str) -> dict[int, Any]:
    """The columns at these places, and no others.

    pyarrow reads columns by their names, and with "a" all others that are called "a" or "a.b".
    """
    names, schema = file.schema_arrow.names, file.schema
    wanted = dict.fromkeys(names[k] for k in places)
    paths = (schema.column(k).path.split(".") for k in range(len(schema)))
    if sum(any(".".join(path[:k]) in wanted for k in range(1, len(path) + 1)) for path in paths) > len(places):
        raise InputError(f"{name} has a column to leave out that shares its name with another; rename one of them")
    table = file.read(columns=list(wanted))
    found: dict[str, list[Any]] = {column: [] for column in wanted}
    for column, values in zip(table.column_names, table.columns, strict=True):
        found[column].append(values)
    return {k: found[names[k]].pop(0) for k in sorted(places)}


def _parquet_labels(given: Any, stored: int) -> NDArray[Any]:
    """Labels as an array of numbers or of text, not of objects."""
    if not need("pyarrow").types.is_dictionary(given.type):
        values: NDArray[Any] = given.to_numpy()
        if values.dtype.kind == "f":
            return values.astype(np.float64)
        fits = values.dtype != np.uint64 or values.max(initial=0) <= np.iinfo(np.int64).max
        return values.astype(np.int64) if values.dtype.kind in "iu" and fits else values
    whole = given.combine_chunks()
    words = whole.dictionary.to_pylist()
    affordable(4 * (len(whole) + len(words)) * max(map(len, words), default=0), stored)  # as arrays of text
    return np.array(words, dtype=str)[whole.indices.to_numpy()]


def _default_label(names: Sequence[str]) -> int | None:
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
