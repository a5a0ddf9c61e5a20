"""Independent references in plain NumPy: exact kernels by long fixed-point iteration, no code of the library.

A nonlinearity is described by a :class:`Dual`: E[φφ], E[φ'φ'] and E[φ] of jointly Gaussian
pairs. ``relu_dual`` and ``leaky_dual`` are closed forms (arc-cosine kernels), ``quadrature_dual``
is a two-dimensional Gauss–Hermite rule for anything else. All accept a constant shift.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True)
class Dual:
    """Gaussian pair expectations of one activation, from variances q_i, q_j and covariance."""

    power: Callable[[Array, Array, Array], Array]  # E[φ(u)φ(v)]
    slope: Callable[[Array, Array, Array], Array]  # E[φ'(u)φ'(v)]


def leaky_dual(a: float, b: float, shift: float = 0.0) -> Dual:
    """max(ax, bx) − shift."""

    def correlation(q1: Array, q2: Array, c: Array) -> Array:
        return np.clip(c / np.sqrt(q1 * q2), -1.0, 1.0)

    def arc_cosine(rho: Array) -> Array:
        return (np.sqrt(1 - rho**2) + (np.pi - np.arccos(rho)) * rho) / (2 * np.pi)

    def power(q1: Array, q2: Array, c: Array) -> Array:
        rho = correlation(q1, q2, c)
        value = np.sqrt(q1 * q2) * ((a * a + b * b) * arc_cosine(rho) - 2 * a * b * arc_cosine(-rho))
        mean = abs(a - b) / np.sqrt(2 * np.pi)
        return value - shift * mean * (np.sqrt(q1) + np.sqrt(q2)) + shift**2

    def slope(q1: Array, q2: Array, c: Array) -> Array:
        theta = np.arccos(correlation(q1, q2, c))
        return ((a * a + b * b) * (np.pi - theta) + 2 * a * b * theta) / (2 * np.pi)

    return Dual(power, slope)


def relu_dual(shift: float = 0.0) -> Dual:
    """max(x, 0) − shift."""
    return leaky_dual(1.0, 0.0, shift)


def quadrature_dual(function: Callable[[Array], Array], derivative: Callable[[Array], Array], nodes: int = 60) -> Dual:
    """Any activation, by a product Gauss–Hermite rule in (u, v | u); meant for small matrices."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()

    def pair(f: Callable[[Array], Array]) -> Callable[[Array, Array, Array], Array]:
        def value(q1: Array, q2: Array, c: Array) -> Array:
            q1, q2, c = np.broadcast_arrays(q1, q2, c)
            u = np.sqrt(q1)[..., None, None] * x[:, None]
            rest = np.sqrt(np.maximum(q2 - c * c / q1, 0))
            v = (c / np.sqrt(q1))[..., None, None] * x[:, None] + rest[..., None, None] * x
            return np.einsum("...ij,i,j->...", f(u) * f(v), w, w)

        return value

    return Dual(pair(function), pair(derivative))


def deq_kernels(
    P: Array, dual: Dual, recurrent: float, input: float, bias: float = 0.0, iterations: int = 200
) -> dict[str, Array]:
    """Iterate all five kernels of a DEQ to their fixed point from the inner products P (n, n)."""
    drive = input * P + bias
    covariance = drive.copy()
    for _ in range(iterations):
        q = np.diag(covariance)
        new = recurrent * dual.power(q[:, None], q[None, :], covariance) + drive
        change = np.max(np.abs(new - covariance))
        covariance = new
        if change < 1e-13 * np.max(np.abs(new)):
            break
    q = np.diag(covariance)
    G = dual.power(q[:, None], q[None, :], covariance)
    slopes = dual.slope(q[:, None], q[None, :], covariance)
    gap = 1 - recurrent * slopes
    return {
        "ck": G,
        "nngp": covariance,
        "ntk": G + covariance * slopes / gap,
        "ntk_frozen_input": G / gap,
        "ntk_injected": covariance / gap,
    }


def explicit_kernels(P: Array, duals: Sequence[Dual]) -> dict[str, Array]:
    """CK and NTK of a fully-connected network, layer by layer."""
    covariance, tangent = P, P
    for dual in duals:
        q = np.diag(covariance)
        slopes = dual.slope(q[:, None], q[None, :], covariance)
        covariance = dual.power(q[:, None], q[None, :], covariance)
        tangent = covariance + slopes * tangent
    return {"ck": covariance, "ntk": tangent}


def relative_spectral_error(one: Array, two: Array) -> float:
    """‖one − two‖/‖one‖ in spectral norm."""
    from scipy.sparse.linalg import eigsh

    def norm(matrix: Array) -> float:
        return float(abs(eigsh(matrix, k=1, which="LM", return_eigenvectors=False, tol=1e-6)[0]))

    return norm(one - two) / norm(one)
