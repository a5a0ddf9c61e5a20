"""What learn.TrainingDynamics predicts against networks that were trained, and against neural-tangents.

Full-batch gradient descent with `nn.fit` on networks of growing width; the prediction starts from the outputs of each
network before training. "apart" is ‖trained − predicted‖/‖trained − before‖ on test samples. For explicit networks
neural-tangents predicts mean and covariance of the ensemble at several times (`gradient_descent_mse_ensemble`).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np
import torch
from deq_ntk_against_neural_tangents import environment

import notsodeep as nsd
from notsodeep import learn, nn

AREA = "nn"
STEPS, TIMES = 50, (0.0, 1.0, 30.0, 1000.0)
MODELS = {"DEQ, relu": nsd.DEQ("relu", 0.2, 0.8), "two layers, relu": nsd.Explicit(["relu", "relu"])}

PEER = """
import sys, types, json, warnings
sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")
warnings.filterwarnings("ignore")
import numpy as np, neural_tangents as nt
from neural_tangents import stax
folder, depth, times = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
X, Y, T = (np.load(f"{folder}/{name}.npy") for name in ("X", "Y", "T"))
root = np.sqrt(X.shape[1])  # the package divides x.y by the number of features
layers = [layer for _ in range(depth) for layer in (stax.Dense(1), stax.Relu())]
_, _, kernel = stax.serial(*layers, stax.Dense(1))
predict = nt.predict.gradient_descent_mse_ensemble(kernel, X * root, Y)
found = predict(t=np.array(times), x_test=T * root, get="ntk", compute_cov=True)
np.save(f"{folder}/mean.npy", np.asarray(found.mean)); np.save(f"{folder}/covariance.npy", np.asarray(found.covariance))
"""


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    rng = np.random.default_rng(0)
    X, T = (rng.standard_normal((n, 10)) / 10**0.5 for n in (30, 50))
    y = np.sin(3 * X[:, :1])
    widths = (256, 1024) if quick else (256, 1024, 4096)
    rows = [measure(name, width, X, y, T) for name in MODELS for width in widths]
    widest = max(row["apart"] for row in rows if row["width"] == widths[-1])
    apart = against_neural_tangents(X, y, T)
    told = "neural-tangents: not installed" if apart is None else f"{apart:.1e} from neural-tangents"
    return {
        "question": f"How far are trained networks from the prediction at infinite width, after {STEPS} steps on 30 "
        "samples (three networks each, on 50 test samples), and how far is neural-tangents from it (mean and "
        f"covariance of the ensemble at t = {', '.join(f'{t:g}' for t in TIMES)}; relative)?",
        "target": "apart ≤ 0.1 at width 4096 and falling; 1e-6 from neural-tangents",
        "rows": rows,
        "verdict": f"{'met' if widest <= 0.1 and (apart is None or apart < 1e-6) else 'missed'}: {widest:.3f} at width "
        f"{widths[-1]}; {told}",
    }


def measure(name: str, width: int, X: Any, y: Any, T: Any) -> dict[str, Any]:
    model = MODELS[name]
    make = nn.DEQNet if isinstance(model, nsd.DEQ) else nn.ExplicitNet
    lr = 0.25 * learn.TrainingDynamics(model, X, y).largest_lr
    training = learn.TrainingDynamics(model, X, y, lr=lr)
    rows, new = torch.tensor(X, dtype=torch.float32), torch.tensor(T, dtype=torch.float32)
    distances, losses = [], []
    for seed in range(3):
        net = make(model, X.shape[1], width, 1, seed=seed)
        with torch.no_grad():
            before = [net(part).numpy() for part in (rows, new)]
        history = nn.fit(
            net, rows, torch.tensor(y), epochs=STEPS, batch_size=len(X), optimizer="sgd", lr=lr, progress=False
        )
        with torch.no_grad():
            after = net(new).numpy()
        predicted = training.follow(T, STEPS, (before[0], before[1]))
        curve = np.mean((training.follow(X, np.arange(STEPS), (before[0], before[0])) - y) ** 2, axis=(1, 2))
        distances.append(np.linalg.norm(after - predicted) / np.linalg.norm(after - before[1]))
        losses.append(np.max(np.abs(np.array([epoch.loss for epoch in history.epochs]) - curve)) / curve[0])
    return {
        "network": name,
        "width": width,
        "apart": float(np.mean(distances)),
        "loss curve": float(np.mean(losses)),
        "apart·√width": float(np.mean(distances)) * width**0.5,
    }


def against_neural_tangents(X: Any, y: Any, T: Any) -> float | None:
    """The largest difference of means and covariances, relative to the largest entry."""
    try:
        python = environment()
    except (OSError, subprocess.CalledProcessError):
        return None
    # their loss is half of ours, and relu has the factor √2 nowhere: t here is 2t there
    training = learn.TrainingDynamics(MODELS["two layers, relu"], X, y)
    with tempfile.TemporaryDirectory() as folder:
        for name, array in (("X", X), ("Y", y), ("T", T)):
            np.save(Path(folder, f"{name}.npy"), array)
        command = [str(python), "-c", PEER, folder, "2", json.dumps([2 * t for t in TIMES])]
        subprocess.run(command, check=True, env={"JAX_ENABLE_X64": "1", "PATH": ""})
        theirs = [np.load(Path(folder, f"{name}.npy")) for name in ("mean", "covariance")]
    ours = training.predict(T, TIMES)
    assert ours.covariance is not None
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(a))) for a, b in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    common.main(__file__, run)
