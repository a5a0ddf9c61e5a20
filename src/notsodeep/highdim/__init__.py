"""High-dimensional equivalents of wide networks on mixture data."""

from notsodeep.highdim.coefficients import (
    DEQCoefficients,
    ExplicitCoefficients,
    Weights,
    coefficients,
)
from notsodeep.highdim.equivalents import Equivalent, equivalent
from notsodeep.highdim.mixture import Mixture
from notsodeep.highdim.spectrum import Spectrum, spectrum
from notsodeep.highdim.statistics import Statistics, estimate_statistics

__all__ = [
    "DEQCoefficients",
    "Equivalent",
    "ExplicitCoefficients",
    "Mixture",
    "Spectrum",
    "Statistics",
    "Weights",
    "coefficients",
    "equivalent",
    "estimate_statistics",
    "spectrum",
]
