"""Data sets by name or from files, and the one preparation the theory asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import InputError, count, matrix, nearest

__all__ = ["Data", "load", "prepare", "subsample"]

_SUFFIXES = (".npy", ".npz", ".csv")
_LABEL_COLUMNS = ("label", "labels", "target", "class", "y")


@dataclass(frozen=True)
class Data:
    """Samples in rows, with labels where there are some.

    Attributes
    ----------
    name : str
    X : array of shape (n, p)
    labels : array of shape (n,) or None
    """

    name: str
    X: NDArray[np.float64]
    labels: NDArray[Any] | None = None


def load(source: str | Path) -> Data:
    """Read ``"digits"`` (8×8 images that come with scikit-learn) or a file.

    Parameters
    ----------
    source : str or Path
        ``digits``; a ``.npy`` matrix; a ``.npz`` archive with ``X`` and, if there are labels,
        ``y``; a ``.csv`` file of numbers, with or without a header line, in which a column
        called label, target, class or y holds the labels.

    Examples
    --------
    >>> from notsodeep import data
    >>> data.load("digits").X.shape
    (1797, 64)
    """
    if str(source) == "digits":
        from sklearn.datasets import load_digits

        bunch = load_digits()
        return Data("digits", np.asarray(bunch.data, dtype=np.float64), bunch.target)
    path = Path(source)
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"data={str(source)!r} is not known{nearest(source, ['digits'])} "
            f"(pass digits or a file ending in {', '.join(_SUFFIXES)})"
        )
    if not path.is_file():
        raise InputError(f"data={str(source)!r} does not exist")
    try:
        X, labels = {".npy": _npy, ".npz": _npz, ".csv": _csv}[path.suffix.lower()](path)
    except InputError:
        raise
    except (ValueError, EOFError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"data={str(source)!r} cannot be read: {reason}") from None
    X = matrix(X, path.name).astype(np.float64, copy=False)
    if labels is not None and labels.shape != (len(X),):
        raise InputError(f"{path.name} holds {len(X)} samples but labels of shape {labels.shape}; pass one a sample")
    return Data(path.stem, X, labels)


def _npy(path: Path) -> tuple[Any, None]:
    return np.load(path, allow_pickle=False), None


def _npz(path: Path) -> tuple[Any, Any]:
    with np.load(path, allow_pickle=False) as archive:
        if "X" not in archive:
            raise InputError(f"{path.name} has no array called 'X' (it holds {', '.join(archive) or 'nothing'})")
        return archive["X"], archive.get("y")


def _csv(path: Path) -> tuple[Any, Any]:
    with path.open(encoding="utf-8") as file:
        names = [name.strip().strip('"') for name in file.readline().split(",")]
    has_header = not all(_is_number(name) for name in names)
    table = np.loadtxt(
        path, delimiter=",", skiprows=int(has_header), dtype=str, ndmin=2, quotechar='"', encoding="utf-8"
    )
    lowered = [name.lower() for name in names]
    label = next((lowered.index(name) for name in _LABEL_COLUMNS if has_header and name in lowered), None)
    if label is None:
        return table.astype(np.float64), None
    return np.delete(table, label, axis=1).astype(np.float64), table[:, label]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def prepare(X: ArrayLike) -> NDArray[np.float64]:
    """X ↦ (X − mean)/s with s such that the mean of ‖x‖² is 1.

    √p·x then has mean 0 and, on average over its features, variance 1: τ0 = 1.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep import data
    >>> X = data.prepare(data.load("digits").X)
    >>> round(float(np.mean(np.sum(X**2, axis=1))), 12)
    1.0
    """
    array = matrix(X).astype(np.float64)
    array -= array.mean(axis=0)
    scale = float(np.sqrt(np.mean(np.sum(array**2, axis=1))))
    if scale == 0:
        raise InputError(f"X holds {len(array)} identical samples; pass data that varies")
    return array / scale


def subsample(data: Data, limit: int, seed: int = 0) -> Data:
    """At most `limit` samples, drawn without replacement and kept in their order."""
    if len(data.X) <= count(limit, "limit"):
        return data
    rows = np.sort(np.random.default_rng(seed).choice(len(data.X), limit, replace=False))
    return Data(data.name, data.X[rows], None if data.labels is None else data.labels[rows])
