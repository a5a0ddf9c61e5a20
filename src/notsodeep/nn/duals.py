"""E[φ(u)φ(v)] and E[φ'(u)φ'(v)] on tensors, differentiable as often as asked, for every pair of variances.

Closed forms of homogeneous φ (relu, leaky relu, abs, identity) and of erf, sin, cos, e^{−x²/2} and gelu, as in
:mod:`notsodeep.kernels.closed`, with scale, stretch and shift. A correlation ρ enters as η = 1 − ρ and ζ = 1 + ρ, which
keep their digits near ρ = ±1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from notsodeep.activations import Activation, PiecewiseLinear, Smooth
from notsodeep.kernels.arc import Arc

__all__ = ["TensorDual", "dual_of"]

_INV_2PI = 1 / (2 * math.pi)
_SMALL_ANGLE = 0.4
_LENS = (1 / 3, -1 / 30, 1 / 840, -1 / 45360, 1 / 3991680, -1 / 518918400)


class _Angle(torch.autograd.Function):
    """θ = arccos ρ from η and ζ. dθ = −dρ/sin θ; 0 at θ = 0 and π, where it is infinite."""

    @staticmethod
    def forward(ctx: Any, eta: Tensor, zeta: Tensor) -> Tensor:
        ctx.save_for_backward(eta, zeta)
        return 2 * torch.atan2(eta.sqrt(), zeta.sqrt())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        eta, zeta = ctx.saved_tensors
        square = eta * zeta
        inside = square > 0
        rate = gradient * torch.where(inside, torch.where(inside, square, 1.0).rsqrt(), 0.0) / 2
        return rate, -rate


class _Lens(torch.autograd.Function):
    """sin θ − θ cos θ, whose derivative in ρ is −θ."""

    @staticmethod
    def forward(ctx: Any, eta: Tensor, zeta: Tensor) -> Tensor:
        ctx.save_for_backward(eta, zeta)
        return lens(2 * torch.atan2(eta.sqrt(), zeta.sqrt()))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        rate = gradient * _Angle.apply(*ctx.saved_tensors) / 2
        return rate, -rate


def lens(theta: Tensor) -> Tensor:
    """sin θ − θ cos θ = θ³/3 − θ⁵/30 + …, by its series where the difference would cancel."""
    x = theta * theta
    series = torch.full_like(x, _LENS[-1])
    for coefficient in _LENS[-2::-1]:
        series = series * x + coefficient
    return torch.where(theta > _SMALL_ANGLE, theta.sin() - theta * theta.cos(), theta * x * series)


def root(x: Tensor) -> Tensor:
    """√x with the derivative 0 at x = 0."""
    above = x > 0
    return torch.where(above, torch.where(above, x, 1.0).sqrt(), 0.0)


@dataclass(frozen=True)
class TensorDual:
    """The dual of one activation."""

    phi: Activation

    @property
    def kinked(self) -> bool:
        """Whether :meth:`distances` keeps all digits."""
        return isinstance(self, _Arc)

    def __call__(self, q: Tensor, r: Tensor, eta: Tensor, zeta: Tensor) -> tuple[Tensor, Tensor]:
        """G and Ġ of samples with variances q, r and correlation 1 − η = ζ − 1."""
        phi = self.phi
        p, s = phi.stretch**2 * q, phi.stretch**2 * r
        power, slope = self._bare(p, s, torch.where(eta <= zeta, 1 - eta, zeta - 1), eta, zeta)
        power, slope = phi.scale**2 * power, (phi.scale * phi.stretch) ** 2 * slope
        if phi.shift:
            power = power - phi.shift * (self.mean(q) + self.mean(r) + phi.shift)
        return power, slope

    def mean(self, q: Tensor) -> Tensor:
        """E[φ(√q ξ)]."""
        phi = self.phi
        return phi.scale * self._bare_mean(phi.stretch**2 * q) - phi.shift

    def alone(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """E[φ²] and E[φ'²]."""
        return self(q, q, torch.zeros_like(q), torch.full_like(q, 2.0))

    def distances(
        self, q: Tensor, r: Tensor, eta: Tensor, zeta: Tensor, size: Tensor, power: Tensor
    ) -> tuple[Tensor, Tensor]:
        """size ∓ G for size = √(E[φ(u)²] E[φ(v)²]), without cancellation where φ has a kink."""
        raise NotImplementedError

    def _bare(self, p: Tensor, s: Tensor, rho: Tensor, eta: Tensor, zeta: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def _bare_mean(self, p: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class _Arc(TensorDual):
    """φ₀(x) = a·max(x, 0) + b·min(x, 0): G = √(ps)(vρ + e(sin θ − θ cos θ)), Ġ = v − eθ."""

    @property
    def _numbers(self) -> Arc:
        return Arc.of(Activation(self.phi.shape), 0.0)

    def _bare(self, p: Tensor, s: Tensor, rho: Tensor, eta: Tensor, zeta: Tensor) -> tuple[Tensor, Tensor]:
        arc = self._numbers
        size = root(p) * root(s)
        if not arc.bend:
            return size * arc.power * rho, torch.full_like(rho, arc.power)
        bent: Any = _Lens.apply(eta, zeta)
        theta: Any = _Angle.apply(eta, zeta)
        return size * (arc.power * rho + arc.bend * bent), arc.power - arc.bend * theta

    def _bare_mean(self, p: Tensor) -> Tensor:
        return root(p) * self._numbers.mean

    def distances(
        self, q: Tensor, r: Tensor, eta: Tensor, zeta: Tensor, size: Tensor, power: Tensor
    ) -> tuple[Tensor, Tensor]:
        phi, arc = self.phi, Arc.of(self.phi, 0.0)
        roots = root(q) * root(r)
        theta = 2 * torch.atan2(eta.sqrt(), zeta.sqrt())
        opposite = lens(math.pi - theta)  # sin θ − θ cos θ = π(1 − ζ) + that of π − θ
        total = 2 * arc.power - math.pi * arc.bend
        total = 0.0 if abs(total) < 1e-15 * arc.power else total  # abs
        below = torch.where(
            theta <= math.pi / 2,
            arc.power * eta - arc.bend * lens(theta),
            total + (math.pi * arc.bend - arc.power) * zeta - arc.bend * opposite,
        )
        below, above = roots * below, roots * (arc.power * zeta + arc.bend * lens(theta))
        if phi.shift:  # |A||B| − A·B of A = (√q·deviation, √q·mean − shift), by Lagrange's identity
            spread = math.sqrt(max(arc.power - arc.mean**2, 0.0))
            cross = phi.shift * spread * (root(q) - root(r))
            along = roots * arc.power - phi.shift * (arc.mean * (root(q) + root(r)) - phi.shift)
            total_size = size + along
            safe = torch.where(total_size > 0, total_size, 1.0)
            below = below + torch.where(total_size > 0, cross**2 / safe, size - along)
            above = size + power
        return below.clamp_min(0), above.clamp_min(0)


@dataclass(frozen=True)
class _Closed(TensorDual):
    """A smooth φ₀: everything is smooth in ρ, so differences may be formed directly."""

    def distances(
        self, q: Tensor, r: Tensor, eta: Tensor, zeta: Tensor, size: Tensor, power: Tensor
    ) -> tuple[Tensor, Tensor]:
        same = (eta == 0) & (q == r)
        return torch.where(same, 0.0, size - power).clamp_min(0), (size + power).clamp_min(0)


class _Erf(_Closed):
    def _bare(self, p: Tensor, s: Tensor, rho: Tensor, eta: Tensor, zeta: Tensor) -> tuple[Tensor, Tensor]:
        spread = (1 + 2 * (p + s) + 4 * p * s * eta * zeta).sqrt()
        return 2 / math.pi * torch.atan2(2 * root(p) * root(s) * rho, spread), 4 / (math.pi * spread)

    def _bare_mean(self, p: Tensor) -> Tensor:
        return torch.zeros_like(p)


class _Wave(_Closed):
    def _waves(self, p: Tensor, s: Tensor, eta: Tensor, zeta: Tensor) -> tuple[Tensor, Tensor]:
        """½ e^{±Λ − (p+s)/2}."""
        sizes, apart = root(p) * root(s), (root(p) - root(s)) ** 2 / 2
        return torch.exp(-sizes * eta - apart) / 2, torch.exp(-sizes * zeta - apart) / 2


class _Sin(_Wave):
    def _bare(self, p: Tensor, s: Tensor, rho: Tensor, eta: Tensor, zeta: Tensor) -> tuple[Tensor, Tensor]:
        near, far = self._waves(p, s, eta, zeta)
        return near - far, near + far

    def _bare_mean(self, p: Tensor) -> Tensor:
        return torch.zeros_like(p)


class _Cos(_Wave):
    def _bare(self, p: Tensor, s: Tensor, rho: Tensor, eta: Tensor, zeta: Tensor) -> tuple[Tensor, Tensor]:
        near, far = self._waves(p, s, eta, zeta)
        return near + far, near - far

    def _bare_mean(self, p: Tensor) -> Tensor:
        return torch.exp(-p / 2)


class _Gaussian(_Closed):
    def _bare(self, p: Tensor, s: Tensor, rho: Tensor, eta: Tensor, zeta: Tensor) -> tuple[Tensor, Tensor]:
        X = 1 + p + s + p * s * eta * zeta
        return X.rsqrt(), root(p) * root(s) * rho * X**-1.5

    def _bare_mean(self, p: Tensor) -> Tensor:
        return (1 + p).rsqrt()


class _Gelu(_Closed):
    def _bare(self, p: Tensor, s: Tensor, rho: Tensor, eta: Tensor, zeta: Tensor) -> tuple[Tensor, Tensor]:
        product = p * s * eta * zeta  # ps − Λ²
        covariance, X = root(p) * root(s) * rho, 1 + p + s + product
        weight, spread = 1 / (1 + p) + 1 / (1 + s), X.sqrt()
        angle = torch.atan2(covariance, spread)
        numerator = p * s * weight - (weight - 1) * product
        power = covariance / 4 + _INV_2PI * (numerator / spread + covariance * angle)
        return power, 0.25 + _INV_2PI * (angle + covariance * (weight + 1 / X) / spread)

    def _bare_mean(self, p: Tensor) -> Tensor:
        return p / (2 * math.pi * (1 + p)).sqrt()


_SMOOTH: dict[str, type[TensorDual]] = {"erf": _Erf, "sin": _Sin, "cos": _Cos, "gaussian": _Gaussian, "gelu": _Gelu}


def dual_of(phi: Activation) -> TensorDual | None:
    """The dual of φ; None where there is no closed form."""
    shape = phi.shape
    if isinstance(shape, PiecewiseLinear):
        return _Arc(phi) if shape.homogeneous else None
    return _SMOOTH[shape.name](phi) if isinstance(shape, Smooth) and shape.name in _SMOOTH else None
