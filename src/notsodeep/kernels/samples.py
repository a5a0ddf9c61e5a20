"""Per-sample quantities of a kernel: scale, squared norm, variances."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from notsodeep.activations import Custom, HermiteSeries, PiecewiseLinear
from notsodeep.callables import difference_noise
from notsodeep.checks import InputError, require_finite
from notsodeep.gaussian import moments
from notsodeep.kernels.passes import row_statistics, summed_squares
from notsodeep.kernels.tabulate import pointwise, tabulate
from notsodeep.kinds import Kind, combine
from notsodeep.models import DEQ
from notsodeep.recursion import Layer, Recursion

__all__ = ["Levels", "Samples", "exact_diagonal", "levels_of"]

Array: TypeAlias = NDArray[Any]

_EPSILON = float(np.finfo(np.float64).eps)
_PROBES = 8  # rows whose inner products are also computed exactly
_LARGER = 100.0  # terms larger than E[φ²] by this factor lose digits that count
# norm of a row whose square keeps its digits; homogeneous activations do without squares, but not without 1/‖x‖
_SHORTEST, _SHORTEST_OF_HOMOGENEOUS = 1e-150, 1e-300
_FEW = 33  # samples whose loss stands for that of the others between them
_QUADRATURE = 4e-14  # relative error of Gaussian integrals of a callable, whose values are only known to a few ε


@dataclass(frozen=True)
class Samples:
    """Rows of X with a power-of-two factor taken out where plain inner products would over- or underflow.

    Attributes
    ----------
    rows : array (n, p)
        C-contiguous, in the dtype of the computation.
    exact : array (n, p)
        The same rows in the dtype the user gave; differences of near-duplicates are formed from these.
    factor : array (n,)
        x_i = factor_i · rows_i.
    norm : array (n,)
        ‖rows_i‖ in float64.
    """

    rows: Array
    exact: Array
    factor: Array
    norm: Array

    @staticmethod
    def of(X: Array, dtype: Any, parameter: str = "X") -> Samples:
        X = np.require(X.view(np.ndarray), requirements=["C", "A"])  # NumPy does not use BLAS for unaligned arrays
        largest, square = np.empty(len(X)), np.empty(len(X))
        row_statistics(X, largest, square)
        if not np.isfinite(largest).all():
            require_finite(X, parameter)
        limits = (1e-12, 1e12) if dtype == np.float32 else (1e-100, 1e100)
        nonzero = largest[largest > 0]
        factor = np.ones(len(X))
        if nonzero.size and (nonzero.min() < limits[0] or nonzero.max() > limits[1]):
            exponent = np.where(largest > 0, np.frexp(np.where(largest > 0, largest, 1.0))[1], 0)
            with np.errstate(over="ignore"):  # such a row is refused below
                factor = np.ldexp(1.0, exponent)
            X = np.ldexp(X.astype(np.float64), -exponent[:, None])  # exact: only the exponent changes
            row_statistics(X, largest, square)
        norm = np.sqrt(square)
        with np.errstate(over="ignore"):
            longest = float((factor * norm).max())
        limit = math.sqrt(np.finfo(dtype).max) / 1e2
        if longest > limit:
            raise InputError(
                f"{parameter} has a row of norm {longest:.3g}, whose kernel overflows {np.dtype(dtype).name}; "
                f"scale {parameter} so that norms stay below {limit:.1g}"
            )
        return Samples(X.astype(dtype, copy=False), X, factor, norm)

    @property
    def square(self) -> Array:
        """‖x‖²."""
        return (self.factor * self.norm) ** 2

    def vanishing(self, homogeneous: bool) -> tuple[Array, float]:
        """Rows that are too short, (n,), and the least norm that is not."""
        length = self.factor * self.norm
        shortest = _SHORTEST_OF_HOMOGENEOUS if homogeneous else _SHORTEST
        return np.asarray((length > 0) & (length < shortest)), shortest

    def without(self, gone: Array) -> Samples:
        """The same with zeros for these rows."""
        rows, exact = (np.where(gone[:, None], 0, array).astype(array.dtype) for array in (self.rows, self.exact))
        return Samples(rows, exact, self.factor, np.where(gone, 0.0, self.norm))

    @cached_property
    def rounding(self) -> float:
        """The error of a computed cosine: the usual one for this many features, and twice the one seen on a few rows.

        BLAS adds products sequentially. Random terms lose about √p units in the last place; equal terms all round in
        the same direction and lose up to p/6. So the rows whose own squares lose most are among the few.
        """
        own = np.empty(len(self))
        summed_squares(self.rows, own)
        square = self.norm**2
        lost = np.divide(np.abs(own - square), square, out=np.zeros_like(own), where=square > 0)
        worst = np.argsort(lost)[-_PROBES:]
        rows = np.concatenate([self.rows[:: max(1, len(self) // _PROBES)][:_PROBES], self.rows[worst]])
        wide: Any = rows.astype(np.float64 if rows.dtype == np.float32 else np.longdouble)
        exact = np.einsum("ik,jk->ij", wide, wide)
        size = np.sqrt(np.diag(exact))
        scale = np.multiply.outer(size, size)
        seen = np.divide(np.abs(rows @ rows.T - exact), scale, out=np.zeros_like(scale), where=scale > 0)
        usual = float(np.finfo(rows.dtype).eps) * (4 + math.sqrt(rows.shape[1]) / 8)
        return usual + 2 * float(seen.max())

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Levels:
    """Variances and moments of each sample along a recursion; arrays (levels, n).

    Attributes
    ----------
    variance : array
        Variance of the input of each level's activation.
    power, slope : array
        E[φ²] and E[φ'²] there.
    mean, scale : array
        What a normalised level subtracts and divides by; 0 and 1 elsewhere.
    error : float
        Of all of them, relatively.
    residual : float
        Of the equation q = σ_a² E[φ²] + drive of a DEQ, relative to q.
    """

    variance: Array
    power: Array
    slope: Array
    mean: Array
    scale: Array
    error: float
    residual: float = 0.0


def levels_of(recursion: Recursion, samples: Samples) -> Levels:
    """Variances, powers and slopes of each sample, level by level."""
    square = samples.square
    if not recursion.closed:
        return _forward(recursion, square, np.zeros_like(square), 0.0)
    if len(recursion.layers) == 1 and recursion.layers[0].normalize is None:
        return _equilibrium(recursion.layers[0], square)
    if recursion.normalized or all(phi.homogeneous for phi in recursion.activations):
        # the output power does not depend on the input power, or is affine in it
        last = recursion.layers[-1]
        ends = [_forward(recursion, square, np.full_like(square, start), 0.0) for start in (0.0, 1.0)]
        low, high = (np.ones_like(square) if last.normalize else level.power[-1] for level in ends)
        state, error = low / (1 - (high - low)), ends[0].error
    else:
        state, error = _positive(recursion.state, square)
        error += 4 * _EPSILON
    probes = np.quantile(square, np.linspace(0, 1, 5)).tolist()
    gain = 1 / max(1 - max(_stability(recursion, point) for point in probes), _EPSILON)
    return _forward(recursion, square, state, gain * error)


def _stability(recursion: Recursion, square: float) -> float:
    """|dv_L/dv_0| at the fixed point of the powers: Π σ² dE[φ²]/dq; 0 where a layer is normalised."""
    if recursion.normalized:
        return 0.0
    total = 1.0
    for layer, q in zip(recursion.layers, recursion.passed(recursion.state(square), square), strict=True):
        total *= layer.recurrent * (moments(layer.activation, math.sqrt(q)).power_curvature / 2 if q else 0.0)
    return abs(total)


def _forward(recursion: Recursion, square: Array, state: Array, error: float) -> Levels:
    """From the power `state` (known to `error`, relatively) that enters the first layer."""
    rows: list[tuple[Array, ...]] = []
    worst = 0.0
    for layer in recursion.layers:
        variance = layer.recurrent * state + layer.input * square + layer.bias
        power, slope, spread = _powers(layer.activation, variance)
        error = max(1.0, _growth(layer.activation, variance)) * error + spread + 4 * _EPSILON
        mean, scale, state = np.zeros_like(power), np.ones_like(power), power
        worst = max(worst, error)
        if layer.normalize:
            if layer.normalize == "layer":
                mean, spread = _means(layer.activation, variance)
                error += spread
            rest = power - mean**2
            if not rest.all():
                raise InputError(f"a row without any signal cannot be normalised by {layer}; remove rows of zeros")
            worst = max(worst, error * float(np.max((power + 2 * mean**2) / rest)))
            scale, state, error = np.sqrt(rest), np.ones_like(power), 0.0
        rows.append((variance, power, slope, mean, scale))
    variance, power, slope, mean, scale = (np.stack(row) for row in zip(*rows, strict=True))
    return Levels(variance, power, slope, mean, scale, worst)


def _equilibrium(layer: Layer, square: Array) -> Levels:
    """The fixed-point variance of a DEQ of one layer."""
    phi, drive = layer.activation, layer.input * square + layer.bias
    if phi.homogeneous:  # q = drive/(1 − σ_a² E[φ(ξ)²])
        variance = drive / (1 - layer.recurrent * moments(phi, 1.0).power)
        error = 0.0
    else:
        deq = DEQ(phi, layer.recurrent, layer.input, layer.bias)
        variance, error = _positive(deq.fixed_variance, drive)
    power, slope, spread = _powers(phi, variance)
    # q = σ_a² E[φ²] + drive passes on an error of E[φ²] with the gain 1/(1 − σ_a² dE[φ²]/dq)
    probes = np.quantile(variance, np.linspace(0, 1, 5)).tolist()
    steepest = max((moments(phi, math.sqrt(q)).power_curvature / 2 for q in probes if q), default=0.0)
    gain = 1 / max(1 - layer.recurrent * max(steepest, 0.0), _EPSILON)
    residual = max(error, spread) + 4 * _EPSILON
    nothing = np.zeros_like(power)
    return Levels(variance[None], power[None], slope[None], nothing[None], nothing[None] + 1, gain * residual, residual)


def exact_diagonal(recursion: Recursion, kind: str, levels: Levels) -> Array:
    """The exact diagonal, from the variances alone."""
    if (only := recursion.equilibrium) is not None:
        return combine(Kind.of(kind), levels.power[0], levels.slope[0], levels.variance[0], only.recurrent)
    injected = tangent = frozen = np.zeros_like(levels.power[0])
    loop = np.ones_like(tangent)
    state = levels.power[0]
    for k, layer in enumerate(recursion.layers):
        divisor = levels.scale[k] ** 2
        injected = levels.variance[k] + layer.recurrent * tangent  # S = Λ + σ² T
        tangent = levels.slope[k] * injected / divisor
        frozen = levels.power[k] + layer.recurrent * levels.slope[k] * frozen
        loop = loop * layer.recurrent * levels.slope[k] / divisor
        state = np.ones_like(state) if layer.normalize else levels.power[k]
    if recursion.closed:
        tangent = tangent / (1 - loop)
    values = {Kind.CK: state, Kind.NNGP: levels.variance[-1], Kind.NTK: state + tangent}
    return {**values, Kind.NTK_FROZEN_INPUT: frozen, Kind.NTK_INJECTED: injected}[Kind.of(kind)]


def _growth(phi: Any, variance: Array) -> float:
    """Amplification of a relative error of q in E[φ(√q ξ)²]: q (E[φ²])'/E[φ²], at a few of the variances."""
    if phi.homogeneous:
        return 1.0
    points = [q for q in np.quantile(variance, np.linspace(0, 1, 5)).tolist() if q]
    found = [(q, moments(phi, math.sqrt(q))) for q in points]
    return max((abs(q * m.power_curvature / 2) / m.power for q, m in found if m.power), default=1.0)


def _means(phi: Any, variance: Array) -> tuple[Array, float]:
    """E[φ(√q ξ)] for each q, with its error relative to the largest."""
    if phi.odd and float(phi(0.0)) == 0:
        return np.zeros_like(variance), 0.0
    if phi.homogeneous:
        return np.sqrt(variance) * moments(phi, 1.0).mean, 0.0
    found, error = tabulate(pointwise(lambda q: moments(phi, math.sqrt(q)).mean if q else float(phi(0.0))), variance)
    size = np.abs(found[0])
    return found[0], (error * float(size.max()) + _origin_noise(phi)) / max(float(size.min()), 1e-300)


def _powers(phi: Any, variance: Array) -> tuple[Array, Array, float]:
    """E[φ(√q ξ)²] and E[φ'(√q ξ)²] for each q."""
    if phi.homogeneous:
        unit = moments(phi, 1.0)
        return variance * unit.power, np.full_like(variance, unit.slope_power), 0.0

    def power(q: float) -> float:
        return moments(phi, math.sqrt(q)).power if q else float(phi(0.0)) ** 2

    def slope_power(q: float) -> float:
        if q:
            return moments(phi, math.sqrt(q)).slope_power
        return float(np.mean(np.square(phi.derivative(np.array([-1e-200, 1e-200])))))

    powers, first = _positive(power, variance)
    slopes, second = _positive(slope_power, variance)
    if isinstance(phi.shape, PiecewiseLinear) and phi.shape.kinks:
        first += _cancelled(phi, phi.shape, variance, powers)
    if isinstance(phi.shape, HermiteSeries):  # E[φ²] changes by 2 E|φ δ| ≤ 2 √(E[φ²] E[δ²])
        some = np.argsort(variance)[np.linspace(0, variance.size - 1, min(variance.size, _FEW)).astype(int)]
        some = some[(variance * powers * slopes)[some] > 0]
        lost = phi.shape.noise(phi.stretch * np.sqrt(variance[some]))
        first += 2 * abs(phi.scale) * float((lost[0] / np.sqrt(powers[some])).max(initial=0.0))
        second += 2 * abs(phi.scale * phi.stretch) * float((lost[1] / np.sqrt(slopes[some])).max(initial=0.0))
    if phi.shift:  # E[φ²] changes by 2 |E[φ] δ₀| ≤ 2 √E[φ²] |δ₀|
        least = float(powers[powers > 0].min(initial=np.inf))
        first += 2 * _origin_noise(phi) / math.sqrt(least)
    if isinstance(phi.shape, Custom):
        first += _QUADRATURE
    if isinstance(phi.shape, Custom) and phi.shape.slope is None:
        # E[φ'²] changes by 2 E|φ' δ| ≤ 2 √(E[φ'²] E[δ²]); values are rounded by ε/2
        heights = {kink / phi.stretch: abs(float(phi(kink / phi.stretch))) for kink in phi.shape.kinks}
        known = (slopes > 0) & (variance > 0)
        noise = difference_noise(np.sqrt(powers[known]), np.sqrt(variance[known]), heights)
        second += _EPSILON * abs(phi.stretch) * float((noise / np.sqrt(slopes[known])).max(initial=0.0))
    return powers, slopes, max(first, second)


def _origin_noise(phi: Any) -> float:
    """Rounding δ₀ of φ(0), which a shift may leave alone; none for φ₀ − φ₀(0), which is known without its terms."""
    shape = phi.shape
    if isinstance(shape, PiecewiseLinear) or phi.shift == phi.scale * shape.origin:
        return 0.0
    if 2 * shape.origin == round(2 * shape.origin):  # 0, ½ and 1 are exact
        return 0.0
    terms = shape.noise_at_zero if isinstance(shape, HermiteSeries) else 0.0
    return abs(phi.scale) * max(_EPSILON * abs(shape.origin), terms)


def _cancelled(phi: Any, shape: PiecewiseLinear, variance: Array, powers: Array) -> float:
    """Relative rounding of E[φ²] where φ is 0 around 0 and the signals hardly reach the kinks: large terms cancel."""
    kinks = np.abs(np.asarray(shape.kinks) / phi.stretch)[:, None]
    known = (variance > 0) & (powers > 0)
    position = np.minimum(kinks / np.sqrt(variance[known]), 40.0)
    bends = np.abs(phi.scale * phi.stretch * np.diff(shape.slopes))[:, None] * (position > 1)
    squares = (variance[known] + kinks**2) * special.ndtr(-position) * (1 + position**2 / 4)
    ratio = (bends * np.sqrt(squares)).sum(axis=0) ** 2 / powers[known]
    return 6 * _EPSILON * float(ratio[ratio > _LARGER].max(initial=0.0))


def _positive(function: Callable[[float], float], x: Array) -> tuple[Array, float]:
    """A positive function at every x, with a relative error bound.

    The logarithm of f(x) or of f(x)/x is tabulated, whichever is smaller at the ends: its rounding counts.
    """
    zero = x == 0
    values = np.empty_like(x)
    error = 0.0
    if not zero.all():
        inside = x[~zero]
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            ends = np.array([inside.min(), inside.max()])
            found = np.array([function(float(point)) for point in ends])
            divided = bool(np.abs(np.log(found / ends)).max() < np.abs(np.log(found)).max())
            logarithm, error = tabulate(
                pointwise(lambda point: np.log(function(point) / (point if divided else 1.0))), inside
            )
        values[~zero] = np.exp(logarithm[0]) * (inside if divided else 1.0)
        error = (error + _EPSILON / 2) * max(1.0, float(np.abs(logarithm).max()))  # the logarithm is rounded
        error += _EPSILON if divided else 0.0
    if zero.any():
        values[zero] = function(0.0)
    return values, error
