"""What is printed: nothing that steers a terminal or a spreadsheet, nothing that an encoding lacks, no traceback."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command_line import Run

import notsodeep as nsd
from notsodeep import interrupt
from notsodeep.commands import console
from notsodeep.progress import reporter
from notsodeep.text import cell, printable

SOURCES = str(Path(nsd.__file__).parents[1])
HOSTILE = ["\x1b[31mred\x1b]0;title\x07", "\x9b2J", "\u202etxt.exe", "a\rb", "=HYPERLINK(1)", "[/x] [bold]"]
UNSEEN = "".join(chr(code) for code in [*range(9), 7, 11, 12, 13, 27, 127, *range(128, 160), 0x202E, 0x2066, 0x2028])


@pytest.mark.parametrize("text", HOSTILE)
def test_text_for_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not set(shown) & set(UNSEEN)
    assert shown.isprintable()
    assert printable("σ‖x‖² é 漢字 — \u00a0") == "σ‖x‖² é 漢字 — \u00a0"
    assert printable("a\nb") == "a\\nb"
    assert printable("a\nb", keep="\n") == "a\nb"
    assert printable(os.fsdecode(b"\xff.npy")) == "\\udcff.npy"


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", "\r=1", "＝1"])
def test_formulas_are_text_in_a_spreadsheet(text: str) -> None:
    assert cell(text) == f"'{text}"
    assert cell(np.str_(text)) == f"'{text}"


@pytest.mark.parametrize("value", ["setosa", "-1", "+1.5e3", "-inf", -1.0, 3, None, ""])
def test_other_values_stay_as_they_are(value: Any) -> None:
    assert cell(value) is value


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Data whose labels are hostile."""
    X = np.random.default_rng(0).normal(size=(60, 6)) + np.repeat(np.eye(6), 10, axis=0) * 9
    path = tmp_path / "d.npz"
    np.savez(path, X=X, y=np.repeat(HOSTILE, 10))
    return path


