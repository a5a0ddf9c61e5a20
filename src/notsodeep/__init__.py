"""notsodeep: exact kernels of deep equilibrium models, and the shallow networks that replace them."""

from typing import TYPE_CHECKING, Any

from notsodeep import interrupt  # noqa: F401, before the imports that take a second
from notsodeep.activations import Activation, activation, activation_names
from notsodeep.cells import DeepDEQ, Layer
from notsodeep.checks import AssumptionWarning, InputError, MissingExtraError, NotConvergedError, UnknownOptionError
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
from notsodeep.models import DEQ, Condition, ConvDEQ, Explicit, Verdict, load_model
from notsodeep.version import __version__

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


if TYPE_CHECKING:
    from notsodeep.convergence import ConvergenceWarning


def __getattr__(name: str) -> Any:
    if name == "ConvergenceWarning":  # a class of scikit-learn's, which is slow to import
        from notsodeep.convergence import ConvergenceWarning

        return ConvergenceWarning
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
