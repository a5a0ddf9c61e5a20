"""Hermite series in float32: parabolas on short intervals.

The parabolas pass through the function at the ends and the middle of 8192 intervals of [−7.5, 7.5]. They are off by
less than 1e-6 of its scale, and by up to 1e-4 in the interval around a bend at 0. One more interval on each side
holds the straight line that continues the function: the first and the last row of the table count for all x beyond.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from notsodeep import compilation
from notsodeep.hermite import RADIUS, HermiteSeries
from notsodeep.threads import shared

__all__ = ["LAST", "MIDDLE", "PER_UNIT", "evaluate", "parabolas"]

Array: TypeAlias = NDArray[Any]

_INTERVALS = 8192
PER_UNIT = _INTERVALS / (2 * RADIUS)  # intervals in a unit of x
MIDDLE = _INTERVALS / 2 + 1  # where x = 0 is: x·PER_UNIT + MIDDLE is the number of the interval and the place in it
LAST = _INTERVALS + 1  # number of the last interval
_BLOCK = 512  # entries whose intervals are found before their parabolas are looked up
_WORTHWHILE = 1 << 19  # entries that are worth another thread: BLAS' own threads spin on after a product


@lru_cache(maxsize=16)
def parabolas(shape: HermiteSeries) -> Array:
    """c₀ + c₁y + c₂y² for each interval (LAST + 1, 3): y ∈ [0, 1] inside, y ≤ 1 in the first, y ≥ 0 in the last."""
    values = shape.value(np.linspace(-RADIUS, RADIUS, 2 * _INTERVALS + 1))
    low, middle, high = values[:-1:2], values[1::2], values[2::2]
    down, up = shape.derivative(np.array([-2 * RADIUS, 2 * RADIUS])) / PER_UNIT
    inner = np.stack([low, 4 * middle - 3 * low - high, 2 * (low + high) - 4 * middle], axis=1)
    table = np.concatenate([[[values[0] - down, down, 0.0]], inner, [[values[-1], up, 0.0]]])
    return np.ascontiguousarray(table, dtype=np.float32)


# not "nnan": a comparison with NaN must be false, so that NaN is looked up in the first interval and stays NaN
@compilation.jit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def _evaluate(x: Any, table: Any, numbers: Any, value: Any, slope: Any) -> None:
    """φ(x) into `value`, and φ'(x) into `slope` unless that is empty."""
    scale, stretch, shift = numbers
    per_unit, middle = np.float32(PER_UNIT * stretch), np.float32(MIDDLE)
    last, zero = np.float32(LAST), np.float32(0)
    factor, constant, steep = np.float32(scale), np.float32(shift), np.float32(scale * PER_UNIT * stretch)
    least, most = np.float32(-1), np.float32(2)
    flat = table.reshape(-1)
    pieces, places = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.float32)
    for start in range(0, x.size, _BLOCK):  # in two loops, of which the first is vectorised
        part, result = x[start : start + _BLOCK], value[start : start + _BLOCK]
        for i in range(part.size):
            where = part[i] * per_unit + middle
            near = where if where > zero else zero
            piece = np.int32(near if near < last else last)
            pieces[i] = 3 * piece
            places[i] = where - np.float32(piece)
        for i in range(part.size):
            k, y = pieces[i], places[i]
            bounded = min(max(y, least), most)  # an infinite y times a curvature of 0 would not be a number
            result[i] = factor * (flat[k] + y * (flat[k + 1] + bounded * flat[k + 2])) - constant
        if slope.size:
            slopes = slope[start : start + _BLOCK]
            for i in range(part.size):
                k, y = pieces[i], places[i]
                slopes[i] = steep * (flat[k + 1] + np.float32(2) * min(max(y, least), most) * flat[k + 2])


def evaluate(
    x: Array,
    shape: HermiteSeries,
    value: Array,
    slope: Array | None = None,
    *,
    scale: float = 1.0,
    stretch: float = 1.0,
    shift: float = 0.0,
) -> None:
    """Write scale·φ₀(stretch·x) − shift (and its slope) of a flat float32 array; the threads share the work.

    `value` may be x.
    """
    table, none = parabolas(shape), np.empty(0, np.float32)

    def work(part: slice) -> None:
        slopes = none if slope is None else slope[part]
        _evaluate(x[part], table, (scale, stretch, shift), value[part], slopes)

    shared(work, x.size, _WORTHWHILE)
