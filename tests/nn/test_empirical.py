"""Empirical kernels against automatic differentiation, and against their infinite-width limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import notsodeep as nsd
from notsodeep import nn
from notsodeep.checks import InputError


def inputs(n: int, p: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, p, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) / p**0.5


def autodiff_kernel(net: torch.nn.Module, X: torch.Tensor, Y: torch.Tensor, names: set[str]) -> torch.Tensor:
    """Mean over outputs of ⟨∇f_k(x), ∇f_k(y)⟩, one backward pass for each sample and output."""

    def rows(points: torch.Tensor) -> list[list[torch.Tensor]]:
        result = []
        for x in points:
            output = net(x[None])[0]
            chosen = [value for name, value in net.named_parameters() if name.split(".")[0] in names]
            result.append(
                [torch.cat([g.ravel() for g in torch.autograd.grad(v, chosen, retain_graph=True)]) for v in output]
            )
        return result

    left, right = rows(X), rows(Y)
    return torch.stack(
        [torch.stack([sum(a @ b for a, b in zip(r, s, strict=True)) / len(r) for s in right]) for r in left]
    )


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("ck", {"readout"}),
        ("ntk", {"readout", "recurrent", "input", "bias"}),
        ("ntk_frozen_input", {"readout", "recurrent"}),
    ],
)
@pytest.mark.parametrize("bias", [0.0, 0.2])
def test_deq_kernels_are_the_gradients_of_the_unrolled_network(kind, names, bias):
    deq = nsd.DEQ("gelu", recurrent=0.15, input=0.8, bias=bias)
    net = nn.DEQNet(deq, 5, 24, 2, tol=1e-13, backward="unrolled", dtype=torch.float64)
    X, Y = inputs(4, 5), inputs(3, 5, seed=1)
    torch.testing.assert_close(
        nn.empirical_kernel(net, X, kind, Y), autodiff_kernel(net, X, Y, names), rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("outputs", [1, 3])
def test_explicit_kernels_are_the_jacobians_of_torch_func(outputs):
    net = nn.ExplicitNet(nsd.Explicit(["tanh", "leaky_relu", "gelu"]), 5, [16, 20, 12], outputs, dtype=torch.float64)
    X = inputs(4, 5)
    parameters = {name: value.detach() for name, value in net.named_parameters()}
    jacobians = torch.func.jacrev(lambda p: torch.func.functional_call(net, p, (X,)))(parameters)
    flat = torch.cat([jacobian.flatten(2) for jacobian in jacobians.values()], dim=2)
    expected = torch.einsum("nop,kop->nk", flat, flat) / outputs
    torch.testing.assert_close(nn.empirical_kernel(net, X, "ntk"), expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(nn.empirical_kernel(net, X), net.features(X) @ net.features(X).t())


@pytest.mark.parametrize("kind", ["ck", "ntk", "ntk_frozen_input"])
def test_the_mean_over_random_networks_is_the_infinite_width_kernel(kind):
    deq = nsd.DEQ("tanh", recurrent=0.2, input=0.8, bias=0.1)
    X = inputs(4, 6)
    limit = deq.kernel(X.numpy(), kind=kind)
    draws = np.stack(
        [
            nn.empirical_kernel(
                nn.DEQNet(deq, 6, 400, 4, seed=seed, tol=1e-6, on_failure="ignore"), X.float(), kind
            ).numpy()
            for seed in range(24)
        ]
    )
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - limit) < 4.5 * error + 0.004 * np.abs(limit).max()).all()


def test_unknown_kinds_and_modules_are_refused():
    explicit = nn.ExplicitNet(nsd.Explicit(["tanh"]), 5, 8)
    with pytest.raises(InputError, match="kind='ntk_frozen_input' is not known"):
        nn.empirical_kernel(explicit, torch.zeros(1, 5), "ntk_frozen_input")
    with pytest.raises(InputError, match="must be a DEQNet or an ExplicitNet"):
        nn.empirical_kernel(torch.nn.Linear(2, 2), torch.zeros(1, 2))


def test_everything_stays_on_the_device_of_the_network():
    net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 5, 32, backward="implicit")
    x = torch.ones(3, 5)
    with torch.device("meta"):  # a tensor made without naming its device lands there
        kernel = nn.empirical_kernel(net, x, kind="ntk")
        net(x)
    assert kernel.device == x.device
    assert net.last_solve.sample_iterations.device == x.device
