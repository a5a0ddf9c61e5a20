"""How close the outputs of networks are, which is closest, how well they are calibrated, and how long each takes."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from notsodeep.nn.observation import evaluating

__all__ = ["Agreement", "Time", "calibration_error", "closeness", "closest", "gain", "logits", "milliseconds"]

_BINS = 15
_ENOUGH = 1.5  # seconds for the timing of all networks at one batch size
_ROUNDS = 30
_NOISE = 2.0  # standard errors


@dataclass(frozen=True)
class Agreement:
    """Outputs compared with those of the module.

    Attributes
    ----------
    agreement : float
        Share of rows with the same largest output; for real outputs the explained share of their variance.
    error : float
        Standard error of the agreement; nan for real outputs.
    kl : float or None
        Mean Kullback–Leibler divergence from the module's probabilities, for classes.
    relative_error : float
        ‖f̂ − f‖/‖f‖ over all rows.
    accuracy, calibration : float or None
        Share of correct labels and expected calibration error, where labels are known.
    agrees : Tensor, (n,)
        Row by row, for paired comparisons: 1 or 0 for classes, −‖f̂ − f‖² for real outputs.
    """

    agreement: float
    error: float
    kl: float | None
    relative_error: float
    accuracy: float | None
    calibration: float | None
    agrees: Tensor


def logits(outputs: Tensor) -> Tensor:
    """(n, k) of k classes; a single output is the logit of class 1 against 0."""
    return outputs if outputs.shape[1] > 1 else torch.cat([torch.zeros_like(outputs), outputs], dim=1)


@torch.no_grad()
def closeness(outputs: Tensor, goal: Tensor, labels: Tensor | None, classes: bool) -> Agreement:
    """Compare outputs (n, k) with those of the module, and with labels (n,) or real targets."""
    outputs, goal = outputs.double(), goal.double()
    gap = outputs - goal
    relative = float(gap.norm() / goal.norm()) if bool(goal.any()) else math.inf
    if not classes:
        around = (goal - goal.mean(0)).square().sum()
        explained = 1 - float(gap.square().sum() / around) if float(around) else -math.inf
        fit = None
        if labels is not None:
            target = labels.double().reshape(len(labels), -1)
            fit = 1 - float((outputs - target).square().sum() / (target - target.mean(0)).square().sum())
        return Agreement(explained, math.nan, None, relative, fit, None, -gap.square().sum(1))
    outputs, goal = logits(outputs), logits(goal)
    agrees = (outputs.argmax(1) == goal.argmax(1)).double()
    share = float(agrees.mean())
    kl = torch.nn.functional.kl_div(outputs.log_softmax(1), goal.log_softmax(1), log_target=True, reduction="batchmean")
    accuracy = calibration = None
    if labels is not None:
        accuracy = float((outputs.argmax(1) == labels).double().mean())
        calibration = calibration_error(outputs.softmax(1), labels)
    error = math.sqrt(max(share * (1 - share), 1 / len(agrees)) / len(agrees))
    return Agreement(share, error, float(kl), relative, accuracy, calibration, agrees)


def gain(one: Agreement, other: Agreement) -> int:
    """1 if `one` is closer to the module than `other` by more than chance, −1 if `other` is, 0 otherwise."""
    difference = one.agrees - other.agrees
    mean, error = float(difference.mean()), float(difference.std()) / math.sqrt(len(difference))
    return 0 if abs(mean) <= _NOISE * error else 1 if mean > 0 else -1


def closest(names: Iterable[str], measured: Mapping[str, Agreement]) -> str:
    """The network of the largest agreement; of several that differ by no more than chance, that of the least KL.

    Agreement counts the few rows near a boundary between classes, and is noisy; KL uses all outputs of all rows.
    """

    def distance(name: str) -> float:
        one = measured[name]
        return one.relative_error if one.kl is None else one.kl

    names = list(names)
    top = max(names, key=lambda name: (measured[name].agreement, -distance(name)))
    return min((name for name in names if gain(measured[top], measured[name]) <= 0), key=distance)


def calibration_error(probabilities: Tensor, labels: Tensor) -> float:
    """Σ_b (n_b/n) |accuracy_b − confidence_b| over bins b of equal width of the largest probability."""
    confidence, predicted = probabilities.max(1)
    right = (predicted == labels).double()
    bins = (confidence * _BINS).long().clamp_max(_BINS - 1)
    gaps = torch.zeros(_BINS, dtype=torch.float64, device=probabilities.device)
    gaps.index_add_(0, bins, right - confidence.double())
    return float(gaps.abs().sum() / len(labels))


class Time(NamedTuple):
    """Milliseconds of the best round, and by how much of it the median is longer: much on a busy machine."""

    best: float
    spread: float


@torch.no_grad()
def milliseconds(networks: Mapping[str, tuple[Callable[[Tensor], Any], Tensor]]) -> dict[str, Time]:
    """Time of each network on its rows, in rounds that interleave all of them."""
    times: dict[str, list[float]] = {name: [] for name in networks}
    with _all_evaluating([network for network, _ in networks.values()]):
        for network, rows in networks.values():
            network(rows)
        begin = time.perf_counter()
        for _ in range(_ROUNDS):
            for name, (network, rows) in networks.items():
                start = time.perf_counter()
                network(rows)
                times[name].append(1e3 * (time.perf_counter() - start))
            if time.perf_counter() - begin > _ENOUGH:
                break
    return {name: Time(min(one), statistics.median(one) / min(one) - 1) for name, one in times.items()}


def _all_evaluating(networks: Sequence[Any]) -> Any:
    return evaluating(torch.nn.ModuleList([one for one in networks if isinstance(one, torch.nn.Module)]))
