"""Estimate from labelled data what a forecast needs of their mixture, and check the forecast on held-out samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, choice, matrix, real
from notsodeep.highdim.curves import Curve
from notsodeep.highdim.fixed_point import Population, Resolved
from notsodeep.highdim.statistics import Statistics, estimate_statistics
from notsodeep.highdim.traces import Diagonal, population_of
from notsodeep.models import DEQ, Explicit

__all__ = ["COVARIANCES", "Described", "HeldOut", "LabelledRows", "fit", "held_out"]

Array: TypeAlias = NDArray[Any]

COVARIANCES = ("ledoit-wolf", "oas", "spectrum")
_TRAIN, _TEST = 2000, 4000  # limit for the samples of a check, which factorises one kernel matrix


class Described(NamedTuple):
    """A mixture, known or estimated."""

    stats: Statistics
    population: Population


class LabelledRows(NamedTuple):
    """Labelled data, the labels numbered."""

    X: Array
    labels: Array
    classes: Array

    @staticmethod
    def of(X: ArrayLike, y: ArrayLike) -> LabelledRows:
        """Validated."""
        rows = np.asarray(matrix(X, "X"), dtype=np.float64)
        names = np.asarray(y)
        if names.shape != (len(rows),):
            raise InputError(f"y has shape {names.shape} but X has {len(rows)} samples; pass one label per row")
        classes, labels = np.unique(names, return_inverse=True)
        if classes.size < 2:
            raise InputError(f"y holds one class only ({classes[0]}); a forecast of accuracy needs two")
        sizes = np.bincount(labels)
        if sizes.min() < 2:
            raise InputError(f"class {classes[sizes.argmin()]} has 1 sample in y; pass at least 2 samples per class")
        return LabelledRows(rows, labels, classes)

    def part(self, rows: Array) -> LabelledRows:
        """Some of the samples."""
        return LabelledRows(self.X[rows], self.labels[rows], self.classes)


@dataclass(frozen=True)
class HeldOut:
    """Forecast against measurement on held-out samples.

    Attributes
    ----------
    n, tests : int
        Samples from which the mixture was estimated and the kernel machine trained, and those held out.
    ridge : array
    predicted, measured : array
        Accuracy at each ridge: forecast from the n samples; exact kernel trained on them.
    error : array
        Standard error of `measured`, from the number of tests alone.
    """

    n: int
    tests: int
    ridge: Array
    predicted: Array
    measured: Array
    error: Array = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: np.asarray(getattr(self, name)).tolist() for name in self.__dataclass_fields__}

    def __str__(self) -> str:
        worst = int(np.argmax(np.abs(self.predicted - self.measured)))
        return (
            f"predicted {self.predicted[worst]:.4f}, measured {self.measured[worst]:.4f} ± {self.error[worst]:.4f} "
            f"on {self.tests} held-out samples (n={self.n}, ridge={self.ridge[worst]:.3g})"
        )


def fit(samples: LabelledRows, covariance: str) -> Described:
    """Estimate the mixture.

    τ₀, t and T are unbiased (:func:`estimate_statistics`). The covariances are those of scikit-learn's shrinkage, class
    by class, or all proportional to one C° whose spectrum is found from the sample's. Class averages contain noise
    of covariance C_a/n_a, whose part in every form of the means is subtracted.
    """
    stats = estimate_statistics(samples.X, samples.labels)
    if choice(covariance, COVARIANCES, "covariance") == "spectrum":
        return Described(stats, Diagonal(stats.directions, stats.p))
    from sklearn.covariance import OAS, LedoitWolf

    shrink = LedoitWolf if covariance == "ledoit-wolf" else OAS
    sizes = np.bincount(samples.labels)
    means, spreads = [], []
    for a, size in enumerate(sizes):
        rows = samples.X[samples.labels == a] * math.sqrt(stats.p)
        means.append(rows.mean(axis=0))
        spreads.append(shrink().fit(rows).covariance_ * (size / (size - 1)))
    return Described(stats, _Averages(population_of(spreads, np.stack(means)), sizes))


@dataclass(frozen=True, eq=False)
class _Averages:
    """A population whose means are averages of samples: E[μ̂ᵀAμ̂] = μᵀAμ + tr(C_a A)/n_a."""

    base: Population
    sizes: Array

    @property
    def p(self) -> int:
        return self.base.p

    @property
    def tolerance(self) -> float:
        return self.base.tolerance

    @property
    def rough(self) -> Population:
        return _Averages(self.base.rough, self.sizes)

    @property
    def many(self) -> Population:
        return _Averages(self.base.many, self.sizes)

    def mean_variances(self) -> Array:
        return self.base.mean_variances()

    def mean_products(self) -> Array:
        return _positive(self.base.mean_products() - np.diag(self.base.mean_variances() / self.sizes))

    def start(self, c1: float, z: float, loads: Array, guess: Array | None) -> Array | None:
        return self.base.start(c1, z, loads, guess)

    def resolve(self, z: float, theta: Array) -> Resolved:
        traces, products, forms, curved = self.base.resolve(z, theta)
        noise = np.stack([np.diag(row) for row in products / self.sizes])
        return Resolved(
            traces,
            products,
            _positive(forms - np.diag(traces / self.sizes)),
            np.stack([_positive(one) for one in curved - noise]),
        )


def _positive(form: Array) -> Array:
    """The nearest positive semi-definite matrix."""
    values, vectors = np.linalg.eigh(form)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def held_out(
    model: DEQ | DeepDEQ | Explicit,
    samples: LabelledRows,
    predict: Callable[[LabelledRows, Array], Curve],
    targets: Array,
    kind: str,
    share: float,
    seed: int | np.random.Generator,
) -> HeldOut:
    """Forecast from one part of the data, train the exact kernel on it, and measure the accuracy on the other part.

    Parameters
    ----------
    model : DEQ, DeepDEQ or Explicit
    samples : LabelledRows
    predict : callable
        ``predict(part, n)`` makes a forecast from a part of the samples.
    targets : array (K, outputs)
    kind : str
    share : float
        Held out, of every class.
    seed : int or Generator
    """
    share = real(share, "holdout")
    if not 0 < share < 1:
        raise InputError(f"holdout={share!r} must lie between 0 and 1")
    order = np.random.default_rng(seed).permutation(len(samples.X))
    place = np.empty(len(order))
    for a in range(samples.classes.size):  # the same share of every class
        rows = order[samples.labels[order] == a]
        place[rows] = (np.arange(rows.size) + 0.5) / rows.size
    test, train = order[place[order] < share][:_TEST], order[place[order] >= share][:_TRAIN]
    if not test.size:
        raise InputError(f"holdout={share:.3g} holds out none of the {len(order)} samples; pass more, or 0")
    kept = np.bincount(samples.labels[train], minlength=samples.classes.size)
    if kept.min() < 2:
        name = samples.classes[kept.argmin()]
        raise InputError(f"holdout={share:.3g} leaves fewer than 2 samples of class {name}; pass less, or 0")
    part, rest = samples.part(np.sort(train)), samples.part(np.sort(test))
    found = predict(part, np.array(len(train)))
    levels = np.atleast_1d(found.ridge)
    counts = np.bincount(rest.labels, minlength=samples.classes.size) / len(test)
    right = np.diagonal(found.confusion, axis1=-2, axis2=-1).reshape(len(levels), -1)
    tau0 = estimate_statistics(part.X, part.labels).tau0
    measured = _exact(model.centered(tau0), part, rest, targets, kind, levels)
    error = np.sqrt(np.maximum(measured * (1 - measured), 1 / len(test)) / len(test))
    return HeldOut(len(train), len(test), levels, right @ counts, measured, error)


def _exact(
    model: DEQ | DeepDEQ | Explicit, train: LabelledRows, test: LabelledRows, targets: Array, kind: str, levels: Array
) -> Array:
    """Accuracy of kernel ridge classification with the exact kernel, at each ridge."""
    kernel, cross = model.kernel(train.X, kind=kind), model.kernel(test.X, train.X, kind=kind)
    values, vectors = linalg.eigh(kernel, overwrite_a=True)
    inner, goal = cross @ vectors, vectors.T @ targets[train.labels]
    halves = np.einsum("ij,ij->i", targets, targets) / 2
    shares = []
    for level in levels:
        scores = inner @ (goal / (values + level)[:, None])
        shares.append(float(np.mean(np.argmax(scores @ targets.T - halves, axis=1) == test.labels)))
    return np.array(shares)
