"""Ctrl-C waits where work must not be left halfway."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from notsodeep import compilation, interrupt


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
