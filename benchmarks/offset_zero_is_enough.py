"""The convolutional DEQ-NTK from covariances of equal positions alone, against the whole tensor and a deep stack.

[FK20] iterates the covariances of all pairs of positions of two images twenty times and solves a sparse linear system
for the tangent part; neural-tangents evaluates twenty layers. Offsets never mix and the trace needs offset zero only.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import common
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from beats_neural_tangents import Peer, environment

import notsodeep as nsd

AREA = "conv"
MODEL = {"recurrent": 0.65, "input": 0.35}
LAYERS = 20
TARGETS = {"published": 1e5, "neural-tangents": 15.0, "rate": 75_000.0}


def run(quick: bool = False) -> dict:
    size, count = (8, 12) if quick else (32, 200)
    images = unit_images(2 * count, size)
    rate, error = ours(images, count)
    rows = [{"method": "notsodeep, float32", "pairs per second": rate, "factor": 1.0, "error": error}]
    double, exact_error = ours(images.astype(np.float64), max(count // 4, 4))
    rows.append(
        {"method": "notsodeep, float64", "pairs per second": double, "factor": rate / double, "error": exact_error}
    )
    seconds, value = whole_tensor(images[0].astype(np.float64), images[1].astype(np.float64))
    reference = deq().kernel(images[:2].astype(np.float64), kind="ntk")
    apart = abs(value - reference[0, 1]) / reference[0, 0]
    rows.append(
        {"method": "whole tensor [FK20]", "pairs per second": 1 / seconds, "factor": rate * seconds, "error": apart}
    )
    peer = neural_tangents(images[: 20 if quick else 40])
    if peer is not None:
        rows.append({"method": "neural-tangents, 20 layers", **peer, "factor": rate / peer["pairs per second"]})
    slopes = {"positions": position_slope(quick), "pairs": pair_slope(images, quick)}
    met = rate * seconds >= TARGETS["published"] and rate >= TARGETS["rate"]
    if peer is not None:
        met = met and rows[-1]["factor"] >= TARGETS["neural-tangents"] and error < peer["error"]
    found = ", ".join(f"{row['factor']:.3g} times {row['method']}" for row in rows[2:])
    return {
        "claim": f"One pair of {size}×{size} images needs as many unknowns as an image has positions "
        f"(σ_a² = {MODEL['recurrent']:g}, 3×3 filters; errors relative to K(x, x); neural-tangents with circular "
        "padding, the only one whose borders it weighs alike)",
        "target": f"≥ {TARGETS['rate']:.0f} pairs per second in float32 to 1e-6; ≥ {TARGETS['published']:.0e} times "
        f"the published method, ≥ {TARGETS['neural-tangents']:g} times neural-tangents and more accurate; linear cost",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}: {rate:.0f} pairs per second, {found}; cost grows like positions^"
        f"{slopes['positions']:.2f} and pairs^{slopes['pairs']:.2f}",
    }


def deq(padding: str = "zero") -> nsd.ConvDEQ:
    return nsd.ConvDEQ("normalized_relu", **MODEL, filter_size=3, padding=padding)


def unit_images(n: int, size: int) -> np.ndarray:
    """Smooth colour images with unit pixels, neighbours alike as in photographs."""
    rng = np.random.default_rng(0)
    coarse = rng.random((n, size // 4 + 1, size // 4 + 1, 3))
    images = np.kron(coarse, np.ones((1, 4, 4, 1)))[:, :size, :size] + 0.3 * rng.random((n, size, size, 3))
    return (images / np.linalg.norm(images, axis=-1, keepdims=True)).astype(np.float32)


def ours(images: np.ndarray, count: int) -> tuple[float, float]:
    """Pairs per second, and the largest error against float64 (for float64: against its own estimate)."""
    left, right = images[:count], images[count : 2 * count]
    times = common.best_times({"kernel": lambda: deq().kernel(left, right, kind="ntk")}, repeats=5)
    few = slice(0, 20)
    found, info = deq().kernel(left[few], right[few], kind="ntk", return_info=True)
    error = info.error
    if images.dtype == np.float32:
        exact = deq().kernel(left[few].astype(np.float64), right[few].astype(np.float64), kind="ntk")
        error = float(np.max(np.abs(found - exact)) / deq().kernel_diag(left[:1].astype(np.float64), kind="ntk")[0])
    return count * count / times["kernel"], float(error)


def whole_tensor(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Seconds and value of the published method for one pair: all positions, 20 iterations, a sparse solve."""
    began = time.perf_counter()
    rows, columns, _ = x.shape
    recurrent, drive = MODEL["recurrent"], MODEL["input"]
    inside = window(np.ones((rows, columns)), (0, 1))
    scale = 1 / np.sqrt(np.multiply.outer(inside, inside))
    shape = (rows, columns, rows, columns)
    injected = drive * (x.reshape(-1, 3) @ y.reshape(-1, 3).T).reshape(shape)
    covariance = injected / drive
    for _ in range(LAYERS):
        covariance = scale * window(recurrent * dual(covariance)[0] + injected, (0, 1, 2, 3))
    power, slope = dual(covariance)
    weight = recurrent * slope

    def system(v: np.ndarray) -> np.ndarray:
        tangent = v.reshape(shape)
        return (tangent - scale * window(weight * tangent, (0, 1, 2, 3))).ravel()

    size = covariance.size
    operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=system, dtype=np.float64)
    solved, _ = scipy.sparse.linalg.bicgstab(operator, covariance.ravel(), rtol=1e-8)
    total = (power + slope * solved.reshape(shape)).reshape(rows * columns, -1)
    return time.perf_counter() - began, float(np.trace(total))


