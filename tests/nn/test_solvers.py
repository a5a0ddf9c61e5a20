"""The solvers: they agree, they tell the truth, and each earns its place.

Also covers: nn/fixed_point.py.
"""

from __future__ import annotations

import math
import warnings

import pytest
import torch

import notsodeep as nsd
from notsodeep import nn
from notsodeep.checks import InputError, NotConvergedError
from notsodeep.convergence import ConvergenceWarning
from notsodeep.nn.fixed_point import relative_residuals, solve
from notsodeep.nn.implicit import Adjoint
from notsodeep.nn.solvers import SOLVERS, gmres, stepper

DEQ = nsd.DEQ("tanh", recurrent=0.2, input=0.8, bias=0.1)


def data(n: int = 12, p: int = 20, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(n, p, generator=torch.Generator().manual_seed(5), dtype=dtype) / math.sqrt(p)


def true_residual(net: nn.DEQNet, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """‖f(z) − z‖/‖f(z)‖ from the definition, in float64."""
    A, B, b = net.recurrent.double(), net.input.double(), net.bias.double()
    deq = net.deq
    u = z.double() @ A.t() * deq.recurrent**0.5 + x.double() @ B.t() * deq.input**0.5 + deq.bias**0.5 * b
    image = torch.as_tensor(deq.activation(u.detach().numpy())) / net.width**0.5
    return ((image - z.double()).norm(dim=1) / image.norm(dim=1)).detach()


@pytest.mark.parametrize("name", ["tanh", "normalized_relu", "gelu"])
def test_all_solvers_find_the_same_equilibrium(name):
    deq = nsd.DEQ(name, recurrent=0.1, input=0.8, bias=0.1)
    x = data()
    with torch.no_grad():
        found = {s: nn.DEQNet(deq, 20, 150, solver=s, tol=1e-12, dtype=torch.float64).equilibrium(x) for s in SOLVERS}
    for state in found.values():
        torch.testing.assert_close(state, found["picard"], rtol=0, atol=1e-11)


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-6), (torch.float64, 1e-11)])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_reported_residual_is_the_one_of_the_returned_state(solver, dtype, tol):
    net = nn.DEQNet(DEQ, 20, 150, solver=solver, tol=tol, dtype=dtype)
    x = data(dtype=dtype)
    measured = true_residual(net, x, net.equilibrium(x))
    report = net.last_solve
    assert report.converged
    assert report.residual <= tol
    noise = 20 * torch.finfo(dtype).eps
    assert (measured - report.residuals.double()).abs().max() <= noise


def linear(matrix: torch.Tensor, right: torch.Tensor) -> Adjoint:
    """The map w ↦ right + w matrix."""
    return Adjoint(matrix, right, 1.0, torch.ones_like(right))


def spectrum(eigenvalues: torch.Tensor, seed: int = 0) -> torch.Tensor:
    size = len(eigenvalues)
    q = torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))[0]
    return q @ torch.diag(eigenvalues) @ q.t()


