"""Names of the first release work, and their warnings say the new ones at the caller's line."""

from __future__ import annotations

import importlib

import pytest

import notsodeep.solvers
from notsodeep.kernels import KernelMatrix, MatrixBlocks, kernel_matrix
from notsodeep.scale import distributed

OLD = {
    "notsodeep.kernels": {"Blocks": KernelMatrix, "blocks": kernel_matrix},
    "notsodeep.scale": {
        "Factor": notsodeep.solvers.StoredFactor,
        "factorize": notsodeep.solvers.StoredFactor.of,
        "product": distributed.product,
    },
    "notsodeep.learn": {
        "MatrixBlocks": MatrixBlocks,
        "product": KernelMatrix.product,
        **{
            name: getattr(notsodeep.solvers, name)
            for name in (
                *("CholeskyFactor", "ConjugateGradients", "NotPositiveDefiniteError", "RidgePath", "Solution"),
                *("generalized_cross_validation", "leave_one_out", "log_marginal_likelihood"),
                *("posterior_variance", "ridge_path", "solve"),
            )
        },
    },
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in OLD.items() for name in names])
def test_old_names_are_the_new_ones(module: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"^{module}\.{name} is now notsodeep\.") as told:
        found = getattr(importlib.import_module(module), name)
    assert found == OLD[module][name]
    assert told[0].filename == __file__


@pytest.mark.parametrize("module", OLD)
def test_other_names_are_missing_as_ever(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
        _ = importlib.import_module(module).nothing
