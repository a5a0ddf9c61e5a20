"""The convolutional kernel against the whole four-index tensor, the dense kernel and its own identities.

Also covers: kernels/conv/arcs.py, kernels/conv/geometry.py, kernels/conv/images.py, kernels/conv/offsets.py,
kernels/conv/pairs.py, kernels/conv/sweeps.py.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.conv_oracle import KINDS, POOLS, Tensor, oracle

import notsodeep as nsd
from notsodeep.checks import InputError
from notsodeep.convergence import ConvergenceWarning
from notsodeep.kernels.conv import ConvBlocks
from notsodeep.kernels.conv.geometry import Geometry
from notsodeep.kernels.conv.pairs import BUFFERS
from notsodeep.kernels.matrices import _ACCEPTABLE

PAPER = nsd.ConvDEQ("normalized_relu", recurrent=0.65, input=0.35)


def images(n: int, shape: tuple[int, int, int] = (4, 5, 2), seed: int = 0, unit: bool = True) -> np.ndarray:
    X = np.random.default_rng(seed).standard_normal((n, *shape))
    return X / np.linalg.norm(X, axis=-1, keepdims=True) if unit else X


def blobs(n: int, size: int = 32, seed: int = 0) -> np.ndarray:
    """Smooth coloured images with unit pixels, flat in places."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:size, :size] / size
    waves = rng.standard_normal((n, 4, 3, 1, 1)) * 3
    X = sum(np.maximum(np.sin(waves[:, k] * rows + waves[:, k - 1] * columns + k), -0.2) for k in range(4))
    X = np.moveaxis(np.asarray(X), 1, 3) + 1.5
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def relative(K: np.ndarray, exact: np.ndarray, diagonal: np.ndarray, other: np.ndarray | None = None) -> float:
    scale = np.sqrt(np.multiply.outer(diagonal, diagonal if other is None else other))
    return float(np.max(np.abs(np.asarray(K, np.float64) - exact) / scale))


# --- oracles ----------------------------------------------------------------------------

CASES = [
    (PAPER, "unit"),
    (nsd.ConvDEQ("normalized_relu", 0.65, 0.35, padding="circular"), "black"),
    (nsd.ConvDEQ("leaky_relu", 0.5, 1.3, filter_size=3), "any"),
    (nsd.ConvDEQ("abs", 0.6, 0.3, filter_size=1, padding="circular"), "any"),
    (nsd.ConvDEQ("relu", 1.5, 0.2, filter_size=1), "black"),
    (nsd.ConvDEQ("normalized_relu", 0.65, 0.35, filter_size=5), "black"),
    (nsd.ConvDEQ("abs", 0.4, 0.6, filter_size=5, padding="circular"), "unit"),
]


def pair(case: str, shape: tuple[int, int, int]) -> np.ndarray:
    X = images(2, shape, unit=case == "unit")
    if case == "black":
        X[0, :3] = 0
        X[1, :, 2:4] = 0
    return X


@pytest.mark.parametrize(
    ("model", "case", "depth"),
    # a pass is compiled for each filter size; the layered one has nothing of its own at sizes one and five
    [(*case, None) for case in CASES] + [(*case, 3) for case in CASES if case[0].filter_size == 3],
)
# covers: [FK20] Thm 3
def test_the_full_tensor(model: nsd.ConvDEQ, case: str, depth: int | None) -> None:
    X = pair(case, (5, 6, 2) if model.filter_size == 5 else (4, 5, 2))
    tensor = Tensor(model, *X.shape[1:3])
    exact = {(i, j): oracle(tensor, X[i], X[j], depth) for i, j in ((0, 0), (0, 1), (1, 1))}
    for readout in POOLS:
        k = model.kernel(X, kind=KINDS, readout=readout, depth=depth)
        diag = model.kernel_diag(X, kind=KINDS, readout=readout, depth=depth)
        for (i, j), values in exact.items():
            for kind, value in values[readout].items():
                K, d = getattr(k, kind), getattr(diag, kind)
                assert abs(K[i, j] - value) <= 1e-11 * np.sqrt(d[i] * d[j]), (readout, kind)
                if i == j:
                    assert d[i] == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize("depth", [None, 2])
