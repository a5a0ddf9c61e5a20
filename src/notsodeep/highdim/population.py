"""Estimate the spectrum of the population covariance from a sample: inversion of the Silverstein equation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

__all__ = ["Directions", "SampleSpectrum", "invert"]

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Directions:
    """The eigendirections of C°, grouped by equal variances.

    Attributes
    ----------
    fractions : array (r,)
        Share of the p directions in each group; they sum to 1.
    variances : array (K, r)
        Diagonal of C_a in the eigenbasis of C°.
    means : array (r, K, K)
        Σ μ_a,i μ_b,i over the directions i of the group.
    """

    fractions: Array
    variances: Array
    means: Array

    @staticmethod
    def gather(variances: Array, means: Array) -> Directions:
        """Group equal columns of `variances` (K, p); `means` holds the class means (K, p) in the same basis."""
        scale = max(float(np.abs(variances).max()), 1e-300)
        _, first, group = np.unique(np.round(variances / scale, 12), axis=1, return_index=True, return_inverse=True)
        group = group.ravel()
        products = np.zeros((first.size, means.shape[0], means.shape[0]))
        np.add.at(products, group, means.T[:, :, None] * means.T[:, None, :])
        return Directions(np.bincount(group) / group.size, variances[:, first], products)

    def merged(self, tolerance: float = 0.04) -> Directions:
        """Merge groups whose variances agree within `tolerance`, relatively, in every class."""
        floor = 1e-12 * float(self.variances.max())
        cells = np.round(np.log(np.maximum(self.variances, floor)) / tolerance)
        _, group = np.unique(cells, axis=1, return_inverse=True)
        membership = np.eye(int(group.max()) + 1)[group.ravel()]
        fractions = self.fractions @ membership
        return Directions(
            fractions,
            (self.fractions * self.variances) @ membership / fractions,
            np.einsum("rg,rab->gab", membership, self.means),
        )


@dataclass(frozen=True, eq=False)
class SampleSpectrum:
    """Eigenvalues of the pooled sample covariance S, and the class means against its eigenvectors.

    Attributes
    ----------
    eigenvalues : array (r,)
        Positive eigenvalues of S.
    overlaps : array (r, K)
        Class means in its eigenbasis.
    remainder : array (K, K)
        Products of the means outside the range of S.
    p, dof : int
        Dimension, and degrees of freedom of S.
    """

    eigenvalues: Array
    overlaps: Array
    remainder: Array
    p: int
    dof: int

    @staticmethod
    def of(noise: Array, means: Array, dof: int) -> SampleSpectrum:
        """From the centred samples (n, p) and class means (K, p), through the smaller of the two Gram matrices."""
        n, p = noise.shape
        if p <= n:
            values, vectors = np.linalg.eigh(noise.T @ noise / dof)
            overlaps = vectors.T @ means.T
        else:
            values, vectors = np.linalg.eigh(noise @ noise.T / dof)
            overlaps = vectors.T @ (noise @ means.T) / np.sqrt(np.maximum(values, 1e-300) * dof)[:, None]
        keep = values > 1e-10 * values[-1]
        overlaps = overlaps[keep]
        return SampleSpectrum(values[keep], overlaps, means @ means.T - overlaps.T @ overlaps, p, dof)

    def companion(self, z: Array) -> Array:
        """V(z), the Stieltjes transform of the dof×dof companion of S."""
        return (np.sum(1 / (self.eigenvalues - z[:, None]), axis=1) - (self.dof - self.eigenvalues.size) / z) / self.dof


def invert(sample: SampleSpectrum, scales: Array, sizes: Array, second_moment: float) -> Directions:
    """Find the population spectrum H that fits a sample spectrum [El Karoui 2008].

    The Silverstein equation z = −1/v + (p/ν) ∫ λ dH(λ)/(1 + λv) is linear in H, so its
    weights on a grid of λ solve a non-negative least-squares problem. The energy of the
    means over the same λ follows from μᵀ(S − z)⁻¹μ ≈ −(1/z) Σ μ_i²/(1 + λ_i v), linear again.

    Parameters
    ----------
    sample : SampleSpectrum
    scales : array (K,)
        tr C_a/tr C°; the class covariances are taken proportional to C°.
    sizes : array (K,)
        Samples in each class.
    second_moment : float
        Unbiased tr(C°²)/p.
    """
    values, aspect = sample.eigenvalues, sample.p / sample.dof
    top = values[-1]
    # real negative z are stable; complex z above the sample eigenvalues resolve the shape
    negative = -np.geomspace(1e-3 * top, 30 * top, 40)
    spread = np.quantile(values, np.linspace(0, 1, 60))
    z = np.concatenate([negative.astype(complex), spread * (1 + 0.15j) + 0.02j * spread.mean()])
    v = sample.companion(z)
    atoms = np.geomspace(max(values[0], 1e-4 * top) / 2, 1.02 * top, 160)
    right = z + 1 / v
    rows = aspect * atoms / (1 + atoms * v[:, None]) / np.abs(right)[:, None]
    goal = right / np.abs(right)
    mean = values.sum() / sample.p
    exact = [np.ones_like(atoms), atoms / mean]  # total mass and trace
    aims = [1.0, 1.0]
    if second_moment > mean**2:
        exact.append(atoms**2 / second_moment)
        aims.append(1.0)
    firm = 10.0
    weights, _ = nnls(
        np.concatenate([rows.real, rows.imag, firm * np.array(exact)]),
        np.concatenate([goal.real, goal.imag, firm * np.array(aims)]),
        maxiter=20 * atoms.size,
    )
    keep = weights > 1e-9 * weights.sum()
    atoms, fractions = atoms[keep], weights[keep] / weights[keep].sum()
    atoms = atoms * mean / float(fractions @ atoms)
    return Directions(fractions, np.outer(scales, atoms), _mean_energy(sample, atoms, fractions, scales, sizes))


def _mean_energy(sample: SampleSpectrum, atoms: Array, fractions: Array, scales: Array, sizes: Array) -> Array:
    """Distribute the debiased products of the class means over the population eigenvalues."""
    trace = sample.p * float(fractions @ atoms)
    observed = sample.overlaps.T @ sample.overlaps + sample.remainder
    energies, frame = np.linalg.eigh(observed - np.diag(scales * trace / sizes))  # principal combinations
    energies = np.maximum(energies, 0.0)
    z = -np.geomspace(1e-3, 30, 40) * sample.eigenvalues[-1]
    v = sample.companion(z)
    response = -1 / z[:, None] / (1 + atoms * v[:, None])  # of one unit of energy at each λ
    noise = sample.p * response @ (fractions * atoms)  # tr C°(S − z)⁻¹
    resolvent = 1 / (sample.eigenvalues - z[:, None])
    means = np.zeros((atoms.size, sizes.size, sizes.size))
    for energy, combination in zip(energies, frame.T, strict=True):
        if energy <= 1e-12 * max(energies[-1], 1e-300):
            continue
        quadratic = resolvent @ (sample.overlaps @ combination) ** 2
        quadratic -= combination @ sample.remainder @ combination / z
        quadratic -= noise * float(combination**2 @ (scales / sizes))
        size = energy / (-z)
        weights, _ = nnls(
            np.concatenate([response / size[:, None] * energy, 10 * np.ones((1, atoms.size))]),
            np.append(quadratic / size, 10.0),
            maxiter=20 * atoms.size,
        )
        if weights.sum() > 0:
            means += (energy * weights / weights.sum())[:, None, None] * np.outer(combination, combination)
    return means
