"""One clear error for each kind of bad input: the parameter, its value, and the fix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.errors import (
    AssumptionWarning,
    InputError,
    MissingExtraError,
    NotConvergedError,
    UnknownOptionError,
    choice,
    nearest,
    warn_assumption,
    warn_convergence,
    warn_deprecated,
    warn_ignored,
)

__all__ = [
    "AssumptionWarning",
    "InputError",
    "MissingExtraError",
    "NotConvergedError",
    "UnknownOptionError",
    "choice",
    "count",
    "matrix",
    "nearest",
    "nonnegative",
    "positive",
    "real",
    "require_finite",
    "seeded",
    "warn_assumption",
    "warn_convergence",
    "warn_deprecated",
    "warn_ignored",
]


def seeded(seed: Any, parameter: str = "seed") -> int:
    """An integer from 0 to 2³² − 1: `seed` itself, or drawn from a NumPy generator.

    Examples
    --------
    >>> import numpy as np
    >>> seeded(7), seeded(np.random.default_rng(0)) == seeded(np.random.default_rng(0))
    (7, True)
    """
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**32))
    number = count(seed, parameter, minimum=0)
    if number >= 2**32:
        raise InputError(f"{parameter}={seed!r} must be below 2**32")
    return number


def real(value: object, parameter: str) -> float:
    """Return `value` as a finite float."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{parameter}={value!r} must be a real number") from None
    if isinstance(value, bool | np.bool_) or not math.isfinite(number):
        raise InputError(f"{parameter}={value!r} must be a finite real number")
    return number


def nonnegative(value: object, parameter: str) -> float:
    """Return `value` as a finite float ≥ 0."""
    number = real(value, parameter)
    if number < 0:
        raise InputError(f"{parameter}={value!r} must not be negative; pass a value ≥ 0")
    return number


def positive(value: object, parameter: str) -> float:
    """Return `value` as a finite float > 0."""
    number = real(value, parameter)
    if number <= 0:
        raise InputError(f"{parameter}={value!r} must be positive; pass a value > 0")
    return number


def count(value: object, parameter: str, minimum: int = 1) -> int:
    """Return `value` as an int ≥ `minimum`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < minimum:
        raise InputError(f"{parameter}={value!r} must be an integer ≥ {minimum}")
    return int(value)


def matrix(value: ArrayLike, parameter: str = "X", *, rank: int = 2, finite: bool = True) -> NDArray[Any]:
    """Return `value` as a finite, non-empty, real float array of the given rank.

    float32 and float64 pass through without a copy; integers, booleans and float16
    become float64. With ``finite=False`` the caller checks for NaN and infinity itself.
    """
    array = np.asarray(value)
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{parameter} must hold numbers, not Python objects") from None
    if np.iscomplexobj(array):
        raise InputError(
            f"{parameter} is complex ({array.dtype}); pass its real part or stack real and imaginary parts"
        )
    if array.dtype.kind not in "fiub":
        raise InputError(f"{parameter} has dtype {array.dtype}; pass real numbers")
    if array.ndim != rank:
        fix = f"; reshape it with {parameter}.reshape(1, -1) for one sample" if (array.ndim, rank) == (1, 2) else ""
        raise InputError(f"{parameter} has shape {array.shape} but must have {rank} dimensions{fix}")
    if array.size == 0:
        raise InputError(f"{parameter} is empty (shape {array.shape}); pass at least one sample and one feature")
    if array.dtype not in (np.float32, np.float64):
        with np.errstate(over="ignore", invalid="ignore"):  # a long double may be infinite in float64
            array = array.astype(np.float64)
    # one pass of sums detects NaN and inf without an n×p temporary of booleans
    if finite:
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.sum(array, dtype=np.float64)
        if not np.isfinite(total):
            require_finite(array, parameter)
    return array


def require_finite(array: NDArray[Any], parameter: str) -> None:
    """Raise if the array holds NaN or infinity."""
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise InputError(f"{parameter} holds {bad} NaN or infinite values; remove or impute them")