@pytest.mark.parametrize("solver", ["anderson", "broyden", "newton"])
def test_acceleration_pays_where_plain_steps_are_slow(solver):
    values = torch.linspace(-0.3, 0.3, 40, dtype=torch.float64)
    values[-2:] = torch.tensor([0.97, -0.95])
    right = torch.randn(8, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    matrix = spectrum(values)
    exact = torch.linalg.solve(torch.eye(40, dtype=torch.float64) - matrix.t(), right.t()).t()
    plain = solve(linear(matrix, right), right, stepper("picard", {}), 1e-10, 2000)
    fast = solve(linear(matrix, right), right, stepper(solver, {}), 1e-10, 2000)
    assert plain.report.converged
    assert plain.report.iterations > 300
    assert fast.report.converged
    assert fast.report.iterations < 40
    torch.testing.assert_close(fast.state, exact, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("solver", ["anderson", "broyden", "newton"])
def test_linear_maps_that_plain_steps_cannot_solve(solver):
    values = torch.linspace(-0.5, 0.5, 30, dtype=torch.float64)
    values[0] = -1.6
    right = torch.randn(4, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain = solve(linear(spectrum(values), right), right, stepper("picard", {}), 1e-9, 300)
    assert not plain.report.converged
    if solver == "newton":
        assert solve(linear(spectrum(values), right), right, stepper(solver, {}), 1e-9, 300).report.converged
    report = solve(linear(spectrum(values), right), right, stepper(solver, {}), 1e-9, 300).report
    assert report.converged == (report.residual <= 1e-9)


def test_gmres_is_exact_after_as_many_steps_as_distinct_eigenvalues():
    values = torch.tensor([0.5, 0.5, -0.25, 2.0, 2.0, 3.0], dtype=torch.float64)
    matrix = spectrum(values)
    right = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    right[1] = 0
    calls = 0

    def operator(v: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return v @ matrix.t()

    solution = gmres(operator, right, 1e-12, 30)
    torch.testing.assert_close(solution @ matrix.t(), right, rtol=1e-10, atol=1e-10)
    assert calls <= 5


def test_newton_converges_quadratically():
    net = nn.DEQNet(nsd.DEQ("tanh", 0.24, 0.8), 20, 200, solver="newton", tol=1e-13, dtype=torch.float64)
    net(data())
    assert net.last_solve.iterations <= 6


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_warm_start_costs_less(solver):
    net = nn.DEQNet(DEQ, 20, 100, solver=solver, tol=1e-10, dtype=torch.float64)
    x = data()
    state = net.equilibrium(x)
    cold = net.last_solve.iterations
    net(x * (1 + 1e-6), start=state)
    assert net.last_solve.converged
    assert net.last_solve.iterations < cold
    net(x, start=state)
    assert net.last_solve.iterations == 1


@pytest.mark.parametrize("solver", SOLVERS)
def test_not_converging_is_never_silent(solver):
    x = data()
    net = nn.DEQNet(DEQ, 20, 60, solver=solver, tol=1e-12, max_iter=2, dtype=torch.float64)
    with pytest.warns(
        ConvergenceWarning, match=r"forward solve did not converge for 12 of 12 samples.*max_iter"
    ) as told:
        net(x)
    assert told[0].filename == __file__  # this line, not torch's or ours
    assert not net.last_solve.converged
    assert net.last_solve.iterations == 2
    strict = nn.DEQNet(DEQ, 20, 60, solver=solver, tol=1e-12, max_iter=2, on_failure="raise", dtype=torch.float64)
    with pytest.raises(NotConvergedError, match="forward"):
        strict(x)
    quiet = nn.DEQNet(DEQ, 20, 60, solver=solver, tol=1e-12, max_iter=2, on_failure="ignore", dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet(x)
    assert not quiet.last_solve.converged


def test_a_backward_solve_that_does_not_converge_is_not_silent_either():
    net = nn.DEQNet(DEQ, 20, 60, tol=1e-6, backward_tol=1e-12, backward_max_iter=2, dtype=torch.float64)
    output = net(data()).sum()
    with pytest.warns(ConvergenceWarning, match="backward"):
        output.backward()
    assert net.last_solve.converged
    assert not net.last_solve.backward.converged


@pytest.mark.parametrize("solver", SOLVERS)
def test_diverging_samples_are_reported_and_do_not_spoil_the_others(solver):
    deq = nsd.DEQ("identity", recurrent=0.2, input=0.8)
    net = nn.DEQNet(deq, 5, 40, solver=solver, tol=1e-10, on_failure="ignore", dtype=torch.float64, max_iter=12)
    with torch.no_grad():
        net.recurrent *= 6  # spectral radius well above 1
        net(data(3, 5))
        report = net.last_solve
        assert report.converged == (report.residual <= 1e-10)
        assert not (report.converged and solver == "picard")
        state = net.equilibrium(torch.zeros(3, 5, dtype=torch.float64))
    assert net.last_solve.converged  # zero is an equilibrium of the identity
    assert bool((state == 0).all())


def test_a_tolerance_below_the_resolution_is_refused():
    net = nn.DEQNet(DEQ, 20, 30, tol=1e-9, dtype=torch.float64).float()
    with pytest.raises(InputError, match=r"tol=1e-09 is below what torch.float32 resolves.*float64"):
        net(data(dtype=torch.float32))
    assert net.double()(data()).isfinite().all()


@pytest.mark.parametrize(
    ("solver", "options", "message"),
    [
        ("andersen", {}, "did you mean 'anderson'"),
        ("anderson", {"memori": 3}, "did you mean 'memory'"),
        ("picard", {"memory": 3}, "takes no options"),
        ("anderson", {"max_iters": 3}, "did you mean 'max_iter'"),
        ("anderson", {"backwards": "implicit"}, "did you mean 'backward'"),
        ("anderson", {"memory": 0}, "integer ≥ 1"),
        ("anderson", {"tol": -1.0}, "positive"),
        ("anderson", {"backward": "implict"}, "did you mean 'implicit'"),
        ("anderson", {"backward_solver": "newtonn"}, "did you mean 'newton'"),
        ("anderson", {"on_failure": "rise"}, "did you mean 'raise'"),
        ("anderson", {"initialization": "gauss"}, "did you mean 'gaussian'"),
        ("anderson", {"dtype": torch.float16}, "float32 or torch.float64"),
        ("anderson", {"seed": -1}, "integer ≥ 0"),
    ],
)
def test_misspelt_names_are_refused_with_the_nearest_one(solver, options, message):
    with pytest.raises(InputError, match=message):
        nn.DEQNet(DEQ, 5, 10, solver=solver, **options)


def rescaled_gradients(scale: float, **options) -> tuple[torch.Tensor, nn.DEQNet]:
    net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 5, 64, tol=1e-5, **options)
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(3))
    (net(x).sum() * scale).backward()
    return net.recurrent.grad / scale, net


@pytest.mark.parametrize("solver", ["picard", "anderson", "broyden", "newton"])
@pytest.mark.parametrize("scale", [1e-22, 1e24])
def test_gradients_do_not_depend_on_the_size_of_the_loss(solver, scale):
    expected, _ = rescaled_gradients(1.0, solver=solver)
    found, net = rescaled_gradients(scale, solver=solver)
    assert net.last_solve.backward.converged
    assert net.last_solve.backward.iterations > 1
    assert float((found - expected).norm() / expected.norm()) < 1e-4


@pytest.mark.parametrize("backward", ["implicit", "unrolled", "phantom"])
def test_faint_inputs_are_solved_too(backward):
    net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 5, 64, tol=1e-5, backward=backward)
    exact = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 5, 64, tol=1e-12, dtype=torch.float64)
    exact.load_state_dict(net.state_dict())
    x = 1e-25 * torch.randn(4, 5, generator=torch.Generator().manual_seed(3))
    found, expected = net.equilibrium(x).detach(), exact.equilibrium(x.double()).detach()
    assert net.last_solve.converged
    assert float(((found - expected) * 1e25).norm() / (expected * 1e25).norm()) < 1e-4


@pytest.mark.parametrize("backward", ["implicit", "unrolled"])
def test_divergence_is_never_called_convergence(backward):
    net = nn.DEQNet(
        nsd.DEQ("relu", 1.9, 0.8), 4, 20, seed=26, solver="picard", backward=backward, max_iter=400, on_failure="ignore"
    )
    net(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))
    assert not net.last_solve.converged
    assert net.last_solve.residual > 1e-3


