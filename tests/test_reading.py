"""Damaged and hostile files: one line, exit code 2, at once, within little memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command_line import Run

import notsodeep as nsd
from notsodeep import InputError, data, learn, nn, reading
from notsodeep.reading import Npz, json_text, npy_file

SECONDS = 5.0  # of processor time, with memory traced; most of these take milliseconds
BYTES = 150e6

X = np.random.default_rng(0).normal(size=(20, 4))
MODEL = nsd.DEQ("relu", 0.2, 0.8).to_dict()


def npy(header: str, body: bytes = b"") -> bytes:
    """A .npy file with a header of one's own."""
    text = header.encode("latin-1").ljust(len(header) + 64 - (len(header) + 12) % 64, b" ")
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text + body


def described(shape: str, descr: str = "'<f8'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


def archive(**members: bytes) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return raw.getvalue()


def saved(array: Any) -> bytes:
    raw = io.BytesIO()
    np.save(raw, array)
    return raw.getvalue()


def bomb() -> bytes:
    """300 MiB of zeros in a third of a megabyte."""
    raw = io.BytesIO()
    with (
        zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
        file.open("X.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy(described("(39321600, 1)")))
        for _ in range(300):
            member.write(bytes(1 << 20))
    return raw.getvalue()


def overlapping() -> bytes:
    """A thousand members that are all the same bytes of the file."""
    whole = archive(X=saved(np.zeros((1000, 100))))
    start = whole.rindex(b"PK\x01\x02")
    entry, end = whole[start : whole.rindex(b"PK\x05\x06")], whole[whole.rindex(b"PK\x05\x06") :]
    entries = b"".join(entry.replace(b"X.npy", f"{k:05d}".encode()) for k in range(1000))
    counts = struct.pack("<HHII", 1000, 1000, len(entries), start)
    return whole[:start] + entries + end[:8] + counts + b"\0\0"


def changed(content: bytes, position: int, value: bytes) -> bytes:
    return content[:position] + value + content[position + len(value) :]


def encrypted() -> bytes:
    whole = archive(X=saved(X))
    whole = changed(whole, 6, b"\x01")
    return changed(whole, whole.rindex(b"PK\x01\x02") + 8, b"\x01")


def declared(size: int) -> bytes:
    """An archive whose directory promises more than the file can hold."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("X.npy", saved(X))
    whole = raw.getvalue()
    return changed(whole, whole.rindex(b"PK\x01\x02") + 24, struct.pack("<I", size))


DATA: dict[str, Callable[[], bytes]] = {
    "corrupt.npz": lambda: changed(archive(X=saved(X)), 300, b"\xff" * 40),
    "short.npz": lambda: archive(X=saved(X))[:-30],
    "encrypted.npz": encrypted,
    "bomb.npz": bomb,
    "overlapping.npz": overlapping,
    "declared.npz": lambda: declared(0xFFFFFFF0),
    "terabytes.npz": lambda: archive(X=npy(described("(1000000000000, 1)"))),
    "lzma.npz": lambda: changed(archive(X=saved(X)), archive(X=saved(X)).rindex(b"PK\x01\x02") + 10, b"\x0e"),
    "objects.npz": lambda: archive(X=npy(described("(1,)", "'|O'"), b"cos\nsystem\n(S'x'\ntR.")),
    "nested.npy": lambda: npy("(" * 5000 + ")" * 5000),
    "minus.npy": lambda: npy("-" * 9000 + "1"),
    "braces.npy": lambda: npy("{" * 3000),
    "unhashable.npy": lambda: npy("{[]: 1}"),
    "keys.npy": lambda: npy("{'descr': '<f8', 1: 2, 'shape': (1,)}"),
    "long.npy": lambda: npy(" " * 200_000 + described("(1,)")),
    "terabytes.npy": lambda: npy(described("(1000000000000, 4)"), bytes(64)),
    "digits.npy": lambda: npy(described(f"({'9' * 400}, 4)"), bytes(64)),
    "negative.npy": lambda: npy(described("(-1, 4)"), bytes(64)),
    "nothing.npy": lambda: npy(described("(1000000000000,)", "'<U0'")),
    "dimensions.npy": lambda: npy(described("(" + "1, " * 60 + ")"), bytes(8)),
    "structured.npy": lambda: npy(described("(1,)", "[('a', '<f8'), ('b', '<U3')]"), bytes(20)),
    "newer.npy": lambda: b"\x93NUMPY\x07\x00" + bytes(100),
    "field.csv": lambda: b"a,b\n1,2\n1," + b"3" * 200_000,
    "quote.csv": lambda: b'a,b\n1,2\n1,"' + b"3,4\n" * 100_000,
    "labels.csv": lambda: b"a,label\n" + b"1,x\n" * 50_000 + b"1," + b"y" * 100_000,
    "latin.csv": lambda: "a,b\n1,ü".encode("latin-1"),
    "nul.csv": lambda: b"a,b\n1,\x00",
    "bomb-idx3-ubyte.gz": lambda: gzip.compress(bytes(100 << 20), 1),
    "short-idx3-ubyte.gz": lambda: gzip.compress(bytes(1000))[:-20],
    "large-idx3-ubyte": lambda: b"\0\0\x08\x03" + struct.pack(">III", 2**31, 2**31, 2**31),
    "rank-idx3-ubyte": lambda: b"\0\0\x08\xff" + struct.pack(">I", 1) * 255 + b"\0",
    "cut.parquet": lambda: b"PAR1" + bytes(100) + b"PAR1",
    "claims.parquet": lambda: b"PAR1" + struct.pack("<I", 2**31 - 1) + b"PAR1",
}


def at_once(action: Callable[[], Any]) -> Any:
    """The result, obtained quickly and without much memory."""
    tracemalloc.start()
    began = time.process_time()
    try:
        result = action()
        spent, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert spent < SECONDS
    assert peak < BYTES
    return result


@pytest.mark.parametrize("name", DATA)
def test_damaged_data_files(name: str, run: Run, tmp_path: Path) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(DATA[name]())
    result = at_once(lambda: run("data", "info", path))
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
    assert result.err.startswith("error: ")
    assert len(result.err) < 600
    assert path.name in result.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name")
@pytest.mark.parametrize(
    "name", ["X.npy", "X.npz", "X.csv", "X.parquet", "X.bin", "X-idx3-ubyte", "X.json", "X.safetensors"]
)
def test_pipes_and_devices_are_not_waited_for(name: str, tmp_path: Path) -> None:
    read = {".json": nsd.load_model, ".safetensors": nn.load}.get(Path(name).suffix, data.load)
    for make in (lambda path: path.symlink_to("/dev/null"), os.mkfifo):  # the device first: it does not block
        make(tmp_path / name)
        with pytest.raises(InputError, match="it is a device or a pipe, not a file"):
            read(tmp_path / name)
        (tmp_path / name).unlink()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name")
@pytest.mark.parametrize("command", [("show", "{}"), ("predict", "{}", "digits"), ("kernel", "{}", "--out", "K.npy")])
def test_a_refusal_says_that_it_is_a_pipe(command: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    result = run(*(part.format(tmp_path / "pipe.npz") for part in command))
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "pipe.npz" in result.err
    assert "it is a device or a pipe, not a file" in result.err


@pytest.mark.parametrize("code", [0xD800, 0x7FFFFFFF])
@pytest.mark.parametrize("order", ["<", ">"])
def test_text_of_characters_that_do_not_exist(code: int, order: str, run: Run, tmp_path: Path) -> None:
    labels = np.array(["ab", "cd"] * 10, dtype=f"{order}U2")
    np.savez(tmp_path / "X.npz", X=X, y=labels)
    assert data.load(str(tmp_path / "X.npz")).labels.tolist() == labels.tolist()
    labels.view(f"{order}u4")[0] = code
    np.savez(tmp_path / "X.npz", X=X, y=labels)
    result = run("data", "info", tmp_path / "X.npz")
    assert result.code == 2
    assert "text with characters that do not exist" in result.err
    header = np.array('{"format": "notsodeep.learn", "arrays": {}, "version": 1, "z": "?"}')
    header.reshape(1).view(np.uint32)[-3] = code
    np.savez(tmp_path / "model.npz", header=header, digest=np.array("0"))
    with pytest.raises(InputError, match="text with characters that do not exist"):
        learn.load(tmp_path / "model.npz")


def test_labels_in_bytes_are_refused(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "X.npz", X=X, y=np.array([b"a", b"b"] * 10))
    result = run("fit", tmp_path / "X.npz", "--out", tmp_path / "model.npz")
    assert (result.code, list(tmp_path.iterdir())) == (2, [tmp_path / "X.npz"])
    assert "labels of type |S1; pass numbers or text" in result.err


def test_parquet_that_unpacks_to_gigabytes(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "constant.parquet"
    column = arrow.chunked_array([arrow.array(np.zeros(1 << 20))] * 32)  # 256 MiB in a few kilobytes
    parquet.write_table(arrow.table({"a": column}), path)
    with pytest.raises(InputError, match="which no file of numbers does"):
        at_once(lambda: data.load(path))


def arrow_bytes(action: Callable[[], Any]) -> int:
    """How much more memory than ever before pyarrow takes meanwhile, beyond Python's, in a pool that is else unused."""
    arrow = pytest.importorskip("pyarrow")
    usual, counted = arrow.default_memory_pool(), arrow.system_memory_pool()
    before = counted.max_memory()
    arrow.set_memory_pool(counted)
    try:
        at_once(action)
    finally:
        arrow.set_memory_pool(usual)
    return int(counted.max_memory() - before)


def write_words(path: Path, column: str, length: int, rows: int) -> None:
    """A table of numbers and of one long word in every row, which takes a few kilobytes."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    words = arrow.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x" * length])
    table = arrow.table({"a": np.arange(rows) % 7, column: words})
    parquet.write_table(table, path, compression="zstd", store_schema=False)  # read as text, not as a dictionary


def test_parquet_with_a_long_label_in_every_row(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    write_words(path, "label", 5000, 200_000)  # 1 GB as Python has the words, 4 GB as numpy does

    def refused() -> None:
        with pytest.raises(InputError, match=r"would unpack from 0\.\d+ MB to 4 GB, which no file of numbers does"):
            data.load(path)

    assert arrow_bytes(refused) < BYTES
    write_words(path, "label", 50, 200_000)
    assert data.load(path).labels.tolist() == ["x" * 50] * 200_000


def test_columns_of_parquet_that_are_left_out_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "notes.parquet"
    write_words(path, "note", 4000, 100_000)
    assert arrow_bytes(lambda: data.load(path, ignore=["note"])) < 20e6
    np.testing.assert_array_equal(data.load(path, ignore=["note"]).X[:, 0], np.arange(100_000) % 7)

    def refused() -> None:
        with pytest.raises(InputError, match=r"column 'note' of notes\.parquet does not hold numbers"):
            data.load(path)

    assert arrow_bytes(refused) < 20e6  # by the type alone
    write_words(path, "a.note", 4000, 100_000)  # pyarrow would read it with column a

    def shared() -> None:
        with pytest.raises(InputError, match="a column to leave out that shares its name with another"):
            data.load(path, ignore=["a.note"])

    assert arrow_bytes(shared) < 20e6


def test_json_is_measured_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the header of a model, in the description of a network, anywhere."""
    header = "[" + "[]," * 2_000_000 + "0]"  # 24 MB as numpy writes it, and 300 MB as lists
    np.savez_compressed(tmp_path / "model.npz", header=np.array(header), digest=np.array(""))

    def refused() -> None:
        with pytest.raises(InputError, match="its array 'header' has more than 16 MiB"):
            learn.load(tmp_path / "model.npz")

    at_once(refused)
    np.savez_compressed(tmp_path / "model.npz", header=np.array("{}"), digest=np.array("0" * (5 << 20)))
    with pytest.raises(InputError, match="its array 'digest' has more than 16 MiB"):
        learn.load(tmp_path / "model.npz")
    with pytest.raises(ValueError, match="its JSON has more than 16 MiB"):
        json_text('"' + "x" * (16 << 20) + '"')
    monkeypatch.setattr(reading, "available_memory", lambda: 10**8)
    with pytest.raises(ValueError, match=r"it needs \d+ MB of memory and 100 MB are free"):
        at_once(lambda: json_text(header))


def test_numbers_beyond_float64_are_refused_in_one_line(run: Run, tmp_path: Path) -> None:
    long = np.full((20, 4), np.longdouble("1e400"))
    if not np.isfinite(long).all():
        pytest.skip("long doubles have the range of doubles here")
    for name, write in (("X.npz", lambda path: np.savez(path, X=long)), ("X.npy", lambda path: np.save(path, long))):
        write(tmp_path / name)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = run("data", "info", tmp_path / name)
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert "80 NaN or infinite values" in result.err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match="80 NaN or infinite values"):
            nsd.DEQ("relu", 0.2, 0.8).kernel(long)


def test_a_sparse_file_of_a_terabyte(tmp_path: Path) -> None:
    path = tmp_path / "sparse.npy"
    try:
        with path.open("wb") as file:
            file.write(npy(described("(125000000000, 1)")))
            file.truncate(file.tell() + 10**12)
    except OSError:
        pytest.skip("this file system has no sparse files")
    with pytest.raises(InputError, match="it needs 1 TB of memory"):
        at_once(lambda: data.load(path))


def piecewise(kinks: int) -> dict[str, Any]:
    points = np.linspace(-3, 3, kinks).tolist()
    return {"name": "piecewise_linear", "kinks": points, "slopes": [1.0] * (kinks + 1),
            "scale": 1, "stretch": 1, "shift": 0}  # fmt: skip


RELU = MODEL["activation"]
RELU_SERIES = {"name": "hermite", "bends": [], "logs": [], "scale": 1, "stretch": 1, "shift": 0}
MODELS: dict[str, str] = {
    "depth": "[" * 100_000,
    "deep object": '{"a":' * 100_000,
    "digits": json.dumps(MODEL).replace("0.2", "9" * 400),
    "more digits": json.dumps(MODEL).replace("0.2", "9" * 5000),
    "beyond floats": json.dumps(MODEL).replace("0.2", "1e999"),
    "list as model": json.dumps({**MODEL, "model": []}),
    "object as model": json.dumps({**MODEL, "model": {}}),
    "a number": "3",
    "text as activation": json.dumps({**MODEL, "activation": "relu"}),
    "list as name": json.dumps({**MODEL, "activation": {**RELU, "name": ["relu"]}}),
    "callable": json.dumps(
        {**MODEL, "activation": {"name": "spec", "spec": "x", "scale": 1, "stretch": 1, "shift": 0}}
    ),
    "huge scale": json.dumps({**MODEL, "activation": {**RELU, "scale": 1e300}}),
    "tiny stretch": json.dumps({**MODEL, "activation": {**RELU, "stretch": 1e-300}}),
    "huge variance": json.dumps({**MODEL, "recurrent": 1e300}),
    "not a number": json.dumps({**MODEL, "recurrent": float("nan")}),
    "text as number": json.dumps({**MODEL, "recurrent": "0.2"}),
    "list as number": json.dumps({**MODEL, "recurrent": list(range(100_000))}),
    "20 000 kinks": json.dumps({**MODEL, "activation": piecewise(20_000)}),
    "nested kinks": json.dumps({**MODEL, "activation": {**piecewise(1), "kinks": [[[[0]]]], "slopes": [1, [2]]}}),
    "many layers": json.dumps({"model": "Explicit", "activations": [RELU] * 20_000}),
    "layers as text": json.dumps({"model": "Explicit", "activations": "relu"}),
    "no layers": json.dumps({"model": "Explicit", "activations": []}),
    "unknown field": json.dumps({**MODEL, "client": "tcp://x"}),
    "long": '{"model": "DEQ", "x": "' + "y" * (17 << 20) + '"}',
    "not UTF-8": "\udcff",
    "many coefficients": json.dumps(
        {"model": "Explicit", "activations": [{**RELU_SERIES, "coefficients": [0.0, *[1.0] * 70_000]}] * 2}
    ),
    "a cell without activations": json.dumps({"model": "DeepDEQ", "layers": [{"recurrent": 0.5, "input": 1.0}]}),
    "a cell of numbers": json.dumps({"model": "DeepDEQ", "layers": [1, 2]}),
    "match without parts": json.dumps({"match": {}, "closeness": []}),
    "match of numbers": json.dumps({"match": 3, "closeness": 4, "data": 5}),
}


@pytest.mark.parametrize("name", MODELS)
def test_damaged_model_files(name: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(MODELS[name].encode("utf-8", "surrogateescape"))
    np.save(tmp_path / "X.npy", X)
    commands: list[tuple[Any, ...]] = [("show", path)]
    commands.append(("kernel", tmp_path / "X.npy", "--cell", path, "--out", tmp_path / "K.npy"))
    for command in commands:
        result = at_once(lambda command=command: run(*command))
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
        assert len(result.err) < 2100


def test_as_many_kinks_as_are_possible_are_quick(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**MODEL, "activation": piecewise(128)}), encoding="utf-8")
    assert at_once(lambda: run("show", path)).code == 0


@pytest.fixture
def network(tmp_path: Path) -> Path:
    nn = pytest.importorskip("notsodeep.nn")
    return Path(nn.save(nn.DEQNet(nsd.DEQ("relu", 0.1, 0.8), 3, 8), tmp_path / "net.safetensors"))


def rewritten(path: Path, **changes: Any) -> None:
    """Change the description or the tensors of a network file, without a checksum, as version 0.1.0 wrote it."""
    import safetensors.torch

    from notsodeep.nn import export

    tensors, content = export.unpacked(path, "notsodeep-network")
    assert content is not None
    tensors |= {name: value for name, value in changes.items() if name in tensors}
    content |= {name: value for name, value in changes.items() if name not in tensors}
    safetensors.torch.save_file(tensors, path, {"notsodeep-network": json.dumps(content)})


@pytest.mark.parametrize(
    "change",
    [
        {"width": 40_000},
        {"in_features": 10**9},
        {"out_features": 10**9},
        {"width": [8]},
        {"width": True},
        {"dtype": "float16"},
        {"dtype": []},
        {"options": []},
        {"options": {"solver": "anderson", "on_failure": "warn", "memory": 10**8}},
        {"options": {"solver": "anderson", "on_failure": "warn", "max_iter": 10**12}},
        {"options": {"solver": "anderson", "on_failure": "warn", "seed": 1}},
        {"options": {"solver": "anderson", "on_failure": "os.system"}},
        {"options": {"solver": "anderson"}},
        {"model": []},
        {"model": nsd.Explicit(["relu"]).to_dict()},
        {"model": nsd.ConvDEQ("relu", 0.1, 0.8).to_dict()},
    ],
    ids=str,
)
def test_network_files_that_describe_something_else(network: Path, change: dict[str, Any]) -> None:
    from notsodeep import nn

    rewritten(network, **change)
    with pytest.raises(InputError, match="is damaged"):
        at_once(lambda: nn.load(network))


def test_network_files_without_finite_weights(network: Path) -> None:
    import torch

    from notsodeep import nn

    for value in (torch.full((8, 8), torch.nan), torch.full((8, 8), torch.inf), torch.zeros(8, 8).double()):
        rewritten(network, recurrent=value)
        with pytest.raises(InputError, match="recurrent does not hold finite numbers in float32"):
            nn.load(network)


def test_a_sparse_network_file(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a kilobyte on disk that declares another tensor of 1 GB, or more than the memory."""
    import resource

    raw = network.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header, weights = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    header["more"] = {"dtype": "F32", "shape": [1 << 28], "data_offsets": [len(weights), len(weights) + (1 << 30)]}
    text = json.dumps(header).encode()
    with network.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + weights)
        file.truncate(8 + len(text) + len(weights) + (1 << 30))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError):
        nn.load(network)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert more < 1.5e6  # kB: the pages of the file, once
    monkeypatch.setattr(reading, "available_memory", lambda: 10**8)
    with pytest.raises(InputError, match=r"it needs 1\.07 GB of memory"):
        nn.load(network)


def test_network_files_have_a_checksum(network: Path) -> None:
    from notsodeep import nn

    whole = network.read_bytes()
    network.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match="was changed after it was written"):
        nn.load(network)
    network.write_bytes(struct.pack("<Q", 1 << 40) + whole[8:])
    with pytest.raises(InputError, match="its header is too long"):
        at_once(lambda: nn.load(network))


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    arrays = {"a": X, "b": np.asfortranarray(X), "c": np.array("text"), "d": np.arange(3) > 1, "e": np.zeros((0, 3))}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    with Npz(tmp_path / "a.npz") as archive_:
        assert archive_.names == list("abcde")
        for name, array in arrays.items():
            np.testing.assert_array_equal(archive_[name], array)
            assert archive_[name].dtype == array.dtype
            assert archive_[name].flags.writeable
        assert archive_.get("f") is None
        with pytest.raises(ValueError, match="no array called 'f'"):
            _ = archive_["f"]
    np.save(tmp_path / "a.npy", np.asfortranarray(X))
    np.testing.assert_array_equal(npy_file(tmp_path / "a.npy"), X)


def test_limits_follow_the_size_of_the_file_and_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    reading.affordable(60 << 20, 10)
    reading.affordable(1 << 30, 100 << 20)
    with pytest.raises(ValueError, match=r"it would unpack from 1\.05 MB to 1\.07 GB"):
        reading.affordable(1 << 30, 1 << 20)
    monkeypatch.setattr(reading, "available_memory", lambda: 10**6)
    with pytest.raises(ValueError, match="it needs 2 MB of memory and 1 MB are free"):
        reading.affordable(2 * 10**6, 10**6)


def test_tables_and_json_ask_for_memory_before_they_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, plain, labels = (tmp_path / f"{name}.csv" for name in ("table", "plain", "labels"))
    table.write_text("a,b\n" + "0.12345678,0.12345678\n" * 1000)
    plain.write_bytes(b"1,2\r\n" * 1000)
    labels.write_text("label\n" + "x\n" * 1000)
    nested = tmp_path / "mixture.json"
    nested.write_text("[" + "[]," * 9_999 + "[]]")
    monkeypatch.setattr(reading, "available_memory", lambda: 40_000)
    for path in (table, plain):  # two numbers a line, twice: the array grows
        assert data.load(path).X.shape == (1000, 2)
        monkeypatch.setattr(reading, "available_memory", lambda: 30_000)
        with pytest.raises(InputError, match=r"it needs 0\.032\d* MB of memory and 0\.03 MB are free"):
            data.load(path)
        monkeypatch.setattr(reading, "available_memory", lambda: 40_000)
    with pytest.raises(InputError, match=r"it needs 0\.08\d* MB of memory"):
        data.load(labels)
    monkeypatch.setattr(reading, "available_memory", lambda: 10**9)
    tracemalloc.start()
    reading.json_text(nested.read_text())
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    monkeypatch.setattr(reading, "available_memory", lambda: taken)
    with pytest.raises(InputError, match="of memory and"):
        nsd.load_mixture(nested)


def test_a_record_of_a_table_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line without end, or quotations that hold all other lines."""
    monkeypatch.setattr("notsodeep.data.files._LONGEST", 1 << 16)
    path = tmp_path / "data.csv"
    for content in ("1," * 40_000, "a,b\n1,2\n" + '"\n",' * 20_000):
        path.write_text(content)
        with pytest.raises(InputError, match="ends a record of more than"):
            data.load(path)
    path.write_text("a,b\n" + "1,2\n" * 20_000)
    assert len(data.load(path).X) == 20_000


def test_json() -> None:
    assert json_text('{"a": [1, -2.5, NaN]}')["a"][:2] == [1, -2.5]
    assert json_text("9" * 40) == int("9" * 40)
    for text, reason in (("9" * 41, "an integer of 41 digits"), ("[" * 99_999, "nested too deeply"), ("{", "not JSON")):
        with pytest.raises(ValueError, match=reason):
            json_text(text)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")])
def test_the_depth_of_json_does_not_depend_on_python(opening: str, closing: str, run: Run, tmp_path: Path) -> None:
    """What Python parses it may not be able to show: a few hundred brackets end `show --json` in a RecursionError."""
    assert json_text(opening * 99 + "1" + closing * 99)
    for depth in (101, 400, 700, 900):
        nested = opening * depth + "1" + closing * depth
        with pytest.raises(ValueError, match="nested too deeply"):
            json_text(nested)
        path = tmp_path / "match.json"
        path.write_text(f'{{"match": {{}}, "closeness": {nested}}}')
        result = run("show", path, "--json")
        assert (result.code, result.err.count("\n")) == (2, 1)


def test_a_name_in_json_means_one_thing(tmp_path: Path) -> None:
    path = tmp_path / "deq.json"
    path.write_text(json.dumps(MODEL)[:-1] + ', "recurrent": 0.9}')
    with pytest.raises(InputError, match="it names 'recurrent' twice"):
        nsd.load_model(path)
    names = ", ".join(f'"{k}": 1' for k in range(200_000))  # not in quadratic time
    with pytest.raises(ValueError, match="it names '0' twice"):
        at_once(lambda: json_text(f'{{{names}, "0": 2}}'))


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_an_array_with_fewer_rows_than_its_file_holds(suffix: str, tmp_path: Path) -> None:
    """One bit of the header, (20 → (10, would drop half of the samples; an archive checks only what is read."""
    path = tmp_path / f"data.{suffix}"
    less = saved(X).replace(b"(20, 4)", b"(10, 4)")
    path.write_bytes(less if suffix == "npy" else archive(X=less))
    with pytest.raises(InputError, match="it declares 320 bytes of numbers and holds 640"):
        data.load(path)


def test_two_arrays_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("X.npy", saved(X))
        file.writestr("X", saved(X[:3]))
    with pytest.raises(InputError, match="two of its arrays have the same name"):
        data.load(path)


def test_names_in_a_refusal_are_short_and_printable(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(archive(**{"\x1b[31m" + "x" * 60_000: saved(X)}))
    with pytest.raises(InputError, match=r"it holds \\x1b\[31mx{52}\)") as refusal:
        data.load(path)
    assert len(str(refusal.value)) < 200
