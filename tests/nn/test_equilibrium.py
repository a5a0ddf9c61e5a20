"""Equilibria of any cell: states, gradients against finite differences and unrolled graphs, and what is refused.

Also covers: nn/cell_map.py, nn/settling.py.
"""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from tests.examples import ROOT
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import notsodeep as nsd
from notsodeep import ConvergenceWarning, InputError, NotConvergedError, nn
from notsodeep.nn.solvers import SOLVERS


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Dense(torch.nn.Module):
    """tanh(W z + U x + b): states wider than inputs."""

    start = staticmethod(lambda rows: torch.zeros(rows, 7, dtype=torch.float64))
    x = staticmethod(lambda rows: draw(rows, 3, seed=1))

    def __init__(self) -> None:
        super().__init__()
        self.W = torch.nn.Parameter(draw(7, 7, scale=0.2))
        self.U = torch.nn.Parameter(draw(7, 3, seed=2))
        self.b = torch.nn.Parameter(draw(7, seed=3))

    def forward(self, z: Any, x: Any) -> Any:
        return torch.tanh(z @ self.W.t() + x @ self.U.t() + self.b)


class Image(torch.nn.Module):
    """A convolutional cell, state (batch, channels, height, width)."""

    start = staticmethod(lambda rows: torch.zeros(rows, 2, 4, 3, dtype=torch.float64))
    x = staticmethod(lambda rows: draw(rows, 1, 4, 3, seed=1))

    def __init__(self) -> None:
        super().__init__()
        self.W = torch.nn.Parameter(draw(2, 2, 3, 3, scale=0.12))
        self.U = torch.nn.Parameter(draw(2, 1, 3, 3, seed=2))

    def forward(self, z: Any, x: Any) -> Any:
        conv = torch.nn.functional.conv2d
        return torch.nn.functional.softplus(conv(z, self.W, padding=1) + conv(x, self.U, padding=1))


class Pair(torch.nn.Module):
    """Two scales that feed each other, a tuple of tensors of different shapes."""

    start = staticmethod(
        lambda rows: (torch.zeros(rows, 4, dtype=torch.float64), torch.zeros(rows, 2, 3, dtype=torch.float64))
    )
    x = staticmethod(lambda rows: draw(rows, 4, seed=1))

    def __init__(self) -> None:
        super().__init__()
        self.V = torch.nn.Parameter(draw(4, 4, scale=0.2))
        self.W = torch.nn.Parameter(draw(4, 6, scale=0.2, seed=2))

    def forward(self, z: Any, x: Any) -> Any:
        fine, coarse = z
        flat = coarse.flatten(1)
        return torch.sin(fine @ self.V + flat @ self.W.t() + x), torch.tanh(fine @ self.W + 1).reshape(coarse.shape)


class Block(torch.nn.Module):
    """Attention over five tokens, a residual and a normalisation."""

    start = staticmethod(lambda rows: torch.zeros(rows, 5, 4, dtype=torch.float64))
    x = staticmethod(lambda rows: draw(rows, 5, 4, seed=1))

    def __init__(self) -> None:
        super().__init__()
        self.W = torch.nn.Parameter(draw(3, 4, 4, scale=0.2))

    def forward(self, z: Any, x: Any) -> Any:
        q, k, v = (z @ one for one in self.W)
        mixed = torch.softmax(q @ k.transpose(1, 2) / 2, dim=2) @ v
        return torch.nn.functional.layer_norm(0.3 * z + mixed + 2 * x, (4,))


CELLS = {"dense": Dense, "image": Image, "pair": Pair, "block": Block}


def flat(state: Any) -> torch.Tensor:
    tensors = (state,) if isinstance(state, torch.Tensor) else state
    return torch.cat([one.flatten(1) for one in tensors], dim=1)


def loss(state: Any) -> torch.Tensor:
    row = flat(state)
    return (row**2).sum() + (row @ draw(row.shape[1], seed=9)).sum()


def settled(cell: Any, *shape: Any, **options: Any) -> nn.Equilibrium:
    return nn.Equilibrium(cell, *shape, **{"tol": 1e-13, "on_failure": "raise", **options})


