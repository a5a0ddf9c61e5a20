"""Options that commands share: the model, columns of tables, the preparation of rows, and what bad values answer."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from tests.command_line import Run

import notsodeep as nsd
from notsodeep import cli, data
from notsodeep.commands import options
from notsodeep.data.catalog import CATALOG

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 4))
SPECIES = np.where(X[:, 0] > 0, "setosa", "virginica")


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    """A stranger's table: an id first, the labels last in a column of their own name."""
    cells = zip(range(1, 41), X, SPECIES, strict=True)
    rows = [",".join([str(k), *(f"{v:.17g}" for v in x), name]) for k, x, name in cells]
    path = tmp_path / "flowers.csv"
    path.write_text("\n".join(["id,a,b,c,d,species", *rows]) + "\n")
    return path


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A table without a header line; whole numbers in its last column."""
    path = tmp_path / "bare.csv"
    np.savetxt(path, np.column_stack([X, X[:, 0] > 0]), delimiter=",", fmt="%.17g")
    return path


def commands(group: Any) -> dict[str, Any]:
    return {
        name: each
        for first, one in group.commands.items()
        for name, each in (commands(one) if hasattr(one, "commands") else {first: one}).items()
    }


COMMANDS = commands(typer.main.get_command(cli.app))
MODEL = {"activation", "param", "recurrent", "input", "bias", "cell"}
ROWS = {"label", "ignore", "limit", "normalize"}


@pytest.mark.parametrize("name", ["match", "kernel", "fit", "train", "forecast"])
def test_a_model_and_its_rows_are_described_by_the_same_options_everywhere(name: str) -> None:
    reference = {one.name: one for one in COMMANDS["match"].params}
    own = {one.name: one for one in COMMANDS[name].params}
    assert own.keys() >= MODEL | ROWS
    for shared in MODEL | ROWS:
        assert (own[shared].opts, own[shared].help) == (reference[shared].opts, reference[shared].help)


def test_help_names_the_data_sets_there_are() -> None:
    assert ", ".join(CATALOG) == options.FETCHED
    assert options.DATA.startswith(", ".join(data.NAMES))


def test_help_shows_no_type_of_a_flag(run: Run) -> None:
    for name in ("--help", *COMMANDS):
        prefix = ("data",) if name in ("list", "fetch", "info") else ()
        help = run(*prefix, *((name,) if name == "--help" else (name, "--help"))).out
        assert "--help  " in help
        assert not re.search(r"bool|list\[|<\w+>", help, flags=re.IGNORECASE), name


def test_help_imports_nothing_slow() -> None:
    """No NumPy, which is what makes the help of a command quick."""
    code = (
        "import sys; from notsodeep.cli import main\n"
        "try: main(['match', '--help'])\n"
        "except SystemExit: print(*sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "--normalize" in shown
    loaded = shown.splitlines()[-1].split()
    assert "typer" in loaded
    assert not {"numpy", "scipy", "numba", "sklearn", "torch", "pydantic", "rich.markdown"} & set(loaded)


def test_a_stranger_gets_a_classifier_in_one_command(run: Run, flowers: Path, tmp_path: Path) -> None:
    columns = ("--label", "species", "--ignore", "id")
    out = tmp_path / "m.npz"
    result = run("fit", flowers, *columns, "--out", out)
    assert (result.code, result.err) == (0, "")
    for words in ("labels in column 'species'", "without column id", "40 distinct samples × 4 features"):
        assert words in result.out
    assert "rows       each row divided by its norm" in result.out
    again = run("predict", out, flowers, *columns, "--json")
    assert again.json["accuracy"] == 1
    assert set(again.json["predictions"]) == {"setosa", "virginica"}
    assert "… 30 more" in run("predict", out, flowers, *columns).out


def test_what_a_stranger_forgets_is_said(run: Run, flowers: Path, bare: Path, tmp_path: Path) -> None:
    def refusal(*arguments: object) -> str:
        result = run("fit", *arguments, "--out", tmp_path / "m.npz")
        assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
        return result.err

    assert "column 'species' holds text ('" in (told := refusal(flowers))
    assert "--label species" in told
    assert "did you mean 'species'?" in refusal(flowers, "--label", "speces")
    assert "did you mean 'id'?" in refusal(flowers, "--label", "species", "--ignore", "idd")
    assert "is the column of the labels" in refusal(flowers, "--label", "species", "--ignore", "species")
    assert "bare.csv has no header line: columns are numbered from 1 to 5" in refusal(bare)
    assert "pass the number of a column, from 1 to 5" in refusal(bare, "--label", "species")
    assert "from 1 to 5" in refusal(bare, "--label", "6")
    assert "digits' has no columns to name" in refusal("digits", "--label", "y")
    np.save(tmp_path / "X.npy", X)
    assert "X.npy has none" in refusal(tmp_path / "X.npy", "--label", "y")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["X.npy", "bare.csv", "flowers.csv"]
    used = run("fit", flowers, "--label", "species", "--out", tmp_path / "m.npz").out
    assert "column 'id' is used as a feature" in " ".join(used.split())


def test_columns_of_files_without_a_header_line(run: Run, bare: Path, tmp_path: Path) -> None:
    result = run("kernel", bare, "--label", 5, "--out", tmp_path / "K.npy", "--normalize", "unit", "--kind", "NTK")
    assert "bare.csv has no header line" in result.out
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    expected = nsd.DEQ("relu", 0.2, 0.8).kernel(unit, kind="ntk")
    np.testing.assert_allclose(np.load(tmp_path / "K.npy"), expected, rtol=1e-12)


def test_labels_of_an_archive_and_of_parquet(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X, species=SPECIES, species_test=SPECIES[:5], X_test=X[:5])
    loaded = data.load(tmp_path / "a.npz", label="species")
    assert loaded.labels is not None
    assert loaded.labels_test is not None
    assert list(loaded.labels) == list(SPECIES)
    assert list(loaded.labels_test) == list(SPECIES[:5])
    with pytest.raises(nsd.InputError, match="no array called 'kind' \\(it holds "):
        data.load(tmp_path / "a.npz", label="kind")
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"ID": range(40), "species": list(SPECIES), "a": X[:, 0]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(nsd.InputError, match="pass --label species"):
        data.load(tmp_path / "a.parquet")
    found = data.load(tmp_path / "a.parquet", label="Species", ignore="id")
    assert found.labels is not None
    np.testing.assert_array_equal(found.X, X[:, :1])
    assert list(found.labels) == list(SPECIES)
    assert found.notes == ("labels in column 'species'", "without column ID")


def test_fractions_are_no_classes(run: Run, tmp_path: Path) -> None:
    """Neither in an archive nor in a table, for any command that classifies."""
    np.savez(tmp_path / "a.npz", X=X, y=X[:, 3])
    np.savetxt(tmp_path / "a.csv", X, delimiter=",", header="a,b,c,y", comments="")
    for file in ("a.npz", "a.csv"):
        for command in (("fit", tmp_path / file, "--out", tmp_path / "m.npz"), ("forecast", "--data", tmp_path / file)):
            result = run(*command)
            assert result.code == 2
            assert "labels that are not whole numbers" in result.err
    assert run("fit", tmp_path / "a.csv", "--task", "regress", "--out", tmp_path / "m.npz").code == 0


@pytest.mark.parametrize(
    ("mode", "words"),
    [("unit", "each scaled to ‖x‖ = τ0 = 1"), ("none", "as they are, mean ‖x‖²"), ("center", "centred, and scaled")],
)
def test_rows_of_a_match(run: Run, small: Path, mode: str, words: str) -> None:
    content = run("match", "--data", small, "--normalize", mode, "--json").json
    assert content["data"]["rows"].startswith(words)
    rows = data.load(small).prepared(mode).X
    tau0 = float(np.sqrt(np.mean(np.sum(rows**2, axis=1))))
    assert content["match"]["tau0"] == pytest.approx(tau0, rel=1e-12)
    found = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=tau0)
    assert content["closeness"][0]["error"] == pytest.approx(found.distance_on(rows), rel=1e-6)


def test_rows_of_a_match_on_a_sphere(run: Run, small: Path) -> None:
    options = ("match", "--on", "sphere", "--data", small, "--bias", "0.5", "--kind", "Ntk", "--tau0", "2")
    usual, centred = (run(*options, *more, "--json").json["data"] for more in ((), ("--normalize", "center")))
    assert usual["distance"] < 1e-9
    assert usual["rows"] == "each row divided by its norm, then times τ0 = 2"
    assert centred["distance"] > 1e-6
    assert "rows       each row divided by its norm" in run(*options).out


def test_each_command_prints_its_rows(run: Run, small: Path, tmp_path: Path) -> None:
    for command, words in (
        (("forecast", "--data", small), "rows       centred, divided by"),
        (("kernel", small, "--out", tmp_path / "K.npy"), "rows       rows as they are"),
        (("match", "--data", small), "rows       centred, and scaled to mean ‖x‖² = τ0²"),
    ):
        assert words in run(*command).out
    assert "pass --data too" in run("match", "--normalize", "unit").err
    assert "did you mean 'center'?" in run("match", "--data", small, "--normalize", "centre").err


def test_kinds_in_any_case(run: Run, small: Path, tmp_path: Path) -> None:
    assert run("match", "--kind", "NTK", "--json").json["match"]["kind"] == "ntk"
    assert run("kernel", small, "--kind", "NNGP", "--out", tmp_path / "K.npy", "--json").json["kind"] == "nngp"
    assert "kind='nkt' is not known; did you mean 'ntk'?" in run("match", "--kind", "NKT").err


def test_the_former_name_of_cell_works_with_a_warning(run: Run, small: Path, tmp_path: Path) -> None:
    model = nsd.DEQ("tanh", 0.3, 0.6).save(tmp_path / "model.json")
    with pytest.warns(DeprecationWarning, match="--model is now --cell"):
        old = run("kernel", small, "--model", model, "--out", tmp_path / "old.npy", "--json")
    new = run("kernel", small, "--cell", model, "--out", tmp_path / "new.npy", "--json")
    assert old.json["model"] == new.json["model"]
    fitted = run("fit", small, "--cell", model, "--out", tmp_path / "m.npz", "--json").json
    assert fitted["model"] == new.json["model"]


@pytest.mark.parametrize("command", ["fit", "kernel"])
def test_rough_messages(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """One line, the value, the remedy; nothing of NumPy's or of unfinished files shows through."""
    monkeypatch.chdir(tmp_path)
    np.savez("ok.npz", X=X, y=np.arange(40) % 2)
    Path("afile").touch()
    suffix = {"fit": "npz", "kernel": "npy"}[command]

    def refusal(*arguments: object) -> str:
        result = run(*arguments)
        assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1), result
        assert not re.search(r"np\.|partial|Traceback|site-packages", result.err)
        return result.err

    inside = f"afile/o.{suffix}"
    told = refusal(command, "ok.npz", "--out", inside)
    assert told == f"error: out='{inside}': 'afile' is a file, not a directory; pass another path\n"
    assert "input='abc' must be a number" in refusal(command, "ok.npz", "--out", f"o.{suffix}", "--input", "abc")

    os.mkdir("closed")
    free, usual = os.access, Path.open
    monkeypatch.setattr(os, "access", lambda path, mode: "closed" not in str(path) and free(path, mode))
    shut = refusal(command, "ok.npz", "--out", f"closed/o.{suffix}")
    assert shut.startswith(
        f"error: closed/o.{suffix}: writing is not permitted; change the permissions or pass another"
    )

    def refuse(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:  # permissions that os.access cannot see
        if "x" in mode:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return usual(path, mode, *rest, **more)

    monkeypatch.setattr(os, "access", lambda *_: True)
    monkeypatch.setattr(Path, "open", refuse)
    assert refusal(command, "ok.npz", "--out", f"closed/o.{suffix}") == shut


def test_rough_labels(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("oneclass.npz", X=X, y=np.zeros(40))
    np.savez("nan.npz", X=X, y=np.where(np.arange(40) == 3, np.nan, 1.0))
    np.savez("ok.npz", X=X, y=np.arange(40) % 2)
    one = "error: y holds one class only (0.0); a classifier needs at least two\n"
    assert run("fit", "oneclass.npz", "--out", "m.npz").err == one
    nan = "error: nan.npz: 1 of its 40 labels are NaN or infinite; drop those samples\n"
    assert run("fit", "nan.npz", "--out", "m.npz").err == nan
    Path("table.csv").write_text("a,y\n1,2\n")
    for file in ("ok.npz", "table.csv"):
        swapped = run("predict", file, "oneclass.npz").err
        assert "it holds data: the model that `notsodeep fit` wrote comes first" in swapped
        assert len(swapped.splitlines()) == 1


def test_a_step_that_is_too_long(run: Run, small: Path) -> None:
    pytest.importorskip("torch")
    result = run("train", "--data", small, "--epochs", "2", "--lr", "1e9", "--width", "16")
    assert (result.code, result.out) == (2, "")
    assert re.fullmatch(r"error: the loss is \w+ after epoch \d; lower lr=1e\+09\n", result.err)


def test_warnings_show_no_path_of_a_library() -> None:
    place = "/usr/lib/python3/site-packages/torch/x.py"
    message = f"{place}:12: it is slow (Triggered internally at /pytorch/aten/src/x.cpp:1.)"
    assert cli._warning(message, UserWarning, place, 1) == "warning: it is slow\n"


def test_long_listings_are_counted(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", X=np.eye(400), y=np.arange(400))
    assert "… 370 more" in run("data", "info", tmp_path / "many.npz").out
