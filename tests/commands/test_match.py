"""``notsodeep match``: output for readers and programs, options, and reports.

Also covers: report/sphere.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.command_line import Run

import notsodeep as nsd


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


def test_report_of_a_single_layer(run: Run, small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    result = run("match", "--on", "sphere", "--activation", "erf", "--data", small, "--report", folder)
    assert result.code == 0, result.err
    names = {"index.html", "match.json", "network.json", "one_layer.png", "one_layer.svg"}
    assert {path.name for path in folder.iterdir()} == names
    assert str(folder / "one_layer.png") in result.out
    content = json.loads((folder / "match.json").read_text("utf-8"))
    page = (folder / "index.html").read_text("utf-8")
    assert f"≤ {content['distance']:.1e}" in page
    assert f"{content['data']['distance']:.1e}" in page
    assert nsd.load_model(folder / "network.json").to_dict() == content["network"]
    (folder / "mine.txt").write_text("")
    refused = run("match", "--on", "sphere", "--report", folder)
    assert refused.code != 0
    assert "holds files that are not a report" in refused.err


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
    rows = "centred, and scaled to mean ‖x‖² = τ0², τ0 = 1"
    facts = {"name": "small", "prepared": True, "rows": rows, "samples": 60, "features": 80, "classes": 2}
    assert content["data"] == facts
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
    pytest.importorskip("torch")  # without it, networks are compared but not trained
    monkeypatch.setattr("notsodeep.study.kernels._GAUSSIAN", (60, 80))  # the cloud in place of absent data
    folder = tmp_path / "deep" / "report"
    assert run("match", "--data", small, "--report", folder).code == 0
    names = {path.name for path in folder.iterdir()}
    pictures = {
        f"{name}.{kind}"
        for name in ("activations", "one_layer", "spectra", "closeness", "training")
        for kind in ("png", "svg")
    }
    assert pictures | {"network.json", "match.json", "index.html"} <= names
    assert [path.name for path in folder.parent.iterdir()] == ["report"]  # nothing temporary stays
    content = json.loads((folder / "match.json").read_text(encoding="utf-8"))
    assert [row[0] for row in content["comparison"]["rows"]][:2] == ["test accuracy", "hidden layers evaluated"]
    network = nsd.load_model(folder / "network.json")
    assert network.to_dict() == content["match"]["network"]
    assert (folder / "index.html").read_text(encoding="utf-8").count(
        'class="plot"'
    ) == 17  # report/test_match_page.py looks closer
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
    assert "such as 'notes.txt'" in refused.err
    assert (folder / "notes.txt").read_text() == "mine"


def test_people_read_eighty_columns(run: Run, small: Path) -> None:
    lines = run("match", "--activation", "tanh", "--recurrent", 0.3, "--data", small).out.splitlines()
    assert "a finite network may have no unique equilibrium" in " ".join(" ".join(lines).split())
    assert max(len(line) for line in lines if "(x) = " not in line) <= 80  # a formula can be copied in one piece


def test_exact_numbers_are_not_called_exact_kernels(run: Run) -> None:
    """Close to the edge of existence a rescaled relu network comes closer than the matched one, and that is said."""
    result = run("match", "--recurrent", 1.5)
    text = " ".join(result.out.split())
    matched, relu, _ = run("match", "--recurrent", 1.5, "--json").json["closeness"]
    assert relu["rescaled_error"] < matched["rescaled_error"]
    assert f"these differ by {100 * matched['error']:.3g} %" in text
    assert f"but plain relu is closer on these data once rescaled ({100 * relu['rescaled_error']:.3g} % against" in text
    assert "is closer on these data" not in run("match").out


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
    assert "holds files that are not a report (such as 'thesis.tex')" in result.err
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
