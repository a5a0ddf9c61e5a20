"""Rectangles of a kernel and products with it agree with the matrix, whatever computes them and whoever asks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import threads
from notsodeep.checks import InputError
from notsodeep.kernels import KernelBlocks, KernelMatrix, MatrixBlocks
from notsodeep.kernels.conv import ConvBlocks

METHODS = {
    "polynomial": (nsd.DEQ("relu", 0.3, 0.7, 0.1), {}),
    "polynomial of a shifted activation": (nsd.DEQ("relu", 0.3, 0.7).centered(1.0), {}),
    "newton in the angle": (nsd.DEQ("normalized_relu", 0.99, 0.01), {}),
    "hermite newton": (nsd.DEQ("tanh", 0.3, 0.7, 0.1), {}),
    "hermite newton of a clipped activation": (nsd.DEQ("hard_tanh", 0.3, 0.7), {}),
    "layer by layer": (nsd.DEQ(0.05 * nsd.activation("erf").stretched(20.0), 0.3, 0.7), {}),
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
    assert found["hermite newton"] == found["hermite newton of a clipped activation"] == "hermite newton"
    assert found["finite depth"] == found["explicit"] == "hermite series"
    assert found["layer by layer"] == "layer by layer"


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
    assert np.shares_memory(blocks.block(slice(0, 10), slice(40, 60), target), target)
    np.testing.assert_array_equal(target, blocks.block(slice(0, 10), slice(40, 60)))


def test_another_precision_starts_from_the_samples_as_given(rows):
    model = nsd.DEQ("relu", 0.3, 0.7)
    single = KernelBlocks(model, rows, kind="ntk", dtype="float32")
    assert single.astype("float32") is single
    double = single.astype("float64")
    np.testing.assert_array_equal(double.block(slice(None), slice(None)), model.kernel(rows, kind="ntk"))


def kinds() -> dict[str, KernelMatrix]:
    """One kernel matrix of every kind that is neither on disk nor on a cluster."""
    rng = np.random.default_rng(0)
    X, images = rng.standard_normal((20, 6)), rng.random((20, 4, 4, 2))
    K = rng.standard_normal((20, 20))
    conv = nsd.ConvDEQ("normalized_relu", recurrent=0.65, input=0.35)
    return {
        "dense": MatrixBlocks(K + K.T),
        "dense, not symmetric": MatrixBlocks(K),
        "computed": KernelBlocks(nsd.DEQ("relu", 0.3, 0.7), X, kind="ntk"),
        "computed, of two sets": KernelBlocks(nsd.DEQ("relu", 0.3, 0.7), X, X[3:15], kind="ntk"),
        "convolutional": ConvBlocks(conv, images, kind="ntk"),
    }


@pytest.mark.parametrize("name", kinds())
def test_every_kind_is_the_matrix_it_stands_for(name):
    K = kinds()[name]
    whole = K.block(slice(None), slice(None))
    assert K.shape == whole.shape
    assert K.dtype == whole.dtype
    assert K.symmetric == (K.shape[0] == K.shape[1] and np.allclose(whole, whole.T))
    if K.symmetric:
        np.testing.assert_allclose(K.diagonal(), whole.diagonal(), rtol=1e-12)
    chosen = np.array([7, 2, 2])
    np.testing.assert_allclose(K.columns(chosen), whole[:, chosen], rtol=1e-12)
    np.testing.assert_allclose(KernelMatrix.columns(K, chosen), whole[:, chosen], rtol=1e-12)
    V = np.random.default_rng(1).standard_normal((K.shape[1], 3))
    np.testing.assert_allclose(K @ V, whole @ V, rtol=1e-11, atol=1e-11)
    single = K.astype("float32")
    assert single.dtype == np.float32
    np.testing.assert_allclose(single.block(slice(None), slice(None)), whole, rtol=1e-4, atol=1e-4)
    assert (K.samples is None) == (K.provenance is None) == name.startswith("dense")
    assert K.tile == K.shape


def test_what_a_kernel_depends_on_is_in_its_provenance(rows):
    deq = nsd.DEQ("relu", 0.3, 0.7)
    found = [
        KernelBlocks(deq, rows, kind="ntk").provenance,
        KernelBlocks(deq, rows, kind="ck").provenance,
        KernelBlocks(deq, rows, kind="ntk", depth=3).provenance,
        KernelBlocks(deq, rows, rows, kind="ntk").provenance,
        KernelBlocks(deq, rows + 1e-9, kind="ntk").provenance,
        KernelBlocks(nsd.DEQ("relu", 0.3, 0.6), rows, kind="ntk").provenance,
    ]
    assert all(one != other for k, one in enumerate(found) for other in found[:k])
    assert found[0] == KernelBlocks(deq, rows.copy(), kind="ntk").provenance
    with pytest.raises(InputError, match="one kind at a time"):
        _ = KernelBlocks(deq, rows, kind=("ck", "ntk")).provenance


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_products(k, dtype, deterministic):
    X = np.random.default_rng(2).standard_normal((700, 30)) / 30**0.5
    V = np.random.default_rng(0).standard_normal((700, k))
    deq = nsd.DEQ("normalized_relu", 0.25, 0.25, 0.5)
    whole = deq.kernel(X, kind="ck")
    tolerance = {"rtol": 0, "atol": 1e-10 if dtype == "float64" else 1e-3}
    square = KernelBlocks(deq, X, kind="ck", dtype=dtype)
    np.testing.assert_allclose(square.product(V, deterministic=deterministic), whole @ V, **tolerance)
    other = KernelBlocks(deq, X[:523], X, kind="ck", dtype=dtype)
    np.testing.assert_allclose(other.product(V, deterministic=deterministic), whole[:523] @ V, **tolerance)
    assert (other @ V[:, 0]).shape == (523,)
    with pytest.raises(InputError, match="V has 3 rows but the kernel has 700 columns"):
        other @ V[:3]


def test_deterministic_products_do_not_depend_on_the_number_of_threads(monkeypatch):
    K = kinds()["computed"]
    monkeypatch.setattr(type(K), "tile", (4, 4))
    V = np.random.default_rng(1).standard_normal((20, 3))
    found = []
    for count in (1, 2, 5):
        monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
        calls = []
        found.append(K.product(V, deterministic=True, progress=lambda *call, calls=calls: calls.append(call)))
        assert calls == [(done, 15) for done in range(1, 16)]
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
