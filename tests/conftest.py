"""Settings and fixtures shared by all tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from tests.command_line import Result, Run

# timing of single examples says nothing on a shared machine; in CI the examples are always the same
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line in this process."""
    from notsodeep.cli import main

    def call(*arguments: object) -> Result:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return Result(int(ended.value.code or 0), *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A labelled data file of 60 samples."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, X=rng.normal(size=(60, 80)), y=np.repeat([0, 1], 30))
    return path


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test import the scripts in benchmarks/, and forget them afterwards."""
    folder = Path(__file__).resolve().parents[1] / "benchmarks"
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(folder))
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == folder:
            del sys.modules[name]