def test_the_full_tensor_in_single_precision(depth: int | None) -> None:
    X = images(2)
    for readout, exact in oracle(Tensor(PAPER, 4, 5), X[0], X[1], depth).items():
        k = PAPER.kernel(X, kind=KINDS, readout=readout, depth=depth, dtype="float32")
        for kind, value in exact.items():
            K = getattr(k, kind)
            assert K.dtype == np.float32
            assert abs(K[0, 1] - value) <= 2e-6 * K[0, 0], (readout, kind)


SIDES = {(4, 4, 2): (1, 2, 4), (6, 4, 2): (1, 2, 6), (5, 10, 2): (5,)}  # of pooled blocks


def pooled(shape: tuple[int, int, int], size: int) -> bool:
    return min(shape[:2]) >= size and (size == 5) == (shape[0] == 5)


@pytest.mark.parametrize(
    ("model", "case", "shape", "depth"),
    [(*case, shape, None) for case in CASES for shape in SIDES if pooled(shape, case[0].filter_size)]
    + [(*case, (6, 4, 2), depth) for case in CASES if case[0].filter_size == 3 for depth in (0, 3)],
)
def test_blocks_of_the_full_tensor(
    model: nsd.ConvDEQ, case: str, shape: tuple[int, int, int], depth: int | None
) -> None:
    X, tensor = pair(case, shape), Tensor(model, *shape[:2])
    exact = {(i, j): tensor.kernels(X[i], X[j], depth) for i, j in ((0, 0), (0, 1), (1, 1))}
    for pool in SIDES[shape]:
        k = model.kernel(X, kind=KINDS, readout="average_pool", pool=pool, depth=depth)
        diag = model.kernel_diag(X, kind=KINDS, readout="average_pool", pool=pool, depth=depth)
        for (i, j), values in exact.items():
            for kind, value in values.items():
                K, d, right = getattr(k, kind), getattr(diag, kind), tensor.pooled(value, pool)
                assert abs(K[i, j] - right) <= 1e-11 * np.sqrt(d[i] * d[j]), (pool, kind)
                if i == j:
                    assert d[i] == pytest.approx(right, rel=1e-11)


@pytest.mark.parametrize("depth", [None, 2])
@pytest.mark.parametrize("padding", ["zero", "circular"])
@pytest.mark.filterwarnings("ignore::notsodeep.convergence.ConvergenceWarning")  # 2e-4 are stated for noise
def test_blocks_of_the_full_tensor_in_single_precision(padding: str, depth: int | None) -> None:
    X = images(2, (6, 4, 2))
    model = nsd.ConvDEQ("normalized_relu", 0.65, 0.35, padding=padding)
    tensor = Tensor(model, 6, 4)
    k = model.kernel(X, kind=KINDS, readout="average_pool", pool=2, depth=depth, dtype="float32")
    for kind, value in tensor.kernels(X[0], X[1], depth).items():
        K = getattr(k, kind)
        assert K.dtype == np.float32
        assert abs(K[0, 1] - tensor.pooled(value, 2)) <= 2e-6 * K[0, 0], kind


@pytest.mark.parametrize("padding", ["zero", "circular"])
@pytest.mark.parametrize("depth", [None, 2])
def test_blocks_between_one_position_and_the_image(padding: str, depth: int | None) -> None:
    """One position a block is the flattened kernel, one block the pooled one; a larger one is not cut either."""
    X = images(3, (4, 4, 2), unit=False)
    model = nsd.ConvDEQ("leaky_relu", 0.6, 0.5, padding=padding)

    def kernels(readout: str, pool: int | None = None) -> np.ndarray:
        return np.stack(model.kernel(X, kind=KINDS, readout=readout, pool=pool, depth=depth))

    np.testing.assert_array_equal(kernels("average_pool", 1), kernels("flatten"))
    for pool in (4, 7):
        np.testing.assert_array_equal(kernels("average_pool", pool), kernels("average_pool"))


def test_constant_images_fill_every_block_alike() -> None:
    colours = images(3, (1, 1, 3), unit=False)
    model = nsd.ConvDEQ("leaky_relu", 0.7, 0.9, padding="circular")
    flat = model.kernel(np.broadcast_to(colours, (3, 4, 8, 3)), kind="ntk")
    for pool in (2, 4):
        K = model.kernel(np.broadcast_to(colours, (3, 4, 8, 3)), kind="ntk", readout="average_pool", pool=pool)
        np.testing.assert_allclose(pool**2 * K, flat, rtol=1e-10)


