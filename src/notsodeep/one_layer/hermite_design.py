"""The one-hidden-layer network that has a given kernel on a sphere, exactly.

With k(t) = Σ b_k tᵏ, b_k ≥ 0, the activation

    σ(x) = Σ_k s_k √b_k h_k(x/τ0),    s_k = ±1,    h_k orthonormal Hermite polynomials,

of a single layer has the conjugate kernel k on rows of norm τ0, because E[h_j(u) h_k(v)] = δ_jk tᵏ. Its NTK, both
layers trained, is Σ (1 + k) b_k tᵏ, so b_k/(1 + k) in place of b_k gives the tangent kernel k
[Simon, Anand, DeWeese 2022].

Smooth activations make b_k fall faster than any power. Kinks leave a power law, b_k ~ k^{−1−s} with the exponent s of
the singularity (1 − t)^s, which begins late close to the limit of well-posedness. It is carried to all orders by |x|
and x log|x|, sharp and rounded off over several widths (:mod:`notsodeep.bends`), with factors fitted to k itself.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.activations import Activation
from notsodeep.gaussian import moments
from notsodeep.hermite import HermiteSeries
from notsodeep.kernels.power_series import PowerSeries
from notsodeep.kernels.sphere import SphereKernel
from notsodeep.one_layer.deviation import Ruler
from notsodeep.one_layer.signs import chosen_signs, sign_patterns, signed_series

__all__ = ["EXACT", "Design", "design", "rough_series"]

Array: TypeAlias = NDArray[Any]

EXACT = 1e-10  # largest distance of a design that calls itself exact
_ENOUGH = 2e-12  # distance at which no more orders are tried
_LENGTHS = (512, 1024, 4096, 16384, 65536)
_ROUNDS = 3  # most corrections for the straight ends
_SOFT = 0.55  # spacing of log λ of the bends that are added for them


@dataclass(frozen=True)
class Design:
    """An activation whose single layer has the kernel, how far it is off, and what matters at finite width.

    Attributes
    ----------
    activation : Activation
    distance : float
        sup_t |k̂(t) − k(t)|/k(1), a bound up to rounding: see :class:`~notsodeep.one_layer.deviation.Ruler`.
    fourth : float
        E[σ⁴]/E[σ²]² at the norm of the design: how much a finite layer fluctuates.
    """

    activation: Activation
    distance: float
    fourth: float

    @property
    def lipschitz(self) -> float:
        return self.activation.lipschitz


def design(kernel: SphereKernel, tangent: bool) -> Design:
    """Find σ whose single layer has this kernel as its CK, or as its NTK if `tangent`."""
    ruler = Ruler(kernel)
    series = _series(ruler, tangent, _LENGTHS if kernel.singularity.smooth else _LENGTHS[:-1])
    found = [_signed(ruler, series, pattern, tangent) for pattern in sign_patterns(kernel, series.b.size)]
    return min(found, key=lambda one: (one.distance > EXACT, one.distance if one.distance > EXACT else one.fourth))


def _series(ruler: Ruler, tangent: bool, lengths: tuple[int, ...]) -> PowerSeries:
    """c_k² of σ = Σ c_k h_k, with as many orders as are necessary."""
    kernel = ruler.kernel
    trials: list[tuple[float, PowerSeries]] = []
    for length in lengths:
        b = kernel.series(length)
        order = np.arange(length)
        squares = b / (1 + order) if tangent else b
        if kernel.singularity.smooth:
            # the noise of b_k grows by 100 up to the last order
            last = int(np.max(np.flatnonzero(b > 2e-16 * kernel(1.0) * 100.0 ** (order / length)), initial=0))
            ended, series = last < 0.75 * length, PowerSeries.finite(squares[: last + 1])
        else:
            ended, series = False, ruler.fitted(squares, tangent)
        trials.append((ruler.sampled(partial(series.values, tangent=tangent)), series))
        if ended or trials[-1][0] <= _ENOUGH:
            break
    return min(trials, key=lambda one: one[0])[1]


def rough_series(ruler: Ruler, tangent: bool) -> PowerSeries:
    """c_k² of σ with few orders: enough to begin with."""
    return _series(ruler, tangent, _LENGTHS[:1])


def _signed(ruler: Ruler, series: PowerSeries, pattern: Array, tangent: bool) -> Design:
    """Choose signs, and let bends make up for what the straight ends of σ lose."""
    signs, fourth = chosen_signs(series, pattern)
    shape = signed_series(series, signs)
    distance = _distance(ruler, shape, tangent)
    for _ in range(_ROUNDS if distance > EXACT and series.factors.any() else 0):
        mended = _mended(ruler, shape, tangent)
        nearer = _distance(ruler, mended, tangent)
        if nearer >= distance:
            break
        shape, distance = mended, nearer
    return Design(Activation(shape, stretch=1 / ruler.kernel.norm), distance, fourth)


def _distance(ruler: Ruler, shape: HermiteSeries, tangent: bool) -> float:
    """sup |k̂ − k|/k(1) of the function itself."""
    series = PowerSeries.of(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a quadrature that stops early
        m = moments(Activation(shape), 1.0)
    # what the table and rounding change shows in the moments
    reached = m.power + (m.slope_power if tangent else 0.0)
    rounding = abs(reached - float(series.values(np.zeros(1), 1.0, tangent)[0]))
    # 2 √E[σ²] √E[δ²] for an error δ of one rounding of every bend
    rounding += 4.4e-16 * math.sqrt(series.b.sum()) * float(np.abs(series.factors).sum())
    return rounding / ruler.kernel(1.0) + ruler(partial(series.values, tangent=tangent))


def _mended(ruler: Ruler, shape: HermiteSeries, tangent: bool) -> HermiteSeries:
    """Add soft bends, which lose nothing at the ends, so that k̂ comes closer to k: one step of Gauss–Newton.

    σ may have kinks beyond its straight ends, which have taken c_k d_k ~ k^{−5/2} from b_k: a smooth law, up to
    oscillations in √k that average out.
    """
    more = np.exp(-_SOFT * np.arange(1.0, 40.0))
    gap, missing = ruler.missing(PowerSeries.of(shape), tangent)
    changes = PowerSeries.changes(shape, more, gap, tangent)
    added = np.zeros((2, more.size))
    for parity, (change, unit) in enumerate(zip(changes, (1.0, 2 / math.pi), strict=True)):
        goal = (missing[0] + (-1) ** parity * missing[1]) / 2
        if np.abs(goal).max() > _ENOUGH * ruler.kernel(1.0):
            added[parity] = unit * np.linalg.lstsq(change, goal, rcond=1e-10)[0]
    total = {decay: np.zeros(2) for decay in (*shape.decays, *more.tolist())}
    old = zip(shape.decays, shape.bends, shape.logs, strict=True)
    new = zip(more.tolist(), *added.tolist(), strict=True)
    for decay, bend, log in (*old, *new):
        total[decay] += bend, log
    bends, logs = np.array(list(total.values())).T.tolist()
    return HermiteSeries(shape.coefficients, tuple(bends), tuple(logs), tuple(total))