def test_labels_reach_neither_terminal_nor_spreadsheet_raw(run: Run, labelled: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "m.npz", tmp_path / "p.csv"
    results = [
        run("data", "info", labelled),
        run("fit", labelled, "--out", model),
        run("predict", model, labelled),
        run("predict", model, labelled, "--json"),
        run("predict", model, labelled, "--out", out),
        run("match", "--data", labelled),
        run("train", "--data", labelled, "--epochs", 1, "--width", 8, "--model", "\x1b[31m"),
        run("\x1b[31m"),
        run("data", "info", "\x9b31m.npy"),
    ]
    assert [result.code for result in results] == [0] * 6 + [2] * 3
    for result in results:
        assert not set(result.out + result.err) & set(UNSEEN), result
    assert set(results[3].json["predictions"]) == set(HOSTILE)  # JSON keeps them, spelt out
    assert "[/x] [bold]" in results[0].out
    with out.open(encoding="utf-8", newline="") as file:
        written = {row[0] for row in list(csv.reader(file))[1:]}
    assert written == {"'=HYPERLINK(1)" if label[0] == "=" else label for label in HOSTILE}
    assert run("predict", model, labelled, "--proba", "--out", out, "--force").code == 0
    header = out.read_text(encoding="utf-8").splitlines()[0]
    assert header.isprintable()
    assert next(csv.reader([header]))[1:] == [f"probability of {printable(label)}" for label in np.unique(HOSTILE)]


def test_names_of_files_are_spelt_out(run: Run, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\x1b[31m\xff.npy")
    try:
        np.save(path, np.eye(3))
    except OSError:
        pytest.skip("this file system takes no such name")
    result = run("data", "info", path)
    assert result.code == 0
    assert "\\x1b[31m\\udcff" in result.out
    assert not set(result.out) & set(UNSEEN)


def test_bars_take_names_as_they_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("notsodeep.progress._is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # for rich, a terminal
    with console.progress("[/x].zarr \x1b[2J") as report:
        report.stage("[/y].zarr \x1b[2J")
    with reporter("[/z] \x1b[2J", 2, True) as report:
        report(1, 2)
    shown = capsys.readouterr().err
    assert "[/y].zarr \\x1b[2J" in shown
    assert "[/z] \\x1b[2J" in shown
    assert "\x1b[2J" not in shown


def test_an_error_is_not_as_long_as_the_value_it_names(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**nsd.DEQ("relu", 0.2, 0.8).to_dict(), "input": "x" * 10**6}), encoding="utf-8")
    assert len(run("show", path).err) < 2100


def test_clear_words_for_common_mistakes(run: Run, tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(30, 4)), np.repeat([0.0, 1.0], 15)
    nan, large = np.where(np.arange(30) < 3, np.nan, y), 1e19 * (1 + y)
    for name, labels in (("good", y), ("nan", nan), ("one", 0 * y), ("large", large), ("lowest", -1e308 * y)):
        np.savez(tmp_path / f"{name}.npz", X=X, y=labels)
    good, out = tmp_path / "good.npz", tmp_path / "m.npz"
    told = {
        "nan.npz: 3 of its 30 labels are NaN or infinite; drop those samples": (
            "fit",
            tmp_path / "nan.npz",
            "--out",
            out,
        ),
        "y holds labels as large as 1e+19, no classes": ("fit", tmp_path / "large.npz", "--out", out),
        "y holds labels as large as -1e+308, no classes": ("fit", tmp_path / "lowest.npz", "--out", out),
        "y holds one class only (0.0); a classifier needs": ("fit", tmp_path / "one.npz", "--out", out),
        "it holds data: the model that `notsodeep fit` wrote comes first": ("predict", good, good),
        "input='abc' must be a number": ("match", "--input", "abc"),
        "width='3.5' must be a whole number": ("train", "--width=3.5"),
    }
    for message, words in told.items():
        result = run(*words)
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
        assert message in result.err


def test_a_step_that_is_far_too_large_is_told_in_one_line(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    X = np.random.default_rng(0).normal(size=(40, 5))
    np.savez(tmp_path / "d.npz", X=X, y=np.arange(40) % 2)
    result = run("train", "--data", tmp_path / "d.npz", "--lr", 1e9, "--epochs", 3, "--width", 16)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
    assert "lower lr=1e+09" in result.err


def test_too_little_memory_is_told_in_one_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(*_: Any, **__: Any) -> Any:
        return np.empty((10**9, 10**9))

    monkeypatch.setattr(nsd.DEQ, "kernel", allocate)
    result = run("kernel", "digits", "--out", tmp_path / "K.npy")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
    assert "not enough memory" in result.err
    assert list(tmp_path.iterdir()) == []


WITH_FILES = """
import numpy as np
from notsodeep.cli import main
np.savez("σ漢.npz", X=np.random.default_rng(0).normal(size=(30, 6)), y=np.repeat(["σ", "漢", "\x1b[31m"], 10))
for words in (
    *("data info σ漢.npz", "fit σ漢.npz --out φ漢.npz", "predict φ漢.npz σ漢.npz --proba"),
    *("predict φ漢.npz σ漢.npz --proba --out φ漢.csv", "kernel σ漢.npz --out φ漢.npy", "kernel σ漢.npz --out φ漢.zarr"),
    *("verify φ漢.zarr", "match --data σ漢.npz", "forecast --data σ漢.npz --n 20", "bench --list"),
    *("predict φ漢.npz σ漢.npz --json",),
    *("fit σ漢.npz --out φ漢.npz", "verify φ漢", "predict φ漢 φ漢", "data fetch φ漢", "show φ漢.npy"),
):
    try:
        main(words.split())
    except SystemExit as end:
        print(f"<{end.code}>", flush=True)
"""


def test_names_and_labels_that_a_stream_lacks(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONIOENCODING": "cp1252"}
    command = [sys.executable, "-X", "utf8=0", "-c", WITH_FILES]
    done = subprocess.run(command, env=environment, capture_output=True, check=False, cwd=tmp_path)
    out, err = done.stdout.decode("cp1252"), done.stderr.decode("cp1252")
    assert done.returncode == 0, err
    assert [line for line in out.splitlines() if line.startswith("<")] == ["<0>"] * 11 + ["<2>"] * 5, err
    assert all(line.startswith(("error: ", "warning: ")) for line in err.splitlines()), err
    assert "\x1b" not in out + err
    assert r"phi\u6f22" in out


COMMANDS = """
import sys
from notsodeep.cli import main
for words in (
    *(["--help"], ["match", "--help"], ["match"], ["match", "--json"], ["data", "list"], ["show", sys.argv[1]]),
    *(["train", "--help"], ["match", "--activation", "σ"], ["match", "--data", "φ‖.npy"], ["reproduce", "--list"]),
):
    try:
        main(words)
    except SystemExit as end:
        print(f"<{end.code}>", flush=True)
"""


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_streams_that_lack_greek(encoding: str, tmp_path: Path) -> None:
    model = nsd.DEQ("tanh", 0.2, 0.8).save(tmp_path / "m.json")
    environment = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, str(model)], env=environment, capture_output=True, check=False
    )
    out, err = done.stdout.decode(encoding), done.stderr.decode(encoding)
    assert done.returncode == 0, err
    assert "Traceback" not in err
    codes = [line for line in out.splitlines() if line.startswith("<")]
    assert codes == ["<0>"] * 7 + ["<2>"] * 2 + ["<0>"]
    assert "sigma_a" in out
    assert "?" not in out.replace("did you mean", "")
    content = out[out.index("{") : out.rindex("}\n") + 1]
    assert json.loads(content)["text"].startswith("DEQ(relu(x)")  # machines get all of it
    assert err.splitlines()[0].startswith(
        ("error: activation='sigma' is not known", "error: activation='σ' is not known")
    )


# stand for the second in which everything is imported, and for C code that dies of an exception
SLOW = "import time\nprint('importing', flush=True)\ntime.sleep(200)\n"
FRAGILE = f"import os\ntry:\n    {SLOW.strip().replace(chr(10), '; ')}\nexcept BaseException:\n    os._exit(11)\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")
@pytest.mark.parametrize("how", ["module", "script"])
@pytest.mark.parametrize(("package", "content"), [("numpy", SLOW), ("sklearn", FRAGILE)], ids=["first", "later"])
def test_ctrl_c_during_the_imports(how: str, package: str, content: str, tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (first / f"{package}.py").write_text(content)
    script = tmp_path / "notsodeep"
    script.write_text("from notsodeep.cli import main\nmain()\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(first), SOURCES])}
    words = ["-m", "notsodeep"] if how == "module" else [str(script)]
    process = subprocess.Popen(
        [sys.executable, *words, "match", "--data", "digits"],
        env=environment,
        cwd=first,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "error: interrupted\n")


def test_ctrl_c_is_answered_before_anything_large_is_imported() -> None:
    code = f"exec(open({interrupt.__file__!r}).read()); import sys; print('pathlib' in sys.modules)"
    found = subprocess.run([sys.executable, "-S", "-E", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_the_library_leaves_ctrl_c_alone() -> None:
    code = "import signal, notsodeep; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    restore = (lambda: signal.signal(signal.SIGINT, signal.default_int_handler)) if os.name == "posix" else None
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, preexec_fn=restore)
