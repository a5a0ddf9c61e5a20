"""The Makefile: an environment is used only with the Python that made it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def python(path: Path, version: str) -> Path:
    """A stand-in that says which Python it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version} of /usr\n")
    path.chmod(0o755)
    return path


def setup(venv: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", "setup", f"VENV={venv}", *options]
    # as if called from a shell, even where `make test` runs this
    own = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "PYTHON", "VENV", "EXTRAS")
    plain = {name: value for name, value in os.environ.items() if name not in own}
    return subprocess.run(command, cwd=ROOT, env={**plain, **environment}, capture_output=True, text=True, check=False)


def test_another_python_for_an_existing_environment_is_refused(tmp_path: Path) -> None:
    python(tmp_path / "venv" / "bin" / "python", "3.12.1")
    for name in (".created", ".torch", ".installed"):
        (tmp_path / "venv" / name).touch()
    same, other = (python(tmp_path / version, version) for version in ("3.12.1", "3.13.0"))
    assert setup(tmp_path / "venv").returncode == 0  # whichever made it
    assert setup(tmp_path / "venv", PYTHON=str(other)).returncode == 0  # a variable of other programs too
    assert setup(tmp_path / "venv", f"PYTHON={same}").returncode == 0
    refused = setup(tmp_path / "venv", f"PYTHON={other}")
    assert refused.returncode == 2
    said = refused.stderr.splitlines()
    assert said[0].startswith(f"error: {tmp_path / 'venv'} was made with Python 3.12.1 of /usr, not with '{other}'")
    assert "make clean" in said[0]
    assert [line for line in said[1:] if not line.startswith("make:")] == []