def test_residuals_at_every_magnitude():
    image = torch.tensor([[3.0, 4.0]]) * torch.tensor([1.0, 1e-30, 1e30, 0.0, 1e-30])[:, None]
    step = torch.tensor([[0.3, 0.4]]) * torch.tensor([1.0, 1e-30, 1e30, 0.0, 1e10])[:, None]
    found = relative_residuals(image, step)
    torch.testing.assert_close(found[:3], torch.full((3,), 0.1))
    assert found[3] == 0
    assert found[4] > 1e30
    bad = torch.tensor([[1.0, torch.nan], [1.0, torch.inf], [0.0, 0.0]])
    assert relative_residuals(bad, torch.ones(3, 2)).tolist() == [torch.inf] * 3
    assert relative_residuals(torch.ones(3, 2), bad)[:2].isfinite().logical_not().all()


def test_unrolling_has_no_use_for_a_warm_start():
    net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 5, 32, backward="unrolled")
    x = torch.ones(2, 5)
    with torch.no_grad():
        start = net.equilibrium(x)
        assert net.equilibrium(x, start).shape == start.shape
    with pytest.raises(InputError, match="cut the graph"):
        net(x, start=start)


@pytest.mark.parametrize("backward", ["implicit", "unrolled", "phantom"])
@pytest.mark.parametrize("name", ["tol", "backward_tol"])
def test_a_tolerance_below_rounding_is_refused_at_once(backward, name):
    with pytest.raises(InputError, match=f"{name}=1e-09 is below"):
        nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 5, 32, backward=backward, **{name: 1e-9})


