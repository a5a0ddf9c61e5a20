"""Accuracy and cost of the implicit and the explicit network, trained in the same way."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from notsodeep.checks import InputError
from notsodeep.extras import available
from notsodeep.progress import Progress, Reporter, reporter
from notsodeep.study.kernels import Study
from notsodeep.study.timing import interleaved, predict, torch_on_one_thread

__all__ = ["STEADY", "Comparison", "Trained", "comparable", "compare"]

_TOLERANCE = 1e-4  # tolerance of the equilibrium, usual in the training of DEQs
STEADY = 0.5  # longest median round, as a share above the best


@dataclass(frozen=True)
class Trained:
    """One network after training.

    Attributes
    ----------
    name : str
    parameters : int
    test_accuracy : float
    epoch_seconds : float
        Time of one more epoch; like `inference_ms`, the best of several interleaved rounds.
    inference_ms : float
        Milliseconds for a thousand samples.
    evaluations : float
        Hidden layers evaluated for one prediction; a DEQ evaluates the layers of its cell in every iteration.
    curve : tuple of float
        Test accuracy after each epoch.
    epoch_spread, inference_spread : float
        How much longer the median round took than the best one, as a share of it.
    """

    name: str
    parameters: int
    test_accuracy: float
    epoch_seconds: float
    inference_ms: float
    evaluations: float
    curve: tuple[float, ...]
    epoch_spread: float = 0.0
    inference_spread: float = 0.0


@dataclass(frozen=True)
class Comparison:
    """The two networks side by side, and how they were trained."""

    setting: str
    implicit: Trained
    explicit: Trained

    @property
    def steady(self) -> bool:
        """Whether the times can be trusted: no median is half as long again as its best round, as on a busy machine."""
        return all(max(one.epoch_spread, one.inference_spread) <= STEADY for one in (self.implicit, self.explicit))

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """What is compared, implicit, explicit, and their ratio."""
        a, b = self.implicit, self.explicit

        def ratio(one: float, other: float) -> str:
            return f"{one / other:.1f}×"

        return [
            ("test accuracy", f"{100 * a.test_accuracy:.1f} %", f"{100 * b.test_accuracy:.1f} %", ""),
            (
                "hidden layers evaluated",
                f"{a.evaluations:.3g}",
                f"{b.evaluations:.3g}",
                ratio(a.evaluations, b.evaluations),
            ),
            (
                "inference, 1000 samples",
                _time(a.inference_ms, "ms", a.inference_spread),
                _time(b.inference_ms, "ms", b.inference_spread),
                ratio(a.inference_ms, b.inference_ms),
            ),
            (
                "one training epoch",
                _time(a.epoch_seconds, "s", a.epoch_spread),
                _time(b.epoch_seconds, "s", b.epoch_spread),
                ratio(a.epoch_seconds, b.epoch_seconds),
            ),
            ("parameters", str(a.parameters), str(b.parameters), ""),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers and the table, JSON-ready."""
        networks = {"implicit": self.implicit, "explicit": self.explicit}
        return {
            "setting": self.setting,
            "columns": ["", "implicit", "explicit", "implicit / explicit"],
            "rows": [list(row) for row in self.rows],
            **{name: {**vars(one), "curve": list(one.curve)} for name, one in networks.items()},
        }


def _time(value: float, unit: str, spread: float) -> str:
    return f"{value:.3g} {unit}" + (f" (+{100 * spread:.0f} %)" if spread >= 0.005 else "")


def _spread(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) / min(seconds) - 1


def comparable(study: Study) -> bool:
    """Whether there are labels, an equilibrium at finite width, and PyTorch."""
    there = available("torch") and available("safetensors")
    return study.data.labels is not None and bool(study.deq.well_posed) and there


def compare(
    study: Study,
    *,
    width: int = 256,
    epochs: int = 20,
    seed: int = 0,
    progress: Progress = None,
) -> Comparison:
    """Train both networks of a study on 70 % of its samples and test them on the rest, on one thread.

    Parameters
    ----------
    study : Study
        With labelled data.
    width, epochs, seed : int
        The same for both networks.
    progress : bool, callable or None
        See :func:`notsodeep.progress.reporter`.
    """
    if study.data.labels is None:
        raise InputError(f"data={study.data.name!r} has no labels; a comparison needs something to learn")
    with torch_on_one_thread(), reporter("training", progress=progress) as report:
        return _compare(study, width, epochs, seed, report)


def _compare(study: Study, width: int, epochs: int, seed: int, report: Reporter) -> Comparison:
    import torch

    from notsodeep import nn

    data, names = study.data.split(0.3, seed=seed, stratify=True).prepared(study.normalize or "center").numbered()
    X, labels, X_test, labels_test = data.parts
    X, X_test = study.tau0 * X, study.tau0 * X_test
    shape = (X.shape[1], width, len(names))
    networks: dict[str, Any] = {
        "implicit": nn.DEQNet(study.deq.centered(study.tau0), *shape, tol=_TOLERANCE, seed=seed),
        "explicit": nn.ExplicitNet(study.network, *shape, seed=seed),
    }

    def train(network: Any, epochs: int, progress: Any = False) -> nn.History:
        return nn.fit(
            network,
            X,
            labels,
            epochs=epochs,
            batch_size=64,
            lr=3e-3,
            validation=(X_test, labels_test),
            seed=seed,
            progress=progress,
        )

    histories = {}
    for name, network in networks.items():
        report.stage(f"training the {name} network")
        histories[name] = train(network, epochs, report)
    sample = torch.as_tensor(X_test, dtype=torch.float32)
    report.stage("timing")
    inference = interleaved({name: partial(predict, network, sample) for name, network in networks.items()}, rounds=15)
    copies = {name: copy.deepcopy(network) for name, network in networks.items()}
    epoch = interleaved({name: partial(train, copies[name], 1) for name in networks}, rounds=3)
    trained = {}
    for name, network in networks.items():
        epochs_done = histories[name].epochs
        evaluations = float(study.network.depth)
        if name == "implicit":
            steps = networks[name].last_solve.sample_iterations.float().mean()
            evaluations = float(steps) * len(study.deq.layers)
        trained[name] = Trained(
            name=name,
            parameters=sum(parameter.numel() for parameter in network.parameters()),
            test_accuracy=float(epochs_done[-1].validation_accuracy or 0.0),
            epoch_seconds=min(epoch[name]),
            inference_ms=1e6 * min(inference[name]) / len(X_test),
            evaluations=evaluations,
            curve=tuple(float(one.validation_accuracy or 0.0) for one in epochs_done),
            epoch_spread=_spread(epoch[name]),
            inference_spread=_spread(inference[name]),
        )
    setting = (
        f"Both networks {width} wide, trained for {epochs} epochs by Adam on {len(X)} samples of {study.data.name}, "
        f"tested on {len(X_test)}; equilibria solved by Anderson's method to {_TOLERANCE:g}; one thread; times are "
        "those of the best of several rounds, with how much longer the median took"
    )
    return Comparison(setting, trained["implicit"], trained["explicit"])
