"""High-dimensional equivalents of wide networks on mixture data."""

from notsodeep.highdim.coefficients import (
    DEQCoefficients,
    ExplicitCoefficients,
    Weights,
    coefficients,
)
from notsodeep.highdim.equivalents import Equivalent, equivalent
from notsodeep.highdim.forecast import Forecast, forecast
from notsodeep.highdim.mixture import Mixture
from notsodeep.highdim.mixture_file import load_mixture
from notsodeep.highdim.spectrum import Spectrum, spectrum
from notsodeep.highdim.statistics import Statistics, estimate_statistics

__all__ = [
    "DEQCoefficients",
    "Equivalent",
    "ExplicitCoefficients",
    "Forecast",
    "Mixture",
    "Spectrum",
    "Statistics",
    "Weights",
    "coefficients",
    "equivalent",
    "estimate_statistics",
    "forecast",
    "load_mixture",
    "spectrum",
]
