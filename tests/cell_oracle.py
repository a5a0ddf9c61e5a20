"""Kernels of cells and explicit networks in sixty digits, from closed duals and plain iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

DIGITS = 60


@dataclass(frozen=True)
class Level:
    """Λ = a·K + b·x·y + c, then φ, then "rms" or "layer" normalisation or none.

    φ is "erf", or a pair: its slopes below and above 0.
    """

    phi: str | tuple[float, float]
    a: float
    b: float
    c: float = 0.0
    normalize: str | None = None

    def moments(self, q: Any, r: Any, covariance: Any) -> tuple[Any, Any]:
        """E[φ(u)φ(v)] and E[φ'(u)φ'(v)]."""
        if self.phi == "erf":
            size = (1 + 2 * q) * (1 + 2 * r)
            return 2 / mp.pi * mp.asin(2 * covariance / mp.sqrt(size)), 4 / mp.pi / mp.sqrt(size - 4 * covariance**2)
        low, high = (mp.mpf(slope) for slope in self.phi)
        bend, root = high - low, mp.sqrt(q * r)
        rho = min(max(covariance / root, mp.mpf(-1)), mp.mpf(1))
        theta = mp.acos(rho)
        lens = (mp.sin(theta) + (mp.pi - theta) * rho) / (2 * mp.pi)
        linear = low * low + low * bend
        return root * (linear * rho + bend**2 * lens), linear + bend**2 * (mp.pi - theta) / (2 * mp.pi)

    def mean(self, q: Any) -> Any:
        if self.phi == "erf" or self.normalize != "layer":
            return mp.mpf(0)
        return (mp.mpf(self.phi[1]) - mp.mpf(self.phi[0])) * mp.sqrt(q / (2 * mp.pi))


def kernels(levels: tuple[Level, ...], closed: bool, x: Any, y: Any) -> dict[str, Any]:
    """CK, NNGP and NTK of one pair of rows."""
    with mp.workdps(DIGITS):
        a, b = ([mp.mpf(float(t)) for t in row] for row in (x, y))
        products = [mp.fdot(a, a), mp.fdot(b, b), mp.fdot(a, b)]
        states = [mp.mpf(int(closed))] * 2 + [mp.mpf(0)]  # of x, of y, between them
        for _ in range(20_000 if closed else 1):
            before = list(states)
            tangent, loop = mp.mpf(0), mp.mpf(1)
            for level in levels:
                q, r, covariance = (
                    mp.mpf(level.a) * state + mp.mpf(level.b) * product + mp.mpf(level.c)
                    for state, product in zip(states, products, strict=True)
                )
                power, slope = level.moments(q, r, covariance)
                means = level.mean(q), level.mean(r)
                states = [level.moments(v, v, v)[0] - m * m for v, m in zip((q, r), means, strict=True)]
                states.append(power - means[0] * means[1])
                divisor = mp.sqrt(states[0] * states[1]) if level.normalize else mp.mpf(1)
                if level.normalize:
                    states = [mp.mpf(1), mp.mpf(1), states[2] / divisor]
                tangent = slope * (covariance + level.a * tangent) / divisor
                loop *= level.a * slope / divisor
            change = max(abs(new - old) for new, old in zip(states, before, strict=True))
            if change <= mp.mpf(10) ** -30 * max(states[:2]):
                break
        else:
            assert not closed, "the oracle did not converge"
        tangent = tangent / (1 - loop) if closed else tangent
        return {"ck": states[2], "nngp": covariance, "ntk": states[2] + tangent}


def random_levels(rng: np.random.Generator, count: int, share: float) -> tuple[Level, ...]:
    """A cell of `count` layers of all sorts."""
    shapes: list[Any] = ["erf", (0.0, 1.0), (0.25, 1.0), (-1.0, 1.0), (1.0, 1.0)]
    return tuple(
        Level(
            shapes[rng.integers(5)],
            share,
            0.7 if k == 0 else float(rng.choice([0.0, 0.3, 1.0])),
            float(rng.choice([0.0, 0.2])),
            [None, None, "rms", "layer"][rng.integers(4)],
        )
        for k in range(count)
    )
