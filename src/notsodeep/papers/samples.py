"""The data of the papers: a two-class mixture, the images of 6 and 8, and parts of labelled data sets."""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep import data as datasets
from notsodeep.checks import InputError
from notsodeep.highdim import Mixture, Statistics, estimate_statistics

__all__ = ["Split", "draw", "fingerprint", "labelled", "six_and_eight", "split", "two_classes"]

Array: TypeAlias = NDArray[Any]


def two_classes(p: int) -> Mixture:
    """μ_a = 8 e_a and C_a = (1 + 8(a − 1)/√p) I for a = 1, 2, in equal parts."""
    means = np.zeros((2, p))
    means[0, 0] = means[1, 1] = 8.0
    return Mixture(means, [1.0, 1 + 8 / math.sqrt(p)], [0.5, 0.5])


@lru_cache(maxsize=2)
def six_and_eight(name: str) -> tuple[Array, Array]:
    """All images of the two digits, centred and scaled to mean ‖x‖² = 1 together."""
    loaded = datasets.load(name)
    labels = np.asarray(loaded.labels)
    rows = np.isin(labels, (6, 8))
    return datasets.prepare(loaded.X[rows]), labels[rows]


def draw(data: str, n: int, seed: int, features: int | None = None, *, unit: bool = False) -> tuple[Array, Statistics]:
    """n samples, half of each class, with the statistics the theory asks for.

    Parameters
    ----------
    data : str
        ``gmm``: :func:`two_classes` with `features` dimensions and its exact statistics; otherwise a
        data set with the digits 6 and 8, whose statistics are estimated from the samples drawn.
    n, seed : int
    features : int, optional
        p of the mixture.
    unit : bool
        Divide every image, once centred, by its norm.
    """
    if data == "gmm":
        if features is None:
            raise InputError("the mixture needs features=p")
        mixture = two_classes(features)
        X, labels = mixture.sample(n, seed)
        return X, mixture.statistics(X, labels)
    X, labels = six_and_eight(data)
    rng = np.random.default_rng(seed)
    rows = []
    for digit in (6, 8):
        found = np.flatnonzero(labels == digit)
        if found.size < n // 2:
            raise InputError(f"n={n} asks for {n // 2} images of a {digit}, but {data} holds {found.size}")
        rows.append(rng.choice(found, n // 2, replace=False))
    chosen = np.concatenate(rows)
    X = X[chosen]
    if unit:
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    return X, estimate_statistics(X, labels[chosen])


class Split(NamedTuple):
    """Training and test samples, the labels numbered 0, 1, …"""

    X: Array
    labels: Array
    X_test: Array
    labels_test: Array


@lru_cache(maxsize=2)
def labelled(source: str) -> tuple[datasets.Data, Array]:
    """A data set by name or file, and its classes."""
    loaded = datasets.load(source)
    if loaded.labels is None:
        raise InputError(f"data={source!r} has no labels; pass a file with X and y")
    return loaded, np.unique(np.asarray(loaded.labels))


def split(source: str, train: int | None, test: int | None, seed: int) -> Split:
    """Samples drawn without replacement; the test samples come from the data set's own test part where it has one.

    Parameters
    ----------
    source : str
        A name or a file, as for :func:`notsodeep.data.load`.
    train, test : int or None
        How many; all of them if None.
    seed : int
    """
    loaded, classes = labelled(source)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(loaded.X))
    if loaded.X_test is None or loaded.labels_test is None:
        pool, pool_labels, held = loaded.X, loaded.labels, order[: len(order) // 4]
        order = order[len(held) :]
    else:
        pool, pool_labels, held = loaded.X_test, loaded.labels_test, rng.permutation(len(loaded.X_test))
    for name, wanted, there in (("train", train, len(order)), ("test", test, len(held))):
        if wanted is not None and wanted > there:
            raise InputError(f"{name}={wanted} asks for more samples than the {there} that {source} holds")
    kept, held = np.sort(order[:train]), np.sort(held[:test])
    labels, labels_test = (np.searchsorted(classes, np.asarray(one)) for one in (loaded.labels, pool_labels))
    return Split(loaded.X[kept], labels[kept], pool[held], labels_test[held])


def fingerprint(source: str) -> str:
    """What tells two contents of a file apart; nothing for a named data set, whose content is fixed."""
    if datasets.canonical(source.partition(":")[0]) is not None or not Path(source).is_file():
        return ""
    with open(source, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
