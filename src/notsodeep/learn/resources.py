"""Where work is kept."""

from __future__ import annotations

import os
from pathlib import Path

from notsodeep.checks import InputError

__all__ = ["CHECKPOINT", "made"]

CHECKPOINT = "cg.npz"  # of conjugate gradients in a directory


def made(directory: str | os.PathLike[str]) -> Path:
    """The directory to work in, created if need be."""
    folder = Path(directory)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"directory={str(folder)!r} is a file; pass a directory")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
