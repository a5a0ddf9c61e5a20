"""Ctrl-C leaves no work halfway: in the command line by undoing it, elsewhere by waiting."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from notsodeep import compilation, files, interrupt


@pytest.fixture(autouse=True)
def _answered() -> Iterator[None]:
    """Ctrl-C as in a terminal: shells make their background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_it_is_answered_at_the_end() -> None:
    done = []

    def work() -> None:
        with interrupt.deferred():
            with interrupt.deferred():
                press()
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_is_answered_at_once() -> None:
    done = []

    def work() -> None:
        with interrupt.deferred(), interrupt.deferred():
            press()
            done.append("first")
            press()
            done.append("second")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["first"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_happens_without_it() -> None:
    with interrupt.deferred():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_do_not_touch_it() -> None:
    seen = []

    def work() -> None:
        with interrupt.deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


class Ended(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """What this process does if it answers Ctrl-C as the command line: writes, exit code, the files at that moment."""
    seen: list[Any] = []

    def leave(status: int) -> None:
        seen.append((status, sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))))
        raise Ended

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(os, "write", lambda stream, text: seen.append((stream, text)))
    signal.signal(signal.SIGINT, interrupt._end)
    yield seen
    assert interrupt._unfinished == {}


LINE = (2, b"error: interrupted\n")


def test_a_command_undoes_the_latest_first_and_exits(command: list[Any]) -> None:
    def fail() -> None:
        raise OSError("gone")

    with (
        pytest.raises(Ended),
        interrupt.before_end(lambda: command.append("outer")),
        interrupt.before_end(fail),
        interrupt.before_end(lambda: command.append("inner")),
    ):
        press()
    assert command == ["inner", "outer", LINE, (130, [])]


def test_a_command_forgets_what_is_finished(command: list[Any]) -> None:
    with interrupt.before_end(lambda: command.append("undone")):
        pass
    with pytest.raises(Ended):
        press()
    assert command == [LINE, (130, [])]


def test_a_command_does_not_wait(command: list[Any]) -> None:
    with pytest.raises(Ended), interrupt.deferred():  # noqa: PT012
        press()
        command.append("after")
    assert command == [LINE, (130, [])]


def test_a_command_leaves_no_unfinished_file(command: list[Any], tmp_path: Path) -> None:
    with pytest.raises(Ended), files.writing(tmp_path / "K.npy") as file:  # noqa: PT012
        file.write(b"half")
        press()
    assert command == [LINE, (130, [])]


def test_a_command_leaves_no_temporary_directory(command: list[Any]) -> None:
    with pytest.raises(Ended), files.scratch() as place:  # noqa: PT012
        (place / "download").touch()
        press()
    assert command == [LINE, (130, [])]
    assert not place.exists()


@pytest.mark.parametrize(
    ("moves", "kept"),
    [(0, "old"), (1, "old"), (2, "new")],
    ids=["before the swap", "within the swap", "after the swap"],
)
def test_a_command_leaves_the_old_directory_or_the_new_one(
    moves: int, kept: str, command: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, rename, done = tmp_path / "report", os.replace, []
    with files.building(target) as folder:
        (folder / "old").touch()

    def replace(source: Path, place: Path) -> None:
        if len(done) == moves == 0:
            done.append("pressed")
            press()
        rename(source, place)
        done.append(place)
        if len(done) == moves:
            press()

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(Ended), files.building(target) as folder:
        (folder / "new").touch()
    assert command == [LINE, (130, ["report", f"report/{kept}"])]


def test_it_waits_for_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left halfway, Numba ends the process."""
    monkeypatch.setattr(compilation._settings, "CACHE_DIR", str(tmp_path))
    loop: Any = compilation.jit()(_successor)
    whole = loop._compiler.compile

    def pressed(*arguments: Any) -> Any:
        press()
        return whole(*arguments)

    loop._compiler.compile = pressed
    with pytest.raises(KeyboardInterrupt):
        loop(1)
    assert len(loop.overloads) == 1
    assert loop(1) == 2


def _successor(x: int) -> int:
    return x + 1


SPY = """
import _signal, sys
sys.argv = ["notsodeep"]
_signal.signal(_signal.SIGINT, _signal.default_int_handler)
before, real = set(sys.modules), _signal.signal
def spy(*arguments):
    print(sorted(set(sys.modules) - before))
    _signal.signal = real
_signal.signal = spy
import notsodeep
"""


def test_a_command_answers_it_before_it_imports_anything() -> None:
    found = subprocess.run([sys.executable, "-c", SPY], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "['notsodeep', 'notsodeep.interrupt']\n"


@pytest.mark.parametrize("marker", ["notsodeep.interrupt", "typer.core", "notsodeep.cli"])
def test_a_command_answers_it_while_it_starts(marker: str) -> None:
    """Pressed as soon as a module is imported, which Python prints."""
    command = [sys.executable, "-X", "importtime", "-m", "notsodeep", "--version"]
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests in the background ignore it
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, preexec_fn=listen, **pipes) as process:
        assert process.stderr is not None
        seen = any(line.rsplit("|", 1)[-1].strip() == marker for line in process.stderr)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        process.wait(60)
    assert seen
    assert "Traceback" not in rest
    assert process.returncode in (0, 130)
    assert process.returncode == 0 or rest.endswith("error: interrupted\n")
