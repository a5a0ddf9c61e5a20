"""The networks: bad input, copies, initialisation, and the limit of infinite width.

Also covers: nn/activations.py, nn/initialization.py, nn/options.py, nn/series.py.
"""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep import nn
from notsodeep.checks import InputError
from notsodeep.convergence import ConvergenceWarning
from notsodeep.nn import series
from notsodeep.nn.initialization import INITIALIZATIONS, spectral_norm

DEQ = nsd.DEQ("relu", recurrent=0.2, input=0.8)
PAIR = nsd.Explicit([nsd.activation("leaky_relu", a=1.2, b=-0.1) - 0.3, "tanh"])


def deep(**options) -> nn.DEQNet:
    return nn.DEQNet(DEQ, 6, 32, 3, **options)


def shallow(**options) -> nn.ExplicitNet:
    return nn.ExplicitNet(PAIR, 6, 32, 3, **options)


def sphere(n: int, p: int, seed: int = 0) -> torch.Tensor:
    x = torch.randn(n, p, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x / x.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("build", [deep, shallow])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(4, 5), r"shape \(4, 5\) but the network takes \(batch, 6\)"),
        (torch.zeros(()), r"shape \(\)"),
        (torch.full((2, 6), math.nan), "12 NaN or infinite"),
        (torch.tensor([[math.inf] * 6, [-math.inf] * 6]), "12 NaN or infinite"),
        (torch.zeros(2, 6, dtype=torch.float64), r"x\.to\(device='cpu', dtype=torch.float32\)"),
        (torch.zeros(2, 6, dtype=torch.int64), "int64"),
        (np.zeros((2, 6)), "torch.as_tensor"),
    ],
)
def test_bad_inputs_are_refused(build, x, message):
    with pytest.raises(InputError, match=message):
        build()(x)


def test_bad_shapes_and_models_are_refused():
    with pytest.raises(InputError, match=r"must be a notsodeep\.DEQ"):
        nn.DEQNet("relu", 6, 32)
    with pytest.raises(InputError, match=r"must be a notsodeep\.Explicit"):
        nn.ExplicitNet(DEQ, 6, 32)
    with pytest.raises(InputError, match="width=0"):
        nn.DEQNet(DEQ, 6, 0)
    with pytest.raises(InputError, match="1 entries for 2 layers"):
        nn.ExplicitNet(PAIR, 6, [4])
    with pytest.raises(InputError, match="did you mean 'slopes'"):
        nn.ExplicitNet(nsd.Explicit(["relu"]), 6, 4, learnable=["slope"])
    with pytest.raises(InputError, match=r"start has shape \(2, 5\)"):
        deep()(torch.zeros(2, 6), start=torch.zeros(2, 5))


def test_divergent_settings_are_refused_or_named():
    with pytest.raises(InputError, match="recurrent=3 is too large: not well-posed, not even at infinite width"):
        nn.DEQNet(nsd.DEQ("relu", 3.0, 1.0), 6, 32)
    risky = nsd.DEQ("relu", 0.9, 1.0)
    with pytest.warns(ConvergenceWarning, match=r"‖σ_a A/√m‖·L = 1\.\d+ ≥ 1 at width 64"):
        nn.DEQNet(risky, 6, 64)
    with pytest.raises(InputError, match="lower recurrent"):
        nn.DEQNet(risky, 6, 64, on_failure="raise")
    assert nn.DEQNet(risky, 6, 64, on_failure="ignore").contraction > 1


def test_contraction_is_the_norm_of_the_linear_map():
    net = nn.DEQNet(nsd.DEQ("normalized_relu", 0.1, 0.8), 6, 40, dtype=torch.float64)
    expected = math.sqrt(2) * float(torch.linalg.matrix_norm(net.effective_weights().W, 2))
    assert net.contraction == pytest.approx(expected, rel=1e-12)


def test_large_matrices_have_their_norm_by_lanczos():
    matrix = torch.randn(600, 700, generator=torch.Generator().manual_seed(0))
    assert spectral_norm(matrix) == pytest.approx(float(np.linalg.norm(matrix.numpy(), 2)), rel=1e-6)


