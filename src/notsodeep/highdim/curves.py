"""Scores and decisions as functions of n and ridge, and the ridge with the best accuracy."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

from notsodeep.checks import InputError, choice, matrix
from notsodeep.highdim.decisions import decide
from notsodeep.highdim.ridge import RidgeSystem

__all__ = ["Curve", "best_ridge", "confusion", "curve", "sample_sizes", "target_table"]

Array: TypeAlias = NDArray[Any]

_DECADES = (-6, 3)  # range of ridge/d that is searched
_GRID = 19
_MANY = 4  # points for which a decomposition pays


class Curve(NamedTuple):
    """Predictions at every point (n, ridge), whose axes come first in all arrays.

    Attributes
    ----------
    n, ridge : array
    means : array (K, outputs)
    covariances : array (K, outputs, outputs)
    gains : array (K,)
    confusion : array (K, K)
    """

    n: Array
    ridge: Array
    means: Array
    covariances: Array
    gains: Array
    confusion: Array


def curve(system: RidgeSystem, n: Array, ridge: Array | str, targets: Array) -> Curve:
    """Predictions at every point of the broadcast arrays; each solution is the initial guess of the next point."""
    if isinstance(ridge, str) or np.broadcast(n, ridge).size >= _MANY:
        system = system.many
    if isinstance(ridge, str):
        ridge = np.array([best_ridge(system, float(size), targets) for size in n.flat]).reshape(n.shape)
    sizes, levels = np.broadcast_arrays(n, ridge)
    responses, guess = [], None
    for size, level in zip(sizes.flat, levels.flat, strict=True):
        responses.append(system.respond(float(size), float(level), targets, guess))
        guess = responses[-1].delta
    means, covariances, gains = (
        np.stack([np.asarray(part) for part in parts]).reshape(sizes.shape + np.shape(parts[0]))
        for parts in ([r[k] for r in responses] for k in range(3))
    )
    return Curve(sizes, levels, means, covariances, gains, confusion(means, covariances, targets))


def confusion(means: Array, covariances: Array, targets: Array) -> Array:
    """Probability of every class given every class, shape (…, K, K)."""
    shape = means.shape[:-1]
    flat = zip(means.reshape(-1, *means.shape[-1:]), covariances.reshape(-1, *covariances.shape[-2:]), strict=True)
    return np.stack([decide(mean, spread, targets) for mean, spread in flat]).reshape(*shape, len(targets))


def best_ridge(system: RidgeSystem, n: float, targets: Array) -> float:
    """The ridge with the largest predicted accuracy, or with the least squared error if the accuracy is constant."""
    guess: Array | None = None
    system = system.rough  # the optimum is flat

    def errors(log_ridge: float) -> tuple[float, float]:
        nonlocal guess
        means, covariances, _, guess = system.respond(n, float(np.exp(log_ridge)), targets, guess)
        right = np.diag(confusion(means, covariances, targets))
        squares = np.sum((targets - means) ** 2, axis=1) + np.trace(covariances, axis1=1, axis2=2)
        return 1 - float(system.proportions @ right), float(system.proportions @ squares)

    low, high = (np.log(system.scale) + decade * np.log(10) for decade in _DECADES)
    grid = np.linspace(low, high, _GRID)
    table = np.array([errors(point) for point in grid])
    column = 0 if np.ptp(table[:, 0]) > 1e-6 else 1
    place = int(np.argmin(table[:, column]))
    bounds = grid[max(place - 1, 0)], grid[min(place + 1, _GRID - 1)]
    found = minimize_scalar(lambda x: errors(x)[column], bounds=bounds, method="bounded", options={"xatol": 1e-3})
    return float(np.exp(found.x if found.fun <= table[place, column] else grid[place]))


def target_table(targets: ArrayLike | str, classes: int) -> Array:
    """η (K, outputs) from ``"one-hot"``, ``"sign"`` or an array."""
    if isinstance(targets, str):
        if choice(targets, ("one-hot", "sign"), "targets") == "one-hot":
            return np.eye(classes)
        if classes != 2:
            raise InputError(f"targets='sign' needs two classes, not {classes}; pass 'one-hot'")
        return np.array([[-1.0], [1.0]])
    table = np.asarray(matrix(targets, "targets", rank=2 if np.ndim(targets) == 2 else 1), dtype=np.float64)
    table = table.reshape(table.shape[0], -1)
    if table.shape[0] != classes:
        raise InputError(f"targets has {table.shape[0]} rows but there are {classes} classes; pass one row per class")
    if len(np.unique(table, axis=0)) < classes:
        raise InputError("targets holds two equal rows; pass a different target for every class")
    return table


def sample_sizes(n: ArrayLike, proportions: Array) -> Array:
    """n as an array of integers, large enough that every class has samples."""
    sizes = np.asarray(n)
    if sizes.dtype.kind not in "iu" or not sizes.size or (sizes < 1).any():
        raise InputError(f"n={n!r} must be a positive integer, or an array of them")
    if float(sizes.min()) * float(proportions.min()) < 1 - 1e-9:
        a = int(np.argmin(proportions))
        raise InputError(
            f"n={int(sizes.min())} leaves class {a} without samples (its share is {proportions[a]:.3g}); "
            f"pass n ≥ {int(np.ceil(1 / proportions[a] - 1e-9))}"
        )
    return sizes
