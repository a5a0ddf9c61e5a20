"""Kernel machines, random features and preprocessing, in the manner of scikit-learn."""

from notsodeep.learn.estimators import (
    DEQKernelClassifier,
    DEQKernelRegressor,
    ExplicitKernelClassifier,
    ExplicitKernelRegressor,
)
from notsodeep.learn.features import DEQFeatures
from notsodeep.learn.persistence import load
from notsodeep.learn.preprocessing import ZCA, CenterAndScale, PixelNorm, UnitNorm
from notsodeep.learn.solve import Solution, product, ridge_path, solve

__all__ = [
    "ZCA",
    "CenterAndScale",
    "DEQFeatures",
    "DEQKernelClassifier",
    "DEQKernelRegressor",
    "ExplicitKernelClassifier",
    "ExplicitKernelRegressor",
    "PixelNorm",
    "Solution",
    "UnitNorm",
    "load",
    "product",
    "ridge_path",
    "solve",
]
