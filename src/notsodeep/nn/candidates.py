"""Networks that might replace a module: designed ones, plain ones of the same size, and a few steps of its own cell.

All are ``torch.nn.Sequential``, end in a linear readout, and take flat standardised rows x̃ = (x − μ)/s;
`Candidate.plain` makes them take samples x again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.activations import Activation
from notsodeep.checks import InputError
from notsodeep.matching import Match, SphereMatch, match
from notsodeep.models import DEQ, Explicit
from notsodeep.nn.networks import ExplicitNet
from notsodeep.nn.plain_cell import PlainCell
from notsodeep.nn.sequential import folded, plain_sequential, traced
from notsodeep.nn.unrolled import unrolled
from notsodeep.one_layer import match_on_sphere

__all__ = ["Candidate", "Scale", "candidates", "fit_readout", "unrolled_candidates"]

STEPS = (1, 2, 4)  # of the cell, as they are
TRAINED_STEPS = (2, 3, 4)
UNROLLED = (1, 2, 3)  # steps of a cell of any other form, as they are and trained
_CLOSE = 0.01  # distance of a design on the sphere that needs no more kinks
_RIDGES = (1e-7, 1e-5, 1e-3)


@dataclass(frozen=True)
class Scale:
    """x̃ = (x − μ)/s of flattened samples, s being one number; integers for tables remain what they are."""

    mean: Tensor  # (p,)
    spread: float
    tokens: bool = False

    @staticmethod
    def of(samples: Tensor) -> Scale:
        rows = samples.flatten(1).float()
        mean = rows.mean(0)
        spread = float((rows - mean).square().mean().sqrt())
        return Scale(mean, spread if spread > 0 else 1.0, not samples.is_floating_point())

    def __call__(self, samples: Tensor) -> Tensor:
        return samples if self.tokens else (samples.flatten(1).float() - self.mean) / self.spread

    @torch.no_grad()
    def standardise(self, layer: nn.Linear) -> None:
        """Make a layer for x one for x̃."""
        layer.bias.add_(layer.weight @ self.mean)
        layer.weight.mul_(self.spread)

    @torch.no_grad()
    def fold_back(self, layer: nn.Linear) -> None:
        """Make a layer for x̃ one for x."""
        layer.weight.div_(self.spread)
        layer.bias.sub_(layer.weight @ self.mean)


@dataclass(frozen=True)
class Candidate:
    """A network for x̃.

    Attributes
    ----------
    name : str
    family : {"designed", "plain", "cell"}
    network : nn.Sequential
    trained : bool
        All its weights are to be trained; otherwise its readout alone is fitted.
    """

    name: str
    family: str
    network: nn.Sequential
    trained: bool

    @property
    def first(self) -> nn.Linear:
        """The layer that takes x̃."""
        return next(one for one in self.network.modules() if isinstance(one, nn.Linear))

    def plain(self, scale: Scale, flat: bool) -> list[nn.Module]:
        """Its layers for samples as they are, which are rows if `flat`."""
        if scale.tokens:
            return list(self.network)
        if isinstance(self.network[0], Unscaled):
            return list(self.network)[1:]
        scale.fold_back(self.first)
        return list(self.network) if flat else [nn.Flatten(1), *self.network]


class Unscaled(nn.Module):
    """x of the module's own shape, from x̃."""

    def __init__(self, scale: Scale, shape: Sequence[int]) -> None:
        super().__init__()
        self.scale, self.shape = scale, tuple(shape)

    def forward(self, rows: Tensor) -> Tensor:
        return (rows * self.scale.spread + self.scale.mean).reshape(-1, *self.shape)


def unrolled_candidates(
    module: Any, samples: Tensor, scale: Scale, outputs: int, notes: list[str]
) -> Iterator[Candidate]:
    """The module itself with a few steps in place of its equilibrium, and an affine map of its outputs."""
    try:
        for trained in (False, True):
            for steps in UNROLLED:
                core = unrolled(module, steps, samples[:3])
                readout = nn.Linear(outputs, outputs, device=samples.device)
                before = [] if scale.tokens else [Unscaled(scale, samples.shape[1:])]
                layers = nn.Sequential(*before, core, readout)
                yield Candidate(_steps_of_the_cell(steps) + (", trained" if trained else ""), "cell", layers, trained)
    except InputError as error:
        notes.append(f"No steps of the cell were tried: {error}.")


def _steps_of_the_cell(steps: int) -> str:
    return "1 step of the cell" if steps == 1 else f"{steps} steps of the cell"


def candidates(
    cell: PlainCell | None, scale: Scale, tau0: float, width: int, outputs: int, seed: int, notes: list[str]
) -> Iterator[Candidate]:
    """All candidates; `notes` collects why some are missing."""
    inputs, dtype = len(scale.mean), scale.mean.dtype
    for depth, design in _designs(cell, tau0, notes):
        bare = Explicit(design.network.activations)  # no Sequential normalises rows and multiplies by their norm
        net = ExplicitNet(bare, inputs, width, outputs, seed=seed, dtype=dtype)
        for trained in (False, True):
            layers = plain_sequential(net)
            name = f"designed, {_layers(depth)}" + ("" if trained else ", random features")
            found = Candidate(name, "designed", layers, trained)
            scale.standardise(found.first)
            yield found
    kinds: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "leaky relu": lambda: nn.LeakyReLU(0.1)}
    own = None if cell is None else _module(cell.phi, width, dtype)
    if own is not None and cell is not None and str(cell.phi) != "relu(x)":
        phi = cell.phi
        kinds[str(phi)] = lambda: _module(phi, width, dtype) or nn.Tanh()
    for name, unit in kinds.items():
        for depth in (1, 2):
            network = _plain(unit, depth, inputs, width, outputs, dtype, seed)
            yield Candidate(f"{name}, {_layers(depth)}", "plain", network, True)
    if cell is None:
        return
    try:
        for steps in STEPS:
            yield Candidate(_steps_of_the_cell(steps), "cell", _steps(cell, steps, outputs, scale), False)
        for steps in TRAINED_STEPS:
            network = _steps(cell, steps, outputs, scale)
            yield Candidate(f"{steps} steps of the cell, trained", "cell", network, True)
    except InputError as error:
        notes.append(f"no steps of the cell: {error}")


