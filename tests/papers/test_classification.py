"""The entries that classify, train and time: judgements that can fail, and the data they take.

Also covers: papers/fk20_accuracy.py, papers/ling23_training.py, papers/ling24_accuracy.py, papers/ling24_speed.py,
papers/ling24_times.py, papers/networks.py, papers/vgg.py.
"""

from __future__ import annotations

import json
import math
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
    ling24_times,
    networks,
    vgg,
)
from notsodeep.papers.registry import ENTRIES
from notsodeep.papers.run import reproduce
from notsodeep.report.style import style

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


def test_a_file_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = features(tmp_path / "own.npz")
    first = inputs.fingerprint(str(path))
    features(path, n=60)
    assert first
    assert inputs.fingerprint(str(path)) != first
    assert inputs.fingerprint("mnist") == ""
    monkeypatch.setattr(vgg, "stored", lambda: path)  # trained elsewhere, they are other features
    assert inputs.fingerprint(inputs.VGG) == inputs.fingerprint(str(path))


def test_data_without_labels_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "bare.npy", np.eye(4))
    with pytest.raises(nsd.InputError, match="has no labels"):
        inputs.split(str(tmp_path / "bare.npy"), 2, 1, 0)


def test_features_of_ones_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    entry = ENTRIES["ling24-fig3"]
    sizes = {**entry.quick, "train": 60, "test": 30, "epochs": 5, "widths": (16, 32), "repetitions": 2}
    source = str(features(tmp_path / "vgg.npz"))
    record = reproduce(replace(entry, quick=sizes), tmp_path / "out", quick=True, data=source)
    assert record["name"] == "ling24-fig3-vgg"
    assert (tmp_path / "out" / "ling24-fig3-vgg" / "figure.png").is_file()
    assert "ReLU on vgg.npz: designed" in record["we_measure"]
    rows = record_rows(tmp_path / "out" / "ling24-fig3-vgg")
    assert min(row["accuracy"] for row in rows if row["network"] == "deq") > 0.9
    with pytest.raises(nsd.InputError, match="ling24-fig1 takes no other data"):
        reproduce(ENTRIES["ling24-fig1"], tmp_path / "out", quick=True, data=source)


