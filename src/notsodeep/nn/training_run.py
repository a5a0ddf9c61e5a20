"""One training: its data, loss and optimiser, a step, an epoch, the best weights."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from notsodeep.checks import InputError, NotConvergedError, choice, count, nonnegative, positive, seeded
from notsodeep.nn.batches import Batches, first_rows, is_loader, label_places
from notsodeep.nn.epochs import Epoch, History
from notsodeep.nn.equilibrium import Equilibrium
from notsodeep.nn.export import describe
from notsodeep.nn.networks import DEQNet
from notsodeep.nn.observation import evaluating
from notsodeep.nn.projection import Contraction

__all__ = ["Run"]

LOSSES = ("cross_entropy", "squared")
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], float]] = {
    "adam": (torch.optim.Adam, 1e-2),
    "sgd": (torch.optim.SGD, 1e-1),
}
_IGNORED = -100  # the label of a place without one, as in torch.nn.functional.cross_entropy
T = TypeVar("T")


class Run:
    """The state of one training: everything that a checkpoint holds."""

    def __init__(
        self,
        net: torch.nn.Module,
        X: Any,
        y: Any,
        batch_size: int,
        optimizer: Any,
        lr: float | None,
        weight_decay: float | None,
        loss: str | Callable[[Any, Tensor], Tensor] | None,
        validation: Any,
        patience: int | None,
        seed: int | np.random.Generator,
    ) -> None:
        self.net = net
        example = next(net.parameters(), None)
        if example is None:
            raise InputError("net has no parameters to train")
        self.device = example.device
        self.data = Batches(X, y, net)
        self.own_loss = loss if callable(loss) else None
        target = self.data.first()[1]
        usual = "squared" if target.is_floating_point() else "cross_entropy"
        self.loss = "own" if callable(loss) else choice(loss or usual, LOSSES, "loss")
        self._prepare(self.data)
        self.validation: Batches | None = None
        if is_loader(validation):
            self.validation = Batches(validation, None, net, "validation ")
        elif validation is not None:
            if not isinstance(validation, tuple | list) or len(validation) != 2:
                raise InputError("validation must be a pair (X, y) or a DataLoader")
            self.validation = Batches(validation[0], validation[1], net, "validation ")
            self._prepare(self.validation)
        self.equilibria = [one for one in net.modules() if isinstance(one, DEQNet | Equilibrium)]
        self.optimizer, named = _optimizer(net, optimizer, lr, weight_decay)
        self.batch_size = count(batch_size, "batch_size")
        self.patience = None if patience is None else count(patience, "patience")
        self.seed = seeded(seed)
        self.clip: float | None = None
        self.accumulate = 1
        self.autocast: torch.dtype | None = None
        self.contraction: Contraction | None = None
        self.scheduler: Any = None
        self.per_step = False
        self.steps = 0
        self.history = History()
        self.best: dict[str, Tensor] | None = None
        self.settings: dict[str, Any] = {
            "loss": self.loss,
            **named,
            "batch_size": self.batch_size,
            "patience": self.patience,
            "seed": self.seed,
            "network": _identity(net),
            "shapes": {name: list(value.shape) for name, value in net.state_dict().items()},
        }

    def scheduled(self, build: Callable[[torch.optim.Optimizer], Any] | None, per: str) -> None:
        """Add a scheduler of the learning rate."""
        self.per_step = choice(per, ("epoch", "step"), "scheduler_per") == "step"
        if build is None:
            return
        if not callable(build):
            raise InputError(
                f"scheduler={build!r:.80} must be a function that makes one, e.g. lambda opt: StepLR(opt, 10)"
            )
        self.scheduler = build(self.optimizer)
        if not hasattr(self.scheduler, "step"):
            raise InputError(f"scheduler={build!r} must make a scheduler from the optimiser, but returned none")
        self.settings["scheduler"] = type(self.scheduler).__name__

    def _prepare(self, data: Batches) -> None:
        """Check targets that are known in advance."""
        target, name = data.y, f"{data.name}y"
        if target is None or self.loss == "own":
            return
        if self.loss == "cross_entropy":
            if target.is_floating_point():
                raise InputError(f"{name} must be a vector of integer labels for loss='cross_entropy'")
            if bool(((target < 0) & (target != _IGNORED)).any()):
                raise InputError(f"{name} holds negative labels; number the classes 0, 1, …, and {_IGNORED} for none")
            data.y = target.long()
            return
        assert data.X is not None
        target = target.to(data.X.dtype)
        if not bool(target.isfinite().all()):
            raise InputError(f"{name} holds NaN or infinite values; remove them")
        data.y = target[:, None] if target.ndim == 1 else target

    @torch.no_grad()
    def check_outputs(self) -> None:
        """Refuse inputs and targets that do not fit the network, before anything is trained."""
        if self.loss == "own":
            return
        for data in (self.data, *([self.validation] if self.validation else [])):
            X, y = data.first()
            features = getattr(self.net, "in_features", None)
            if isinstance(features, int) and isinstance(X, Tensor) and X.shape[-1] != features:
                raise InputError(f"{data.name}X has {X.shape[-1]} features but the network takes {features}")
            with evaluating(self.net):
                output = self.net(first_rows(X, 1, len(y)))
            given = tuple(output.shape[1:])
            if self.loss == "squared" and _column(y, output).shape[1:] != given:
                raise InputError(f"{data.name}y has shape {tuple(y.shape[1:])} a sample but the network gives {given}")
            if self.loss == "cross_entropy":
                classes = label_places(output, y[: len(output)])[0].shape[1]
                if int(y.max()) >= classes:
                    raise InputError(
                        f"{data.name}y holds the label {int(y.max())} but the network has {classes} outputs"
                    )

    def _size(self, y: Tensor) -> int:
        """What a mean over a batch is taken over: its labelled places for cross-entropy, and its samples otherwise."""
        return int((y != _IGNORED).sum()) if self.loss == "cross_entropy" else len(y)

    def _counted(self, batches: Iterable[tuple[Any, Tensor]]) -> Iterator[tuple[Any, Tensor]]:
        """The batches that have a loss: not those without any label."""
        return ((X, y) for X, y in batches if self._size(y))

    def _measure(self, X: Any, y: Tensor) -> tuple[Tensor, float]:
        """Mean loss of a batch, and the number of correct predictions."""
        with torch.autocast(self.device.type, dtype=self.autocast, enabled=self.autocast is not None):
            output = self.net(X)
        if self.own_loss is not None:
            value = self.own_loss(output, y)
            if not isinstance(value, Tensor) or value.ndim:
                raise InputError(f"loss={self.own_loss!r} must return a scalar tensor")
            return value, 0.0
        if self.loss == "cross_entropy":
            scores, labels = label_places(output.float() if self.autocast else output, y)
            right = float((scores.argmax(1) == labels).sum())
            return torch.nn.functional.cross_entropy(scores, labels), right
        target = _column(y, output).to(output.dtype)
        return torch.nn.functional.mse_loss(output, target), 0.0

    def _step(self, group: list[tuple[Any, Tensor]]) -> tuple[float, float, int]:
        """One step of the optimiser; sums of the loss and of correct predictions, and iterations of the solver."""
        self.optimizer.zero_grad(set_to_none=True)
        samples = sum(self._size(y) for _, y in group)
        total, correct, iterations = 0.0, 0.0, 0
        for X, y in group:
            value, right = self._measure(X, y)
            (value * (self._size(y) / samples) if len(group) > 1 else value).backward()
            total += float(value.detach()) * self._size(y)
            correct += right
            iterations += sum(one.last_solve.iterations for one in self.equilibria if one.last_solve is not None)
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        self.optimizer.step()
        self.steps += 1
        if self.contraction is not None:
            self.contraction.step()
        if self.scheduler is not None and self.per_step:
            self.scheduler.step()
        return total, correct, iterations

    def epoch(self) -> None:
        """One pass over the data, then the validation."""
        number = len(self.history.epochs) + 1
        begin = time.perf_counter()
        total, correct, iterations, batches, samples = 0.0, 0.0, 0, 0, 0
        self.net.train()
        shuffled = self.data(self.seed * 1_000_003 + number, self.batch_size)
        for group in _groups(self._counted(shuffled), self.accumulate):
            value, right, solved = self._step(group)
            total, correct, iterations = total + value, correct + right, iterations + solved
            samples += sum(self._size(y) for _, y in group)
            batches += len(group)
        if not samples:
            raise InputError(
                f"X gives no sample in epoch {number}, or y no label but {_IGNORED}, which stands for none"
            )
        if self.contraction is not None:
            self.contraction.exactly()
        mean = total / samples
        if not math.isfinite(mean):
            rates = [group["lr"] for group in self.optimizer.param_groups]
            raise NotConvergedError(f"the loss is {mean} after epoch {number}; lower lr={rates[0]:g}")
        labelled = self.loss == "cross_entropy"
        held_loss, held_accuracy = self._validate()
        self.history.epochs.append(
            Epoch(
                number,
                mean,
                correct / samples if labelled else None,
                iterations / batches if iterations else None,
                held_loss,
                held_accuracy if labelled else None,
                time.perf_counter() - begin,
            )
        )
        judged = self.history.last.judged
        self.schedule(judged)
        self._compare(judged)

    def schedule(self, judged: float) -> None:
        """What the scheduler does after an epoch."""
        if self.scheduler is not None and not self.per_step:
            plateau = isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            self.scheduler.step(judged) if plateau else self.scheduler.step()

    @torch.no_grad()
    def _validate(self) -> tuple[float | None, float | None]:
        if self.validation is None:
            return None, None
        total, correct, samples = 0.0, 0.0, 0
        with evaluating(self.net):
            for X, y in self._counted(self.validation(None, self.batch_size)):
                value, right = self._measure(X, y)
                total += float(value) * self._size(y)
                correct += right
                samples += self._size(y)
        if not samples:
            raise InputError(f"validation X gives no sample, or y no label but {_IGNORED}, which stands for none")
        return total / samples, correct / samples

    def _compare(self, value: float) -> None:
        number = len(self.history.epochs)
        scores = [epoch.judged for epoch in self.history.epochs]
        if value == min(scores) and scores.index(value) == number - 1:
            self.history.best = number
            if self.patience is not None:
                self.best = {name: tensor.clone() for name, tensor in self.net.state_dict().items()}
        elif self.patience is not None and number - self.history.best >= self.patience:
            self.history.stopped_early = True


def _identity(net: Any) -> Any:
    """A description, as JSON, that distinguishes networks of equal shapes."""
    try:
        return json.loads(json.dumps(describe(net)))
    except InputError:  # a user's own module, or a φ without a description
        return repr(net)


def _optimizer(
    net: torch.nn.Module, given: Any, lr: float | None, weight_decay: float | None
) -> tuple[torch.optim.Optimizer, dict[str, Any]]:
    """The optimiser, and what a checkpoint remembers of it."""
    if isinstance(given, str):
        build, default = OPTIMIZERS[choice(given, OPTIMIZERS, "optimizer")]
        rate = default if lr is None else positive(lr, "lr")
        decay = nonnegative(weight_decay or 0.0, "weight_decay")
        found = build(net.parameters(), lr=rate, weight_decay=decay)  # type: ignore[call-arg]
        return found, {"optimizer": given, "lr": rate, **({"weight_decay": decay} if decay else {})}
    for name, value in (("lr", lr), ("weight_decay", weight_decay)):
        if value is not None:
            raise InputError(f"{name}={value!r} is for an optimizer by name; set it in your own")
    own = given if isinstance(given, torch.optim.Optimizer) else given(net.parameters()) if callable(given) else None
    if not isinstance(own, torch.optim.Optimizer):
        raise InputError(f"optimizer={given!r} must be a name, an Optimizer, or make one from the parameters")
    closure = inspect.signature(own.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise InputError(f"optimizer={type(own).__name__} computes the loss several times a step; fit does it once")
    return own, {"optimizer": type(own).__name__, "lr": [group["lr"] for group in own.param_groups]}


def _column(y: Tensor, output: Tensor) -> Tensor:
    """Targets (n,) of a network with one output (n, 1)."""
    return y[:, None] if y.ndim == 1 and output.ndim == 2 else y


def _groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of so many items, the last one perhaps shorter."""
    iterator = iter(items)
    while group := list(itertools.islice(iterator, size)):
        yield group
