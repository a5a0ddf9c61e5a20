"""What the engine does around the numbers: tiles, types, layouts, threads, errors, and what it says of itself.

Also covers: kernels/dense.py, kernels/forward.py, kernels/gram.py, kernels/hermite.py, kernels/info.py,
kernels/output.py, kernels/passes.py, kernels/plans.py, kernels/polynomial.py, kernels/samples.py.
"""

from __future__ import annotations

import re
import threading

import numba
import numpy as np
import pytest
from tests.dual_oracles import ACTIVATIONS, KINDS, RECURRENT, points

import notsodeep as nsd
from notsodeep.kernels import KernelBlocks, gram, hermite, pairwise, passes, tables
from notsodeep.kernels.plans import Summary

# --- shapes, tiles, dtypes ------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "relu_shifted", "tanh", "hard_tanh"])
def test_tiles_do_not_show(name, monkeypatch):
    """n that no tile divides: the same numbers as the rectangular kernel, whatever the tiling."""
    monkeypatch.setattr(gram, "_PANEL", 37)
    monkeypatch.setattr(gram, "_TILE", 23)
    deq = nsd.DEQ(ACTIVATIONS[name], recurrent=RECURRENT, input=0.8, bias=0.1)
    X = points(101, 5) / 2
    square = deq.kernel(X, kind="ntk")
    rectangle = deq.kernel(X[:41], X, kind="ntk")
    np.testing.assert_allclose(square[:41], rectangle, rtol=1e-12, atol=1e-12)
    assert np.array_equal(square, square.T)


def test_chunks_longer_than_the_buffer():
    deq = nsd.DEQ("tanh", recurrent=RECURRENT, input=0.8)
    X = points(700, 3) * 0.5
    K = deq.kernel(X, kind="ntk")
    some = np.array([0, 255, 256, 257, 511, 699])
    np.testing.assert_allclose(K[np.ix_(some, some)], deq.kernel(X[some], kind="ntk"), atol=1e-13)


def test_one_sample_and_one_pair():
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    x = points(1)
    assert deq.kernel(x, kind="ntk").shape == (1, 1)
    assert deq.kernel(x, kind="ntk")[0, 0] == deq.kernel_diag(x, kind="ntk")[0]
    assert deq.kernel(x, points(1, seed=3)).shape == (1, 1)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_diagonal_alone_is_the_matrix_diagonal(name):
    X = points(60) * np.linspace(0.1, 0.4, 60)[:, None]
    for model in (nsd.DEQ(ACTIVATIONS[name], 0.2, 0.7, 0.1), nsd.Explicit([ACTIVATIONS[name], "tanh"])):
        for kind in ("ck", "ntk"):
            np.testing.assert_array_equal(np.diag(model.kernel(X, kind=kind)), model.kernel_diag(X, kind=kind))
    k = nsd.DEQ(ACTIVATIONS[name], 0.2, 0.7, 0.1).kernel_diag(X[:3], kind=KINDS, depth=4)
    assert k.ntk.shape == (3,)


