"""Data sets by name or from files, and the preparation that the theory assumes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from notsodeep.checks import InputError, nearest
from notsodeep.data.catalog import CATALOG, Fetched, FetchError, cache_folder, read
from notsodeep.data.catalog import fetch as _fetch
from notsodeep.data.dataset import Data, Parts, subsample
from notsodeep.data.files import ENDINGS, Column, read_path
from notsodeep.data.mixtures import draw_mixture
from notsodeep.data.preparation import Preparation, center_and_scale, prepare
from notsodeep.progress import Progress

__all__ = [
    "NAMES",
    "Data",
    "FetchError",
    "Fetched",
    "Parts",
    "Preparation",
    "cache_folder",
    "canonical",
    "center_and_scale",
    "fetch",
    "load",
    "prepare",
    "subsample",
]

NAMES = ("digits", *CATALOG, "gaussian-mixture")


def load(
    source: str | Path,
    *,
    label: Column | None = None,
    ignore: Column | Sequence[Column] = (),
    fetch: bool = True,
    cache: str | Path | None = None,
    progress: Progress = None,
) -> Data:
    """Return a data set by its name, or read a file.

    Parameters
    ----------
    source : str or Path
        - ``digits``: 8×8 images with values 0…16, embedded;
        - ``mnist``, ``fashion-mnist``, ``cifar10``: float32 pixels in [0, 1] with a test part, fetched on first use;
        - ``gaussian-mixture``, also with settings: ``gaussian-mixture:n=800,p=1000,seed=0``
          (see :func:`notsodeep.data.mixtures.draw_mixture`);
        - a ``.npy`` array of samples (n, p) or images (n, P, Q, C);
        - a ``.npz`` archive with ``X`` and, where they exist, ``y``, ``X_test``, ``y_test``;
        - a ``.csv`` (with or without a header line) or ``.parquet`` table of numbers, in which a column called
          label, target, class or y holds the labels unless `label` names another one;
        - an IDX file (``train-images-idx3-ubyte``, also ``.gz``); the labels are looked for beside it;
        - a ``.bin`` file of CIFAR-10 records;
        - a folder of either of the last two kinds, which gives a test part as well.
    label : str or int, optional
        The column of a table that holds the labels: its name in any case or, if the file has no header line, its
        number from 1. In a ``.npz`` archive, the name of their array.
    ignore : str, int or sequence of these
        Columns of a table to leave out, such as a running number.
    fetch : bool
        Whether a named data set may be downloaded if it is not in the cache.
    cache : path, optional
        Where fetched data sets are kept; see :func:`cache_folder`.
    progress : bool, callable or None
        See :func:`notsodeep.progress.reporter`.

    Examples
    --------
    >>> from notsodeep import data
    >>> digits = data.load("digits")
    >>> digits.X.shape, digits.images.shape
    ((1797, 64), (1797, 8, 8, 1))
    >>> mixture = data.load("gaussian-mixture:n=200,p=300")
    >>> mixture.X.shape, mixture.source
    ((200, 300), 'drawn: gaussian-mixture:n=200,p=300,seed=0')
    """
    name, _, settings = str(source).partition(":")
    known = canonical(name)
    left_out = (ignore,) if isinstance(ignore, str | int) else tuple(ignore)
    if known is not None and (label is not None or left_out):
        raise InputError(f"data={str(source)!r} has no columns to name; leave out label and ignore")
    if known == "gaussian-mixture":
        return draw_mixture(settings)
    if known is not None and not settings:
        return _digits() if known == "digits" else read(known, cache=cache, fetch_missing=fetch, progress=progress)
    loaded = read_path(Path(source), label, left_out)
    if loaded is None:
        raise InputError(
            f"data={str(source)!r} is not known{nearest(source, NAMES)} "
            f"(pass {', '.join(NAMES)} or a file ending in {', '.join(ENDINGS)})"
        )
    return loaded


def fetch(name: str, *, cache: str | Path | None = None, force: bool = False, progress: Progress = None) -> Fetched:
    """Make sure that a named data set is in the cache and verified; see :func:`notsodeep.data.catalog.fetch`."""
    known = canonical(name)
    if known not in CATALOG:
        reason = "is always here" if known else f"is not known{nearest(name, CATALOG)}"
        raise InputError(f"name={name!r} {reason} (what can be fetched: {', '.join(CATALOG)})")
    return _fetch(known, cache=cache, force=force, progress=progress)


def canonical(name: str) -> str | None:
    """The canonical name of ``Fashion_MNIST``, ``cifar-10``, …; None if unknown."""
    bare = {known.replace("-", ""): known for known in NAMES}
    return bare.get(name.lower().replace("-", "").replace("_", ""))


def _digits() -> Data:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    X = np.asarray(bunch.data, dtype=np.float64)
    return Data("digits", X, bunch.target, image_shape=(8, 8, 1), source="scikit-learn, embedded")
