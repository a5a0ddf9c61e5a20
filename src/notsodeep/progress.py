"""Progress of long work, in one protocol: the work calls ``report(done, total)``.

The report goes to the caller's own callable, to a bar on a terminal or in a notebook, to lines of text, or nowhere.
"""

from __future__ import annotations

import numbers
import operator
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from notsodeep import interrupt
from notsodeep.errors import InputError
from notsodeep.extras import available
from notsodeep.text import printable

__all__ = ["Callback", "Progress", "Reporter", "compilation", "reporter"]

Callback: TypeAlias = Callable[[Any, int], None]
Progress: TypeAlias = bool | Callback | None
_Show: TypeAlias = Callable[[str, Any, int | None], None]

_PATIENCE = 1.5  # seconds before a bar appears
_NOTABLE = 0.5  # seconds of compilation worth a second line
_COMPILING = "compiling kernels for their first use on this machine"


class Reporter:
    """``report(done, total)`` moves the bar, ``report.stage(text)`` names what follows.

    `done` is an integer, or an object with ``__index__`` whose text is shown, such as an epoch with its loss. A report
    is itself a callable(done, total), so it can be passed on as the `progress` of a part of the work.
    """

    def __init__(self, text: str, show: _Show, note: Callable[[str], None]) -> None:
        self._text, self._show, self._note = text, show, note
        self._noted: set[str] = set()

    def __call__(self, done: Any, total: int) -> None:
        self._show(self._text, done, total)

    def stage(self, text: str) -> None:
        """Name the next part of the work, whose length is not known yet."""
        self._text = text
        self._show(text, None, None)

    def note(self, text: str) -> None:
        """Print a line once, if a bar would be shown."""
        if text not in self._noted:
            self._noted.add(text)
            self._note(text)


@contextmanager
def reporter(
    description: str, total: int | None = None, progress: Progress = None, *, patience: float = _PATIENCE
) -> Iterator[Reporter]:
    """Yield the :class:`Reporter` of one piece of work.

    Parameters
    ----------
    description : str
    total : int, optional
        Its length, if known in advance.
    progress : bool, callable or None
        A callable receives (done, total). True shows a bar, or lines if stderr is not a terminal; False shows nothing.
        None acts like True on a terminal and in a notebook, after `patience` seconds.
    patience : float
        Seconds before anything is shown.

    Examples
    --------
    >>> from notsodeep.progress import reporter
    >>> with reporter("work", progress=lambda done, total: print(done, "of", total)) as report:
    ...     report(1, 2)
    1 of 2
    """
    if isinstance(progress, Reporter):
        yield progress
    elif callable(progress):
        yield Reporter(description, lambda _, done, total: None if total is None else progress(done, total), _nothing)
    elif not _shown(progress):
        yield Reporter(description, _nothing, _nothing)
    else:
        display = _bar if _is_terminal() or (_in_notebook() and available("ipywidgets")) else _lines
        with display(0.0 if progress else patience) as (show, note):
            show(description, None if total is None else 0, total)
            yield Reporter(description, show, note)


@contextmanager
def _bar(patience: float) -> Iterator[tuple[_Show, Callable[[str], None]]]:
    """A bar that disappears when the work ends; Rich knows terminals and, with ipywidgets, notebooks."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    words, left = TextColumn("{task.description}", markup=False), TimeRemainingColumn(elapsed_when_finished=True)
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    bar = Progress(SpinnerColumn(), words, BarColumn(), TaskProgressColumn(), left, console=console, transient=True)
    task = bar.add_task("", total=None)
    began = time.monotonic()

    def show(text: str, done: Any, total: int | None) -> None:
        bar.tasks[0].total = total  # `update` cannot reset the total
        bar.update(task, description=printable(_described(text, done)), completed=operator.index(done or 0))
        if not bar.live.is_started and time.monotonic() - began >= patience:
            bar.start()

    def remove() -> None:
        if bar.live.is_started:
            bar.stop()

    try:
        with interrupt.before_end(remove):
            yield show, lambda text: console.print(text)  # a function can be deep-copied by `clone`
    finally:
        remove()


@contextmanager
def _lines(patience: float) -> Iterator[tuple[_Show, Callable[[str], None]]]:
    """A line for each stage and for each tenth of it."""
    began, told = time.monotonic(), ""

    def show(text: str, done: Any, total: int | None) -> None:
        nonlocal told
        tenth = f" {10 * (10 * operator.index(done) // total)} %" if total else ""
        if told != text + tenth and time.monotonic() - began >= patience:
            told = text + tenth
            _to_stderr(_described(text, done) + tenth)

    yield show, _to_stderr


def _described(text: str, done: Any) -> str:
    return text if done is None or isinstance(done, numbers.Integral) else f"{text}: {done}"


@contextmanager
def compilation(progress: Progress = None) -> Iterator[None]:
    """Print a line when loops are compiled inside the block, and how long it took; nothing if they are in the cache.

    Parameters
    ----------
    progress : bool, callable or None
        As in :func:`reporter`: the line appears where a bar would; a callable receives nothing.
    """
    if isinstance(progress, Reporter):
        tell = progress.note
    elif callable(progress) or not _shown(progress):
        yield
        return
    else:
        tell = Reporter("", _nothing, _to_stderr).note
    from numba.core import event

    clock = _Stopwatch()

    class Listener(event.Listener):
        def on_start(self, event: object) -> None:
            tell(_COMPILING)
            clock.enter()

        def on_end(self, event: object) -> None:
            clock.leave()

    with event.install_listener("numba:compile", Listener()):  # Numba reports compilations, not loads from the cache
        yield
    if clock.seconds >= _NOTABLE:
        tell(f"compiled in {clock.seconds:.1f} seconds; later runs load them")


class _Stopwatch:
    """Seconds between the first `enter` and the last `leave`: loops compile the loops that they call."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._began = 0.0, 0, 0.0

    def enter(self) -> None:
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1

    def leave(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began


def _shown(progress: Progress) -> bool:
    if progress not in (None, True, False):
        raise InputError(f"progress={progress!r} must be True, False, None or a callable(done, total)")
    return _is_terminal() or _in_notebook() if progress is None else bool(progress)


def _is_terminal() -> bool:
    return sys.stderr.isatty()


def _in_notebook() -> bool:
    """Whether the code runs in a notebook: among IPython's shells, only its shell has a kernel."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return hasattr(ask(), "kernel")


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")


def _nothing(*_: Any) -> None:
    return None
