"""Run the Python examples of a Markdown file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def blocks(text: str, language: str = "python") -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def run(code: str, folder: Path) -> str:
    """Execute in a fresh interpreter inside `folder`, warnings being errors; return what was printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    imported = "ignore:`torch.jit:DeprecationWarning"  # by linear_operator, as it is imported
    command = [sys.executable, "-W", "error", "-W", imported, "-c", code]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
