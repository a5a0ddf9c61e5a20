"""The infinite-width kernels against finite DEQs whose gradients come from automatic differentiation."""

from __future__ import annotations

import math

import numpy as np
import pytest

import notsodeep as nsd

torch = pytest.importorskip("torch")

WIDTH, SEEDS = 384, 48


def empirical(deq, X, seed):
    """(ck, ntk, ntk_frozen_input) of one random DEQ, by backpropagation through the iteration."""
    generator = torch.Generator().manual_seed(seed)
    n, p = X.shape

    def gaussian(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)

    A, B, b, a = gaussian(WIDTH, WIDTH), gaussian(WIDTH, p), gaussian(WIDTH), gaussian(WIDTH)
    drive = math.sqrt(deq.input) * X @ B.T + math.sqrt(deq.bias) * b
    phi = {"relu": torch.relu, "tanh": torch.tanh}[str(deq.activation).split("(")[0]]
    z = torch.zeros(n, WIDTH, dtype=torch.float64)
    for _ in range(45):  # contraction 2σ_a ≈ 0.57: 45 steps reach 1e-11
        z = (phi(math.sqrt(deq.recurrent) * z @ A.T + drive) - deq.activation.shift) / math.sqrt(WIDTH)
    gradients = [torch.autograd.grad((a * z[i]).sum(), (a, A, B, b), retain_graph=True) for i in range(n)]

    def gram(which):
        rows = torch.stack([torch.cat([g[k].reshape(-1) for k in which]) for g in gradients])
        return (rows @ rows.T).numpy()

    ck = (z @ z.T).detach().numpy()
    return ck, gram((0, 1, 2, 3)), gram((0, 1))


@pytest.mark.parametrize("name", ["relu", "tanh"])
@pytest.mark.parametrize("shift", [0.0, 0.2])
# covers: [Ling24] Prop. 2.6; [Ling24] Def. 2.1; [Ling24] Asm. 2.2; slides of [Ling24] Definition
# covers: slides of [Ling24] Implicit CK; slides of [Ling24] Implicit NTK; [FK20] Rem. 1; [FK20] NTK initialization
def test_mean_over_random_networks_agrees_within_its_standard_error(name, shift):
    torch.set_num_threads(1)
    deq = nsd.DEQ(nsd.activation(name) - shift, recurrent=0.08, input=0.7, bias=0.2)
    X = np.random.default_rng(3).standard_normal((3, 5)) / 2
    draws = [np.array(empirical(deq, torch.from_numpy(X), seed)) for seed in range(SEEDS)]
    mean, error = np.mean(draws, axis=0), np.std(draws, axis=0, ddof=1) / math.sqrt(SEEDS)
    exact = np.array(deq.kernel(X, kind=("ck", "ntk", "ntk_frozen_input")))
    deviation = np.abs(mean - exact) / error
    # 27 entries per case, half of them mirrored; the finite-width bias is O(1/width)
    assert deviation.max() < 4.5
    assert np.median(deviation) < 1.7
    # the standard error itself must be small enough to tell the kinds apart
    assert error.max() < 0.03 * np.abs(exact).max()


LAWS = {
    "sign": lambda rng, shape: rng.choice([-1.0, 1.0], shape),
    "uniform": lambda rng, shape: rng.uniform(-(3**0.5), 3**0.5, shape),
    "skewed": lambda rng, shape: rng.exponential(size=shape) - 1,
}


@pytest.mark.parametrize("law", LAWS)
# covers: [Ling24] Asm. 2.2
def test_weights_need_not_be_gaussian(law):
    """Any i.i.d. weights of mean 0 and variance 1 give the same CK, if the norm of x is spread over many features."""
    width, features = 300, 400
    X = np.random.default_rng(3).standard_normal((3, features)) / math.sqrt(features)
    deq = nsd.DEQ("relu", recurrent=0.1, input=0.8)
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        A, B = LAWS[law](rng, (width, width)), LAWS[law](rng, (width, features))
        z = np.zeros((3, width))
        for _ in range(30):
            z = np.maximum(math.sqrt(0.1) * z @ A.T + math.sqrt(0.8) * X @ B.T, 0) / math.sqrt(width)
        found.append(z @ z.T)
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(20)
    assert (np.abs(mean - deq.kernel(X)) / error).max() < 4.5
    assert error.max() < 0.05 * mean.max()
