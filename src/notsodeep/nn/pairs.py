"""The recursion of covariances on tensors, entry by entry, differentiable as often as asked.

Fixed points are found without a graph, Newton's method on the smaller of √(v_i v_j) ∓ K as in the compiled engine. One
Newton step K + (F(K) − K)/(1 − F'(K)) inside the graph then carries the first derivatives of the implicit function
theorem, because F(K) = K already; a second step carries the second and third.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from notsodeep.nn.cosines import Ends
from notsodeep.nn.duals import TensorDual, root

__all__ = ["Level", "TensorPairs", "TensorSamples"]

_ITERATIONS = 100


class Level(NamedTuple):
    """One layer: Λ = σ² K + β² x·y + bias, K = E[φφ]. The variances are numbers, or tensors of the batch's shape."""

    dual: TensorDual
    recurrent: Any
    input: Any
    bias: Any
    normalize: str | None = None

    def expanded(self, dims: int) -> Level:
        """The variances with `dims` more dimensions."""
        return self._replace(**{n: _expanded(getattr(self, n), dims) for n in ("recurrent", "input", "bias")})


def _expanded(value: Any, dims: int) -> Any:
    return value[(..., *[None] * dims)] if isinstance(value, Tensor) else value


class Stage(NamedTuple):
    """A sample at one level: what enters φ, and power, mean and divisor of what leaves it."""

    variance: Tensor
    power: Tensor  # E[φ²], before normalisation
    mean: Tensor  # subtracted; 0 without layer normalisation
    scale: Tensor  # divided by; 1 without normalisation


class TensorSamples(NamedTuple):
    """Samples along the recursion; tensors (…, n)."""

    norm: Tensor
    state: Tensor  # power of what enters the first level
    stages: tuple[Stage, ...]

    def row(self) -> TensorSamples:
        return self._map(lambda x: x.unsqueeze(-1))

    def column(self) -> TensorSamples:
        return self._map(lambda x: x.unsqueeze(-2))

    def _map(self, change: Callable[[Tensor], Tensor]) -> TensorSamples:
        stages = tuple(Stage(*map(change, stage)) for stage in self.stages)
        return TensorSamples(change(self.norm), change(self.state), stages)


@dataclass(frozen=True)
class _Swept:
    """One pass through the levels without a graph."""

    state: Ends
    loop: Tensor  # Π σ² Ġ
    gaps: list[tuple[Tensor, Tensor]]  # η, ζ of every level


