"""Match the explicit network to a user's own DEQ module, and measure on its inputs whether the match holds."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from notsodeep.activations import Activation
from notsodeep.checks import InputError, UnknownOptionError, choice, count, nearest, seeded
from notsodeep.display import card
from notsodeep.gaussian import moments
from notsodeep.kinds import Kind
from notsodeep.matching import Match, SphereMatch, match
from notsodeep.models import DEQ
from notsodeep.nn.empirical import empirical_kernel
from notsodeep.nn.epochs import History
from notsodeep.nn.initialization import spectral_norm
from notsodeep.nn.networks import DEQNet, ExplicitNet
from notsodeep.nn.observation import (
    changed,
    departure,
    evaluating,
    module_inputs,
    module_outputs,
    multiplied,
    unwrapped,
)
from notsodeep.nn.plain_cell import FORM, PlainCell, plain_cell
from notsodeep.nn.training import fit

__all__ = ["Assumption", "ModuleMatch", "match_module"]


_SET_HERE = ("net", "X", "y", "epochs", "loss", "seed")  # set by match_module itself when it calls fit
_ROWS = 300  # on which kernels are compared
_WIDE = 1 << 14  # units of a random network that stands for its limit, to about 1 %
_DRAWS = 8  # fresh networks that show how the kernels of random DEQs of this width spread
_COMPARED = 3  # of them, whose kernels are compared with that of the design
_EQUATION = 0.02  # largest relative residual of the equation at the state of a module whose solver still moves
_ROUNDING = 4.0  # the same in units of the precision, where it does not
_SETTLED = 1e-4  # the same, at least
_AFFINE = 1e-3  # largest departure of the outputs from an affine map of the state, relative to their spread
_CHANCE = 6.0  # standard deviations
_FEWEST = 5  # rows whose off-diagonal kernel entries are looked at
_CENTRED = 0.05  # largest |E φ|/√Var φ for which the design for centred networks is used


@dataclass(frozen=True)
class Assumption:
    """One assumption of the theory, measured: ``value ≤ limit``."""

    name: str
    value: float
    limit: float
    meaning: str

    @property
    def holds(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        mark = "ok  " if self.holds else "FAIL"
        return f"{mark} {self.name} = {self.value:.4g} (limit {self.limit:.4g}): {self.meaning}"


@dataclass(frozen=True)
class ModuleMatch:
    """The explicit equivalent of a module, and how far the theory applies to it.

    Attributes
    ----------
    network : ExplicitNet
        Fresh weights, or distilled ones.
    match : Match or SphereMatch
        The design. `match.reference` is the DEQ whose kernel it has.
    deq : DEQ
        φ unchanged and the measured σ_a², σ_b², σ_0².
    tau0 : float
        Root mean squared norm of the inputs.
    norm : float
        ‖W‖.
    equation : float
        ‖φ(W h + U x + b) − h‖/‖h‖ at the module's own state h; inf if no state was seen.
    distance : float
        ‖K̂ − K‖/‖K‖ on the inputs: the kernel K of the module with its present weights, and K̂ of the design.
    assumptions : tuple of Assumption
        Both measurements, and how the weights look.
    distillation : History or None
    """

    network: ExplicitNet
    match: Match | SphereMatch
    deq: DEQ
    tau0: float
    norm: float
    equation: float
    distance: float
    assumptions: tuple[Assumption, ...]
    distillation: History | None = None

    @property
    def trustworthy(self) -> bool:
        """Every assumption holds."""
        return all(one.holds for one in self.assumptions)

    def __str__(self) -> str:
        lines = [f"{self.deq} at tau0 = {self.tau0:.4g}, ‖W‖ = {self.norm:.4g}", f"→ {self.match.network}"]
        lines += [f"  {one}" for one in self.assumptions]
        hint = "not trustworthy: nn.replace(module, X) trains and measures networks instead of trusting the theory"
        return "\n".join(lines if self.trustworthy else [*lines, hint])

    def _repr_html_(self) -> str:
        rows = [
            (f"{one.meaning}: {one.name}", f"{one.value:.4g}", f"{one.limit:.4g}", "yes" if one.holds else "no")
            for one in self.assumptions
        ]
        verdict = (self.trustworthy, "all assumptions hold" if self.trustworthy else "an assumption fails")
        notes = [f"{self.deq} at τ0 = {self.tau0:.4g}, ‖W‖ = {self.norm:.4g}", f"→ {self.match.network}"]
        return card("ModuleMatch", rows, header=("assumption", "value", "limit", "holds"), verdict=verdict, notes=notes)


def match_module(
    module: torch.nn.Module | Mapping[str, Any],
    X: Any,
    *,
    weight: Tensor | None = None,
    input_weight: Tensor | None = None,
    bias: Tensor | None = None,
    activation: str | Activation | Callable[[Any], Any] | None = None,
    kind: str = "ck",
    on: str | None = None,
    width: int | None = None,
    out_features: int | None = None,
    seed: int | np.random.Generator = 0,
    distill: int = 0,
    **options: Any,
) -> ModuleMatch:
    """Measure σ_a² = ‖W‖_F²/m, σ_b² = ‖U‖_F²/(mp), σ_0² = ‖b‖²/m of h = φ(Wh + Ux + b); match the DEQ they describe.

    The module is called on X. The equation is evaluated at its own state, its kernel on X is compared with that of
    the design, and its outputs are asked for at other states, on which they must depend by an affine map: a module of
    another form, or with weights that are not random, is not `trustworthy`.
    :func:`notsodeep.nn.replace` takes any module.

    Parameters
    ----------
    module : DEQNet, nn.Module or mapping
        Anything with matrices ``W`` (m×m), ``U`` (m×p) and an activation ``phi`` (optionally
        a vector ``b``), its own or of a submodule; attributes may themselves be ``nn.Linear``. The state of a mapping
        is solved for here.
    X : Tensor, array or sparse matrix, (n, p)
        Inputs as the network receives them; images are flattened for the design.
    weight, input_weight, bias, activation
        The same given explicitly, for modules that use other names.
    kind : str
        The kernel to match.
    on : {"mixture", "sphere"}, optional
        The design, see :func:`notsodeep.match`. By default the one for centred networks where φ is centred and there
        is no bias, and one layer on the sphere elsewhere.
    width, out_features, seed
        Of the explicit network; by default m, and the number of outputs of the module.
    distill : int
        Epochs of training the explicit network on the module's outputs at `X`.
    **options
        Passed to :func:`fit` when distilling (``lr``, ``batch_size``, …).

    Returns
    -------
    ModuleMatch

    Examples
    --------
    >>> import torch
    >>> import notsodeep as nsd
    >>> from notsodeep import nn
    >>> deep = nn.DEQNet(nsd.DEQ("tanh", 0.2, 0.8), in_features=100, width=400)
    >>> found = nn.match_module(deep, torch.randn(50, 100) / 10)
    >>> found.trustworthy, found.match.exact, found.network.explicit.depth
    (True, True, 1)
    """
    known = [name for name in inspect.signature(fit).parameters if name not in _SET_HERE]
    for name in options:
        if name not in known:
            raise UnknownOptionError(
                f"match_module has no option {name!r}{nearest(name, known)} (fit takes {', '.join(known)})"
            )
    if count(distill, "distill", minimum=0) == 0 and options:
        raise InputError(f"{sorted(options)} belong to distillation; pass distill=<epochs> as well")
    seed = seeded(seed)
    module = unwrapped(module)
    with evaluating(module):  # spectral norms change their vectors otherwise
        cell = plain_cell(module, weight, input_weight, bias, activation)
    X = module_inputs(module, X)
    cell.check_inputs(X)
    rows = X.flatten(1).to(cell.W.dtype)
    squared = (rows.double() ** 2).sum(1)
    tau0 = math.sqrt(float(squared.mean()))
    deq = cell.deq
    design = _designed(deq, tau0, kind, on)
    few = X[: min(_ROWS, len(X))]
    state, equation = cell.observed(module, few)
    distance, usual, chance = _distances(cell, deq, design, few.flatten(1).to(cell.W.dtype), state, seed)
    norm = spectral_norm(cell.W)
    allowed, readout = _seen(cell, module, few)
    measured = (
        Assumption("‖φ(Wh + Ux + b) − h‖/‖h‖", equation, allowed, f"the module's state solves {FORM}"),
        *readout,
        Assumption("kernel distance on X", distance, usual, "the design has the module's kernel, up to finite width"),
        Assumption("kernel on X, in σ", chance, _CHANCE, "h·h' looks as for random weights of this width"),
    )
    outputs = module_outputs(module, X) if callable(module) and (out_features is None or distill) else None
    network = ExplicitNet(
        design.network,
        cell.inputs,
        cell.width if width is None else width,
        out_features if out_features is not None else 1 if outputs is None else outputs.shape[1],
        seed=seed,
        dtype=rows.dtype,
    )
    history = None
    if distill:
        if outputs is None:
            raise InputError("distill needs a module that can be called on X; these are only weights")
        history = fit(network, rows, outputs.to(rows.dtype), loss="squared", epochs=distill, seed=seed, **options)
    assumptions = (*measured, *_assumptions(cell, deq, norm, squared, design))
    return ModuleMatch(network, design, deq, tau0, norm, equation, distance, assumptions, history)


def _designed(deq: DEQ, tau0: float, kind: str, on: str | None) -> Match | SphereMatch:
    if on is not None:
        choice(on, ("mixture", "sphere"), "on")
    try:
        if on is None:
            on = "sphere" if deq.bias or _off_centre(deq, tau0) > _CENTRED else "mixture"
        if on == "mixture":
            return match(DEQ(deq.activation, deq.recurrent, deq.input), tau0=tau0, kind=kind)
        return match(deq, tau0=tau0, kind=kind, on="sphere")
    except InputError as error:
        if deq.well_posed.infinite_width.holds:
            raise
        raise InputError(
            f"the measured {deq} has no infinite-width limit ({error}): the theory is for random weights of smaller "
            "variance; nn.replace(module, X) takes any module"
        ) from None


def _off_centre(deq: DEQ, tau0: float) -> float:
    """|E φ(τ*ξ)|/√Var φ(τ*ξ)."""
    at_rest = moments(deq.activation, math.sqrt(deq.fixed_variance(deq.input * tau0**2, centered=True)))
    return abs(at_rest.mean) / math.sqrt(at_rest.power - at_rest.mean**2)


def _seen(cell: PlainCell, module: Any, rows: Tensor) -> tuple[float, tuple[Assumption, ...]]:
    """The residual that the module's own solver allows, and whether its outputs are an affine map of the state.

    A state that no longer moves from one product with W to the next solves the equation of the module, so a larger
    residual is that of another equation. Of a DEQNet inside the module, its outputs stand for the state.
    """
    if isinstance(module, DEQNet) or not callable(module):
        return _EQUATION, ()
    if len(rows) == 1:
        rows = torch.cat([rows, rows.flip(-1)])  # what is added to each output shows only where inputs differ
    if cell.net is not None:
        return _EQUATION, (_affine(partial(changed, module, rows, cell.net)),)
    if cell.seen is None:
        return _EQUATION, ()
    found = multiplied(module, rows, cell.seen)
    rounding = max(_SETTLED, _ROUNDING * torch.finfo(found.outputs.dtype).eps)
    moved = found.moved if found.moved < math.inf else 0.0
    limit = max(_EQUATION, rounding)
    away = {number: _apart(factor, found.state) for number, factor in found.after.items()}
    returned = _apart(found.outputs, found.state)
    nearest_read = min([returned, *away.values()])
    measured = [Assumption("‖h read − h‖/‖h‖", nearest_read, limit, "the readout multiplies the state")]
    if nearest_read <= limit < returned:
        reads = [number for number, one in away.items() if one <= limit]
        measured.append(_affine(partial(changed, module, rows, reads)))
    return max(min(2 * moved, _EQUATION), rounding), tuple(measured)


def _affine(outputs: Callable[[Callable[[Tensor], Tensor]], Tensor]) -> Assumption:
    value, rounding = departure(outputs)
    limit = max(_AFFINE, _ROUNDING * rounding)
    return Assumption(
        "outputs − affine map of h", value, limit, "nothing but linear maps and offsets follows the state"
    )


def _apart(found: Tensor, state: Tensor | None) -> float:
    """‖found − h‖/‖h‖; inf where it has another shape."""
    if state is None or found.shape != state.shape:
        return math.inf
    return float(torch.linalg.vector_norm(found.to(state) - state)) / (float(torch.linalg.vector_norm(state)) or 1.0)


@torch.no_grad()
def _distances(
    cell: PlainCell, deq: DEQ, design: Match | SphereMatch, rows: Tensor, state: Tensor, seed: int
) -> tuple[float, float, float]:
    """How far the module's kernel is from that of the design and from those of fresh DEQs of this width.

    First ‖K̂ − K‖/‖K‖; its limit, the largest of a few fresh DEQs and a quarter more; then how many standard deviations
    of fresh DEQs the statistics of h·h' are from their means. At ordinary widths the first is mostly noise, whose
    spectral norm exceeds that of what is looked for; the second averages over all pairs of rows.
    """
    kind = design.kind
    goal = _kernel_of_design(design, rows, seed)

    def distance(kernel: Tensor) -> float:
        gap = kernel.double().cpu().numpy() - goal
        if not np.isfinite(gap).all():
            return math.inf
        return float(np.abs(np.linalg.eigvalsh(gap)).max() / np.abs(np.linalg.eigvalsh(goal)).max())

    own = distance(_finite_kernel(cell.network(), rows, kind, state))
    drawn, others = [], []
    for k in range(_DRAWS):
        fresh = DEQNet(
            deq, cell.inputs, cell.width, dtype=cell.W.dtype, seed=(seed + 7919 * (k + 1)) % 2**32, on_failure="ignore"
        ).to(rows.device)
        z = math.sqrt(cell.width) * fresh.equilibrium(rows)
        others.append(_statistics(z, rows))
        if k < _COMPARED:
            drawn.append(distance(_finite_kernel(fresh, rows, kind, z)))
    ensemble = torch.stack(others)
    spread = ensemble.std(0) * math.sqrt(1 + 1 / _DRAWS) + 1e-4 * ensemble.mean(0).abs()
    apart = (_statistics(state, rows) - ensemble.mean(0)).abs() / spread.clamp_min(torch.finfo(spread.dtype).tiny)
    chance = float(apart.max())
    return own, 1.25 * max(drawn) + 0.02, chance if math.isfinite(chance) else math.inf


def _statistics(state: Tensor, rows: Tensor) -> Tensor:
    """Of K = h·h'/m: the mean diagonal; off it the mean, the slope against x·x', and the root mean squared rest."""
    h, x = state.double(), rows.double()
    kernel, products = h @ h.t() / h.shape[1], x @ x.t()
    found = [kernel.diagonal().mean()]
    if len(h) >= _FEWEST:
        above = torch.triu_indices(len(h), len(h), 1, device=h.device)
        values, against = kernel[above[0], above[1]], products[above[0], above[1]]
        against = against - against.mean()
        slope = (against * values).sum() / against.square().sum().clamp_min(torch.finfo(h.dtype).tiny)
        rest = values - values.mean() - slope * against
        found += [values.mean(), slope, rest.square().mean().sqrt()]
    return torch.stack(found)


def _kernel_of_design(design: Match | SphereMatch, rows: Tensor, seed: int) -> NDArray[Any]:
    """K̂ on the rows; of a Hermite series off its sphere, where integrals are slow, from a wide random network."""
    network, kind = design.network, Kind.of(design.kind).explicit
    norms = torch.linalg.vector_norm(rows.double(), dim=1)
    if isinstance(design, Match) or network.normalize is not None or float(norms.std() / norms.mean()) < 1e-6:
        return np.asarray(network.kernel(rows.double().cpu().numpy(), kind=kind))
    wide = ExplicitNet(network, rows.shape[1], _WIDE, seed=seed, dtype=torch.float32)
    return np.asarray(empirical_kernel(wide, rows.float().cpu(), kind).double())


def _finite_kernel(net: DEQNet, rows: Tensor, kind: str, state: Tensor | None = None) -> Tensor:
    """The kernel of finite weights; the conjugate kernel from the state where there is one."""
    deq = net.deq
    if kind in ("ck", "nngp"):
        z = net.equilibrium(rows) if state is None else state / math.sqrt(net.width)
        kernel = z @ z.t()
        return kernel if kind == "ck" else deq.recurrent * kernel + deq.input * rows @ rows.t() + deq.bias
    if kind == "ntk_injected":
        return deq.recurrent * empirical_kernel(net, rows, "ntk") + deq.input * rows @ rows.t() + deq.bias
    return empirical_kernel(net, rows, kind)


def _uneven(matrix: Tensor) -> float:
    """By how much the squared norms of rows, or of columns, differ more than for independent entries of this matrix.

    Σ_i (r_i − r̄)²/(n − 1) of n sums r_i of k squares has mean k·Var(w²), and a relative variance of
    2/(n − 1) + 12/(nk) for normal entries. The entries may have any distribution, whose Var(w²) is taken from them.
    """
    squares = matrix.square()
    predicted = float(squares.var(correction=0)) if squares.numel() > 1 else 0.0
    if predicted <= 1e-3 * float(squares.mean()) ** 2:  # ±w: all norms are equal
        predicted = 1e-3 * float(squares.mean()) ** 2
    worst = 0.0
    for sums, terms in ((squares.sum(1), squares.shape[1]), (squares.sum(0), squares.shape[0])):
        n = len(sums)
        if n > 1 and predicted > 0:
            excess = float(sums.var()) / (terms * predicted) - 1
            worst = max(worst, excess / math.sqrt(2 / (n - 1) + 12 / (n * terms)))
    return worst


def _assumptions(
    cell: PlainCell, deq: DEQ, norm: float, squared: Tensor, design: Match | SphereMatch
) -> tuple[Assumption, ...]:
    m, p = cell.U.shape
    sigma = math.sqrt(deq.recurrent)
    root = math.sqrt(m)
    W, U = cell.W.double(), cell.U.double()
    found = [
        Assumption("‖W‖·L", norm * deq.activation.lipschitz, 1.0, "the equilibrium exists and is unique"),
        # the edge of a random matrix is 2σ_a with fluctuations m^{-2/3}; training adds outliers
        Assumption("‖W‖/(2σ_a)", norm / (2 * sigma) if sigma else 0.0, 1 + 2 * m ** (-2 / 3) + 0.05, "W looks random"),
        # the mean of m² (or mp) independent entries, in standard deviations
        Assumption("mean of W, in σ", abs(float(W.mean())) * m / (sigma / root or 1.0), 4.0, "W is centred"),
        Assumption(
            "mean of U, in σ",
            abs(float(U.mean())) * math.sqrt(m * p / deq.input) if deq.input else 0.0,
            4.0,
            "U is centred",
        ),
        Assumption(
            "‖U‖/(σ_b(√m + √p))",
            spectral_norm(cell.U) / (math.sqrt(deq.input) * (root + math.sqrt(p))) if deq.input else 0.0,
            1 + 2 * min(m, p) ** (-2 / 3) + 0.05,
            "U looks random",
        ),
        Assumption("rows and columns of W, in σ", _uneven(W), _CHANCE, "their norms differ by chance"),
        Assumption("rows and columns of U, in σ", _uneven(U), _CHANCE, "their norms differ by chance"),
    ]
    if design.network.normalize is None:
        found.append(
            Assumption(
                "spread of ‖x‖²",
                float(squared.std(correction=0) / squared.mean()),
                0.5,
                "inputs have nearly equal norms; rescale them otherwise",
            )
        )
    if isinstance(design, Match):
        off = _off_centre(deq, design.tau0)
        found.append(Assumption("|E φ(τ*ξ)|/√Var φ(τ*ξ)", off, _CENTRED, "φ is centred, as this design is"))
        found.append(Assumption("σ_0, bias", math.sqrt(deq.bias), 0.0, 'this design has no bias; on="sphere" does'))
    return tuple(found)
