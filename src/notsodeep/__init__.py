"""notsodeep: exact kernels of deep equilibrium models, and the shallow networks that replace them."""

from notsodeep import interrupt  # noqa: F401, before the imports that take a second
from notsodeep.activations import Activation, activation, activation_names
from notsodeep.checks import AssumptionWarning, ConvergenceWarning, InputError, MissingExtraError, NotConvergedError
from notsodeep.gaussian import Moments, hermite_coefficients, moments
from notsodeep.highdim import (
    Equivalent,
    Forecast,
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
from notsodeep.models import DEQ, ConvDEQ, Explicit, load_model
from notsodeep.version import __version__

__all__ = [
    "DEQ",
    "Activation",
    "AssumptionWarning",
    "ConvDEQ",
    "ConvergenceWarning",
    "Equivalent",
    "Explicit",
    "Forecast",
    "InputError",
    "Match",
    "MissingExtraError",
    "Mixture",
    "Moments",
    "NotConvergedError",
    "Spectrum",
    "SphereMatch",
    "Statistics",
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
