"""The kernel benchmarks: their reference values agree with the kernels, and each script runs."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import notsodeep as nsd

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


pytestmark = pytest.mark.usefixtures("benchmarks")


@pytest.mark.parametrize("kind", ["ck", "nngp", "ntk", "ntk_frozen_input", "ntk_injected"])
@pytest.mark.parametrize(
    "deq",
    [
        nsd.DEQ("relu", 0.2, 0.8),
        nsd.DEQ("normalized_relu", 0.25, 0.25, 0.5),
        nsd.DEQ(nsd.activation("leaky_relu", a=1.0, b=0.2), 0.5, 0.5, 0.1),
        nsd.DEQ("tanh", 0.3, 0.5, 0.1),
        nsd.DEQ("gelu", 0.2, 0.8),
    ],
    ids=str,
)
def test_kernels_agree_with_the_reference(deq: nsd.DEQ, kind: str) -> None:
    reference = importlib.import_module("kernel_reference")
    X = 0.7 * reference.samples(40, 7, "arbitrary")
    where = reference.pairs(40, 5)
    assert reference.error(deq.kernel(X, kind=kind), deq, kind, X, where) < 1e-13


def test_samples_are_what_they_say() -> None:
    reference = importlib.import_module("kernel_reference")
    X = reference.samples(400, 50)
    assert np.allclose(np.linalg.norm(X, axis=1), 1, rtol=1e-14)
    cosines = (X @ X.T)[np.triu_indices(400, 5)]
    assert cosines.min() < -0.7
    assert cosines.max() > 0.9
    assert np.abs(X[0] - X[-1]).max() == 0
    assert 0 < np.abs(X[1] - X[-2]).max() < 1e-11
    spread = np.linalg.norm(reference.samples(400, 50, "arbitrary"), axis=1)
    assert spread.max() / spread.min() > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "smooth_activations_against_gram_matrices",
        "deq_ntk_against_one_root_per_pair",
        "cholesky_against_lapack",
        "deq_ntk_against_one_gram_matrix",
        "kernel_cost_by_samples",
        "preconditioners_of_cg",
        "conv_kernel_against_whole_tensor",
    ],
)
def test_benchmark_runs(name: str) -> None:
    result: dict[str, Any] = importlib.import_module(name).run(quick=True)
    assert {"question", "target", "rows", "verdict"} <= set(result)
    assert all(row.keys() == result["rows"][0].keys() for row in result["rows"])