def plain(cell: Any, z: Any, x: Any, steps: int = 300) -> Any:
    """The oracle: a loop without any stopping rule."""
    for _ in range(steps):
        z = cell(z, x)
    return z


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", CELLS)
def test_states_and_gradients_are_those_of_a_long_loop(name, solver):
    cell = CELLS[name]()
    x, start = cell.x(5).requires_grad_(), cell.start(5)
    deep = settled(cell, solver=solver)
    state = deep(x, start)
    expected = plain(cell, start, x)
    assert isinstance(state, tuple) == isinstance(start, tuple)
    torch.testing.assert_close(state, expected, rtol=1e-11, atol=1e-11)
    report = deep.last_solve
    assert report.converged
    row = flat(cell(state, x)).detach()
    measured = (row - flat(state).detach()).norm(dim=1) / row.norm(dim=1)
    assert (measured - report.residuals).abs().max() < 1e-14
    targets = [x, *cell.parameters()]
    found = torch.autograd.grad(loss(state), targets)
    assert report.backward.converged
    assert report.backward.solver == solver
    for one, other in zip(found, torch.autograd.grad(loss(expected), targets), strict=True):
        assert (one - other).abs().max() <= 1e-10 * other.abs().max()


@pytest.mark.parametrize("name", CELLS)
def test_gradients_are_finite_differences(name):
    cell = CELLS[name]()
    x, start = cell.x(2).requires_grad_(), cell.start(2)
    deep = settled(cell)
    names = [key for key, _ in cell.named_parameters()]

    def output(x, *values):
        found = torch.func.functional_call(deep, {f"f.{k}": v for k, v in zip(names, values, strict=True)}, (x, start))
        return flat(found) @ draw(flat(found).shape[1], seed=9)

    assert torch.autograd.gradcheck(output, (x, *cell.parameters()))