def _layers(depth: int) -> str:
    return "one layer" if depth == 1 else "two layers"


def _designs(cell: PlainCell | None, tau0: float, notes: list[str]) -> Iterator[tuple[int, Match | SphereMatch]]:
    """The designed networks: one layer for rows on a sphere, with few kinks, and two layers for centred mixtures."""
    if cell is None:
        return
    deq = cell.deq
    try:
        single = _one_layer(deq, tau0)
        yield 1, single
        if isinstance(single, SphereMatch):  # otherwise one layer has all four numbers
            yield 2, match(deq, tau0=tau0, kind="ck", depth=2)
    except (InputError, ValueError, ArithmeticError) as error:
        notes.append(f"no further designed network: {error}")


def _one_layer(deq: DEQ, tau0: float) -> Match | SphereMatch:
    """A hard tanh where it is exact, as for odd φ; elsewhere one kink, or three, for the kernel on the sphere."""
    if not deq.bias and deq.activation.odd:
        found = match(deq, tau0=tau0, kind="ck", depth=1)
        if found.exact:
            return found
    single = match_on_sphere(deq, tau0, "ck", kinks=1)
    return single if single.distance <= _CLOSE else match_on_sphere(deq, tau0, "ck", kinks=3)


def _module(phi: Activation, width: int, dtype: torch.dtype) -> nn.Module | None:
    """φ as one module without factors, or None."""
    try:
        found = folded(phi, width, dtype)
    except InputError:
        return None
    plain = (found.before, found.offset, found.after, found.constant) == (1.0, 0.0, 1.0, 0.0)
    return found.modules[0] if plain and len(found.modules) == 1 else None


def _plain(
    unit: Callable[[], nn.Module], depth: int, inputs: int, width: int, outputs: int, dtype: torch.dtype, seed: int
) -> nn.Sequential:
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for k in range(depth):
            layer = nn.Linear(inputs if k == 0 else width, width, dtype=dtype)
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
            layers += [layer, unit()]
        return nn.Sequential(*layers, nn.Linear(width, outputs, dtype=dtype))


class _Steps(nn.Module):
    """g ← φ(W g + d(x)), a few times from g = φ(d)."""

    def __init__(self, drive: nn.Linear, recurrent: nn.Linear, phi: nn.Sequential, steps: int) -> None:
        super().__init__()
        self.drive, self.recurrent, self.phi, self.steps = drive, recurrent, phi, steps

    def forward(self, x: Tensor) -> Tensor:
        drive = self.drive(x)
        g = self.phi(drive)
        for _ in range(self.steps - 1):
            g = self.phi(self.recurrent(g) + drive)
        return g


@torch.no_grad()
def _steps(cell: PlainCell, steps: int, outputs: int, scale: Scale) -> nn.Sequential:
    """A few steps of the cell, with h = after·g + constant folded into its weights."""
    m, dtype = cell.width, scale.mean.dtype
    phi = folded(cell.phi, m, dtype)
    drive, recurrent = nn.Linear(cell.inputs, m, dtype=dtype), nn.Linear(m, m, bias=False, dtype=dtype)
    drive.weight.copy_(phi.before * cell.U)
    shift = phi.constant * cell.W.sum(1) + (0.0 if cell.b is None else cell.b)
    drive.bias.copy_(phi.before * shift + phi.offset)
    recurrent.weight.copy_(phi.before * phi.after * cell.W)
    scale.standardise(drive)
    core = traced(_Steps(drive, recurrent, nn.Sequential(*phi.modules), steps))
    return nn.Sequential(core, nn.Linear(m, outputs, dtype=dtype))


@torch.no_grad()
def fit_readout(network: nn.Sequential, rows: Tensor, targets: Tensor, held: tuple[Tensor, Tensor]) -> None:
    """Fit the last layer to `targets` by ridge regression; the ridge is the best of a few on `held`."""
    body, readout = network[:-1], network[-1]
    assert isinstance(readout, nn.Linear)
    parts = [body(part).double() for part in rows.split(4096)]
    mean, centre = torch.cat(parts).mean(0), targets.double().mean(0)
    gram = sum(((part - mean).t() @ (part - mean) for part in parts), torch.zeros((), dtype=torch.float64))
    right = sum(
        ((part - mean).t() @ (t.double() - centre) for part, t in zip(parts, targets.split(4096), strict=True)),
        torch.zeros((), dtype=torch.float64),
    )
    features, goal = body(held[0]).double() - mean, held[1].double() - centre
    size = float(gram.diagonal().mean()) or 1.0
    best = math.inf
    for ridge in _RIDGES:
        damped = gram + ridge * size * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        weights = torch.linalg.solve(damped, right)
        error = float((features @ weights - goal).square().mean())
        if error < best or ridge == _RIDGES[0]:
            best = error
            readout.weight.copy_(weights.t())
            readout.bias.copy_(centre - mean @ weights)
