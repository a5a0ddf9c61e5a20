"""Input checks: each bad value gives one line that names the parameter, the value and the fix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import InputError, checks
from notsodeep.learn import DEQKernelRegressor


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0, math.nan]], "X holds 1 NaN or infinite values"),
        ([[1.0, math.inf], [-math.inf, 0]], "X holds 2 NaN or infinite values"),
        ([], "X has shape (0,) but must have 2 dimensions"),
        (np.empty((0, 3)), "X is empty (shape (0, 3))"),
        (np.empty((3, 0)), "X is empty"),
        ([1.0, 2.0], "reshape it with X.reshape(1, -1)"),
        (np.zeros((2, 2, 2)), "must have 2 dimensions"),
        (3.0, "X has shape ()"),
        ([[1j]], "X is complex (complex128)"),
        ([["a"]], "X has dtype <U1; pass real numbers"),
        ([[object()]], "X must hold numbers, not Python objects"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), "pass real numbers"),
    ],
)
def test_matrix_refuses(value: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        checks.matrix(value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (np.int64, np.float64),
        (np.bool_, np.float64),
        (np.float16, np.float64),
        (np.float32, np.float32),
        (object, float),
    ],
)
def test_matrix_dtypes(given: Any, dtype: Any) -> None:
    assert checks.matrix(np.ones((2, 3), dtype=given)).dtype == dtype


def test_matrix_does_not_copy_floats() -> None:
    X = np.asfortranarray(np.ones((3, 2), dtype=np.float32))
    X.setflags(write=False)
    assert checks.matrix(X) is X


def test_matrix_whose_sum_overflows_is_finite() -> None:
    X = np.full((4, 4), 1e308)
    assert checks.matrix(X) is X


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: checks.real("x", "tau"), "tau='x' must be a real number"),
        (lambda: checks.real(True, "tau"), "tau=True must be a finite real number"),
        (lambda: checks.real(1j, "tau"), "tau=1j must be a real number"),
        (lambda: checks.positive(0.0, "tau"), "tau=0.0 must be positive"),
        (lambda: checks.nonnegative(-1, "bias"), "bias=-1 must not be negative"),
        (lambda: checks.count(0, "depth"), "depth=0 must be an integer ≥ 1"),
        (lambda: checks.count(2.0, "depth"), "depth=2.0 must be an integer ≥ 1"),
        (lambda: checks.count(True, "depth"), "depth=True must be an integer ≥ 1"),
        (lambda: checks.choice("nkt", ("ck", "ntk"), "kind"), "kind='nkt' is not known; did you mean 'ntk'?"),
        (lambda: checks.choice(["ck"], ("ck", "ntk"), "kind"), "kind=['ck'] is not known"),
    ],
)
def test_scalars_refuse(call: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)


def test_scalars_accept_numpy_numbers() -> None:
    assert checks.count(np.int32(3), "n") == 3
    assert checks.real(np.float32(0.5), "x") == 0.5
    assert checks.nearest("completely different", ("ck", "ntk")) == ""


def test_a_misspelt_keyword_is_a_type_error() -> None:
    for call in (
        lambda: nsd.activation("leaky_relu", c=1.0),
        lambda: DEQKernelRegressor(recurent=0.2),
    ):
        with pytest.raises(TypeError, match="has no parameter"):
            call()


def test_filters_for_scikit_learn_catch_our_warning() -> None:
    from sklearn import exceptions

    assert issubclass(nsd.ConvergenceWarning, exceptions.ConvergenceWarning)
    assert issubclass(nsd.ConvergenceWarning, UserWarning)
    with pytest.raises(AttributeError, match="no attribute 'Convergence'"):
        nsd.Convergence  # noqa: B018
