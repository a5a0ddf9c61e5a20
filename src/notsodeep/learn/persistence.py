"""Fitted estimators as one ``.npz`` file: arrays, a JSON header, a checksum over both; no pickle."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep import files
from notsodeep.activations import Activation
from notsodeep.checks import InputError
from notsodeep.models import Explicit

__all__ = ["load", "plain_fields", "save"]

Array: TypeAlias = NDArray[Any]

_FORMAT = "notsodeep.learn"
_VERSION = 1
# what reading bytes that are no archive, or a damaged one, may end with
_UNREADABLE = (OSError, EOFError, ValueError, LookupError, TypeError, RuntimeError, zipfile.BadZipFile, zlib.error)


def save(estimator: Any, path: str | Path) -> Path:
    """Write a fitted estimator; the file appears complete or not at all."""
    target = Path(path)
    if target.suffix.lower() != ".npz":
        raise InputError(f"path={str(path)!r} must end in .npz")
    arrays, numbers = estimator._state()
    if any(array.dtype.hasobject for array in arrays.values()):
        raise InputError("labels that are Python objects cannot be written to a file; use strings or numbers")
    params = {name: _encode(value, name) for name, value in estimator.get_params(deep=False).items()}
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "class": type(estimator).__name__,
        "params": params,
        "numbers": numbers,
        "arrays": {name: [array.dtype.str, list(array.shape)] for name, array in sorted(arrays.items())},
    }
    text = json.dumps(header, ensure_ascii=False)
    named: dict[str, Any] = {f"array.{name}": array for name, array in arrays.items()}
    with files.writing(target) as file:
        np.savez(file, header=np.array(text), digest=np.array(_digest(text, arrays)), **named)
    return target


def load(path: str | Path) -> Any:
    """Read an estimator written by ``estimator.save(path)``; nothing in the file is executed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from notsodeep.learn import DEQKernelRegressor, load
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> fitted = DEQKernelRegressor().fit(X, X[:, 0] ** 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load(fitted.save(Path(folder) / "model.npz"))
    >>> bool(np.all(again.predict(X) == fitted.predict(X)))
    True
    """
    if not Path(path).is_file():
        raise InputError(f"path={str(path)!r} does not exist")
    try:
        header, text, digest, arrays = _read(Path(path))
    except _UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"path={str(path)!r} is not a model written by notsodeep, or is damaged: {reason}") from None
    if header.get("version") != _VERSION:
        raise InputError(
            f"path={str(path)!r} has format version {header.get('version')!r}, this notsodeep reads {_VERSION}; "
            "upgrade notsodeep, or fit and save again"
        )
    if digest != _digest(text, arrays):
        raise InputError(f"path={str(path)!r} was changed after it was written (checksum differs); save it again")
    try:
        estimator = _classes()[header["class"]](**{k: _decode(v) for k, v in header["params"].items()})
        estimator._restore(arrays, header["numbers"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"path={str(path)!r} does not describe an estimator of this notsodeep: {error}") from None
    return estimator


def _read(path: Path) -> tuple[dict[str, Any], str, str, dict[str, Array]]:
    with path.open("rb") as file:  # never a bare array, and never a pickle
        if file.read(2) != b"PK":
            raise ValueError("it is not an .npz archive")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            text, digest = str(archive["header"]), str(archive["digest"])
            header = json.loads(text)
            if not isinstance(header, dict) or header.get("format") != _FORMAT:
                raise ValueError("its header is of another program")
            arrays = {name: archive[f"array.{name}"] for name in header.get("arrays", {})}
            if any([array.dtype.str, list(array.shape)] != header["arrays"][name] for name, array in arrays.items()):
                raise ValueError("its arrays are not those of its header")
    return header, text, digest, arrays


def _digest(text: str, arrays: dict[str, Array]) -> str:
    digest = hashlib.sha256(text.encode())
    for _, array in sorted(arrays.items()):
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _classes() -> dict[str, Any]:
    from notsodeep import learn

    names = [name for name in learn.__all__ if hasattr(getattr(learn, name), "_restore")]
    return {name: getattr(learn, name) for name in names}


def _encode(value: Any, name: str) -> Any:
    """A parameter as JSON."""
    if isinstance(value, Activation):
        return {"activation": value.to_dict()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_encode(entry, name) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    if name == "client" or (name == "progress" and callable(value)):
        return None  # of the process that fitted
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Explicit):
        return [_encode(phi, name) for phi in value.activations]
    if name == "dtype" and value is not None:
        return np.dtype(value).name
    if callable(value):
        from notsodeep.activations import activation

        return {"activation": activation(value).to_dict()}  # says that a Python function has no place in a file
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        return Activation.from_dict(value["activation"])
    if isinstance(value, list):
        return [_decode(entry) for entry in value]
    return value


def plain_fields(instance: Any, without: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a dataclass as JSON."""
    values = {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
    return {name: _encode(value, name) for name, value in values.items() if name not in without}
