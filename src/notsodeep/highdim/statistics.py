"""The statistics of a data set that a wide network depends on in high dimension: τ₀, t, T, ψ, population spectrum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.checks import InputError, matrix
from notsodeep.display import card
from notsodeep.highdim.population import Directions, SampleSpectrum, invert

__all__ = ["Statistics", "estimate_statistics"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of a K-class mixture, √p x ~ N(μ_a, C_a), with C° = Σ_a proportions_a C_a.

    Attributes
    ----------
    tau0 : float
        τ₀ = √(tr C°/p).
    t : array (K,)
        t_a = tr(C_a − C°)/√p.
    T : array (K, K)
        T_ab = tr(C_a C_b)/p.
    proportions : array (K,)
        n_a/n.
    p : int
        Number of features.
    population : callable
        Computes :attr:`directions`, which only the spectrum needs.
    classes : array (K,)
        The label of each class.
    labels : array (n,) of int, or None
        Index of the class of each sample.
    psi : array (n,), or None
        ψ_i = ‖x_i − E x_i‖² − E‖x_i − E x_i‖². Absent when no samples were given.
    """

    tau0: float
    t: Array
    T: Array
    proportions: Array
    p: int
    population: Callable[[], Directions] = field(repr=False)
    classes: Array
    labels: Array | None = field(default=None, repr=False)
    psi: Array | None = field(default=None, repr=False)

    @cached_property
    def directions(self) -> Directions:
        """Eigenvalues of C°, with the class variances and the products of the means there."""
        return self.population()

    @property
    def n(self) -> int | None:
        """Number of samples, or None without samples."""
        return None if self.labels is None else int(self.labels.size)

    @property
    def one_hot(self) -> Array:
        """J, the (n, K) class indicators."""
        if self.labels is None:
            raise InputError("these statistics hold no samples; pass X and labels to Mixture.statistics")
        return np.eye(self.proportions.size)[self.labels]

    @property
    def low_rank(self) -> Array:
        """V = [J/√p, ψ], shape (n, K+1)."""
        one_hot = self.one_hot
        assert self.psi is not None
        return np.column_stack([one_hot / math.sqrt(self.p), self.psi])

    def low_rank_weight(self, c2: float, c3: float) -> Array:
        """[[c₂ttᵀ + c₃T, c₂t], [c₂tᵀ, c₂]], shape (K+1, K+1)."""
        extended = np.append(self.t, 1.0)
        weight = c2 * np.outer(extended, extended)
        weight[:-1, :-1] += c3 * self.T
        return weight

    def __str__(self) -> str:
        samples = "no samples" if self.n is None else f"n={self.n}"
        return f"Statistics({samples}, p={self.p}, classes={self.proportions.size}, tau0={self.tau0:.6g})"

    def _repr_html_(self) -> str:
        rows = [("samples n", self.n or "none"), ("features p", self.p), ("classes", self.proportions.size)]
        return card("Statistics", [*rows, ("τ_0", f"{self.tau0:.6g}")])


