"""Other systems, as far as they can be had here: drive letters, backslashes, and names whose case does not count."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path, PureWindowsPath

import numpy as np
import pytest
from tests.command_line import Run

import notsodeep as nsd
from notsodeep import data
from notsodeep.data.catalog import CATALOG
from notsodeep.papers.ling24_accuracy import title
from notsodeep.papers.registry import ENTRIES
from notsodeep.report import match
from notsodeep.report.match_page import snippet
from notsodeep.scale import StoredBlocks, distributed
from notsodeep.study import Study

WINDOWS = PureWindowsPath(r"C:\new\table")


@pytest.mark.parametrize(
    "path", ["vgg.npz", "/data/vgg.npz", r"C:\data\vgg.npz", r"C:vgg.npz", r"\\host\share\vgg.npz", "C:/data/vgg.npz"]
)
def test_a_file_is_titled_without_its_folder(path: str) -> None:
    assert title(path) == "vgg.npz"
    with pytest.raises(nsd.InputError, match="does not exist"):
        data.load(path)  # "C" is no data set, and what follows the colon no setting


def test_code_for_readers_keeps_backslashes() -> None:
    code = snippet(Study.of(nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0)), WINDOWS, str(WINDOWS / "X.npy"))  # type: ignore[arg-type]
    strings = {node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)}
    assert {str(WINDOWS / "network.json"), str(WINDOWS / "X.npy")} <= strings


def test_code_for_readers_hides_nothing() -> None:
    """A mark of direction in a file name would show other code than is copied."""
    name = "a\u202e\x1b\u2066.npy"
    code = snippet(Study.of(nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0)), Path("out"), name)
    assert code.replace("\n", "").isprintable()
    assert name in {node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)}


def test_a_worker_does_not_take_a_path_of_another_system_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert distributed._seen(str(WINDOWS / "K.zarr"), 32 * "0") is None
    assert list(tmp_path.iterdir()) == []


def test_the_case_of_a_suffix_does_not_count(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.eye(4))
    Path("x.npy").rename("X.NPY")
    for out in ("K.NPY", "K.Zarr"):
        assert run("kernel", "X.NPY", "--out", out).code == 0
    assert np.allclose(np.load("K.NPY"), StoredBlocks("K.Zarr").to_numpy())
    assert run("fit", "digits", "--limit", 20, "--out", "M.NPZ").code == 0
    assert run("predict", "M.NPZ", "digits", "--limit", 5, "--out", "P.CSV").code == 0


def test_names_that_are_written_differ_by_more_than_case() -> None:
    for names in (match._FILES, [*ENTRIES, "index.html", "summary.json"], [f"{name}.npz" for name in CATALOG]):
        assert len({name.casefold() for name in names}) == len(names)
        for name in names:
            assert PureWindowsPath(name).name == name
            assert not re.fullmatch(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", name.casefold())
            assert not set(name) & set('<>:"|?*')


def test_the_systems_are_named_where_people_look() -> None:
    root = Path(__file__).parents[1]
    classifiers = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["classifiers"]
    named = {one.split(" :: ")[-1] for one in classifiers if one.startswith("Operating System")}
    assert named == {"Linux", "MacOS", "Windows"}
    readme = (root / "README.md").read_text("utf-8")
    assert all(system in readme for system in ("Linux", "macOS", "Windows"))
