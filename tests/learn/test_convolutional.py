"""Machines on images: rows and images are the same, and the kernel is that of the model.

scikit-learn's generic checks bring rows of any length, which are no images of one shape; what they check beyond that is
the code of the machines that pass them. Here its tools run on images given as rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import notsodeep as nsd
from notsodeep.learn import ConvDEQKernelClassifier, ConvDEQKernelRegressor, PixelNorm, load

RNG = np.random.default_rng(0)
IMAGES = RNG.random((24, 5, 6, 3))
LABELS = np.where(IMAGES[..., 0].mean(axis=(1, 2)) > IMAGES[..., 1].mean(axis=(1, 2)), "red", "green")
NEW = RNG.random((7, 5, 6, 3))
ROWS, NEW_ROWS = IMAGES.reshape(24, -1), NEW.reshape(7, -1)


def test_predictions_are_those_of_dense_algebra() -> None:
    conv = nsd.ConvDEQ("normalized_relu", 0.5, 0.5)
    y = IMAGES[:, 2, 2, 0]
    machine = ConvDEQKernelRegressor(recurrent=0.5, input=0.5, ridge=0.1).fit(IMAGES, y)
    norm = PixelNorm()
    A, B = norm.fit_transform(IMAGES), norm.fit_transform(NEW)
    expected = conv.kernel(B, A, kind="ntk") @ np.linalg.solve(conv.kernel(A, kind="ntk") + 0.1 * np.eye(24), y)
    np.testing.assert_allclose(machine.predict(NEW), expected, rtol=1e-8)


def test_rows_are_images(tmp_path: Path) -> None:
    machine = ConvDEQKernelClassifier().fit(IMAGES, LABELS)
    flat = ConvDEQKernelClassifier(image_shape=(5, 6, 3)).fit(ROWS, LABELS)
    np.testing.assert_array_equal(machine.decision_function(NEW), flat.decision_function(NEW_ROWS))
    np.testing.assert_array_equal(machine.decision_function(NEW), machine.decision_function(NEW_ROWS))
    again = load(machine.save(tmp_path / "model.npz"))
    np.testing.assert_array_equal(again.predict_proba(NEW), machine.predict_proba(NEW))


def test_blocks_of_positions_are_pooled(tmp_path: Path) -> None:
    options = {"readout": "average_pool", "pool": 2}
    A, B = IMAGES[:, 1:], NEW[:, 1:]  # 4×6
    y = A[:, 2, 2, 0]
    machine = ConvDEQKernelRegressor(ridge=0.1, normalize="none", **options).fit(A, y)
    conv = nsd.ConvDEQ("normalized_relu", 0.65, 0.35)
    solution = np.linalg.solve(conv.kernel(A, kind="ntk", **options) + 0.1 * np.eye(24), y)
    np.testing.assert_allclose(machine.predict(B), conv.kernel(B, A, kind="ntk", **options) @ solution, rtol=1e-8)
    again = load(machine.save(tmp_path / "model.npz"))
    assert again.pool == 2
    np.testing.assert_array_equal(again.predict(B), machine.predict(B))
    with pytest.raises(nsd.InputError, match="pool=3 leaves incomplete blocks"):
        clone(machine).set_params(pool=3).fit(A, y)


def test_scikit_learn_tools() -> None:
    search = GridSearchCV(
        make_pipeline(FunctionTransformer(), ConvDEQKernelClassifier(image_shape=(5, 6, 3))),
        {"convdeqkernelclassifier__recurrent": [0.3, 0.6]},
        cv=2,
    ).fit(ROWS, LABELS)
    assert (clone(search.best_estimator_).fit(ROWS, LABELS).predict(NEW_ROWS) == search.predict(NEW_ROWS)).all()


def test_bad_images() -> None:
    machine = ConvDEQKernelClassifier()
    with pytest.raises(nsd.InputError, match="pass image_shape="):
        machine.fit(ROWS, LABELS)
    with pytest.raises(nsd.InputError, match="does not hold the 90 values"):
        ConvDEQKernelClassifier(image_shape=(4, 6, 3)).fit(ROWS, LABELS)
    with pytest.raises(nsd.InputError, match=r"must be \(rows, columns, channels\)"):
        ConvDEQKernelClassifier(image_shape=(5, 6)).fit(ROWS, LABELS)
    with pytest.raises(nsd.InputError, match="were expected"):
        machine.fit(IMAGES, LABELS).predict(NEW[:, :4])
    with pytest.raises(nsd.InputError, match="use normalize='unit'"):
        machine.fit(IMAGES[..., :1], LABELS)
