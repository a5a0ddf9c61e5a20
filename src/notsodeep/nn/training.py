"""A training loop that can be killed at any time and resumes exactly where it was."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader

from notsodeep import files
from notsodeep.checks import InputError, NotConvergedError, choice, count, nonnegative, positive, seeded
from notsodeep.nn.batches import Batches, is_loader, label_places
from notsodeep.nn.export import describe, finite, packed, unpacked
from notsodeep.nn.observation import evaluating
from notsodeep.nn.projection import Contraction
from notsodeep.progress import Progress, reporter

__all__ = ["Epoch", "History", "fit"]

LOSSES = ("cross_entropy", "squared")
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], float]] = {
    "adam": (torch.optim.Adam, 1e-2),
    "sgd": (torch.optim.SGD, 1e-1),
}
_MOST_STEPS = 10**6  # of the optimiser in an epoch, as a file may count them


@dataclass(frozen=True)
class Epoch:
    """Means over one epoch; `accuracy` is None for the squared loss, `iterations` None for explicit networks."""

    epoch: int
    loss: float
    accuracy: float | None
    iterations: float | None
    validation_loss: float | None
    validation_accuracy: float | None
    seconds: float

    def __index__(self) -> int:
        return self.epoch

    @property
    def judged(self) -> float:
        """The loss that schedulers and patience look at."""
        return self.loss if self.validation_loss is None else self.validation_loss

    def __str__(self) -> str:
        parts = [f"epoch {self.epoch}", f"loss {self.loss:.4g}"]
        parts += [f"accuracy {self.accuracy:.3f}"] if self.accuracy is not None else []
        parts += [f"validation loss {self.validation_loss:.4g}"] if self.validation_loss is not None else []
        parts += [f"accuracy {self.validation_accuracy:.3f}"] if self.validation_accuracy is not None else []
        parts += [f"{self.iterations:.1f} solver iterations"] if self.iterations is not None else []
        return ", ".join(parts)


@dataclass
class History:
    """What :func:`fit` did.

    Attributes
    ----------
    epochs : list of Epoch
    best : int
        Number of the epoch with the lowest validation loss (training loss without validation).
    stopped_early : bool
        The patience ran out.
    """

    epochs: list[Epoch] = field(default_factory=list)
    best: int = 0
    stopped_early: bool = False

    @property
    def last(self) -> Epoch:
        return self.epochs[-1]


Callback: TypeAlias = Callable[[Epoch, torch.nn.Module], object]
T = TypeVar("T")


def fit(
    net: torch.nn.Module,
    X: ArrayLike | Tensor | DataLoader[Any],
    y: ArrayLike | Tensor | None = None,
    *,
    epochs: int = 10,
    batch_size: int = 128,
    optimizer: str | torch.optim.Optimizer | Callable[..., torch.optim.Optimizer] = "adam",
    lr: float | None = None,
    weight_decay: float | None = None,
    scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
    scheduler_per: str = "epoch",
    loss: str | Callable[[Any, Tensor], Tensor] | None = None,
    clip: float | None = None,
    accumulate: int = 1,
    autocast: torch.dtype | None = None,
    contraction: float | None = None,
    validation: tuple[Any, Any] | DataLoader[Any] | None = None,
    patience: int | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    checkpoint: str | Path | None = None,
    seed: int | np.random.Generator = 0,
    progress: Progress = None,
) -> History:
    """Minimise the mean loss of ``net`` over mini-batches.

    Parameters
    ----------
    net : nn.Module
        A :class:`DEQNet`, an :class:`ExplicitNet`, or any module.
    X : array or Tensor, (n, …), or DataLoader
        Samples first; images and sequences keep their shapes. A ``DataLoader`` gives pairs (x, y).
    y : array or Tensor, (n, …)
        Integer labels for ``cross_entropy``, real targets for ``squared``; labels of sequences and images have one
        label for each place.
    epochs, batch_size : int
    optimizer : {"adam", "sgd"}, an Optimizer, or a callable that makes one from the parameters
    lr, weight_decay : float, optional
        Of an optimiser by name; `lr` is 0.01 for adam and 0.1 for sgd when None.
    scheduler : callable, optional
        Makes a scheduler of the learning rate from the optimiser, e.g.
        ``lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)``.
    scheduler_per : {"epoch", "step"}
        When the scheduler takes a step.
    loss : {"cross_entropy", "squared"} or callable, optional
        By the type of `y` when None. A callable gets outputs and targets of a batch and returns their mean loss.
    clip : float, optional
        Largest norm of the gradient.
    accumulate : int
        Mini-batches whose gradients are added up before a step.
    autocast : torch.dtype, optional
        Compute in this precision where it is safe, e.g. ``torch.bfloat16``; equilibria are solved in full precision.
    contraction : float, optional
        Keep ‖W‖·L of a DEQ of one layer at most this large, below 1, so that its equilibrium stays unique.
    validation : (X, y) or DataLoader, optional
    patience : int, optional
        Stop after this many epochs without a better validation loss. The network ends with the
        weights of the best epoch, whether or not training stopped early.
    callbacks : callable or sequence of them
        Called after every epoch with the :class:`Epoch` and the network; ``True`` ends the training.
    checkpoint : path, optional
        A safetensors file written after every epoch. When it exists, training resumes from it
        and the result is bit-identical to an uninterrupted run.
    seed : int or Generator
        Order of the samples.
    progress : bool, callable or None
        See :func:`notsodeep.progress.reporter`; a callable receives (Epoch, epochs).

    Returns
    -------
    History

    Examples
    --------
    >>> import torch
    >>> import notsodeep as nsd
    >>> from notsodeep import nn
    >>> net = nn.ExplicitNet(nsd.Explicit(["tanh"]), in_features=3, width=64)
    >>> X = torch.eye(3)
    >>> history = nn.fit(net, X, torch.tensor([1.0, -1.0, 0.5]), epochs=50, lr=0.05)
    >>> history.last.loss < 0.1 * history.epochs[0].loss
    True
    """
    called = [callbacks] if callable(callbacks) else list(callbacks)
    run = _Run(net, X, y, batch_size, optimizer, lr, weight_decay, loss, validation, patience, seed)
    run.scheduled(scheduler, scheduler_per)
    run.clip = None if clip is None else positive(clip, "clip")
    run.accumulate, run.autocast = count(accumulate, "accumulate"), autocast
    run.contraction = None if contraction is None else Contraction(net, contraction)
    run.settings |= {"clip": clip, "accumulate": accumulate, "contraction": contraction}
    run.settings |= {"autocast": None if autocast is None else str(autocast)}
    total = count(epochs, "epochs")
    if checkpoint is not None:
        files.writable(checkpoint, "checkpoint")
        run.settings["data"] = _fingerprint([*run.data.arrays, *(run.validation.arrays if run.validation else ())])
    with torch.random.fork_rng(devices=[]), reporter("training", total, progress) as report:
        run.check_outputs()
        torch.manual_seed(run.seed)
        if checkpoint is not None and Path(checkpoint).exists():
            run.restore(checkpoint)
        while len(run.history.epochs) < total and not run.history.stopped_early:
            run.epoch()
            stop = [one(run.history.last, net) is True for one in called]
            run.history.stopped_early |= any(stop)
            if checkpoint is not None:
                run.save(checkpoint)
            report(run.history.last, total)
    if run.best is not None:
        net.load_state_dict(run.best)
    return run.history


class _Run:
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
        self.data = Batches(X, y, example)
        self.own_loss = loss if callable(loss) else None
        target = self.data.first()[1]
        usual = "squared" if target.is_floating_point() else "cross_entropy"
        self.loss = "own" if callable(loss) else choice(loss or usual, LOSSES, "loss")
        self._prepare(self.data)
        self.validation: Batches | None = None
        if is_loader(validation):
            self.validation = Batches(validation, None, example, "validation ")
        elif validation is not None:
            if not isinstance(validation, tuple | list) or len(validation) != 2:
                raise InputError("validation must be a pair (X, y) or a DataLoader")
            self.validation = Batches(validation[0], validation[1], example, "validation ")
            self._prepare(self.validation)
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
            if int(target.min()) < 0:
                raise InputError(f"{name} holds negative labels; number the classes 0, 1, …")
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
            if isinstance(features, int) and X.shape[-1] != features:
                raise InputError(f"{data.name}X has {X.shape[-1]} features but the network takes {features}")
            with evaluating(self.net):
                output = self.net(X[:1])
            given = tuple(output.shape[1:])
            if self.loss == "squared" and _column(y, output).shape[1:] != given:
                raise InputError(f"{data.name}y has shape {tuple(y.shape[1:])} a sample but the network gives {given}")
            if self.loss == "cross_entropy":
                classes = label_places(output, y[:1])[0].shape[1]
                if int(y.max()) >= classes:
                    raise InputError(
                        f"{data.name}y holds the label {int(y.max())} but the network has {classes} outputs"
                    )

    def _measure(self, X: Tensor, y: Tensor) -> tuple[Tensor, float]:
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
            right = (scores.argmax(1) == labels).sum()
            return torch.nn.functional.cross_entropy(scores, labels), float(right) * len(y) / len(labels)
        target = _column(y, output).to(output.dtype)
        return torch.nn.functional.mse_loss(output, target), 0.0

    def _step(self, group: list[tuple[Tensor, Tensor]]) -> tuple[float, float, int]:
        """One step of the optimiser; sums of the loss and of correct predictions, and iterations of the solver."""
        self.optimizer.zero_grad(set_to_none=True)
        samples = sum(len(y) for _, y in group)
        total, correct, iterations = 0.0, 0.0, 0
        for X, y in group:
            value, right = self._measure(X, y)
            (value * (len(y) / samples) if len(group) > 1 else value).backward()
            total += float(value.detach()) * len(y)
            correct += right
            iterations += getattr(getattr(self.net, "last_solve", None), "iterations", 0)
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
        for group in _groups(self.data(self.seed * 1_000_003 + number, self.batch_size), self.accumulate):
            value, right, solved = self._step(group)
            total, correct, iterations = total + value, correct + right, iterations + solved
            samples += sum(len(y) for _, y in group)
            batches += len(group)
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
        self._schedule(judged)
        self._compare(judged)

    def _schedule(self, judged: float) -> None:
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
            for X, y in self.validation(None, self.batch_size):
                value, right = self._measure(X, y)
                total += float(value) * len(y)
                correct += right
                samples += len(y)
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

    def save(self, path: str | Path) -> None:
        """Write everything as one safetensors file, atomically."""
        tensors = {f"net/{name}": value for name, value in self.net.state_dict().items()}
        tensors |= {f"best/{name}": value for name, value in (self.best or {}).items()}
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{index}/{name}": value for name, value in slots.items() if value is not None}
        if any(not isinstance(value, Tensor) for value in tensors.values()):
            raise InputError(f"checkpoint= cannot keep the state of {type(self.optimizer).__name__}; train without one")
        tensors["rng"] = torch.get_rng_state()
        state = {
            "settings": self.settings,
            "epochs": [asdict(epoch) for epoch in self.history.epochs],
            "best": self.history.best,
            "stopped_early": self.history.stopped_early,
            "steps": self.steps,
        }
        files.write(path, packed(tensors, "training", state))

    def restore(self, path: str | Path) -> None:
        """Continue from a file written by :meth:`save`."""
        tensors, state = unpacked(path, "training")
        if state is None:
            raise InputError(f"checkpoint={str(path)!r} holds no training state; pass another path")
        try:
            found = dict(state["settings"])
            history = _history(state)
            steps = 0 if self.scheduler is None else count(state["steps"], "steps")
            if steps > _MOST_STEPS * len(history.epochs):
                raise ValueError(f"it counts {steps} steps")
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(f"checkpoint={str(path)!r} is damaged ({error}); pass another path") from None
        for name, value in self.settings.items():
            if found.get(name) != value:
                what = {"data": "other data", "network": "another network"}.get(name, f"{name}={found.get(name)!r:.60}")
                raise InputError(
                    f"checkpoint={str(path)!r} belongs to a training with {what}; use the same settings or another path"
                )
        weights, best, slots = (_under(part, tensors) for part in ("net/", "best/", "optimizer/"))
        try:
            for one in (weights, *([best] if best or self.patience is not None else [])):
                if one.keys() != self.net.state_dict().keys():
                    raise ValueError("its weights are not those of the network")
                for name, value in self.net.state_dict().items():
                    _like(one[name], value, name)
            torch.set_rng_state(_like(tensors["rng"], torch.get_rng_state(), "rng"))
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": self._slots(slots)})
            self.net.load_state_dict(weights)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"checkpoint={str(path)!r} is damaged ({reason}); pass another path") from None
        self.best, self.history, self.steps = best or None, history, steps
        self._replay()

    def _replay(self) -> None:
        """Bring a new scheduler to where it was: its state may hold anything, so that no file sets it."""
        with warnings.catch_warnings(action="ignore"):  # that the optimiser has taken no step yet
            for epoch in self.history.epochs:
                self._schedule(epoch.judged)
            for _ in range(self.steps if self.per_step else 0):
                self.scheduler.step()

    def _slots(self, tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
        """The optimizer's state of each parameter: as after a step, with other numbers."""
        parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
        usual = _after_a_step(self.optimizer)
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            place, _, key = name.partition("/")
            index = count(int(place), "index", minimum=0)
            plain = torch.tensor(0.0) if key == "step" else parameters[index]
            slots.setdefault(index, {})[key] = _like(value, usual[index][key] if usual else plain, name)
            if (key == "step" and float(value) < 1) or (key.endswith("_sq") and bool((value < 0).any())):
                raise ValueError(f"{name} is less than it can be")
        for index, slot in slots.items():
            if missing := [key for key, value in usual.get(index, {}).items() if value is not None and key not in slot]:
                raise ValueError(f"optimizer/{index}/{missing[0]} is missing")
        return slots


