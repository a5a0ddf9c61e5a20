"""Names that mean one thing."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import notsodeep
from notsodeep.checks import MissingExtraError


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
