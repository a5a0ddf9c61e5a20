"""A training loop that can be killed at any time and resumes exactly where it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader

from notsodeep import files
from notsodeep.checks import InputError, count, positive
from notsodeep.nn import checkpoints
from notsodeep.nn.epochs import Epoch, History
from notsodeep.nn.projection import Contraction
from notsodeep.nn.training_run import Run
from notsodeep.progress import Progress, reporter

__all__ = ["fit"]

Callback: TypeAlias = Callable[[Epoch, torch.nn.Module], object]


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
        Samples first; images and sequences keep their shapes. Integers remain integers for a network with an
        ``nn.Embedding``. A ``DataLoader`` gives pairs (x, y), where x may be a list or a dictionary of
        tensors, which the network takes as it is.
    y : array or Tensor, (n, …)
        Integer labels for ``cross_entropy``, −100 where there is none, real targets for ``squared``; labels of
        sequences and images have one label for each place.
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
        Keep ‖W‖·L of all DEQs of one layer at most this large, below 1, so that their equilibria stay unique. They are
        DEQNets anywhere in the network, or one cell h = φ(W h + U x + b) of your own on rows, whose equation is
        checked.
    validation : (X, y) or DataLoader, optional
    patience : int, optional
        Stop after this many epochs without a better validation loss. The network ends with the
        weights of the best epoch, whether or not training stopped early.
    callbacks : callable or sequence of them
        Called after every epoch with the :class:`Epoch` and the network; ``True`` ends the training.
    checkpoint : path, optional
        A safetensors file written after every epoch. When it exists, training resumes from it
        and the result is bit-identical to an uninterrupted run. Other data is refused: arrays, and a ``DataLoader``
        of a ``TensorDataset``; nothing is known of what other loaders will give.
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
    called = list(callbacks) if isinstance(callbacks, Sequence) else [callbacks]
    if not all(callable(one) for one in called):
        raise InputError(f"callbacks={callbacks!r} must be functions of an epoch and the network")
    if autocast not in (None, torch.float16, torch.bfloat16):
        raise InputError(f"autocast={autocast!r} must be torch.bfloat16 or torch.float16")
    run = Run(net, X, y, batch_size, optimizer, lr, weight_decay, loss, validation, patience, seed)
    run.scheduled(scheduler, scheduler_per)
    run.clip = None if clip is None else positive(clip, "clip")
    run.accumulate, run.autocast = count(accumulate, "accumulate"), autocast
    run.contraction = None if contraction is None else Contraction(net, contraction, run.data.first()[0])
    run.settings |= {"clip": clip, "accumulate": accumulate, "contraction": contraction}
    run.settings |= {"autocast": None if autocast is None else str(autocast)}
    total = count(epochs, "epochs")
    if checkpoint is not None:
        files.writable(checkpoint, "checkpoint")
        run.settings["data"] = checkpoints.fingerprint(
            [*run.data.arrays, *(run.validation.arrays if run.validation else ())]
        )
    with torch.random.fork_rng(devices=[]), reporter("training", total, progress) as report:
        run.check_outputs()
        torch.manual_seed(run.seed)
        if checkpoint is not None and Path(checkpoint).exists():
            checkpoints.restore(run, checkpoint)
        while len(run.history.epochs) < total and not run.history.stopped_early:
            run.epoch()
            stop = [one(run.history.last, net) is True for one in called]
            run.history.stopped_early |= any(stop)
            if checkpoint is not None:
                checkpoints.write(run, checkpoint)
            report(run.history.last, total)
    if run.best is not None:
        net.load_state_dict(run.best)
    return run.history
