"""The command line as a whole: help, one-line errors, terminals, interruptions, the installed command.

Also covers: commands/console.py, errors.py, version.py.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.command_line import Run

import notsodeep as nsd
from notsodeep.commands import console


def test_help_and_version(run: Run) -> None:
    assert "match" in run("--help").out
    assert "--recurrent" in run("match", "--help").out
    assert run("--version").out.strip() == nsd.__version__
    bare = run()  # no arguments: the help; versions of typer differ in the stream and the exit code
    assert "match" in bare.out + bare.err
    assert "Traceback" not in bare.err


def test_a_terminal_of_eighty_columns(run: Run, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are one line in a pipe, and lines of words on a terminal."""
    monkeypatch.chdir(tmp_path)
    piped = run("match", "--activation", "rleu").err
    assert len(piped) > 80
    monkeypatch.setenv("FORCE_COLOR", "1")  # what Rich takes for a terminal
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("match", "--activation", "rleu").err.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).split() == piped.split()
    commands = (("reproduce", "--list"), ("fit", small, "--out", "m.npz"), ("predict", "m.npz", small), ("match",))
    for command in (*commands, ("kernel", small, "--out", "K.npy")):
        for line in re.sub(r"\x1b\[[0-9;]*m", "", run(*command).out).splitlines():
            assert len(line) <= 80 or "(x) = " in line, line


