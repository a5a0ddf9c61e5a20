"""Rectangles of a kernel agree with the matrix, whatever method computes it and whoever asks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.kernels import KernelBlocks

METHODS = {
    "polynomial": (nsd.DEQ("relu", 0.3, 0.7, 0.1), {}),
    "polynomial of a shifted activation": (nsd.DEQ("relu", 0.3, 0.7).centered(1.0), {}),
    "newton in the angle": (nsd.DEQ("normalized_relu", 0.99, 0.01), {}),
    "hermite newton": (nsd.DEQ("tanh", 0.3, 0.7, 0.1), {}),
    "layer by layer": (nsd.DEQ("hard_tanh", 0.3, 0.7), {}),
    "finite depth": (nsd.DEQ("tanh", 0.3, 0.7), {"depth": 3}),
    "explicit": (nsd.Explicit(["gelu", "relu"]), {}),
}


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((60, 7)) * np.exp(0.2 * rng.standard_normal((60, 1)))
    X[41] = X[3]  # a duplicate far from the diagonal
    X[50] = X[8] * (1 + 1e-9)
    X[20] = 0
    return X


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rectangles_are_parts_of_the_matrix(name, dtype, rows):
    model, options = METHODS[name]
    whole = model.kernel(rows, kind="ntk", dtype=dtype, **options)
    blocks = KernelBlocks(model, rows, kind="ntk", dtype=dtype, **options)
    tolerance = {"rtol": 0, "atol": (1e-12 if dtype == "float64" else 2e-5) * whole.max()}
    for i0, i1, j0, j1 in [(0, 60, 0, 60), (10, 30, 10, 30), (0, 9, 35, 60), (15, 45, 30, 60), (20, 21, 0, 60)]:
        part = blocks.block(slice(i0, i1), slice(j0, j1))
        assert part.dtype == dtype
        np.testing.assert_allclose(part, whole[i0:i1, j0:j1], **tolerance)
    np.testing.assert_array_equal(blocks.diagonal().astype(dtype), whole.diagonal())
    other = KernelBlocks(model, rows, rows[5:25], kind="ntk", dtype=dtype, **options)
    assert not other.symmetric
    np.testing.assert_allclose(other.block(slice(2, 9), slice(3, 20)), whole[2:9, 8:25], **tolerance)


def test_the_methods_are_the_ones_named(rows):
    found = {name: KernelBlocks(model, rows, kind="ntk", **more).info.method for name, (model, more) in METHODS.items()}
    assert found["polynomial"] == found["polynomial of a shifted activation"] == "polynomial"
    assert found["newton in the angle"] == "newton in the angle"
    assert found["hermite newton"] == "hermite newton"
    assert {found[name] for name in ("layer by layer", "finite depth", "explicit")} == {"layer by layer"}


def test_a_rectangle_does_not_depend_on_the_thread_that_asks(rows):
    blocks = KernelBlocks(nsd.DEQ("tanh", 0.3, 0.7), rows, kind="ntk")
    spans = [slice(k, k + 10) for k in range(0, 60, 10)]
    alone = {(i, j): blocks.block(spans[i], spans[j]) for i in range(6) for j in range(6)}
    with ThreadPoolExecutor(4) as pool:
        together = {key: pool.submit(blocks.block, spans[key[0]], spans[key[1]]) for key in alone}
    for key, future in together.items():
        np.testing.assert_array_equal(future.result(), alone[key])


def test_writes_into_the_array_it_is_given(rows):
    blocks = KernelBlocks(nsd.DEQ("relu", 0.3, 0.7), rows, kind="ck")
    target = np.full((10, 20), np.nan)
    assert blocks.block(slice(0, 10), slice(40, 60), target) is not None
    np.testing.assert_array_equal(target, blocks.block(slice(0, 10), slice(40, 60)))


def test_another_precision_starts_from_the_samples_as_given(rows):
    model = nsd.DEQ("relu", 0.3, 0.7)
    single = KernelBlocks(model, rows, kind="ntk", dtype="float32")
    assert single.astype("float32") is single
    double = single.astype("float64")
    np.testing.assert_array_equal(double.block(slice(None), slice(None)), model.kernel(rows, kind="ntk"))
