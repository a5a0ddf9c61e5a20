"""The convolutional kernel of tiny images in forty digits, straight from its definition.

Variances by elimination, Σ by Newton (T is convex and increasing, so that iterates approach from below), Θ and Θ_A by
elimination again, one offset between positions after the other. Nothing is shared with the package, not even the
gaps 1 − ρ: there are digits enough to subtract.
"""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
from tests.conv_oracle import KINDS

DIGITS = 40


class Digits:
    """One ConvDEQ and one image size."""

    def __init__(self, model: Any, rows: int, columns: int) -> None:
        self.model, self.rows, self.columns = model, rows, columns
        self.circular, self.half = model.padding == "circular", model.filter_size // 2
        self.positions = [(i, j) for i in range(rows) for j in range(columns)]
        with mp.workdps(DIGITS):
            shape, factor = model.activation.shape, mp.mpf(model.activation.scale) * mp.mpf(model.activation.stretch)
            high, low = factor * mp.mpf(shape.slopes[-1]), factor * mp.mpf(shape.slopes[0])
            self.squares, self.product = high**2 + low**2, 2 * high * low
            self.recurrent, self.input = mp.mpf(model.recurrent), mp.mpf(model.input)
            self.root = [mp.sqrt(sum(self.at(a, s) is not None for s in self.shifts)) for a in self.positions]
        self.whole = Offset(self, (0, 0))

    @property
    def shifts(self) -> list[tuple[int, int]]:
        half = range(-self.half, self.half + 1)
        return [(i, j) for i in half for j in half]

    def at(self, position: tuple[int, int], shift: tuple[int, int]) -> int | None:
        """The number of the position that lies there."""
        i, j = position[0] + shift[0], position[1] + shift[1]
        if self.circular:
            i, j = i % self.rows, j % self.columns
        return i * self.columns + j if 0 <= i < self.rows and 0 <= j < self.columns else None

    def dual(self, covariance: Any, scale: Any) -> tuple[Any, Any]:
        """E[φφ] and E[φ'φ'] from those of the positive and negative parts, arc-cosine kernels of θ and π − θ."""
        if not scale:
            return mp.mpf(0), mp.mpf(0)
        rho = min(max(covariance / scale, mp.mpf(-1)), mp.mpf(1))
        theta, root = mp.acos(rho), mp.sqrt(1 - rho * rho)
        plus, minus = root + (mp.pi - theta) * rho, root - theta * rho
        value = scale * (self.squares * plus - self.product * minus) / (2 * mp.pi)
        return value, (self.squares * (mp.pi - theta) + self.product * theta) / (2 * mp.pi)

    def variances(self, image: Any, depth: int | None) -> list[list[Any]]:
        """Of every position, at equilibrium (one) or at each layer."""
        square = [mp.fsum(mp.mpf(float(v)) ** 2 for v in image[a]) for a in self.positions]
        factor, drive = self.recurrent * self.squares / 2, [self.input * s for s in square]
        if depth is None:
            return [self.whole.solve([factor] * len(square), self.whole.window(drive))]
        levels = [square]
        for _ in range(depth):
            levels.append(self.whole.window([factor * q + d for q, d in zip(levels[-1], drive, strict=True)]))
        return levels

    def kernels(
        self, x: Any, y: Any, depth: int | None = None, readout: str = "flatten", pool: int | None = None
    ) -> dict[str, Any]:
        """The five kernels of one pair of images (rows, columns, channels)."""
        side = max(self.rows, self.columns) if pool is None else pool
        with mp.workdps(DIGITS):
            q, r = self.variances(x, depth), self.variances(y, depth)
            if readout == "flatten":
                return self.whole.kernels(x, y, q, r, depth)
            first = (0, 0) if self.circular else (1 - self.rows, 1 - self.columns)
            offsets = [(i, j) for i in range(first[0], self.rows) for j in range(first[1], self.columns)]
            found = [part for part in (Offset(self, offset, side) for offset in offsets) if any(part.counted)]
            parts = [part.kernels(x, y, q, r, depth) for part in found]
            area = min(side, self.rows) * min(side, self.columns)
            return {kind: mp.fsum(part[kind] for part in parts) / area**2 for kind in KINDS}


