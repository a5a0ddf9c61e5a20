"""Train DEQs on images and let `nn.replace` find a cheap network for each: how close does it get, does the design pay?

10 000 training images of MNIST and Fashion-MNIST, scaled to mean ‖x‖² = 1; `nn.DEQNet` with relu and tanh, widths 256
and 1024, three seeds, trained by Adam for 10 epochs with a one-cycle schedule. Then `nn.replace(net, X, y, test=…)`
with its defaults, measured on the 10 000 test images, which neither the DEQ nor the candidates have seen.

Beside it, consistency distillation as far as the abstract of arXiv 2602.03024 describes it: a student of the form of
the cell learns to map every state of the teacher's iteration to its equilibrium, and to give neighbouring states the
same image; it is applied once or twice, from zeros. It sees as many samples as each candidate of `nn.replace`. Not
rebuilt: trajectories of an accelerated solver, an embedding of time, and the weighting of both losses.

Every run is a record, ``benchmarks/records/replace-<data>-<activation>-<width>-<seed>.json``; what is there is not done
again, so that a stopped benchmark resumes. ``--record NAME`` makes one of them. The result says which runs are missing.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, main
from torch.optim.lr_scheduler import OneCycleLR

import notsodeep as nsd
from notsodeep import data, files, nn

AREA = "nn"
RECORDS = Path(__file__).parent / "records"
DATA, ACTIVATIONS, WIDTHS, SEEDS = ("mnist", "fashion-mnist"), ("relu", "tanh"), (256, 1024), (0, 1, 2)
IMAGES = 10_000
EPOCHS, RATE = 10, 0.01
STUDENT_EPOCHS, STUDENT_RATE, TRAJECTORY = 24, 2e-3, 8  # as many samples as 8 epochs of 30 000


def images(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training and test images with labels; the scale is that of the training images."""
    found = data.load(name)
    assert found.test is not None
    X, tests = (torch.as_tensor(np.asarray(one, dtype=np.float32)) for one in (found.X[:IMAGES], found.test.X))
    scale = math.sqrt(float(X.square().sum(1).mean()))
    y, labels = (torch.as_tensor(np.asarray(one)).long() for one in (found.labels[:IMAGES], found.test.labels))
    return X / scale, y, tests / scale, labels


