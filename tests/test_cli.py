"""The command line: output for people and machines, one-line errors, files complete or absent."""

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
from tests.commands import Run

import notsodeep as nsd
from notsodeep.commands import console


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A labelled data file of 60 samples."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, X=rng.normal(size=(60, 80)), y=np.repeat([0, 1], 30))
    return path


def test_help_and_version(run: Run) -> None:
    assert "match" in run("--help").out
    assert "--recurrent" in run("match", "--help").out
    assert run("--version").out.strip() == nsd.__version__
    assert run().code in (0, 2)  # no arguments: the help, as typer does it


def test_match_for_people(run: Run, small: Path) -> None:
    result = run("match", "--activation", "relu", "--recurrent", 0.2, "--input", 0.8, "--data", small)
    assert result.code == 0, result.err
    assert result.err == ""
    for words in ("well-posed at finite and infinite width", "σ1(x) = ", "0.2105263158", "plain tanh", "exact"):
        assert words in result.out


def test_match_on_a_sphere(run: Run, small: Path) -> None:
    result = run(
        "match", "--on", "sphere", "--activation", "swish", "--bias", 0.5, "--kind", "ntk", "--data", small, "--json"
    )
    content = json.loads(result.out)
    assert content["exact"] is True
    assert content["data"]["distance"] <= 1e-10
    assert content["network"]["activations"][0]["name"] == "hermite"
    assert "exact on the sphere" in run("match", "--on", "sphere", "--activation", "tanh").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--on", "sphere", "--kinks", 0), "kinks=0 must be an integer"),
        (("--kinks", 2), "kinks=2 is for --on sphere"),
        (("--on", "spher"), "did you mean 'sphere'"),
        (("--on", "sphere", "--depth", 2), "--depth is for --on mixture"),
        (("--bias", 0.5), "needs bias=0"),
    ],
)
def test_match_refuses_in_one_line(run: Run, arguments: tuple, message: str) -> None:
    result = run("match", *arguments)
    assert result.code != 0
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_match_for_machines(run: Run, small: Path) -> None:
    result = run("match", "--data", small, "--json")
    content = result.json
    assert result.err == ""
    assert content["match"]["exact"] is True
    assert content["match"]["residual"] <= 1e-10
    assert content["data"] == {"name": "small", "prepared": True, "samples": 60, "features": 80, "classes": 2}
    assert content["match"]["target"]["c1"] == pytest.approx(0.2105263157894737, rel=1e-12)
    for key, value in content["match"]["target"].items():
        assert content["match"]["achieved"][key] == pytest.approx(value, rel=1e-8)
    matched, *others = content["closeness"]
    assert matched["network"] == "matched"
    assert all(matched["error"] < 0.1 * other["rescaled_error"] for other in others)


@pytest.mark.parametrize(
    "options",
    [
        ("--activation", "tanh"),
        ("--activation", "leaky_relu", "--param", "a=1", "--param", "b=0.2"),
        ("--kind", "ntk"),
        ("--tau0", "1.7"),
    ],
)
def test_match_options(run: Run, small: Path, options: tuple[str, ...]) -> None:
    data = () if "--tau0" in options else ("--data", small)
    content = run("match", "--json", *data, *options).json
    assert content["match"]["residual"] <= 1e-8
    matched, *others = content["closeness"]
    assert all(matched["error"] < 0.2 * other["error"] for other in others)


def test_report(run: Run, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notsodeep.study.kernels._GAUSSIAN", (60, 80))  # the cloud in place of absent data
    folder = tmp_path / "deep" / "report"
    assert run("match", "--data", small, "--report", folder).code == 0
    names = {path.name for path in folder.iterdir()}
    pictures = {
        f"{name}.{kind}" for name in ("activations", "spectra", "closeness", "training") for kind in ("png", "svg")
    }
    assert pictures | {"network.json", "match.json", "index.html"} <= names
    assert [path.name for path in folder.parent.iterdir()] == ["report"]  # nothing temporary stays
    content = json.loads((folder / "match.json").read_text(encoding="utf-8"))
    assert [row[0] for row in content["comparison"]["rows"]][:2] == ["test accuracy", "hidden layers evaluated"]
    network = nsd.load_model(folder / "network.json")
    assert network.to_dict() == content["match"]["network"]
    assert (folder / "index.html").read_text(encoding="utf-8").count(
        'class="plot"'
    ) == 14  # report/test_match_page.py looks closer
    shown = run("show", folder / "network.json", "--json")
    assert shown.json["formulas"] == content["formulas"]
    assert run("show", folder / "match.json", "--json").json == content
    for words in (content["text"], content["formulas"][0], "plain tanh", "inference, 1000 samples"):
        assert words in run("show", folder / "match.json").out
    # a second run replaces the report; its pictures have been drawn once
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda _, file, **__: file.write(b"drawn"))
    before = (folder / "match.json").stat().st_mtime_ns
    again = run("match", "--data", small, "--report", folder, "--no-train", "--json").json
    assert again["report"] == str(folder)
    assert "(the earlier report was replaced)" in run("match", "--report", folder).out
    assert again["comparison"] is None
    assert not (folder / "training.png").exists()
    assert (folder / "match.json").stat().st_mtime_ns > before
    # but not if somebody put a file beside it
    (folder / "notes.txt").write_text("mine")
    refused = run("match", "--data", small, "--report", folder)
    assert refused.code == 2
    assert "'notes.txt' for one" in refused.err
    assert (folder / "notes.txt").read_text() == "mine"


def test_people_read_eighty_columns(run: Run, small: Path) -> None:
    lines = run("match", "--activation", "tanh", "--recurrent", 0.3, "--data", small).out.splitlines()
    assert "a finite network may have no unique equilibrium" in " ".join(" ".join(lines).split())
    assert max(len(line) for line in lines if "(x) = " not in line) <= 80  # a formula can be copied in one piece


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


