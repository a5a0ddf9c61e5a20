"""Traces and forms of R = (zI + Σ_a θ_a C_a)⁻¹: covariances with common eigenvectors, and any others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from notsodeep.checks import InputError
from notsodeep.highdim.fixed_point import Population, Resolved, solve
from notsodeep.highdim.population import Directions
from notsodeep.threads import pool

__all__ = ["Dense", "Diagonal", "population_of"]

Array: TypeAlias = NDArray[Any]

_PROBES = 96
_BLOCK = 128  # rows of S_a at a time
_SMALL = 700  # up to this p an evaluation is cheap, and the fixed point is solved to full accuracy
_NEAR = 3e-2  # last step of Newton's method on random signs: its square is below their noise
_SINGLE = 1e-2  # above this z, relative to the mean eigenvalue, float32 is accurate enough
_SAME = 1e-10  # relative size of a commutator that counts as zero


@dataclass(frozen=True, eq=False)
class Diagonal:
    """Covariances that share their eigenvectors: arithmetic on their eigenvalues."""

    directions: Directions
    p: int
    tolerance: ClassVar[float] = 1e-12

    @property
    def rough(self) -> Population:
        return self

    @property
    def many(self) -> Population:
        return self

    def mean_variances(self) -> Array:
        return self.directions.variances @ self.directions.fractions

    def mean_products(self) -> Array:
        return self.directions.means.sum(axis=0) / self.p

    def resolve(self, z: float, theta: Array) -> Resolved:
        parts = self.directions
        r = 1 / (z + theta @ parts.variances)
        once = parts.variances * r
        return Resolved(
            once @ parts.fractions,
            (once * parts.fractions) @ once.T,
            np.tensordot(r, parts.means, 1) / self.p,
            np.tensordot(once * r, parts.means, 1) / self.p,
        )

    def start(self, c1: float, z: float, loads: Array, guess: Array | None) -> Array | None:
        return guess


@dataclass(frozen=True, eq=False)
class Dense:
    """Covariances without common eigenvectors, or for few points.

    H = zI + Σ θ_a C_a = LLᵀ and S_a = L⁻¹ C_a L⁻ᵀ give tr(C_a R) = tr S_a and tr(C_a R C_b R) = tr(S_a S_b), p³
    operations per class. Up to p = 700 the fixed point is solved to full accuracy. Above, random signs, which cost
    one factorisation per step, give it to a percent or better. Usually one exact evaluation follows, in float32
    where that is safe; the remaining error is about 1e-5 in δ and 1e-3 in the products.

    Attributes
    ----------
    covariances : sequence of K arrays (p, p)
    means : array (K, p)
    """

    covariances: Sequence[Array] = field(repr=False)
    means: Array = field(repr=False)

    @property
    def p(self) -> int:
        return int(self.means.shape[1])

    @property
    def tolerance(self) -> float:
        return 1e-10 if self.p <= _SMALL else 4e-3

    def mean_variances(self) -> Array:
        return np.array([np.trace(spread) for spread in self.covariances]) / self.p

    def mean_products(self) -> Array:
        return self.means @ self.means.T / self.p

    def start(self, c1: float, z: float, loads: Array, guess: Array | None) -> Array | None:
        if self.p > _SMALL:
            return solve(self._probed, c1, z, loads, guess, _NEAR).delta
        return solve(self.diagonal, c1, z, loads).delta if guess is None else guess

    def factorised(self, z: float, theta: Array) -> tuple[Sequence[Array], Array]:
        """C_a and the lower factor L of zI + Σ θ_a C_a, in the precision that this point needs."""
        single = self.p > _SMALL and z > _SINGLE * float(theta @ self.mean_variances())
        spreads = self._single if single else self.covariances
        total = spreads[0] * spreads[0].dtype.type(theta[0])
        for weight, spread in zip(theta[1:], spreads[1:], strict=True):
            total += spread * spread.dtype.type(weight)
        total.flat[:: self.p + 1] += z
        factorise = lapack.spotrf if single else lapack.dpotrf
        factor, failed = factorise(total.T, lower=1, overwrite_a=1)  # a transpose is in Fortran's order
        if failed:
            raise InputError(f"ridge leaves z={z:.3g}, too small beside the covariances to be told from 0; pass more")
        return spreads, factor

    def resolve(self, z: float, theta: Array) -> Resolved:
        spreads, factor = self.factorised(z, theta)
        forms = _mean_forms(spreads, factor, self.means)
        inverse, _ = _routine("trtri", factor)(factor, lower=1, overwrite_c=1)
        traces, products = _inner(spreads, inverse)
        return Resolved(traces / self.p, products / self.p, *forms)

    @cached_property
    def diagonal(self) -> Diagonal:
        """The diagonals alone: a first guess."""
        variances = np.stack([np.diag(spread) for spread in self.covariances])
        return Diagonal(Directions.gather(variances, np.zeros_like(variances)), self.p)

    @cached_property
    def _single(self) -> list[Array]:
        return [spread.astype(np.float32) for spread in self.covariances]

    @property
    def rough(self) -> Population:
        return self._probed if self.p > _SMALL else self

    @cached_property
    def many(self) -> Population:
        """Eigenvalues if the eigenvectors are common: one decomposition, which costs a few evaluations."""
        return _shared(self.covariances, self.means) if _commute(self.covariances) else self

    @cached_property
    def _probed(self) -> _Probed:
        return _Probed(self)


@dataclass(frozen=True, eq=False)
class _Probed:
    """The same with tr S_a and tr(S_a S_b) estimated from S_a times random signs."""

    exact: Dense
    tolerance: ClassVar[float] = 2e-3

    @property
    def p(self) -> int:
        return self.exact.p

    @property
    def rough(self) -> Population:
        return self

    @property
    def many(self) -> Population:
        return self

    def mean_variances(self) -> Array:
        return self.exact.mean_variances()

    def mean_products(self) -> Array:
        return self.exact.mean_products()

    def start(self, c1: float, z: float, loads: Array, guess: Array | None) -> Array | None:
        return solve(self.exact.diagonal, c1, z, loads).delta if guess is None else guess

    def resolve(self, z: float, theta: Array) -> Resolved:
        spreads, factor = self.exact.factorised(z, theta)
        substitute = _routine("trtrs", factor)
        back, _ = substitute(factor, self._signs, lower=1, trans=1)
        images = np.concatenate([(spread @ back).T for spread in spreads])  # C_a L⁻ᵀ times signs, in rows
        inner, _ = substitute(factor, images.T, lower=1, overwrite_b=1)
        k, size = len(spreads), self._signs.size
        flat = inner.T.reshape(k, -1).astype(np.float64)
        return Resolved(
            flat @ self._signs.T.ravel() / size, flat @ flat.T / size, *_mean_forms(spreads, factor, self.exact.means)
        )

    @cached_property
    def _signs(self) -> Array:
        return np.where(np.random.default_rng(0).random((self.p, _PROBES)) < 0.5, -1.0, 1.0)


def _routine(name: str, factor: Array) -> Any:
    """LAPACK's, in the precision of the factor."""
    return getattr(lapack, ("s" if factor.dtype == np.float32 else "d") + name)


