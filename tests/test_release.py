"""What is published: a wheel that works without the clone, how to cite it, and the checks of every change."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import notsodeep as nsd

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this clone, unpacked as an installation would."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("there is no hatchling here; make setup installs it")
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True)
    (wheel,) = folder.glob(f"notsodeep-{nsd.__version__}-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_a_wheel_holds_the_package_and_nothing_else(site: Path) -> None:
    package = Path(nsd.__file__).parent
    held = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    wanted = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    assert {name for name in held if ".dist-info/" not in name} == {
        name for name in wanted if "__pycache__" not in name
    }
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--version", 0, nsd.__version__),
        ("match --json", 0, '"exact": true'),
        pytest.param("match --data digits --no-train --report report", 0, "report", marks=pytest.mark.slow),  # compiles
        ("reproduce --list", 0, "ling24-fig1"),
        ("data list", 0, "digits"),
        ("bench", 2, "no benchmarks here: they are part of the source checkout"),
    ],
)
def test_it_runs_without_the_clone(words: str, code: int, said: str, site: Path, tmp_path: Path) -> None:
    if "report" in words.split():
        pytest.importorskip("plotly")
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "notsodeep", *words.split()]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert str(ROOT) not in done.stdout + done.stderr


def test_how_to_cite_it_names_this_version() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == nsd.__version__
    assert (cited["cff-version"], cited["type"], cited["license"]) == ("1.2.0", "software", "MIT")
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").replace("{G}", "G").split())
    for paper in cited["references"]:
        assert paper["title"].replace('"', "") in readme.replace("``", "").replace("''", "")
        assert " and ".join(f"{one['family-names']}, {one['given-names']}" for one in paper["authors"]) in readme


def test_every_change_is_checked_as_in_the_clone() -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert ".ci/run" in [step.get("run") for step in workflow["jobs"]["check"]["steps"]]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    systems = {name.split("-")[0] for name in workflow["jobs"]["wheel"]["strategy"]["matrix"]["system"]}
    assert systems == {"ubuntu", "macos", "windows"}
    for form in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        assert isinstance(yaml.safe_load(form.read_text(encoding="utf-8")), dict)