def _after_a_step(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """The state of a copy of the optimizer after a step; empty for one of the user's own that cannot be copied."""
    try:
        twin = copy.deepcopy(optimizer)
        for parameter in (one for group in twin.param_groups for one in group["params"]):
            parameter.grad = torch.zeros_like(parameter)
        twin.step()
        found: dict[int, dict[str, Any]] = twin.state_dict()["state"]
    except Exception:  # anybody's code
        return {}
    return found


def _history(state: Any) -> History:
    epochs = [Epoch(**epoch) for epoch in state["epochs"]]
    for number, epoch in enumerate(epochs, 1):
        values = [value for name, value in vars(epoch).items() if value is not None or name in ("loss", "seconds")]
        if (
            type(epoch.epoch) is not int
            or epoch.epoch != number
            or any(isinstance(value, bool) or not math.isfinite(value) for value in values)
        ):
            raise ValueError(f"epoch {number} does not hold numbers")
    if not 1 <= count(state["best"], "best") <= len(epochs):
        raise ValueError(f"best={state['best']} is none of its epochs")
    return History(epochs, state["best"], state["stopped_early"] is True)


def _like(value: Tensor, model: Tensor, name: str) -> Tensor:
    """A tensor from a file, if it has the shape and type it should have and finite numbers."""
    if value.shape != model.shape or value.dtype != model.dtype or not finite(value):
        raise ValueError(f"{name} does not hold finite {model.dtype} numbers of shape {tuple(model.shape)}")
    return value


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


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
    return own, {"optimizer": type(own).__name__, "lr": [group["lr"] for group in own.param_groups]}


def _column(y: Tensor, output: Tensor) -> Tensor:
    """Targets (n,) of a network with one output (n, 1)."""
    return y[:, None] if y.ndim == 1 and output.ndim == 2 else y


def _groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of so many items, the last one perhaps shorter."""
    iterator = iter(items)
    while group := list(itertools.islice(iterator, size)):
        yield group


def _fingerprint(tensors: Sequence[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