def trained(name: str, activation: str, width: int, seed: int, epochs: int = EPOCHS) -> nn.DEQNet:
    """A DEQ trained on the images."""
    X, y, _, _ = images(name)
    net = nn.DEQNet(nsd.DEQ(activation, 0.2, 0.8), 784, width, 10, tol=1e-5, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nsd.ConvergenceWarning)
        nn.fit(
            net, X, y, epochs=epochs, batch_size=100, lr=RATE, seed=seed, progress=False, scheduler_per="step",
            scheduler=lambda o: OneCycleLR(o, max_lr=RATE, total_steps=epochs * len(X) // 100 + 1),
        )  # fmt: skip
    return net


class Student(torch.nn.Module):
    """z ← φ(W z + U x + b) with weights of its own, beginning at those of the teacher; zeros where it starts."""

    def __init__(self, net: nn.DEQNet) -> None:
        super().__init__()
        weights = net.effective_weights()
        self.phi, self.width = net.phi, net.width
        self.recurrent = torch.nn.Parameter(weights.W.clone())
        self.input = torch.nn.Parameter(weights.U.clone())
        self.bias = torch.nn.Parameter(torch.zeros(net.width))

    def forward(self, state: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        image: torch.Tensor = self.phi(state @ self.recurrent.t() + x @ self.input.t() + self.bias)
        return image


def consistency(net: nn.DEQNet, X: torch.Tensor, tests: torch.Tensor, seed: int) -> dict[str, float]:
    """Agreement with the DEQ of a student after one and two steps, on test images."""
    generator = torch.Generator().manual_seed(seed)
    teacher, student = Student(net), Student(net)
    optimizer = torch.optim.Adam(student.parameters(), lr=STUDENT_RATE)
    batches = math.ceil(len(X) / 256)
    schedule = OneCycleLR(optimizer, max_lr=STUDENT_RATE, total_steps=STUDENT_EPOCHS * batches + 1)
    with torch.no_grad():
        goals = math.sqrt(net.width) * torch.cat([net.equilibrium(part) for part in X.split(1000)])
        spread = goals.std()
    for _ in range(STUDENT_EPOCHS):
        for rows in torch.randperm(len(X), generator=generator).split(256):
            x, goal = X[rows], goals[rows]
            place = int(torch.randint(TRAJECTORY, (1,), generator=generator))
            with torch.no_grad():
                state = torch.zeros_like(goal)
                for _ in range(place):
                    state = teacher(state, x)
                following = student(teacher(state, x), x)
            image = student(state, x)
            loss = ((image - goal) / spread).square().mean() + ((image - following) / spread).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        truth = torch.cat([net(part) for part in tests.split(1000)]).argmax(1)
        state, found = torch.zeros(len(tests), net.width), {}
        for steps in (1, 2):
            state = student(state, tests)
            answers = state @ net.effective_weights().a.t()
            found[f"{steps}"] = float((answers.argmax(1) == truth).double().mean())
    return found


def measure(name: str, activation: str, width: int, seed: int, net: nn.DEQNet | None = None) -> dict[str, Any]:
    """Train one DEQ, unless it is given, and replace it."""
    net = net or trained(name, activation, width, seed)
    X, y, tests, labels = images(name)
    begin = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", nsd.ConvergenceWarning)
        found = nn.replace(net, X, y, test=(tests, labels), seed=seed, progress=False)
    return {
        "data": name,
        "activation": activation,
        "width": width,
        "seed": seed,
        "seconds": time.perf_counter() - begin[0],
        "CPU seconds": time.process_time() - begin[1],
        "contraction": net.contraction,
        "chosen": found.name,
        "reached": found.reached,
        "verdict": list(found.verdict),
        "table": found.table,
        "consistency": consistency(net, X, tests, seed),
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
    }


def path(name: str) -> Path:
    return RECORDS / f"replace-{name}.json"


def keep(name: str, record: dict[str, Any]) -> None:
    files.write(path(name), json.dumps(record, indent=1, ensure_ascii=False) + "\n", parents=True)


def runs() -> dict[str, tuple[str, str, int, int]]:
    settings = itertools.product(SEEDS, WIDTHS, DATA, ACTIVATIONS)
    return {f"{d}-{a}-{w}-{s}": (d, a, w, s) for s, w, d, a in settings}


def row(record: dict[str, Any]) -> dict[str, Any]:
    """One line of the table: the DEQ, what was chosen, and the best of each family."""
    table = record["table"]
    module, chosen = table[0], next(one for one in table if one["network"] == record["chosen"])

    def best(family: str) -> float | None:
        return max((100 * one["agreement"] for one in table if one["family"] == family), default=None)

    return {
        "data": record["data"],
        "activation": record["activation"],
        "width": record["width"],
        "seed": record["seed"],
        "DEQ accuracy %": 100 * module["accuracy"],
        "‖W‖·L": record["contraction"],
        "chosen": record["chosen"],
        "agreement %": 100 * chosen["agreement"],
        "accuracy %": 100 * chosen["accuracy"],
        "faster, 1 row": module["ms, batch 1"] / chosen["ms, batch 1"],
        "faster, 1000 rows": module["ms, large batch"] / chosen["ms, large batch"],
        "designed %": best("designed"),
        "plain %": best("plain"),
        "steps of the cell %": best("cell"),
        "consistency, 1 step %": 100 * record["consistency"]["1"],
        "consistency, 2 steps %": 100 * record["consistency"]["2"],
        "seconds": record["seconds"],
    }


def run(quick: bool = False) -> dict[str, Any]:
    """Return the question, the rows and the verdict."""
    if quick:
        setting = ("mnist", "relu", 256, 0)
        records = [measure(*setting, trained(*setting, epochs=2))]
        missing = len(runs()) - 1
    else:
        for name, setting in runs().items():
            if not path(name).exists():
                keep(name, measure(*setting))
        records, missing = stored()
    return summary(records, missing)


def stored() -> tuple[list[dict[str, Any]], int]:
    """All records that are there, and how many are missing."""
    found = [json.loads(path(name).read_text(encoding="utf-8")) for name in runs() if path(name).exists()]
    return found, len(runs()) - len(found)


def summary(records: list[dict[str, Any]], missing: int) -> dict[str, Any]:
    rows = [row(record) for record in records]
    narrow = [one for one in rows if one["data"] == "mnist" and one["width"] == 256]
    target = [one for one in narrow if one["DEQ accuracy %"] >= 95]
    met = bool(target) and all(
        one["agreement %"] >= 97.5
        and one["accuracy %"] >= one["DEQ accuracy %"] - 0.3
        and min(one["faster, 1 row"], one["faster, 1000 rows"]) >= 8
        and one["seconds"] <= 300
        for one in target
    )
    gain = [one["designed %"] - one["plain %"] for one in rows if one["designed %"] is not None]
    done = f"{len(rows)} of {len(rows) + missing} runs"
    if len(gain) < len(rows):
        done += f", {len(rows) - len(gain)} of them of DEQs that lost their equilibrium in training"
    worst, worst_of_all = (min((one["agreement %"] for one in group), default=math.nan) for group in (target, narrow))
    spread = f"{min(gain):+.2f} to {max(gain):+.2f}"
    return {
        "question": "What replaces a trained DEQ: a designed network, a plain one of the same size, or a few steps of "
        "its cell?",
        "target": "MNIST, width 256, DEQ ≥ 95 %: agreement ≥ 97.5 %, accuracy within 0.3 points, ≥ 8× faster, at most "
        "5 minutes",
        "rows": rows,
        "verdict": f"{'met' if met else 'missed'}: agreement on MNIST at width 256 ≥ {worst:.2f} % for the "
        f"{len(target)} of {len(narrow)} DEQs of ≥ 95 % (for all {len(narrow)}: ≥ {worst_of_all:.2f} %); the "
        f"best designed network agrees {np.mean(gain):+.2f} points more than the best plain one ({spread}; {done})",
        "seconds": sum(one["seconds"] for one in records),  # of all calls of nn.replace, whenever they were made
        "date": max(one["date"] for one in records),
        "machine": records[-1]["machine"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--record")
    parser.add_argument("--stored", action="store_true")
    chosen, rest = parser.parse_known_args()
    if chosen.record:
        keep(chosen.record, measure(*runs()[chosen.record]))
    elif chosen.stored:  # the result from the records that are there
        sys.argv = sys.argv[:1]
        main(__file__, lambda quick: summary(*stored()))
    else:
        sys.argv = [sys.argv[0], *rest]
        main(__file__, run)
