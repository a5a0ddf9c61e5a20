"""Linear systems with kernel matrices: in memory, by iteration, on disk, on a cluster."""

from notsodeep.solvers.cholesky import CholeskyFactor, NotPositiveDefiniteError
from notsodeep.solvers.conjugate_gradients import ConjugateGradients
from notsodeep.solvers.methods import CG, Auto, Cholesky, Nystrom, Solver
from notsodeep.solvers.out_of_core import OutOfCore
from notsodeep.solvers.shorthand import solve
from notsodeep.solvers.stored_factor import StoredFactor
from notsodeep.solvers.system import Factorization, Solution
from notsodeep.solvers.validation import (
    RidgePath,
    generalized_cross_validation,
    leave_one_out,
    log_marginal_likelihood,
    posterior_variance,
    ridge_path,
)

__all__ = [
    "CG",
    "Auto",
    "Cholesky",
    "CholeskyFactor",
    "ConjugateGradients",
    "Factorization",
    "NotPositiveDefiniteError",
    "Nystrom",
    "OutOfCore",
    "RidgePath",
    "Solution",
    "Solver",
    "StoredFactor",
    "generalized_cross_validation",
    "leave_one_out",
    "log_marginal_likelihood",
    "posterior_variance",
    "ridge_path",
    "solve",
]
