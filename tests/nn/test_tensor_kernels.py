"""Kernels as tensors: the compiled engine's numbers, and derivatives against finite differences of that engine.

Also covers: nn/cosines.py, nn/duals.py, nn/learnable_kernel.py, nn/pairs.py, nn/tensor_tiles.py, nn/zonal.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import notsodeep as nsd  # noqa: E402
from notsodeep import InputError, nn  # noqa: E402
from notsodeep.kinds import requested_kinds  # noqa: E402

TIGHT = {torch.float64: 1e-12, torch.float32: 5e-6}
NAMES = ("recurrent", "input", "bias")
MODELS = {
    "relu": nsd.DEQ("relu", 0.2, 0.8),
    "relu near its limit": nsd.DEQ("normalized_relu", 0.97, 0.5, 0.1),
    "leaky relu": nsd.DEQ(nsd.activation("leaky_relu", b=0.2), 0.6, 0.8, 0.3),
    "abs": nsd.DEQ("abs", 0.6, 0.8),
    "identity": nsd.DEQ("identity", 0.6, 0.8),
    "centred relu": nsd.DEQ("relu", 0.2, 0.8).centered(1.0),
    "erf": nsd.DEQ("erf", 0.4, 0.8),
    "sin": nsd.DEQ("sin", 0.4, 0.8, 0.3),
    "shifted cos": nsd.DEQ(1.2 * nsd.activation("cos") - 0.3, 0.2, 0.8),
    "gaussian": nsd.DEQ("gaussian", 0.4, 0.8, 0.3),
    "gelu": nsd.DEQ("gelu", 0.4, 0.8),
    "one layer": nsd.Explicit(["relu"]),
    "three layers": nsd.Explicit(["relu", "gelu", "erf"], bias=[0.1, 0.2, 0.3]),
    "normalised rows": nsd.Explicit(["abs", "relu"], normalize=2.0),
    "erf near its limit": nsd.DEQ("erf", 0.78, 0.05),
    "cell near its limit": nsd.DeepDEQ([nsd.Layer("relu", 1.3, 0.2), nsd.Layer("relu", 3.0, 0.1)]),
    "cell": nsd.DeepDEQ([nsd.Layer("relu", 0.5, 0.7), nsd.Layer("leaky_relu", 0.6, 0.4)]),
    "normalised cell": nsd.DeepDEQ([nsd.Layer("relu", 0.5, 0.7, normalize="layer"), nsd.Layer("gelu", 0.3, 0.4, 0.1)]),
}
CASES = [(name, kind) for name, model in MODELS.items() for kind in model.kinds]


def some(*quick: tuple[str, str]) -> list[Any]:
    """All cases, those not named being slow."""
    return [pytest.param(*case, marks=() if case in quick else pytest.mark.slow) for case in CASES]


FEW = [("relu", "ntk"), ("leaky relu", "ntk_injected"), ("centred relu", "ck"), ("erf", "ntk"), ("gelu", "nngp")]
FEW += [("three layers", "ntk"), ("normalised rows", "ck"), ("cell", "ntk"), ("normalised cell", "ntk")]
FEW += [("relu near its limit", "ntk_frozen_input"), ("shifted cos", "ntk"), ("gaussian", "ck"), ("sin", "ntk")]


def samples() -> Any:
    """Rows of many norms: some identical, opposite, parallel, nearly identical and nearly opposite."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((14, 5))
    X[1], X[3], X[5] = X[0], -X[2], 2 * X[4]
    X[7], X[9] = X[6] + 1e-6 * X[8], -X[8] + 1e-6 * X[6]
    return X


def relative(model: Any, kind: str, found: Any, X: Any, Y: Any) -> float:
    """Error of a kernel, measured in √(K_ii K_jj)."""
    exact = model.kernel(X, Y, kind=kind, dtype="float64")
    size = np.sqrt(np.multiply.outer(*(model.kernel_diag(Z, kind=kind) for Z in (X, X if Y is None else Y))))
    return float(np.max(np.abs(found.double().numpy() - exact) / size))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(("name", "kind"), some(*FEW, *(case for case in CASES if case[1] == "ntk")))