def record_rows(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "data.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def test_features_of_a_small_vgg_are_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.random((60, 8 * 8 * 3)) * 0.5 + 0.5 * y[:, None]
    images = nsd.data.Data("cifar10", X, y, X[:20], y[:20], (8, 8, 3))
    small = {"epochs": 3, "channels": (4, 8, 8)}
    whole = vgg.train(images, tmp_path / "whole.pt", **small)
    monkeypatch.setattr(torch.optim.SGD, "step", stopping(torch.optim.SGD.step, after=2))
    with pytest.raises(KeyboardInterrupt):
        vgg.train(images, tmp_path / "stopped.pt", **small)
    monkeypatch.undo()
    again = vgg.train(images, tmp_path / "stopped.pt", **small)
    for one, other in zip(whole.state_dict().values(), again.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other)
    (tmp_path / "stopped.pt").write_bytes(b"damaged")
    with pytest.raises(nsd.InputError, match="delete it"):
        vgg.train(images, tmp_path / "stopped.pt", **small)


def stopping(step: Any, after: int) -> Any:
    left = [after]

    def stopped(self: Any, *arguments: Any, **options: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return step(self, *arguments, **options)

    return stopped


# --- networks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("phi", "layers"), [("relu", 2), ("tanh", 1)])
# covers: [Ling24] Figure 3
def test_the_four_networks(phi: str, layers: int) -> None:
    X = np.random.default_rng(0).normal(size=(300, 300)) / np.sqrt(300)
    exact = networks.describe("deq", phi).kernel(X)
    gaps = {}
    for name in ("matched", "theirs", "fair"):
        explicit = networks.describe(name, phi)
        assert explicit.depth == layers  # type: ignore[union-attr]
        gaps[name] = np.linalg.norm(exact - explicit.kernel(X), 2) / np.linalg.norm(exact, 2)
    assert gaps["matched"] < min(0.05, *(0.5 * gaps[name] for name in ("theirs", "fair")))


# covers: [Ling24] Figure 3
def test_the_competitors_are_those_of_the_scripts() -> None:
    x = np.linspace(-3, 3, 7)
    first, second = networks.describe("theirs", "relu").activations  # type: ignore[union-attr]
    np.testing.assert_allclose(first(x), np.maximum(math.sqrt(0.8) * x - math.sqrt(0.2 / (2 * math.pi)), 0))
    tau = math.sqrt(np.mean(first(np.random.default_rng(0).normal(size=10**6)) ** 2))
    np.testing.assert_allclose(second(x), np.maximum(x - tau / math.sqrt(2 * math.pi), 0), atol=1e-3)
    (only,) = networks.describe("theirs", "tanh", 0.2).activations  # type: ignore[union-attr]
    np.testing.assert_allclose(only(x), np.tanh(math.sqrt(0.2) * x))


# --- judgements can fail ----------------------------------------------------------------------


def accuracies(**offsets: float) -> list[dict[str, Any]]:
    return [
        {"data": "digits", "phi": phi, "network": network, "width": width, "seed": seed}
        | {"accuracy": 0.8 + offsets.get(network, -0.05) + 0.001 * seed}
        for phi in ling24_accuracy.ACTIVATIONS
        for network in networks.LABELS
        for width in (32, 64)
        for seed in range(3)
    ]


# covers: [Ling24] Figure 3; slides of [Ling24] Figure 3
def test_accuracies_are_compared_with_those_of_the_deq() -> None:
    assert ling24_accuracy.judge(accuracies(deq=0, matched=0.005)).claim == "holds"
    far = ling24_accuracy.judge(accuracies(deq=0, matched=0.1))
    assert [check.agrees for check in far.checks] == [False, False, True] * 2
    useless = ling24_accuracy.judge(accuracies(deq=0, matched=0.005, theirs=0.0))
    assert [check.agrees for check in useless.checks] == [True, False, True] * 2
    better = ling24_accuracy.judge(accuracies(deq=0, matched=0.005, theirs=0.1))  # the paper says that it stays behind
    assert [check.agrees for check in better.checks] == [True, False, True] * 2


def test_the_designed_network_comes_closer_or_not() -> None:
    def closer(at: dict[tuple[int, int], float]) -> list[bool | None]:
        rows = accuracies(deq=0, matched=0)
        for row in rows:
            if row["network"] == "matched":
                row["accuracy"] += at.get((row["width"], row["seed"]), at[row["width"], 0])
        checks = [one for one in ling24_accuracy.judge(rows).checks if "comes closer" in one.what]
        assert all(("contains 0" in one.why) == (one.agrees is None) for one in checks)
        return [one.agrees for one in checks]

    assert closer({(32, 0): 0.03, (64, 0): 0.01}) == [True, True]
    assert closer({(32, 0): -0.03, (64, 0): 0.01}) == [True, True]  # whatever the sign
    assert closer({(32, 0): 0.01, (64, 0): -0.03}) == [False, False]
    assert closer({(32, 0): 0.01, (64, 0): 0.005, (64, 1): 0.03}) == [None, None]
    alone = [row for row in accuracies(deq=0) if row["width"] == 32]
    assert not any("comes closer" in one.what for one in ling24_accuracy.judge(alone).checks)


def test_the_scale_of_the_paper_s_tanh_network() -> None:
    """0.2 on images of one channel, 0.8 on CIFAR-10 and on features, as in the scripts."""
    for source in ("mnist", "Fashion_MNIST", "digits"):
        assert ling24_accuracy.tanh_variance(source) == 0.2
    for source in ("cifar10", inputs.VGG, "vgg.npz", "/home/me/features.npz"):
        assert ling24_accuracy.tanh_variance(source) == 0.8


@pytest.mark.parametrize(("ratio", "claim", "number"), [(2.89, True, True), (7.0, True, False), (0.9, False, False)])
# covers: [Ling24] Table 1
def test_ratios_are_compared_with_the_printed(ratio: float, claim: bool, number: bool) -> None:
    rows = [
        {"data": "mnist", "activation": "relu", "batch": batch, "width": width, "ratio": ratio + 0.01 * seed}
        for width in (32, 48)  # nothing is printed for 48
        for batch in (1, 128)
        for seed in range(3)
    ] + [{"data": "mnist", "activation": "tanh", "batch": b, "width": 48, "ratio": 2.0} for b in (1, 128)]
    rows = [{**row, "implicit_ms": 40.0, "explicit_ms": 10.0} for row in rows]
    judgement = ling24_speed.judge(rows, "inference")
    relu = [check for check in judgement.checks if check.what.startswith("ReLU")]
    assert [check.agrees for check in relu] == [claim, claim]
    seconds = [check for check in judgement.checks if check.kind == "shown"]
    assert [(check.what.split(", ")[1], check.paper, check.measured, check.agrees) for check in seconds] == [
        ("ReLU-DEQ on MNIST", "0.26", "0.04", None),
        ("L-ReLU-ENN on MNIST", "0.09", "0.01", None),
    ]
    assert "seconds" not in judgement.because
    assert ling24_speed.judge([row for row in rows if row["batch"] > 1], "training").checks[1].kind == "number"
    (printed,) = (check for check in judgement.checks if check.kind == "number")  # batches are not in the paper
    assert (printed.paper, printed.agrees) == ("2.9", number)


# covers: [Ling24] Table 1; [Ling24] Table 2
def test_the_printed_times() -> None:
    for table in ling24_times.SECONDS.values():
        assert len(table) == 12
        assert all(len(row) == len(ling24_times.WIDTHS) for row in table.values())
    assert ling24_times.printed_ratio("training", "cifar10", "relu", 2048) == pytest.approx(1208.4 / 4.71)
    assert ling24_times.printed_ratio("training", "digits", "relu", 2048) is None
    assert ling24_times.printed_ratio("training", "mnist", "relu", 33) is None


def descents(**changes: Any) -> list[dict[str, Any]]:
    return [
        {"data": "sphere", "n": 10, "width": width, "seed": seed, "steps": 3, "loss": [8.0, 4.0, 2.0, 100 / width]}
        | {"condition": False, **{f"kept: {name}": True for name in ling23_training.PROMISES}, **changes}
        for width in (100, 200)
        for seed in range(3)
    ]


# covers: [Ling23] Figure 1
def test_promises_of_the_theorem_are_checked() -> None:
    certain = ling23_training.judge(descents(condition=True))
    assert certain.claim == "holds"
    assert all(check.agrees for check in certain.checks)
    broken = ling23_training.judge(descents(**{"kept: norm below 1": False}))
    assert [check.what for check in broken.checks if check.agrees is False] == ["sphere, Gaussian labels: norm below 1"]
    rising = ling23_training.judge(descents(loss=[1.0, 2.0, 1.5, 1.0]))
    assert [check.agrees for check in rising.checks] == [False, None, None, True, None, None]
    assert [bool(check.why) for check in rising.checks] == [False, True, True, False, True, True]
    slower = [{**row, "loss": [8.0, 4.0, 2.0, row["width"] / 100]} for row in descents()]
    assert [(check.agrees, check.why) for check in ling23_training.judge(slower).checks[1:3]] == [(False, "")] * 2
    # a wider network that starts lower ends lower without being faster
    lower = [{**row, "loss": [100 / row["width"], 0.5, 0.2, 10 / row["width"]]} for row in descents()]
    assert [check.agrees for check in ling23_training.judge(lower).checks[1:3]] == [None, True]
    # nor does a small difference between scattered losses tell anything
    noisy = [{**row, "loss": [8.0, 4.0, 2.0, 1 + row["seed"] + 1 / row["width"]]} for row in descents()]
    assert [check.agrees for check in ling23_training.judge(noisy).checks[1:3]] == [None, None]


@pytest.mark.parametrize("kept", [True, False])
# covers: [Ling23] Condition 1
def test_what_is_promised_under_a_condition_is_judged_where_it_holds(kept: bool) -> None:
    for condition, agrees in ((True, kept), (False, None)):
        rows = descents(**{"kept: eigenvalue above λ0/2": kept}, condition=condition)
        check = next(check for check in ling23_training.judge(rows).checks if "eigenvalue" in check.what)
        assert check.agrees is agrees
        assert bool(check.why) is not condition


# covers: [Ling23] Figure 1
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


def depths(gap: float, plain: dict[float, list[float]]) -> list[dict[str, Any]]:
    return [
        {"recurrent": recurrent, "seed": seed, "depths": [8, 64], "exact": 0.3 + 0.01 * seed}
        | {"deq": [0.2, 0.3 + 0.01 * seed + gap], "plain": accuracies, "plain_classes": [9, 1]}
        for recurrent, accuracies in plain.items()
        for seed in range(4)
    ]


# covers: [FK20] Figure 1
def test_depth_is_judged() -> None:
    later = {0.25: [0.11, 0.1], 0.5: [0.3, 0.1]}
    assert fk20_depth.judge(depths(0.0, later)).claim == "holds"
    kept = [check.agrees for check in fk20_depth.judge(depths(0.03, later)).checks]
    assert kept == [True, False, True, False, True]
    alive = fk20_depth.judge(depths(0.0, {0.25: [0.1, 0.3], 0.5: [0.3, 0.3]}))
    assert [check.agrees for check in alive.checks] == [False, True, False, True, False]
    assert not fk20_depth.judge(depths(0.0, {0.25: [0.3, 0.1], 0.5: [0.1, 0.1]})).checks[-1].agrees


# covers: [FK20] Thm 1; [FK20] Def. 3.1; [FK20] DEQ-NTK initialization; [FK20] Figure 1
def test_the_tangent_kernel_is_the_one_of_the_paper() -> None:
    """Equations (2) to (6) of [FK20], by hand."""
    X = np.random.default_rng(0).normal(size=(5, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for network, injected, bias in (("plain", 0.0, 0.4), ("deq", 0.3, 0.1)):
        sigma = theta = X @ X.T
        for depth in range(1, 6):
            rho = np.clip(sigma / np.sqrt(np.outer(np.diag(sigma), np.diag(sigma))), -1, 1)
            angle = np.arccos(rho)
            scale = np.sqrt(np.outer(np.diag(sigma), np.diag(sigma)))
            slope = 0.6 * (np.pi - angle) / np.pi
            sigma = 0.6 * scale * (np.sin(angle) + (np.pi - angle) * rho) / np.pi + injected * X @ X.T + bias
            theta = sigma + slope * theta
            np.testing.assert_allclose(fk20_depth.tangent(network, 0.6, depth, X), theta, rtol=1e-6)


def test_figures_of_made_up_rows() -> None:
    """Every figure draws whatever its rows hold; their look is checked by eye."""
    timed = [
        {"data": data, "activation": name, "batch": batch, "width": width, "ratio": 2.0 + seed}
        | {"implicit_ms": 4.0 + seed, "explicit_ms": 2.0}
        for data in ("mnist", "own.npz")
        for name in ("relu", "tanh")
        for batch in (1, 128)
        for width in (32, 64)
        for seed in range(2)
    ]
    curves = {"bound": [8.0, 7.0, 6.0, 5.0], "norm": [0.5, 0.5, 0.6, 0.6]}
    measured = {"accuracy": 59.0, "images": 600, "test_images": 600}
    drawn = (
        (fk20_depth.draw, depths(0.0, {0.25: [0.1, 0.1], 0.5: [0.3, 0.1]}), {}, 2),
        (ling24_speed.draw, timed, {"job": "inference"}, 8),
        (ling23_training.draw, descents(**curves), {}, 2),
        (fk20_accuracy.draw, [{"row": name, **measured} for name in ("cifar10-a", "cifar10-zca")], {"table": 2}, 1),
        (ling24_accuracy.draw, accuracies(), {}, 2),
    )
    with style() as plt:
        for draw, rows, options, panels in drawn:
            figure = draw(plt, rows, **options)
            figure.canvas.draw()
            assert len(figure.axes) == panels
            assert all(axis.has_data() for axis in figure.axes)


def test_a_curvature_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    asked = []
    own = ling23_training._curvature
    monkeypatch.setattr(ling23_training, "_curvature", lambda net, X: asked.append(net.width) or own(net, X))
    ling23_training._widest_curvature.cache_clear()
    plan = ling23_training.plan({"sphere": 8}, 6, (10, 20), 2, 2)
    rows = [{**one, **ling23_training.measure(**one)} for one in plan]
    assert asked == [20, 20]  # one for each seed
    assert len({row["step"] for row in rows}) == 2


def test_whitening_is_chosen_on_held_out_images() -> None:
    """Noise of large variance hides two classes unless the rows are whitened."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2
    X = rng.normal(size=(400, 12)) * np.array([0.1] + [3.0] * 11)
    X[:, 0] += 0.4 * labels
    part = nsd.data.Data("own", X[:300], labels[:300], X[300:], labels[300:]).parts
    machine, white, chosen = fk20_accuracy._whitened(part, (2.0, 0.01))
    scores = fk20_accuracy._scores(part, machine.activations, nsd.learn.ZCA().fit(part.X))
    assert set(chosen) == {"epsilon", "ridge"}
    assert scores[chosen["epsilon"], chosen["ridge"]] == max(scores.values())
    assert chosen["epsilon"] <= 0.1
    np.testing.assert_array_equal(white.X, nsd.learn.ZCA(chosen["epsilon"]).fit_transform(part.X))
    machine.fit(white.X, white.labels)
    assert np.mean(machine.predict(white.X_test) == white.labels_test) > 0.8


# covers: [FK20] Table 1; [FK20] Table 2
def test_published_accuracies_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    images = nsd.data.Data("mnist", np.zeros((60_000, 1)), np.zeros(60_000))
    monkeypatch.setattr(fk20_accuracy, "labelled", lambda name: (images, np.arange(10)))

    def rows(accuracy: float, count: int) -> list[dict[str, Any]]:
        return [{"row": "mnist", "accuracy": accuracy, "images": count, "test_images": 10_000}]

    same = fk20_accuracy.judge(rows(98.4, 60_000), 1)
    assert (same.claim, same.numbers) == ("holds", "1 of 1 within our interval")
    worse = fk20_accuracy.judge(rows(97.9, 60_000), 1)
    assert (worse.claim, worse.numbers) == ("does not hold", "0 of 1 within our interval")
    assert "not explained" in worse.because
    part = fk20_accuracy.judge(rows(98.6, 2000), 1)
    assert (part.claim, part.numbers) == ("cannot tell", "none to compare")  # a part of the images is no proof
    assert "2000 of 60000 training images" in part.because