def _inner(spreads: Sequence[Array], inverse: Array) -> tuple[Array, Array]:
    """tr S_a (K,) and tr(S_a S_b) (K, K) of S_a = GC_aGᵀ with G = L⁻¹; a row of blocks is a task of the pool.

    Only blocks on and below the diagonal are computed: p³ operations for each class, as many as in LAPACK's ``sygst``,
    but all of them in matrix products.
    """
    k, p = len(spreads), len(inverse)
    starts = range(0, p, _BLOCK)
    traces, products = np.zeros((len(starts), k)), np.zeros((len(starts), k, k))

    def block(low: int, worker: int) -> None:
        high = min(low + _BLOCK, p)
        rows = np.empty((k, high - low, high), dtype=inverse.dtype)
        for spread, row in zip(spreads, rows, strict=True):
            left = inverse[low:high, :high] @ spread[:high, :high]
            for start in range(0, high, _BLOCK):
                stop = min(start + _BLOCK, high)
                np.matmul(left[:, :stop], inverse[start:stop, :stop].T, out=row[:, start:stop])
        traces[low // _BLOCK] = np.trace(rows[:, :, low:], axis1=1, axis2=2)
        rows[:, :, :low] *= math.sqrt(2)  # once below the diagonal, once above
        flat = rows.reshape(k, -1)
        products[low // _BLOCK] = flat @ flat.T

    with pool() as crew:
        crew.share(starts, block)
    return traces.sum(axis=0), products.sum(axis=0)


def _mean_forms(spreads: Sequence[Array], factor: Array, means: Array) -> tuple[Array, Array]:
    """MᵀRM/p (K, K) and MᵀRC_aRM/p (K, K, K), at the cost of one product with each C_a."""
    solved, _ = _routine("potrs", factor)(factor, means.T, lower=1)  # RM
    curved = np.stack([solved.T @ (spread @ solved) for spread in spreads]).astype(np.float64)
    return means @ solved / means.shape[1], curved / means.shape[1]


def population_of(covariances: Sequence[Array], means: Array) -> Population:
    """The cheapest description for one point: diagonals, common eigenvectors if p is small, or neither.

    Parameters
    ----------
    covariances : sequence of K arrays (p,) or (p, p)
    means : array (K, p)
    """
    p = means.shape[1]
    if all(spread.ndim == 1 for spread in covariances):
        return Diagonal(Directions.gather(np.stack(covariances), means), p)
    full = [np.diag(spread) if spread.ndim == 1 else np.ascontiguousarray(spread) for spread in covariances]
    dense = Dense(full, means)
    return dense if p > _SMALL else dense.many


def _shared(full: Sequence[Array], means: Array) -> Diagonal:
    """In the common eigenvectors."""
    weights = 1 + np.random.default_rng(0).random(len(full))  # generic: different eigenspaces stay different
    _, basis = np.linalg.eigh(sum(weight * spread for weight, spread in zip(weights, full, strict=True)))
    variances = np.stack([np.einsum("ij,ij->j", basis, spread @ basis) for spread in full])
    return Diagonal(Directions.gather(np.maximum(variances, 0.0), means @ basis), means.shape[1])


def _commute(covariances: Sequence[Array]) -> bool:
    """C_aC_b = C_bC_a for all pairs, tested on a random vector."""
    vector = np.random.default_rng(1).standard_normal(covariances[0].shape[0])
    images = [spread @ vector for spread in covariances]
    for a, one in enumerate(covariances):
        for b, two in enumerate(covariances[:a]):
            first, second = one @ images[b], two @ images[a]
            if np.linalg.norm(first - second) > _SAME * max(np.linalg.norm(first), np.linalg.norm(second)):
                return False
    return True
