"""The data of the papers: a two-class mixture, the images of 6 and 8, and parts of labelled data sets."""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep import data as datasets
from notsodeep.checks import InputError
from notsodeep.highdim import Mixture, Statistics, estimate_statistics

__all__ = ["VGG", "draw", "fingerprint", "labelled", "six_and_eight", "split", "two_classes"]

VGG = "cifar10-vgg"
"""The features of :mod:`notsodeep.papers.vgg`, in the place of a data set's name."""

Array: TypeAlias = NDArray[Any]


def two_classes(p: int) -> Mixture:
    """μ_1 = 8 e_1, μ_2 = 8 e_9 and C_a = (1 + 8(a − 1)/√p) I, in equal parts."""
    means = np.zeros((2, p))
    means[0, 0] = means[1, 8] = 8.0
    return Mixture(means, [1.0, 1 + 8 / math.sqrt(p)], [0.5, 0.5])


@lru_cache(maxsize=2)
def six_and_eight(name: str) -> tuple[Array, Array]:
    """All images of the two digits, centred and scaled to mean ‖x‖² = 1 together."""
    loaded = datasets.load(name)
    labels = np.asarray(loaded.labels)
    rows = np.isin(labels, (6, 8))
    return datasets.prepare(loaded.X[rows]), labels[rows]


def draw(
    data: str, n: int, seed: int, features: int | None = None, *, unit: bool = False, first: bool = False
) -> tuple[Array, Statistics]:
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
    first : bool
        The first images of each digit, whatever the seed.
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
        rows.append(found[: n // 2] if first else rng.choice(found, n // 2, replace=False))
    chosen = np.concatenate(rows)
    X = X[chosen]
    if unit:
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    return X, estimate_statistics(X, labels[chosen])


@lru_cache(maxsize=2)
def labelled(source: str) -> tuple[datasets.Data, Array]:
    """A data set by name or file, its classes numbered, and their names."""
    if source == VGG:
        from notsodeep.papers import vgg

        return vgg.features().numbered()
    return datasets.load(source).numbered()


def split(source: str, train: int | None, test: int | None, seed: int) -> datasets.Data:
    """Samples drawn without replacement, `train` and `test` of them, or all; see :meth:`notsodeep.data.Data.split`."""
    return labelled(source)[0].split(train=train, test=test, seed=seed)


def fingerprint(source: str) -> str:
    """What tells two contents of a file apart; nothing for a named data set, whose content is fixed.

    The features of :data:`VGG` differ with the machine that trained them, which happens here if it has not yet.
    """
    path = Path(source)
    if source == VGG:
        from notsodeep.papers import vgg

        path = vgg.stored()
    elif datasets.canonical(source.partition(":")[0]) is not None or not path.is_file():
        return ""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
