"""The out-of-core Cholesky factor: right, resumable, and honest about what it cannot factor."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from tests.scale import problems

from notsodeep import InputError
from notsodeep.kernels import MatrixBlocks, kernel_matrix
from notsodeep.scale import StoredBlocks, compute, verify
from notsodeep.solvers import StoredFactor


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("added", [0.1, "weights"])
@pytest.mark.parametrize("stored", [False, True])
def test_the_factor_solves(dtype: str, added: float | str, stored: bool, tmp_path: Path) -> None:
    n = 150
    source = problems.source(n, dtype=dtype)
    extra = np.linspace(0.05, 0.3, n) if added == "weights" else float(added)
    K = source.block(slice(None), slice(None)).astype(np.float64) + np.diag(np.broadcast_to(extra, n))
    kernel = compute(source, tmp_path / "K.zarr", tile=40) if stored else source
    factor = StoredFactor.of(kernel, extra, tmp_path / "L.zarr", tile=None if stored else 40)
    assert factor.dtype == dtype
    B = np.random.default_rng(0).standard_normal((n, 3))
    tolerance = 1e-11 if dtype == "float64" else 2e-3
    np.testing.assert_allclose(K @ factor.solve(B), B, atol=tolerance)
    np.testing.assert_allclose(factor.logdet(), np.linalg.slogdet(K)[1], rtol=tolerance)
    np.testing.assert_allclose(factor.inverse_diagonal(), np.linalg.inv(K).diagonal(), rtol=tolerance)
    np.testing.assert_allclose(factor.inverse_diagonal(memory=16 * n * 7), factor.inverse_diagonal(), rtol=tolerance)
    L = np.linalg.cholesky(K)
    np.testing.assert_allclose(factor.half_solve(B), np.linalg.solve(L, B), atol=tolerance)
    np.testing.assert_allclose(factor.solve(B[:, 0]), factor.solve(B)[:, 0], atol=tolerance)
    assert verify(tmp_path / "L.zarr").sound


def test_a_stored_kernel_and_a_computed_one_share_a_factor(tmp_path: Path) -> None:
    source = problems.source(100)
    kernel = compute(source, tmp_path / "K.zarr", tile=40)
    StoredFactor.of(kernel, 0.1, tmp_path / "L.zarr")
    before = problems.identities(tmp_path / "L.zarr")
    StoredFactor.of(source, 0.1, tmp_path / "L.zarr", tile=40)
    assert problems.identities(tmp_path / "L.zarr") == before


def test_another_kernel_or_ridge_is_refused(tmp_path: Path) -> None:
    StoredFactor.of(problems.source(100), 0.1, tmp_path / "L.zarr", tile=40)
    with pytest.raises(
        InputError, match=r"holds another factor: added 0\.1 → 0\.2; pass another directory, or delete it"
    ):
        StoredFactor.of(problems.source(100), 0.2, tmp_path / "L.zarr", tile=40)
    with pytest.raises(InputError, match=r"kernel\.kind ntk → ck"):
        StoredFactor.of(problems.source(100, kind="ck"), 0.1, tmp_path / "L.zarr", tile=40)
    with pytest.raises(InputError, match="holds a factor"):
        StoredBlocks(tmp_path / "L.zarr")
    compute(problems.source(100), tmp_path / "K.zarr", tile=40)
    with pytest.raises(InputError, match="does not hold a factor"):
        StoredFactor(tmp_path / "K.zarr")
    two = kernel_matrix(problems.DEQ, problems.samples(20), problems.samples(20, seed=1))
    with pytest.raises(InputError, match="one set of samples"):
        StoredFactor.of(two, 0.1, tmp_path / "two.zarr")


@pytest.mark.parametrize("n", [30, 100])
def test_a_matrix_that_is_not_positive_definite_is_named(n: int, tmp_path: Path) -> None:
    X = problems.samples(n)
    X[-1] = X[0]  # singular: two equal samples
    with pytest.raises(InputError, match=f"minor of order {n} is zero or negative to rounding .* raise ridge"):
        StoredFactor.of(kernel_matrix(problems.DEQ, X, kind="ntk"), 0.0, tmp_path / "L.zarr", tile=40)


def test_tiles_fit_the_matrix_and_nonsense_is_refused(tmp_path: Path) -> None:
    factor = StoredFactor.of(problems.source(30), 0.1, tmp_path / "L.zarr", tile=5000)
    assert factor.store.tile == (30, 30)
    for tile in (0, -3, 2.5):
        with pytest.raises(InputError, match=f"tile={tile}"):
            StoredFactor.of(problems.source(30), 0.1, tmp_path / "no.zarr", tile=tile)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a matrix in memory"):
        StoredFactor.of(MatrixBlocks(np.eye(3)), 0.1, tmp_path / "no.zarr")
    assert not (tmp_path / "no.zarr").exists()


def test_killed_and_resumed_the_factor_is_the_same(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.zarr", tmp_path / "L.zarr"
    StoredFactor.of(problems.source(300), 0.1, whole, tile=25)
    expected = problems.contents(whole)
    moments = random.Random(1)
    kept: dict[str, tuple[int, int]] = {}
    with problems.writers(300, 0.005, "StoredFactor.of(source, 0.1, line.strip(), tile=25)") as (begin, told):
        for _ in range(5):
            begin(path)
            child = int(told.readline())
            goal, limit = len(kept) + moments.randint(1, 10), time.monotonic() + 240
            while len(problems.identities(path)) < goal:
                assert time.monotonic() < limit
            time.sleep(moments.uniform(0, 0.005))
            os.kill(child, signal.SIGKILL)
            assert told.readline() == "ended True\n"
            now = problems.identities(path)
            assert kept.items() <= now.items()
            kept = now
    assert 0 < len(kept) < len(expected) - 1
    StoredFactor.of(problems.source(300), 0.1, path, tile=25)
    assert problems.contents(path) == expected
    assert kept.items() <= problems.identities(path).items()


def test_a_damaged_tile_of_the_factor_is_computed_alone(tmp_path: Path) -> None:
    path = tmp_path / "L.zarr"
    StoredFactor.of(problems.source(100), 0.1, path, tile=25)
    expected, before = problems.contents(path), problems.identities(path)
    data = bytearray((path / "c/2/1").read_bytes())
    data[77] ^= 1
    (path / "c/2/1").write_bytes(data)
    StoredFactor.of(problems.source(100), 0.1, path, tile=25)
    assert problems.contents(path) == expected
    after = problems.identities(path)
    assert {name for name in after if after[name] != before[name]} == {"c/2/1"}
