"""Finite networks: the designed single layer, with and without few kinks, and the DEQ itself, against the exact CK."""

from __future__ import annotations

from typing import Any

import common
import numpy as np
import torch

import notsodeep as nsd
from notsodeep import data, nn
from notsodeep.norms import spectral_norm

AREA = "matching"
ROWS = 300


def run(quick: bool = False) -> dict[str, Any]:
    """Mean relative spectral distance to the exact kernel, as it is and with the mean projected out."""
    X = data.load("digits").X[: 60 if quick else ROWS].astype(np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    widths, draws = ((64,), 2) if quick else ((256, 512, 1024, 2048, 4096), 20)
    rows: list[dict[str, Any]] = []
    for name in ("relu", "tanh"):
        deq = nsd.DEQ(name, recurrent=0.2, input=0.8)
        exact = deq.kernel(X)
        designs = {"series": nsd.match(deq, tau0=1.0, on="sphere")}
        designs["3 kinks"] = nsd.match(deq, tau0=1.0, on="sphere", kinks=3)
        candidates: dict[str, Any] = {label: design.network for label, design in designs.items()} | {"DEQ": deq}
        for label, model in candidates.items():
            design = designs.get(label)
            own = deq.activation.lipschitz
            row: dict[str, Any] = {
                "φ": name,
                "network": label,
                "E[σ⁴]/E[σ²]²": design.fourth if design else None,
                "sup |σ'|/sup |φ'|": (design.lipschitz if design else own) / own,
            }
            for width in widths:
                found = np.array([_distances(model, X, width, seed, exact) for seed in range(draws)])
                means, errors = found.mean(0), found.std(0) / np.sqrt(draws)
                row[f"m = {width}"], row[f"m = {width}, mean projected out"] = means.tolist()
                row[f"± at m = {width}"] = float(errors[0])
            rows.append(row)
    beaten, total = _compared(rows, widths)
    steep = max(row["sup |σ'|/sup |φ'|"] for row in rows if row["network"] == "3 kinks")
    return {
        "question": f"How far is the CK of a finite network from the exact kernel (digits, {len(X)} unit rows, {draws} "
        "draws, relative spectral norm; ± is one standard error of the column before the last)?",
        "target": "designed layers no farther than the DEQ of equal width (within two standard errors); slopes with "
        "few kinks ≤ 3 times those of φ",
        "rows": rows,
        "verdict": f"{'met' if beaten == total and steep <= 3 else 'missed'}: {beaten} of {total} comparisons, slopes "
        f"{steep:.2f} times",
    }


def _compared(rows: list[dict[str, Any]], widths: tuple[int, ...]) -> tuple[int, int]:
    beaten = total = 0
    for row in rows:
        if row["network"] == "DEQ":
            continue
        deq = next(other for other in rows if other["φ"] == row["φ"] and other["network"] == "DEQ")
        for width in widths:
            for column in (f"m = {width}", f"m = {width}, mean projected out"):
                slack = 2 * (row[f"± at m = {width}"] + deq[f"± at m = {width}"])
                beaten += row[column] <= deq[column] + slack
                total += 1
    return beaten, total


def _distances(model: Any, X: np.ndarray, width: int, seed: int, exact: np.ndarray) -> list[float]:
    rows = torch.as_tensor(X, dtype=torch.float32)
    with torch.no_grad():
        if isinstance(model, nsd.DEQ):
            state = nn.DEQNet(model, X.shape[1], width, tol=1e-5, seed=seed).equilibrium(rows)
        else:
            state = nn.ExplicitNet(model, X.shape[1], width, seed=seed).features(rows)
    F = state.double().numpy()
    K = F @ F.T
    found = []
    for project in (lambda A: A, lambda A: A - A.mean(0) - A.mean(1)[:, None] + A.mean()):
        found.append(spectral_norm(project(K - exact)) / spectral_norm(project(exact)))
    return found


if __name__ == "__main__":
    common.main(__file__, run)