def test_exact_numbers_are_not_called_exact_kernels(run: Run) -> None:
    """Close to the edge of existence a rescaled relu network comes closer than the matched one, and that is said."""
    result = run("match", "--recurrent", 1.5)
    text = " ".join(result.out.split())
    matched, relu, _ = run("match", "--recurrent", 1.5, "--json").json["closeness"]
    assert relu["rescaled_error"] < matched["rescaled_error"]
    assert f"these differ by {100 * matched['error']:.3g} %" in text
    assert f"but plain relu is closer on these data once rescaled ({100 * relu['rescaled_error']:.3g} % against" in text
    assert "is closer on these data" not in run("match").out


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

    first = told("None", "None")
    assert first.count("compiling kernels") == len(first.splitlines()) == 1
    assert told("None") == ""
    for file in tmp_path.rglob("*.nbi"):
        file.unlink()
    assert told("False") == ""


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


def test_show(run: Run, tmp_path: Path) -> None:
    path = nsd.DEQ("tanh", 0.3, 0.8).save(tmp_path / "deq.json")
    result = run("show", path)
    assert "DEQ(tanh(x), recurrent=0.3, input=0.8, bias=0)" in result.out
    assert "a finite network may have no unique equilibrium" in " ".join(result.out.split())
    assert run("show", path, "--json").json["well_posed"] is False


def test_kernel(run: Run, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "K.npy"
    result = run("kernel", small, "--activation", "tanh", "--kind", "ntk", "--out", out, "--json")
    assert result.json["shape"] == [60, 60]
    X = np.load(small)["X"]
    np.testing.assert_allclose(np.load(out), nsd.DEQ("tanh", 0.2, 0.8).kernel(X, kind="ntk"), rtol=1e-12)
    again = run("kernel", small, "--out", out)
    assert again.code == 2
    assert "pass --force to replace it" in again.err
    model = nsd.Explicit(["relu"]).save(tmp_path / "model.json")
    assert run("kernel", small, "--model", model, "--out", out, "--force", "--dtype", "float32").code == 0
    assert np.load(out).dtype == np.float32
    assert run("kernel", small, "--out", out, "--force", "--limit", "7", "--json").json["shape"] == [7, 7]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["K.npy", "model.json"]


def test_named_data(run: Run, tmp_path: Path) -> None:
    mixture = "gaussian-mixture:n=40,p=50"
    assert run("match", "--data", mixture, "--limit", "30", "--json").json["data"]["samples"] == 30
    assert run("kernel", mixture, "--out", tmp_path / "K.npy", "--json").json["shape"] == [40, 40]


def test_training_holds_out_the_sets_own_test_part(run: Run, tmp_path: Path) -> None:
    """Labels that cannot be learnt are found in the test part and nowhere else."""
    pytest.importorskip("torch")
    X = np.random.default_rng(0).normal(size=(80, 10)) + np.repeat([[-2.0], [2.0]], 40, axis=0)
    y = np.repeat(["low", "high"], 40)
    swapped = np.where(y == "low", "high", "low")
    np.savez(tmp_path / "a.npz", X=X, y=y, X_test=X, y_test=swapped)
    options = ("train", "--model", "explicit", "--data", tmp_path / "a.npz", "--width", 64, "--lr", 0.01, "--json")
    assert run(*options, "--epochs", 20).json["test_accuracy"] < 0.1
    assert run(*options, "--epochs", 20, "--test-share", 0.5).json["test_accuracy"] > 0.9
    assert run(*options, "--epochs", 1, "--test-share", 1.5).code == 2


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


def test_a_foreign_directory_is_not_touched(run: Run, small: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    result = run("match", "--data", small, "--report", tmp_path)
    assert result.code == 2
    assert "holds files that are not a report" in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    result = run("match", "--data", small, "--report", tmp_path / "thesis.tex")
    assert "is a file, not a directory" in result.err


def test_an_unwritable_directory(run: Run, small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(self: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "mkdir", refuse)  # also root, who may write everywhere
    result = run("match", "--data", small, "--report", "report")
    assert result.code == 2
    assert result.err.startswith("error: report: writing is not permitted; change the permissions")
    assert list(tmp_path.iterdir()) == []


def test_what_comes_into_a_report_during_the_work_is_kept(
    run: Run, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from notsodeep.report import pictures

    folder = tmp_path / "report"
    folder.mkdir()
    plots = {name: [] for name in pictures.NAMES}
    monkeypatch.setattr(pictures, "draw", lambda *_: (folder / "thesis.tex").write_text("mine") and plots)
    result = run("match", "--data", small, "--report", folder, "--no-train")
    assert result.code == 2
    assert "holds files that are not a report ('thesis.tex' for one)" in result.err
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_a_failure_while_drawing_leaves_the_old_report(
    run: Run, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from notsodeep.report import pictures

    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "match.json").write_text("an earlier report")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device", "closeness.png")

    monkeypatch.setattr(pictures, "save", fail)
    result = run("match", "--data", small, "--report", folder, "--no-train", "--kind", "ntk")
    assert result.err == "error: closeness.png: No space left on device\n"
    assert [path.read_text() for path in folder.iterdir()] == ["an earlier report"]
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


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
    command += ["--no-train"]  # PyTorch may swallow the signal, or die of it, while it is being imported
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # tests in the background ignore it
    with subprocess.Popen(command, preexec_fn=listen, **pipes) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    # Python ends itself by the signal if that hits a string being executed (dataclasses); a shell sees 130 for both
    assert process.returncode in (130, -signal.SIGINT)
    assert out == ""
    assert err == "error: interrupted\n"
    assert list(tmp_path.iterdir()) == []
