"""Names that mean one thing."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import notsodeep
from notsodeep.checks import MissingExtraError

ROOT = Path(__file__).resolve().parents[1]


def test_no_function_shadows_its_module() -> None:
    """``from notsodeep.room import module`` gives the module."""
    names = [found.name for found in pkgutil.walk_packages(notsodeep.__path__, "notsodeep.", onerror=lambda _: None)]
    assert len(names) > 100
    shadowed = []
    for name in names:
        parent, _, module = name.rpartition(".")
        if module == "__main__":
            continue
        try:
            importlib.import_module(name)
        except (MissingExtraError, ImportError):  # an extra is not installed
            continue
        if not isinstance(getattr(importlib.import_module(parent), module), ModuleType):
            shadowed.append(name)
    assert shadowed == []


def section(title: str) -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


def test_the_map_has_every_module_of_the_package() -> None:
    cells = [line.split("|")[1] for line in section("The map of the rooms").splitlines() if line.startswith("| `")]
    modules = {found.name for found in pkgutil.iter_modules(notsodeep.__path__)} - {"__main__"}
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == modules


def test_journeys_pass_through_files_that_exist_none_of_them_twice() -> None:
    package = Path(notsodeep.__file__).parent
    journeys = re.split(r"^- ", section("Five journeys"), flags=re.MULTILINE)[1:]
    assert len(journeys) == 5
    for journey in journeys:
        folder, visited = package, []
        for name in re.findall(r"`([\w/]+\.py)`", journey):
            place = next(place for place in (folder / name, package / name) if place.is_file())
            visited.append(place)
            folder = place.parent
        assert len(set(visited)) == len(visited) > 2


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for path in Path(notsodeep.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