def estimate_statistics(X: ArrayLike, labels: ArrayLike | None = None) -> Statistics:
    """Estimate τ₀, t, T, ψ and the population spectrum from samples alone.

    T is unbiased whatever the distribution of the data: T_ab = tr(S_a S_b)/p between
    classes, and within a class [Himeno, Yamada 2014]

        T_aa = (ν/(m(m−2)(m−3)p)) [ν(m−2) tr S_a² + (tr S_a)² − m Q_a],  Q_a = Σ_i ‖z_i − z̄‖⁴/ν,

    with m samples z_i = √p x_i of the class, ν = m − 1 and sample covariance S_a. Two or three
    samples determine the trace but not this number; their class is then assumed to have the
    shape of C°, T_aa = T°(tr C_a/tr C°)².

    Parameters
    ----------
    X : array (n, p)
        Samples in rows.
    labels : array (n,), optional
        Class labels of any type. Without them all samples form one class.

    Returns
    -------
    Statistics

    Examples
    --------
    >>> import numpy as np, notsodeep as nsd
    >>> X = np.random.default_rng(0).standard_normal((400, 300)) / np.sqrt(300)
    >>> stats = nsd.estimate_statistics(X, ["cat", "dog"] * 200)
    >>> print(stats)
    Statistics(n=400, p=300, classes=2, tau0=1.00116)
    >>> bool(abs(stats.T - 1).max() < 0.1)
    True
    """
    X = np.asarray(matrix(X, "X"), dtype=np.float64)
    n, p = X.shape
    classes, index = _class_index(labels, n)
    sizes = np.bincount(index)
    for name, size in zip(classes, sizes, strict=True):
        if size < 2:
            raise InputError(f"class {name!r} in labels has {size} sample; pass at least 2 samples per class")
    proportions = sizes / n
    noise = math.sqrt(p) * X - _class_means(X, index)[index]
    energy = np.einsum("ij,ij->i", noise, noise)

    dof = sizes - 1
    traces = np.bincount(index, energy) / dof
    trace = float(proportions @ traces)
    if trace == 0:
        raise InputError("X does not vary within the classes; tau0 would be 0")
    T = _trace_products(noise, index, energy, traces, trace)
    # ‖x_i − x̄_a‖² misses 1/n_a of the variance
    psi = (energy - (np.bincount(index, energy) / sizes)[index]) / p * (sizes / dof)[index]
    return Statistics(
        tau0=math.sqrt(trace / p),
        t=(traces - trace) / math.sqrt(p),
        T=T,
        proportions=proportions,
        p=p,
        population=partial(_population, X, index, traces / trace, float(proportions @ T @ proportions)),
        classes=classes,
        labels=index,
        psi=psi,
    )


def _population(X: Array, index: Array, scales: Array, second_moment: float) -> Directions:
    sizes = np.bincount(index)
    means = _class_means(X, index)
    noise = math.sqrt(X.shape[1]) * X - means[index]
    return invert(SampleSpectrum.of(noise, means, dof=index.size - sizes.size), scales, sizes, second_moment)


def _class_means(X: Array, index: Array) -> Array:
    """μ̂_a = √p · mean of the class."""
    return np.stack([X[index == a].mean(axis=0) for a in range(index.max() + 1)]) * math.sqrt(X.shape[1])


def _class_index(labels: ArrayLike | None, n: int) -> tuple[Array, Array]:
    if labels is None:
        return np.array([0]), np.zeros(n, dtype=np.intp)
    names = np.asarray(labels)
    if names.shape != (n,):
        raise InputError(f"labels has shape {names.shape} but X has {n} samples; pass one label per row")
    if names.dtype.kind in "fc" and not np.isfinite(names).all():
        raise InputError("labels holds NaN or infinite values; remove those samples")
    try:
        classes, index = np.unique(names, return_inverse=True)
    except TypeError:
        raise InputError("labels mixes types that cannot be compared; pass all strings or all numbers") from None
    return classes, index


def _trace_products(noise: Array, index: Array, energy: Array, traces: Array, trace: float) -> Array:
    """Unbiased tr(C_a C_b)/p."""
    n, p = noise.shape
    sizes = np.bincount(index)
    k, dof = sizes.size, sizes - 1
    if p <= n:  # through the p×p covariances …
        covariances = np.stack([noise[index == a].T @ noise[index == a] / dof[a] for a in range(k)]).reshape(k, -1)
        products = covariances @ covariances.T
    else:  # … or the n×n Gram matrix, whichever is smaller
        squares = (noise @ noise.T) ** 2
        one_hot = np.eye(k)[index]
        products = one_hot.T @ squares @ one_hot / np.outer(dof, dof)
    fourth = np.bincount(index, energy**2) / dof
    pooled_weight = sizes / n
    for a, (m, nu) in enumerate(zip(sizes, dof, strict=True)):
        if m >= 4:
            products[a, a] = (
                nu / (m * (m - 2) * (m - 3)) * (nu * (m - 2) * products[a, a] + traces[a] ** 2 - m * fourth[a])
            )
        else:
            products[a, a] = np.nan
    small = np.isnan(np.diag(products))
    if small.any():
        known = np.where(np.isnan(products), 0.0, products)
        covered = np.outer(pooled_weight, pooled_weight) * ~np.isnan(products)
        shape = (covered * known).sum() / (covered * np.outer(traces, traces)).sum() if covered.any() else 1 / p
        products[small, small] = max(float(shape), 1 / p) * traces[small] ** 2  # tr C² ≥ (tr C)²/p
    return products / p
