"""Explicit networks with biases: the formula, the kernels, files and ONNX."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep import InputError, nn
from notsodeep.nn.export import describe, packed

BIASED = nsd.Explicit(["relu", "tanh", "gelu"], bias=[0.5, 0.0, 0.2])


def network(model: nsd.Explicit = BIASED, outputs: int = 2, **options) -> nn.ExplicitNet:
    return nn.ExplicitNet(model, 4, [9, 8, 7], outputs, **{"dtype": torch.float64, **options})


def batch(n: int = 5) -> torch.Tensor:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def test_the_formula_has_the_bias_and_the_other_weights_are_those_without():
    net, plain = network(), network(nsd.Explicit(BIASED.activations))
    assert set(net.state_dict()) - set(plain.state_dict()) == {"biases.0", "biases.2"}
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in plain.state_dict().items())
    x = batch().numpy()
    for k, (weight, phi) in enumerate(zip(net.weights, BIASED.activations, strict=True)):
        inner = x @ weight.detach().numpy().T
        if BIASED.bias[k]:
            inner = inner + math.sqrt(BIASED.bias[k]) * net.biases[str(k)].detach().numpy()
        x = phi(inner) / math.sqrt(len(weight))
    np.testing.assert_allclose(net(batch()).detach(), x @ net.readout.detach().numpy().T, atol=1e-12)
    assert net.explicit == BIASED


@pytest.mark.parametrize("normalize", [None, 1.5])
def test_empirical_kernels_count_the_biases(normalize):
    net = network(nsd.Explicit(BIASED.activations, BIASED.bias, normalize))
    jacobians = torch.func.jacrev(lambda p: torch.func.functional_call(net, p, (batch(),)))(
        {name: value.detach() for name, value in net.named_parameters()}
    )
    flat = torch.cat([jacobian.flatten(2) for jacobian in jacobians.values()], dim=2)
    expected = torch.einsum("nop,kop->nk", flat, flat) / 2
    torch.testing.assert_close(nn.empirical_kernel(net, batch(), "ntk"), expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(nn.empirical_kernel(net, batch()), net.features(batch()) @ net.features(batch()).t())


@pytest.mark.parametrize("kind", ["ck", "ntk"])
def test_the_mean_over_random_networks_is_the_infinite_width_kernel(kind):
    model, X, draws = nsd.Explicit(["relu", "tanh"], bias=[0.5, 0.3]), batch(3), 24
    found = np.stack(
        [nn.empirical_kernel(nn.ExplicitNet(model, 4, 400, 4, seed=s), X.float(), kind).numpy() for s in range(draws)]
    )
    limit = model.kernel(X.numpy(), kind=kind)
    error = found.std(axis=0, ddof=1) / math.sqrt(draws)
    assert (np.abs(found.mean(axis=0) - limit) <= 4.5 * error + 4 / 400 * np.abs(limit)).all()
    without = nsd.Explicit(model.activations).kernel(X.numpy(), kind=kind)
    assert (np.abs(limit - without) > 4.5 * error + 4 / 400 * np.abs(limit)).any()  # the test sees a missing bias


def test_biases_survive_files_and_onnx(tmp_path):
    net = network(seed=3)
    again = nn.load(nn.save(net, tmp_path / "net.safetensors"))
    assert torch.equal(again(batch()), net(batch()))
    assert again.explicit == BIASED
    onnxruntime = pytest.importorskip("onnxruntime")
    path = nn.export_onnx(net, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": batch().float().numpy()})
    np.testing.assert_allclose(found, net(batch()).detach().numpy(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("biases.2"), "biases.2"),
        (lambda t: t.update({"biases.1": torch.zeros(8, dtype=torch.float64)}), "biases.1"),
        (lambda t: t.update({"biases.0": torch.zeros(3, dtype=torch.float64)}), r"shape \(3,\), but \(9,\)"),
        (lambda t: t["biases.0"].fill_(math.inf), "finite"),
    ],
)
def test_files_with_other_biases_are_refused(change, message, tmp_path):
    net = network()
    tensors = {name: value.clone() for name, value in net.state_dict().items()}
    change(tensors)
    path = tmp_path / "net.safetensors"
    path.write_bytes(packed(tensors, "notsodeep-network", describe(net)))
    with pytest.raises(InputError, match=message) as caught:
        nn.load(path)
    assert "\n" not in str(caught.value)


def test_gradients_reach_the_biases():
    net = network(outputs=1)
    names, values = zip(*net.named_parameters(), strict=True)

    def output(*values):
        return torch.func.functional_call(net, dict(zip(names, values, strict=True)), (batch(2) + 0.01,))

    assert torch.autograd.gradcheck(output, values)