def test_the_network_is_the_formula_of_the_paper():
    net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.7, 0.3), 6, 32, 3, dtype=torch.float64, tol=1e-13)
    x = sphere(5, 6)
    with torch.no_grad():
        z = net.equilibrium(x)
        inner = 0.2**0.5 * z @ net.recurrent.t() + 0.7**0.5 * x @ net.input.t() + 0.3**0.5 * net.bias
        torch.testing.assert_close(z, torch.tanh(inner) / 32**0.5, rtol=0, atol=1e-12)
        torch.testing.assert_close(net(x), z @ net.readout.t())
        weights = net.effective_weights()
        h = 32**0.5 * z
        torch.testing.assert_close(h, torch.tanh(h @ weights.W.t() + x @ weights.U.t() + weights.b))
        torch.testing.assert_close(net(x), h @ weights.a.t())


def test_explicit_is_the_formula_of_the_paper():
    net = nn.ExplicitNet(PAIR, 6, [20, 30], 3, dtype=torch.float64)
    x = sphere(5, 6).numpy()
    for weight, phi in zip(net.weights, PAIR.activations, strict=True):
        x = phi(x @ weight.detach().numpy().T) / math.sqrt(weight.shape[0])
    np.testing.assert_allclose(net(sphere(5, 6)).detach(), x @ net.readout.detach().numpy().T, atol=1e-12)


@pytest.mark.parametrize("name", [*nsd.activation_names()[:-1], "piecewise", "callable"])
def test_tensor_activations_are_the_described_ones(name):
    phi = {
        "piecewise_linear": None,
        "piecewise": nsd.activation("piecewise_linear", kinks=[-1.0, -0.2, 0.4], slopes=[0.5, -1.0, 2.0, 0.0]),
        "callable": nsd.activation(lambda x: np.minimum(x, 0.5) ** 3 / (1 + x**2)),
    }.get(name) or (nsd.activation(name) if name != "piecewise_linear" else nsd.activation("relu"))
    phi = 1.3 * phi.stretched(0.8) - 0.2
    x = torch.linspace(-4, 4, 401, dtype=torch.float64) + 0.00123
    module = nn.TensorActivation(phi)
    np.testing.assert_allclose(module(x), phi(x.numpy()), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(module.derivative(x), phi.derivative(x.numpy()), rtol=1e-10, atol=1e-10)
    y = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(module(y).sum(), y)
    np.testing.assert_allclose(slope, phi.derivative(x.numpy()), rtol=1e-10, atol=1e-10)


def test_learnable_activations_are_trained_and_described():
    phi = nsd.activation("piecewise_linear", kinks=[-1.0, 0.5], slopes=[0.1, 1.0, 0.4])
    module = nn.TensorActivation(1.5 * phi - 0.3, learnable=True).double()
    assert {name for name, _ in module.named_parameters()} == {"scale", "stretch", "shift", "kinks", "slopes"}
    x = torch.linspace(-3, 3, 101, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda *p: torch.func.functional_call(
            module, dict(zip([n for n, _ in module.named_parameters()], p, strict=True)), (x[::7] + 0.011,)
        ),
        tuple(module.parameters()),
    )
    np.testing.assert_allclose(module.derivative(x).detach(), (1.5 * phi).derivative(x.numpy()), atol=1e-6)
    with torch.no_grad():  # move the kinks across each other and across zero
        module.kinks.copy_(torch.tensor([0.8, -0.4]))
        module.slopes.mul_(0.9)
        module.stretch.mul_(1.1)
    np.testing.assert_allclose(module.description(x.numpy()), module(x).detach(), atol=1e-6)
    net = nn.ExplicitNet(nsd.Explicit([phi]), 3, 8, learnable=("slopes",))
    net(torch.ones(2, 3)).sum().backward()
    assert net.activations[0].slopes.grad.abs().sum() > 0


@pytest.mark.parametrize("build", [deep, shallow])
def test_copies_state_dicts_pickles_and_modes(build):
    net = build(seed=1)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    expected = net(x)
    expected.sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin(x), expected)
    other = build(seed=2)
    assert not torch.equal(other(x), expected)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(x), expected)
    net.eval()
    with torch.no_grad():
        quiet = net(x)
    assert not quiet.requires_grad
    torch.testing.assert_close(quiet, expected)
    with torch.inference_mode():
        torch.testing.assert_close(net(x), expected)
    assert torch.equal(build(seed=1)(x), expected)
    assert "in_features=6" in repr(net)


