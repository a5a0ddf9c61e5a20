"""Models: immutable, comparable, printable, validated descriptions that survive a file.

Also covers: descriptions.py, well_posedness.py.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import notsodeep as nsd
from notsodeep.descriptions import model_from_dict

RELU = nsd.DEQ("relu", recurrent=0.2, input=0.8)
MODELS = [
    RELU,
    nsd.DEQ("tanh", 0.1, 0.5, bias=0.3),
    RELU.centered(1.0),
    nsd.DEQ(nsd.activation("hard_tanh", a=0.7, c=1.3).stretched(2), 0.05, 1.0),
    nsd.Explicit(["relu", nsd.activation("leaky_relu", a=2, b=-0.5) - 0.25, "erf"]),
    nsd.ConvDEQ("normalized_relu", recurrent=0.65, input=0.35, filter_size=5, padding="circular"),
]


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_file_round_trip(model: Any, tmp_path: Path) -> None:
    path = model.save(tmp_path / "model.json")
    assert nsd.load_model(path) == model
    assert nsd.load_model(str(path)) == model
    assert [file.name for file in tmp_path.iterdir()] == ["model.json"]  # no partial file stays behind
    assert model_from_dict(json.loads(json.dumps(model.to_dict()))) == model


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_models_are_values(model: Any) -> None:
    twin = model_from_dict(model.to_dict())
    assert hash(twin) == hash(model)
    assert len({twin, model}) == 1
    with pytest.raises(AttributeError):
        model.activation = None


def test_text() -> None:
    assert str(RELU) == "DEQ(relu(x), recurrent=0.2, input=0.8, bias=0)"
    assert str(nsd.Explicit("tanh")) == "Explicit(tanh(x))"
    assert str(MODELS[-1]).startswith("ConvDEQ(1.41421·relu(x), recurrent=0.65")
    assert nsd.DEQ("relu", 0.2, 0.8) != nsd.DEQ("relu", 0.2, 0.7)


@pytest.mark.parametrize(
    ("activation", "recurrent", "finite", "infinite"),
    [
        ("relu", 0.2, 0.8, 0.1),
        ("relu", 0.25, 1.0, 0.125),
        ("normalized_relu", 0.2, 1.6, 0.2),
        ("normalized_relu", 1.0, 8.0, 1.0),
        ("tanh", 0.2, 0.8, 0.2),
        ("erf", 0.1, 1.6 / math.pi, 0.4 / math.pi),
    ],
)
# covers: [Ling24] Asm. 2.4; slides of [Ling24] Remark on Asm. 1; [FK20] Lemma 1
def test_well_posed_explains_itself(activation: str, recurrent: float, finite: float, infinite: float) -> None:
    verdict = nsd.DEQ(activation, recurrent, 0.8).well_posed
    assert verdict.finite_width.value == pytest.approx(finite)
    assert verdict.finite_width.margin == pytest.approx(1 - finite)
    assert verdict.infinite_width.value == pytest.approx(infinite, rel=1e-6)
    assert bool(verdict) == (finite < 1)
    assert verdict.infinite_width.holds == (infinite < 1)
    expected = "well-posed at finite" if finite < 1 else "kernels exist" if infinite < 1 else "not well-posed"
    assert str(verdict).startswith(expected)
    assert "4·recurrent·L²" in verdict.reason


@given(
    name=st.sampled_from(["relu", "tanh", "erf", "swish", "abs", "softplus"]),
    share=st.floats(0.0, 0.9),
    drive=st.floats(0.05, 20),
)
# covers: [Ling24] Eq. (10); [Ling24] Asm. 3.1; [Ling24] Rem. 3.2; slides of [Ling24] Asm. 1
def test_fixed_variance_solves_its_equation(name: str, share: float, drive: float) -> None:
    """Q = σ_a² E[φ(√q ξ)²] + drive, and the same with the variance in place of the power."""
    limit = 1 / nsd.DEQ(name, 1.0, 1.0).well_posed.infinite_width.value
    model = nsd.DEQ(name, share * limit, 1.0)
    for centered in (False, True):
        q = model.fixed_variance(drive, centered=centered)
        m = nsd.moments(model.activation, math.sqrt(q))
        target = drive + model.recurrent * (m.power - (m.mean**2 if centered else 0))
        assert q == pytest.approx(target, rel=1e-13)


@pytest.mark.parametrize("name", ["relu", "tanh", "swish"])
@pytest.mark.parametrize("start", [0.0, 25.0])
# covers: [Ling24] Lemma A.2
def test_variances_of_layers_converge_to_the_fixed_one(name: str, start: float) -> None:
    """τ_l² = σ_a² E[φ(τ_{l−1}ξ)²] + σ_b² τ_0², from below and from above."""
    model, drive = nsd.DEQ(name, 0.2, 0.8).centered(1.3), 0.8 * 1.3**2
    expected, gaps, q = model.fixed_variance(drive), [], start + drive
    for _ in range(40):
        gaps.append(abs(q - expected))
        q = drive + 0.2 * nsd.moments(model.activation, math.sqrt(q)).power
    assert gaps[1] < gaps[0]
    assert q == pytest.approx(expected, rel=1e-12)


def test_golden_fixed_points() -> None:
    """τ* at σ_a² = 0.2, σ_b² = 0.8, τ0 = 1 from 30-digit arithmetic."""
    for name, tau in (("relu", 0.9265661260274545), ("tanh", 0.9348716109247728)):
        model = nsd.DEQ(name, 0.2, 0.8)
        assert math.sqrt(model.fixed_variance(0.8, centered=True)) == pytest.approx(tau, rel=1e-14)
        phi = model.centered(1.0).activation
        assert nsd.moments(phi, tau).mean == pytest.approx(0, abs=1e-15)


@given(tau0=st.floats(0.1, 10), name=st.sampled_from(["relu", "swish", "tanh", "cos"]))
def test_centering_is_idempotent(tau0: float, name: str) -> None:
    once = nsd.DEQ(name, 0.2, 0.8).centered(tau0)
    twice = once.centered(tau0)
    assert twice.activation.shift == pytest.approx(once.activation.shift, abs=1e-13 * max(1, tau0))
    net = nsd.Explicit([name, "relu", "erf"]).centered(tau0)
    tau = tau0
    for layer in net.activations:
        m = nsd.moments(layer, tau)
        assert m.mean == pytest.approx(0, abs=1e-14 * max(1, tau))
        tau = math.sqrt(m.power)


def test_zero_recurrence_is_a_single_layer() -> None:
    model = nsd.DEQ("relu", recurrent=0, input=0.5)
    assert model.fixed_variance(0.5) == 0.5
    assert model.well_posed.finite_width.margin == 1.0


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nsd.DEQ("rleu", 0.2, 0.8), "did you mean 'relu'?"),
        (lambda: nsd.DEQ("relu", -0.1, 0.8), "recurrent=-0.1 must not be negative"),
        (lambda: nsd.DEQ("relu", 0.2, math.nan), "input=nan must be a finite real number"),
        (lambda: nsd.DEQ("relu", 0.2, 0.8, bias="b"), "bias='b' must be a real number"),  # type: ignore[arg-type]
        (lambda: nsd.DEQ("relu", 0.2, 0.0), "leave nothing that drives the network"),
        (lambda: nsd.DEQ(0 * nsd.activation("relu"), 0.2, 0.8), "is constant"),
        (lambda: nsd.DEQ("relu", 3.0, 0.8).centered(1.0), "use recurrent < 2"),
        (lambda: nsd.DEQ("relu", 0.2, 0.8, bias=1.0).centered(1.0), "needs bias=0"),
        (lambda: RELU.centered(0.0), "tau0=0.0 must be positive"),
        (lambda: RELU.fixed_variance(-1), "drive=-1 must not be negative"),
        (lambda: nsd.Explicit([]), "activations is empty"),
        (lambda: nsd.Explicit(["relu", "tahn"]), "did you mean 'tanh'?"),
        (lambda: nsd.ConvDEQ("tanh", 0.5, 0.5), "is not positively homogeneous"),
        (lambda: nsd.ConvDEQ("relu", 0.5, 0.5, filter_size=4), "try 5"),
        (lambda: nsd.ConvDEQ("relu", 0.5, 0.5, padding="zeros"), "did you mean 'zero'?"),
        (lambda: nsd.ConvDEQ("relu", 0.5, 0.0), "input=0.0 must be positive"),
        (lambda: model_from_dict({"model": "RNN"}), 'expected "model": one of DEQ, Explicit, ConvDEQ'),
        (lambda: model_from_dict([1, 2]), "does not describe a model"),
        (lambda: model_from_dict({"model": "DEQ", "activation": "relu"}), "description is damaged"),
        (lambda: model_from_dict({**RELU.to_dict(), "width": 3}), "description is damaged"),
        (lambda: model_from_dict({**RELU.to_dict(), "recurrent": "much"}), "recurrent='much' must be a real"),
    ],
)
def test_bad_input_is_one_clear_error(call: Any, message: str) -> None:
    with pytest.raises(nsd.InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_files(tmp_path: Path) -> None:
    cases = [
        (tmp_path / "absent.json", "does not exist"),
        (_write(tmp_path / "broken.json", "{"), "is not a readable model file"),
        (_write(tmp_path / "list.json", "[]"), "does not describe a model"),
        (tmp_path, "is not a readable model file"),
    ]
    for path, message in cases:
        with pytest.raises(nsd.InputError, match=message):
            nsd.load_model(path)


def test_a_model_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(nsd.InputError, match="cannot be written to a file"):
        nsd.DEQ(np.tanh, 0.2, 0.8).save(tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []


# covers: [Ling24] Prop. 3.7; [Ling24] Def. 3.6
def test_variances_of_weights_are_a_part_of_the_activations():
    """Λ_l = weights_l K_{l−1} + bias_l and T_l = Ġ_l (Λ_l + weights_l T_{l−1}), by the formulas of the relu."""
    X = np.random.default_rng(0).normal(size=(6, 3))
    weights, biases = (2.0, 1.5, 0.7), (0.0, 0.3, 0.1)
    K, T = X @ X.T, np.zeros((6, 6))
    for weight, bias in zip(weights, biases, strict=True):
        covariance = weight * K + bias
        scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        angle = np.arccos(np.clip(covariance / scale, -1, 1))
        K = scale * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
        T = (np.pi - angle) / (2 * np.pi) * (covariance + weight * T)
    net = nsd.Explicit(["relu"] * 3, bias=biases, weights=weights)
    np.testing.assert_allclose(net.kernel(X, kind="ck"), K, rtol=1e-7)
    np.testing.assert_allclose(net.kernel(X, kind="ntk"), K + T, rtol=1e-7)
    assert nsd.Explicit("tanh", weights=1.0) == nsd.Explicit("tanh")
    for bad, message in (
        (0.0, r"weights\[0\]=0.0 must be positive"),
        ([1.0, 2.0], "weights has 2 entries for 3 layers"),
    ):
        with pytest.raises(nsd.InputError, match=message):
            nsd.Explicit(["relu"] * 3, weights=bad)


def test_deep_networks_are_described_in_one_line():
    net = nsd.Explicit(["tanh", *["relu"] * 200], bias=[0.0] + [0.5] * 200)
    assert str(net) == "Explicit(tanh(x) → 200 × relu(x), bias=[0.0, 200 × 0.5])"


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 0.0, -1.0, "1", float("nan")])
def test_a_description_normalises_within_limits(size):
    """Beyond, kernels of the described network were not numbers."""
    content = {**nsd.Explicit(["relu"], normalize=1.0).to_dict(), "normalize": size}
    with pytest.raises(nsd.InputError, match="normalize"):
        model_from_dict(content)
