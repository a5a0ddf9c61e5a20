"""Compiled loops are kept where that is possible, and whatever is wrong with the place never ends a run."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import compilation

LOOP = """
from notsodeep.compilation import jit

@jit(nogil=True)
def successor(x):
    return x + 1
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, and nothing told yet."""
    monkeypatch.setattr(compilation._settings, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compilation, "_told", [])
    compilation._private.cache_clear()
    yield tmp_path / "cache"
    compilation._private.cache_clear()


def fresh(tmp_path: Path) -> Any:
    """The loop as a new process would have it."""
    path = tmp_path / "loops.py"
    path.write_text(LOOP)
    specification = importlib.util.spec_from_file_location("loops", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.successor


def hits(loop: Any) -> int:
    assert loop(1) == 2
    return sum(loop.stats.cache_hits.values())


def test_a_loop_is_compiled_once(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hits(fresh(tmp_path)) == 0
    assert hits(fresh(tmp_path)) == 1
    assert sorted(file.suffix for file in cache.rglob("*.nb?")) == [".nbc", ".nbi"]
    assert capsys.readouterr().err == ""


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


HARM: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda content: b"garbage" * 100,
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "lengthened": lambda content: content + b"\0",
    "flipped": flipped,
    "another pickle": lambda content: b"I1\n.",
}


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_file_is_written_anew(
    harm: str, suffix: str, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hits(fresh(tmp_path)) == 0
    (victim,) = cache.rglob(f"*{suffix}")
    victim.write_bytes(HARM[harm](victim.read_bytes()))
    assert hits(fresh(tmp_path)) == 0
    told = capsys.readouterr().err
    assert told == f"note: compiled kernels in {victim.parent} are damaged; they are compiled again\n"
    assert hits(fresh(tmp_path)) == 1
    assert capsys.readouterr().err == ""


def damaged(folder: Path) -> None:
    for file in folder.rglob("*.nb?"):
        file.write_bytes(b"garbage" * 100)


def test_several_damaged_directories_make_one_note(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of the package and that of its kernels, say."""
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
        assert hits(fresh(folder)) == 0
    assert len({file.parent for file in cache.rglob("*.nb?")}) == 2
    damaged(cache)
    assert [hits(fresh(folder)) for folder in folders] == [0, 0]
    assert capsys.readouterr().err.count("\n") == 1
    assert [hits(fresh(folder)) for folder in folders] == [1, 1]


