"""Networks whose cell has several layers: the formula, the limit of infinite width, gradients, files, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep import ConvergenceWarning, DeepDEQ, InputError, Layer, nn
from notsodeep.nn.solvers import SOLVERS

CELLS = {
    "two": DeepDEQ([Layer("relu", 0.3, 0.7), Layer("tanh", 0.4, 0.4, 0.2)]),
    "three": DeepDEQ([Layer("relu", 0.3, 0.7), Layer("identity", 0.4), Layer("relu", 0.4, 0.0, 0.3)]),
    "rms": DeepDEQ([Layer("relu", 0.3, 0.7), Layer("identity", 0.3, 0.8, normalize="rms")]),
    "layer": DeepDEQ([Layer("tanh", 0.3, 0.7, normalize="layer"), Layer("relu", 0.2, 0.8, normalize="layer")]),
    "residual": DeepDEQ([Layer("relu", 0.1, 0.7), Layer("tanh", 0.1, 0.4, residual=0.4)]),
    "skip": DeepDEQ([Layer("tanh", 0.2, 0.7), Layer("relu", 0.2, 0.4, skip=0.4)]),
    "post-norm": DeepDEQ([Layer("relu", 0.3, 0.7), Layer("identity", 0.3, 0.8, normalize="layer", residual=1.0)]),
    "multiscale": DeepDEQ([Layer("relu", 0.1, 0.7), Layer("relu", 0.1, 0.9, normalize="layer", skip=0.5)]),
    "one": DeepDEQ([Layer("tanh", 0.1, 0.7, normalize="rms")]),
}
FORMS = {"relu(x)": torch.relu, "tanh(x)": torch.tanh, "x": lambda u: u}


def network(name: str, width: int = 12, outputs: int = 2, **options: Any) -> nn.DEQNet:
    settings = {"tol": 1e-12, "dtype": torch.float64, "on_failure": "ignore", "max_iter": 500} | options
    return nn.DEQNet(CELLS[name], 4, width, outputs, **settings)


def batch(n: int = 5, p: int = 4) -> torch.Tensor:
    x = torch.randn(n, p, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x / x.norm(dim=1, keepdim=True)


def long_loop(net: nn.DEQNet, x: torch.Tensor, steps: int = 200) -> torch.Tensor:
    """z by the definition, one sample at a time, with weights of variance 0 left out."""
    root = math.sqrt(net.width)
    states = []
    for row in x:
        z = torch.zeros(net.width, dtype=torch.float64)
        for _ in range(steps):
            h = z
            for layer, own in zip(net.cell.layers, net.layers, strict=True):
                h = math.sqrt(layer.recurrent) * own.recurrent @ h
                if layer.input:
                    h = h + math.sqrt(layer.input) * own.input @ row
                if layer.bias:
                    h = h + math.sqrt(layer.bias) * own.bias
                h = FORMS[str(layer.activation)](h + layer.skip * z * root) + layer.residual * z * root
                if layer.normalize == "layer":
                    h = (h - h.mean()) / h.std(correction=0)
                elif layer.normalize == "rms":
                    h = h / h.square().mean().sqrt()
                h = h / root
            z = h
        states.append(z)
    return torch.stack(states)


@pytest.mark.parametrize("name", CELLS)
def test_states_and_gradients_are_those_of_the_formula(name):
    net, x = network(name), batch().requires_grad_()
    state = net.equilibrium(x)
    assert net.last_solve.converged
    expected = long_loop(net, x)
    torch.testing.assert_close(state, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(net(x), state @ net.readout.t())
    direction = batch(5, net.width)
    targets = [x, *(value for key, value in net.named_parameters() if key != "readout")]
    found = torch.autograd.grad((state * direction).sum(), targets)
    for one, other in zip(found, torch.autograd.grad((expected * direction).sum(), targets), strict=True):
        assert (one - other).abs().max() <= 1e-8 * other.abs().max()


@pytest.mark.parametrize("solver", SOLVERS)
def test_all_solvers_and_gradients_agree(solver):
    x, expected = batch(), network("layer").equilibrium(batch())
    torch.testing.assert_close(network("layer", solver=solver).equilibrium(x), expected, rtol=0, atol=1e-10)
    for backward in ("unrolled", "phantom"):
        net = network("layer", solver=solver, backward=backward, phantom_steps=100)
        net(x).sum().backward()
        exact = network("layer")
        exact(x).sum().backward()
        for one, other in zip(net.parameters(), exact.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-7, atol=1e-9)


def test_gradients_are_finite_differences():
    net = network("residual", width=5)
    names, values = zip(*net.named_parameters(), strict=True)

    def output(x, *values):
        return torch.func.functional_call(net, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(output, (batch(2).requires_grad_(), *values))


@pytest.mark.parametrize("initialization", ["gaussian", "rademacher"])
@pytest.mark.parametrize("bias", [0.0, 0.3])
def test_a_cell_of_one_plain_layer_is_the_network_of_a_deq(bias, initialization):
    options = {"seed": 7, "initialization": initialization}
    net = nn.DEQNet(DeepDEQ([Layer("tanh", 0.2, 0.7, bias)]), 4, 30, 2, **options)
    twin = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.7, bias), 4, 30, 2, **options)
    assert net.deq == twin.deq
    assert net.state_dict().keys() == twin.state_dict().keys()
    for one, other in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(net(batch().float()), twin(batch().float()))


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_wide_networks_have_the_kernel_of_the_cell(name):
    """Means over draws agree within four standard errors and a bias of the order 1/width."""
    X, width, draws = batch(3), 300, 100
    options = {"tol": 1e-5, "dtype": torch.float32}
    found = np.stack(
        [nn.empirical_kernel(network(name, width, seed=seed, **options), X.float()).numpy() for seed in range(draws)]
    )
    limit = CELLS[name].kernel(X.numpy())
    allowed = 4 * found.std(axis=0, ddof=1) / math.sqrt(draws) + 4 / width * np.abs(limit)
    assert (np.abs(found.mean(axis=0) - limit) <= allowed).all()
    assert (allowed <= 0.2 * limit.max()).all()  # the comparison means something


@pytest.mark.parametrize("name", CELLS)
def test_empirical_tangents_are_the_gradients_of_the_formula(name):
    net, X = network(name), batch(3)
    states = long_loop(net, X)
    rows = [
        [torch.autograd.grad(f, list(net.parameters()), retain_graph=True) for f in output]
        for output in states @ net.readout.t()
    ]
    flat = torch.stack([torch.stack([torch.cat([g.ravel() for g in one]) for one in row]) for row in rows])
    expected = torch.einsum("iop,jop->ij", flat, flat) / net.out_features
    torch.testing.assert_close(nn.empirical_kernel(net, X, "ntk"), expected, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(nn.empirical_kernel(net, X), states @ states.t(), rtol=1e-8, atol=1e-9)
    with pytest.raises(InputError, match="kind='ntk_frozen_input' is not known"):
        nn.empirical_kernel(net, X, "ntk_frozen_input")


@pytest.mark.parametrize("name", CELLS)
def test_networks_survive_a_file(name, tmp_path):
    net = network(name, solver="broyden", memory=4)
    again = nn.load(nn.save(net, tmp_path / "net.safetensors"))
    assert again.cell == net.cell
    assert again.solve_options == net.solve_options
    assert torch.equal(again(batch()), net(batch()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, d: t.pop("layers.1.input"), "layers.1.input"),
        (lambda t, d: t.update({"layers.0.recurrent": torch.zeros(3, 3, dtype=torch.float64)}), "shape"),
        (lambda t, d: t["layers.1.bias"].fill_(math.nan), "does not hold finite numbers"),
        (lambda t, d: t.update({"layers.2.bias": torch.zeros(12, dtype=torch.float64)}), "layers.2.bias"),
        (lambda t, d: d["model"]["layers"].__setitem__(0, {"activation": "relu"}), "damaged"),
        (lambda t, d: d["model"]["layers"].extend(d["model"]["layers"] * 60), "at most 100 layers"),
        (lambda t, d: d["options"].update(max_iter=10**9), "not one that a file may set"),
    ],
)
def test_damaged_files_get_one_line(change, message, tmp_path):
    from notsodeep.nn.export import describe, packed

    net = network("two")
    tensors, description = {k: v.clone() for k, v in net.state_dict().items()}, describe(net)
    change(tensors, description)
    path = tmp_path / "net.safetensors"
    path.write_bytes(packed(tensors, "notsodeep-network", description))
    with pytest.raises(InputError, match=message) as caught:
        nn.load(path)
    assert "\n" not in str(caught.value)


def test_well_posedness_is_told_as_for_a_deq():
    with pytest.raises(InputError, match="recurrent variances are too large: not well-posed"):
        nn.DEQNet(DeepDEQ([Layer("relu", 3, 1), Layer("relu", 2, 1)]), 4, 8)
    with pytest.warns(ConvergenceWarning, match=r"with skips, = \d\.\d+ ≥ 1 at width 12"):
        network("two", on_failure="warn")
    with pytest.raises(InputError, match="lower recurrent"):
        network("two", on_failure="raise")
    calm = DeepDEQ([Layer("relu", 0.1, 0.7), Layer("tanh", 0.1, 0.4, residual=0.3)])
    net = nn.DEQNet(calm, 4, 40, on_failure="raise", dtype=torch.float64)
    norms = [math.sqrt(0.1 / 40) * float(torch.linalg.matrix_norm(layer.recurrent.detach(), 2)) for layer in net.layers]
    assert net.contraction == pytest.approx(norms[0] * norms[1] + 0.3, rel=1e-10)
    assert network("rms", on_failure="raise").contraction == math.inf


def test_what_needs_one_layer_says_so():
    net, x = network("two", outputs=1), batch()
    for call in (
        lambda: net.effective_weights(),
        lambda: nn.certificate(net, x, x[:, 0]),
    ):
        with pytest.raises(InputError, match="one plain layer; the network has the cell DeepDEQ"):
            call()
    with pytest.raises(InputError, match=r"cell DeepDEQ.*no single cell.*nn\.replace"):
        nn.match_module(net, x)
    assert "DeepDEQ" in repr(net)


def test_warm_starts():
    net, x = network("layer"), batch()
    with torch.no_grad():
        z = net.equilibrium(x)
        cold = net.last_solve.iterations
        net.equilibrium(x, start=z)
    assert net.last_solve.iterations <= 2 < cold
    with pytest.raises(InputError, match="cut the graph"):
        network("layer", backward="unrolled")(x, start=z)
