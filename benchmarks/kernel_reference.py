"""Data for the kernel benchmarks, and reference values that share no code with the kernels they judge.

Positively homogeneous activations: thirty-five digits, inner products included. Smooth ones: the fixed point
in double precision with every expectation by the trapezoidal rule in two dimensions. Hard tanh: the same with an
integral between the kinks of one variable, the other one in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy import special

import notsodeep as nsd

Array = NDArray[Any]
Pairs = Sequence[tuple[int, int]]

NEAR = (0.0, 1e-12, 1e-6, 1e-2)  # the last rows repeat the first ones up to these relative changes


def samples(
    n: int, p: int, norms: str = "unit", dtype: str = "float64", *, correlated: bool = True, spread: float = 0.25
) -> Array:
    """Rows with four near-duplicate pairs; norms 1 ("unit") or exp(spread·ξ), mostly 0.4 to 2.6 ("arbitrary").

    Cosines are spread over (−1, 1) when `correlated`, and of order 1/√p otherwise.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    if correlated:
        X += 2 / math.sqrt(6) * (rng.standard_normal((n, 6)) @ rng.standard_normal((6, p)))
    for k, change in enumerate(NEAR):
        X[n - 1 - k] = X[k] * (1 + change * rng.standard_normal(p))
    lengths = np.linalg.norm(X, axis=1)
    X /= lengths[:, None]
    if norms == "arbitrary":
        X *= np.exp(spread * rng.standard_normal(n))[:, None]
    return X.astype(dtype, copy=False)


def pairs(n: int, count: int) -> list[tuple[int, int]]:
    """Random pairs, the near-duplicates of :func:`samples`, and two diagonal entries."""
    chosen = np.random.default_rng(1).integers(n, size=(count, 2))
    return [(int(i), int(j)) for i, j in chosen] + [(k, n - 1 - k) for k in range(len(NEAR))] + [(0, 0), (n - 1, n - 1)]


def error(K: Array, deq: nsd.DEQ, kind: str, X: Array, where: Pairs) -> float:
    """max |K_ij − exact| / √(K_ii K_jj) over the given entries."""
    reference = homogeneous if deq.activation.homogeneous else clipped if deq.activation.kinks else smooth
    exact = reference(deq, kind, X, where)
    return max(
        abs(float(K[i, j]) - value) / math.sqrt(abs(float(K[i, i])) * abs(float(K[j, j])))
        for (i, j), value in zip(where, exact, strict=True)
    )


def combine(kind: str, power: Any, slope: Any, covariance: Any, recurrent: Any) -> Any:
    """The kernel from G, Ġ and Λ."""
    gain = 1 / (1 - recurrent * slope)
    return {
        "ck": power,
        "nngp": covariance,
        "ntk": power + covariance * slope * gain,
        "ntk_frozen_input": power * gain,
        "ntk_injected": covariance * gain,
    }[kind]


def homogeneous(deq: nsd.DEQ, kind: str, X: Array, where: Pairs) -> list[float]:
    """Entries for φ(x) = a·max(x, 0) + b·min(x, 0) from ρ = σ_a² κ(ρ) + s, in thirty-five digits."""
    with mpmath.workdps(35):
        high, low = mpmath.mpf(deq.activation(1.0)), -mpmath.mpf(deq.activation(-1.0))
        v, e = (high**2 + low**2) / 2, (high - low) ** 2 / (2 * mpmath.pi)
        recurrent, gain, bias = mpmath.mpf(deq.recurrent), mpmath.mpf(deq.input), mpmath.mpf(deq.bias)
        rows = {i: [mpmath.mpf(float(x)) for x in X[i]] for i in {i for pair in where for i in pair}}
        q = {i: (gain * mpmath.fdot(row, row) + bias) / (1 - recurrent * v) for i, row in rows.items()}
        values = []
        for i, j in where:
            root = mpmath.sqrt(q[i] * q[j])
            s = (gain * mpmath.fdot(rows[i], rows[j]) + bias) / root
            theta = _angle(s, v, e, recurrent)
            rho = mpmath.cos(theta)
            power = root * (v * rho + e * (mpmath.sin(theta) - theta * rho))
            values.append(float(combine(kind, power, v - e * theta, root * rho, recurrent)))
        return values


def _angle(s: Any, v: Any, e: Any, recurrent: Any) -> Any:
    """θ in [0, π] with cos θ − σ_a²(v cos θ + e (sin θ − θ cos θ)) = s: bisection, then Newton inside the bracket."""

    def excess(theta: Any) -> Any:
        cosine = mpmath.cos(theta)
        return s - cosine + recurrent * (v * cosine + e * (mpmath.sin(theta) - theta * cosine))

    low, high = mpmath.mpf(0), mpmath.pi
    if excess(low) >= 0:
        return low
    if excess(high) <= 0:
        return high
    theta = (low + high) / 2
    for _ in range(200):
        value = excess(theta)
        low, high = (theta, high) if value < 0 else (low, theta)
        slope = mpmath.sin(theta) * (1 - recurrent * (v - e * theta))
        proposal = theta - value / slope
        if not low < proposal < high:
            proposal = (low + high) / 2
        if abs(proposal - theta) <= mpmath.mpf(10) ** -30 * theta:
            return proposal
        theta = proposal
    raise AssertionError("the reference did not converge")