@pytest.mark.parametrize("padding", ["zero", "circular"])
@pytest.mark.parametrize("depth", [None, 0, 3])
@pytest.mark.parametrize("pool", [2, 3, None])
def test_pooled_errors_are_relative_to_less_than_the_diagonal(
    padding: str, depth: int | None, pool: int | None
) -> None:
    model = nsd.ConvDEQ("normalized_relu", 0.65, 0.35, padding=padding)
    X = np.concatenate([images(3, (6, 6, 2), unit=False), np.abs(images(2, (6, 6, 2), seed=1))])
    blocks = ConvBlocks(model, X, kind=KINDS, depth=depth, readout="average_pool", pool=pool)
    for kind, least, exact in zip(KINDS, blocks._sizes[0], blocks.diagonals(), strict=True):
        assert np.all(least <= exact * (1 + 1e-12)), kind
        assert np.all(least[3:] >= 0.1 * exact[3:]), kind  # and not much less where pixels are alike


def test_one_pixel_is_the_dense_kernel() -> None:
    X = np.random.default_rng(1).standard_normal((5, 3))
    X[0] = 0
    conv = nsd.ConvDEQ("leaky_relu", 0.7, 0.9, filter_size=1)
    dense = nsd.DEQ("leaky_relu", 0.7, 0.9)
    for readout in ("flatten", "average_pool"):
        k = conv.kernel(X[:, None, None], X[1:, None, None], kind=KINDS, readout=readout)
        exact = dense.kernel(X, X[1:], kind=KINDS)
        for kind in KINDS:
            np.testing.assert_allclose(getattr(k, kind), getattr(exact, kind), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("depth", [0, 1, 6])
@pytest.mark.parametrize(
    ("padding", "readout", "factor"),  # pooled, the border of zeros would show
    [("zero", "flatten", 20), ("circular", "flatten", 20), ("circular", "average_pool", 1)],
)
def test_constant_images_are_the_dense_kernel_at_every_depth(
    depth: int, padding: str, readout: str, factor: int
) -> None:
    colours = np.random.default_rng(1).standard_normal((5, 3))
    colours[0] = 0
    X = np.broadcast_to(colours[:, None, None], (5, 4, 5, 3))
    exact = nsd.DEQ("leaky_relu", 0.7, 0.9).kernel(colours, colours[1:], kind=KINDS, depth=depth)
    conv = nsd.ConvDEQ("leaky_relu", 0.7, 0.9, padding=padding)
    k = conv.kernel(X, X[1:], kind=KINDS, depth=depth, readout=readout)
    for kind in KINDS:
        np.testing.assert_allclose(getattr(k, kind), factor * getattr(exact, kind), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_constant_images_are_the_dense_kernel_even_nearly_equal(dtype: str) -> None:
    colours = images(1, (1, 6, 3), seed=2)[0, 0]
    colours = np.concatenate([colours, colours[:3] + np.diag([1e-3, 1e-6, 1e-9])])
    X = np.broadcast_to(colours[:, None, None], (9, 4, 4, 3)).astype(dtype)
    K = PAPER.kernel(X, kind="ntk")
    exact = 16 * nsd.DEQ("normalized_relu", 0.65, 0.35).kernel(X[:, 0, 0].astype(np.float64), kind="ntk")
    assert relative(K, exact, np.diag(exact)) < {"float64": 1e-10, "float32": 2e-6}[dtype]


@pytest.mark.parametrize("recurrent", [0.25, 0.65, 0.9])
@pytest.mark.parametrize("kind", ["smooth", "noise", "binary", "ink"])
def test_single_precision_is_exact_to_a_millionth(recurrent: float, kind: str) -> None:
    model = nsd.ConvDEQ("normalized_relu", recurrent, 1 - recurrent)
    grey = blobs(8)[..., :1]
    X = {
        "smooth": blobs(8),
        "noise": images(8, (32, 32, 3)),
        "binary": np.sign(grey - 0.55),
        "ink": (grey > 0.6).astype(float),  # mostly black, as handwriting is
    }[kind]
    exact = model.kernel(X, kind="ntk")
    K, info = model.kernel(X, kind="ntk", dtype="float32", return_info=True)
    error = relative(K, exact, np.diag(exact))
    assert error < 2e-6
    assert error < info.error < 1e-4


# --- identities -------------------------------------------------------------------------


@pytest.mark.parametrize("padding", ["zero", "circular"])
# covers: [FK20] Thm 3; [FK20] CDEQ-NTK initialization
def test_unit_pixels_have_unit_variance_at_every_position(padding: str) -> None:
    model = nsd.ConvDEQ("normalized_relu", 0.65, 0.35, padding=padding)
    blocks = ConvBlocks(model, images(3, (6, 7, 3)))
    np.testing.assert_allclose(blocks._left.root, 1.0, rtol=1e-13)
    np.testing.assert_allclose(model.kernel_diag(images(3, (6, 7, 3)), kind="nngp"), 42.0, rtol=1e-13)
    np.testing.assert_allclose(model.kernel_diag(images(3, (6, 7, 3)), kind="ntk_injected"), 42.0 / 0.35, rtol=1e-13)


def test_the_input_joins_the_output_with_circular_padding() -> None:
    model = nsd.ConvDEQ("leaky_relu", 0.5, 0.8, padding="circular")
    X, Y = images(3, unit=False), images(2, seed=5, unit=False)
    k = model.kernel(X, Y, kind=("ck", "nngp", "ntk", "ntk_injected"))
    gram = X.reshape(3, -1) @ Y.reshape(2, -1).T
    np.testing.assert_allclose(k.ntk_injected, 0.5 * k.ntk + 0.8 * gram, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(k.nngp, 0.5 * k.ck + 0.8 * gram, rtol=1e-11, atol=1e-11)


pixels = arrays.arrays(np.float64, (3, 4, 4, 2), elements=st.floats(-2, 2).map(lambda x: 0.0 if abs(x) < 0.05 else x))


@given(X=pixels, padding=st.sampled_from(["zero", "circular"]))
@settings(max_examples=25)
def test_any_images(X: np.ndarray, padding: str) -> None:
    """Symmetric, positive semidefinite, homogeneous of degree one in each image, and nested."""
    model = nsd.ConvDEQ("normalized_relu", 0.6, 0.4, padding=padding)
    k = model.kernel(X, kind=KINDS)
    scaled = model.kernel(X, X * np.array([1.0, 3.0, 0.25])[:, None, None, None], kind=KINDS)
    for kind in KINDS:
        K = getattr(k, kind)
        assert np.array_equal(K, K.T)
        assert np.all(np.isfinite(K))
        size = max(float(np.trace(K)), 1e-12)
        assert np.linalg.eigvalsh(K).min() >= -1e-10 * size
        np.testing.assert_allclose(getattr(scaled, kind), K * [1.0, 3.0, 0.25], atol=1e-9 * size)
    for larger, smaller in (("ntk", "ntk_frozen_input"), ("ntk_frozen_input", "ck"), ("ntk_injected", "nngp")):
        difference = getattr(k, larger) - getattr(k, smaller)
        assert np.linalg.eigvalsh(difference).min() >= -1e-10 * max(float(np.trace(difference)), 1e-12)


@given(X=pixels, padding=st.sampled_from(["zero", "circular"]))
@settings(max_examples=15)
def test_blocks_of_any_images(X: np.ndarray, padding: str) -> None:
    """Positive semidefinite, also beside the kernels of other weights, and less than the mean of what is pooled."""
    model = nsd.ConvDEQ("normalized_relu", 0.6, 0.4, padding=padding)
    k, flat = model.kernel(X, kind=KINDS, readout="average_pool", pool=2), model.kernel(X, kind=KINDS)
    pairs = (("ntk", "ntk_frozen_input"), ("ntk_frozen_input", "ck"), ("ntk_injected", "nngp"))
    matrices = [getattr(k, larger) - getattr(k, smaller) for larger, smaller in pairs]
    for K in (*k, *matrices, *(whole - K for whole, K in zip(flat, k, strict=True))):
        assert np.all(np.isfinite(K))
        assert np.linalg.eigvalsh(K).min() >= -1e-10 * max(float(np.trace(flat.ntk)), 1e-12)


def test_black_images_have_no_kernel_and_black_pixels_little() -> None:
    X = np.zeros((3, 12, 12, 1))
    X[1, 0, 0] = 1
    X[2] = 1
    K = PAPER.kernel(X, kind="ntk", dtype="float32")
    assert np.all(K[0] == 0)
    assert 0 < K[1, 2] < K[2, 2]


def test_depth_converges_at_the_rate_of_the_recurrence() -> None:
    X = images(2, (6, 6, 3))
    limit = PAPER.kernel(X, kind="nngp")[0, 1]
    gaps = [abs(PAPER.kernel(X, kind="nngp", depth=depth)[0, 1] - limit) for depth in (4, 8, 12, 16)]
    rates = (np.array(gaps[1:]) / gaps[:-1]) ** 0.25
    assert np.all(rates < 0.65)
    assert np.all(rates > 0.2)
    deep = PAPER.kernel(X, kind=KINDS, depth=90)
    for kind in KINDS:
        np.testing.assert_allclose(getattr(deep, kind), getattr(PAPER.kernel(X, kind=KINDS), kind), rtol=1e-10)


# --- blocks, cost, manners ---------------------------------------------------------------


@pytest.mark.parametrize(("readout", "pool"), [("flatten", None), ("average_pool", None), ("average_pool", 2)])
def test_blocks(readout: str, pool: int | None) -> None:
    X, Y = images(9, (4, 6, 2), unit=False), images(4, (4, 6, 2), seed=3, unit=False)
    X[0, 0] = 0
    whole = PAPER.kernel(X, kind="ntk", readout=readout, pool=pool)
    blocks = ConvBlocks(PAPER, X, kind="ntk", readout=readout, pool=pool)
    assert blocks.shape == (9, 9)
    assert blocks.symmetric
    for rows, columns in ((slice(0, 4), slice(0, 4)), (slice(2, 9), slice(0, 5)), (slice(None), slice(8, 9))):
        out = np.empty_like(whole[rows, columns])
        assert np.shares_memory(blocks.block(rows, columns, out), out)
        np.testing.assert_allclose(out, whole[rows, columns], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(blocks.diagonal(), np.diag(whole), rtol=1e-11)
    single = blocks.astype("float32")
    assert single.dtype == np.float32
    assert blocks.astype("float64") is blocks
    np.testing.assert_allclose(single.block(slice(0, 3), slice(3, 6)), whole[:3, 3:6], rtol=0, atol=1e-5 * whole.max())
    other = ConvBlocks(PAPER, X, Y, kind="ntk", readout=readout, pool=pool)
    assert not other.symmetric
    across = PAPER.kernel(X, Y, kind="ntk", readout=readout, pool=pool)
    np.testing.assert_allclose(other.block(slice(5, 7), slice(1, 4)), across[5:7, 1:4], rtol=1e-11)


def test_the_cost_is_one_number_per_position_and_pair() -> None:
    X = images(20, (8, 8, 3))
    _, info = PAPER.kernel(X, kind="ntk", return_info=True)
    assert info.pairs == 20 * 19 // 2
    assert info.evaluations < 6
    assert info.iterations < 70
    assert info.residual < 1e-10
    assert info.error < 1e-10
    assert PAPER.kernel(X, X[:7], kind="ntk", return_info=True)[1].pairs == 140
    small, large = Geometry(32, 32, 3, False), Geometry(64, 64, 3, False)
    assert BUFFERS * small.length * 4 < 80_000  # a pair fits into the second-level cache with room to spare
    assert large.length / small.length == pytest.approx(4, rel=0.1)
    _, pooled = PAPER.kernel(X[:2, :4, :5], kind="ck", readout="average_pool", return_info=True)
    assert pooled.pairs == 3 * 7 * 9
    _, blocks = PAPER.kernel(X[:2], kind="ck", readout="average_pool", pool=2, return_info=True)
    assert blocks.pairs == 3 * 3 * 3
    around = nsd.ConvDEQ("normalized_relu", 0.65, 0.35, padding="circular")
    _, wrapped = around.kernel(X[:2, :4], kind="ck", readout="average_pool", pool=4, return_info=True)
    assert wrapped.pairs == 3 * 4 * 7  # of four rows every offset, and each of them once


@pytest.mark.parametrize("rest", [1e-2, 1e-3, 1e-4, 1e-6])
def test_recurrence_close_to_one(rest: float) -> None:
    model = nsd.ConvDEQ("normalized_relu", 1 - rest, rest)
    X = images(4, (8, 8, 3))
    exact, info = model.kernel(X, kind="ntk", return_info=True)
    assert info.error < 1e-9
    deep = model.kernel(X, kind="nngp", depth=4000)
    np.testing.assert_allclose(model.kernel(X, kind="nngp"), deep, rtol=1e-11 + 1e-15 / rest)
    single, stated = model.kernel(X, kind="ntk", dtype="float32", return_info=True)
    assert relative(single, exact, np.diag(exact)) < min(2e-6, stated.error)


def test_an_error_that_is_too_large_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes a stricter standard than the usual one: the iteration converges wherever the kernel exists."""
    monkeypatch.setitem(_ACCEPTABLE, "float64", 1e-30)
    with pytest.warns(ConvergenceWarning, match="estimated relative error"):
        PAPER.kernel(images(3))


def test_out_progress_and_dtype() -> None:
    X = images(12)
    out = np.empty((12, 12))
    seen: list[tuple[int, int]] = []
    K = PAPER.kernel(X, kind="ck", out=out, progress=lambda done, total: seen.append((done, total)))
    assert np.shares_memory(K, out)
    assert seen[-1][0] == seen[-1][1] > 1
    assert PAPER.kernel((X * 255).astype(np.int32)).dtype == np.float64
    assert PAPER.kernel(X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("readout", ["flatten", "average_pool"])
def test_an_interrupt_leaves_no_threads_behind(readout: str) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        PAPER.kernel(images(30), kind="ntk", readout=readout, progress=stop)
    assert threading.active_count() == before


X4 = images(2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PAPER.kernel(X4[0]), r"images has shape \(4, 5, 2\)"),
        (lambda: PAPER.kernel(X4[0, 0]), "4 dimensions"),
        (lambda: PAPER.kernel(X4, X4[..., :1]), "other has images of shape"),
        (lambda: PAPER.kernel(X4, X4[:, :3]), "other has images of shape"),
        (lambda: PAPER.kernel(X4[:, :2]), "smaller than the filter"),
        (lambda: PAPER.kernel(np.where(X4 > 0, X4, np.nan)), "NaN"),
        (lambda: PAPER.kernel(X4[:0]), "empty"),
        (lambda: PAPER.kernel(X4, kind="ntkk"), "did you mean 'ntk'"),
        (lambda: PAPER.kernel(X4, readout="flaten"), "did you mean 'flatten'"),
        (lambda: PAPER.kernel(X4, pool=2), r'pool=2 .* pass readout="average_pool"'),
        (lambda: PAPER.kernel(X4, readout="average_pool", pool=2), "pool=2 leaves .* 4×5 images; use one of 1, 5$"),
        (lambda: PAPER.kernel(X4, readout="average_pool", pool=4), "pool=4"),
        (lambda: PAPER.kernel(X4, readout="average_pool", pool=0), "pool=0 must be an integer ≥ 1"),
        (lambda: PAPER.kernel(X4, readout="average_pool", pool=2.0), "pool=2.0 must be an integer ≥ 1"),
        (lambda: PAPER.kernel(X4, readout="average_pool", pool=True), "pool=True must be an integer ≥ 1"),
        (lambda: PAPER.kernel(X4, depth=-1), "depth"),
        (lambda: PAPER.kernel(X4, dtype="float16"), "dtype"),
        (lambda: PAPER.kernel(X4, out=np.empty((3, 3))), "out has"),
        (lambda: PAPER.kernel(X4 * 1e20, dtype="float32"), "overflows"),
        (lambda: nsd.ConvDEQ("normalized_relu", 1.0, 0.5).kernel(X4), "not well-posed"),
        (lambda: ConvBlocks(nsd.DEQ("relu", 0.2, 0.8), X4), "pass a ConvDEQ"),  # type: ignore[arg-type]
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
