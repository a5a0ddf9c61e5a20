"""High-dimensional equivalents of wide networks on mixture data."""

from notsodeep.deprecation import moved
from notsodeep.highdim.equivalents import Equivalent, equivalent
from notsodeep.highdim.forecasting import Forecast, forecast
from notsodeep.highdim.four_numbers import (
    CellCoefficients,
    DEQCoefficients,
    ExplicitCoefficients,
    FourNumbers,
    coefficients,
)
from notsodeep.highdim.limiting import Spectrum, spectrum
from notsodeep.highdim.mixture import Mixture
from notsodeep.highdim.mixture_file import load_mixture
from notsodeep.highdim.statistics import Statistics, estimate_statistics

__all__ = [
    "CellCoefficients",
    "DEQCoefficients",
    "Equivalent",
    "ExplicitCoefficients",
    "Forecast",
    "FourNumbers",
    "Mixture",
    "Spectrum",
    "Statistics",
    "coefficients",
    "equivalent",
    "estimate_statistics",
    "forecast",
    "load_mixture",
    "spectrum",
]

__getattr__ = moved(__name__, {"Weights": "notsodeep:FourNumbers"})
