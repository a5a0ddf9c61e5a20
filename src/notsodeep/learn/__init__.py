"""Kernel machines and random features of DEQs, in the manner of scikit-learn."""

from notsodeep.learn.estimators import (
    DEQKernelClassifier,
    DEQKernelRegressor,
    ExplicitKernelClassifier,
    ExplicitKernelRegressor,
)
from notsodeep.learn.features import DEQFeatures
from notsodeep.learn.persistence import load
from notsodeep.learn.solve import Solution, product, ridge_path, solve

__all__ = [
    "DEQFeatures",
    "DEQKernelClassifier",
    "DEQKernelRegressor",
    "ExplicitKernelClassifier",
    "ExplicitKernelRegressor",
    "Solution",
    "load",
    "product",
    "ridge_path",
    "solve",
]
