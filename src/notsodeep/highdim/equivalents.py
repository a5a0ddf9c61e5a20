"""The high-dimensional equivalent of a kernel as a structured matrix: Gram + low rank + identity."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.sparse.linalg import LinearOperator

from notsodeep.cells import DeepDEQ
from notsodeep.checks import InputError, matrix, nonnegative, warn_convergence
from notsodeep.highdim.four_numbers import FourNumbers, coefficients
from notsodeep.highdim.mixture import statistics_of
from notsodeep.highdim.statistics import Statistics
from notsodeep.models import DEQ, Explicit

__all__ = ["Equivalent", "equivalent"]

Array: TypeAlias = NDArray[Any]

_RESIDUAL = 1e-8  # relative residual above which `solve` warns


@dataclass(frozen=True, eq=False)
class Equivalent:
    """M̄ = c₁ XXᵀ + V A Vᵀ + δ I, a symmetric (n, n) matrix stored as its factors.

    Attributes
    ----------
    weights : FourNumbers
        (c₁, c₂, c₃, d); δ = d − τ₀²c₁.
    X : array (n, p)
    V : array (n, K+1)
    A : array (K+1, K+1)
    shift : float
        δ.
    """

    weights: FourNumbers
    X: Array = field(repr=False)
    V: Array = field(repr=False)
    A: Array = field(repr=False)
    shift: float

    @property
    def shape(self) -> tuple[int, int]:
        n = int(self.X.shape[0])
        return n, n

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.X.dtype

    def __matmul__(self, other: ArrayLike) -> Array:
        """M̄ b for b of shape (n,) or (n, k), in O(n(p + K)k)."""
        b = self._right_hand_side(other, "other")
        return self.weights.c1 * (self.X @ (self.X.T @ b)) + self.V @ (self.A @ (self.V.T @ b)) + self.shift * b

    def dense(self) -> Array:
        """Return M̄ as an array (n, n)."""
        full = self.weights.c1 * (self.X @ self.X.T) + self.V @ self.A @ self.V.T
        full[np.diag_indices_from(full)] += self.shift
        return full

    def trace(self) -> float:
        """Tr M̄, without the matrix."""
        low_rank = np.einsum("ij,jk,ik->", self.V, self.A, self.V)
        return float(self.weights.c1 * np.sum(self.X.astype(np.float64) ** 2) + low_rank + self.shift * self.shape[0])

    def eigenvalues(self) -> Array:
        """All n eigenvalues, ascending, from a matrix of side p or n, whichever is smaller."""
        if not self._thin:
            return linalg.eigvalsh(self.dense().astype(np.float64), overwrite_a=True)
        factor, core = self._factors()
        triangle = linalg.qr(factor, mode="r", overwrite_a=True)[0][: factor.shape[1]]
        nonzero = linalg.eigvalsh(triangle @ core @ triangle.T)
        zeros = np.zeros(self.shape[0] - nonzero.size)
        return np.sort(np.concatenate([nonzero, zeros])) + self.shift

    def solve(self, b: ArrayLike, ridge: float = 0.0) -> Array:
        """(M̄ + ridge·I)⁻¹ b, by Woodbury when p + K + 1 < n, with the residual checked.

        Parameters
        ----------
        b : array (n,) or (n, k)
        ridge : float
            Added to the diagonal.
        """
        ridge = nonnegative(ridge, "ridge")
        right = self._right_hand_side(b, "b").astype(np.float64)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", linalg.LinAlgWarning)  # the residual below is checked instead
                inverse = self._woodbury(ridge) if self._thin and self.shift + ridge > 0 else self._direct(ridge)
                x = inverse(right)
                x = x + inverse(right - (self @ x + ridge * x))  # one step of refinement
        except linalg.LinAlgError:
            raise InputError("the equivalent is singular; pass ridge > 0") from None
        residual = float(np.linalg.norm(self @ x + ridge * x - right) / (np.linalg.norm(right) + 1e-300))
        if not residual <= _RESIDUAL:
            warn_convergence(
                f"solve reached a relative residual of {residual:.1e} only: the equivalent is close to singular; "
                "pass ridge > 0"
            )
        return x

    def aslinearoperator(self) -> LinearOperator:
        """Return a scipy LinearOperator with the same products."""
        return LinearOperator(
            self.shape, matvec=self.__matmul__, matmat=self.__matmul__, rmatvec=self.__matmul__, dtype=self.dtype
        )

    def __str__(self) -> str:
        c = self.weights
        return f"Equivalent({self.shape[0]}×{self.shape[1]}, c1={c.c1:.6g}, c2={c.c2:.6g}, c3={c.c3:.6g}, d={c.d:.6g})"

    @property
    def _thin(self) -> bool:
        return self.X.shape[1] + self.V.shape[1] < self.shape[0]

    def _factors(self) -> tuple[Array, Array]:
        """F = [X, V] and the symmetric core N of F N Fᵀ."""
        factor = np.column_stack([self.X, self.V]).astype(np.float64)
        p = self.X.shape[1]
        core = np.zeros((factor.shape[1], factor.shape[1]))
        core[:p, :p] = self.weights.c1 * np.eye(p)
        core[p:, p:] = self.A
        return factor, core

    def _woodbury(self, ridge: float) -> Any:
        factor, core = self._factors()
        shift = self.shift + ridge
        inner = linalg.lu_factor(shift * np.eye(core.shape[0]) + core @ (factor.T @ factor))
        return lambda b: (b - factor @ linalg.lu_solve(inner, core @ (factor.T @ b))) / shift

    def _direct(self, ridge: float) -> Any:
        full = self.dense().astype(np.float64)
        full[np.diag_indices_from(full)] += ridge
        factors = linalg.lu_factor(full, overwrite_a=True)
        return lambda b: linalg.lu_solve(factors, b)

    def _right_hand_side(self, b: ArrayLike, name: str) -> Array:
        rank = np.ndim(b)
        if rank not in (1, 2) or np.shape(b)[0] != self.shape[0]:
            raise InputError(
                f"{name} has shape {np.shape(b)} but the equivalent is {self.shape}; pass {self.shape[0]} rows"
            )
        return matrix(b, name, rank=rank)


# covers: [Ling24] Thm 3.3; [Ling24] Thm 3.4; [Ling24] Thm 3.8
def equivalent(model: DEQ | DeepDEQ | Explicit, X: ArrayLike, stats: Statistics, kind: str = "ck") -> Equivalent:
    """Return M̄ = c₁ XXᵀ + V [[c₂ttᵀ + c₃T, c₂t], [c₂tᵀ, c₂]] Vᵀ + (d − τ₀²c₁) I, V = [J/√p, ψ].

    It differs from the exact kernel of ``model.centered(stats.tau0)`` by O(n^−1/2) in
    spectral norm [Ling24, Thms 3.3, 3.4, 3.8].

    Parameters
    ----------
    model : DEQ, DeepDEQ or Explicit
    X : array (n, p)
        The samples that `stats` describes.
    stats : Statistics
        From ``Mixture.statistics(X, labels)`` or ``estimate_statistics(X, labels)``.
    kind : str
        ``"ck"``, ``"nngp"``, ``"ntk"``, ``"ntk_frozen_input"``, ``"ntk_injected"`` for a DEQ,
        ``"ck"`` or ``"ntk"`` for an Explicit.

    Examples
    --------
    >>> import numpy as np, notsodeep as nsd
    >>> mix = nsd.Mixture(np.zeros((1, 200)), covariances=[1.0], proportions=[1.0])
    >>> X, labels = mix.sample(300, seed=0)
    >>> deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    >>> M = nsd.equivalent(deq, X, mix.statistics(X, labels), kind="ntk")
    >>> M.shape, bool(np.allclose(M @ M.solve(np.ones(300)), 1))
    ((300, 300), True)
    """
    samples = matrix(X, "X")
    stats = statistics_of(stats)
    V = stats.low_rank
    if samples.shape != (V.shape[0], stats.p):
        raise InputError(
            f"X has shape {samples.shape} but stats describes {V.shape[0]} samples of {stats.p} features; "
            "pass the same samples"
        )
    weights = coefficients(model, stats.tau0).weights(kind)
    return Equivalent(
        weights=weights,
        X=samples,
        V=V.astype(samples.dtype),
        A=stats.low_rank_weight(weights.c2, weights.c3).astype(samples.dtype),
        shift=weights.d - stats.tau0**2 * weights.c1,
    )
