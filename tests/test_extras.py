"""Optional packages: found, missing, and named with the command that installs them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from notsodeep import MissingExtraError
from notsodeep.extras import _USERS, available, missing, need

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED = {"pillow": "PIL"}  # packages imported by another name


def test_every_package_of_an_extra_is_known_and_no_other() -> None:
    declared = PROJECT["optional-dependencies"]
    for extra, (_, packages) in _USERS.items():
        names = {line.partition(">")[0].partition("[")[0].replace("-", "_") for line in declared[extra]}
        assert set(packages.split()) == {IMPORTED.get(name, name) for name in names}


def test_what_is_there_is_returned() -> None:
    assert need("json.decoder").JSONDecoder
    assert available("json")


@pytest.mark.parametrize("name", ["zarr", "zarr.nothing"])
def test_what_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("importlib.import_module", fail)
    with pytest.raises(MissingExtraError, match=r'on clusters need zarr; pip install "notsodeep\[scale\]"$'):
        need(name)


def test_a_package_of_no_extra() -> None:
    assert "pip install nowhere_to_be_found" in str(missing("nowhere_to_be_found.module"))
    assert not available("nowhere_to_be_found")
