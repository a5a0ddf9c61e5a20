"""Slope, kinks and jumps of a function of one variable, found from its values alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep.checks import InputError

__all__ = [
    "PROBE_RADIUS",
    "call_elementwise",
    "central_difference",
    "difference_noise",
    "find_kinks",
    "refuse_jumps",
    "steepest",
]

Array: TypeAlias = NDArray[Any]

PROBE_RADIUS = 40.0  # kinks are searched for in [−40, 40]


def call_elementwise(function: Callable[[Any], Any], x: Array) -> Array:
    """Call `function` on an array, or on its entries one by one if it only takes numbers."""
    try:
        result = np.asarray(function(x), dtype=np.result_type(x, np.float32))
    except (TypeError, ValueError):
        result = np.asarray(np.vectorize(function, otypes=[float])(x))
    return np.broadcast_to(result, x.shape) if result.ndim == 0 else result


# tenth-order central difference: truncation ~h¹⁰ φ⁽¹¹⁾/2772, rounding ~ε|φ|/h
_STENCIL = ((1, 5 / 6), (2, -5 / 21), (3, 5 / 84), (4, -5 / 504), (5, 1 / 1260))
_STEP = 2.0**-7
_REACH = 6  # a kink is at least so many steps away
_SECANT = 2.0**-18


def central_difference(function: Callable[[Array], Array], x: Array, kinks: tuple[float, ...]) -> Array:
    """φ' by a tenth-order stencil that never reaches across a kink."""
    x = np.asarray(x, dtype=np.float64)
    step = np.full(x.shape, _STEP)
    for kink in kinks:
        distance = np.abs(x - kink)
        near = np.maximum(distance / _REACH, 1e-9 * abs(kink))
        step = np.minimum(step, np.where(distance > 0, near, _STEP))
    total = np.zeros_like(x)
    for k, weight in _STENCIL:
        total += weight * (function(x + k * step) - function(x - k * step))
    return total / step


def difference_noise(size: Array, tau: Array, kinks: dict[float, float]) -> Array:
    """√E[(error of φ')²] at τξ where values have the relative error 1: `size` is √E[φ²], `kinks` maps each to |φ|.

    An error e of φ is one of 2eΣ|weight|/h of φ'. Towards a kink h shrinks with the distance, from `_STEP` down to
    10⁻⁹; E[1/h] there is the integral of density over distance.
    """
    noise = (size + tau) / _STEP  # arguments are rounded too
    for kink, height in kinks.items():
        density = np.exp(-((kink / tau) ** 2) / 2) / tau
        noise = noise + _REACH * 20 * density * height
    return 2 * sum(abs(weight) for _, weight in _STENCIL) * noise


def steepest(
    function: Callable[[Array], Array], derivative: Callable[[Array], Array], kinks: tuple[float, ...]
) -> float:
    """sup |φ'|, from a grid on [−40, 40] that is refined around its largest values and on both sides of every kink.

    Besides φ' (given or computed), slopes of short secants are used: none is steeper than φ, and they detect slopes
    that change faster than the stencil of :func:`central_difference` resolves. A kink is approached from both sides
    to 10⁻⁷, and the limit is extrapolated.
    """

    def slope(x: Array) -> Array:
        secant = (function(x + _SECANT) - function(x - _SECANT)) / (2 * _SECANT)
        return np.maximum(np.abs(derivative(x)), np.abs(secant))

    grid = np.linspace(-PROBE_RADIUS, PROBE_RADIUS, 8001)
    spacing = grid[1] - grid[0]
    slopes = slope(grid)
    best = float(slopes.max())
    inner = 1 + np.flatnonzero((slopes[1:-1] >= slopes[:-2]) & (slopes[1:-1] >= slopes[2:]))
    peaks = inner[np.argsort(slopes[inner])[-16:]]
    low, high = grid[peaks] - spacing, grid[peaks] + spacing
    for _ in range(12):  # each round narrows every bracket by eight
        points = low + np.linspace(0, 1, 17)[:, None] * (high - low)
        values = slope(points)
        best = max(best, float(values.max(initial=0.0)))
        place = np.argmax(values, axis=0), np.arange(len(low))
        middle, half = points[place], (high - low) / 16
        low, high = middle - half, middle + half
    for kink in kinks:
        for side in (-1, 1):
            near, far = np.abs(derivative(kink + side * np.array([1e-7, 2e-7]) * max(1.0, abs(kink))))
            best = max(best, float(near), float(2 * near - far))
    return best


