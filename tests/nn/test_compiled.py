"""Compiled cells have the states and gradients of the cells that were compiled, whatever the backend donates."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import pytest
import torch

from notsodeep import InputError, nn
from notsodeep.nn import compiled
from notsodeep.nn.cell_map import CellMap

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")  # dynamo asks for it
BACKENDS = [
    "eager",
    "aot_eager",
    pytest.param("inductor", marks=pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs a C++ compiler")),
]


class Residual(torch.nn.Module):
    """N(0.3 z + relu(W z/2 + U x))."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.W, self.U, self.N = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)

    def forward(self, z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.N(0.3 * z + torch.relu(0.5 * self.W(z) + self.U(x)))


class Monotone(torch.nn.Module):
    """relu((1 − α) z + α (W z + U x)), W = 0.8 − AᵀA + B − Bᵀ."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        draws = [torch.nn.Parameter(torch.randn(16, 16, generator=generator) / 16) for _ in range(3)]
        self.A, self.B, self.U = draws

    def forward(self, z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        W = 0.8 * torch.eye(16) - self.A.t() @ self.A + self.B - self.B.t()
        return torch.relu(0.5 * z + 0.5 * (z @ W.t() + x @ self.U.t()))


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.gates = torch.nn.GRUCell(16, 16)

    def forward(self, z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.gates(x, 0.5 * z)


CELLS: dict[str, type[torch.nn.Module]] = {"residual": Residual, "monotone": Monotone, "gated": Gated}


@pytest.fixture(autouse=True)
def fresh():
    """Neither graphs nor settings of other tests."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def batch(rows: int = 5) -> torch.Tensor:
    return torch.randn(rows, 16, generator=torch.Generator().manual_seed(1))


def gradients(deep: Any, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    state = deep(x)
    loss = (state.square() * torch.linspace(0.1, 1.0, 16)).sum() + state[:, 0].sum()
    return [state.detach(), *torch.autograd.grad(loss, [x, *deep.parameters()])]


def agree(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return all(
        float((one - other).abs().max()) <= 2e-4 * float(other.abs().max())
        for one, other in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CELLS)
def test_a_compiled_cell_is_trained(name, backend):
    cell = CELLS[name]()
    expected = gradients(nn.Equilibrium(cell, tol=1e-6), batch())
    deep = nn.Equilibrium(torch.compile(cell, backend=backend), tol=1e-6)
    assert agree(gradients(deep, batch()), expected)
    assert deep.last_solve.backward.converged
    assert agree(gradients(deep, batch()), expected)


@pytest.mark.parametrize("backend", ["aot_eager", BACKENDS[-1]])
def test_a_graph_that_was_compiled_elsewhere(backend, monkeypatch):
    """It has donated its buffers: a product takes a graph of its own."""
    cell = Monotone()
    x = batch(1)  # no sample leaves, hence no other graph
    expected = gradients(nn.Equilibrium(cell, tol=1e-6), x)
    fast = torch.compile(cell, backend=backend)
    fast(torch.zeros_like(x).requires_grad_(), x.clone().requires_grad_()).sum().backward()
    found = []
    once = CellMap.once
    monkeypatch.setattr(CellMap, "once", lambda *given: found.append(once(*given)) or found[-1])
    assert agree(gradients(nn.Equilibrium(fast, tol=1e-6), x), expected)
    assert found == [True]


def test_what_is_compiled_in_front_of_a_cell_may_donate():
    cell, encoder = Residual(), torch.compile(torch.nn.Sequential(Residual().N, torch.nn.GELU()), backend="aot_eager")
    seen = []
    deep = nn.Equilibrium(lambda z, x: seen.append(1) or cell(z, x), tol=1e-6, solver="picard")
    deep(encoder(batch(1).requires_grad_())).square().sum().backward()
    assert len(seen) == deep.last_solve.iterations  # no graph of its own for any product


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_newton_with_a_compiled_cell(backend):
    cell = Monotone()
    deep = nn.Equilibrium(torch.compile(cell, backend=backend), tol=1e-6, solver="newton")
    if backend == "eager":
        assert agree(gradients(deep, batch()), gradients(nn.Equilibrium(cell, tol=1e-6), batch()))
        return
    with pytest.raises(InputError, match=r"newton' differentiates f twice.*torch\.compile.*anderson") as caught:
        deep(batch())
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin")
def test_a_compiled_equilibrium():
    deep = nn.Equilibrium(Residual(), tol=1e-6)
    expected = gradients(deep, batch())
    assert agree(gradients(torch.compile(deep, backend="aot_eager"), batch()), expected)


@pytest.mark.parametrize("before", [True, False])
def test_settings_of_torch_are_put_back(before):
    from torch._functorch import config

    cell = torch.compile(Residual(), backend="aot_eager")
    with config.patch(donated_buffer=before):
        nn.Equilibrium(cell)(batch()).sum().backward()
        assert config.donated_buffer == before
        with pytest.raises(InputError, match="f returned shape"):
            nn.Equilibrium(lambda z, x: cell(z, x)[:, :2])(batch())
        assert config.donated_buffer == before


def test_without_dynamo_nothing_is_looked_at(monkeypatch):
    image = Residual()(batch(), batch())
    monkeypatch.delitem(sys.modules, "torch._dynamo")
    with compiled.keeping_buffers() as nothing:
        assert nothing is None
    assert not compiled.donates(image, [])
