"""Implicit gradients against unrolled ones and against finite differences, for every activation and solver."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep import nn
from notsodeep.nn.solvers import SOLVERS

ACTIVATIONS = {
    **{name: nsd.activation(name) for name in nsd.activation_names() if name != "piecewise_linear"},
    "leaky": nsd.activation("leaky_relu", a=1.0, b=-0.3),
    "bent": 1.5 * nsd.activation("piecewise_linear", kinks=[-0.5, 0.2, 0.9], slopes=[0.1, 1.0, 0.3, -0.2]) - 0.3,
    "stretched": 0.7 * nsd.activation("tanh").stretched(1.8) - 0.2,
    "callable": nsd.activation(np.arctan),
}


def network(phi: nsd.Activation, solver: str = "anderson", **options) -> nn.DEQNet:
    deq = nsd.DEQ(phi, recurrent=0.12 / phi.lipschitz**2, input=0.8, bias=0.1)
    settings = {"tol": 1e-13, "dtype": torch.float64, "seed": 3} | options
    return nn.DEQNet(deq, 4, 14, 2, solver=solver, **settings)


def batch() -> torch.Tensor:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x * torch.tensor([[0.01], [0.3], [1.0], [1.0], [2.0], [8.0]], dtype=torch.float64)


def loss(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    output = net(x)
    return (output**2).sum() + output[:, 0].sum()


def gradients(net: nn.DEQNet, x: torch.Tensor) -> dict[str, torch.Tensor]:
    x = x.clone().requires_grad_()
    names = [name for name, _ in net.named_parameters()]
    values = torch.autograd.grad(loss(net, x), [*net.parameters(), x])
    return dict(zip([*names, "x"], values, strict=True))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_implicit_gradients_are_the_unrolled_ones_and_the_finite_differences(name, solver):
    x = batch()
    net = network(ACTIVATIONS[name], solver)
    implicit = gradients(net, x)
    assert net.last_solve.converged
    assert net.last_solve.backward.converged
    assert net.last_solve.backward.solver == solver
    unrolled = gradients(network(ACTIVATIONS[name], backward="unrolled"), x)
    assert set(implicit) == {"recurrent", "input", "bias", "readout", "x"}
    generator = torch.Generator().manual_seed(1)
    step = 1e-6
    for key, value in implicit.items():
        scale = unrolled[key].abs().max()
        assert (value - unrolled[key]).abs().max() <= 1e-9 * scale, key
        direction = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        target = x if key == "x" else net.get_parameter(key)
        moved = []
        with torch.no_grad():
            for sign in (1, -1):
                target += sign * step * direction
                moved.append(float(loss(net, x)))
                target -= sign * step * direction
        slope = (moved[0] - moved[1]) / (2 * step)
        assert slope == pytest.approx(float((value * direction).sum()), rel=1e-6, abs=1e-6 * float(scale)), key


def test_samples_that_converge_early_leave_the_batch_and_keep_their_gradients():
    x = batch()
    x[:3] = 0  # without bias relu is at rest at once
    deq = nsd.DEQ("relu", recurrent=0.2, input=0.8)
    net = nn.DEQNet(deq, 4, 30, 1, tol=1e-13, dtype=torch.float64)
    together = gradients(net, x)
    counts = net.last_solve.sample_iterations
    assert counts[:3].tolist() == [1, 1, 1]
    assert int(counts[3:].min()) > 5
    for k in range(len(x)):
        torch.testing.assert_close(gradients(net, x[k : k + 1])["x"][0], together["x"][k], rtol=1e-9, atol=1e-12)


def test_phantom_gradients_approach_the_implicit_ones():
    x = batch()
    exact = gradients(network(ACTIVATIONS["tanh"]), x)["recurrent"]
    errors = []
    for steps in (1, 4, 30):
        phantom = gradients(network(ACTIVATIONS["tanh"], backward="phantom", phantom_steps=steps), x)["recurrent"]
        errors.append(float((phantom - exact).norm() / exact.norm()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[0] < 0.7
    assert errors[2] < 1e-9


def test_gradcheck_of_the_whole_network():
    net = network(ACTIVATIONS["gelu"], on_failure="raise")
    x = batch().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, A: torch.func.functional_call(net, {"recurrent": A}, (x,)), (x, net.recurrent)
    )


def test_second_derivatives_are_refused_by_implicit_and_given_by_unrolled():
    x = batch().requires_grad_()
    with pytest.raises(NotImplementedError, match='backward="unrolled"'):
        torch.autograd.grad(loss(network(ACTIVATIONS["tanh"]), x), x, create_graph=True)
    (first,) = torch.autograd.grad(loss(network(ACTIVATIONS["tanh"], backward="unrolled"), x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.isfinite().all()


def saved_bytes(backward: str, tol: float) -> int:
    total = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal total
        total += tensor.untyped_storage().nbytes()
        return tensor

    net = network(ACTIVATIONS["normalized_relu"], "picard", backward=backward, tol=tol)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss(net, batch())
    return total


def test_memory_of_the_implicit_backward_pass_does_not_grow_with_the_iterations():
    assert saved_bytes("implicit", 1e-13) == saved_bytes("implicit", 1e-2)
    assert saved_bytes("unrolled", 1e-13) > 3 * saved_bytes("unrolled", 1e-2)