def test_a_damaged_private_directory_makes_one_note(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = unwritable(tmp_path, monkeypatch)
    assert hits(fresh(tmp_path)) == 0
    damaged(place)
    monkeypatch.setattr(compilation, "_told", [])
    capsys.readouterr()
    assert hits(fresh(tmp_path)) == 0
    assert capsys.readouterr().err == f"note: compiled kernels are kept in {place}: package and home cannot be used\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name")
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_pipe_in_its_place_is_not_waited_for(
    suffix: str, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hits(fresh(tmp_path)) == 0
    (victim,) = cache.rglob(f"*{suffix}")
    victim.unlink()
    os.mkfifo(victim)
    assert hits(fresh(tmp_path)) == 0
    assert "are damaged; they are compiled again" in capsys.readouterr().err
    assert hits(fresh(tmp_path)) == 1


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_file_of_another_user_is_not_unpickled(
    suffix: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may carry the right checksum, which everybody can compute, and any code."""
    assert hits(fresh(tmp_path)) == 0
    (victim,) = cache.rglob(f"*{suffix}")
    planted, plain = victim.stat().st_ino, os.stat

    def stat(path: Any, **options: Any) -> Any:
        found = plain(path, **options)
        return SimpleNamespace(st_uid=54321, st_mode=found.st_mode) if found.st_ino == planted else found

    monkeypatch.setattr(compilation.os, "stat", stat)
    assert hits(fresh(tmp_path)) == 0
    assert "are damaged; they are compiled again" in capsys.readouterr().err


@pytest.mark.parametrize("trap", ["open to all", "of another"])
def test_a_cache_that_others_can_write_is_not_used(
    trap: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NUMBA_CACHE_DIR=/tmp, say, where somebody has prepared the directory of this package."""
    assert hits(fresh(tmp_path)) == 0
    (place,) = {file.parent for file in cache.rglob("*.nb?")}
    if trap == "open to all":
        place.chmod(0o777)
    else:
        monkeypatch.setattr(compilation, "_trusted", lambda: {54321})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert hits(fresh(tmp_path)) == 0
    told = capsys.readouterr().err
    if trap == "open to all":
        assert told.startswith(f"note: compiled kernels are kept in {tmp_path / 'notsodeep-'}")
        assert hits(fresh(tmp_path)) == 1
    else:
        assert told.startswith("note: kernels are compiled anew in each run")


def test_data_of_another_overload_is_not_taken(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes at once may number their overloads alike: the index of one then names the data of the other."""
    loop = fresh(tmp_path)
    assert (loop(1), loop(1.5)) == (2, 2.5)
    first, second = sorted(cache.rglob("*.nbc"))
    shutil.copy(second, first)
    assert fresh(tmp_path)(1) == 2
    assert capsys.readouterr().err == ""


def test_a_change_in_any_kernel_makes_loops_stale(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hits(fresh(tmp_path)) == 0
    monkeypatch.setattr(compilation, "_kernels", lambda: "another digest")
    assert hits(fresh(tmp_path)) == 0
    assert hits(fresh(tmp_path)) == 1


@pytest.mark.parametrize("method", ["_load_index", "_save_index"])
def test_a_place_lost_after_the_start_is_told_once(
    method: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = fresh(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(compilation._Files, method, refuse)
    if method == "_load_index":
        monkeypatch.setattr(compilation._Files, "_save_index", refuse)
    assert (loop(1), loop(1.5)) == (2, 2.5)
    assert f"cannot be kept in {next(cache.iterdir())}: Read-only file system" in capsys.readouterr().err


def test_without_a_place_a_private_one_is_used(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = unwritable(tmp_path, monkeypatch)
    loop = fresh(tmp_path)
    assert capsys.readouterr().err == ""  # nothing until something is compiled
    assert hits(loop) == 0
    expected = f"note: compiled kernels are kept in {place}: package and home cannot be used\n"
    assert capsys.readouterr().err == expected
    assert place.stat().st_mode & 0o777 == 0o700
    assert hits(fresh(tmp_path)) == 1
    assert compilation._settings.CACHE_DIR == "/dev/null/cache"  # that of others stays as it was


def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Take away every directory of Numba's, and return what should take their place."""
    monkeypatch.setattr(compilation._settings, "CACHE_DIR", "/dev/null/cache")
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "__pycache__").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"notsodeep-{os.getuid()}"


@pytest.mark.parametrize("trap", ["open to all", "link", "file", "of another", "no temporary files"])
def test_a_directory_that_is_not_private_is_not_used(
    trap: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies in the cache is executed: a directory that somebody else prepared must not be taken."""
    place, other = unwritable(tmp_path, monkeypatch), tmp_path / "other"
    other.mkdir(mode=0o700)
    if trap == "open to all":
        place.mkdir()
        place.chmod(0o777)
    elif trap == "link":
        place.symlink_to(other)
    elif trap == "file":
        place.touch()
    elif trap == "of another":
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        place.mkdir(mode=0o700)
        place.rename(tmp_path / "notsodeep-12345")
    else:
        monkeypatch.setattr(tempfile, "tempdir", "/dev/null")
    assert hits(fresh(tmp_path)) == 0
    assert hits(fresh(tmp_path)) == 0
    expected = "note: kernels are compiled anew in each run: set NUMBA_CACHE_DIR to a directory that can be written\n"
    assert capsys.readouterr().err == expected
    assert not list(tmp_path.rglob("*.nb?"))


def test_a_read_only_package_without_a_home(tmp_path: Path) -> None:
    """The whole package, as in a container: read-only, no home, somebody's broken NUMBA_CACHE_DIR."""
    package = tmp_path / "site" / "notsodeep"
    shutil.copytree(Path(nsd.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()  # also for root, who may write everywhere
    (tmp_path / "tmp").mkdir()
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/a", "NUMBA_CACHE_DIR": "/dev/null/b"}
    environment = {**os.environ, **nowhere, "PYTHONPATH": str(tmp_path / "site"), "TMPDIR": str(tmp_path / "tmp")}
    code = "import numpy as np, notsodeep as nsd; print(nsd.DEQ('relu', 0.2, 0.8).kernel(np.eye(2))[0, 1])"
    for _ in range(2):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("note: compiled kernels are kept in ")
        assert len(done.stderr.splitlines()) == 1
        expected = nsd.DEQ("relu", 0.2, 0.8).kernel(np.eye(2))[0, 1]
        assert float(done.stdout) == pytest.approx(expected, rel=1e-14)
