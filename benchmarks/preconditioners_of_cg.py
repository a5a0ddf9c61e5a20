"""Conjugate gradients on the DEQ-NTK of MNIST: alone, and preconditioned by theory, by landmarks and by both.

`steps` shares the search directions of all ten targets, as the library does; `steps, separate columns` runs the
textbook iteration, each target on its own directions, for comparison.
"""

from __future__ import annotations

import time
from typing import Any

import common
import numpy as np

import notsodeep as nsd
from notsodeep import data
from notsodeep.kernels import KernelBlocks, MatrixBlocks
from notsodeep.solvers import ConjugateGradients
from notsodeep.solvers.preconditioners import precondition

AREA = "solvers"
TOLERANCE = 1e-6
TRIAL = 62  # of a prototype
KINDS = ("none", "equivalent", "nystrom", "both")


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    source, n = ("digits", 1500) if quick else ("mnist", 8000)
    loaded = data.load(source)
    X = loaded.X[:n].astype(np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Y = np.where(loaded.labels[:n, None] == np.arange(10), 0.9, -0.1)
    blocks = KernelBlocks(nsd.DEQ("normalized_relu", 0.25, 0.25, 0.5), X, kind="ntk_injected")
    matrix = MatrixBlocks(blocks.block(slice(None), slice(None)), symmetric=True)
    rows = [measure(blocks, matrix, Y, kind) for kind in KINDS]
    steps = {row["preconditioner"]: row["steps"] for row in rows}
    columns = {row["preconditioner"]: row["steps, separate columns"] for row in rows}
    met = columns["equivalent"] <= TRIAL and steps["both"] < min(steps["equivalent"], steps["nystrom"])
    return {
        "question": f"How many iterations do conjugate gradients need on {n} samples of {source} with each "
        "preconditioner: the model's high-dimensional equivalent, landmarks, or both (relative residual "
        f"{TOLERANCE:g}, ten targets, no ridge)?",
        "target": f"≤ {TRIAL} iterations with the equivalent, column by column; both together fewer than either",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}: column by column {columns['none']} iterations alone, "
        f"{columns['equivalent']} with the equivalent, {columns['nystrom']} with landmarks, {columns['both']} with "
        f"both; directions shared, {steps['none']}, {steps['equivalent']}, {steps['nystrom']} and {steps['both']}",
    }


def measure(blocks: KernelBlocks, matrix: MatrixBlocks, Y: np.ndarray, kind: str) -> dict[str, Any]:
    began = time.perf_counter()
    inverse = precondition(blocks, np.zeros(len(Y)), kind)
    prepared = time.perf_counter()
    cg = ConjugateGradients(matrix.__matmul__, Y, inverse)
    while cg.residual > TOLERANCE and cg.iteration < 3000:
        cg.step()
    ended = time.perf_counter()
    left = np.linalg.norm(Y - matrix.matrix @ cg.X, axis=0) / np.linalg.norm(Y, axis=0)
    return {
        "preconditioner": kind,
        "landmarks": 0 if kind in ("none", "equivalent") or inverse is None else int(inverse.name.split()[-1]),
        "steps": cg.iteration,
        "steps, separate columns": separate(matrix.matrix, Y, inverse),
        "set-up s": prepared - began,
        "iterations s": ended - prepared,
        "residual": float(left.max()),
    }


def separate(K: np.ndarray, Y: np.ndarray, inverse: Any) -> int:
    """The textbook iteration for all columns at once, none helping another; how many steps until the last is done."""
    apply = inverse or (lambda R: R)
    R, size = Y.copy(), np.linalg.norm(Y, axis=0)
    Z = apply(R)
    P, energy = Z.copy(), np.sum(R * Z, axis=0)
    for step in range(1, 3001):
        Q = K @ P
        R -= Q * (energy / np.sum(P * Q, axis=0))
        if (np.linalg.norm(R, axis=0) / size).max() <= TOLERANCE:
            return step
        Z = apply(R)
        fresh = np.sum(R * Z, axis=0)
        P = Z + P * (fresh / energy)
        energy = fresh
    return 3000


if __name__ == "__main__":
    common.main(__file__, run)