@dataclass(frozen=True)
class TensorPairs:
    """The kernels of a recursion.

    Parameters
    ----------
    levels : tuple of Level
    closed : bool
        Whether the last level's output enters the first.
    """

    levels: tuple[Level, ...]
    closed: bool

    # --- samples ------------------------------------------------------------------------

    def samples(self, norm: Tensor, order: int) -> TensorSamples:
        """Variances and powers of samples with these norms, with `order` derivatives in the graph."""
        levels = [level.expanded(1) for level in self.levels]
        state = torch.zeros_like(norm)
        if self.closed:
            state = self._power(levels, norm.detach() ** 2)
            for _ in range(order if torch.is_grad_enabled() else 0):
                state = self._newton(levels, state, norm**2, order > 1)
        return TensorSamples(norm, state, tuple(_stages(levels, state, norm**2)))

    def _newton(self, levels: list[Level], state: Tensor, square: Tensor, twice: bool) -> Tensor:
        """One Newton step for the power of the state, in the graph; its slope too where it is differentiated again."""
        state = state if state.requires_grad else state.detach().requires_grad_()
        image = _output(levels[-1], _stages(levels, state, square)[-1])
        slope: Any = None
        if image.requires_grad:
            (slope,) = torch.autograd.grad(image.sum(), state, create_graph=twice, retain_graph=True, allow_unused=True)
        return state + (image - state) / (1 - (0.0 if slope is None else slope))

    @torch.no_grad()
    def _power(self, levels: list[Level], square: Tensor) -> Tensor:
        """The fixed point of the power of the state: Newton, kept in a bracket by bisection."""
        levels = [Level(*(_detached(value) for value in level)) for level in levels]

        def image(state: Tensor) -> Tensor:
            return _output(levels[-1], _stages(levels, state, square)[-1])

        low = torch.zeros_like(square)
        first = image(low)
        low = low.expand(torch.broadcast_shapes(low.shape, first.shape)).clone()
        high = (2 * first).clamp_min(torch.finfo(square.dtype).tiny)
        for _ in range(2000):
            beyond = image(high) > high
            if not beyond.any():
                break
            high = torch.where(beyond, 2 * high, high)
        state = high / 2
        for _ in range(_ITERATIONS):
            with torch.enable_grad():
                point = state.detach().requires_grad_()
                value = image(point)
                slope = torch.autograd.grad(value.sum(), point)[0] if value.requires_grad else torch.zeros_like(state)
            excess = state - value.detach()
            low, high = torch.where(excess <= 0, state, low), torch.where(excess >= 0, state, high)
            proposal = state - excess / (1 - slope)
            inside = (proposal >= low) & (proposal <= high)
            proposal = torch.where(inside, proposal, (low + high) / 2)
            done = (proposal - state).abs() <= 2 * torch.finfo(square.dtype).eps * proposal
            state = proposal
            if done.all():
                break
        return torch.where(first == 0, 0.0, state)  # exactly: next to 0 a square root has no finite slope

    # --- pairs --------------------------------------------------------------------------

    def kernel(self, kind: str, product: Ends, left: TensorSamples, right: TensorSamples, order: int) -> Tensor:
        """K (…, n, m) from x·y and its distances; `order` derivatives where a graph is recorded."""
        levels = [level.expanded(2) for level in self.levels]
        left, right = left.row(), right.column()
        swept = self._solve(levels, product, left, right)
        state: Any = 0.0
        if self.closed:
            state = swept[0]
            for _ in range(order if torch.is_grad_enabled() else 0):
                passed = self._pass(levels, state, product.value, left, right, swept[1])
                loop = passed["loop"] if order > 1 else passed["loop"].detach()
                state = state + (passed["state"] - state) / (1 - loop)
        found = self._pass(levels, state, product.value, left, right, swept[1])
        gain: Any = 1 / (1 - found["loop"]) if self.closed else 1.0
        if kind == "ck":
            return found["state"]
        if kind == "nngp":
            return found["covariance"]
        if kind == "ntk":
            return found["state"] + found["tangent"] * gain
        if kind == "ntk_frozen_input":
            return found["frozen"] * gain
        return found["injected"] + levels[-1].recurrent * found["tangent"] * gain

    def _pass(
        self,
        levels: list[Level],
        state: Any,
        product: Tensor,
        left: TensorSamples,
        right: TensorSamples,
        gaps: list[tuple[Tensor, Tensor]],
    ) -> dict[str, Any]:
        """One pass with a graph. Correlations take their values from `gaps`, their derivatives from Λ/√(q_i q_j)."""
        tangent: Any = 0.0
        frozen: Any = 0.0
        loop: Any = 1.0
        covariance: Any = 0.0
        injected: Any = 0.0
        for level, a, b, (eta, zeta) in zip(levels, left.stages, right.stages, gaps, strict=True):
            covariance = level.recurrent * state + level.input * product + level.bias
            size = root(a.variance) * root(b.variance)
            rho = covariance / torch.where(size > 0, size, 1.0)
            moved = rho - rho.detach()
            state, slope = level.dual(a.variance, b.variance, eta - moved, zeta + moved)
            if level.normalize:
                state, slope = (state - a.mean * b.mean) / (a.scale * b.scale), slope / (a.scale * b.scale)
            injected = covariance + level.recurrent * tangent
            tangent = slope * injected
            frozen = state + level.recurrent * slope * frozen
            loop = loop * level.recurrent * slope
        return {
            "state": state,
            "covariance": covariance,
            "injected": injected,
            "tangent": tangent,
            "frozen": frozen,
            "loop": loop,
        }

    @torch.no_grad()
    def _solve(
        self, levels: list[Level], product: Ends, left: TensorSamples, right: TensorSamples
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The state K, and η, ζ of every level at the fixed point."""
        if not self.closed:
            nothing = torch.zeros_like(product.value)
            return nothing, self._sweep(levels, Ends(nothing, nothing, nothing), product, left, right).gaps
        size = root(left.state) * root(right.state)
        lengths = left.norm * right.norm
        safe = torch.where(lengths > 0, lengths, 1.0)
        opposite = product.below > product.above  # measure from √(v_i v_j), or from its negative
        part = torch.where(lengths > 0, size * torch.minimum(product.below, product.above) / safe, size)
        part, opposite = torch.broadcast_tensors(part, opposite)
        precision = torch.finfo(part.dtype).eps
        precise = all(level.dual.kinked for level in levels)  # smooth φ are not known better than to rounding of size
        before = float("inf")
        for iteration in range(_ITERATIONS):
            swept = self._sweep(levels, _ends(part, opposite, size), product, left, right)
            excess = part - torch.where(opposite, swept.state.above, swept.state.below)
            proposal = torch.minimum((part - excess / (1 - swept.loop)).clamp_min(0), 2 * size)
            change = (proposal - part).abs() / ((part if precise else size) + torch.finfo(part.dtype).tiny)
            worst = float(change.max()) if change.numel() else 0.0
            if worst <= 4 * precision or (iteration > 8 and worst >= before / 2):
                break
            before = worst
            over = proposal > size
            part, opposite = torch.where(over, 2 * size - proposal, proposal), opposite ^ over
        return _ends(part, opposite, size).value, swept.gaps

    def _sweep(
        self, levels: list[Level], state: Ends, product: Ends, left: TensorSamples, right: TensorSamples
    ) -> _Swept:
        """One pass through the levels, carrying √(v_i v_j) ∓ K with all their digits."""
        loop: Any = torch.ones_like(product.value)
        gaps = []
        before = (left.state, right.state)
        for level, a, b in zip(levels, left.stages, right.stages, strict=True):
            size = root(a.variance) * root(b.variance)
            mine, other = (
                [_root(level.recurrent) * root(power), _root(level.input) * s.norm, _root(level.bias)]
                for power, s in zip(before, (left, right), strict=True)
            )
            # |A||B| − A·B of the two vectors, by Lagrange's identity
            cross: Any = 0.0
            along: Any = 0.0
            for k in range(3):
                along = along + mine[k] * other[k]
                for m in range(k):
                    cross = cross + (mine[k] * other[m] - mine[m] * other[k]) ** 2
            total = size + along
            radial = torch.where(total > 0, cross / torch.where(total > 0, total, 1.0), 0.0)
            near = level.recurrent * state.below + level.input * product.below + radial
            far = level.recurrent * state.above + level.input * product.above + 2 * level.bias + radial
            safe = torch.where(size > 0, size, 1.0)
            closer = near <= far
            small = torch.where(size > 0, (torch.minimum(near, far) / safe).clamp(0, 1), 1.0)
            eta, zeta = torch.where(closer, small, 2 - small), torch.where(closer, 2 - small, small)
            gaps.append((eta, zeta))
            power, slope = level.dual(a.variance, b.variance, eta, zeta)
            reach = root(a.power) * root(b.power)
            below, above = level.dual.distances(a.variance, b.variance, eta, zeta, reach, power)
            if level.normalize:
                scale = a.scale * b.scale
                mixed = a.scale * b.mean - b.scale * a.mean
                power = power - a.mean * b.mean
                below = (below - mixed**2 / (reach + a.mean * b.mean + scale)).clamp_min(0)
                power, below, slope = power / scale, below / scale, slope / scale
                above = torch.where(below <= 1, 2 - below, (1 + power).clamp_min(0))
                below = torch.where(below <= 1, below, 2 - above)
            state = Ends(power, below, above)
            loop = loop * level.recurrent * slope
            before = (_output(level, a), _output(level, b))
        return _Swept(state, loop, gaps)


def _ends(part: Tensor, opposite: Tensor, size: Tensor) -> Ends:
    rest = 2 * size - part
    value = torch.where(opposite, part - size, size - part)
    return Ends(value, torch.where(opposite, rest, part), torch.where(opposite, part, rest))


def _stages(levels: Sequence[Level], state: Tensor, square: Tensor) -> list[Stage]:
    """Samples with ‖x‖² = `square` when the power `state` enters the first level."""
    found = []
    for level in levels:
        variance = level.recurrent * state + level.input * square + level.bias
        power, _ = level.dual.alone(variance)
        mean = level.dual.mean(variance) if level.normalize == "layer" else torch.zeros_like(power)
        scale = root(power - mean**2) if level.normalize else torch.ones_like(power)
        found.append(Stage(variance, power, mean, scale))
        state = _output(level, found[-1])
    return found


def _output(level: Level, stage: Stage) -> Tensor:
    return torch.ones_like(stage.power) if level.normalize else stage.power


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _root(value: Any) -> Any:
    return root(value) if isinstance(value, Tensor) else value**0.5
