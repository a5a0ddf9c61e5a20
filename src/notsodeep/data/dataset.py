"""Samples in rows with their labels, and how to split and prepare them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError, count, real, seeded
from notsodeep.data.preparation import Preparation, center_and_scale
from notsodeep.display import card

__all__ = ["Data", "Parts", "subsample"]

_LABELS = "pass a .npz with X and y, or a table and --label COLUMN (label= in Python)"
_SHARE = 0.25  # default share to hold out if the set has no test part


class Parts(NamedTuple):
    """Samples and labels to train and to test on."""

    X: NDArray[Any]
    labels: NDArray[Any]
    X_test: NDArray[Any]
    labels_test: NDArray[Any]


@dataclass(frozen=True)
class Data:
    """Samples in rows, with optional labels.

    Attributes
    ----------
    name : str
    X : array of shape (n, p)
    labels : array of shape (n,) or None
    X_test : array of shape (m, p) or None
        The standard test part, if the data set has one.
    labels_test : array of shape (m,) or None
    image_shape : (P, Q, C) or None
        p = P·Q·C; the rows are images read line by line, channels last.
    source : str
        Where the samples came from.
    notes : tuple of str
        How a file was read: which column holds the labels, which were left out, whether it has a header line.
    rows : str
        How the rows were prepared; empty if they were not.
    """

    name: str
    X: NDArray[Any]
    labels: NDArray[Any] | None = None
    X_test: NDArray[Any] | None = None
    labels_test: NDArray[Any] | None = None
    image_shape: tuple[int, int, int] | None = None
    source: str = ""
    notes: tuple[str, ...] = ()
    rows: str = ""

    def _repr_html_(self) -> str:
        parts = {"samples": (self.X, self.labels), "test samples": (self.X_test, self.labels_test)}
        rows: list[tuple[object, ...]] = [
            (what, len(X), "no labels" if labels is None else f"{len(np.unique(labels))} classes")
            for what, (X, labels) in parts.items()
            if X is not None
        ]
        rows += [("features", self.X.shape[1], self.X.dtype)]
        rows += [("images", " × ".join(map(str, self.image_shape)))] if self.image_shape else []
        return card(f"Data, {self.name}", rows, notes=[self.source] if self.source else [])

    @property
    def images(self) -> NDArray[Any]:
        """`X` as images (n, P, Q, C), without a copy."""
        return self._as_images(self.X)

    @property
    def images_test(self) -> NDArray[Any] | None:
        """`X_test` as images (m, P, Q, C), without a copy."""
        return None if self.X_test is None else self._as_images(self.X_test)

    @property
    def test(self) -> Data | None:
        """The test part as data of its own."""
        return None if self.X_test is None else self._with(self.X_test, self.labels_test)

    @property
    def parts(self) -> Parts:
        """Both parts of labelled data; see :meth:`split`."""
        if self.labels is None or self.X_test is None or self.labels_test is None:
            missing = "labels" if self.labels is None else "labelled test part"
            raise InputError(f"data={self.name!r} has no {missing}; {self._advice}")
        return Parts(self.X, self.labels, self.X_test, self.labels_test)

    def split(
        self,
        test_share: float | None = None,
        *,
        train: int | None = None,
        test: int | None = None,
        seed: int | np.random.Generator = 0,
        stratify: bool = False,
    ) -> Data:
        """Hold out random samples for testing; all other attributes are kept.

        Parameters
        ----------
        test_share : float, optional
            Share of the samples to hold out. By default the set's own test part is used, or a quarter if it has none.
        train, test : int, optional
            Number of samples to take from each part.
        seed : int or Generator
        stratify : bool
            Hold out the same share of every class.

        Examples
        --------
        >>> from notsodeep import data
        >>> digits = data.load("digits").split(0.2)
        >>> digits.X.shape, digits.X_test.shape, digits.images_test.shape
        ((1437, 64), (360, 64), (360, 8, 8, 1))
        """
        from sklearn.model_selection import train_test_split

        if test_share is not None and not 0 < real(test_share, "test_share") < 1:
            raise InputError(f"test_share={test_share!r} must lie between 0 and 1")
        usable = test_share is None and (self.labels is None or self.labels_test is not None)
        rest = self.test if usable else None
        if rest is None:
            share, rows = test_share or _SHARE, np.arange(len(self.X))
            if math.ceil(share * len(rows)) == len(rows):
                raise InputError(f"test_share={share!r} leaves none of the {len(rows)} samples to train on; pass less")
            # scikit-learn takes 32 bits, NumPy any integer
            stream = seeded(seed if isinstance(seed, np.random.Generator) else count(seed, "seed", 0) % 2**32)
            try:
                classes = self.labels if stratify else None
                kept, held = train_test_split(rows, test_size=share, random_state=stream, stratify=classes)
            except ValueError as error:
                raise InputError(f"test_share={share!r} cannot hold out a share of every class: {error}") from None
            part, rest = self._rows(kept), self._rows(held)
        else:
            part = self
        part, rest = _drawn(part, train, "train", seed), _drawn(rest, test, "test", seed)
        return replace(part, X_test=rest.X, labels_test=rest.labels)

    def prepared(self, mode: str = "center") -> Data:
        """Both parts in float64, prepared by statistics of `X` only: see :class:`notsodeep.data.Preparation`.

        Examples
        --------
        >>> from notsodeep import data
        >>> digits = data.load("digits").split(0.2).prepared()
        >>> [round(float((part**2).sum(axis=1).mean()), 3) for part in (digits.X, digits.X_test)]
        [1.0, 1.007]
        """
        learnt = Preparation(mode, *center_and_scale(self.X)) if mode == "center" else Preparation.of(self.X, mode)
        X, *tested = (learnt(part.astype(np.float64)) for part in (self.X, self.X_test) if part is not None)
        return replace(self, X=X, X_test=tested[0] if tested else None, rows=str(learnt))

    def labelled(self) -> Data:
        """The same data; an error if it has no labels."""
        if self.labels is None:
            raise InputError(f"data={self.name!r} has no labels; {self._advice}")
        return self

    def numbered(self) -> tuple[Data, NDArray[Any]]:
        """The same with the classes of both parts numbered 0, 1, …, and their names."""
        parts = [part for part in (self.labelled().labels, self.labels_test) if part is not None]
        names, numbers = np.unique(np.concatenate(parts), return_inverse=True)
        labels, labels_test = np.split(numbers, [len(self.X)])
        return replace(self, labels=labels, labels_test=None if self.labels_test is None else labels_test), names

    @property
    def _advice(self) -> str:
        """What to do without labels."""
        return "; ".join((*self.notes, _LABELS))

    def _rows(self, rows: NDArray[Any]) -> Data:
        """Some of the samples to train on; the test part stays."""
        return replace(self, X=self.X[rows], labels=None if self.labels is None else self.labels[rows])

    def _with(self, X: NDArray[Any], labels: NDArray[Any] | None) -> Data:
        return replace(self, X=X, labels=labels, X_test=None, labels_test=None)

    def _as_images(self, X: NDArray[Any]) -> NDArray[Any]:
        if self.image_shape is None:
            raise InputError(f"{self.name} does not hold images; reshape X yourself if it does")
        return X.reshape(-1, *self.image_shape)


def subsample(data: Data, limit: int | None, seed: int | np.random.Generator = 0) -> Data:
    """At most `limit` samples, drawn without replacement and kept in their order; all of them if it is None.

    The test part, if there is one, stays whole.
    """
    if limit is None or len(data.X) <= count(limit, "limit"):
        return data
    return data._rows(np.sort(np.random.default_rng(seed).choice(len(data.X), limit, replace=False)))


def _drawn(part: Data, wanted: int | None, name: str, seed: int | np.random.Generator) -> Data:
    if wanted is not None and count(wanted, name) > len(part.X):
        raise InputError(f"{name}={wanted} asks for more samples than the {len(part.X)} that {part.name} holds")
    return subsample(part, wanted, seed)
