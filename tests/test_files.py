"""Files appear complete or not at all, nothing else is touched, and errors name the path that was asked for."""

from __future__ import annotations

import ast
import errno
import os
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command_line import Result, Run

import notsodeep as nsd
from notsodeep import InputError, data, files
from notsodeep.learn import DEQKernelClassifier, DEQKernelRegressor
from notsodeep.solvers.conjugate_gradients import ConjugateGradients


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_a_file_is_replaced_at_once(tmp_path: Path) -> None:
    target = tmp_path / "note"
    assert files.write(target, b"old\r\n") == target
    assert target.read_bytes() == b"old\r\n"
    with files.writing(str(target)) as file:
        file.write("größer".encode())
        assert target.read_bytes() == b"old\r\n"
    assert target.read_text("utf-8") == "größer"
    files.write(tmp_path / "a" / "b" / "c", "deep", parents=True)
    assert (tmp_path / "a" / "b" / "c").read_text() == "deep"
    assert names(tmp_path) == ["a", "note"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    files.write(tmp_path / "note", "old")

    def fail_in_the_block() -> None:
        with files.writing(tmp_path / "note") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    def fail_in_the_check() -> None:
        def refuse() -> None:
            raise KeyboardInterrupt

        files.write(tmp_path / "note", "new", check=refuse)

    for fail in (fail_in_the_block, fail_in_the_check):
        with pytest.raises(KeyboardInterrupt):
            fail()
        assert names(tmp_path) == ["note"]
        assert (tmp_path / "note").read_text() == "old"


KILLED = """
import os, signal, sys
from notsodeep import files
with files.writing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_leaves_the_old_file_and_one_that_is_removed_later(tmp_path: Path) -> None:
    target = tmp_path / "note"
    files.write(target, "old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_text() == "old"
    (left,) = tmp_path.glob(".*.partial")
    victim, link = tmp_path / "victim", left.with_name(left.name.replace(left.name[6:38], "0" * 32))
    files.write(victim, "mine")
    link.symlink_to(victim)
    others = [tmp_path / name for name in ("note.partial", ".note.1234.partial", left.name.replace("note", "gone"))]
    for path in (victim, left, *others):
        path.touch()
        os.utime(path, (time.time() - 3 * 3600,) * 2)
    os.utime(left, (time.time() - 60,) * 2)
    files.write(target, "new")
    assert left.exists()  # may belong to a process that is still writing
    os.utime(left, (time.time() - 2 * 3600,) * 2)
    files.write(target, "newer")
    assert not left.exists()
    assert link.is_symlink()
    assert victim.read_text() == "mine"
    assert all(path.exists() for path in others)
    files.sweep(tmp_path)
    assert names(tmp_path) == sorted([link.name, "note", "victim", "note.partial", ".note.1234.partial"])


def saved_estimator(path: Path) -> None:
    X = np.linspace(-1, 1, 8)[:, None]
    DEQKernelRegressor().fit(X, X[:, 0]).save(path)


def saved_iteration(path: Path) -> None:
    ConjugateGradients(lambda V: V, np.ones((3, 1))).save(path, "problem")


WRITERS: dict[str, Callable[[Path], object]] = {
    "file": lambda path: files.write(path, "new"),
    "model": nsd.DEQ("relu", 0.2, 0.8).save,
    "mixture": nsd.Mixture([[0.0, 1.0]], [1.0], [1.0]).save,
    "estimator": saved_estimator,
    "iteration": saved_iteration,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_links_are_replaced_and_never_followed(writer: str, tmp_path: Path) -> None:
    work, victim = tmp_path / "work", tmp_path / "victim"
    work.mkdir()
    victim.write_text("mine")
    target = work / "new.npz"
    guesses = [f"{target.name}{middle}.partial" for middle in ("", f".{os.getpid()}", f".{os.getpid()}.1")]
    for name in (target.name, *guesses):
        (work / name).symlink_to(victim)
    WRITERS[writer](target)
    assert not target.is_symlink()
    assert target.stat().st_size > 0
    assert victim.read_text() == "mine"
    assert names(work) == sorted([target.name, *guesses])


def test_a_name_that_exists_already_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda n: "a" * 2 * n)
    (tmp_path / "victim").write_text("mine")
    (tmp_path / f".note.{'a' * 32}.partial").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError) as error:
        files.write(tmp_path / "note", "new")
    assert error.value.filename == str(tmp_path / "note")
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (tmp_path / "note").exists()


@pytest.mark.parametrize("name", ["é" * 127, "x" * 255, "日" * 85])
def test_a_name_may_be_as_long_as_the_system_allows(name: str, tmp_path: Path) -> None:
    files.write(tmp_path / name, "long")
    assert names(tmp_path) == [name]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("afile/o.npy", "out='afile/o.npy': 'afile' is a file, not a directory"),
        ("afile/b/o.npy", "out='afile/b/o.npy': 'afile' is a file, not a directory"),
        ("loose/o.npy", "out='loose/o.npy': 'loose' is a link to nothing, not a directory"),
        ("absent/o.npy", "out='absent/o.npy': the directory 'absent' does not exist; create it first"),
        ("adirectory", "out='adirectory' is a directory; pass a file name"),
        ("", "out='' is a directory; pass a file name"),
        ("pipe", "out='pipe' is a device or a pipe"),
    ],
)
def test_a_place_where_nothing_can_be_written(
    path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("afile").touch()
    Path("adirectory").mkdir()
    Path("loose").symlink_to("nowhere")
    os.mkfifo("pipe")
    with pytest.raises(InputError) as error:
        files.write(path, "new", parameter="out")
    assert str(error.value).startswith(message)
    if path.startswith(("afile", "loose")):
        with pytest.raises(InputError, match="not a directory"):
            files.write(path, "new", parents=True)
        with pytest.raises(InputError, match="not a directory"), files.building(f"{path}/report"):
            pass
    if path.startswith("afile"):
        with pytest.raises(InputError, match=r"^report='afile' is a file"), files.building("afile", parameter="report"):
            pass
        assert Path("afile").is_file()


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "the disk is full; free some space"),
        (errno.EROFS, "the file system is read-only; make it writable"),
        (errno.EACCES, "writing is not permitted; change the permissions"),
        (errno.EIO, "Input/output error; mend it"),
    ],
)
def test_errors_of_the_system_name_the_path_of_the_caller(
    code: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def refuse(source: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code), str(source))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match=advice) as error:
        files.write("note", "new")
    assert (error.value.errno, error.value.filename) == (code, "note")
    with pytest.raises(OSError, match=advice) as error, files.building("report") as folder:
        raise OSError(code, os.strerror(code), str(folder / "a" / "b.png"))
    assert (error.value.errno, error.value.filename) == (code, os.path.join("report", "a", "b.png"))
    assert names(tmp_path) == []


def test_an_error_of_another_file_is_passed_on(tmp_path: Path) -> None:
    for place in (files.writing(tmp_path / "note"), files.building(tmp_path / "report")):
        with pytest.raises(FileNotFoundError) as error, place:
            (tmp_path / "absent").read_text()
        assert error.value.filename == str(tmp_path / "absent")


def test_a_limit_of_the_system_is_a_clear_error(tmp_path: Path) -> None:
    before, plain = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(OSError, match="exceed the size allowed; raise the limit, and try again") as error:
            files.write(tmp_path / "note", bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, plain)
    assert error.value.filename == str(tmp_path / "note")
    assert names(tmp_path) == []


def test_content_is_forced_to_the_disk_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    files.write(tmp_path / "note", "new", durable=False)
    assert synced == []
    files.write(tmp_path / "note", "new")
    assert len(synced) == 1


def test_a_directory_is_replaced_at_once(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report"
    for content in ("old", "new"):
        with files.building(target) as folder:
            (folder / content).write_text(content)
            assert folder.stat().st_mode == (tmp_path / "deep").stat().st_mode
            assert not (target / content).exists()
        assert names(target) == [content]
    with pytest.raises(FileNotFoundError), files.building(target) as folder:
        (folder / "absent" / "half").touch()
    assert names(target) == ["new"]
    assert names(target.parent) == ["report"]


def test_a_directory_that_cannot_be_put_in_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, plain = tmp_path / "report", os.replace
    with files.building(target) as folder:
        (folder / "old").touch()

    def replace(source: Path, place: Path) -> None:
        if source == folder:
            raise PermissionError(errno.EACCES, "", str(source))
        plain(source, place)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(PermissionError, match="not permitted"), files.building(target) as folder:
        (folder / "new").touch()
    assert names(target) == ["old"]
    assert names(tmp_path) == ["report"]


@pytest.mark.parametrize("relative", [False, True])
def test_a_link_to_a_directory_is_replaced_and_not_followed(
    relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine", "thesis").write_text("mine")
    for aim in ("mine", "nowhere"):
        link = Path("report") if relative else tmp_path / "report"
        link.symlink_to(aim)
        with files.building(link) as folder:
            (folder / "new").touch()
        assert not link.is_symlink()
        assert names(link) == ["new"]
        assert names(tmp_path) == ["mine", "report"]
        (link / "new").unlink()
        link.rmdir()
    assert names(tmp_path / "mine") == ["thesis"]


def test_the_current_directory_can_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "report"
    (place / "inner").mkdir(parents=True)
    monkeypatch.chdir(place / "inner")
    with files.building("..") as folder:
        (folder / "new").touch()
    assert names(place) == ["new"]


def test_what_appears_while_a_directory_is_replaced_is_seen_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check and the rename somebody could put a file there, which then was deleted."""
    target, plain = tmp_path / "report", os.replace
    with files.building(target) as folder:
        (folder / "old").touch()

    def late(source: Path, place: Path) -> None:
        if source == target:
            (target / "thesis").write_text("mine")
        plain(source, place)

    def check(place: Path) -> None:
        if names(place) != ["old"]:
            raise InputError("not ours")

    monkeypatch.setattr(os, "replace", late)
    with pytest.raises(InputError, match="not ours"), files.building(target, check=check) as folder:
        (folder / "new").touch()
    assert names(target) == ["old", "thesis"]
    assert names(tmp_path) == ["report"]


def test_a_file_that_appears_where_a_directory_is_built(tmp_path: Path) -> None:
    target = tmp_path / "report"
    with pytest.raises(InputError, match="became a file meanwhile"), files.building(target):
        target.write_text("mine")
    assert target.read_text() == "mine"
    assert names(tmp_path) == ["report"]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_during_the_work_is_left_alone(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "note.txt"

    def write_late() -> None:
        with files.writing(target, parameter="out", new=True) as file:
            file.write(b"new")
            target.write_text("mine")

    for expected in ("note-1.txt", "note-2.txt"):
        with pytest.raises(InputError, match=f"^out=.*appeared during the work and was left alone; see .*{expected}"):
            write_late()
        assert (tmp_path / expected).read_text() == "new"
    assert target.read_text() == "mine"
    files.write(target, "newer")
    files.write(tmp_path / "other", "new", new=True)
    assert names(tmp_path) == ["note-1.txt", "note-2.txt", "note.txt", "other"]
    assert target.read_text() == "newer"


COMMANDS = {
    "kernel": ["kernel", "digits", "--limit", "20", "--out", "{}/o.npy"],
    "fit": ["fit", "digits", "--limit", "20", "--out", "{}/o.npz"],
    "predict": ["predict", "{machine}", "digits", "--limit", "20", "--out", "{}/o.csv"],
    "train": ["train", "--limit", "20", "--epochs", "1", "--out", "{}/o.safetensors"],
    "checkpoint": ["train", "--limit", "20", "--epochs", "1", "--checkpoint", "{}/o.safetensors"],
    "match": ["match", "--no-train", "--report", "{}/report"],
    "reproduce": ["reproduce", "ling24-fig2", "--quick", "--out", "{}/papers"],
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    digits = data.load("digits")
    fitted = DEQKernelClassifier().fit(digits.X[:20], digits.labels[:20])
    return fitted.save(tmp_path_factory.mktemp("fitted") / "machine.npz")


@pytest.fixture
def call(run: Run, machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Result]:
    """Run one of these commands in an empty directory, with its results below `place`."""
    monkeypatch.chdir(tmp_path)

    def called(command: str, place: str) -> Result:
        if command in ("train", "checkpoint"):
            pytest.importorskip("torch")
        return run(*(part.format(place, machine=machine) for part in COMMANDS[command]))

    return called


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_below_a_file_is_one_line(command: str, call: Callable[[str, str], Result]) -> None:
    Path("afile").touch()
    result = call(command, "afile")
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert result.err.startswith("error: ")
    assert "'afile' is a file, not a directory" in result.err
    assert ".partial" not in result.err


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("match", "reproduce")])
def test_a_place_without_permission_is_refused_before_the_work(
    command: str, call: Callable[[str, str], Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("sealed").mkdir()
    monkeypatch.setattr(os, "access", lambda place, mode: mode == os.R_OK)  # also root, who may write everywhere
    result = call(command, "sealed")
    assert result.code == 2
    assert result.err.startswith("error: sealed/o.")
    assert "writing is not permitted; change the permissions" in result.err
    assert names(tmp_path) == ["sealed"]


@pytest.mark.parametrize("command", ["kernel", "fit", "predict"])
def test_a_result_does_not_replace_what_appeared_while_it_was_computed(
    command: str, call: Callable[[str, str], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = data.load

    def load(name: str, **options: Any) -> data.Data:
        for ending in ("npy", "npz", "csv"):
            Path("work", f"o.{ending}").write_text("mine")
        return plain(name, **options)

    Path("work").mkdir()
    monkeypatch.setattr(data, "load", load)
    result = call(command, "work")
    (written,) = Path("work").glob("o-1.*")
    assert result.code == 2
    assert (
        result.err
        == f"error: out='work/o{written.suffix}' appeared during the work and was left alone; see '{written}'\n"
    )
    assert Path("work", f"o{written.suffix}").read_text() == "mine"


WRITES = {"write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "rename", "replace", "mkstemp", "mkdtemp"}
WRITES |= {"save_file", "tofile", "NamedTemporaryFile"}
ALLOWED = {  # of modules, what they need beyond `files`
    "compilation.py": {"mkdir"},
    "files.py": {"open", "replace", "mkdir", "TemporaryDirectory"},
}


def writers(source: str) -> set[str]:
    """Calls that write to the disk: by their names, and `open` with a mode that is not for reading."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        words = [
            one.value for one in (*node.args, *(key.value for key in node.keywords)) if isinstance(one, ast.Constant)
        ]
        modes = [
            word for word in words if isinstance(word, str) and set(word) <= set("rwxab+t") and set(word) & set("wxa+")
        ]
        of_os = (
            isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "os"
        )
        ambiguous = name in ("replace", "rename") and not of_os  # of text and of dataclasses; paths have `os.replace`
        if (name in WRITES and not ambiguous) or (name == "open" and modes) or (name == "mkdir"):
            found.add(name)
        if name == "TemporaryDirectory":
            found.add(name)
    return found


def test_one_module_writes_for_all() -> None:
    package = Path(files.__file__).parent
    assert writers("path.open('wb')\nos.replace(a, b)\nopen(p, mode='a')\npath.write_text('x')") == {
        *("open", "replace", "write_text")
    }
    assert writers("path.open('rb')\nopen(p)\ntext.replace('a', 'b')\nreplace(layer, phi=1)") == set()
    found = {str(path.relative_to(package)): writers(path.read_text("utf-8")) for path in package.rglob("*.py")}
    assert {name: calls for name, calls in found.items() if calls} == ALLOWED
