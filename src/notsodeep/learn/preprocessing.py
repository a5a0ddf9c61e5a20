"""Preparations that the theory assumes, as scikit-learn transformers: unit norm, τ0 = 1, whitening, unit pixels."""

from __future__ import annotations

import math
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from notsodeep.checks import InputError, count, matrix, nonnegative
from notsodeep.data.preparation import Preparation, center_and_scale, unit

__all__ = ["ZCA", "CenterAndScale", "FloatTransformer", "PixelLift", "PixelNorm", "UnitNorm", "rows_to_transform"]

Array = NDArray[Any]

_BLOCK = 1024  # rows turned into float64 at a time


class FloatTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of transformers that keep float32 and float64."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def rows_to_transform(estimator: Any, X: Any) -> Array:
    """What scikit-learn's ``validate_data(reset=False)`` returns, without its 0.3 ms if X is a plain array."""
    plain = type(X) is np.ndarray and X.ndim == 2 and X.dtype in (np.float64, np.float32) and len(X) > 0
    if plain and X.shape[1] == estimator.n_features_in_ and not hasattr(estimator, "feature_names_in_"):
        with np.errstate(over="ignore", invalid="ignore"):
            finite = math.isfinite(X.sum())
        if finite:
            return np.asarray(X)
    return np.asarray(validate_data(estimator, X, dtype=[np.float64, np.float32], reset=False))


