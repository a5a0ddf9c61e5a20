"""Training with a guarantee [Ling23]: Condition 1, the admissible step, the rate, and the required width."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.activations import PiecewiseLinear
from notsodeep.checks import InputError, positive
from notsodeep.display import card
from notsodeep.models import DEQ
from notsodeep.nn.activations import TensorActivation
from notsodeep.nn.implicit import Adjoint, LayerMap, solve_adjoint, solve_equilibrium
from notsodeep.nn.initialization import check_input, spectral_norm
from notsodeep.nn.networks import DEQNet

__all__ = ["Certificate", "Inequality", "certificate", "gradients", "ling23_network"]


@dataclass(frozen=True)
class Inequality:
    """``left ≥ right``, with margin left/right (at least 1 when it holds)."""

    name: str
    left: float
    right: float

    @property
    def margin(self) -> float:
        return math.inf if self.right == 0 else self.left / self.right

    @property
    def holds(self) -> bool:
        return self.left >= self.right

    def __str__(self) -> str:
        relation = "≥" if self.holds else "<"
        return f"{self.name}: {self.left:.4g} {relation} {self.right:.4g} (margin {self.margin:.3g}×)"


@dataclass(frozen=True)
class Norms:
    """‖W‖, ‖U‖, ‖a‖, ‖X‖_F and ‖ŷ(0) − y‖: all that Condition 1 needs besides λ0."""

    W: float
    U: float
    a: float
    X: float
    error: float


@dataclass(frozen=True)
class Certificate:
    """Condition 1 of [Ling23] for one network and one data set, with 8 in the place of 4 in its Eq. (9).

    With C₁ = (c_w² + c_u² + c_a²)‖X‖² and C₂ = (c_w² + c_u²)‖X‖² the proof gives Φ(τ+1) ≤ (1 − η(λ0 − ηC₁² −
    2C₂))Φ(τ). For η ≤ 2C₂/C₁² that is 1 − η(λ0 − 4C₂), which is the stated 1 − ηλ0/2 or less if λ0 ≥ 8C₂; the printed
    λ0 ≥ 4C₂ is not enough.

    Attributes
    ----------
    lambda0 : float
        λ_min(ZᵀZ) at the present weights.
    norms : Norms
    delta : float
        The δ with the best worst margin.
    rho_w, rho_u, rho_a, c_w, c_u, c_a : float
    inequalities : tuple of Inequality
        The three lines of Condition 1, the last of them corrected.
    max_step : float
        Gradient descent with a smaller step obeys the guarantee (when the condition holds).
    required_width : float
        The width at which the condition would hold if λ0 ≥ (m/2)·λ_min(K), K the population
        Gram matrix; ``inf`` when no width suffices, ``nan`` when it was not asked for. [Ling23]
        proves that inequality, with high probability, only above a width with a logarithm of
        the number of samples, which is not included here.
    required_readout : float
        The largest ‖a‖ for which the third inequality can hold at infinite width.
    obstacle : str
        Why no width suffices; empty when one does.
    """

    lambda0: float
    norms: Norms
    delta: float
    rho_w: float
    rho_u: float
    rho_a: float
    c_w: float
    c_u: float
    c_a: float
    inequalities: tuple[Inequality, Inequality, Inequality]
    max_step: float
    required_width: float = math.nan
    required_readout: float = math.nan
    obstacle: str = ""

    @property
    def holds(self) -> bool:
        """All three inequalities hold and ‖W‖ < 1."""
        return self.norms.W < 1 and all(line.holds for line in self.inequalities)

    def __bool__(self) -> bool:
        return self.holds

    def rate(self, step: float) -> float:
        """1 − ηλ0/2: if the condition holds, the loss falls by this factor or more at every step η < `max_step`."""
        return 1 - positive(step, "step") * self.lambda0 / 2

    def __str__(self) -> str:
        head = "Condition 1 holds" if self.holds else "Condition 1 does not hold (it is sufficient, not necessary)"
        lines = [f"{head}: λ0 = {self.lambda0:.4g}, ‖W‖ = {self.norms.W:.4g}, δ = {self.delta:.4g}"]
        lines += [f"  {line}" for line in self.inequalities]
        if self.norms.W >= 1:
            return f"{head}: ‖W‖ = {self.norms.W:.4g} ≥ 1, the equilibrium itself is in doubt; lower recurrent"
        lines.append(f"  step < {self.max_step:.4g}, rate {self.rate(self.max_step):.6g} per step at that size")
        if self.obstacle:
            lines.append(f"  no width suffices: {self.obstacle}")
        elif not math.isnan(self.required_width):
            lines.append(f"  sufficient width: {self.required_width:.3g}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [(one.name, f"{one.left:.4g}", f"{one.right:.4g}", f"{one.margin:.3g}") for one in self.inequalities]
        notes = [f"step < {self.max_step:.4g}, rate {self.rate(self.max_step):.6g} per step at that size"]
        notes += [f"no width suffices: {self.obstacle}"] if self.obstacle else []
        said = "Condition 1 holds" if self.holds else "Condition 1 does not hold (it is sufficient, not necessary)"
        head = ("at least", "left", "right", "margin")
        return card("Certificate", rows, header=head, verdict=(self.holds, said), notes=notes)


@dataclass
class ReluWeights:
    """W, U, a of Z = relu(WZ + UX), ŷ = aᵀZ, the form of [Ling23]."""

    W: Tensor
    U: Tensor
    a: Tensor

    @staticmethod
    def of(net: DEQNet) -> ReluWeights:
        """With φ = c·relu the state h = √m z obeys h = relu(c·(W h + U x))."""
        gain = relu_gain(net)
        weights = net.effective_weights()
        return ReluWeights(gain * weights.W, gain * weights.U, weights.a[0].clone())

    @torch.no_grad()
    def write_to(self, net: DEQNet) -> None:
        """Store the matrices back in the standard parametrisation."""
        gain = relu_gain(net)
        net.recurrent.copy_(self.W / (gain * math.sqrt(net.deq.recurrent / net.width)))
        net.input.copy_(self.U / (gain * math.sqrt(net.deq.input)))
        net.readout.copy_(self.a[None] * math.sqrt(net.width))


def relu_gain(net: object) -> float:
    """Return c when the network is a one-output DEQ with φ = c·relu, and refuse it otherwise."""
    if not isinstance(net, DEQNet):
        raise InputError(f"net={type(net).__name__} must be a DEQNet")
    phi = net.deq.activation
    if phi.shape != PiecewiseLinear((0.0,), (0.0, 1.0)) or phi.shift or phi.scale <= 0:
        raise InputError(f"activation={phi}: the guarantee of [Ling23] is for relu and normalized_relu")
    if net.bias is not None:
        raise InputError(f"bias={net.deq.bias:.6g}: the guarantee of [Ling23] needs bias=0")
    if net.out_features != 1:
        raise InputError(f"out_features={net.out_features}: the guarantee of [Ling23] is for one output")
    if net.deq.recurrent == 0 or net.deq.input == 0:
        raise InputError("recurrent and input must both be positive")
    return phi.scale * phi.stretch


# covers: [Ling23] Asm. 1
def ling23_network(
    width: int, in_features: int, recurrent: float = 0.08, *, readout_norm: float = 1.0, **options: Any
) -> DEQNet:
    """W_ij ~ N(0, 2σ_w²/m), U_ij ~ N(0, 2/d), a_j ~ N(0, s²/m): the network of [Ling23, §2].

    With Z = √m z it is the standard parametrisation of φ = √2·relu with input variance 1/d.

    Parameters
    ----------
    width, in_features : int
        m and d.
    recurrent : float
        σ_w², below 1/8.
    readout_norm : float
        s ≈ ‖a‖; 1 in the paper.
    **options
        As for :class:`DEQNet`; float64 and tol=1e-10 unless given.
    """
    deq = DEQ("normalized_relu", recurrent=recurrent, input=1 / in_features)
    net = DEQNet(deq, in_features, width, 1, **{"dtype": torch.float64, "tol": 1e-10, **options})
    with torch.no_grad():
        net.readout.mul_(positive(readout_norm, "readout_norm"))
    return net


@dataclass(frozen=True)
class Gradients:
    """ŷ, Z and the gradients of Φ = ½‖ŷ − y‖² [Ling23, Lemma 2]."""

    prediction: Tensor  # ŷ, (n,)
    state: Tensor  # Zᵀ, (n, m)
    flow: Tensor  # ∂ŷ_i/∂(U x_i), (n, m)
    W: Tensor
    U: Tensor
    a: Tensor

    @property
    def squared_norm(self) -> float:
        return float((self.W**2).sum() + (self.U**2).sum() + (self.a**2).sum())


@torch.no_grad()
# covers: [Ling23] Lemma 2
def gradients(net: DEQNet, weights: ReluWeights, X: Tensor, y: Tensor, before: Gradients | None = None) -> Gradients:
    """∇_a = Z r, ∇_W = Σ_i w_i z_iᵀ, ∇_U = Σ_i w_i x_iᵀ with r = ŷ − y and w_i = r_i (D_i⁻¹ − Wᵀ)⁻¹ a.

    Both solves start from those of `before`; without its factor r_i, w_i changes little from step to step.
    """
    phi, options = TensorActivation("relu"), net.solve_options
    states, flows = (None, None) if before is None else (before.state, before.flow)
    solution = solve_equilibrium(LayerMap(weights.W, X @ weights.U.t(), 1.0, phi), states, options)
    prediction = solution.state @ weights.a
    error = prediction - y
    adjoint = Adjoint(weights.W, weights.a.expand_as(solution.state), 1.0, phi.derivative(solution.point))
    flow = solve_adjoint(adjoint, options, flows).state
    w = error[:, None] * flow
    return Gradients(prediction, solution.state, flow, w.t() @ solution.state, w.t() @ X, solution.state.t() @ error)


def smallest_eigenvalue(state: Tensor) -> float:
    """λ_min(ZᵀZ) from the rows of Zᵀ, 0 where rounding hides it; nan when the state is not finite."""
    rows = state.double()
    gram = rows @ rows.t()
    return _smallest(gram) if bool(gram.isfinite().all()) else math.nan


def _smallest(gram: Tensor) -> float:
    values = torch.linalg.eigvalsh(gram)
    hidden = len(gram) * torch.finfo(torch.float64).eps * values[-1]
    return float(values[0]) if values[0] > hidden else 0.0


def check_target(net: DEQNet, X: Tensor, y: Tensor) -> Tensor:
    """Return y as an (n,) tensor like the network."""
    check_input(X, net.in_features, net.recurrent)
    if not bool(X.any()):
        raise InputError("X is zero everywhere: nothing can be learnt from it; pass other inputs")
    target = torch.as_tensor(y, dtype=X.dtype, device=X.device).reshape(-1)
    if target.shape[0] != X.shape[0]:
        raise InputError(f"y has {target.shape[0]} entries for {X.shape[0]} samples")
    if not bool(target.isfinite().all()):
        raise InputError("y holds NaN or infinite values; remove them")
    return target


# covers: [Ling23] Asm. 2; [Ling23] Def. 1; [Ling23] Lemma 3; [Ling23] Thm 3
def certificate(net: DEQNet, X: Tensor, y: Tensor, *, width: bool = True) -> Certificate:
    """Check Condition 1 of [Ling23] at the present weights.

    Parameters
    ----------
    net : DEQNet
        relu or normalized_relu, no bias, one output; see :func:`ling23_network`.
    X : Tensor, (n, p)
    y : Tensor, (n,)
    width : bool
        Also compute the width that would satisfy the condition (one n×n kernel).

    Examples
    --------
    >>> import torch
    >>> from notsodeep import nn
    >>> net = nn.ling23_network(width=200, in_features=10)
    >>> X = torch.nn.functional.normalize(torch.eye(4, 10, dtype=torch.float64)) * 10**0.5
    >>> bool(nn.certificate(net, X, torch.ones(4), width=False))
    False
    """
    weights = ReluWeights.of(net)
    target = check_target(net, X, y)
    found = gradients(net, weights, X, target)
    lambda0 = smallest_eigenvalue(found.state)
    norms = Norms(
        spectral_norm(weights.W),
        spectral_norm(weights.U),
        spectral_norm(weights.a),
        float(X.norm()),
        float((found.prediction - target).norm()),
    )
    result = condition(lambda0, norms)
    if not width:
        return result
    population = np.asarray(net.deq.kernel(X.double().cpu().numpy(), kind="ck"))
    needed, readout, obstacle = _required(net, _smallest(torch.as_tensor(population)), norms)
    return replace(result, required_width=needed, required_readout=readout, obstacle=obstacle)


# covers: [Ling23] Condition 1; [Ling23] Thm 1; [Ling23] Lemma 8
def condition(lambda0: float, norms: Norms) -> Certificate:
    """Condition 1 at the δ whose worst margin is best."""
    room = 1 - norms.W
    if room <= 0:
        return _at_delta(lambda0, norms, math.nan)

    exponents = np.linspace(-14, -1e-4, 400)
    for _ in range(4):  # each round zooms in on the best point of the last
        margins = _worst_margins(lambda0, norms, room * np.exp(exponents))
        best = int(np.argmax(margins))
        low, high = exponents[max(best - 1, 0)], exponents[min(best + 1, len(exponents) - 1)]
        delta = room * math.exp(exponents[best])
        exponents = np.linspace(low, high, 101)
    return _at_delta(lambda0, norms, delta)


def _lines(norms: Norms, delta: Any) -> tuple[Any, ...]:
    """ρ's, c's and the right-hand sides of Condition 1; δ may be an array."""
    rho_w, rho_u, rho_a = norms.W + delta, norms.U + delta, norms.a + delta
    c_w, c_u, c_a = rho_u * rho_a / (1 - rho_w) ** 2, rho_a / (1 - rho_w), rho_u / (1 - rho_w)
    squares = (c_w**2 + c_u**2) * norms.X**2
    first = 4 / delta * np.maximum(np.maximum(c_w, c_u), c_a) * norms.X * norms.error
    second = 4 * (2 + math.sqrt(2)) * squares * norms.error / rho_a
    return (rho_w, rho_u, rho_a), (c_w, c_u, c_a), (first, second, 8 * squares)  # 4 in print


def _worst_margins(lambda0: float, norms: Norms, delta: Any) -> Any:
    _, _, (first, second, third) = _lines(norms, delta)
    # logarithms of left/right, which also order the margins when λ0 is 0 or the error vanishes
    left = math.log(max(lambda0, 1e-300))
    tiny = 1e-300
    return np.minimum(
        left - np.log(np.maximum(np.maximum(first, third), tiny)), 1.5 * left - np.log(np.maximum(second, tiny))
    )


def _at_delta(lambda0: float, norms: Norms, delta: float) -> Certificate:
    (rho_w, rho_u, rho_a), (c_w, c_u, c_a), (first, second, third) = _lines(norms, delta)
    lines = (
        Inequality("λ0 ≥ (4/δ) max(c_w, c_u, c_a) ‖X‖ ‖ŷ−y‖", lambda0, float(first)),
        Inequality("λ0^{3/2} ≥ 4(2+√2) (c_w²+c_u²) ‖X‖² ‖ŷ−y‖ / ρ_a", lambda0**1.5, second),
        Inequality("λ0 ≥ 8 (c_w²+c_u²) ‖X‖²", lambda0, third),
    )
    sharp = 2 * (c_w**2 + c_u**2) / ((c_w**2 + c_u**2 + c_a**2) ** 2 * norms.X**2)
    max_step = math.nan if math.isnan(delta) else min(2 / lambda0 if lambda0 > 0 else math.inf, sharp)
    return Certificate(lambda0, norms, delta, rho_w, rho_u, rho_a, c_w, c_u, c_a, lines, max_step)


# covers: [Ling23] Thm 2
def _required(net: DEQNet, smallest: float, norms: Norms) -> tuple[float, float, str]:
    """The sufficient width, the largest ‖a‖ for which there is one, and the obstacle."""

    def at(width: float, readout: float, error: float) -> Certificate:
        # ‖W‖ → 2σ_a·c, ‖U‖ → σ_b·c·(√m + √p), λ0 ≥ (m/2) λ_min(K)
        gain = relu_gain(net)
        recurrent = 2 * gain * math.sqrt(net.deq.recurrent)
        drive = gain * math.sqrt(net.deq.input) * (math.sqrt(width) + math.sqrt(net.in_features))
        return condition(width / 2 * smallest, Norms(recurrent, drive, readout, norms.X, error))

    limit = 2 * relu_gain(net) * math.sqrt(net.deq.recurrent)
    if limit >= 1:
        return math.inf, 0.0, f"‖W‖ tends to {limit:.4g} ≥ 1 with the width; lower recurrent"
    if smallest <= 0:
        return math.inf, 0.0, "λ_min(K) = 0, an input is zero or two point the same way; keep one of them"
    huge = 1e30
    low, high = 1e-12, 1e6  # the largest readout norm, at a width where nothing else binds
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at(huge, middle, 0.0).holds else (low, middle)
    if not at(huge, norms.a, norms.error).holds:
        return (
            math.inf,
            low,
            f"the third inequality does not improve with it; ‖a‖ ≤ {low:.3g} would leave it room",
        )
    low_width, high_width = 1.0, huge
    while high_width / low_width > 1.01:
        middle = math.sqrt(low_width * high_width)
        low_width, high_width = (low_width, middle) if at(middle, norms.a, norms.error).holds else (middle, high_width)
    return math.ceil(high_width), low, ""
