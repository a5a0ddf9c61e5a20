"""Image sets from sources that lie, fail or are interrupted, into a cache that may be damaged; no network anywhere.

Also covers: commands/data.py.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command_line import Run
from tests.image_files import COLOR, GREY, cifar_files, idx_files, write

import notsodeep as nsd
from notsodeep import data
from notsodeep.data import catalog, sources
from notsodeep.data.formats import ImageSet


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


def test_one_error_tells_what_each_source_said(cache: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    stock(monkeypatch, failing("first", OSError("no route")), sources.Source("second", lambda: COLOR))
    with pytest.raises(data.FetchError) as caught:
        data.load("mnist")
    for words in ("first: no route", "second: it holds", "train-images-idx3-ubyte", str(cache / "mnist")):
        assert words in str(caught.value)
    code, out, err = run("data", "fetch", "mnist", "--json")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("error: mnist could not be fetched (first: no route; second: ")
    with pytest.raises(nsd.InputError, match="notsodeep data fetch mnist"):
        data.load("mnist", fetch=False)
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_known_before_the_download(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock(monkeypatch, failing("first", AssertionError("must not be asked")))
    cache.write_text("a file")
    with pytest.raises(nsd.InputError, match="is a file, not a directory"):
        data.fetch("mnist")


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


@pytest.mark.parametrize(
    ("system", "expected"), [("windows", "local/notsodeep/data"), ("macos", "home/Library/Caches/notsodeep/data")]
)
def test_where_the_cache_is_on_other_systems(
    system: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The places of version 0.1: what was fetched is found again."""
    module = importlib.import_module(f"platformdirs.{system}")
    monkeypatch.delenv("NOTSODEEP_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("platformdirs.PlatformDirs", getattr(module, {"windows": "Windows", "macos": "MacOS"}[system]))
    if system == "windows":
        monkeypatch.setattr(module, "get_win_folder", lambda name: str(tmp_path / "local"))
    assert data.cache_folder() == tmp_path / expected


# --- the command ----------------------------------------------------------------------


def test_command(cache: Path, monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path) -> None:
    def told(*arguments: object) -> str:
        code, out, err = run("data", *arguments)
        assert (code, err) == (0, "")
        return out

    stock(monkeypatch, failing("first", OSError("no route")), sources.Source("good", lambda: GREY))
    (row,) = (row for row in json.loads(told("list", "--json")) if row["name"] == "mnist")
    assert row == {"name": "mnist", "train": 20, "test": 10, "shape": [4, 5, 1], "here": "no", "path": None}
    assert "mnist: not from first: no route" in told("fetch", "mnist")
    assert "here already" in told("fetch", "mnist")
    assert json.loads(told("fetch", "mnist", "--force", "--json"))[0]["refusals"] == ["first: no route"]
    assert "gaussian-mixture" in told("list")
    found = json.loads(told("info", "mnist", "--json"))
    assert (found["samples"], found["samples_test"], found["image_shape"]) == (20, 10, [4, 5, 1])
    assert found["mean"] == pytest.approx(GREY.images.mean() / 255)
    assert found["channel_stds"][0] == pytest.approx(GREY.images.std() / 255)
    assert found["classes"] == {str(k): 2 for k in range(10)}
    assert found["path"] == str(cache / "mnist.npz")
    assert found["sha256"] == catalog.CATALOG["mnist"].sha256
    assert "sha256" in told("info", "mnist")
    # a file of one's own with that name is not the set of that name
    np.savez(tmp_path / "mnist.npz", X=np.eye(3))
    assert json.loads(told("info", tmp_path / "mnist.npz", "--json"))["sha256"] is None
