"""Transformers: what they promise, and scikit-learn's own checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import notsodeep as nsd
from notsodeep import data
from notsodeep.learn import ZCA, CenterAndScale, DEQKernelRegressor, PixelLift, PixelNorm, UnitNorm
from notsodeep.learn.preprocessing import rows_to_transform

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 6)) @ RNG.normal(size=(6, 6)) + 3.0


@parametrize_with_checks([UnitNorm(), UnitNorm("uniform"), CenterAndScale(), ZCA()])
def test_scikit_learn_agrees(estimator: Any, check: Any) -> None:
    check(estimator)


@given(arrays(np.float64, (5, 4), elements=st.floats(-1e150, 1e150)), st.sampled_from(["keep", "uniform"]))
def test_unit_norm(rows: np.ndarray, zero: str) -> None:
    absent = ~rows.any(axis=1)
    norm = UnitNorm(zero).fit(rows)
    result = norm.transform(rows)
    assert norm.zero_rows_ == absent.sum()
    np.testing.assert_allclose(np.linalg.norm(result[~absent], axis=1), 1)
    np.testing.assert_array_equal(result[absent], 0.5 if zero == "uniform" else 0)


def test_unit_norm_refuses_zeros_if_asked() -> None:
    rows = np.vstack([X, np.zeros((2, 6))])
    with pytest.raises(nsd.InputError, match="2 rows that are zero"):
        UnitNorm("error").fit(rows)
    with pytest.raises(nsd.InputError, match="1 rows that are zero"):
        UnitNorm("error").fit(X).transform(rows[-1:])
    with pytest.raises(nsd.InputError, match="did you mean 'keep'"):
        UnitNorm("kep").fit(rows)


def test_center_and_scale_is_prepare() -> None:
    scaler = CenterAndScale().fit(X)
    np.testing.assert_allclose(scaler.transform(X), data.prepare(X), rtol=1e-12)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X)), X, rtol=1e-12)
    assert scaler.scale_ == pytest.approx(np.sqrt(np.trace(np.cov(X.T, bias=True))))


def test_zca_whitens() -> None:
    zca = ZCA(epsilon=0).fit(X)
    white = zca.transform(X)
    np.testing.assert_allclose(6 * np.cov(white.T, bias=True), np.eye(6), atol=1e-9)
    np.testing.assert_allclose(zca.inverse_transform(white), X, rtol=1e-9)
    # of all whitenings W with WCWᵀ = I the symmetric one is nearest to doing nothing
    np.testing.assert_allclose(zca.whitening_, zca.whitening_.T, atol=1e-12)
    assert zca.rank_ == 6
    assert zca.condition_ == pytest.approx(np.linalg.cond(np.cov(X.T)), rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 10.0])
def test_regularised_zca(epsilon: float) -> None:
    """Covariance VΛ(Λ+ε)⁻¹Vᵀ up to scale, mean ‖x‖² = 1, an exact inverse, also with fewer samples than features."""
    wide = RNG.normal(size=(20, 50)) * np.linspace(0.1, 3, 50)
    for rows in (X, wide):
        zca = ZCA(epsilon).fit(rows)
        white = zca.transform(rows)
        assert np.mean(np.sum(white**2, axis=1)) == pytest.approx(1)
        np.testing.assert_allclose(zca.inverse_transform(white), rows, rtol=1e-7, atol=1e-9)
        covariance = np.cov(rows.T, bias=True)
        target = covariance @ np.linalg.inv(
            covariance + epsilon * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
        )
        np.testing.assert_allclose(np.cov(white.T, bias=True), target / np.trace(target), atol=1e-9)
        other = ZCA(1.0).fit(rows)
        np.testing.assert_array_equal(other.with_epsilon(epsilon).whitening_, zca.whitening_)
        assert (other.epsilon, other.with_epsilon(epsilon).epsilon_) == (1.0, zca.epsilon_)
    assert zca.rank_ == 19
    with pytest.raises(nsd.InputError, match="vary in 19 of 50 directions; pass epsilon > 0"):
        ZCA(0).fit(wide)
    with pytest.raises(nsd.InputError, match="must not be negative"):
        ZCA(-1).fit(X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rank_counts_the_directions_of_the_data(dtype: type) -> None:
    """Weak directions count, missing ones do not, in either precision."""
    rows = RNG.normal(size=(300, 40)) * np.geomspace(1, 1e-4, 40)
    assert ZCA().fit(rows.astype(dtype)).rank_ == 40
    rows[:, 20:] = rows[:, :20]
    assert ZCA().fit(rows.astype(dtype)).rank_ == 20


@pytest.mark.parametrize("transformer", [UnitNorm(), CenterAndScale(), ZCA()])
def test_single_precision_stays(transformer: Any) -> None:
    single = transformer.fit_transform(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, transformer.fit_transform(X), atol=1e-5)


def test_identical_samples_are_refused() -> None:
    for transformer in (CenterAndScale(), ZCA()):
        with pytest.raises(nsd.InputError, match="identical samples"):
            transformer.fit(np.ones((4, 3)))


def test_names_and_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    chain = make_pipeline(CenterAndScale(), ZCA(), UnitNorm()).set_output(transform="pandas")
    result = chain.fit_transform(frame)
    assert list(result.columns) == list("abcdef")
    np.testing.assert_allclose(np.linalg.norm(result, axis=1), 1)


@given(arrays(np.float32, (2, 3, 2, 3), elements=st.floats(0, 1, width=32)))
def test_pixel_norm(images: np.ndarray) -> None:
    black = ~images.any(axis=-1)
    for zero in ("uniform", "keep"):
        norm = PixelNorm(zero).fit(images)
        result = norm.transform(images)
        assert (result.shape, result.dtype) == (images.shape, np.float32)
        assert norm.zero_pixels_ == black.sum()
        assert norm.zero_share_ == pytest.approx(black.mean())
        np.testing.assert_allclose(np.linalg.norm(result[~black], axis=-1), 1, rtol=1e-5)
        np.testing.assert_allclose(result[black], 3**-0.5 if zero == "uniform" else 0, rtol=1e-6)
        rows = images.reshape(2, -1)
        np.testing.assert_array_equal(PixelNorm(zero, channels=3).fit_transform(rows), result.reshape(2, -1))


def test_pixel_norm_refuses() -> None:
    images = np.zeros((1, 2, 2, 3))
    with pytest.raises(nsd.InputError, match="4 pixels that are zero"):
        PixelNorm("error").fit(images)
    with pytest.raises(nsd.InputError, match="pass channels"):
        PixelNorm().fit(np.ones((2, 12)))
    with pytest.raises(nsd.InputError, match="does not divide"):
        PixelNorm(channels=5).fit(np.ones((2, 12)))
    with pytest.raises(nsd.InputError, match="fitted to 12"):
        PixelNorm().fit(images).transform(np.zeros((1, 2, 1, 3)))


def test_lifted_pixels_have_norm_one_and_keep_their_brightness():
    rng = np.random.default_rng(0)
    images = rng.random((5, 4, 3, 2))
    images[0, 0, 0] = 0
    lift = PixelLift().fit(images)
    lifted = lift.transform(images)
    assert lifted.shape == (5, 4, 3, 3)
    np.testing.assert_allclose(np.linalg.norm(lifted, axis=-1), 1, rtol=1e-15)
    np.testing.assert_allclose(lifted[..., :2] * lift.radius_, images, rtol=1e-14)
    np.testing.assert_array_equal(lifted[0, 0, 0], [0, 0, 1])
    brighter = lift.transform(3 * images)  # seen later
    np.testing.assert_allclose(np.linalg.norm(brighter, axis=-1), 1, rtol=1e-15)
    assert lift.transform(images.astype(np.float32)).dtype == np.float32


def test_images_that_cannot_be_lifted_are_refused():
    with pytest.raises(nsd.InputError, match="black all over"):
        PixelLift().fit(np.zeros((2, 3, 3, 1)))
    with pytest.raises(nsd.InputError, match="fitted to 9"):
        PixelLift().fit(np.ones((2, 3, 3, 1))).transform(np.ones((2, 3, 4, 1)))


@pytest.mark.parametrize("exponent", [-900, -500, 500, 900])
def test_samples_of_any_size(exponent: int) -> None:
    X = np.random.default_rng(0).standard_normal((20, 4)) + 1
    scaled = np.ldexp(X, exponent)
    for transformer in (CenterAndScale(), ZCA(), ZCA(epsilon=0)):
        np.testing.assert_allclose(transformer.fit_transform(scaled), transformer.fit_transform(X), rtol=1e-12)
    np.testing.assert_allclose(data.prepare(scaled), data.prepare(X), rtol=1e-12)
    y = X[:, 0]
    machine = DEQKernelRegressor(ridge=1e-3)
    expected = machine.fit(X, y).predict(X[:3])
    np.testing.assert_allclose(machine.fit(scaled, y).predict(scaled[:3]), expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unit_rows_of_any_size(dtype):
    tiny, huge = np.finfo(dtype).tiny, np.finfo(dtype).max / 8
    rows = np.array([[3, 4], [3 * tiny, 4 * tiny], [3 * huge, 4 * huge], [0, 0]], dtype)
    np.testing.assert_allclose(UnitNorm().fit_transform(rows), [[0.6, 0.8]] * 3 + [[0, 0]], rtol=1e-6)


def test_plain_rows_are_checked_as_scikit_learn_does():
    rows = np.ones((3, 2), np.float32)
    fitted = UnitNorm().fit(rows)
    assert rows_to_transform(fitted, rows) is rows
    assert rows_to_transform(fitted, [[1, 2]]).dtype == np.float64
    huge = np.full((3, 2), 3e38, np.float32)  # its sum overflows
    assert rows_to_transform(fitted, huge) is huge
    for wrong, message in (
        (np.array([[np.nan, 1.0]]), "NaN"),
        (np.array([[np.inf, 1.0]]), "infinity"),
        (np.ones((3, 5)), "5 features"),
        (np.ones((0, 2)), "0 sample"),
        (np.ones(2), "1D array"),
    ):
        with pytest.raises(ValueError, match=message):
            rows_to_transform(fitted, wrong)