def test_tiles_have_the_numbers_of_the_engine(name: str, kind: str, dtype: Any) -> None:
    model, X = MODELS[name], torch.tensor(samples(), dtype=dtype)
    Y = X[3:9] * 1.5
    assert relative(model, kind, nn.kernel(model, X, kind=kind, tile=4), X.numpy(), None) < TIGHT[dtype]
    assert relative(model, kind, nn.kernel(model, X, Y, kind=kind, tile=5), X.numpy(), Y.numpy()) < TIGHT[dtype]


@pytest.mark.parametrize("phi", ["tanh", "hard_tanh"])
@pytest.mark.parametrize("kind", ["ck", "ntk"])
def test_any_activation_on_a_sphere(phi: str, kind: str) -> None:
    model, X = nsd.DEQ(phi, 0.4, 0.8, 0.2), np.random.default_rng(1).standard_normal((12, 5))
    X *= 1.3 / np.linalg.norm(X, axis=1, keepdims=True)
    X[1] = -X[0]
    found = nn.kernel(model, torch.tensor(X), kind=kind, tile=5)
    assert relative(model, kind, found, X, None) < 2e-11  # what the engine accepts of polynomials on intervals
    raw = torch.tensor(X[2:6], requires_grad=True)

    def normalised(raw: Any) -> Any:
        return nn.kernel(model, 1.3 * raw / raw.norm(dim=-1, keepdim=True), kind=kind)

    assert torch.autograd.gradcheck(normalised, raw, eps=1e-6, atol=1e-6, fast_mode=True)


def leaves(model: Any) -> dict[str, Any]:
    """The variances above 0, as tensors."""
    if isinstance(model, nsd.Explicit):
        found = {"bias": list(model.bias)}
    else:
        several = isinstance(model, nsd.DeepDEQ)
        found = {n: [getattr(x, n) for x in model.layers] if several else getattr(model, n) for n in NAMES}
    tensors = {name: torch.tensor(v, dtype=torch.float64, requires_grad=True) for name, v in found.items()}
    return {name: value for name, value in tensors.items() if bool((value > 0).all())}


def rows() -> Any:
    """A few rows, two of which are 1e-4 apart."""
    X = torch.tensor(np.random.default_rng(2).standard_normal((4, 3)))
    return torch.cat([X, X[:1] + 1e-4 * X[1:2]]).requires_grad_()