def test_second_derivatives_are_refused_by_implicit_and_given_by_unrolled():
    cell = Dense()
    x, start = cell.x(4).requires_grad_(), cell.start(4)

    def second(state):
        (first,) = torch.autograd.grad(loss(state), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), [x, *cell.parameters()])

    with pytest.raises(NotImplementedError, match='backward="unrolled"'):
        second(settled(cell)(x, start))
    found = second(settled(cell, backward="unrolled")(x, start))
    for one, other in zip(found, second(plain(cell, start, x, 80)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_function_needs_no_list_of_what_it_depends_on():
    inner, outer = draw(4, 4, scale=0.2).requires_grad_(), draw(4, seed=1).requires_grad_()
    scale, mask, x = torch.tensor(0.7, dtype=torch.float64).requires_grad_(), draw(6, 4, seed=2) > 0, draw(6, 4, seed=3)

    def cell(z, x, scale, options):
        return torch.tanh(scale * z @ inner * options["mask"] + x + outer)

    deep = settled(cell)
    arguments = (scale, {"mask": mask, "note": "kept"})
    found = torch.autograd.grad(loss(deep(x, None, *arguments)), [inner, outer, scale])
    z = torch.zeros_like(x)
    for _ in range(300):
        z = cell(z, x, *arguments)
    for one, other in zip(found, torch.autograd.grad(loss(z), [inner, outer, scale]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_unrolled_and_phantom_gradients(name):
    cell = CELLS[name]()
    x, start = cell.x(3).requires_grad_(), cell.start(3)
    exact = torch.autograd.grad(loss(settled(cell)(x, start)), [x, *cell.parameters()])
    unrolled = torch.autograd.grad(loss(settled(cell, backward="unrolled")(x, start)), [x, *cell.parameters()])
    errors = []
    for steps in (1, 5, 200):
        phantom = settled(cell, backward="phantom", phantom_steps=steps)(x, start)
        found = torch.autograd.grad(loss(phantom), [x, *cell.parameters()])
        errors.append(max(float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-9
    for one, other in zip(unrolled, exact, strict=True):
        assert (one - other).abs().max() <= 1e-9 * other.abs().max()


def test_samples_that_converge_early_leave_with_their_arguments():
    cell = Dense()
    x = cell.x(8)
    rows = []

    def watched(z, x, offset):
        rows.append(len(z))
        return cell(z, x + offset)

    with torch.no_grad():
        z0 = plain(cell, cell.start(8), x)
        z0[6:] = 0.0
        deep = settled(watched)
        state = deep(x, z0, torch.zeros(8, 1, dtype=torch.float64))
    assert rows[0] == 8
    assert 2 in rows
    assert deep.last_solve.sample_iterations[:6].tolist() == [1] * 6
    assert int(deep.last_solve.sample_iterations[6:].min()) > 5
    torch.testing.assert_close(state, plain(cell, cell.start(8), x), rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", ["batch normalisation", "held drive", "square mask"])
def test_a_cell_that_mixes_its_samples_keeps_its_batch(kind):
    cell, x = Dense(), Dense.x(8)
    drive, square = draw(8, 7, seed=4), draw(8, 8, seed=5).softmax(1)
    cells = {
        "batch normalisation": lambda z, x, s: cell(z - z.mean(0) / 2, x),
        "held drive": lambda z, x, s: torch.tanh(z @ cell.W.t() + drive),
        "square mask": lambda z, x, s: cell(0.5 * torch.tanh(s.sum(0)[:7] * z), x),
    }
    f = cells[kind]
    z0 = Dense.start(8)
    with torch.no_grad():
        expected = plain(lambda z, x: f(z, x, square), z0, x)
        z0[2:] = expected[2:]  # most samples have nearly converged
    deep = settled(f, tol=1e-12)
    state = deep(x, z0, square)
    torch.testing.assert_close(state, expected, rtol=0, atol=1e-11)
    found = torch.autograd.grad(loss(state), list(cell.parameters()), allow_unused=True)
    other = torch.autograd.grad(
        loss(plain(lambda z, x: f(z, x, square), z0, x)), list(cell.parameters()), allow_unused=True
    )
    torch.testing.assert_close(found[0], other[0], rtol=1e-9, atol=1e-9)


def test_a_warm_start_costs_less_and_is_left_alone():
    cell = Dense()
    x = cell.x(5)
    deep = settled(cell)
    with torch.no_grad():
        first = deep(x, cell.start(5))
        cold = deep.last_solve.iterations
        again = deep(x, first)
        assert deep.last_solve.iterations <= 2 < cold
        again += 1
        assert deep(x, first).sub(first).abs().max() < 1e-11


def test_unrolling_has_no_use_for_a_warm_start():
    cell = Dense()
    deep = settled(cell, backward="unrolled")
    z0 = plain(cell, cell.start(4), cell.x(4)).detach()
    with torch.no_grad():
        deep(cell.x(4), z0)
    assert deep.last_solve.iterations <= 2
    with pytest.raises(InputError, match="z0 would cut the graph"):
        deep(cell.x(4), z0)
    z0.requires_grad_()  # learned: the graph goes on behind it
    assert torch.autograd.grad(loss(settled(cell, backward="unrolled", tol=1e-3)(cell.x(4), z0 + 1)), z0)[0].any()


def test_unrolling_at_rest_still_has_a_graph():
    cell = Dense()
    with torch.no_grad():
        cell.b.zero_()
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    settled(cell, backward="unrolled", state_shape=(7,))(x).sum().backward()
    assert x.grad.any()


def test_the_start_has_the_shape_of_x_or_the_one_given():
    x = draw(3, 4)
    assert nn.Equilibrium(lambda z, x: 0.5 * z + x)(x).shape == (3, 4)
    assert nn.Equilibrium(Dense(), (7,))(Dense.x(2)).shape == (2, 7)
    with pytest.raises(RuntimeError) as caught:
        nn.Equilibrium(Dense())(Dense.x(2))
    assert "pass z0 or state_shape" in caught.value.__notes__[0]
    fine, coarse = nn.Equilibrium(Pair(), ((4,), (2, 3)))(Pair.x(2))
    assert (fine.shape, coarse.shape) == ((2, 4), (2, 2, 3))


def test_the_report_says_when_a_solve_fails():
    deep = nn.Equilibrium(lambda z, x: 2 * z + x, max_iter=5, solver="picard")
    with pytest.warns(ConvergenceWarning, match="forward solve did not converge for 3 of 3 samples"):
        deep(torch.ones(3, 2))
    assert not deep.last_solve.converged
    with pytest.raises(NotConvergedError):
        nn.Equilibrium(lambda z, x: 2 * z + x, max_iter=5, solver="picard", on_failure="raise")(torch.ones(3, 2))
    weight = torch.tensor(0.9, requires_grad=True)
    deep = nn.Equilibrium(lambda z, x: weight * z + x, solver="picard", backward_max_iter=3)
    state = deep(torch.ones(3, 2))
    with pytest.warns(ConvergenceWarning, match="backward"):
        state.sum().backward()
    assert not deep.last_solve.backward.converged


def test_autocast_does_not_touch_the_solve():
    """bfloat16 inputs of a float32 cell, as behind a layer under autocast."""
    layer, cell = torch.nn.Linear(3, 3), Dense().float()
    x = Dense.x(4).float()
    deep = nn.Equilibrium(cell, (7,), tol=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = layer(x)
        assert half.dtype == torch.bfloat16
        state = deep(half)
        assert state.dtype == torch.float32
        assert deep.last_solve.residual <= 1e-6
    state.sum().backward()
    expected = torch.autograd.grad(deep(half.float()).sum(), cell.W)[0]
    torch.testing.assert_close(cell.W.grad, expected, rtol=1e-4, atol=1e-5)
    assert layer.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_give_the_same_gradients_and_solve_once_more(reentrant):
    cell = Dense()
    x = cell.x(4).requires_grad_()
    calls = []

    def watched(z, x):
        calls.append(len(z))
        return cell(z, x)

    deep = settled(watched, state_shape=(7,))
    expected = torch.autograd.grad(loss(deep(x)), [x, *cell.parameters()])
    plainly = len(calls)
    calls.clear()
    loss(checkpoint(deep, x, use_reentrant=reentrant)).backward()
    assert len(calls) <= 2 * plainly + 3  # graphs of their own: a checkpoint replaces what a graph saves
    for one, other in zip([x, *cell.parameters()], expected, strict=True):
        torch.testing.assert_close(one.grad, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_the_last_evaluation_is_the_one_that_is_differentiated(name):
    cell = CELLS[name]()
    calls = []

    def watched(z, x):
        calls.append(torch.is_grad_enabled())
        return cell(z, x)

    x = cell.x(1).requires_grad_()
    deep = settled(watched, solver="picard", tol=1e-10)
    state = loss(deep(x, cell.start(1)))
    assert len(calls) == deep.last_solve.iterations
    assert sum(calls) <= 2
    assert calls[-1]
    found = torch.autograd.grad(state, [x, *cell.parameters()], retain_graph=True)
    assert len(calls) == deep.last_solve.iterations
    again = torch.autograd.grad(state, [x, *cell.parameters()])
    expected = torch.autograd.grad(loss(plain(cell, cell.start(1), x)), [x, *cell.parameters()])
    for one, same, other in zip(found, again, expected, strict=True):
        assert torch.equal(one, same)
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)


def test_without_anything_to_learn_there_is_no_graph():
    assert not settled(lambda z, x: torch.tanh(0.3 * z + x))(draw(4, 3)).requires_grad
    assert settled(lambda z, x: torch.tanh(0.3 * z + x))(draw(4, 3).requires_grad_()).requires_grad


def test_a_checkpoint_inside_the_cell():
    cell = Dense()
    x = cell.x(4).requires_grad_()
    inside = settled(lambda z, x: checkpoint(cell, z, x, use_reentrant=False), state_shape=(7,))
    found = torch.autograd.grad(loss(inside(x)), [x, *cell.parameters()])
    for one, other in zip(
        found, torch.autograd.grad(loss(settled(cell, state_shape=(7,))(x)), [x, *cell.parameters()]), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_memory_does_not_grow_with_the_iterations():
    def saved_bytes(tol):
        total = 0

        def pack(tensor):
            nonlocal total
            total += tensor.untyped_storage().nbytes()
            return tensor

        deep = settled(Dense(), tol=tol, solver="picard")
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            deep(Dense.x(6), Dense.start(6))
        return total

    assert saved_bytes(1e-13) == saved_bytes(1e-2)


def test_a_module_like_any_other():
    deep = nn.Equilibrium(Dense(), (7,), tol=1e-10)
    assert {name for name, _ in deep.named_parameters()} == {"f.W", "f.U", "f.b"}
    x = Dense.x(3)
    state = deep(x)
    twin = copy.deepcopy(deep)
    assert torch.equal(twin(x), state)
    with torch.inference_mode():
        torch.testing.assert_close(deep(x), state)
    assert not deep.eval().requires_grad_(False)(x).requires_grad
    assert "solver='anderson'" in repr(deep)
    compiled = nn.Equilibrium(torch.compile(Dense(), backend="eager"), (7,), tol=1e-10)
    torch.testing.assert_close(compiled(x), state)


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: torch.Tensor) -> torch.Tensor:
        return 0.5 * z

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return 0.5 * g


def test_what_a_cell_does_not_offer_is_named():
    x = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(InputError, match="newton' needs an f that can be differentiated twice"):
        nn.Equilibrium(lambda z, x: _Once.apply(z) + x, solver="newton")(x)
    state = nn.Equilibrium(lambda z, x: _Once.apply(z) + torch.sin(x))(x)
    (first,) = torch.autograd.grad(state.sum(), x)
    torch.testing.assert_close(first, 2 * torch.cos(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backward", ["implicit", "unrolled"])
def test_torch_func_unrolls_the_cell(backward):
    cell, x = Dense(), Dense.x(2)
    deep = settled(cell, (7,), backward=backward)
    expected = torch.autograd.grad(loss(deep(x.requires_grad_())), x)[0]
    x = x.detach()
    found = torch.func.grad(lambda x: loss(deep(x)))(x)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    assert deep.last_solve.converged
    twice = torch.func.jacrev(torch.func.grad(lambda x: loss(deep(x))))(x)
    hessian = torch.autograd.functional.hessian(lambda x: loss(plain(cell, cell.start(2), x, 80)), x)
    torch.testing.assert_close(twice, hessian, rtol=1e-8, atol=1e-8)
    many = torch.stack([x, 2 * x, -x])
    states = torch.func.vmap(deep)(many)
    torch.testing.assert_close(states, torch.stack([deep(one) for one in many]), rtol=1e-8, atol=1e-8)
    slope = torch.func.grad(lambda x: deep(x[None]).square().sum())
    per_sample, single = torch.func.vmap(slope)(x), torch.stack([slope(one) for one in x])
    torch.testing.assert_close(per_sample, single, rtol=1e-8, atol=1e-8)


def test_torch_func_takes_a_deq_net():
    net = nn.DEQNet(nsd.DEQ("tanh", 0.1, 0.8), 5, 20, 2, dtype=torch.float64, tol=1e-12)
    x = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    slopes = torch.func.vmap(torch.func.jacrev(net))(x)
    at = x.clone().requires_grad_()
    expected = torch.stack([torch.autograd.grad(net(at)[:, k].sum(), at)[0] for k in range(2)], dim=1)
    torch.testing.assert_close(slopes, expected, rtol=1e-8, atol=1e-9)


def half(z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return 0.5 * z + x


ROWS = {
    "overflow": (lambda z, x: 2 * z + x, torch.ones(3, 4), [False, False, False]),
    "NaN": (half, torch.tensor([[1.0, 2.0], [math.nan, 1.0], [3.0, 4.0]]), [True, False, True]),
    "at rest": (half, torch.zeros(3, 4), [True, True, True]),
    "faint": (half, torch.full((3, 4), 1e-30), [True, True, True]),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("transform", ["vmap", "grad", "vmap of grad", "vmap twice"])
def test_torch_func_tells_the_truth_row_by_row(transform, name):
    """As the eager unrolled solve does."""
    f, x, good = ROWS[name]
    deep = nn.Equilibrium(f, tol=1e-6, max_iter=300)
    run = {
        "vmap": lambda: torch.func.vmap(lambda x: deep(x[None])[0])(x),
        "grad": lambda: torch.func.grad(lambda x: deep(x).sum())(x),
        "vmap of grad": lambda: torch.func.vmap(torch.func.grad(lambda x: deep(x[None]).sum()))(x),
        "vmap twice": lambda: torch.func.vmap(torch.func.vmap(lambda x: deep(x[None])[0]))(x[:, None]),
    }[transform]
    if all(good):
        run()
    else:
        failed = f"{good.count(False)} of 3 samples.*residual inf.*inside torch.func.*only plain steps"
        with pytest.warns(ConvergenceWarning, match=failed):
            run()
    report = deep.last_solve
    assert report.converged == all(good)
    assert [one <= 1e-6 for one in report.residuals.tolist()] == good
    assert report.residuals[~torch.tensor(good)].isinf().all()
    eager = nn.Equilibrium(f, tol=1e-6, max_iter=300, backward="unrolled", on_failure="ignore")
    eager(x)
    torch.testing.assert_close(report.residuals, eager.last_solve.residuals, rtol=1e-3, atol=1e-9)


def test_a_network_inside_torch_func_sees_a_row_that_is_no_number():
    net = nn.DEQNet(nsd.DEQ("tanh", 0.1, 0.8), 4, 20, 2, max_iter=20)
    x = draw(3, 4).float()
    x[1, 2] = math.nan
    with pytest.warns(ConvergenceWarning, match="1 of 3 samples"):
        torch.func.vmap(net)(x)
    assert not net.last_solve.converged


@pytest.mark.parametrize("backward", ["implicit", "unrolled"])
@pytest.mark.parametrize("name", ["cell", "network"])
def test_forward_mode_is_the_jvp_of_torch_func(name, backward):
    net = nn.DEQNet(nsd.DEQ("tanh", 0.1, 0.8), 3, 90, dtype=torch.float64, backward=backward)
    deep = net if name == "network" else nn.Equilibrium(Dense(), (7,), tol=1e-10, backward=backward)
    x, direction = draw(4, 3), draw(4, 3, seed=1)
    expected = torch.func.jvp(deep, (x,), (direction,))
    for recorded in (True, False):
        with forward_ad.dual_level(), torch.set_grad_enabled(recorded):
            found = forward_ad.unpack_dual(deep(forward_ad.make_dual(x, direction)))
            torch.testing.assert_close(tuple(found), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_equilibrium_of_zero_is_found_from_elsewhere(solver):
    """Its residual is infinite at the last state before it, which need not be small."""
    x = torch.zeros(2, 3)
    deep = nn.Equilibrium(half, tol=1e-6, on_failure="raise", solver=solver)
    assert not deep(x, torch.ones(2, 3)).any()  # by underflow
    assert deep.last_solve.residual == 0
    clipped = nn.Equilibrium(lambda z, x: torch.relu(half(z, x)), tol=1e-6, on_failure="raise", solver=solver)
    starts = torch.tensor([[1.0], [3.0], [1e-20]]).requires_grad_()
    state = clipped(torch.tensor([[-1.0], [1.0], [-1e-25]]), starts)
    torch.testing.assert_close(state, torch.tensor([[0.0], [2.0], [0.0]]), rtol=1e-5, atol=0)
    assert clipped.last_solve.converged


def test_an_x_of_one_dimension_is_a_batch_of_numbers():
    deep = nn.Equilibrium(half, tol=1e-6)
    x = torch.arange(4.0)
    torch.testing.assert_close(deep(x), deep(x[:, None])[:, 0])
    assert deep(x).shape == (4,)
    assert len(deep.last_solve.residuals) == 4


def in_place(z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return z.mul_(0.5).add_(x)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.Equilibrium("relu"), "f='relu' must be a module or a function"),
        (lambda: nn.Equilibrium(Dense(), solver="andersen"), "solver='andersen' is not known; did you mean 'anderson'"),
        (lambda: nn.Equilibrium(Dense(), tolerance=1e-3), "Equilibrium has no option 'tolerance'; did you mean 'tol'"),
        (lambda: nn.Equilibrium(Dense(), max_iters=9), "did you mean 'max_iter'"),
        (lambda: nn.Equilibrium(Dense(), memroy=3), "no option 'memroy'; did you mean 'memory'"),
        (lambda: nn.Equilibrium(Dense(), tol=0.0), "tol=0.0 must be positive"),
        (lambda: nn.Equilibrium(Dense(), backward="explicit"), "backward='explicit' is not known"),
        (lambda: nn.Equilibrium(Dense(), "wide"), "state_shape='wide' must be the shape of one sample"),
        (
            lambda: nn.Equilibrium(Dense().float(), (7,), tol=1e-9)(torch.ones(2, 3)),
            "tol=1e-09 is below what torch.float32",
        ),
        (
            lambda: nn.Equilibrium(Dense().float(), (7,), backward_tol=1e-9)(torch.ones(2, 3)),
            "backward_tol=1e-09 is below",
        ),
        (lambda: nn.Equilibrium(lambda z, x: x[:, :2])(torch.ones(2, 3)), r"f returned shape \(2, 2\).*state_shape"),
        (lambda: nn.Equilibrium(lambda z, x: (z, x))(torch.ones(2, 3)), "f returned 2 entries"),
        (lambda: nn.Equilibrium(lambda z, x: x.double())(torch.ones(2, 3)), "f returned torch.float64"),
        (lambda: nn.Equilibrium(in_place)(torch.ones(2, 3)), "f changes its state in place"),
        (lambda: nn.Equilibrium(Dense())([1.0]), "pass z0"),
        (lambda: nn.Equilibrium(Dense())(torch.ones(2, 3), "zero"), "z0 is a str"),
        (lambda: nn.Equilibrium(half)(torch.ones(2, 3) * 1j), "x is torch.complex64, but complex.*not supported"),
        (
            lambda: nn.Equilibrium(half)(torch.ones(2, 3), torch.ones(2, 3) * 1j),
            "z0 has .* in torch.complex64, but complex.*not supported.*view_as_real",
        ),
        (
            lambda: nn.Equilibrium(half, (3,))(torch.ones(2, 3) * 1j),
            "f returned torch.complex64, but complex.*not supported",
        ),
        (lambda: nn.Equilibrium(Dense())(torch.ones(3, 0)), "not empty"),
        (lambda: nn.Equilibrium(Pair())(torch.ones(2, 4), (torch.ones(2, 4), torch.ones(3, 2))), "batch first"),
        (lambda: nn.Equilibrium(Pair())(torch.ones(2, 4), (torch.ones(2), torch.ones(2).double())), "one dtype"),
    ],
)
def test_bad_input_gets_one_line(build, message):
    with pytest.raises(InputError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


def test_no_samples_and_no_values_have_shapes_all_the_same():
    deep, pair = nn.Equilibrium(Dense(), (7,)), nn.Equilibrium(Pair(), ((4,), (2, 3)))
    deep(torch.ones(2, 3, dtype=torch.float64))
    empty = deep(torch.ones(0, 3, dtype=torch.float64))
    assert empty.shape == (0, 7)
    assert deep.last_solve is None
    empty.sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nn.Equilibrium(Dense().float(), (7,))(torch.ones(0, 3)).dtype == torch.float32
    assert [tuple(one.shape) for one in pair(torch.ones(0, 4, dtype=torch.float64))] == [(0, 4), (0, 2, 3)]
    there = nn.Equilibrium(Dense(), (7,)).to("meta")(torch.ones(5, 3, dtype=torch.float64, device="meta"))
    assert there.is_meta
    assert there.shape == (5, 7)


def test_arguments_by_name():
    """A gate of each sample by name is the same gate by position, and leaves the batch with its sample."""
    cell, x = Dense(), torch.randn(9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    gate = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None].requires_grad_()

    def gated(z, x, gate):
        return gate * cell(z, x)

    deep = nn.Equilibrium(gated, (7,), tol=1e-12)
    named, placed = deep(x, gate=gate), deep(x, torch.zeros(9, 7, dtype=torch.float64), gate)
    torch.testing.assert_close(named, placed, rtol=1e-10, atol=1e-10)
    grads = [torch.autograd.grad(one.square().sum(), gate)[0] for one in (named, placed)]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)
    with pytest.raises(TypeError, match="gaet"):
        deep(x, gaet=gate)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # dynamo asks for it
@pytest.mark.parametrize(
    "build", [lambda: nn.Equilibrium(Dense().float(), (7,)), lambda: nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 3, 8)]
)
def test_an_export_points_to_replace(build):
    with pytest.raises(NotImplementedError, match=r"nn\.replace\(module, X\)\.network"):
        torch.export.export(build(), (torch.ones(2, 3),))
    with pytest.raises(RuntimeError, match=r"fullgraph=True cannot record a solve.*nn\.replace\(module, X\)\.network"):
        torch.compile(build(), fullgraph=True, backend="eager")(torch.ones(2, 3))


def test_a_hard_linear_cell_has_the_exact_solution():
    """z = Wz + x, whose plain iteration diverges: (I − W)⁻¹ x and its gradient (I − W)⁻ᵀ g."""
    W = -1.6 * torch.eye(6, dtype=torch.float64) + draw(6, 6, scale=0.1)
    x = draw(5, 6, seed=1).requires_grad_()
    inverse = torch.linalg.inv(torch.eye(6, dtype=torch.float64) - W)
    for solver in ("anderson", "broyden", "newton"):
        deep = settled(lambda z, x: z @ W.t() + x, solver=solver, tol=1e-12)
        state = deep(x)
        torch.testing.assert_close(state, x @ inverse.t(), rtol=0, atol=1e-10 * math.sqrt(6))
        (found,) = torch.autograd.grad(state.sum(), x)
        torch.testing.assert_close(found, inverse.sum(0).expand(5, 6), rtol=0, atol=1e-10)


def test_integers_and_several_inputs_have_a_state_shape():
    cell = Dense().float()
    table = torch.nn.Embedding(4, 3)
    x, rows = draw(6, 3).float(), torch.arange(6) % 4
    deep = settled(lambda z, tokens: cell(z, table(tokens)), (7,), tol=1e-5)
    torch.testing.assert_close(deep(rows), settled(cell, (7,), tol=1e-5)(table(rows)))
    pair = settled(lambda z, both: cell(z, both["x"] + table(both["rows"])), (7,), tol=1e-5)
    torch.testing.assert_close(pair({"rows": rows, "x": x}), settled(cell, (7,), tol=1e-5)(x + table(rows)))
    with pytest.raises(InputError, match="no tensor with the batch first"):
        pair({"x": 3})


def test_several_gradients_at_once():
    x = draw(4, 3).requires_grad_()
    layer = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), 3, 90, 2, dtype=torch.float64, tol=1e-10)
    for deep in (settled(Dense(), (7,)), layer):
        with pytest.raises(NotImplementedError, match=r"one gradient at a time.*torch\.func\.jacrev"):
            torch.autograd.functional.jacobian(deep, x, vectorize=True)
    unrolled = settled(Dense(), (7,), backward="unrolled")
    plain = torch.autograd.functional.jacobian(unrolled, x)
    torch.testing.assert_close(torch.autograd.functional.jacobian(unrolled, x, vectorize=True), plain)
    torch.testing.assert_close(torch.func.jacrev(settled(Dense(), (7,)))(x), plain)


WORKER = """
import sys, torch
import torch.distributed as dist
from notsodeep import nn
from tests.nn.test_equilibrium import Dense, loss

rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
deep = torch.nn.parallel.DistributedDataParallel(nn.Equilibrium(Dense(), (7,), tol=1e-12))
loss(deep(Dense.x(8)[4 * rank : 4 * rank + 4])).backward()
if rank == 0:
    torch.save([value.grad for value in deep.parameters()], out)
dist.destroy_process_group()
"""


def test_two_processes_give_the_gradients_of_one(tmp_path):
    names = [str(tmp_path / "store"), str(tmp_path / "gradients.pt")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    commands = [[sys.executable, "-W", "ignore", "-c", WORKER, str(rank), *names] for rank in (0, 1)]
    workers = [subprocess.Popen(command, cwd=ROOT, env=environment) for command in commands]
    assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    deep = settled(Dense(), (7,))
    (loss(deep(Dense.x(8))) / 2).backward()  # the mean over both halves
    for one, other in zip(torch.load(names[1]), deep.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad, rtol=0, atol=1e-6 * float(other.grad.abs().max()))
