"""Products with a symmetric matrix in memory, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from notsodeep import threads
from notsodeep.kernels import MatrixBlocks
from notsodeep.kernels.products import symmetric_product


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [1, 5, 128, 130, 643, 1301])
def test_only_the_triangle_above_the_diagonal_is_read(n, dtype, monkeypatch):
    rng = np.random.default_rng(n)
    K, V, diagonal = rng.standard_normal((n, n)).astype(dtype), rng.standard_normal((n, 3)), rng.standard_normal(n)
    upper = np.triu(K.astype(np.float64), 1)
    K[np.tril_indices(n)] = np.nan
    expected = (upper + upper.T + np.diag(diagonal)) @ V
    seen = []
    for count in (1, 3):
        monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
        found = symmetric_product(K, diagonal, V, lambda *progress: seen.append(progress))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * n)
        np.testing.assert_array_equal(symmetric_product(K, diagonal, V, lambda *_: None), found)
    assert all(done <= total for done, total in seen)


def test_a_matrix_that_is_not_contiguous_has_the_same_product():
    K = np.random.default_rng(0).standard_normal((1400, 1400))
    K, V = (K + K.T)[::2, ::2], np.ones(700)
    assert not K.flags.c_contiguous
    np.testing.assert_allclose(MatrixBlocks(K) @ V, MatrixBlocks(K.copy()) @ V, rtol=0, atol=1e-11)