def window(field: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Sum over shifts of the 3×3 window, both positions of a pair moving together, those outside left out."""
    total = np.zeros_like(field)
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            shifts = (down, right) * (len(axes) // 2)
            to, source = [], []
            for shift in shifts:
                to.append(slice(max(-shift, 0), -shift or None if shift > 0 else None))
                source.append(slice(max(shift, 0), shift if shift < 0 else None))
            total[tuple(to)] += field[tuple(source)]
    return total


def dual(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[φφ] and E[φ'φ'] of √2·relu at unit variances."""
    cosine = np.clip(covariance, -1, 1)
    angle = np.arccos(cosine)
    slope = 1 - angle / np.pi
    return np.sqrt(1 - cosine * cosine) / np.pi + slope * cosine, slope


def neural_tangents(images: np.ndarray) -> dict | None:
    try:
        python = environment()
    except (OSError, subprocess.CalledProcessError):
        return None
    with tempfile.TemporaryDirectory() as folder, Peer(python, "float32") as peer:
        data, result = Path(folder, "X.npy"), Path(folder, "K.npy")
        np.save(data, images)
        model = {**MODEL, "depth": LAYERS}
        task = {"data": str(data), "result": str(result), "model": model, "network": "convolutional"}
        peer.ask(prepare=task)
        times = common.best_times({"peer": lambda: peer.ask(evaluate=True)}, repeats=3)
        theirs = np.load(result) * (images.shape[1] * images.shape[2])
    exact = deq("circular").kernel(images.astype(np.float64), kind="ntk")
    error = float(np.max(np.abs(theirs - exact)) / exact[0, 0])
    return {"pairs per second": len(images) ** 2 / times["peer"], "error": error}


def position_slope(quick: bool) -> float:
    """The power of the number of positions with which the time of a fixed number of pairs grows."""
    sizes, count = ((8, 16), 10) if quick else ((16, 32, 64), 60)
    jobs = {}
    for size in sizes:
        images = unit_images(2 * count, size)
        jobs[str(size)] = lambda images=images: deq().kernel(images[:count], images[count:], kind="ntk")
    times = common.best_times(jobs, repeats=3)
    return float(np.polyfit(np.log([size**2 for size in sizes]), np.log([times[str(s)] for s in sizes]), 1)[0])


def pair_slope(images: np.ndarray, quick: bool) -> float:
    """The power of the number of pairs with which the time grows."""
    counts = (4, 8) if quick else (50, 100, 200)
    half = len(images) // 2
    jobs = {str(n): lambda n=n: deq().kernel(images[:n], images[half : half + n], kind="ntk") for n in counts}
    times = common.best_times(jobs, repeats=3)
    return float(np.polyfit(np.log([n * n for n in counts]), np.log([times[str(n)] for n in counts]), 1)[0])


if __name__ == "__main__":
    common.main(__file__, run)
