"""Variances and ridge by gradient descent on the marginal likelihood or on the leave-one-out error.

With A = K + ridge·W⁻¹, P = A⁻¹ and α = P y (n×k), one factorisation gives the criterion and its derivative G in A:

    −log evidence   ½ Σ yα + (k/2) log det A + …        G = ½ (k P − ααᵀ)
    leave-one-out   mean (α_ij/P_ii)²                   G = (2/nk) (P diag(Σ_j α_ij²/P_ii³) P − sym(P (α/P_ii²) αᵀ))

The derivative in a variance is Σ_ij G_ij ∂K_ij/∂v, by :class:`notsodeep.nn.DEQKernel`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.optimize import minimize

from notsodeep.checks import InputError
from notsodeep.extras import need
from notsodeep.models import DEQ

__all__ = ["CRITERIA", "Tuning", "tune"]

Array: TypeAlias = NDArray[Any]

_ROWS = 2000  # beyond, a random sample of them: a handful of numbers is fitted
_EVALUATIONS = 30
_REACH = 9.0  # how far the logarithms may move
_FAILED = 1e25  # the criterion where the matrix is not positive definite


class _EnoughError(Exception):
    """Ends the search."""


@dataclass(frozen=True)
class Tuning:
    """What was found.

    Attributes
    ----------
    criterion : str
    recurrent, input, bias, ridge : float
        The values found; one that was 0 stays 0.
    before, after : float
        The criterion, which falls: minus the log evidence a row and output, or the mean squared leave-one-out error.
    evaluations : int
        Factorisations that were needed.
    rows : int
        Training rows that were used.
    seconds : float
    """

    criterion: str
    recurrent: float
    input: float
    bias: float
    ridge: float
    before: float
    after: float
    evaluations: int
    rows: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.criterion}: {self.before:.6g} → {self.after:.6g} in {self.evaluations} evaluations on "
            f"{self.rows} rows; recurrent={self.recurrent:.6g}, input={self.input:.6g}, bias={self.bias:.6g}, "
            f"ridge={self.ridge:.6g}"
        )


def evidence(P: Array, alpha: Array, targets: Array, logdet: float) -> tuple[float, Array]:
    """−log N(y; 0, A) a row and output, and its derivative in A."""
    n, k = targets.shape
    value = 0.5 * (float(np.sum(targets * alpha)) + k * (logdet + n * math.log(2 * math.pi)))
    return value / (n * k), 0.5 * (k * P - alpha @ alpha.T) / (n * k)


def left_out(P: Array, alpha: Array, targets: Array, logdet: float) -> tuple[float, Array]:
    """The mean of (α_ij/P_ii)², and its derivative in A."""
    diagonal = np.diag(P)[:, None]
    squares = (alpha / diagonal) ** 2
    slope = (P * (squares.sum(1) / diagonal[:, 0])) @ P
    turned = (P @ (alpha / diagonal**2)) @ alpha.T
    return float(squares.mean()), 2 / alpha.size * (slope - (turned + turned.T) / 2)


CRITERIA: dict[str, Callable[[Array, Array, Array, float], tuple[float, Array]]] = {
    "marginal_likelihood": evidence,
    "leave_one_out": left_out,
}


def tune(
    model: DEQ,
    X: Array,
    targets: Array,
    ridge: float,
    kind: str,
    criterion: str,
    weight: Array | None = None,
) -> Tuning:
    """Minimise the criterion over the variances and the ridge, from those of the model, by L-BFGS.

    Parameters
    ----------
    model : DEQ
    X : array (n, p)
        Prepared, distinct rows; a random sample of 2000 is used where there are more.
    targets : array (n, k)
    ridge : float
        0 is not moved.
    kind : str
    criterion : {"marginal_likelihood", "leave_one_out"}
    weight : array (n,), optional
    """
    torch = need("torch")
    module = need("notsodeep.nn.learnable_kernel").DEQKernel(
        model.activation, model.recurrent, model.input, model.bias, kind, dtype=torch.float64
    )
    began = time.perf_counter()
    if len(X) > _ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(len(X), _ROWS, replace=False))
        X, targets, weight = X[chosen], targets[chosen], None if weight is None else weight[chosen]
    rows = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float64))
    inverse_weight = np.ones(len(X)) if weight is None else 1 / weight
    parameters = list(module.parameters())
    start = np.array([float(p.detach()) for p in parameters] + [math.log(ridge)] * (ridge > 0))
    best: tuple[float, Array] = (math.inf, start)
    first, calls = math.nan, 0

    def objective(x: Array) -> tuple[float, Array]:
        nonlocal best, first, calls
        if calls == _EVALUATIONS:
            raise _EnoughError
        calls += 1
        with torch.no_grad():
            for parameter, value in zip(parameters, x, strict=False):
                parameter.fill_(value)
        K = module(rows)
        shift = (math.exp(x[-1]) if ridge else 0.0) * inverse_weight
        found = _factored(K.detach().numpy() + np.diag(shift), targets)
        if found is None:
            return _FAILED, np.zeros_like(x)
        value, slope = CRITERIA[criterion](*found)
        gradients = torch.autograd.grad(K, parameters, torch.from_numpy(slope)) if parameters else ()
        gradient = [float(g) for g in gradients] + [float(np.diag(slope) @ shift)] * (ridge > 0)
        if calls == 1:
            first = value
        if value < best[0]:
            best = value, x.copy()
        return value, np.array(gradient)

    value, _ = objective(start)
    if value == _FAILED:
        raise InputError(
            f"ridge={ridge!r} leaves the kernel matrix singular; optimize needs a larger one to start from"
        )
    bounds = [(x - _REACH, x + _REACH) for x in start]
    with suppress(_EnoughError):
        minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds)
    value, x = best
    with torch.no_grad():
        for parameter, number in zip(parameters, x, strict=False):
            parameter.fill_(number)
    deq = module.model
    return Tuning(
        criterion,
        deq.recurrent,
        deq.input,
        deq.bias,
        math.exp(x[-1]) if ridge else 0.0,
        first,
        value,
        calls,
        len(X),
        time.perf_counter() - began,
    )


def _factored(A: Array, targets: Array) -> tuple[Array, Array, Array, float] | None:
    """A⁻¹, A⁻¹y, y and log det A from one Cholesky factor; None where there is none."""
    factor, failed = scipy.linalg.lapack.dpotrf(A, lower=1, clean=1, overwrite_a=1)
    if failed:
        return None
    logdet = 2 * float(np.log(np.diag(factor)).sum())
    inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    return inverse, inverse @ targets, targets, logdet
