"""Optional packages, imported when they are first needed; a missing one is reported in one line that installs it."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from notsodeep.errors import MissingExtraError

__all__ = ["available", "missing", "need"]

_USERS = {  # extra: what needs it, and its packages
    "nn": ("networks need", "torch safetensors onnx onnxscript onnxruntime"),
    "gp": ("Gaussian processes need", "torch safetensors gpytorch botorch"),
    "scale": ("kernels on disk and on clusters need", "dask distributed zarr filelock google_crc32c"),
    "report": ("pages and pictures need", "matplotlib plotly"),
    "explore": ("the explorer needs", "starlette uvicorn plotly"),
    "data": ("Parquet files and pictures need", "pyarrow PIL"),
}


def need(name: str) -> ModuleType:
    """Import a module of an optional package, or raise `MissingExtraError`.

    Examples
    --------
    >>> from notsodeep.extras import need
    >>> need("json").dumps([1])
    '[1]'
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise missing(error.name or name) from None


def missing(name: str) -> MissingExtraError:
    """The error for an absent package, with the command that installs it.

    Examples
    --------
    >>> from notsodeep.extras import missing
    >>> print(missing("plotly.io"))
    pages and pictures need plotly; pip install "notsodeep[report]"
    """
    package = name.partition(".")[0]
    for extra, (user, packages) in _USERS.items():
        if package in packages.split():
            return MissingExtraError(f'{user} {package}; pip install "notsodeep[{extra}]"')
    return MissingExtraError(f"this needs {package}; pip install {package}", name=package)


def available(name: str) -> bool:
    """Whether an optional package can be imported; nothing is imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
