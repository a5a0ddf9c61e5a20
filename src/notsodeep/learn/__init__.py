"""Kernel machines, random features and preprocessing, as scikit-learn estimators."""

from notsodeep.deprecation import moved
from notsodeep.learn.convolutional import ConvDEQKernelClassifier, ConvDEQKernelRegressor
from notsodeep.learn.dynamics import Ensemble, TrainingDynamics
from notsodeep.learn.estimators import (
    DEQKernelClassifier,
    DEQKernelRegressor,
    ExplicitKernelClassifier,
    ExplicitKernelRegressor,
)
from notsodeep.learn.features import DEQFeatures
from notsodeep.learn.persistence import load
from notsodeep.learn.preprocessing import ZCA, CenterAndScale, PixelLift, PixelNorm, UnitNorm

__all__ = [
    "ZCA",
    "CenterAndScale",
    "ConvDEQKernelClassifier",
    "ConvDEQKernelRegressor",
    "DEQFeatures",
    "DEQKernelClassifier",
    "DEQKernelRegressor",
    "Ensemble",
    "ExplicitKernelClassifier",
    "ExplicitKernelRegressor",
    "PixelLift",
    "PixelNorm",
    "TrainingDynamics",
    "UnitNorm",
    "load",
]

_SOLVERS = (
    *("CholeskyFactor", "ConjugateGradients", "NotPositiveDefiniteError", "RidgePath", "Solution"),
    *("generalized_cross_validation", "leave_one_out", "log_marginal_likelihood", "posterior_variance"),
    *("ridge_path", "solve"),
)
__getattr__ = moved(
    __name__,
    {
        **{name: f"notsodeep.solvers:{name}" for name in _SOLVERS},
        "MatrixBlocks": "notsodeep.kernels:MatrixBlocks",
        "product": "notsodeep.kernels:KernelMatrix.product",
    },
)
