"""A piecewise-linear activation with few kinks whose single layer comes close to a kernel on the sphere."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from notsodeep.activations import Activation, PiecewiseLinear
from notsodeep.kernels.kinked import KinkedLayer
from notsodeep.kernels.sphere import SphereKernel
from notsodeep.models import Explicit
from notsodeep.one_layer.deviation import Ruler
from notsodeep.one_layer.hermite_design import Design, rough_series
from notsodeep.one_layer.signs import chosen_signs, sign_patterns, signed_series

__all__ = ["bent"]

Array: TypeAlias = NDArray[Any]


def bent(kernel: SphereKernel, tangent: bool, kinks: int) -> Design:
    """Fit a piecewise-linear σ with at most this many kinks to k, in the largest deviation over t."""
    ruler, top = Ruler(kernel), kernel(1.0)
    rough = rough_series(ruler, tangent)
    smooth = Activation(signed_series(rough, chosen_signs(rough, sign_patterns(kernel, rough.b.size)[0])[0]))
    half = math.pi / 2 * np.sin(np.linspace(0, math.pi / 2, 33)) ** 2  # dense where kernels bend
    layer = KinkedLayer(np.concatenate([half, math.pi - half[-2::-1]]))
    goal = kernel.near(2 * np.sin(layer.angles / 2) ** 2, 2 * np.cos(layer.angles / 2) ** 2)

    def unpacked(theta: Array) -> tuple[Array, Array]:
        """Places of the kinks in order, and slopes."""
        kinks = theta.size // 2 - 1
        order = np.argsort(theta[:kinks])
        places = np.maximum.accumulate(theta[:kinks][order] + 1e-6 * np.arange(kinks))
        steps = np.diff(theta[kinks : 2 * kinks + 1])[order]
        return places, theta[kinks] + np.concatenate([[0.0], np.cumsum(steps)])

    def deviation(theta: Array) -> Array:
        return (layer(*unpacked(theta), float(theta[-1]), tangent) - goal) / top

    best, smallest = None, math.inf
    for many, spread in itertools.product(range(max(kinks - 1, 1), kinks + 1), (0.5, 0.8, 1.1, 1.5)):
        places = spread * (np.arange(many) - (many - 1) / 2) * 2 / max(many, 2)
        edges = np.concatenate([[places[0] - 1.5], places, [places[-1] + 1.5]])
        start = np.concatenate([places, np.diff(smooth(edges)) / np.diff(edges), [float(smooth(0.0))]])
        theta = least_squares(deviation, start, max_nfev=60).x
        for power in (2, 4, 8, 16):  # towards the largest deviation
            scale = float(np.abs(deviation(theta)).max()) + 1e-300

            def sharpened(x: Array, power: int = power, scale: float = scale) -> Array:
                ratio = deviation(x) / scale
                return np.sign(ratio) * np.abs(ratio) ** power

            theta = least_squares(sharpened, theta, max_nfev=30).x
        size = float(np.abs(deviation(theta)).max())
        if size < smallest:
            best, smallest = theta, size
    assert best is not None
    shape = PiecewiseLinear(*(tuple(each.tolist()) for each in unpacked(best)))
    sigma = Activation(shape, stretch=1 / kernel.norm, shift=-float(best[-1]))
    xi, weights = np.polynomial.hermite_e.hermegauss(120)
    values = sigma(kernel.norm * xi)
    fourth = float(weights @ values**4 * weights.sum() / (weights @ values**2) ** 2)
    found = SphereKernel(Explicit([sigma]), "ntk" if tangent else "ck", kernel.norm)
    return Design(sigma, ruler(partial(_engine, found)), fourth)


def _engine(kernel: SphereKernel, gap: Array, sign: float) -> Array:
    return kernel.near(gap, 2 - gap) if sign > 0 else kernel.near(2 - gap, gap)
