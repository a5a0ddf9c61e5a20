"""The entries that classify, train and time: judgements that can fail, and the data they take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.papers import (
    fk20_accuracy,
    fk20_depth,
    inputs,
    ling23_training,
    ling24_accuracy,
    ling24_speed,
    networks,
)
from notsodeep.papers.registry import ENTRIES
from notsodeep.papers.run import reproduce

pytest.importorskip("matplotlib")


# --- data -------------------------------------------------------------------------------------


def features(path: Path, n: int = 120, own_test: bool = True) -> Path:
    """Two far classes called a and b."""
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b"], n // 2)
    X = rng.normal(size=(n, 12)) + 3 * (y == "b")[:, None]
    parts = {"X_test": X[::3], "y_test": y[::3]} if own_test else {}
    np.savez(path, X=X, y=y, **parts)
    return path


@pytest.mark.parametrize("own_test", [True, False])
def test_parts_of_a_data_set(tmp_path: Path, own_test: bool) -> None:
    source = str(features(tmp_path / "own.npz", own_test=own_test))
    part = inputs.split(source, 40, 20, 0)
    assert part.X.shape == (40, 12)
    assert part.X_test.shape == (20, 12)
    assert set(part.labels) == set(part.labels_test) == {0, 1}
    other = inputs.split(source, 40, 20, 1)
    assert not np.array_equal(part.X, other.X)
    if not own_test:  # nobody is tested on what was trained on
        everything = inputs.split(source, None, None, 0)
        assert len(everything.X) + len(everything.X_test) == 120
        assert not {row.tobytes() for row in everything.X} & {row.tobytes() for row in everything.X_test}
    with pytest.raises(nsd.InputError, match=r"train=500 asks for more samples than the \d+"):
        inputs.split(source, 500, 20, 0)


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    path = features(tmp_path / "own.npz")
    first = inputs.fingerprint(str(path))
    features(path, n=60)
    assert first
    assert inputs.fingerprint(str(path)) != first
    assert inputs.fingerprint("mnist") == ""


def test_data_without_labels_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "bare.npy", np.eye(4))
    with pytest.raises(nsd.InputError, match="has no labels"):
        inputs.split(str(tmp_path / "bare.npy"), 2, 1, 0)


def test_features_of_ones_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    entry = ENTRIES["ling24-fig3"]
    sizes = {**entry.quick, "train": 60, "test": 30, "epochs": 2}
    sizes |= {"repetitions": {"readout": {16: 2, 32: 2}, "full": {16: 2}}}
    source = str(features(tmp_path / "vgg.npz"))
    record = reproduce(replace(entry, quick=sizes), tmp_path / "out", quick=True, data=source)
    assert record["name"] == "ling24-fig3-vgg"
    assert (tmp_path / "out" / "ling24-fig3-vgg" / "figure.png").is_file()
    assert "vgg.npz, only the readout trained: DEQ 100" in record["we_measure"]
    with pytest.raises(nsd.InputError, match="ling24-fig1 takes no other data"):
        reproduce(ENTRIES["ling24-fig1"], tmp_path / "out", quick=True, data=source)


# --- networks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("phi", "layers"), [("relu", 2), ("tanh", 1)])
def test_the_five_networks(phi: str, layers: int) -> None:
    X = np.random.default_rng(0).normal(size=(300, 300)) / np.sqrt(300)
    exact = networks.describe("deq", phi).kernel(X)
    gaps = {}
    for name in ("matched", "unmatched", "tanh", "relu"):
        explicit = networks.describe(name, phi)
        assert explicit.depth == layers  # type: ignore[union-attr]
        gaps[name] = np.linalg.norm(exact - explicit.kernel(X), 2) / np.linalg.norm(exact, 2)
    assert gaps["matched"] < 0.05 < min(gaps[name] for name in ("unmatched", "tanh", "relu"))


# --- judgements can fail ----------------------------------------------------------------------


def accuracies(**offsets: float) -> list[dict[str, Any]]:
    return [
        {"data": "digits", "training": training, "network": network, "width": width, "seed": seed}
        | {"accuracy": 0.8 + offsets.get(network, 0.05) + 0.001 * seed}
        for training in ling24_accuracy.TRAININGS
        for network in networks.LABELS
        for width in (32, 64)
        for seed in range(3)
    ]


def test_accuracies_are_compared_with_those_of_the_deq() -> None:
    assert ling24_accuracy.judge(accuracies(deq=0, matched=0.01)).verdict == "agrees"
    assert ling24_accuracy.judge(accuracies(deq=0, matched=0.1)).verdict == "disagrees"
    useless = ling24_accuracy.judge(accuracies(deq=0, matched=0.01, unmatched=0.0))
    assert [check.agrees for check in useless.checks] == [True, False, True, False]


@pytest.mark.parametrize(("ratio", "expected"), [(2.5, [True, True]), (7.0, [True, False]), (0.9, [False, False])])
def test_ratios_are_compared_with_the_published(ratio: float, expected: list[bool]) -> None:
    rows = [
        {"activation": name, "width": width, "ratio": ratio + 0.01 * seed}
        for name in ling24_speed.ACTIVATIONS
        for width in (32, 64)
        for seed in range(2)
    ]
    judgement = ling24_speed.judge(rows, "inference")
    assert [check.agrees for check in judgement.checks] == 2 * expected


def descents(**changes: Any) -> list[dict[str, Any]]:
    return [
        {"data": "sphere", "n": 10, "width": width, "steps": 3, "loss": [8.0, 4.0, 2.0, 100 / width]}
        | {"condition": False, **{f"kept: {name}": True for name in ling23_training.PROMISES}, **changes}
        for width in (100, 200)
    ]


def test_promises_of_the_theorem_are_checked() -> None:
    assert ling23_training.judge(descents()).verdict == "agrees"
    broken = ling23_training.judge(descents(**{"kept: norm below 1": False}))
    assert [check.what for check in broken.checks if not check.agrees] == ["sphere, Gaussian labels: norm below 1"]
    rising = ling23_training.judge(descents(loss=[1.0, 2.0, 1.5, 1.0]))
    assert [check.agrees for check in rising.checks] == [False, False, True, True, True]


def test_the_step_is_the_largest_curvature() -> None:
    """λ_max of JJᵀ by automatic differentiation through W, U and a of [Ling23]."""
    torch = pytest.importorskip("torch")
    from notsodeep import nn

    net = nn.ling23_network(40, 6, ling23_training.RECURRENT, seed=1)
    X = torch.as_tensor(ling23_training._samples("sphere", 8, 6, 0)[0])
    rows = []
    for output in net(X)[:, 0]:
        recurrent, drive, readout = torch.autograd.grad(
            output, (net.recurrent, net.input, net.readout), retain_graph=True
        )
        # W = √(2σ_w²/m) A, U = √(2/d) B, a = readout/√m
        scaled = (recurrent * (40 / 0.16) ** 0.5, drive * 3**0.5, readout * 40**0.5)
        rows.append(torch.cat([one.reshape(-1) for one in scaled]))
    J = torch.stack(rows)
    expected = float(torch.linalg.eigvalsh(J @ J.T)[-1])
    assert ling23_training._curvature(net, X) == pytest.approx(expected, rel=1e-6)


def test_the_norm_of_a_descent_can_be_exact() -> None:
    torch = pytest.importorskip("torch")
    from notsodeep import nn

    X, y = (torch.as_tensor(one) for one in ling23_training._samples("sphere", 8, 6, 0))
    seen = {
        exact: nn.descend(nn.ling23_network(40, 6, 0.08, seed=1), X, y, steps=5, step=1e-3, exact_norm=exact)
        for exact in (True, False)
    }
    assert np.all(seen[True].norm[1:] < seen[False].norm[1:])
    net = nn.ling23_network(40, 6, 0.08, seed=1)
    nn.descend(net, X, y, steps=5, step=1e-3)
    last = np.linalg.norm(2**0.5 * net.effective_weights().W.detach().numpy(), 2)
    assert seen[True].norm[-1] == pytest.approx(last)


def depths(deq: float, plain: float) -> list[dict[str, Any]]:
    rows = [{"network": "exact", "depth": 0, "seed": seed, "accuracy": 0.3 + 0.01 * seed} for seed in range(4)]
    for network, gap in (("deq", deq), ("plain", plain)):
        rows += [
            {"network": network, "depth": 8, "seed": seed, "accuracy": 0.3 + 0.01 * seed + gap + 0.001 * (seed % 2)}
            for seed in range(4)
        ]
    return rows


def test_depth_is_judged_draw_by_draw() -> None:
    assert fk20_depth.judge(depths(0.0, -0.05)).verdict == "agrees"
    assert fk20_depth.judge(depths(0.03, 0.02)).verdict == "disagrees"


def test_published_accuracies_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    images = nsd.data.Data("mnist", np.zeros((60_000, 1)), np.zeros(60_000))
    monkeypatch.setattr(fk20_accuracy, "labelled", lambda name: (images, np.arange(10)))

    def rows(accuracy: float, count: int) -> list[dict[str, Any]]:
        return [{"row": "mnist", "accuracy": accuracy, "images": count}]

    assert fk20_accuracy.judge(rows(98.4, 60_000), 1).verdict == "agrees"
    assert fk20_accuracy.judge(rows(97.9, 60_000), 1).verdict == "disagrees"
    part = fk20_accuracy.judge(rows(98.6, 2000), 1)
    assert part.verdict == "disagrees"  # whatever a part of the images gives, it is no proof
    assert "2000 of 60000 training images" in part.because
