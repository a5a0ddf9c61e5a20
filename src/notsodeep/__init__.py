"""notsodeep: exact kernels of deep equilibrium models, and the shallow networks that replace them."""

from notsodeep.activations import Activation, activation, activation_names
from notsodeep.checks import ConvergenceWarning, InputError, MissingExtraError, NotConvergedError
from notsodeep.gaussian import Moments, hermite_coefficients, moments
from notsodeep.models import DEQ, ConvDEQ, Explicit, load_model

__version__ = "0.1.0"

__all__ = [
    "DEQ",
    "Activation",
    "ConvDEQ",
    "ConvergenceWarning",
    "Explicit",
    "InputError",
    "MissingExtraError",
    "Moments",
    "NotConvergedError",
    "activation",
    "activation_names",
    "hermite_coefficients",
    "load_model",
    "moments",
]