def test_the_phantom_residual_is_that_of_the_returned_state():
    net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 5, 64, tol=1e-2, backward="phantom", phantom_steps=2, solver="picard")
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(3))
    state = net.equilibrium(x) * 8
    weights = net.effective_weights()
    image = torch.tanh(state @ weights.W.t() + x @ weights.U.t())
    expected = (image - state).norm(dim=1) / image.norm(dim=1)
    torch.testing.assert_close(net.last_solve.residuals, expected.detach(), rtol=1e-3, atol=0)


def test_autocast_does_not_touch_the_solve():
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(3))
    gradients = []
    for enabled in (False, True):
        net = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 5, 64)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            state = net.equilibrium(x)
            assert state.dtype == torch.float32
            assert net.last_solve.converged
            (state**2).sum().backward()
        assert net.last_solve.backward.converged
        gradients.append(net.recurrent.grad)
    torch.testing.assert_close(*gradients)


def test_mixing_is_given_up_where_it_does_not_pay(monkeypatch):
    """The spectrum of orthogonal weights is a circle, on which no combination of iterates beats plain iteration."""
    mixed = []
    real = torch.linalg.solve_ex
    monkeypatch.setattr(torch.linalg, "solve_ex", lambda *arguments: mixed.append(1) or real(*arguments))
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(60, 60, generator=generator, dtype=torch.float64))[0]
    x = torch.randn(8, 60, generator=generator, dtype=torch.float64)
    cells = {"orthogonal": lambda z, x: 0.8 * z @ Q.t() + x, "one slow direction": None}
    slow = torch.diag(torch.cat([torch.tensor([0.99]), torch.linspace(0, 0.5, 59)])).double()
    cells["one slow direction"] = lambda z, x: z @ slow + x
    counts = {}
    for name, cell in cells.items():
        mixed.clear()
        for solver in ("anderson", "picard"):
            deep = nn.Equilibrium(cell, solver=solver, tol=1e-9, max_iter=3000)
            deep(x)
            assert deep.last_solve.converged
            counts[name, solver] = deep.last_solve.iterations
        counts[name, "mixed"] = len(mixed)
    assert counts["orthogonal", "mixed"] <= 6
    assert counts["orthogonal", "anderson"] <= counts["orthogonal", "picard"] + 6
    assert counts["one slow direction", "anderson"] < 0.1 * counts["one slow direction", "picard"]


@pytest.mark.parametrize("width", [128, 256])
def test_mixing_is_given_up_later_too(monkeypatch, width):
    """Where tanh saturates the first mixed steps pay, and near the solution none does."""
    mixed = []
    real = torch.linalg.solve_ex
    monkeypatch.setattr(torch.linalg, "solve_ex", lambda *arguments: mixed.append(1) or real(*arguments))
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
    x = torch.randn(128, width, generator=generator) / 16
    counts = {}
    for solver in ("picard", "anderson"):
        deep = nn.Equilibrium(lambda z, x: torch.tanh(0.9 * z @ Q.t() + x), solver=solver, tol=1e-5)
        deep(x)
        assert deep.last_solve.converged
        counts[solver] = deep.last_solve.iterations
    assert counts["anderson"] <= counts["picard"]
    assert len(mixed) < 0.3 * counts["anderson"]


def test_mixing_begins_again_with_an_empty_memory(monkeypatch):
    """Plain steps are as good until one slow direction is left; uninitialised memory is NaN here."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    generator = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(60, 60, generator=generator, dtype=torch.float64))[0]
    W = torch.block_diag(0.5 * Q, torch.tensor([[0.95]], dtype=torch.float64))
    x = torch.randn(8, 61, generator=generator, dtype=torch.float64)
    x[:, -1] *= 1e-4
    exact = torch.linalg.solve(torch.eye(61, dtype=torch.float64) - W, x.t()).t()
    deep, plain = (
        nn.Equilibrium(lambda z, x: z @ W.t() + x, solver=solver, tol=1e-9, max_iter=500)
        for solver in ("anderson", "picard")
    )
    torch.use_deterministic_algorithms(True)
    try:
        state = deep(x)
    finally:
        torch.use_deterministic_algorithms(False)
    plain(x)
    # ‖(I − W)⁻¹‖ ≤ 20
    assert (state - exact).norm(dim=1).max() <= 20 * 1e-9 * exact.norm(dim=1).max()
    assert deep.last_solve.iterations < 0.4 * plain.last_solve.iterations