def test_a_loader_with_workers_feeds_the_network():
    net = deep()
    rows = torch.utils.data.TensorDataset(torch.randn(10, 6))
    loader = torch.utils.data.DataLoader(rows, batch_size=4, num_workers=1)
    assert sum(len(net(x)) for (x,) in loader) == 10


@pytest.mark.parametrize("initialization", INITIALIZATIONS)
def test_standard_entries_are_standard(initialization):
    entries = deep(initialization=initialization, seed=4).recurrent.detach()
    big = nn.DEQNet(DEQ, 2, 300, initialization=initialization).recurrent.detach()
    assert abs(float(big.mean())) < 0.02
    assert float(big.var()) == pytest.approx(1, abs=0.02)
    assert not torch.equal(entries[0], entries[1])


def gram_error(width: int, initialization: str, seed: int, x: torch.Tensor, limit: torch.Tensor) -> float:
    net = nn.DEQNet(DEQ, x.shape[1], width, initialization=initialization, seed=seed, tol=1e-5)
    found = nn.empirical_kernel(net, x.float()).double()
    return float((found - limit).norm() / limit.norm())


@pytest.mark.parametrize("initialization", INITIALIZATIONS)
def test_the_gram_matrix_approaches_the_kernel_like_one_over_root_width(initialization):
    x = sphere(10, 30)
    limit = torch.as_tensor(DEQ.kernel(x.numpy(), kind="ck"))
    widths = [64, 256, 1024]
    errors = [np.mean([gram_error(w, initialization, s, x, limit) for s in range(6)]) for w in widths]
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.12)
    assert errors[-1] < 0.13


@pytest.mark.slow
def test_the_gram_matrix_at_width_4096():
    x = sphere(10, 30)
    limit = torch.as_tensor(DEQ.kernel(x.numpy(), kind="ck"))
    errors = [np.mean([gram_error(w, "gaussian", s, x, limit) for s in range(3)]) for w in (256, 1024, 4096)]
    assert np.polyfit(np.log([256, 1024, 4096]), np.log(errors), 1)[0] == pytest.approx(-0.5, abs=0.15)
    assert errors[-1] < 0.065


def test_common_names_of_the_tolerance_are_understood():
    with pytest.raises(InputError, match="did you mean 'tol'"):
        nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 5, 32, tolerance=1e-3)


def test_designed_layer_keeps_any_norms_and_files(tmp_path):
    """The one-layer design of a relu DEQ: its empirical kernel, float32 against float64, and a file."""
    m = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0, on="sphere")
    x = 3 * torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wide = nn.ExplicitNet(m.network, 5, 40_000, dtype=torch.float64)
    exact = m.reference.kernel(x.numpy())
    np.testing.assert_allclose(nn.empirical_kernel(wide, x).detach(), exact, atol=0.03 * exact.max())
    double = nn.ExplicitNet(m.network, 5, 64, 2, dtype=torch.float64)
    single = nn.ExplicitNet(m.network, 5, 64, 2)
    single.load_state_dict({name: value.float() for name, value in double.state_dict().items()})
    np.testing.assert_allclose(single(x.float()).detach(), double(x).detach(), atol=2e-4)
    again = nn.load(nn.save(single, tmp_path / "net.safetensors"))
    assert again.explicit == single.explicit
    torch.testing.assert_close(again(x.float()), single(x.float()), rtol=0, atol=0)
    y = x.float().requires_grad_()
    (slope,) = torch.autograd.grad(single(y).sum(), y)
    z = x.clone().requires_grad_()
    (exact_slope,) = torch.autograd.grad(double(z).sum(), z)
    np.testing.assert_allclose(slope, exact_slope, atol=2e-2)


def test_designed_activations_keep_what_is_not_a_number_on_any_device():
    """The index of an interval was taken from NaN."""
    shape = nsd.match(nsd.DEQ("relu", 0.2, 0.8), tau0=1.0, on="sphere").network.activations[0].shape
    x = torch.tensor([float("nan"), 0.3])
    value, slope = series._on_device(x, series.parabola_table(shape))
    assert value.isnan().tolist() == slope.isnan().tolist() == [True, False]
