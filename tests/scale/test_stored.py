"""A kernel on disk behaves like the matrix it holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.scale import problems

from notsodeep import InputError
from notsodeep.kernels import kernel_matrix
from notsodeep.scale import compute


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_products(dtype: str, tmp_path: Path) -> None:
    X, Y = problems.samples(90), problems.samples(50, seed=1)
    V = np.random.default_rng(0).standard_normal((90, 3))
    for source, vectors in (
        (kernel_matrix(problems.DEQ, X, kind="ntk", dtype=dtype), V),
        (kernel_matrix(problems.DEQ, Y, X, kind="ntk", dtype=dtype), V),
    ):
        expected = source.block(slice(None), slice(None)).astype(np.float64) @ vectors
        tolerance = 1e-12 if dtype == "float64" else 1e-4
        for deterministic in (False, True):
            found = source.product(vectors, deterministic=deterministic)
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
        stored = compute(source, tmp_path / f"{source.symmetric}.zarr", tile=32)
        calls: list[tuple[int, int]] = []
        found = stored.product(vectors, progress=lambda *call, calls=calls: calls.append(call))
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
        assert calls[-1] == (len(stored.store.tiles()),) * 2
        assert np.array_equal(stored.product(vectors[:, 1]), (stored @ vectors[:, 1:2])[:, 0])
        chosen = np.array([3, 88, 40, 3])
        assert np.array_equal(stored.columns(chosen), stored.to_numpy()[:, chosen])
    with pytest.raises(InputError, match="V has 5 rows but the kernel has 90 columns"):
        source.product(V[:5])
