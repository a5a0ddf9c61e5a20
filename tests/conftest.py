"""Settings shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings

import notsodeep

# Numba looks only at the file of a compiled function when it decides whether its cache is stale, not at those it
# calls: after any change in the kernels, all of them are compiled again
_kernels = Path(notsodeep.__file__).parent / "kernels"
_newest = max(source.stat().st_mtime for source in _kernels.rglob("*.py"))
for _compiled in _kernels.rglob("__pycache__/*.nb[ci]"):
    if _compiled.stat().st_mtime < _newest:
        _compiled.unlink(missing_ok=True)

# timing of single examples says nothing on a shared machine; in CI the examples are always the same
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
