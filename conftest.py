"""Without PyTorch (there is no build for every Python) the tests that need it are skipped, and the header says so."""

from __future__ import annotations

import importlib.util
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from notsodeep.checks import MissingExtraError

MISSING = importlib.util.find_spec("torch") is None
_NETWORKS = {Path(__file__).parent / "tests" / "nn", Path(__file__).parent / "src" / "notsodeep" / "nn"}


def pytest_report_header() -> str:
    return "PyTorch is not installed: tests of networks are skipped" if MISSING else ""


def pytest_configure(config: pytest.Config) -> None:
    if MISSING:
        config.option.doctest_ignore_import_errors = True


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if MISSING and _NETWORKS & {collection_path, *collection_path.parents} else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except MissingExtraError as error:
        if MISSING:
            pytest.skip(str(error))
        raise
