"""The optional packages of this room, imported when they are first needed."""

from __future__ import annotations

import importlib
from types import ModuleType

from notsodeep.checks import missing_extra

__all__ = ["need"]


def need(name: str) -> ModuleType:
    """Import a package of the extra ``scale``, or say in one line how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.split(".")[0]
        raise missing_extra(f"kernels on disk and on clusters need {package}", "scale") from None