def test_sphere_gives_the_same_as_the_general_method():
    """Equal norms take the one-polynomial path; an outlier row forces the general one."""
    X = points(12, 6)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for name in ("tanh", "swish", "gelu", "softplus"):
        deq = nsd.DEQ(ACTIVATIONS[name], recurrent=RECURRENT, input=0.8, bias=0.1)
        fast, info = deq.kernel(X, kind=KINDS, return_info=True)
        slow, other = deq.kernel(np.vstack([X, 1.5 * X[:1]]), kind=KINDS, return_info=True)
        assert (info.method, other.method != "polynomial") == ("polynomial", True)
        for a, b in zip(fast, slow, strict=True):
            np.testing.assert_allclose(a, b[:12, :12], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("transform", [
    lambda X: X.astype(np.float16), lambda X: np.asfortranarray(X), lambda X: X[::-1][::-1], lambda X: X.tolist(),
    lambda X: (X * 10).astype(int), lambda X: (X > 0), lambda X: X.astype(">f8"), lambda X: X.astype(object),
])  # fmt: skip
def test_any_real_layout_is_accepted(transform):
    X = transform(points())
    plain = np.array(X, dtype=np.float64)
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    np.testing.assert_array_equal(deq.kernel(X, kind="ntk"), deq.kernel(plain, kind="ntk"))


def test_read_only_and_memory_mapped_inputs(tmp_path):
    X = points()
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    expected = deq.kernel(X)
    X.setflags(write=False)
    np.testing.assert_array_equal(deq.kernel(X), expected)
    np.save(tmp_path / "X.npy", X)
    np.testing.assert_array_equal(deq.kernel(np.load(tmp_path / "X.npy", mmap_mode="r")), expected)


def test_out_is_filled_and_returned():
    X = points()
    out = np.empty((7, 7))
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    result = deq.kernel(X, kind="ntk", out=out)
    assert np.shares_memory(result, out)
    np.testing.assert_array_equal(out, deq.kernel(X, kind="ntk"))


@pytest.mark.parametrize(("call", "message"), [
    (lambda d, X: d.kernel(X, kind="nkt"), "did you mean 'ntk'"),
    (lambda d, X: d.kernel(X, kind=("ck", "ck")), "twice"),
    (lambda d, X: d.kernel(X, kind=()), "kind is empty"),
    (lambda d, X: d.kernel(X, X[:, :2]), "Y has 2 features but X has 4"),
    (lambda d, X: d.kernel(X[0]), "reshape"),
    (lambda d, X: d.kernel(X * 1j), "complex"),
    (lambda d, X: d.kernel(X[:0]), "empty"),
    (lambda d, X: d.kernel(np.where(X > 1, np.nan, X)), "NaN or infinite"),
    (lambda d, X: d.kernel(X, np.where(X > 1, np.inf, X)), "Y holds"),
    (lambda d, X: d.kernel(X, dtype="float16"), "float64' or 'float32"),
    (lambda d, X: d.kernel(X, dtype="flaot"), "dtype='flaot'"),
    (lambda d, X: d.kernel(X, depth=-1), "depth=-1"),
    (lambda d, X: d.kernel(X, depth=2.5), "depth=2.5"),
    (lambda d, X: d.kernel(X, out=np.empty((2, 2))), "out has shape"),
    (lambda d, X: d.kernel(X, kind=("ck", "ntk"), out=np.empty((7, 7))), "one kind at a time"),
    (lambda d, X: d.kernel(X, out=np.empty((14, 7))[::2]), "C-contiguous"),
    (lambda d, X: d.kernel(X, progress=3), "progress=3"),
    (lambda d, X: d.kernel([["a", "b"]]), "numbers"),
    (lambda d, X: nsd.Explicit(["relu"]).kernel(X, kind="nngp"), "kind='nngp'"),
    (lambda d, X: nsd.Explicit(["relu"]).kernel(X, depth=2), "depth=2"),
    (lambda d, X: nsd.DEQ("relu", 2.5, 1).kernel(X), "recurrent=2.5 is not well-posed"),
    (lambda d, X: nsd.DEQ("tanh", 1.2, 1).kernel(X), "use recurrent < 1"),
])  # fmt: skip
def test_bad_input_is_one_clear_error(call, message):
    with pytest.raises(nsd.InputError, match=re.escape(message)):
        call(nsd.DEQ("relu", recurrent=0.2, input=0.8), points())


def test_a_model_that_is_not_well_posed_still_has_finite_depth():
    K = nsd.DEQ("relu", recurrent=2.5, input=1).kernel(points(), kind="ntk", depth=3)
    assert np.isfinite(K).all()


# --- engine ---------------------------------------------------------------------------


def test_progress_reaches_the_total_and_may_interrupt(monkeypatch):
    monkeypatch.setattr(gram, "_PANEL", 8)
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    seen = []
    deq.kernel(points(30), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (465, 465)
    assert [s[0] for s in seen] == sorted(s[0] for s in seen)
    before = threading.active_count()

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deq.kernel(points(30), progress=stop)
    assert threading.active_count() <= before  # no thread is left behind


def test_concurrent_calls_do_not_disturb_each_other():
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    inputs = [points(200, seed=s) for s in range(4)]
    expected = [deq.kernel(X, kind="ntk") for X in inputs]
    found = [None] * 4

    def work(k):
        found[k] = deq.kernel(inputs[k], kind="ntk")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(bool(numba.config.CPU_NAME), reason="another processor's instructions were asked for")
@pytest.mark.parametrize("function", ["polynomial_pass", "hermite_pass"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_hot_loops_are_vectorised(function, dtype):
    """Packed square roots, divisions and multiply-adds in the machine code."""
    deq = nsd.DEQ("relu" if function == "polynomial_pass" else "tanh", recurrent=0.2, input=0.8)
    from notsodeep.kernels.dense import plan_for
    from notsodeep.kernels.samples import Samples, levels_of

    samples = Samples.of(points(), np.dtype(dtype))
    levels = [levels_of(deq.recursion(), samples)] * 2
    plan = plan_for(deq.recursion(), samples, samples, levels, ("ntk",))
    dispatcher = getattr(passes if function == "polynomial_pass" else hermite, function)
    assert plan.function is dispatcher
    fresh = numba.njit(error_model="numpy", fastmath={"contract", "nsz", "nnan", "reassoc"})(dispatcher.py_func)
    arguments = (np.empty((1, 7, 7), dtype), *plan.bound(slice(None), slice(None)), 0, 0, 0, 0, True)
    fresh.compile(tuple(numba.typeof(a) for a in arguments))
    assembly = "\n".join(fresh.inspect_asm().values())
    letter = "d" if dtype == np.float64 else "s"
    wanted = ["sqrt", "mul"] if function == "polynomial_pass" else ["div", "mul"]
    for operation in wanted:
        assert re.search(rf"\bv?{operation}p{letter}\b", assembly), operation


def test_info_says_which_method_and_how_good():
    X = points(20)
    for name, method in [("relu", "polynomial"), ("tanh", "hermite newton"), ("hard_tanh", "hermite newton")]:
        _, info = nsd.DEQ(ACTIVATIONS[name], 0.2, 0.8).kernel(X, kind="ntk", return_info=True)
        assert info.method == method
        assert 0 < info.error < 1e-12
        assert info.seconds >= info.compile_seconds >= 0
    _, info = nsd.DEQ("normalized_relu", 0.995, 0.005).kernel(X, kind="ntk", return_info=True)
    assert info.method == "newton in the angle"


def test_a_series_that_is_too_short_says_so():
    """A kinked callable has an algebraic Hermite tail; duplicates then need more terms than there are."""
    deq = nsd.DEQ(lambda x: np.maximum(x, 0.0), recurrent=0.2, input=0.8)
    X = points(6)
    twin = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    np.testing.assert_allclose(deq.kernel(X[:3]), twin.kernel(X[:3]), atol=1e-9)
    with pytest.warns(nsd.ConvergenceWarning, match="nearly coincide") as told:
        K, info = deq.kernel(np.vstack([X, X[:1] * 1.001]), kind="ntk", return_info=True)
    assert told[0].filename == __file__
    truth = twin.kernel(np.vstack([X, X[:1] * 1.001]), kind="ntk")
    assert np.abs(K - truth).max() <= info.error * np.abs(truth).max()


def test_an_error_that_is_no_number_is_told():
    source = KernelBlocks(nsd.DEQ("relu", recurrent=0.2, input=0.8), points(5, 3))
    with pytest.warns(nsd.ConvergenceWarning, match="nan"):
        source._record(Summary(0.0, np.nan), 0.0)
    source._record(Summary(0.0, 1.0), 0.0)  # told once
    assert np.isnan(source.info.error)


def test_a_closed_form_takes_over_where_the_series_ends(monkeypatch):
    """Series on row slices are faster; pairs for which they lack terms are solved by the closed form."""
    X = np.random.default_rng(0).standard_normal((20, 3)) * 1.5
    deq = nsd.DEQ("gelu", 0.2, 0.8)
    series, info = deq.kernel(X, return_info=True)
    assert info.method == "hermite newton"
    monkeypatch.setattr(tables, "_extent", lambda phi, variances: (max(float(q.max()) for q in variances), 128))
    cut, short = deq.kernel(X, return_info=True)
    assert short.degree == 128 < info.degree
    assert short.error < 1e-12
    np.testing.assert_allclose(cut, series, rtol=0, atol=1e-13 * series.max())


@pytest.mark.parametrize(
    "model",
    [
        nsd.DEQ("hard_tanh", 0.4, 0.8, 0.1),
        nsd.DEQ(ACTIVATIONS["three_kinks"], 0.4, 0.8),
        nsd.DEQ("gelu", 0.4, 0.8, 0.1),
        nsd.DEQ("tanh", 0.4, 0.8),
        nsd.Explicit(["hard_tanh", "tanh"]),
        nsd.Explicit(["gelu", "relu", "hard_tanh"]),
    ],
    ids=str,
)
def test_row_slices_agree_with_single_pairs(model, monkeypatch):
    """Correlated rows of unequal norms, near-duplicates and opposite rows among them: two methods, one kernel."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((330, 4)) @ rng.standard_normal((4, 30)) / 6 + rng.standard_normal((330, 30)) / 8
    X *= np.exp(0.5 * rng.standard_normal((330, 1)))
    X[40], X[41], X[42], X[43] = X[0] * 1.1, X[1] + 1e-7, -X[2], X[3] + 0.02 * rng.standard_normal(30)
    few = np.r_[:8, 40:44]
    kinds = ("ck", "ntk")
    slices, info = model.kernel(X[:45], X, kind=kinds, return_info=True)
    assert info.method.startswith("hermite")
    assert info.error < 1e-10
    monkeypatch.setattr(pairwise, "on_slices", lambda *arguments, **options: None)
    alone, info = model.kernel(X[few], X, kind=kinds, return_info=True)
    assert info.method == "layer by layer"
    for kind in kinds:
        diagonal = model.kernel_diag(X, kind=kind)
        scale = np.sqrt(np.outer(diagonal[few], diagonal))
        difference = np.abs(getattr(slices, kind)[few] - getattr(alone, kind)) / scale
        assert difference.max() < 2e-13
