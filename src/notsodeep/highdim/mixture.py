"""Gaussian mixtures √p x ~ N(μ_a, C_a): sampling, and their exact statistics."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack

from notsodeep import files
from notsodeep.checks import InputError, count, matrix
from notsodeep.display import card
from notsodeep.highdim.fixed_point import Population
from notsodeep.highdim.population import Directions
from notsodeep.highdim.statistics import Statistics
from notsodeep.highdim.traces import population_of

__all__ = ["Mixture", "statistics_of"]

Array: TypeAlias = NDArray[Any]

_NEGATIVE = 1e-8  # an eigenvalue this far below zero, relative to the largest entry, is rounding

MOST_CLASSES = 100  # in a file: the work of a forecast grows with their fourth power


@dataclass(frozen=True, eq=False, repr=False)
# covers: [Ling24] Def. 2.7; [Ling24] Asm. A.1; slides of [Ling24] Asm. 2
class Mixture:
    """√p x ~ N(μ_a, C_a) with probability proportions_a.

    Parameters
    ----------
    means : array (K, p)
        μ_a.
    covariances : sequence of K entries
        C_a, each a number (times the identity), a diagonal (p,) or a matrix (p, p).
    proportions : array (K,)
        They must sum to 1.

    Examples
    --------
    >>> import numpy as np, notsodeep as nsd
    >>> means = np.zeros((2, 300)); means[0, 0], means[1, 1] = 2, 2
    >>> mix = nsd.Mixture(means, covariances=[1.0, 1.2], proportions=[0.25, 0.75])
    >>> X, labels = mix.sample(400, seed=0)
    >>> X.shape, np.bincount(labels)
    ((400, 300), array([100, 300]))
    >>> print(mix.statistics(X, labels))
    Statistics(n=400, p=300, classes=2, tau0=1.07238)
    """

    means: Array
    covariances: tuple[Array, ...]
    proportions: Array

    def __init__(self, means: ArrayLike, covariances: Sequence[ArrayLike] | Array, proportions: ArrayLike) -> None:
        centers = np.array(matrix(means, "means"), dtype=np.float64)
        shares = np.array(matrix(proportions, "proportions", rank=1), dtype=np.float64)
        k, p = centers.shape
        if shares.shape != (k,):
            raise InputError(f"proportions has {shares.size} entries but means has {k} classes; pass one per class")
        if (shares <= 0).any() or abs(shares.sum() - 1) > 1e-8:
            raise InputError(f"proportions={shares.tolist()} must be positive and sum to 1")
        if not hasattr(covariances, "__len__") or len(covariances) != k:
            given = f"{len(covariances)} entries" if hasattr(covariances, "__len__") else "one number"
            raise InputError(f"covariances holds {given} but means has {k} classes; pass a list of {k} covariances")
        spreads = tuple(_covariance(spread, p, f"covariances[{a}]") for a, spread in enumerate(covariances))
        for name, value in (("means", centers), ("covariances", spreads), ("proportions", shares / shares.sum())):
            object.__setattr__(self, name, value)  # the dataclass is frozen

    def __repr__(self) -> str:
        return f"Mixture(classes={self.classes}, p={self.p})"

    def _repr_html_(self) -> str:
        lengths = np.linalg.norm(self.means, axis=1)
        columns = zip(range(self.classes), self.proportions, lengths, strict=True)
        rows = [(a, f"{share:.3g}", f"{norm:.4g}") for a, share, norm in columns]
        formula = f"√p x ~ N(μ_a, C_a), p = {self.p}"
        return card("Mixture", rows, formula=formula, header=("class", "proportion", "‖μ_a‖"))

    @property
    def p(self) -> int:
        return int(self.means.shape[1])

    @property
    def classes(self) -> int:
        """K."""
        return int(self.means.shape[0])

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> tuple[Array, Array]:
        """Draw n samples, sorted by class, with class sizes from the proportions (largest remainder).

        Returns
        -------
        X : array (n, p)
        labels : array (n,) of int
        """
        n = count(n, "n")
        rng = np.random.default_rng(seed)
        sizes = np.floor(n * self.proportions).astype(int)
        sizes[np.argsort(sizes - n * self.proportions, kind="stable")[: n - sizes.sum()]] += 1
        labels = np.repeat(np.arange(self.classes), sizes)
        X = rng.standard_normal((n, self.p))
        for a, root in enumerate(self._roots):
            rows = labels == a
            X[rows] = X[rows] * root if root.ndim == 1 else X[rows] @ root
        return (X + self.means[labels]) / math.sqrt(self.p), labels

    def statistics(self, X: ArrayLike | None = None, labels: ArrayLike | None = None) -> Statistics:
        """Return τ₀, t, T, ψ of this mixture, exactly.

        Parameters
        ----------
        X : array (n, p), optional
            Samples; ψ needs them. Without them the statistics still serve
            ``coefficients``, ``match`` and ``spectrum``.
        labels : array (n,) of int
            Class index of each sample; n_a/n then replaces the proportions.
        """
        proportions, index, psi = self.proportions, None, None
        if (X is None) != (labels is None):
            raise InputError("X and labels belong together; pass both or neither")
        traces = np.array([self._trace(a) for a in range(self.classes)])
        if X is not None:
            samples = matrix(X, "X")
            if samples.shape[1] != self.p:
                raise InputError(f"X has {samples.shape[1]} features but the mixture has {self.p}")
            index = self._index(labels, samples.shape[0])
            proportions = np.bincount(index, minlength=self.classes) / index.size
            noise = samples - self.means[index] / math.sqrt(self.p)
            psi = np.einsum("ij,ij->i", noise, noise) - traces[index] / self.p
        trace = float(proportions @ traces)
        if trace == 0:
            raise InputError("covariances are all zero; the theory needs noise")
        return Statistics(
            tau0=math.sqrt(trace / self.p),
            t=(traces - trace) / math.sqrt(self.p),
            T=self._trace_products,
            proportions=proportions,
            p=self.p,
            population=partial(self._directions, proportions),
            classes=np.arange(self.classes),
            labels=index,
            psi=psi,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return means, covariances and proportions, JSON-ready; a multiple of the identity is one number."""
        spreads = [c[0] if c.ndim == 1 and (c == c[0]).all() else c for c in self.covariances]
        return {
            "means": self.means.tolist(),
            "covariances": [spread.tolist() for spread in spreads],
            "proportions": self.proportions.tolist(),
        }

    def save(self, path: str | Path) -> Path:
        """Write a JSON file; :func:`load_mixture` reads it back."""
        if self.classes > MOST_CLASSES:
            raise InputError(f"path={str(path)!r}: a file holds at most {MOST_CLASSES} classes, not {self.classes}")
        return files.write(path, json.dumps(self.to_dict()) + "\n")

    @cached_property
    def population(self) -> Population:
        """Means and covariances for the fixed points of a forecast; factorised once."""
        return population_of(self.covariances, self.means)

    def _index(self, labels: Any, n: int) -> Array:
        index = np.asarray(labels)
        if index.shape != (n,):
            raise InputError(f"labels has shape {index.shape} but X has {n} samples; pass one label per row")
        if index.dtype.kind not in "iu" or index.min() < 0 or index.max() >= self.classes:
            raise InputError(f"labels must be integers 0…{self.classes - 1}, the index of each sample's class")
        return index.astype(np.intp)

    def _trace(self, a: int) -> float:
        spread = self.covariances[a]
        return float(spread.sum() if spread.ndim == 1 else np.trace(spread))

    @cached_property
    def _roots(self) -> tuple[Array, ...]:
        """C_a^{1/2}."""
        roots = []
        for spread in self.covariances:
            if spread.ndim == 1:
                roots.append(np.sqrt(spread))
            else:
                values, vectors = np.linalg.eigh(spread)
                roots.append((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T)
        return tuple(roots)

    @cached_property
    def _trace_products(self) -> Array:
        k = self.classes
        table = np.empty((k, k))
        for a in range(k):
            for b in range(a + 1):
                one, two = self.covariances[a], self.covariances[b]
                one, two = (one, two) if one.ndim == two.ndim else (_diagonal(one), _diagonal(two))
                table[a, b] = table[b, a] = np.vdot(one, two) / self.p
        return table

    def _directions(self, proportions: Array) -> Directions:
        if all(spread.ndim == 1 for spread in self.covariances):
            return Directions.gather(np.stack(self.covariances), self.means)
        full = [np.diag(spread) if spread.ndim == 1 else spread for spread in self.covariances]
        _, basis = np.linalg.eigh(sum(share * spread for share, spread in zip(proportions, full, strict=True)))
        variances = np.stack([np.einsum("ij,ij->j", basis, spread @ basis) for spread in full])
        return Directions.gather(np.maximum(variances, 0.0), self.means @ basis)


def _diagonal(spread: Array) -> Array:
    return spread if spread.ndim == 1 else np.diag(spread)


def _covariance(value: ArrayLike, p: int, name: str) -> Array:
    """Return a validated covariance as its diagonal (p,) or in full (p, p)."""
    rank = np.ndim(value)
    if rank > 2:
        raise InputError(f"{name} has {rank} dimensions; pass a number, a diagonal ({p},) or a matrix ({p}, {p})")
    array = np.array(matrix(np.atleast_1d(value), name, rank=max(rank, 1)), dtype=np.float64)
    if rank == 0:
        array = np.full(p, array[0])
    if array.shape not in ((p,), (p, p)):
        raise InputError(f"{name} has shape {array.shape}; pass a number, a diagonal ({p},) or a matrix ({p}, {p})")
    if array.ndim == 1:
        if (array < 0).any():
            raise InputError(f"{name} holds negative variances (smallest {array.min():.6g}); pass values ≥ 0")
        return array
    return _semidefinite(array, name)


def _semidefinite(array: Array, name: str) -> Array:
    """The symmetric part, which has no eigenvalue below −1e-8 of the largest entry.

    A Cholesky factorisation of the shifted matrix shows it; eigenvalues, which take ten times as long, are computed
    only to say what is wrong.
    """
    size = max(float(array.max()), -float(array.min()))
    if not np.array_equal(array, array.T):
        if np.abs(array - array.T).max() > 1e-10 * size:
            raise InputError(f"{name} is not symmetric; pass (C + C.T) / 2")
        array = (array + array.T) / 2
    shifted = array.copy()
    shifted.flat[:: len(shifted) + 1] += _NEGATIVE * size
    _, failed = lapack.dpotrf(shifted.T, lower=1, clean=0, overwrite_a=1)
    if failed and (smallest := float(np.linalg.eigvalsh(array)[0])) < -_NEGATIVE * size:
        raise InputError(f"{name} is not positive semi-definite (eigenvalue {smallest:.6g})")
    return array


def statistics_of(stats: Statistics | Mixture) -> Statistics:
    """The statistics, or those of a mixture."""
    if isinstance(stats, Mixture):
        return stats.statistics()
    if not isinstance(stats, Statistics):
        raise InputError(f"stats={reprlib.repr(stats)} must be a Mixture or come from estimate_statistics")
    return stats
