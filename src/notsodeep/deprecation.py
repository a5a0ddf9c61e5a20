"""Deprecated names: they work for one release, with a warning that names the new one."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar, cast

from notsodeep.errors import warn_deprecated

__all__ = ["moved", "old_parameters"]

Function = TypeVar("Function", bound=Callable[..., Any])
Translate = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]]


class Decorator(Protocol):
    """Returns a function of the same type."""

    def __call__(self, function: Function) -> Function: ...


def moved(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for `module`, where `names` says what each old name is now: ``"package.module:name"``.

    Examples
    --------
    >>> import warnings
    >>> old = moved("geometry", {"length": "math:hypot"})
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     old("length")(3, 4)
    5.0
    >>> print(caught[0].message)
    geometry.length is now math.hypot; the old name goes with the next release
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, new = names[name].partition(":")
        warn_deprecated(f"{module}.{name} is now {place}.{new}; the old name goes with the next release")
        return functools.reduce(getattr, new.split("."), importlib.import_module(place))

    return find


def old_parameters(names: Collection[str], translate: Translate, advice: str) -> Decorator:
    """Decorate a function so that it takes the parameters `names` too, with a warning that ends in `advice`.

    ``translate(old, others)`` returns what to pass in their place.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)  # inspect.signature shows the new parameters
        def wrapped(*args: Any, **parameters: Any) -> Any:
            if old := {name: parameters.pop(name) for name in names if name in parameters}:
                warn_deprecated(f"{', '.join(old)} will go with the next release; {advice}")
                parameters |= translate(old, parameters)
            return function(*args, **parameters)

        return cast("Function", wrapped)

    return decorate
