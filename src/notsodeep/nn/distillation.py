"""Cheap networks trained on the outputs of a module: the samples it is asked about, the loss, the training."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.nn.measurement import logits
from notsodeep.nn.observation import module_outputs
from notsodeep.nn.training import fit

__all__ = ["CHUNK", "Loss", "mixtures", "train"]

CHUNK = 1000  # rows that the module gets at once
_RATE, _BATCH = 2e-3, 256  # of the training


def mixtures(
    module: Any, rows: Tensor, outputs: Tensor, samples: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The rows and as many λx + (1 − λ)x' as are missing, λ uniform, with the outputs; none of integers."""
    missing = samples - len(rows)
    if missing <= 0 or not rows.is_floating_point():
        return rows, outputs
    first, second = (torch.randint(len(rows), (missing,), generator=generator) for _ in range(2))
    share = torch.rand(missing, generator=generator).to(rows).reshape(-1, *(1,) * (rows.ndim - 1))
    mixed = torch.lerp(rows[second], rows[first], share)
    answers = module_outputs(module, mixed, CHUNK).float()
    good = answers.isfinite().all(1)
    return torch.cat([rows, mixed[good]]), torch.cat([outputs, answers[good]])


class Loss:
    """KL(softmax f ‖ softmax f̂) + mean (f̂ − f)²/σ², or the second term alone."""

    def __init__(self, spread: Tensor, classes: bool) -> None:
        self.spread, self.classes = spread if float(spread) > 0 else torch.ones_like(spread), classes

    def __call__(self, outputs: Tensor, goal: Tensor) -> Tensor:
        value = ((outputs - goal) / self.spread).square().mean()
        if not self.classes:
            return value
        found, true = (logits(one).log_softmax(1) for one in (outputs, goal))
        return value + nn.functional.kl_div(found, true, log_target=True, reduction="batchmean")


def train(
    network: nn.Sequential,
    rows: Tensor,
    goals: Tensor,
    judged: tuple[Tensor, Tensor],
    loss: Loss,
    epochs: int,
    seed: int,
) -> None:
    """Train all weights; a network that ends worse on the rows `judged` than it began is left as it was."""
    steps = epochs * math.ceil(len(rows) / _BATCH)
    before = {name: value.clone() for name, value in network.state_dict().items()}

    @torch.no_grad()
    def value() -> float:
        found = float(loss(network(judged[0]), judged[1]))
        return found if math.isfinite(found) else math.inf

    start = value()

    def schedule(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=_RATE, total_steps=steps + 1)

    fit(
        network,
        rows,
        goals,
        epochs=epochs,
        batch_size=_BATCH,
        lr=_RATE,
        loss=loss,
        scheduler=schedule,
        scheduler_per="step",
        seed=seed,
        progress=False,
    )
    if value() > start:
        network.load_state_dict(before)