class _RowTransformer(OneToOneFeatureMixin, FloatTransformer):  # type: ignore[misc]
    """Base class: rows (n, p) in, rows (n, p) out."""

    def _rows(self, X: Any, *, reset: bool) -> Array:
        return validate_data(self, X, dtype=[np.float64, np.float32], reset=reset)

    def _fitted_rows(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._rows(X, reset=False)


class _ImageTransformer(FloatTransformer):
    """Base class: images (n, P, Q, C) in and out."""

    def _require_fitted(self, X: Any) -> None:
        check_is_fitted(self)
        if (found := int(np.prod(np.shape(X)[1:]))) != self.n_features_in_:
            name = type(self).__name__
            raise InputError(f"X has {found} values a sample but {name} was fitted to {self.n_features_in_}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


class UnitNorm(_RowTransformer):
    """x ↦ x/‖x‖, the sphere on which the kernels are most often studied.

    Parameters
    ----------
    zero : {"keep", "uniform", "error"}
        What to do with a zero row, which has no direction: keep it, replace it by the constant unit vector 1/√p, or
        raise an error.

    Attributes
    ----------
    zero_rows_ : int
        Rows of the fitted data that are zero.

    Examples
    --------
    >>> from notsodeep.learn import UnitNorm
    >>> norm = UnitNorm().fit([[3.0, 4.0], [0.0, 0.0]])
    >>> norm.transform([[3.0, 4.0], [0.0, 0.0]])
    array([[0.6, 0.8],
           [0. , 0. ]])
    >>> norm.zero_rows_
    1
    """

    def __init__(self, zero: str = "keep") -> None:
        self.zero = zero

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Count the rows that are zero."""
        _, self.zero_rows_ = unit(self._rows(X, reset=True), self.zero, "row")
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Divide each row by its norm."""
        return unit(self._fitted_rows(X), self.zero, "row")[0]


class CenterAndScale(_RowTransformer):
    """x ↦ (x − mean)/s with s² the mean of ‖x − mean‖², so that τ0 = 1.

    One number s for all features keeps their relative sizes, on which the statistics of the theory depend. The
    function :func:`notsodeep.data.prepare` does the same to one matrix.

    Attributes
    ----------
    mean_ : array (p,)
    scale_ : float
        s; the τ0 of the centred data.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep.learn import CenterAndScale
    >>> X = np.array([[1.0, 5.0], [3.0, 1.0]])
    >>> CenterAndScale().fit_transform(X).round(6)
    array([[-0.447214,  0.894427],
           [ 0.447214, -0.894427]])
    """

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn the mean and the scale."""
        self.mean_, self.scale_ = center_and_scale(self._rows(X, reset=True))
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Subtract the mean, divide by the scale."""
        return Preparation("center", self.mean_, self.scale_)(self._fitted_rows(X))

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Multiply by the scale, add the mean."""
        rows = self._fitted_rows(X)
        return rows * rows.dtype.type(self.scale_) + self.mean_.astype(rows.dtype)


class ZCA(_RowTransformer):
    """x ↦ W(x − mean)/s with W = V (Λ + ε I)^{−1/2} Vᵀ, where VΛVᵀ is the covariance.

    ZCA: of all whitening transforms, this one changes the samples least, so whitened images still look like images.
    s makes the mean of ‖x‖² equal to 1, hence τ0 = 1.

    Parameters
    ----------
    epsilon : float
        ε as a fraction of the mean eigenvalue. It limits the amplification of noise in directions of small variance.

    Attributes
    ----------
    mean_ : array (p,)
    eigenvalues_ : array (p,)
        Λ, largest first.
    epsilon_ : float
        ε itself.
    rank_ : int
        Number of directions in which the fitted data vary.
    condition_ : float
        Largest over smallest of Λ + ε: the square of the largest relative stretch.
    whitening_ : array (p, p)
        W/s.
    unwhitening_ : array (p, p)
        Its inverse, computed when it is asked for.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep.learn import ZCA
    >>> X = np.random.default_rng(0).normal(size=(500, 3)) @ np.array([[2, 1, 0], [0, 1, 0], [0, 0, 0.1]])
    >>> white = ZCA(epsilon=0).fit_transform(X)
    >>> (3 * white.T @ white / 500).round(6) + 0.0
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    """

    def __init__(self, epsilon: float = 0.01) -> None:
        self.epsilon = epsilon

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Learn the mean and the eigenvectors of the covariance."""
        rows = self._rows(X, reset=True)
        nonnegative(self.epsilon, "epsilon")  # before the work
        self.mean_, self._size = center_and_scale(rows)
        covariance = np.zeros((rows.shape[1], rows.shape[1]))
        for start in range(0, len(rows), _BLOCK):
            block = (rows[start : start + _BLOCK] - self.mean_) / self._size
            covariance += block.T @ block
        values, vectors = linalg.eigh(covariance / len(rows))  # covariance of rows scaled to mean square 1
        self._values, self._vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
        # eigenvalues below the rounding error of the covariance are zeros
        rounding = self._values[0] * max(rows.shape) * np.finfo(np.float64).eps
        self.rank_ = int(np.count_nonzero(self._values > rounding))
        self._samples = len(rows)
        return self._whiten()

    def with_epsilon(self, epsilon: float) -> Self:
        """The same as fitted with another ε, from the same eigenvectors: most of the time of a fit is theirs."""
        return copy(self).set_params(epsilon=epsilon)._whiten()

    def _whiten(self) -> Self:
        share, size, values, vectors = nonnegative(self.epsilon, "epsilon"), self._size, self._values, self._vectors
        if share == 0 and self.rank_ < len(values):
            raise InputError(
                f"epsilon=0 cannot whiten {self._samples} samples (n_samples={self._samples}) that vary in "
                f"{self.rank_} of {len(values)} directions; pass epsilon > 0, for example 0.01"
            )
        epsilon = share * float(values.mean())
        shifted = values + epsilon
        with np.errstate(over="ignore", under="ignore"):  # these may overflow even if the samples do not
            self.eigenvalues_, self.epsilon_ = values * size * size, epsilon * size * size
        self.condition_ = float(shifted[0] / shifted[-1])
        scale = size * math.sqrt(float(np.sum(values / shifted)))
        self._stretch = np.sqrt(shifted) * scale
        self.whitening_ = (vectors / self._stretch) @ vectors.T
        return self

    @property
    def unwhitening_(self) -> Array:
        """The inverse of `whitening_`."""
        return np.asarray((self._vectors * self._stretch) @ self._vectors.T)

    def transform(self, X: ArrayLike) -> Array:
        """Whiten."""
        rows = self._fitted_rows(X)
        return (rows - self.mean_.astype(rows.dtype)) @ self.whitening_.astype(rows.dtype)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Map whitened samples back."""
        rows = self._fitted_rows(X)
        return rows @ self.unwhitening_.astype(rows.dtype) + self.mean_.astype(rows.dtype)


class PixelNorm(_ImageTransformer):
    """Each pixel, a vector over the channels, divided by its norm: the inputs of a convolutional DEQ.

    Parameters
    ----------
    zero : {"uniform", "keep", "error"}
        What to do with a black pixel, which has no direction: replace it by the constant unit vector 1/√C (grey, so
        that every pixel has norm 1), keep it, or raise an error.
    channels : int, optional
        C; needed for images flattened to rows (n, P·Q·C), not for images (n, P, Q, C).

    Attributes
    ----------
    zero_pixels_ : int
        Black pixels in the fitted data.
    zero_share_ : float
        Their share of all pixels.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep.learn import PixelNorm
    >>> images = np.zeros((1, 1, 2, 2)); images[0, 0, 0] = 3, 4
    >>> norm = PixelNorm().fit(images)
    >>> norm.transform(images)[0, 0].round(6)
    array([[0.6     , 0.8     ],
           [0.707107, 0.707107]])
    >>> norm.zero_pixels_
    1
    """

    def __init__(self, zero: str = "uniform", channels: int | None = None) -> None:
        self.zero = zero
        self.channels = channels

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Count the black pixels."""
        images = self._images(X)
        _, self.zero_pixels_ = unit(images, self.zero, "pixel")
        self.zero_share_ = self.zero_pixels_ / (images.size // images.shape[-1])
        self.n_features_in_ = int(np.prod(np.shape(X)[1:]))
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Divide each pixel by its norm; the shape stays."""
        self._require_fitted(X)
        return unit(self._images(X), self.zero, "pixel")[0].reshape(np.shape(X))

    def _images(self, X: ArrayLike) -> Array:
        if self.channels is None:
            if np.ndim(X) == 2:
                raise InputError("X holds rows; pass channels=…, or images of shape (n, P, Q, C)")
            return matrix(X, rank=4)
        rows, channels = matrix(X), count(self.channels, "channels")
        if rows.shape[1] % channels:
            raise InputError(f"channels={channels} does not divide the {rows.shape[1]} values of a sample")
        return rows.reshape(len(rows), -1, channels)


class PixelLift(_ImageTransformer):
    """Each pixel x of norm at most r becomes (x/r, √(1 − ‖x‖²/r²)): norm 1 without losing its brightness.

    Use it for grey images: their pixels would all be equal if divided by their norm. A black pixel becomes (0, …, 0,
    1).

    Attributes
    ----------
    radius_ : float
        r, the largest norm of a pixel in the fitted images; brighter pixels seen later are divided by their own norm.

    Examples
    --------
    >>> import numpy as np
    >>> from notsodeep.learn import PixelLift
    >>> PixelLift().fit_transform(np.array([0.0, 3.0, 5.0]).reshape(1, 1, 3, 1))[0, 0].round(6)
    array([[0. , 1. ],
           [0.6, 0.8],
           [1. , 0. ]])
    """

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the brightest pixel."""
        images = matrix(X, rank=4)
        self.radius_ = float(np.max(np.linalg.norm(images.astype(np.float64), axis=-1)))
        if self.radius_ == 0:
            raise InputError(f"X holds {len(images)} images that are black all over; pass images that vary")
        self.n_features_in_ = int(np.prod(images.shape[1:]))
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Add the channel; (n, P, Q, C) becomes (n, P, Q, C + 1)."""
        images = matrix(X, rank=4)
        self._require_fitted(images)
        scaled = images / images.dtype.type(self.radius_)
        square = np.sum(scaled * scaled, axis=-1, keepdims=True)
        lifted: Array = np.concatenate([scaled, np.sqrt(np.maximum(1 - square, 0))], axis=-1)
        lifted /= np.sqrt(np.maximum(square, 1))
        return lifted
