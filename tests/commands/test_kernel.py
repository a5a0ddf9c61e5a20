"""``notsodeep kernel``: the matrix of a data file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.command_line import Run

import notsodeep as nsd


def test_kernel(run: Run, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "K.npy"
    result = run("kernel", small, "--activation", "tanh", "--kind", "ntk", "--out", out, "--json")
    assert result.json["shape"] == [60, 60]
    X = np.load(small)["X"]
    np.testing.assert_allclose(np.load(out), nsd.DEQ("tanh", 0.2, 0.8).kernel(X, kind="ntk"), rtol=1e-12)
    again = run("kernel", small, "--out", out)
    assert again.code == 2
    assert "pass --force to replace it" in again.err
    model = nsd.Explicit(["relu"]).save(tmp_path / "model.json")
    assert run("kernel", small, "--cell", model, "--out", out, "--force", "--dtype", "float32").code == 0
    assert np.load(out).dtype == np.float32
    assert run("kernel", small, "--out", out, "--force", "--limit", "7", "--json").json["shape"] == [7, 7]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["K.npy", "model.json"]


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("huge", [1e308, 1.7e308, 1e154])
def test_rows_that_overflow_are_refused_in_one_line(huge: float, rows: int, run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.concatenate([np.ones((3, 4)), np.full((rows, 4), huge)]))
    result = run("kernel", tmp_path / "X.npy", "--out", tmp_path / "K.npy")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
    assert "whose kernel overflows float64" in result.err
    assert not (tmp_path / "K.npy").exists()