@pytest.mark.parametrize(("name", "kind"), some(*FEW))
def test_first_derivatives(name: str, kind: str) -> None:
    model, given = MODELS[name], leaves(MODELS[name])

    def function(X: Any, *values: Any) -> Any:
        return nn.kernel(model, X, kind=kind, variances=dict(zip(given, values, strict=True)), tile=2)

    assert torch.autograd.gradcheck(function, (rows(), *given.values()), eps=1e-7, atol=1e-6, rtol=1e-5, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("phi", ["relu", "leaky relu"])
@pytest.mark.parametrize("kind", nsd.DEQ.kinds)
def test_the_compiled_gradient_is_that_of_pairs(phi: str, kind: str, dtype: Any) -> None:
    """Two ways to the same gradient; with a graph of its own it is computed pair by pair, in float64."""
    given = {name: value.detach().to(dtype).requires_grad_() for name, value in leaves(MODELS[phi]).items()}
    X, weight = torch.tensor(samples(), dtype=dtype), torch.tensor(np.random.default_rng(5).standard_normal((14, 14)))
    X[1] += 0.1  # identical and opposite rows have a cone
    X[3] += 0.1
    if dtype == torch.float32:  # rows 1e-6 apart differ by rounding
        X[7] += 1e-2 * X[8]
        X[9] += 1e-2 * X[6]
    for Y in (None, X[4:9] * 1.5 + 0.2):
        inputs = [X.requires_grad_(), *([] if Y is None else [Y.detach().requires_grad_()]), *given.values()]
        K = nn.kernel(MODELS[phi], X, None if Y is None else inputs[1], kind=kind, variances=given, tile=5)
        w = weight[:, : K.shape[1]].to(dtype)
        found = torch.autograd.grad(K, inputs, w, retain_graph=True)
        exact = torch.autograd.grad(K, inputs, w, create_graph=True)
        for one, other in zip(found, (value.detach() for value in exact), strict=True):
            size = float(other.abs().max()) + 1
            torch.testing.assert_close(one, other, rtol=0, atol=100 * TIGHT[dtype] * size)


@pytest.mark.parametrize(("name", "kind"), some(("relu", "ck"), ("erf", "ntk"), ("cell", "ntk")))
def test_second_derivatives(name: str, kind: str) -> None:
    model, given = MODELS[name], leaves(MODELS[name])
    X = rows()
    X, Y = (part.detach().requires_grad_() for part in (X[:2], X[2:4]))

    def function(X: Any, Y: Any, *values: Any) -> Any:
        return nn.kernel(model, X, Y, kind=kind, variances=dict(zip(given, values, strict=True)), tile=9)

    assert torch.autograd.gradgradcheck(function, (X, Y, *given.values()), atol=1e-5, rtol=1e-4, fast_mode=True)


@pytest.mark.parametrize(("phi", "kind"), [*(("relu", kind) for kind in nsd.DEQ.kinds), ("erf", "ntk")])
def test_derivatives_in_the_variances_are_those_of_the_engine(phi: str, kind: str) -> None:
    X, start = samples()[8:], {"recurrent": 0.5, "input": 0.7, "bias": 0.2}
    weight = np.random.default_rng(3).standard_normal((len(X), len(X)))
    tensors = {name: torch.tensor(v, dtype=torch.float64, requires_grad=True) for name, v in start.items()}
    K = nn.kernel(nsd.DEQ(phi, **start), torch.tensor(X), kind=kind, variances=tensors)
    found = torch.autograd.grad((K * torch.tensor(weight)).sum(), list(tensors.values()))
    for name, value in zip(start, found, strict=True):
        step = 1e-5
        high, low = (nsd.DEQ(phi, **{**start, name: start[name] + s}).kernel(X, kind=kind) for s in (step, -step))
        assert float(value) == pytest.approx(np.sum(weight * (high - low)) / (2 * step), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize(("name", "kind"), some(*(case for case in CASES if case[1] == "ntk")))
def test_gradients_are_finite_at_identical_opposite_and_zero_rows(name: str, kind: str) -> None:
    model, X = MODELS[name], samples()
    if not (isinstance(model, nsd.DeepDEQ) and any(layer.normalize for layer in model.layers)):
        X[-1] = 0.0  # a normalised layer refuses it
    X = torch.tensor(X, requires_grad=True)
    given = leaves(model)
    K = nn.kernel(model, X, kind=kind, variances=given)
    for gradient in torch.autograd.grad(K.sum(), [X, *given.values()]):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["relu", "erf", "cell", "one layer"])
def test_batches(name: str) -> None:
    model, X = MODELS[name], torch.tensor(np.random.default_rng(4).standard_normal((3, 2, 4, 5)))
    Y = X[:, :1, :2] + 1
    K = nn.kernel(model, X, Y, kind="ntk")
    assert K.shape == (3, 2, 4, 2)
    torch.testing.assert_close(K[2, 1], nn.kernel(model, X[2, 1], Y[2, 0], kind="ntk"), rtol=1e-12, atol=1e-13)


def test_a_batch_of_variances() -> None:
    X = torch.tensor(samples()[8:])
    recurrent = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64, requires_grad=True)
    K = nn.kernel(nsd.DEQ("relu", 0.2, 0.8), X, kind="ntk", variances={"recurrent": recurrent})
    for value, found in zip(recurrent.tolist(), K, strict=True):
        assert relative(nsd.DEQ("relu", value, 0.8), "ntk", found.detach(), X.numpy(), None) < 1e-12
    (gradient,) = torch.autograd.grad(K[1].sum(), recurrent)
    assert gradient[1] > 0
    assert gradient[0] == gradient[2] == 0


