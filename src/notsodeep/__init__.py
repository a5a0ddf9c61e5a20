"""notsodeep: exact kernels of deep equilibrium models, and the shallow networks that replace them."""

from notsodeep import interrupt  # noqa: F401, I001, Ctrl-C before everything that takes time

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from notsodeep.version import __version__

if TYPE_CHECKING:
    from notsodeep.activations import Activation, activation, activation_names
    from notsodeep.cells import DeepDEQ, Layer
    from notsodeep.convergence import ConvergenceWarning
    from notsodeep.descriptions import load_model
    from notsodeep.errors import AssumptionWarning, InputError, MissingExtraError, NotConvergedError, UnknownOptionError
    from notsodeep.gaussian import Moments, hermite_coefficients, moments
    from notsodeep.highdim import (
        CellCoefficients,
        DEQCoefficients,
        Equivalent,
        ExplicitCoefficients,
        Forecast,
        FourNumbers,
        Mixture,
        Spectrum,
        Statistics,
        coefficients,
        equivalent,
        estimate_statistics,
        forecast,
        load_mixture,
        spectrum,
    )
    from notsodeep.matching import Match, SphereMatch, match
    from notsodeep.models import DEQ, ConvDEQ, Explicit
    from notsodeep.well_posedness import Condition, Verdict

__all__ = [
    "DEQ",
    "Activation",
    "AssumptionWarning",
    "CellCoefficients",
    "Condition",
    "ConvDEQ",
    "ConvergenceWarning",
    "DEQCoefficients",
    "DeepDEQ",
    "Equivalent",
    "Explicit",
    "ExplicitCoefficients",
    "Forecast",
    "FourNumbers",
    "InputError",
    "Layer",
    "Match",
    "MissingExtraError",
    "Mixture",
    "Moments",
    "NotConvergedError",
    "Spectrum",
    "SphereMatch",
    "Statistics",
    "UnknownOptionError",
    "Verdict",
    "__version__",
    "activation",
    "activation_names",
    "coefficients",
    "equivalent",
    "estimate_statistics",
    "forecast",
    "hermite_coefficients",
    "load_mixture",
    "load_model",
    "match",
    "moments",
    "spectrum",
]

# Names are imported when they are first used: SciPy and Numba take seconds, and `notsodeep --help` needs neither.
_ROOMS = {
    "activations": "Activation activation activation_names",
    "cells": "DeepDEQ Layer",
    "convergence": "ConvergenceWarning",
    "descriptions": "load_model",
    "errors": "AssumptionWarning InputError MissingExtraError NotConvergedError UnknownOptionError",
    "gaussian": "Moments hermite_coefficients moments",
    "highdim": "CellCoefficients DEQCoefficients Equivalent ExplicitCoefficients Forecast FourNumbers Mixture Spectrum "
    "Statistics coefficients equivalent estimate_statistics forecast load_mixture spectrum",
    "matching": "Match SphereMatch match",
    "models": "DEQ ConvDEQ Explicit",
    "well_posedness": "Condition Verdict",
}
_PLACES = {name: room for room, names in _ROOMS.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        found = getattr(import_module(f"notsodeep.{_PLACES[name]}"), name)
        globals()[name] = found
        return found
    if not name.startswith("_") and find_spec(f"notsodeep.{name}") is not None:  # nsd.learn, nsd.nn, …
        return import_module(f"notsodeep.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
