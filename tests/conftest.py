"""Settings shared by all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# timing of single examples says nothing on a shared machine; in CI the examples are always the same
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
