"""Estimators that keep their factor on disk: the same machine, continued after a kill, on workers if wanted."""

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
from sklearn.base import clone
from tests.scale import problems

from notsodeep.checks import InputError
from notsodeep.learn import DEQKernelClassifier, DEQKernelRegressor
from notsodeep.solvers import CG, Cholesky, OutOfCore

X = problems.samples(90, 6)
NEW = problems.samples(7, 6, seed=1)
Y = X[:, :2] ** 2
LABELS = np.array(["a", "b", "c"])[np.argmax(X[:, :3], axis=1)]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with problems.cluster() as workers, Client(workers, set_as_default=False) as connection:
        yield connection


def test_regression_is_the_one_in_memory(tmp_path: Path) -> None:
    X_twice, Y_twice = np.vstack([X, X[:3]]), np.vstack([Y, Y[:3] + 1])
    weight = np.linspace(0.5, 2, len(X_twice))
    options: dict[str, Any] = {"kind": "nngp", "ridge": 0.1}
    inside = DEQKernelRegressor(**options).fit(X_twice, Y_twice, sample_weight=weight)
    outside = DEQKernelRegressor(solver=OutOfCore(tmp_path / "new" / "work"), **options)
    outside.fit(X_twice, Y_twice, sample_weight=weight)
    assert "on disk" in outside.solution_.reason
    for found, expected in zip(
        outside.predict(NEW, return_std=True), inside.predict(NEW, return_std=True), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    for name in ("leave_one_out_error_", "gcv_", "log_marginal_likelihood_"):
        assert getattr(outside, name) == pytest.approx(getattr(inside, name), rel=1e-8)


def test_classification_is_the_one_in_memory(tmp_path: Path) -> None:
    inside = DEQKernelClassifier().fit(X, LABELS)
    outside = DEQKernelClassifier(solver=OutOfCore(tmp_path)).fit(X, LABELS)
    np.testing.assert_allclose(outside.predict_proba(NEW), inside.predict_proba(NEW), rtol=1e-6)
    assert outside.calibration_.accuracy == inside.calibration_.accuracy


def test_other_data_or_another_ridge_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    machine = DEQKernelRegressor(solver=OutOfCore(tmp_path)).fit(X, Y)
    for other, rows in ((machine.set_params(ridge=0.5), X), (clone(machine).set_params(ridge=1e-3), X[:-1])):
        with pytest.raises(InputError, match="holds another factor"):
            other.fit(rows, Y[: len(rows)])


def test_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="solver='out_of_core' needs a directory"):
        DEQKernelRegressor(solver="out_of_core").fit(X, Y)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file, not a directory"):
        DEQKernelRegressor(solver=OutOfCore(tmp_path / "file")).fit(X, Y)


FIT = """
import sys, time
from tests.learn.test_out_of_core import X, Y
from notsodeep.kernels import KernelBlocks
from notsodeep.learn import DEQKernelRegressor
from notsodeep.solvers import OutOfCore
plain = KernelBlocks.block
def block(*arguments):
    time.sleep(0.05)
    return plain(*arguments)
KernelBlocks.block = block
DEQKernelRegressor(solver=OutOfCore(sys.argv[1], tile=8)).fit(X, Y)
"""


def test_a_killed_fit_continues(tmp_path: Path) -> None:
    process = problems.start(FIT, tmp_path)
    limit = time.monotonic() + 240
    while len(problems.identities(tmp_path / "factor.zarr")) < 10:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    kept = problems.identities(tmp_path / "factor.zarr")
    machine = DEQKernelRegressor(solver=OutOfCore(tmp_path, tile=8)).fit(X, Y)
    after = problems.identities(tmp_path / "factor.zarr")
    assert len(kept) < len(after)
    assert {name: after[name] for name in kept} == kept  # what had been done was not done again
    np.testing.assert_allclose(machine.predict(NEW), DEQKernelRegressor().fit(X, Y).predict(NEW), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", [OutOfCore, CG])
def test_on_workers(kind: Any, client: Client, tmp_path: Path) -> None:
    expected = DEQKernelRegressor().fit(X, Y).predict(NEW)
    more = {"directory": tmp_path} if kind is OutOfCore else {}
    for place in (client, client.scheduler.address):
        machine = clone(DEQKernelRegressor(solver=kind(client=place, tol=1e-10, **more)))
        np.testing.assert_allclose(machine.fit(X, Y).predict(NEW), expected, rtol=1e-6, atol=1e-8)


def test_parameters_of_the_first_release_still_work(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match=r"directory, tol|tol, directory") as told:
        machine = DEQKernelRegressor(solver="out_of_core", directory=tmp_path, tol=1e-9)
    assert told[0].filename == __file__
    assert machine.solver == OutOfCore(tmp_path, tol=1e-9)
    assert clone(machine).get_params() == machine.get_params()
    with pytest.warns(DeprecationWarning, match="directory will go"):
        assert DEQKernelClassifier(directory=tmp_path, solver="cg").solver == CG(checkpoint=tmp_path / "cg.npz")
    with pytest.warns(DeprecationWarning, match="tol will go") as told:
        machine = DEQKernelRegressor(solver="cg").set_params(tol=1e-9, recurrent=0.3)
    assert told[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="max_iterations will go"):
        machine.set_params(max_iterations=50)
    assert (machine.solver, machine.recurrent) == (CG(tol=1e-9, max_iter=50), 0.3)
    with pytest.warns(DeprecationWarning, match="tol will go"):
        assert machine.set_params(solver="cholesky", tol=1e-3).solver == Cholesky(tol=1e-3)
    with pytest.raises(ValueError, match="'toll'"):
        machine.set_params(toll=1)
    for options, message in {
        ("cholesky", "directory"): "directory is for solver='cg' or solver='out_of_core', not solver='cholesky'",
        ("nystrom", "client"): "client is for .* not solver='nystrom'",
    }.items():
        with pytest.warns(DeprecationWarning, match="will go"), pytest.raises(InputError, match=message):
            DEQKernelRegressor(solver=options[0], **{options[1]: "x"})
