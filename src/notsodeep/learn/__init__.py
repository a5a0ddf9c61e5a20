"""Kernel machines and preprocessing in the manner of scikit-learn, on solvers that scale and say how well they did."""

from notsodeep.learn.cholesky import CholeskyFactor, NotPositiveDefiniteError
from notsodeep.learn.conjugate_gradients import ConjugateGradients
from notsodeep.learn.preprocessing import ZCA, CenterAndScale, PixelNorm, UnitNorm
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
    "MatrixBlocks",
    "NotPositiveDefiniteError",
    "PixelNorm",
    "RidgePath",
    "Solution",
    "UnitNorm",
    "generalized_cross_validation",
    "leave_one_out",
    "log_marginal_likelihood",
    "posterior_variance",
    "product",
    "ridge_path",
    "solve",
]