def find_kinks(function: Callable[[Any], Any]) -> tuple[float, ...]:
    """Locate jumps of φ, φ' or φ'' in [−40, 40]: panels that no degree-15 interpolant resolves at width 2⁻¹²."""
    nodes = np.polynomial.chebyshev.chebpts1(16)
    checks = np.linspace(-0.97, 0.97, 21)
    to_checks = np.polynomial.chebyshev.chebvander(checks, 15) @ np.linalg.inv(
        np.polynomial.chebyshev.chebvander(nodes, 15)
    )
    edges = np.linspace(-PROBE_RADIUS, PROBE_RADIUS, 162)
    left, right = edges[:-1], edges[1:]
    unresolved: list[float] = []  # deeper panels are tested later
    for _ in range(36):
        if left.size > 4000:  # rough everywhere: a list of kinks would be useless
            width = float(right[0] - left[0])
            refuse_jumps(function, ((left + right) / 2)[:: left.size // 8].tolist(), width / PROBE_RADIUS)
            return ()
        # each panel is tested with a margin, so that a kink on an edge is found
        middle, half = (left + right)[:, None] / 2, 0.6 * (right - left)[:, None]
        values = call_elementwise(function, middle + half * nodes)
        truth = call_elementwise(function, middle + half * checks)
        scale = 1.0 + np.max(np.abs(values), axis=1)
        bad = np.max(np.abs(values @ to_checks.T - truth), axis=1) > 1e-13 * scale
        left, right = left[bad], right[bad]
        if left.size == 0:
            break
        if right[0] - left[0] < 2.0**-12:
            unresolved.extend((left + right) / 2)
        cut = left + 0.4871 * (right - left)
        left, right = np.concatenate([left, cut]), np.concatenate([cut, right])
    kinks: list[float] = []
    for point in reversed(unresolved):
        if all(abs(point - kink) > 1e-2 for kink in kinks):
            kinks.append(_sharpened(function, float(point)))
    return tuple(sorted(kinks))


def _sharpened(function: Callable[[Any], Any], kink: float) -> float:
    """Where the polynomials through the values left and right of a kink intersect: the kink up to rounding.

    Bisection alone ends at 10⁻¹¹, where rounding hides the kink. Points nearer to 0 than 10⁻⁴ are taken as 0 unless
    the polynomials say where else they are.
    """
    guess = 0.0 if abs(kink) < 1e-4 else kink
    nodes = 0.525 + 0.475 * np.polynomial.chebyshev.chebpts1(8)  # in [0.05, 1]
    found = []  # of two widths: the step to the intersection, and the jump of the slope
    for width in (2.0**-10, 2.0**-8):
        left, right = (
            np.linalg.solve(
                np.vander(side * nodes, increasing=True), call_elementwise(function, kink + side * width * nodes)
            )
            for side in (-1, 1)
        )
        gap, jump = (right - left)[:2]
        found.append((-width * gap / jump, jump / width) if jump else (0.0, 0.0))
    (_, narrow), (step, jump) = found
    if not (abs(jump) > 1e-3 and abs(narrow / jump - 1) < 0.1 and abs(step) < 1e-4):  # a kink of another kind
        return guess
    moved = kink + float(step)
    return 0.0 if abs(moved) < 1e-13 else moved


def refuse_jumps(function: Callable[[Any], Any], points: Iterable[float], radius: float = 1e-6) -> None:
    """Raise where φ itself jumps: E[φ'²] would be infinite.

    Bisection around each point keeps the half with the larger change, down to a width of a few
    rounding errors; a continuous function does not change at that width.
    """
    for point in points:
        unit = max(1.0, abs(point))
        around = call_elementwise(function, point + unit * np.linspace(-1, 1, 41))
        low, high = point - radius * unit, point + radius * unit
        while high - low > 4e-15 * unit:
            middle = (low + high) / 2
            left, right = np.abs(np.diff(call_elementwise(function, np.array([low, middle, high]))))
            low, high = (low, middle) if left >= right else (middle, high)
        jump = abs(float(np.diff(call_elementwise(function, np.array([low, high])))[0]))
        if jump > 1e-6 * float(np.ptp(around)) + 1e-14 * float(np.abs(around).max()):
            name, place = getattr(function, "__name__", "custom"), 0.0 if abs(middle) < 1e-9 else middle
            raise InputError(
                f"activation {name} jumps at x = {place:.6g}; the theory needs a continuous function, "
                "so replace the jump by a steep slope"
            )
