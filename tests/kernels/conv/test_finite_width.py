"""Wide finite convolutional DEQs in PyTorch: their kernels scatter around the exact ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import notsodeep as nsd

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow


def network(x: torch.Tensor, W: torch.Tensor, U: torch.Tensor, model: nsd.ConvDEQ, steps: int) -> torch.Tensor:
    """x ← φ((σ_a W∗x + σ_b U∗x₀)/S) for images (n, channels, rows, columns); φ = relu, divided by √width."""
    width, half = W.shape[0], model.filter_size // 2
    conv = torch.nn.functional.conv2d
    ones = torch.ones(1, 1, *x.shape[2:], dtype=x.dtype)
    S = conv(ones, torch.ones(1, 1, model.filter_size, model.filter_size, dtype=x.dtype), padding=half).sqrt()
    drive = model.input**0.5 * conv(x, U, padding=half)
    z = torch.zeros(len(x), width, *x.shape[2:], dtype=x.dtype)
    for _ in range(steps):
        z = torch.relu((model.recurrent**0.5 * conv(z, W, padding=half) + drive) / S) / width**0.5
    return z


def draw(model: nsd.ConvDEQ, X: np.ndarray, width: int, seed: int, tangent: bool, pool: int = 1) -> np.ndarray:
    """The empirical ck, or ntk, of one network with f = Σ_α a_α·z_α, z averaged over blocks."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.tensor(np.moveaxis(X, 3, 1))
    size = (model.filter_size, model.filter_size)
    W = torch.randn(width, width, *size, generator=generator, dtype=x.dtype, requires_grad=tangent)
    U = torch.randn(width, x.shape[1], *size, generator=generator, dtype=x.dtype, requires_grad=tangent)
    z = torch.nn.functional.avg_pool2d(network(x, W, U, model, steps=12), pool)
    a = torch.randn(z.shape[1:], generator=generator, dtype=x.dtype)
    flat = z.detach().reshape(len(x), -1)
    ck = flat @ flat.T
    if not tangent:
        return ck.numpy()
    gradients = []
    for value in (z * a).sum(dim=(1, 2, 3)):
        parts = torch.autograd.grad(value, (W, U), retain_graph=True)
        gradients.append(torch.cat([part.reshape(-1) for part in parts]))
    G = torch.stack(gradients)
    return (ck + G @ G.T).numpy()


@pytest.mark.parametrize("kind", ["ck", "ntk"])
@pytest.mark.parametrize(("side", "options"), [(3, {}), (4, {"readout": "average_pool", "pool": 2})])
def test_random_networks(kind: str, side: int, options: dict[str, Any]) -> None:
    width, model = 64, nsd.ConvDEQ("relu", recurrent=0.3, input=0.8)
    X = np.random.default_rng(0).standard_normal((2, side, side, 2)) * 0.8
    X[0, 0] = 0
    sample = np.array([draw(model, X, width, seed, kind == "ntk", options.get("pool", 1)) for seed in range(20)])
    exact = model.kernel(X, kind=kind, **options)
    spread = sample.std(axis=0, ddof=1) / np.sqrt(len(sample))
    # a bias of order 1/width remains beside the standard error
    assert np.all(np.abs(sample.mean(axis=0) - exact) < 4 * spread + 0.5 / width * np.abs(exact).max())


def test_the_error_falls_with_the_root_of_the_width() -> None:
    model = nsd.ConvDEQ("relu", recurrent=0.3, input=0.8)
    X = np.random.default_rng(1).standard_normal((2, 3, 3, 2))
    exact = model.kernel(X, kind="ck")
    widths, errors = np.array([8, 16, 32, 64]), []
    for width in widths:
        samples = np.array([draw(model, X, int(width), seed, False) for seed in range(40)])
        errors.append(np.sqrt(np.mean((samples - exact) ** 2)))
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert -0.7 < slope < -0.3