def test_the_derivative_in_a_bias_of_zero() -> None:
    X = torch.tensor(samples()[8:])
    bias = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(nn.kernel(nsd.DEQ("relu", 0.2, 0.8), X, variances={"bias": bias}).sum(), bias)
    high, low = (nsd.DEQ("relu", 0.2, 0.8, b).kernel(X.numpy()).sum() for b in (2e-6, 0.0))
    assert float(found) == pytest.approx((high - low) / 2e-6, rel=1e-4)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_on_a_device(device: str) -> None:
    if not getattr(torch, "mps" if device == "mps" else "cuda").is_available():
        pytest.skip(f"no {device} device")
    X = torch.tensor(samples(), dtype=torch.float32)
    for model in (MODELS["relu"], MODELS["erf"]):
        there = X.to(device).requires_grad_()
        K = nn.kernel(model, there, kind="ntk")
        assert relative(model, "ntk", K.detach().cpu(), X.numpy(), None) < 1e-4
        assert torch.isfinite(torch.autograd.grad(K.sum(), there)[0]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: nn.kernel(nsd.DEQ("relu", 0.2, 0.8), X.numpy()), "float32 or float64 tensor"),
        (lambda X: nn.kernel(nsd.DEQ("relu", 0.2, 0.8), X, kind="nkt"), "ntk"),
        (lambda X: nn.kernel(nsd.DEQ("relu", 0.2, 0.8), X, X[:, :2]), "features"),
        (lambda X: nn.kernel(nsd.DEQ("relu", 0.2, 0.8), X, X.float()), "convert one"),
        (lambda X: nn.kernel(nsd.DEQ("tanh", 0.2, 0.8), X.requires_grad_()), "rows of equal norm"),
        (lambda X: nn.kernel(nsd.DEQ("relu", 0.2, 0.8), X, variances={"recurent": X}), "recurrent"),
        (lambda X: nn.kernel(nsd.DEQ("relu", 0.2, 0.8), X, variances={"recurrent": 0.1}), r"torch\.tensor\(0\.1\)"),
        (lambda X: nn.kernel(nsd.DEQ("relu", 0.2, 0.8), X, variances={"recurrent": torch.tensor(2.5)}), "well-posed"),
        (lambda X: nn.kernel(nsd.DEQ("relu", 0.2, 0.8), X / 0), "NaN"),
        (lambda X: nn.kernel(nsd.Explicit(["relu"] * 2), X, variances={"bias": torch.tensor(0.1)}), "the 2 layers"),
    ],
)
def test_bad_input_is_one_line(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        call(torch.tensor(samples()))
    assert "\n" not in str(error.value)


def test_a_kernel_that_learns_stays_well_posed() -> None:
    k = nn.DEQKernel("relu", recurrent=0.2, input=0.8, bias=0.1, kind="ntk", dtype=torch.float64)
    assert k.model == nsd.DEQ("relu", 0.2, 0.8, 0.1)
    X = torch.tensor(samples())
    optimiser = torch.optim.SGD(k.parameters(), lr=1.0)
    for _ in range(5):  # as large a kernel as can be, with enormous steps
        optimiser.zero_grad()
        (-k(X).sum()).backward()
        optimiser.step()
    assert k.model.well_posed.infinite_width
    assert k.model.recurrent > 1.9
    assert torch.isfinite(k(X)).all()


def test_learned_variances_come_back() -> None:
    """A kernel that was made with other variances is found again by least squares."""
    X = torch.tensor(samples()[8:])
    target = nn.kernel(nsd.DEQ("erf", 0.5, 0.6, 0.2), X)
    k = nn.DEQKernel("erf", recurrent=0.2, input=0.8, bias=0.4, dtype=torch.float64)
    optimiser = torch.optim.LBFGS(k.parameters(), max_iter=60, tolerance_grad=1e-13, tolerance_change=1e-15,
                                  line_search_fn="strong_wolfe")  # fmt: skip

    def loss() -> Any:
        optimiser.zero_grad()
        value = ((k(X) - target) ** 2).sum()
        value.backward()
        return value

    optimiser.step(loss)
    assert [k.model.recurrent, k.model.input, k.model.bias] == pytest.approx([0.5, 0.6, 0.2], rel=1e-4)


def test_what_a_learnable_kernel_refuses() -> None:
    with pytest.raises(InputError, match=r"use recurrent < 1\.9998"):
        nn.DEQKernel("relu", recurrent=2.0, input=1.0)
    with pytest.raises(InputError, match="recurrent"):
        nn.DEQKernel("relu", recurrent=0.2, input=1.0, learnable=["recurent"])
    assert [n for n, _ in nn.DEQKernel("relu", 0.2, 1.0, 0.3, learnable=["bias"]).named_parameters()] == ["raw_bias"]
    assert requested_kinds(nsd.DEQ("relu", 0.2, 0.8), nn.DEQKernel("relu", 0.2, 1.0).kind) == ("ck",)
