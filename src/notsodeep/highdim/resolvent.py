"""Deterministic equivalent of (WWᵀ − z)⁻¹ for rows w_i of K classes with their own covariances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Resolvent"]

Array: TypeAlias = NDArray[Any]

_EPSILON = 1e-7  # final Im z / |z| of a density
_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Resolvent:
    """m_a(z) = 1/(−z + (1/p) tr C_a (I + Σ_b (n_b/p) m_b C_b)⁻¹), the diagonal of (WWᵀ − z)⁻¹ on class a.

    W is n×p, √p w_i ~ N(0, C_a). If the C_a do not commute, they are replaced by their diagonals in the
    eigenbasis of C°.

    Attributes
    ----------
    loads : array (K,)
        n_a/p.
    fractions : array (r,)
        Share of the directions in each group.
    variances : array (K, r)
        Class variances there.
    """

    loads: Array
    fractions: Array
    variances: Array

    @property
    def ceiling(self) -> float:
        """An upper bound on the support of the eigenvalues of WWᵀ."""
        return float(self.variances.max() * (1 + np.sqrt(self.loads.sum())) ** 2)

    @property
    def floor(self) -> float:
        """A point below the positive part of the support (0 when none is known)."""
        return float(0.2 * self.variances.min() * (1 - np.sqrt(self.loads.sum())) ** 2)

    @property
    def null_mass(self) -> float:
        """Share of the n eigenvalues that vanish because WWᵀ has rank < n."""
        rank = float(self.fractions[(self.variances > 0).any(axis=0)].sum())
        return max(0.0, 1 - rank / float(self.loads.sum()))

    def solve(self, x: Array, guess: Array | None = None) -> tuple[Array, Array]:
        """Return m (len(x), K) at x + i0 for real x ≠ 0, and the residual of its equation.

        The equation has one solution with Im m > 0 for Im z > 0, so a point there with a small
        residual is the solution. Newton's method starts at `guess`; if that fails, it follows the
        solution from far above the real axis down to it.
        """
        x = np.asarray(x, dtype=np.float64)
        if guess is None:
            m, residual = self._descend(x, 9)
        else:
            z = x + 1j * _EPSILON * np.abs(x)
            m = self._newton(z, guess.copy())
            residual = self._residual(z, m)
        for steps in (20, 80):  # with shorter steps where 20 failed
            failed = residual > _TOLERANCE
            if not failed.any():
                break
            m[failed], residual[failed] = self._descend(x[failed], steps)
        return m, residual

    def _descend(self, x: Array, steps: int) -> tuple[Array, Array]:
        z = x + 10j * np.abs(x)
        m = np.repeat(-1 / z[:, None], self.loads.size, axis=1)
        for epsilon in np.geomspace(10, _EPSILON, steps):
            z = x + 1j * epsilon * np.abs(x)
            m = self._newton(z, m)
        return m, self._residual(z, m)

    def outside(self, x: Array) -> Array:
        """Return the real m (len(x), K) at real x outside the support."""
        m, _ = self.solve(x)
        real = m.real
        for _ in range(4):  # drop the imaginary part, and polish
            real = real - self._step(np.asarray(x, dtype=np.float64), real)[0]
        return real

    def mixing(self, m: Array) -> Array:
        """H_i = Σ_b (n_b/p) m_b C_b,i for every direction: shape (len(m), r)."""
        return (m * self.loads) @ self.variances

    def density(self, x: Array, m: Array | None = None) -> Array:
        """Return the eigenvalue density of WWᵀ at x > 0, without the mass at 0; `m` if already solved."""
        m = self.solve(x)[0] if m is None else m
        return np.asarray(np.maximum((m.imag @ self.loads) / self.loads.sum() / np.pi, 0.0))

    def inside(self, x: Array) -> Array:
        """Whether x > 0 lies in the support."""
        m, _ = self.solve(x)
        return np.asarray((m.imag / np.abs(m)).max(axis=1) > 1e-4)

    # the equation ------------------------------------------------------------------------

    def _map(self, z: Array, m: Array) -> Array:
        spread = (self.fractions / (1 + self.mixing(m))) @ self.variances.T
        return 1 / (spread - z[:, None])

    def _residual(self, z: Array, m: Array) -> Array:
        """Relative residual; infinite outside the upper half-plane."""
        size = np.max(np.abs(self._map(z, m) / m - 1), axis=1)
        return np.where((m.imag > 0).all(axis=1), size, np.inf)

    def _step(self, z: Array, m: Array) -> tuple[Array, Array]:
        """Newton's step for m − map(m) = 0, and map(m)."""
        one = 1 + self.mixing(m)
        weighted = self.fractions / one
        value = 1 / (weighted @ self.variances.T - z[:, None])
        coupling = ((weighted / one)[:, None, :] * self.variances) @ self.variances.T * self.loads
        jacobian = np.eye(self.loads.size) - value[:, :, None] ** 2 * coupling
        return np.linalg.solve(jacobian, (m - value)[:, :, None])[:, :, 0], value

    def _newton(self, z: Array, m: Array) -> Array:
        active = np.arange(z.size)
        for _ in range(15):
            now = m[active]
            step, value = self._step(z[active], now)
            trial = now - step
            lost = ~(trial.imag > 0).all(axis=1)  # the solution is unique in the upper half-plane: stay there
            trial[lost] = (now[lost] + value[lost]) / 2
            m[active] = trial
            moving = lost | (np.max(np.abs(step) / np.abs(trial), axis=1) > 1e-13)
            active = active[moving]
            if not active.size:
                break
        return m
