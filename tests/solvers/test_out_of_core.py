"""Systems solved with neither the kernel nor its factor in memory, against the dense solution.

Also covers: solvers/system.py.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client
from tests.scale import problems

from notsodeep import ConvergenceWarning, InputError
from notsodeep.kernels import KernelBlocks
from notsodeep.learn.out_of_core import solve_out_of_core
from notsodeep.scale import compute
from notsodeep.solvers import CG, OutOfCore, Solver, leave_one_out, solve

N, RIDGE = 200, 0.05
TARGETS = np.random.default_rng(3).standard_normal((N, 2))


def solver_for(method: str, directory: Path, **options: Any) -> Solver:
    if method == "cholesky":
        return OutOfCore(directory, **options)
    return CG(checkpoint=directory / "cg.npz", memory=0, **options)


@pytest.fixture(scope="module")
def dense() -> np.ndarray:
    K = problems.source(N).block(slice(None), slice(None))
    return np.linalg.solve(K + RIDGE * np.eye(N), TARGETS)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        problems.cluster() as running,
        Client(running, set_as_default=False) as connected,
    ):
        yield connected


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("method", ["cholesky", "cg"])
def test_the_solution_is_that_of_the_dense_system(
    method: str, stored: bool, dtype: str, dense: np.ndarray, tmp_path: Path
) -> None:
    source: Any = problems.source(N, dtype=dtype)
    if stored:
        source = compute(source, tmp_path / "K.zarr", tile=48)
    solver = solver_for(method, tmp_path / "work", tol=1e-9)
    answer = solve(source, TARGETS, ridge=RIDGE, solver=solver)
    assert answer.method == method
    assert answer.converged
    assert answer.residual <= 1e-9
    assert ("on disk" if method == "cholesky" else "read again" if stored else "computed anew") in answer.reason
    assert answer.regularisation == 0
    # entries stored in float32 make another, nearby kernel
    tolerance = 1e-4 if stored and dtype == "float32" else 1e-6
    np.testing.assert_allclose(answer.coefficients, dense, rtol=0, atol=tolerance * np.abs(dense).max())
    assert (answer.factor is not None) == (method == "cholesky")
    assert not (tmp_path / "work" / "cg.npz").exists()
    one = solve(source, TARGETS[:, 0], ridge=RIDGE, solver=solver)
    np.testing.assert_allclose(one.coefficients, answer.coefficients[:, 0], atol=1e-6 * np.abs(dense).max())


def test_weights_and_what_a_factor_is_for(tmp_path: Path) -> None:
    weights = np.linspace(0.5, 2, N)
    source = problems.source(N)
    answer = solve(source, TARGETS, ridge=RIDGE, weights=weights, solver=OutOfCore(tmp_path, tile=48))
    inside = solve(source, TARGETS, ridge=RIDGE, weights=weights, solver="cholesky")
    np.testing.assert_allclose(answer.coefficients, inside.coefficients, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(leave_one_out(answer), leave_one_out(inside), rtol=1e-8, atol=1e-9)
    assert 0.1 < answer.condition / inside.condition < 10


@pytest.mark.parametrize("method", ["cholesky", "cg"])
def test_on_workers(method: str, client: Client, dense: np.ndarray, tmp_path: Path) -> None:
    solver = solver_for(method, tmp_path, client=client, tol=1e-9)
    answer = solve(problems.source(N), TARGETS, ridge=RIDGE, solver=solver)
    assert answer.converged
    np.testing.assert_allclose(answer.coefficients, dense, rtol=0, atol=1e-6 * np.abs(dense).max())


ITERATIONS = """
import sys, time
import numpy as np
from tests.scale import problems
import importlib
from notsodeep.solvers import CG
importlib.import_module("notsodeep.solvers.system")._SECONDS_BETWEEN_CHECKPOINTS = 0.0
source = problems.source(200)
plain, products = source.block, 0
def block(*arguments):
    time.sleep(0.02)
    return plain(*arguments)
source.block = block
targets = np.random.default_rng(3).standard_normal((200, 2))
solver = CG(checkpoint=sys.argv[1] + "/cg.npz", tol=1e-9, preconditioner="none", memory=0)
answer = solver.solve(source, targets, ridge=0.05)
print(answer.iterations)
"""


def test_conjugate_gradients_killed_and_resumed(dense: np.ndarray, tmp_path: Path) -> None:
    process = problems.start(ITERATIONS, tmp_path)
    checkpoint, limit = tmp_path / "cg.npz", time.monotonic() + 240
    versions: set[int] = set()
    while len(versions) < 4:  # some iterations
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        if checkpoint.exists():
            versions.add(checkpoint.stat().st_mtime_ns)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with np.load(checkpoint) as state:
        reached = int(state["numbers"][0])
    assert reached >= 3
    options: dict[str, Any] = {"tol": 1e-9, "preconditioner": "none"}
    source = problems.source(N)
    calls = []
    plain = source.block

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return plain(*arguments)

    source.block = counted  # type: ignore[method-assign]
    resumed = solve(source, TARGETS, ridge=RIDGE, solver=solver_for("cg", tmp_path, **options))
    resumed_calls = len(calls)
    calls.clear()
    anew = solve(source, TARGETS, ridge=RIDGE, solver=solver_for("cg", tmp_path / "anew", **options))
    assert resumed_calls <= len(calls) - reached + 1  # what had been done was not done again
    assert resumed.converged
    assert resumed.iterations == anew.iterations
    np.testing.assert_allclose(resumed.coefficients, dense, rtol=0, atol=1e-6 * np.abs(dense).max())


def test_wrong_use_is_refused(client: Client, tmp_path: Path) -> None:
    source = problems.source(50)
    stored = compute(source, tmp_path / "K.zarr")
    two = KernelBlocks(problems.DEQ, problems.samples(5), problems.samples(4))
    with pytest.raises(InputError, match="not symmetric"):
        solve(two, np.ones(5), solver=OutOfCore(tmp_path))
    for solver in (OutOfCore(tmp_path / "w", client), CG(client=client)):
        with pytest.raises(InputError, match="pass one of both"):
            solve(stored, np.ones(50), solver=solver)
    with pytest.raises(InputError, match="targets has 49 rows"):
        solve(stored, np.ones(49), solver=OutOfCore(tmp_path / "w"))
    with pytest.raises(InputError, match="needs a directory"):
        solve(stored, np.ones(50), solver="out_of_core")
    with pytest.raises(InputError, match="client=3 must be a dask"):
        solve(source, np.ones(50), solver=CG(client=3))
    assert not (tmp_path / "w" / "factor.zarr").exists()


def test_a_residual_above_the_tolerance_is_said(tmp_path: Path) -> None:
    with pytest.warns(ConvergenceWarning, match=r"reached a relative residual of .* above tol=1e-30"):
        answer = solve(problems.source(60), np.ones(60), ridge=1.0, solver=OutOfCore(tmp_path, tol=1e-30))
    assert not answer.converged


@pytest.mark.parametrize("method", ["cholesky", "cg"])
def test_the_function_of_the_first_release_still_works(method: str, dense: np.ndarray, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match=r"pass solver=OutOfCore\(directory\)"):
        answer = solve_out_of_core(
            problems.source(N), TARGETS, ridge=RIDGE, method=method, directory=tmp_path, tol=1e-9, max_iterations=90
        )
    np.testing.assert_allclose(answer.coefficients, dense, rtol=0, atol=1e-6 * np.abs(dense).max())
