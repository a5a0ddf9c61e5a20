"""The kernel in GPyTorch's exact processes, and in a loop of Bayesian optimisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
gpytorch = pytest.importorskip("gpytorch")

import notsodeep as nsd  # noqa: E402
from notsodeep import InputError  # noqa: E402
from notsodeep.gp import GPyTorchDEQKernel  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # of the two libraries
X = torch.tensor(np.random.default_rng(0).standard_normal((12, 3)))
Y = torch.sin(2 * X[:, 0])


class Process(gpytorch.models.ExactGP):  # type: ignore[misc]
    def __init__(self, kernel: Any) -> None:
        super().__init__(X, Y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean, self.kernel = gpytorch.means.ZeroMean(), kernel

    def forward(self, x: Any) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


@pytest.mark.parametrize("phi", ["relu", "erf"])
@pytest.mark.parametrize("kind", ["nngp", "ntk"])
def test_it_is_the_kernel(phi: str, kind: str) -> None:
    k = GPyTorchDEQKernel(phi, 0.5, 0.7, 0.25, kind).double()
    deq = nsd.DEQ(phi, 0.5, 0.7, 0.25)
    for name in ("recurrent", "input", "bias"):  # from float32
        k.set_variance(name, getattr(deq, name))
    np.testing.assert_allclose(k(X, X[:5]).to_dense().detach(), deq.kernel(X.numpy(), X.numpy()[:5], kind=kind), 1e-12)
    np.testing.assert_allclose(k(X, diag=True).detach(), deq.kernel_diag(X.numpy(), kind=kind), rtol=1e-12)
    batch = k(torch.stack([X, 2 * X])).to_dense()
    np.testing.assert_allclose(batch[1].detach(), deq.kernel(2 * X.numpy(), kind=kind), rtol=1e-11)


def test_a_batch_of_kernels() -> None:
    k = GPyTorchDEQKernel("relu", batch_shape=torch.Size([2])).double()
    k.set_variance("recurrent", torch.tensor([[[0.2]], [[0.5]]]))
    K = k(X).to_dense()
    one = nsd.DEQ("relu", 0.5, 1.0, 0.5)
    np.testing.assert_allclose(K[1].detach(), one.kernel(X.numpy(), kind="nngp"), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(k(X, diag=True).detach(), K.diagonal(dim1=-2, dim2=-1).detach(), rtol=1e-12)


def test_length_scales() -> None:
    k = GPyTorchDEQKernel("erf", ard_num_dims=3).double()
    k.lengthscale = torch.tensor([[1.0, 2.0, 4.0]])
    assert k.lengthscale.tolist()[0] == pytest.approx([1.0, 2.0, 4.0])
    scaled = k.model.kernel((X / k.lengthscale.detach()).numpy(), kind="nngp")
    np.testing.assert_allclose(k(X).to_dense().detach(), scaled, rtol=1e-10, atol=1e-12)


def test_an_exact_process_learns() -> None:
    prior = gpytorch.priors.GammaPrior(3.0, 3.0)
    process = Process(GPyTorchDEQKernel("relu", recurrent=0.5, input_prior=prior)).double()
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(process.likelihood, process)
    optimiser = torch.optim.Adam(process.parameters(), lr=0.1)
    losses = []
    for _ in range(15):
        optimiser.zero_grad()
        loss = -likelihood(process(X), Y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    process.eval()
    with torch.no_grad():
        found = process(X[:3] + 0.1)
    noise = process.likelihood.noise.item()
    K = process.kernel.model.kernel(X.numpy(), kind="nngp")
    cross = process.kernel.model.kernel(X.numpy()[:3] + 0.1, X.numpy(), kind="nngp")
    exact = cross @ np.linalg.solve(K + noise * np.eye(len(K)), Y.numpy())
    np.testing.assert_allclose(found.mean, exact, atol=1e-6)


def test_bayesian_optimisation() -> None:
    pytest.importorskip("botorch")
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf

    def goal(x: Any) -> Any:
        return -(x - 0.3).square().sum(-1, keepdim=True)

    torch.manual_seed(0)
    corners = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    points = torch.rand(5, 2, dtype=torch.float64) / 2 + 0.5
    values = goal(points)
    first = values.max().item()
    for _ in range(2):
        model = SingleTaskGP(points, values, covar_module=GPyTorchDEQKernel("relu"))
        likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": 10}})
        best = LogExpectedImprovement(model, values.max())
        x, _ = optimize_acqf(best, corners, q=1, num_restarts=2, raw_samples=8, options={"maxiter": 10})
        points, values = torch.cat([points, x]), torch.cat([values, goal(x)])
    assert values.max().item() > first


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match=r"use recurrent < 1\.9998"):
        GPyTorchDEQKernel("relu", recurrent=2.0)
    with pytest.raises(InputError, match="bias"):
        GPyTorchDEQKernel("relu", bias=0.0).set_variance("bias", 0.1)
