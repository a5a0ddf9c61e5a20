"""Kernel machines: solvers that scale and say how well they did."""

from notsodeep.learn.cholesky import CholeskyFactor, NotPositiveDefiniteError
from notsodeep.learn.conjugate_gradients import ConjugateGradients
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
    "CholeskyFactor",
    "ConjugateGradients",
    "MatrixBlocks",
    "NotPositiveDefiniteError",
    "RidgePath",
    "Solution",
    "generalized_cross_validation",
    "leave_one_out",
    "log_marginal_likelihood",
    "posterior_variance",
    "product",
    "ridge_path",
    "solve",
]
