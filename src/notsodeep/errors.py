"""Errors and warnings of the package, and the nearest name for a misspelt one; imports nothing that is slow."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

__all__ = [
    "AbsentError",
    "AssumptionWarning",
    "InputError",
    "MissingExtraError",
    "NotConvergedError",
    "UnknownOptionError",
    "choice",
    "nearest",
    "warn_assumption",
    "warn_convergence",
    "warn_deprecated",
    "warn_ignored",
]

# packages that may be on the stack between the caller and us
_INNER = {
    "concurrent",
    "dask",
    "distributed",
    "joblib",
    "multiprocessing",
    "notsodeep",
    "scipy",
    "sklearn",
    "threading",
    "torch",
}


class InputError(ValueError):
    """A value the caller passed cannot be used; the message says which and what to do."""


class UnknownOptionError(InputError, TypeError):
    """An unknown keyword: a `TypeError`, as in any call; the message suggests the nearest one."""


class AbsentError(InputError, AttributeError):
    """A property that this object does not have: `hasattr` is false, and displays leave it out."""


class MissingExtraError(ImportError):
    """An optional dependency is absent; the message is the one-line install hint."""


class NotConvergedError(RuntimeError):
    """An iteration stopped above its tolerance and the caller asked for an error."""


class AssumptionWarning(UserWarning):
    """The data violate an assumption of the theory; the message says which, with the numbers compared."""


def warn_convergence(message: str) -> None:
    """Warn of an iteration or series that stopped above its tolerance."""
    from notsodeep.convergence import ConvergenceWarning  # a class of scikit-learn's, which is slow to import

    _warn(message, ConvergenceWarning)


def warn_assumption(message: str) -> None:
    """Warn of a prediction outside the assumptions of its theory."""
    _warn(message, AssumptionWarning)


def warn_ignored(message: str) -> None:
    """Warn of a part of a file that is not used."""
    _warn(message, UserWarning)


def warn_deprecated(message: str) -> None:
    """Warn about a deprecated name or parameter."""
    _warn(message, DeprecationWarning)


def _warn(message: str, category: type[Warning]) -> None:
    """Warn at the first line outside this package and packages that call it back; in their threads, at our line."""
    level, frame = 2, sys._getframe(2)
    while str(frame.f_globals.get("__name__")).partition(".")[0] in _INNER:
        if frame.f_back is None:
            level = 2
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level + 1)


def nearest(name: object, options: Iterable[str]) -> str:
    """Return ``"; did you mean 'relu'?"`` for the closest option, or an empty string."""
    spelt = {option.lower(): option for option in options}
    close = difflib.get_close_matches(str(name)[:80].lower(), spelt, n=1, cutoff=0.5)  # slow for long names
    return f"; did you mean {spelt[close[0]]!r}?" if close else ""


def choice(value: object, options: Iterable[str], parameter: str) -> str:
    """Return `value` if it is one of `options`, otherwise name the nearest one."""
    known = list(options)
    if isinstance(value, str) and value in known:
        return value
    raise InputError(f"{parameter}={value!r} is not known{nearest(value, known)} (choose from {', '.join(known)})")
