"""scikit-learn's own checks of an estimator, on every estimator that takes rows of any length; none is excepted.

scikit-learn itself leaves out its array-API check unless SCIPY_ARRAY_API is set. Images: test_convolutional.
"""

from __future__ import annotations

import warnings
from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from notsodeep.learn import (
    DEQFeatures,
    DEQKernelClassifier,
    DEQKernelRegressor,
    ExplicitKernelClassifier,
    ExplicitKernelRegressor,
)
from notsodeep.solvers import CG

ESTIMATORS = [
    DEQKernelClassifier(),
    DEQKernelClassifier(normalize="none", kind="ntk", ridge="loo"),
    DEQKernelClassifier(solver=CG(tol=1e-11), ridge=0.1),
    DEQKernelRegressor(),
    DEQKernelRegressor(activation="tanh", kind="nngp", ridge=0.01),
    ExplicitKernelClassifier(),
    ExplicitKernelRegressor(["erf"], kind="ck"),
    DEQFeatures(width=32),
    DEQFeatures(width=32, features="deq", kind="nngp", bias=0.1, centered=False),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        # scikit-learn raises warnings of its own inside its checks
        warnings.simplefilter("ignore", category=FutureWarning)
        check(estimator)
