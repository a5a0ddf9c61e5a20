"""Kernel machines, their solvers, random features and preprocessing, in the manner of scikit-learn."""

from notsodeep.learn.cholesky import CholeskyFactor, NotPositiveDefiniteError
from notsodeep.learn.conjugate_gradients import ConjugateGradients
from notsodeep.learn.convolutional import ConvDEQKernelClassifier, ConvDEQKernelRegressor
from notsodeep.learn.estimators import (
    DEQKernelClassifier,
    DEQKernelRegressor,
    ExplicitKernelClassifier,
    ExplicitKernelRegressor,
)
from notsodeep.learn.features import DEQFeatures
from notsodeep.learn.persistence import load
from notsodeep.learn.preprocessing import ZCA, CenterAndScale, PixelLift, PixelNorm, UnitNorm
from notsodeep.learn.products import MatrixBlocks, product
from notsodeep.learn.solution import Solution
from notsodeep.learn.solve import solve
from notsodeep.learn.validation import (
    RidgePath,
    generalized_cross_validation,
    leave_one_out,
    log_marginal_likelihood,
    posterior_variance,
    ridge_path,
)

__all__ = [
    "ZCA",
    "CenterAndScale",
    "CholeskyFactor",
    "ConjugateGradients",
    "ConvDEQKernelClassifier",
    "ConvDEQKernelRegressor",
    "DEQFeatures",
    "DEQKernelClassifier",
    "DEQKernelRegressor",
    "ExplicitKernelClassifier",
    "ExplicitKernelRegressor",
    "MatrixBlocks",
    "NotPositiveDefiniteError",
    "PixelLift",
    "PixelNorm",
    "RidgePath",
    "Solution",
    "UnitNorm",
    "generalized_cross_validation",
    "leave_one_out",
    "load",
    "log_marginal_likelihood",
    "posterior_variance",
    "product",
    "ridge_path",
    "solve",
]