def test_compilation_is_told_once_and_only_when_it_happens(tmp_path: Path) -> None:
    """A new cache: the terminal hears of it; the second run finds everything compiled."""
    code = (
        "import numpy as np, notsodeep as nsd, sys\n"
        "sys.stderr.isatty = lambda: True\n"
        "X = np.eye(3)\n"
        "for option in sys.argv[1:]:\n"
        "    nsd.DEQ('relu', 0.2, 0.8).kernel(X, progress=eval(option))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def told(*options: str) -> str:
        command = [sys.executable, "-c", code, *options]
        finished = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert finished.stdout == ""
        return finished.stderr

    start = time.perf_counter()
    first = told("None", "None")
    began, ended = first.splitlines()
    assert began.startswith("compiling kernels")
    seconds = re.fullmatch(r"compiled in (\d+\.\d) seconds; later runs load them", ended)
    assert seconds is not None
    assert 0.5 <= float(seconds[1]) <= time.perf_counter() - start
    assert told("None") == ""
    for file in tmp_path.rglob("*.nbi"):
        file.unlink()
    assert told("False") == ""


def test_a_missing_option_says_what_it_is_for(run: Run) -> None:
    assert run("fit", "digits").err.startswith("error: Missing option '--out': The .npz file")


def test_the_commands_tell_of_compilation_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numba

    from notsodeep import progress

    monkeypatch.setattr(progress, "_is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    fresh = numba.njit(lambda x: x + 1)
    with console.progress("work") as report:
        for value in (1, 1.0):
            with progress.compilation(report):
                fresh(value)
    assert capsys.readouterr().err.count("compiling kernels") == 1
    with console.progress("work", quiet=True) as report, progress.compilation(report):
        fresh(1j)
    assert capsys.readouterr().err == ""


def test_names_are_no_markup(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal's markup, ``[/x]``, and its emoji, ``:key:``, in the names of files, folders and classes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("notsodeep.progress._is_terminal", lambda: True)  # with bars
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    place = Path("[") / "x] :key:"
    place.mkdir(parents=True)
    np.save(place / "X.npy", np.eye(6))
    rows = "\n".join(f"{k}.5,{label}" for k, label in enumerate(["[/b]", ":key:", "[red]r"] * 2))
    (place / "D.csv").write_text(f"x,label\n{rows}\n")
    for command in (
        ["kernel", place / "X.npy", "--out", place / "K.zarr"],
        ["verify", place / "K.zarr"],
        ["fit", place / "D.csv", "--out", place / "m.npz"],
        ["match", "--data", place / "D.csv", "--no-train", "--report", place / "report"],
    ):
        result = run(*command)
        assert (result.code, str(command[-1]) in result.out) == (0, True), result.err
    assert run("show", place / "report" / "match.json").code == 0
    classes = run("data", "info", place / "D.csv").out
    assert all(label in classes for label in ("[/b]", ":key:", "[red]r"))
    assert run("predict", place / "m.npz", place / "D.csv").code == 0
    assert f"file={str(place / 'absent')!r}" in run("show", place / "absent").err


def test_named_data(run: Run, tmp_path: Path) -> None:
    mixture = "gaussian-mixture:n=40,p=50"
    assert run("match", "--data", mixture, "--limit", "30", "--json").json["data"]["samples"] == 30
    assert run("kernel", mixture, "--out", tmp_path / "K.npy", "--json").json["shape"] == [40, 40]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["match", "--activation", "rleu"], "did you mean 'relu'?"),
        (["match", "--recurrent", "3"], "use recurrent < 2"),
        (["match", "--recurrent", "-1"], "recurrent=-1.0 must not be negative"),
        (["match", "--recurrent", "much"], "recurrent='much' must be a number"),
        (["match", "--limit=some"], "limit='some' must be a whole number"),
        (["match", "--recurent", "0.2"], "--recurrent"),
        (["match", "--kind", "nkt"], "did you mean 'ntk'?"),
        (["match", "--tau0", "0"], "tau0=0.0 must be positive"),
        (["match", "--data", "digist"], "did you mean 'digits'?"),
        (["match", "--data", "absent.npy"], "does not exist"),
        (["match", "--data", "digits", "--samples", "0"], "limit=0"),
        (["match", "--param", "b"], "must look like name=value"),
        (["match", "--activation", "leaky_relu", "--param", "b=low"], "'low' is not a number"),
        (["match", "--family", "leaky"], "did you mean 'leaky_relu'?"),
        (["mach"], "command='mach' is not known; did you mean 'match'?"),
        (["frobnicate"], "(choose from match, show, forecast, kernel, verify"),
        (["data", "lits"], "did you mean 'list'? (choose from list, fetch, info)"),
        (["reproduce", "ling24-fg1"], "did you mean 'ling24-fig1'? (see notsodeep reproduce --list)"),
        (["show", "absent.json"], "does not exist"),
        (["show", __file__], "is not a model file (it is not JSON"),
        (["kernel", "digits"], "--out"),
        (["kernel", "digits", "--out", "K.txt"], "must end in .npy"),
        (["kernel", "digits", "--out", "absent/K.npy"], "create it first"),
        (["kernel", "digits", "--out", "K.npy", "--kind", "ntk2"], "did you mean 'ntk'?"),
        (["bench", "nonsense"], "is not a benchmark (see notsodeep bench --list)"),
        (["bench", "blocked_cholesky_keeps_up"], "is now called 'cholesky_against_lapack'"),
        (["bench", "deq_ntk_against_neural_tangent"], "did you mean 'deq_ntk_against_neural_tangents'? (see"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_one_line(
    run: Run, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert message in result.err
    assert result.err.startswith("error: ")
    assert len(result.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_when_the_data_are_bad(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "bad.npy", np.array([[1.0, np.nan], [0.0, 1.0]]))
    for command in (["match", "--report", tmp_path / "report", "--data"], ["kernel", "--out", tmp_path / "K.npy"]):
        result = run(*command, tmp_path / "bad.npy")
        assert result.code == 2
        assert "holds 1 NaN" in result.err
        assert [path.name for path in tmp_path.iterdir()] == ["bad.npy"]


def test_the_installed_command(small: Path) -> None:
    """In its own process: stdout is JSON and nothing else, also when it is a pipe."""
    command = [sys.executable, "-m", "notsodeep", "match", "--data", str(small), "--json"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    assert json.loads(finished.stdout)["match"]["exact"] is True


def test_interrupt(tmp_path: Path) -> None:
    """Ctrl-C in the middle: one line, code 130, nothing left on the disk."""
    report = tmp_path / "report"
    command = [sys.executable, "-m", "notsodeep", "match", "--data", "digits", "--report", str(report)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests in the background ignore it
    with subprocess.Popen(command, preexec_fn=listen, **pipes) as process:
        deadline = time.monotonic() + 120
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out == ""
    assert err == "error: interrupted\n"
    assert list(tmp_path.iterdir()) == []
