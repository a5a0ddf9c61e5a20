"""The convolutional kernel the long way: the whole four-index tensor Σ_{αα'} by long iteration, Θ by a dense solve."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

KINDS = ("ck", "nngp", "ntk", "ntk_frozen_input", "ntk_injected")


def windows(rows: int, columns: int, size: int, circular: bool) -> np.ndarray:
    """0/1 matrix (positions, shifts) → index of the shifted position, or −1 outside; shape (PQ, size²)."""
    half = size // 2
    table = np.full((rows * columns, size * size), -1)
    for i in range(rows):
        for j in range(columns):
            for k, (di, dj) in enumerate(np.ndindex(size, size)):
                a, b = i + di - half, j + dj - half
                if circular:
                    a, b = a % rows, b % columns
                if 0 <= a < rows and 0 <= b < columns:
                    table[i * columns + j, k] = a * columns + b
    return table


class Tensor:
    """Everything about one ConvDEQ and one image size."""

    def __init__(self, model: Any, rows: int, columns: int) -> None:
        self.model = model
        self.shape = rows, columns
        self.table = windows(rows, columns, model.filter_size, model.padding == "circular")
        self.root = np.sqrt((self.table >= 0).sum(1))  # S
        shape = model.activation.shape
        factor = model.activation.scale * model.activation.stretch
        self.high, self.low = factor * shape.slopes[-1], factor * shape.slopes[0]

    def window(self, M: np.ndarray) -> np.ndarray:
        """(1/(S_α S_α')) Σ_shift M_{α+δ, α'+δ} over shifts for which both stay inside."""
        total = np.zeros_like(M)
        for k in range(self.table.shape[1]):
            index = self.table[:, k]
            inside = index >= 0
            total[np.ix_(inside, inside)] += M[np.ix_(index[inside], index[inside])]
        return total / np.multiply.outer(self.root, self.root)

    @cached_property
    def matrix(self) -> np.ndarray:
        """`window` as a matrix over pairs of positions."""
        n = len(self.root)
        columns = [self.window(unit.reshape(n, n)).ravel() for unit in np.eye(n * n)]
        return np.stack(columns, axis=1)

    def duals(self, S: np.ndarray, q: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """E[φφ] and E[φ'φ'] for φ = a max(x, 0) + b min(x, 0), from the positive and negative parts."""
        scale = np.sqrt(np.multiply.outer(q, r))
        rho = np.divide(S, scale, out=np.zeros_like(S), where=scale > 0).clip(-1, 1)
        a, b = self.high, self.low

        def relu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            theta = np.arccos(x)
            return (np.sqrt(1 - x * x) + (np.pi - theta) * x) / (2 * np.pi), (np.pi - theta) / (2 * np.pi)

        (same, same_slope), (other, other_slope) = relu(rho), relu(-rho)
        return scale * ((a * a + b * b) * same - 2 * a * b * other), (
            a * a + b * b
        ) * same_slope + 2 * a * b * other_slope

    def kernels(self, x: np.ndarray, y: np.ndarray, depth: int | None = None) -> dict[str, np.ndarray]:
        """The tensors G, Σ, G + ĠΘ, G + ĠΘ_A, Θ over pairs of positions, for images (P, Q, C)."""
        model, steps = self.model, 400 if depth is None else depth
        x, y = x.reshape(-1, x.shape[2]), y.reshape(-1, y.shape[2])
        grams = {"xx": x @ x.T, "xy": x @ y.T, "yy": y @ y.T}
        state = dict(grams)
        tangent, own = state["xy"], np.zeros_like(state["xy"])
        for _ in range(steps):
            q, r = np.diag(state["xx"]), np.diag(state["yy"])
            sizes = {"xx": (q, q), "xy": (q, r), "yy": (r, r)}
            duals = {key: self.duals(state[key], *sizes[key]) for key in state}
            new = {key: self.window(model.recurrent * duals[key][0] + model.input * grams[key]) for key in state}
            G, slope = duals["xy"]
            if depth is not None:
                own = self.window(model.recurrent * (G + slope * own))
                tangent = new["xy"] + self.window(model.recurrent * slope * tangent)
            change = max(np.abs(new[key] - state[key]).max() for key in state)
            state = new
            if depth is None and change < 2e-16 * max(1.0, np.abs(new["xx"]).max()):
                break
        S = state["xy"]
        G, slope = self.duals(S, np.diag(state["xx"]), np.diag(state["yy"]))
        if depth is None:
            n = len(self.root)
            operator = np.eye(n * n) - model.recurrent * self.matrix * slope.ravel()
            tangent = np.linalg.solve(operator, S.ravel()).reshape(n, n)
            own = np.linalg.solve(operator, self.window(model.recurrent * G).ravel()).reshape(n, n)
        values = (G, S, G + slope * tangent, G + slope * own, tangent)
        return dict(zip(KINDS, values, strict=True))

    def pooled(self, M: np.ndarray, side: int) -> float:
        """Tr(A M Aᵀ): A averages over blocks of side × side positions, row-major, and what is left of them."""
        rows, columns = np.indices(self.shape).reshape(2, -1) // side
        blocks = np.unique(np.stack([rows, columns]), axis=1)
        A = np.all(blocks[:, :, None] == np.stack([rows, columns])[:, None], axis=0)
        A = A / A.sum(1, keepdims=True)
        return float(np.trace(A @ M @ A.T))


POOLS = {"flatten": np.trace, "average_pool": np.mean}


def oracle(tensor: Tensor, x: np.ndarray, y: np.ndarray, depth: int | None = None) -> dict[str, dict[str, float]]:
    """The five kernels of one pair of images, for each readout."""
    tensors = tensor.kernels(x, y, depth)
    return {name: {kind: float(pool(part)) for kind, part in tensors.items()} for name, pool in POOLS.items()}
