"""A training loop that can be killed at any time and resumes exactly where it was."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from notsodeep import files
from notsodeep.checks import InputError, NotConvergedError, choice, count, positive, seeded
from notsodeep.nn.export import describe, packed, unpacked
from notsodeep.progress import Progress, reporter

__all__ = ["Epoch", "History", "fit"]

LOSSES = ("cross_entropy", "squared")
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], float]] = {
    "adam": (torch.optim.Adam, 1e-2),
    "sgd": (torch.optim.SGD, 1e-1),
}


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


def fit(
    net: torch.nn.Module,
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    *,
    epochs: int = 10,
    batch_size: int = 128,
    optimizer: str = "adam",
    lr: float | None = None,
    loss: str | None = None,
    validation: tuple[ArrayLike | Tensor, ArrayLike | Tensor] | None = None,
    patience: int | None = None,
    checkpoint: str | Path | None = None,
    seed: int = 0,
    progress: Progress = None,
) -> History:
    """Minimise the mean loss of ``net`` over mini-batches.

    Parameters
    ----------
    net : nn.Module
        A :class:`DEQNet`, an :class:`ExplicitNet`, or any module from (batch, p) to (batch, k).
    X : array or Tensor, (n, p)
    y : array or Tensor, (n,) or (n, k)
        Integer labels for ``cross_entropy``, real targets for ``squared``.
    epochs, batch_size : int
    optimizer : {"adam", "sgd"}
    lr : float, optional
        0.01 for adam and 0.1 for sgd when None.
    loss : {"cross_entropy", "squared"}, optional
        By the type of `y` when None.
    validation : (X, y), optional
    patience : int, optional
        Stop after this many epochs without a better validation loss. The network ends with the
        weights of the best epoch, whether or not training stopped early.
    checkpoint : path, optional
        A safetensors file written after every epoch. When it exists, training resumes from it
        and the result is bit-identical to an uninterrupted run.
    seed : int
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
    run = _Run(net, X, y, batch_size, optimizer, lr, loss, validation, patience, seed)
    total = count(epochs, "epochs")
    if checkpoint is not None:
        files.writable(checkpoint, "checkpoint")
        run.settings["data"] = _fingerprint([run.X, run.y, *(run.validation or ())])
    with torch.random.fork_rng(devices=[]), reporter("training", total, progress) as report:
        run.check_outputs()
        torch.manual_seed(seed)
        if checkpoint is not None and Path(checkpoint).exists():
            run.restore(checkpoint)
        while len(run.history.epochs) < total and not run.history.stopped_early:
            run.epoch()
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
        X: ArrayLike | Tensor,
        y: ArrayLike | Tensor,
        batch_size: int,
        optimizer: str,
        lr: float | None,
        loss: str | None,
        validation: tuple[ArrayLike | Tensor, ArrayLike | Tensor] | None,
        patience: int | None,
        seed: int,
    ) -> None:
        self.net = net
        example = next(net.parameters(), None)
        if example is None:
            raise InputError("net has no parameters to train")
        self.X, target = _inputs(X, example, "X"), _numbers(y, example.device, "y")
        integral = not target.is_floating_point()
        self.loss = choice(loss or ("cross_entropy" if integral else "squared"), LOSSES, "loss")
        self.y = self._target(target, len(self.X), "y")
        self.validation: tuple[Tensor, Tensor] | None = None
        if validation is not None:
            if not isinstance(validation, tuple | list) or len(validation) != 2:
                raise InputError("validation must be a pair (X, y)")
            inputs = _inputs(validation[0], example, "validation X")
            held = _numbers(validation[1], example.device, "validation y")
            self.validation = (inputs, self._target(held, len(inputs), "validation y"))
        build, default = OPTIMIZERS[choice(optimizer, OPTIMIZERS, "optimizer")]
        rate = default if lr is None else positive(lr, "lr")
        self.optimizer = build(net.parameters(), lr=rate)  # type: ignore[call-arg]
        self.batch_size = count(batch_size, "batch_size")
        self.patience = None if patience is None else count(patience, "patience")
        self.seed = seeded(seed)
        self.history = History()
        self.best: dict[str, Tensor] | None = None
        self.settings: dict[str, Any] = {
            "loss": self.loss,
            "optimizer": optimizer,
            "lr": rate,
            "batch_size": self.batch_size,
            "patience": self.patience,
            "seed": self.seed,
            "network": _identity(net),
            "shapes": {name: list(value.shape) for name, value in net.state_dict().items()},
        }

    def _target(self, target: Tensor, samples: int, name: str) -> Tensor:
        if target.shape[:1] != (samples,):
            raise InputError(f"{name} has shape {tuple(target.shape)} for {samples} samples")
        if self.loss == "cross_entropy":
            if target.is_floating_point() or target.ndim != 1:
                raise InputError(f"{name} must be a vector of integer labels for loss='cross_entropy'")
            if int(target.min()) < 0:
                raise InputError(f"{name} holds negative labels; number the classes 0, 1, …")
            return target.long()
        target = target.to(self.X.dtype)
        if not bool(target.isfinite().all()):
            raise InputError(f"{name} holds NaN or infinite values; remove them")
        return target[:, None] if target.ndim == 1 else target

    @torch.no_grad()
    def check_outputs(self) -> None:
        """Refuse inputs and targets that do not fit the network, before anything is trained."""
        sets = [("", self.X, self.y), *([("validation ", *self.validation)] if self.validation else [])]
        for name, X, y in sets:
            if X.shape[1] != getattr(self.net, "in_features", self.X.shape[1]):
                features = getattr(self.net, "in_features", self.X.shape[1])
                raise InputError(f"{name}X has {X.shape[1]} features but the network takes {features}")
            with evaluating(self.net):
                given = tuple(self.net(X[:1]).shape[1:])
            if self.loss == "squared" and tuple(y.shape[1:]) != given:
                raise InputError(f"{name}y has shape {tuple(y.shape[1:])} a sample but the network gives {given}")
            if self.loss == "cross_entropy" and int(y.max()) >= given[0]:
                raise InputError(f"{name}y holds the label {int(y.max())} but the network has {given[0]} outputs")

    def _measure(self, X: Tensor, y: Tensor) -> tuple[Tensor, int]:
        """Mean loss of a batch, and the number of correct predictions."""
        output = self.net(X)
        if self.loss == "cross_entropy":
            return torch.nn.functional.cross_entropy(output, y), int((output.argmax(1) == y).sum())
        return torch.nn.functional.mse_loss(output, y), 0

    def epoch(self) -> None:
        """One pass over the data, then the validation."""
        number = len(self.history.epochs) + 1
        begin = time.perf_counter()
        order = torch.randperm(len(self.X), generator=torch.Generator().manual_seed(self.seed * 1_000_003 + number))
        total, correct, iterations, batches = 0.0, 0, 0, 0
        self.net.train()
        for rows in order.split(self.batch_size):
            self.optimizer.zero_grad(set_to_none=True)
            value, right = self._measure(self.X[rows], self.y[rows])
            value.backward()
            self.optimizer.step()
            total += float(value.detach()) * len(rows)
            correct += right
            batches += 1
            iterations += getattr(getattr(self.net, "last_solve", None), "iterations", 0)
        mean = total / len(self.X)
        if not math.isfinite(mean):
            raise NotConvergedError(f"the loss is {mean} after epoch {number}; lower lr={self.settings['lr']:g}")
        labelled = self.loss == "cross_entropy"
        held_loss, held_accuracy = self._validate()
        self.history.epochs.append(
            Epoch(
                number,
                mean,
                correct / len(self.X) if labelled else None,
                iterations / batches if iterations else None,
                held_loss,
                held_accuracy if labelled else None,
                time.perf_counter() - begin,
            )
        )
        self._compare(mean if held_loss is None else held_loss)

    @torch.no_grad()
    def _validate(self) -> tuple[float | None, float | None]:
        if self.validation is None:
            return None, None
        X, y = self.validation
        total, correct = 0.0, 0
        with evaluating(self.net):
            for rows in torch.arange(len(X)).split(self.batch_size):
                value, right = self._measure(X[rows], y[rows])
                total += float(value) * len(rows)
                correct += right
        return total / len(X), correct / len(X)

    def _compare(self, value: float) -> None:
        number = len(self.history.epochs)
        scores = [e.loss if e.validation_loss is None else e.validation_loss for e in self.history.epochs]
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
        tensors["rng"] = torch.get_rng_state()
        state = {
            "settings": self.settings,
            "epochs": [asdict(epoch) for epoch in self.history.epochs],
            "best": self.history.best,
            "stopped_early": self.history.stopped_early,
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
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(f"checkpoint={str(path)!r} is damaged ({error}); pass another path") from None
        for name, value in self.settings.items():
            if found.get(name) != value:
                what = {"data": "other data", "network": "another network"}.get(name, f"{name}={found.get(name)!r}")
                raise InputError(
                    f"checkpoint={str(path)!r} belongs to a training with {what}; use the same settings or another path"
                )
        weights, best, slots = (_under(part, tensors) for part in ("net/", "best/", "optimizer/"))
        try:
            for one in (weights, *([best] if best else [])):
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
        self.best, self.history = best or None, history

    def _slots(self, tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
        """The optimizer's state of each parameter: its steps, and averages of the parameter's own shape."""
        parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            index, _, key = name.partition("/")
            like = torch.tensor(0.0) if key == "step" else parameters[count(int(index), "index", minimum=0)]
            slots.setdefault(int(index), {})[key] = _like(value, like, name)
        return slots


def _history(state: Any) -> History:
    epochs = [Epoch(**epoch) for epoch in state["epochs"]]
    for number, epoch in enumerate(epochs, 1):
        values = [value for value in vars(epoch).values() if value is not None]
        if epoch.epoch != number or any(isinstance(value, bool) or not math.isfinite(value) for value in values):
            raise ValueError(f"epoch {number} does not hold numbers")
    return History(epochs, count(state["best"], "best", minimum=min(1, len(epochs))), state["stopped_early"] is True)


def _like(value: Tensor, model: Tensor, name: str) -> Tensor:
    """A tensor from a file, if it has the shape and type it should have and finite numbers."""
    if value.shape != model.shape or value.dtype != model.dtype or not bool(value.isfinite().all()):
        raise ValueError(f"{name} does not hold finite {model.dtype} numbers of shape {tuple(model.shape)}")
    return value


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


@contextmanager
def evaluating(net: torch.nn.Module) -> Iterator[None]:
    """Switch to evaluation mode inside the block, then restore the mode of every submodule."""
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _identity(net: Any) -> Any:
    """A description, as JSON, that distinguishes networks of equal shapes."""
    try:
        return json.loads(json.dumps(describe(net)))
    except InputError:  # a user's own module, or a φ without a description
        return repr(net)


def _numbers(values: Any, device: torch.device, name: str) -> Tensor:
    try:
        return torch.as_tensor(values, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"{name} must hold numbers; number the classes first: np.unique({name.split()[-1]}, return_inverse=True)[1]"
        ) from None


def _inputs(X: ArrayLike | Tensor, like: Tensor, name: str) -> Tensor:
    inputs = torch.as_tensor(X, dtype=like.dtype, device=like.device)
    if inputs.ndim != 2 or inputs.shape[0] == 0:
        shape = tuple(inputs.shape)
        raise InputError(f"{name} has shape {shape} but must be (samples, features) with at least one sample")
    if not bool(inputs.isfinite().all()):
        raise InputError(f"{name} holds NaN or infinite values; remove or impute them")
    return inputs.contiguous()


def _fingerprint(tensors: Sequence[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
