"""The convolutional DEQ-NTK of 32×32 images at offset zero, against the whole tensor and against neural-tangents.

The published method keeps a tensor over pairs of positions for each pair of images, iterates it twenty times and
solves a sparse linear system [FK20, §4]; one pair of it is timed in NumPy and SciPy, its tangent kernel by GMRES.
neural-tangents runs an injected stack of depth 20 with a flattened readout, circular padding, in an environment of its
own. Values are compared with the same kernel in double precision to 1e-12. Images are smooth random ones with unit
pixels.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
from deq_ntk_against_neural_tangents import Peer, environment

import notsodeep as nsd
from notsodeep.kernels.conv import ConvBlocks

AREA = "kernels"
GAINS = ("pairs per second",)
RECURRENT, DEPTH = 0.65, 20
PAIRS_TARGET, TENSOR_TARGET, PEER_TARGET = 75_000, 1e5, 15


def images(n: int, size: int = 32, seed: int = 0) -> np.ndarray:
    """Random Fourier series with falling amplitudes, a different one a channel, each pixel of unit norm."""
    rng = np.random.default_rng(seed)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(size) * size, np.arange(size // 2 + 1), indexing="ij"))
    noise = rng.standard_normal((n, 3, size, size // 2 + 1, 2)) @ [1, 1j]
    X = np.fft.irfft2(noise / (1 + frequency) ** 1.5, s=(size, size))
    X = 2 + X / X.std(axis=(2, 3), keepdims=True)
    X = np.moveaxis(np.abs(X), 1, 3)
    return X / np.linalg.norm(X, axis=3, keepdims=True)


def published(x: np.ndarray, y: np.ndarray, model: nsd.ConvDEQ) -> tuple[float, float]:
    """Tr(G + Ġ Θ) of one pair through the tensor over all pairs of positions, and the seconds it took."""
    from scipy.sparse.linalg import LinearOperator, gmres

    began = time.perf_counter()
    rows, columns = x.shape[:2]
    shape = (rows, columns, rows, columns)

    def window(M: np.ndarray) -> np.ndarray:
        """Σ_shift M_{α+δ, α'+δ} over 3×3 shifts for which both stay inside, divided by S_α S_α'."""
        total = M.copy()
        for axis in (0, 1):  # the box is a product of its axes
            part = total.copy()
            low, high = slice(None, -1), slice(1, None)
            near = [slice(None)] * 4
            far = [slice(None)] * 4
            near[axis] = near[axis + 2] = low
            far[axis] = far[axis + 2] = high
            part[tuple(near)] += total[tuple(far)]
            part[tuple(far)] += total[tuple(near)]
            total = part
        return total / weight

    side = [np.sqrt(np.convolve(np.ones(n), np.ones(3), "same")) for n in (rows, columns)]
    S = np.multiply.outer(*side)
    weight = np.multiply.outer(S, S)
    gram = np.einsum("ijc,klc->ijkl", x, y)

    def duals(Sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        theta = np.arccos(np.clip(Sigma, -1, 1))
        return (np.sqrt(1 - np.clip(Sigma, -1, 1) ** 2) + (np.pi - theta) * Sigma) / np.pi, 1 - theta / np.pi

    Sigma = gram
    for _ in range(DEPTH):
        Sigma = window(model.recurrent * duals(Sigma)[0] + model.input * gram)
    G, slope = duals(Sigma)

    def operator(vector: np.ndarray) -> np.ndarray:
        Theta = vector.reshape(shape)
        return (Theta - window(model.recurrent * slope * Theta)).ravel()

    size = Sigma.size
    Theta, failed = gmres(
        LinearOperator((size, size), operator, dtype=np.float64), Sigma.ravel(), rtol=1e-8, restart=20
    )
    assert not failed
    value = np.einsum("ijij->", G + slope * Theta.reshape(shape))
    return float(value), time.perf_counter() - began


def slopes(quick: bool) -> tuple[float, float]:
    """Exponents of the time in the number of positions and in the number of pairs."""
    model = nsd.ConvDEQ("normalized_relu", RECURRENT, 1 - RECURRENT)

    def seconds(n: int, size: int) -> float:
        blocks = ConvBlocks(model, images(2 * n, size).astype(np.float32), kind="ntk")
        run = {"kernel": lambda: blocks.block(slice(0, n), slice(n, 2 * n))}
        return common.best_times(run, repeats=3)["kernel"]

    n = 60 if quick else 120
    sizes = np.array([16, 32, 64])
    counts = np.array([n, 2 * n, 4 * n])
    positions = np.polyfit(np.log(sizes**2), np.log([seconds(n, int(size)) for size in sizes]), 1)[0]
    pairs = np.polyfit(np.log(counts**2), np.log([seconds(int(count), 16) for count in counts]), 1)[0]
    return float(positions), float(pairs)


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    n, m = (100, 32) if quick else (400, 64)
    X = images(2 * n).astype(np.float32)
    model = nsd.ConvDEQ("normalized_relu", RECURRENT, 1 - RECURRENT)
    blocks = ConvBlocks(model, X, kind="ntk")
    exact = blocks.astype("float64")
    ours = common.best_times({"ours": lambda: blocks.block(slice(0, n), slice(n, 2 * n))}, repeats=3)["ours"]
    some = slice(0, m)
    error = np.abs(blocks.block(some, slice(n, n + m)) - exact.block(some, slice(n, n + m))).max() / exact.diagonal()[0]
    rows = [row("notsodeep, float32", n * n / ours, 1.0, float(error))]

    doubles = common.best_times({"ours": lambda: exact.block(slice(0, m), slice(n, 2 * n))}, repeats=2)["ours"]
    rows.append(row("notsodeep, float64", m * n / doubles, n * n / ours / (m * n / doubles), exact.info.error))

    value, seconds = published(X[0].astype(np.float64), X[n].astype(np.float64), model)
    apart = abs(value - exact.block(slice(0, 1), slice(n, n + 1))[0, 0]) / exact.diagonal()[0]
    rows.append(row("whole tensor, one pair", 1 / seconds, n * n / ours * seconds, float(apart)))

    reason = ""
    try:
        rows.append(peer(environment(), X[:m], X[n : n + m]))
    except (OSError, subprocess.CalledProcessError) as failure:
        reason = f"; no environment for neural-tangents ({failure})"
    positions, pairs = slopes(quick)
    speed, tensor = rows[0]["pairs per second"], rows[2]["times slower"]
    slower = rows[3]["times slower"] if len(rows) > 3 else float("nan")
    closer = len(rows) > 3 and rows[3]["error"] > error
    met = speed >= PAIRS_TARGET and tensor >= TENSOR_TARGET and slower >= PEER_TARGET and closer
    met = met and error <= 1e-6 and max(abs(positions - 1), abs(pairs - 1)) < 0.2
    return {
        "question": "Without pooling the convolutional DEQ-NTK needs one number per position and pair of images. How "
        f"much faster is that than the whole tensor and than neural-tangents (32×32×3, σ_a²={RECURRENT:g}; errors "
        "relative to K(x,x))?",
        "target": f"≥ {PAIRS_TARGET} pairs/s in float32 to 1e-6; whole tensor ≥ {TENSOR_TARGET:.0e} times slower; "
        f"neural-tangents at depth {DEPTH} ≥ {PEER_TARGET} times slower and less exact; "
        "time linear in positions and pairs",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}; {speed:.0f} pairs/s, {tensor:.1e} and {slower:.0f} times faster; "
        f"exponents {positions:.2f} in positions and {pairs:.2f} in pairs{reason}",
    }


def row(method: str, speed: float, slower: float, error: float) -> dict[str, Any]:
    return {"method": method, "pairs per second": speed, "times slower": slower, "error": error}


def peer(python: Path, X: np.ndarray, Y: np.ndarray) -> dict[str, Any]:
    """neural-tangents and ours in turn, on circular padding."""
    model = nsd.ConvDEQ("normalized_relu", RECURRENT, 1 - RECURRENT, padding="circular")
    task = {"recurrent": model.recurrent, "input": model.input, "filter_size": 3, "depth": DEPTH}
    with Peer(python, "float32") as other:
        theirs, _ = other.prepare("conv", task, X, Y)
        blocks = ConvBlocks(model, X, Y, kind="ntk")
        whole = slice(None)
        times = common.best_times(
            {"ours": lambda: blocks.block(whole, whole), "theirs": lambda: other.ask(evaluate=True)}, repeats=3
        )
    exact = blocks.astype("float64").block(whole, whole)
    error = np.abs(theirs - exact).max() / model.kernel_diag(X[:1], kind="ntk")[0]
    speed, slower = len(X) * len(Y) / times["theirs"], times["theirs"] / times["ours"]
    return row(f"neural-tangents, depth {DEPTH}, circular", speed, slower, float(error))


if __name__ == "__main__":
    common.main(__file__, run)