STEP, CUT = 1 / 16, 9.0


def smooth(deq: nsd.DEQ, kind: str, X: Array, where: Pairs) -> list[float]:
    """Entries for an analytic φ: Λ = σ_a² E[φ(u)φ(v)] + S iterated to rest, expectations by the trapezoidal rule."""
    xi = STEP * np.arange(-round(CUT / STEP), round(CUT / STEP) + 1)
    weight = STEP / math.sqrt(2 * math.pi) * np.exp(-(xi**2) / 2)
    plane = np.outer(weight, weight)
    phi = deq.activation

    def own(size: float) -> float:
        return float(weight @ phi(size * xi) ** 2)

    def both(left: float, right: float, rho: float) -> tuple[float, float]:
        u = left * xi[:, None]
        v = right * (rho * xi[:, None] + math.sqrt(1 - rho * rho) * xi)
        return float(np.sum(plane * phi(u) * phi(v))), float(np.sum(plane * phi.derivative(u) * phi.derivative(v)))

    return _fixed_points(deq, kind, X, where, own, both)


def clipped(deq: nsd.DEQ, kind: str, X: Array, where: Pairs) -> list[float]:
    """Entries for hard tanh, φ(u) = clip(u, −1, 1): Gauss–Legendre in u between its kinks, v given u in closed form."""
    nodes, weights = np.polynomial.legendre.leggauss(40)

    def grid(*points: float) -> tuple[Array, Array]:
        """Nodes and Gaussian weights on panels that shrink towards the given points."""
        steps = np.concatenate([[0.0], 2.0 ** np.arange(-40.0, 1.0)])
        edges = np.unique(np.clip(np.concatenate([p + s * steps for p in points for s in (-1, 1)]), -CUT, CUT))
        edges = np.unique(np.concatenate([edges, np.arange(-CUT, CUT + 1)]))
        half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
        xi = middle + half * nodes
        return xi.ravel(), (half * weights * np.exp(-(xi**2) / 2)).ravel() / math.sqrt(2 * math.pi)

    def own(size: float) -> float:
        xi, weight = grid(-1 / size, 1 / size)
        return float(weight @ np.clip(size * xi, -1, 1) ** 2)

    def both(left: float, right: float, rho: float) -> tuple[float, float]:
        spread = right * math.sqrt(max((1 - rho) * (1 + rho), 0.0))
        kinks = [-1 / left, 1 / left] + ([s / (right * rho) for s in (-1, 1)] if abs(rho) > 0.5 else [])
        xi, weight = grid(*kinks)
        mean = right * rho * xi
        if spread > 0:
            low, high = (-1 - mean) / spread, (1 - mean) / spread
            inside = special.ndtr(high) - special.ndtr(low)
            inside = np.where(low > 0, special.ndtr(-low) - special.ndtr(-high), inside)
            density = (np.exp(-(low**2) / 2) - np.exp(-(high**2) / 2)) / math.sqrt(2 * math.pi)
            value = mean * inside + spread * density + special.ndtr(-high) - special.ndtr(low)
        else:
            inside, value = (np.abs(mean) < 1).astype(float), np.clip(mean, -1, 1)
        u = left * xi
        return float(weight @ (np.clip(u, -1, 1) * value)), float(weight @ ((np.abs(u) < 1) * inside))

    return _fixed_points(deq, kind, X, where, own, both)


def _fixed_points(
    deq: nsd.DEQ,
    kind: str,
    X: Array,
    where: Pairs,
    own: Callable[[float], float],
    both: Callable[[float, float, float], tuple[float, float]],
) -> list[float]:
    """Entries from E[φ(√q ξ)²] = own(√q) and (E[φ(u)φ(v)], E[φ'(u)φ'(v)]) = both(√q_i, √q_j, ρ)."""
    wide = X.astype(np.float64)

    def variance(i: int) -> float:
        drive = deq.input * math.fsum(wide[i] ** 2) + deq.bias
        q = drive
        for _ in range(500):
            previous, q = q, deq.recurrent * own(math.sqrt(q)) + drive
            if abs(q - previous) <= 1e-16 * q:
                break
        return q

    q = {i: variance(i) for i in {i for pair in where for i in pair}}
    values = []
    for i, j in where:
        drive = deq.input * math.fsum(wide[i] * wide[j]) + deq.bias
        left, right = math.sqrt(q[i]), math.sqrt(q[j])
        covariance = q[i] if i == j else drive
        for _ in range(100):
            # a kink takes the root of 1 − ρ, so ρ of a row with itself must not be rounded
            rho = 1.0 if i == j else min(max(covariance / (left * right), -1.0), 1.0)
            power, slope = both(left, right, rho)
            residual = covariance - deq.recurrent * power - drive
            covariance -= residual / (1 - deq.recurrent * slope)
            if abs(residual) <= 2e-15 * left * right:
                break
        values.append(combine(kind, power, slope, covariance, deq.recurrent))
    return values
