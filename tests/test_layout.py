"""Every module has one place where its tests are."""

from __future__ import annotations

import ast
import re
import runpy
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "src/notsodeep"


def _named_places() -> list[str]:
    """Modules that a test file names after "Also covers:" in its docstring."""
    named: list[str] = []
    for file in TESTS.rglob("test_*.py"):
        docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        _, _, listed = docstring.partition("Also covers:")
        named += re.findall(r"[\w/]+\.py", listed)
    return named


def test_every_module_has_one_place_for_its_tests() -> None:
    modules = {path.relative_to(SOURCES) for path in SOURCES.rglob("*.py") if not path.name.startswith("__")}
    mirrored = [module for module in modules if (TESTS / module.with_name(f"test_{module.name}")).exists()]
    places = Counter([*map(Path.as_posix, mirrored), *_named_places()])
    wrong = {name: places[name] for name in {*map(Path.as_posix, modules), *places} if places[name] != 1}
    assert not wrong, f"places in tests/ of each module that has not exactly one: {wrong}"
    assert set(places) == set(map(Path.as_posix, modules))


def test_the_numerical_tests_of_other_processors_exist() -> None:
    """pytest runs nothing at all if one of the paths is missing."""
    names = runpy.run_path(str(TESTS.parent / "scripts/portable.py"))["NUMERICAL"]
    assert [name for name in names if not (TESTS.parent / name).exists()] == []
