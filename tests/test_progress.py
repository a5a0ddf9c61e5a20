"""One protocol of progress: callbacks, bars, lines, notebooks, silence."""

from __future__ import annotations

import copy
import sys
import types
from typing import Any

import numba
import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import progress
from notsodeep.progress import Reporter, compilation, reporter


class Step:
    """Counts like an integer and has something to say: an epoch."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number

    def __str__(self) -> str:
        return f"loss {1 / self.number:.2f}"


def work(kind: progress.Progress, steps: int = 4, **options: Any) -> None:
    with reporter("work", steps, kind, **options) as report:
        for done in range(1, steps + 1):
            report(done, steps)


def in_notebook(monkeypatch: pytest.MonkeyPatch, *, widgets: bool) -> None:
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(progress, "available", lambda name: widgets and name == "ipywidgets")


def test_a_callable_receives_what_is_done() -> None:
    seen: list[tuple[int, int]] = []
    with reporter("work", 3, lambda *call: seen.append(call)) as report:
        report.stage("first part")  # a callable knows numbers only
        report(1, 3)
        report.note("said")
        report(3, 3)
    assert seen == [(1, 3), (3, 3)]


def test_a_report_is_the_progress_of_a_part() -> None:
    seen: list[tuple[int, int]] = []
    with reporter("whole", progress=lambda *call: seen.append(call)) as whole, reporter("part", 2, whole) as part:
        assert part is whole
        nsd.DEQ("relu", 0.2, 0.8).kernel(np.eye(3), progress=part)
    assert seen[-1][0] == seen[-1][1]


def test_an_exception_in_a_callback_passes() -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(stop)


@pytest.mark.parametrize("kind", [None, False])
def test_silence_where_nobody_looks(kind: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    work(kind, patience=0.0)
    assert capsys.readouterr() == ("", "")


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with reporter("work", 40, True) as report:
        for done in range(1, 41):
            report(done, 40)
        report.stage("end \x1b[31m")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [*(f"work {tenth} %" for tenth in range(0, 101, 10)), "end \\x1b[31m"]


def test_a_step_tells_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with reporter("training", 2, True) as report:
        report(Step(2), 2)
        report(np.int64(2), 2)  # a number like any other
    assert capsys.readouterr().err.splitlines() == ["training 0 %", "training: loss 0.50 100 %"]


def test_no_line_before_the_patience_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_notebook(monkeypatch, widgets=False)
    clock = iter([0.0, 0.1, 1.0, 1.6, 1.7, 1.8])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    work(None)
    assert capsys.readouterr().err.splitlines() == ["work 50 %", "work 70 %", "work 100 %"]


@pytest.mark.parametrize("widgets", [True, False])
def test_notebooks(widgets: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A bar where ipywidgets can show one, otherwise lines; the error stream of a notebook is no terminal."""
    started: list[Any] = []
    monkeypatch.setattr("rich.progress.Progress.start", lambda bar: started.append(bar.tasks[0].description))
    in_notebook(monkeypatch, widgets=widgets)
    work(None, patience=0.0)
    assert started[:1] == (["work"] if widgets else [])
    assert ("work 100 %" in capsys.readouterr().err) is not widgets


def test_ipython_in_a_terminal_is_no_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace()))
    work(None, patience=0.0)
    assert capsys.readouterr().err == ""


def test_the_bar_of_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich takes the captured stream for a terminal
    with reporter("[b]work :key:", progress=None, patience=0.0) as report:
        report.stage("kernel [/b]")
        report(1, 2)
        report.note("compiled \x1b[31m")
        report.note("compiled \x1b[31m")
    shown = capsys.readouterr().err
    assert "kernel [/b]" in shown
    assert "50%" in shown
    assert shown.count("compiled") == 1
    assert shown.endswith("\x1b[2K")  # it is gone


def test_a_report_can_be_copied(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """scikit-learn's clone copies the parameters of an estimator deeply."""
    monkeypatch.setattr(progress, "_is_terminal", lambda: True)
    with reporter("work", progress=None, patience=1e9) as report:
        copied = copy.deepcopy(report)
    assert isinstance(copied, Reporter)
    copied(1, 2)


@pytest.mark.parametrize("wrong", [3, "yes", [True]])
def test_a_wrong_kind_is_refused(wrong: Any) -> None:
    with pytest.raises(nsd.InputError, match="True, False, None or a callable"):
        work(wrong)


def test_compilation_is_noted_once_in_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    fresh = numba.njit(lambda x: x + 1)
    with reporter("work", progress=True) as report:
        for value in (1, 1.0):
            with compilation(report):
                fresh(value)
    assert capsys.readouterr().err.count("compiling kernels") == 1
    with compilation(lambda *_: None), compilation(False):
        fresh(1j)
    assert capsys.readouterr().err == ""
