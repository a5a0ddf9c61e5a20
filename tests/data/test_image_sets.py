"""The real image sets: what everybody knows of them must hold. They are fetched if they are not here."""

from __future__ import annotations

import numpy as np
import pytest

from notsodeep import data

pytestmark = pytest.mark.data


def load(name: str) -> data.Data:
    try:
        return data.load(name)
    except data.FetchError as error:
        pytest.skip(f"NOT TESTED: {error}")


def counts(labels: np.ndarray | None) -> list[int]:
    assert labels is not None
    return np.bincount(labels).tolist()


def test_mnist() -> None:
    mnist = load("mnist")
    assert mnist.images.shape == (60_000, 28, 28, 1)
    assert mnist.images_test is not None
    assert mnist.images_test.shape == (10_000, 28, 28, 1)
    assert mnist.X.dtype == np.float32
    assert (mnist.X.min(), mnist.X.max()) == (0, 1)
    assert mnist.X.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert mnist.X.std(dtype=np.float64) == pytest.approx(0.3081, abs=5e-5)
    assert counts(mnist.labels) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts(mnist.labels_test) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    # upright: rows are rows. A one is taller than it is wide
    assert mnist.labels is not None
    ones = mnist.images[mnist.labels == 1].mean(axis=(0, 3))
    assert (ones.sum(axis=1) > 1).sum() > (ones.sum(axis=0) > 1).sum()


def test_fashion_mnist() -> None:
    fashion = load("fashion-mnist")
    assert fashion.X.shape == (60_000, 784)
    assert fashion.X.mean(dtype=np.float64) == pytest.approx(0.2860, abs=5e-5)
    assert fashion.X.std(dtype=np.float64) == pytest.approx(0.3530, abs=5e-5)
    assert counts(fashion.labels) == [6000] * 10
    assert counts(fashion.labels_test) == [1000] * 10


def test_cifar10() -> None:
    cifar = load("cifar10")
    assert cifar.images.shape == (50_000, 32, 32, 3)
    channels = cifar.images.reshape(-1, 3)
    np.testing.assert_allclose(channels.mean(axis=0, dtype=np.float64), [0.4914, 0.4822, 0.4465], atol=5e-5)
    np.testing.assert_allclose(channels.std(axis=0, dtype=np.float64), [0.2470, 0.2435, 0.2616], atol=5e-5)
    assert counts(cifar.labels) == [5000] * 10
    assert counts(cifar.labels_test) == [1000] * 10
    # neighbours in a line and in a column are alike, so rows, columns and channels are where they should be
    few = cifar.images[:500].astype(np.float64)
    for axis in (1, 2):
        assert np.abs(np.diff(few, axis=axis)).mean() < 0.3 * np.abs(few - few[::-1]).mean()
