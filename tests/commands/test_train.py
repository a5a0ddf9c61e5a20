"""``notsodeep train``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.command_line import Run


def test_training_holds_out_the_sets_own_test_part(run: Run, tmp_path: Path) -> None:
    """Labels that cannot be learnt are found in the test part and nowhere else."""
    pytest.importorskip("torch")
    X = np.random.default_rng(0).normal(size=(80, 10)) + np.repeat([[-2.0], [2.0]], 40, axis=0)
    y = np.repeat(["low", "high"], 40)
    swapped = np.where(y == "low", "high", "low")
    np.savez(tmp_path / "a.npz", X=X, y=y, X_test=X, y_test=swapped)
    options = ("train", "--model", "explicit", "--data", tmp_path / "a.npz", "--width", 64, "--lr", 0.01, "--json")
    assert run(*options, "--epochs", 20).json["test_accuracy"] < 0.1
    assert run(*options, "--epochs", 20, "--test-share", 0.5).json["test_accuracy"] > 0.9
    assert run(*options, "--epochs", 1, "--test-share", 1.5).code == 2
