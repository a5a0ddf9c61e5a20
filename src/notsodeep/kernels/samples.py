"""What a kernel needs to know about each sample: its scale, its squared norm, its variances."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError, require_finite
from notsodeep.gaussian import moments
from notsodeep.kernels.kinds import combine
from notsodeep.kernels.passes import row_statistics
from notsodeep.kernels.tabulate import pointwise, tabulate
from notsodeep.models import DEQ, Explicit

__all__ = ["Levels", "Samples", "deq_levels", "exact_diagonal", "explicit_levels"]

Array: TypeAlias = NDArray[Any]

_EPSILON = float(np.finfo(np.float64).eps)


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
        X = np.require(X.view(np.ndarray), requirements=["C", "A"])  # off its alignment, NumPy would not use BLAS
        largest, square = np.empty(len(X)), np.empty(len(X))
        row_statistics(X, largest, square)
        if not np.isfinite(largest.sum()):
            require_finite(X, parameter)
        limits = (1e-12, 1e12) if dtype == np.float32 else (1e-100, 1e100)
        nonzero = largest[largest > 0]
        factor = np.ones(len(X))
        if nonzero.size and (nonzero.min() < limits[0] or nonzero.max() > limits[1]):
            exponent = np.where(largest > 0, np.frexp(np.where(largest > 0, largest, 1.0))[1], 0)
            factor = np.ldexp(1.0, exponent)
            X = np.ldexp(X.astype(np.float64), -exponent[:, None])  # exact: only the exponent changes
            row_statistics(X, largest, square)
        norm = np.sqrt(square)
        longest, limit = float((factor * norm).max()), math.sqrt(np.finfo(dtype).max) / 1e2
        if longest > limit:
            raise InputError(
                f"{parameter} has a row of norm {longest:.3g}, whose kernel overflows {np.dtype(dtype).name}; "
                f"scale {parameter} so that norms stay below {limit:.1g}"
            )
        return Samples(X.astype(dtype, copy=False), X, factor, norm)

    def drive(self, model: DEQ) -> Array:
        """σ_b² ‖x‖² + σ_0²."""
        return model.input * (self.factor * self.norm) ** 2 + model.bias

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Levels:
    """Per-sample variances along a network: `variance[l]` enters the activation of level l.

    power[l] = E[φ²] and slope[l] = E[φ'²] there; shape (levels, n). error: of all of them, relatively;
    residual: of the equation q = σ_a² E[φ²] + drive, relative to q.
    """

    variance: Array
    power: Array
    slope: Array
    error: float
    residual: float = 0.0


def deq_levels(model: DEQ, samples: Samples, depth: int | None) -> Levels:
    """The fixed-point variance (one level), or the `depth + 1` iterates from Λ⁰ = ‖x‖²."""
    drive = samples.drive(model)
    phi = model.activation
    if depth is None:
        if model.activation.homogeneous:  # q = drive/(1 − σ_a² E[φ(ξ)²])
            variance = drive / (1 - model.recurrent * moments(phi, 1.0).power)
            error = 0.0
        else:
            variance, error = _positive(model.fixed_variance, drive)
        power, slope, spread = _powers(phi, variance)
        # q = σ_a² E[φ²] + drive passes on an error of E[φ²] with the gain 1/(1 − σ_a² dE[φ²]/dq)
        probes = np.quantile(variance, np.linspace(0, 1, 5)).tolist()
        steepest = max((moments(phi, math.sqrt(q)).power_curvature / 2 for q in probes if q), default=0.0)
        gain = 1 / max(1 - model.recurrent * max(steepest, 0.0), _EPSILON)
        residual = max(error, spread) + 4 * _EPSILON
        return Levels(variance[None], power[None], slope[None], gain * residual, residual)
    variances, powers, slopes, error = [(samples.factor * samples.norm) ** 2], [], [], 0.0
    for level in range(depth + 1):
        power, slope, spread = _powers(phi, variances[-1])
        powers.append(power)
        slopes.append(slope)
        error += spread + 4 * _EPSILON
        if level < depth:
            variances.append(model.recurrent * power + drive)
    return Levels(np.stack(variances), np.stack(powers), np.stack(slopes), error)


def explicit_levels(model: Explicit, samples: Samples) -> Levels:
    """q⁰ = ‖x‖², then qˡ = E[σ_l(√qˡ⁻¹ ξ)²]."""
    variances, powers, slopes, error = [(samples.factor * samples.norm) ** 2], [], [], 0.0
    for phi in model.activations:
        power, slope, spread = _powers(phi, variances[-1])
        powers.append(power)
        slopes.append(slope)
        variances.append(power)
        error += spread + 4 * _EPSILON
    return Levels(np.stack(variances[:-1]), np.stack(powers), np.stack(slopes), error)


def exact_diagonal(model: DEQ | Explicit, kind: str, levels: Levels, samples: Samples, depth: int | None) -> Array:
    """The exact diagonal, from the variances alone."""
    if isinstance(model, DEQ) and depth is None:
        return combine(kind, levels.power[0], levels.slope[0], levels.variance[0], model.recurrent)
    tangent = (samples.factor * samples.norm) ** 2
    if isinstance(model, Explicit):
        for power, slope in zip(levels.power, levels.slope, strict=True):
            tangent = power + slope * tangent
        return levels.power[-1] if kind == "ck" else tangent
    frozen = levels.power[0]
    for level in range(1, len(levels.variance)):
        tangent = levels.variance[level] + model.recurrent * levels.slope[level - 1] * tangent
        frozen = levels.power[level] + model.recurrent * levels.slope[level] * frozen
    if kind == "ntk":
        return levels.power[-1] + levels.slope[-1] * tangent
    return {"ck": levels.power[-1], "nngp": levels.variance[-1], "ntk_frozen_input": frozen, "ntk_injected": tangent}[
        kind
    ]


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
    return powers, slopes, max(first, second)


def _positive(function: Callable[[float], float], x: Array) -> tuple[Array, float]:
    """A positive function at every x, with a relative error bound: its logarithm is what is tabulated."""
    zero = x == 0
    values = np.empty_like(x)
    error = 0.0
    if not zero.all():
        with np.errstate(divide="ignore"):
            logarithm, error = tabulate(pointwise(lambda point: np.log(function(point))), x[~zero])
        values[~zero] = np.exp(logarithm[0])
        error *= max(1.0, float(np.abs(logarithm).max()))
    if zero.any():
        values[zero] = function(0.0)
    return values, error
