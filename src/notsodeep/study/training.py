"""Accuracy and cost of the implicit and the explicit network, trained in the same way."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

from notsodeep.checks import InputError
from notsodeep.extras import available
from notsodeep.models import DEQ
from notsodeep.progress import Progress, Reporter, reporter
from notsodeep.study.kernels import Study
from notsodeep.study.timing import best_times, predict, torch_on_one_thread

__all__ = ["Comparison", "Trained", "comparable", "compare"]

_TOLERANCE = 1e-4  # tolerance of the equilibrium, usual in the training of DEQs


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
    """

    name: str
    parameters: int
    test_accuracy: float
    epoch_seconds: float
    inference_ms: float
    evaluations: float
    curve: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """The two networks side by side, and how they were trained."""

    setting: str
    implicit: Trained
    explicit: Trained

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
                f"{a.inference_ms:.3g} ms",
                f"{b.inference_ms:.3g} ms",
                ratio(a.inference_ms, b.inference_ms),
            ),
            (
                "one training epoch",
                f"{a.epoch_seconds:.3g} s",
                f"{b.epoch_seconds:.3g} s",
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

    data, names = study.data.split(0.3, seed=seed, stratify=True).prepared().numbered()
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
    inference = best_times({name: partial(predict, network, sample) for name, network in networks.items()}, rounds=15)
    copies = {name: copy.deepcopy(network) for name, network in networks.items()}
    epoch = best_times({name: partial(train, copies[name], 1) for name in networks}, rounds=3)
    trained, layers = {}, 1 if isinstance(study.deq, DEQ) else len(study.deq.layers)
    for name, network in networks.items():
        epochs_done = histories[name].epochs
        solve = getattr(network, "last_solve", None)
        iterations = 1.0 if solve is None else float(solve.sample_iterations.float().mean())
        trained[name] = Trained(
            name=name,
            parameters=sum(parameter.numel() for parameter in network.parameters()),
            test_accuracy=float(epochs_done[-1].validation_accuracy or 0.0),
            epoch_seconds=epoch[name],
            inference_ms=1e6 * inference[name] / len(X_test),
            evaluations=iterations * (study.network.depth if solve is None else layers),
            curve=tuple(float(one.validation_accuracy or 0.0) for one in epochs_done),
        )
    setting = (
        f"Both networks {width} wide, trained for {epochs} epochs by Adam on {len(X)} samples of {study.data.name}, "
        f"tested on {len(X_test)}; equilibria solved by Anderson's method to {_TOLERANCE:g}; one thread"
    )
    return Comparison(setting, trained["implicit"], trained["explicit"])