class Offset:
    """All pairs of positions (α, α + offset), of which those within a block of side × side positions are counted."""

    def __init__(self, digits: Digits, offset: tuple[int, int], side: int = 1) -> None:
        self.digits = digits
        other = [digits.at(a, offset) for a in digits.positions]
        self.pairs = [(a, b) for a, b in enumerate(other) if b is not None]
        block = [(i // side, j // side) for i, j in digits.positions]
        self.counted = [block[a] == block[b] for a, b in self.pairs]
        index = {a: k for k, (a, _) in enumerate(self.pairs)}
        self.neighbours = []
        for a, b in self.pairs:
            moved = ((digits.at(digits.positions[a], s), digits.at(digits.positions[b], s)) for s in digits.shifts)
            self.neighbours.append([index[i] for i, j in moved if i is not None and j is not None])
        with mp.workdps(DIGITS):
            self.weight = [1 / (digits.root[a] * digits.root[b]) for a, b in self.pairs]

    def window(self, values: list[Any]) -> list[Any]:
        """Σ over the shifts for which both positions stay inside, divided by S S'."""
        return [w * mp.fsum(values[k] for k in near) for w, near in zip(self.weight, self.neighbours, strict=True)]

    def solve(self, slope: list[Any], right: list[Any]) -> list[Any]:
        """x = window(slope·x) + right, by elimination."""
        n = len(right)
        rows = [[mp.mpf(i == j) for j in range(n)] + [right[i]] for i in range(n)]
        for row, w, near in zip(rows, self.weight, self.neighbours, strict=True):
            for k in near:
                row[k] -= w * slope[k]
        for i in range(n):
            for j in range(i + 1, n):
                if rows[j][i]:
                    factor = rows[j][i] / rows[i][i]
                    for k in range(i + 1, n + 1):
                        rows[j][k] -= factor * rows[i][k]
        x = [mp.mpf(0)] * n
        for i in reversed(range(n)):
            x[i] = (rows[i][n] - mp.fsum(rows[i][k] * x[k] for k in range(i + 1, n))) / rows[i][i]
        return x

    def duals(self, covariance: list[Any], scale: list[Any]) -> tuple[list[Any], list[Any]]:
        both = [self.digits.dual(s, c) for s, c in zip(covariance, scale, strict=True)]
        return [g for g, _ in both], [slope for _, slope in both]

    def equilibrium(self, scale: list[Any], drive: list[Any]) -> list[Any]:
        """Σ = window(σ_a² G(Σ)) + drive, by Newton from the result of a rough iteration in double precision."""
        S, ra = self.rough(scale, drive), self.digits.recurrent
        last = mp.inf
        while True:
            G, slope = self.duals(S, scale)
            inside = self.window([ra * g for g in G])
            left = [i + d - s for i, d, s in zip(inside, drive, S, strict=True)]
            step = self.solve([ra * s for s in slope], left)
            S = [s + change for s, change in zip(S, step, strict=True)]
            size = max(abs(change) / c if c else mp.mpf(0) for change, c in zip(step, scale, strict=True))
            if size < mp.mpf(10) ** (5 - DIGITS) or (size < mp.mpf(10) ** (10 - DIGITS) and size >= last):
                return S
            last = size

    def rough(self, scale: list[Any], drive: list[Any]) -> list[Any]:
        c, d, n = np.array(scale, float), np.array(drive, float), len(scale)
        a, b, ra = float(self.digits.squares), float(self.digits.product), float(self.digits.recurrent)
        window = np.zeros((n, n))
        for i, near in enumerate(self.neighbours):
            np.add.at(window[i], near, float(self.weight[i]))
        S = -c
        for _ in range(40):
            rho = np.divide(S, c, out=np.ones(n), where=c > 0).clip(-1, 1)
            theta, root = np.arccos(rho), np.sqrt(1 - rho * rho)
            G = c * (a * (root + (np.pi - theta) * rho) - b * (root - theta * rho)) / (2 * np.pi)
            slope = (a * (np.pi - theta) + b * theta) / (2 * np.pi)
            S = S + np.linalg.solve(np.eye(n) - ra * window * slope, ra * window @ G + d - S)
        return [mp.mpf(v) for v in S]

    def kernels(self, x: Any, y: Any, q: Any, r: Any, depth: int | None) -> dict[str, Any]:
        digits, ra = self.digits, self.digits.recurrent

        def dot(a: int, b: int) -> Any:
            u, v = x[digits.positions[a]], y[digits.positions[b]]
            return mp.fsum(mp.mpf(float(i)) * mp.mpf(float(j)) for i, j in zip(u, v, strict=True))

        gram = [dot(a, b) for a, b in self.pairs]
        drive = self.window([digits.input * g for g in gram])
        scales = [[mp.sqrt(i[a] * j[b]) for a, b in self.pairs] for i, j in zip(q, r, strict=True)]
        if depth is None:
            S = self.equilibrium(scales[0], drive)
            G, slope = self.duals(S, scales[0])
            local = [ra * s for s in slope]
            tangent, own = self.solve(local, S), self.solve(local, self.window([ra * g for g in G]))
        else:
            S, tangent, own = gram, gram, [mp.mpf(0)] * len(gram)
            G, slope = self.duals(S, scales[0])
            for scale in scales[1:]:
                own = self.window([ra * (g + s * o) for g, s, o in zip(G, slope, own, strict=True)])
                passed = self.window([ra * s * t for s, t in zip(slope, tangent, strict=True)])
                S = [i + d for i, d in zip(self.window([ra * g for g in G]), drive, strict=True)]
                tangent = [s + p for s, p in zip(S, passed, strict=True)]
                G, slope = self.duals(S, scale)
        sums = (
            G,
            S,
            [g + s * t for g, s, t in zip(G, slope, tangent, strict=True)],
            [g + s * o for g, s, o in zip(G, slope, own, strict=True)],
            tangent,
        )
        return {
            kind: mp.fsum(value for value, counts in zip(values, self.counted, strict=True) if counts)
            for kind, values in zip(KINDS, sums, strict=True)
        }
