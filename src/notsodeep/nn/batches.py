"""Samples for training, in mini-batches: arrays that are shuffled here, or a loader that brings its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader, TensorDataset

from notsodeep.checks import InputError
from notsodeep.nn.observation import dense, looks_up

__all__ = ["Batches", "first_rows", "is_loader", "label_places"]


class Batches:
    """Pairs (X, y) on the device and in the precision of the network.

    Parameters
    ----------
    X, y : arrays, or a DataLoader and None
    net : nn.Module
        Its first parameter has the device and the precision.
    name : str
        How errors begin, ``""`` or ``"validation "``.
    """

    def __init__(self, X: Any, y: Any, net: nn.Module, name: str = "") -> None:
        self.like, self.name = next(net.parameters()), name
        self.loader: DataLoader[Any] | None = X if is_loader(X) else None
        self.X: Tensor | None = None
        self.y: Tensor | None = None
        if self.loader is not None:
            if y is not None:
                raise InputError(f"{name}y belongs to an array; a DataLoader brings its own targets")
            return
        if y is None:
            raise InputError(f"{name}y is missing; pass targets, or a DataLoader of pairs (x, y) as X")
        self.X = _inputs(X, self.like, f"{name}X", looks_up(net))
        self.y = _numbers(y, self.like.device, f"{name}y")
        if self.y.shape[:1] != (len(self.X),):
            raise InputError(f"{name}y has shape {tuple(self.y.shape)} for {len(self.X)} samples")

    @property
    def arrays(self) -> list[Tensor]:
        """The samples and targets that are known in advance."""
        if self.loader is not None and isinstance(self.loader.dataset, TensorDataset):
            return list(self.loader.dataset.tensors)
        return [one for one in (self.X, self.y) if one is not None]

    def first(self) -> tuple[Any, Tensor]:
        """A first pair, to look at."""
        if self.X is not None and self.y is not None:
            return self.X, self.y
        state = torch.get_rng_state()  # looking at the loader must not change what comes later
        try:
            return next(self(0, 1))
        except StopIteration:
            raise InputError(f"{self.name}X is a DataLoader without any batch") from None
        finally:
            torch.set_rng_state(state)

    def __call__(self, seed: int | None, size: int) -> Iterator[tuple[Any, Tensor]]:
        """All pairs once, in batches of `size`; shuffled by `seed`, unless that is None."""
        if self.X is not None and self.y is not None:
            order = torch.arange(len(self.X))
            if seed is not None:
                order = torch.randperm(len(self.X), generator=torch.Generator().manual_seed(seed))
            for rows in order.split(size):
                yield self.X[rows], self.y[rows]
            return
        assert self.loader is not None
        for pair in self.loader:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InputError(f"{self.name}X is a DataLoader that does not give pairs (x, y)")
            yield tree_map(self._like_net, pair[0]), torch.as_tensor(pair[1]).to(self.like.device)

    def _like_net(self, value: Any) -> Any:
        """A tensor on the device and in the precision of the network; anything else as it is."""
        if not isinstance(value, Tensor):
            return value
        return value.to(self.like.device, self.like.dtype if value.is_floating_point() else None)


def first_rows(X: Any, few: int, rows: int) -> Any:
    """The first of so many samples: a tensor, or lists and dictionaries of tensors; all of them of anything else."""
    leaves = tree_leaves(X)
    if not all(isinstance(one, Tensor) and one.shape[:1] == (rows,) for one in leaves):
        return X
    return tree_map(lambda one: one[:few], X)


def is_loader(X: Any) -> bool:
    return isinstance(X, DataLoader)


def _inputs(X: Any, like: Tensor, name: str, keep_integers: bool) -> Tensor:
    """(n, …) in the precision of `like`; finite. Integers that are looked up in a table remain integers."""
    inputs = dense(X, name)
    inputs = inputs.to(like.device, None if keep_integers and not inputs.is_floating_point() else like.dtype)
    if inputs.ndim < 2 or inputs.shape[0] == 0:
        shape = tuple(inputs.shape)
        raise InputError(f"{name} has shape {shape} but must be (samples, features) with at least one sample")
    if not bool(inputs.isfinite().all()):
        raise InputError(f"{name} holds NaN or infinite values; remove or impute them")
    return inputs.contiguous()


def _numbers(values: Any, device: torch.device, name: str) -> Tensor:
    try:
        plain = isinstance(values, Tensor | list | tuple)
        return torch.as_tensor(values if plain else np.require(values, requirements="W"), device=device)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"{name} must hold numbers; number the classes first: np.unique({name.split()[-1]}, return_inverse=True)[1]"
        ) from None


def label_places(output: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (k, classes) and labels (k,) of all places: the classes are the last dimension, or else the second."""
    if output.shape[:-1] == labels.shape:
        scores = output
    elif (output.shape[0], *output.shape[2:]) == tuple(labels.shape):
        scores = output.movedim(1, -1)
    else:
        raise InputError(
            f"y has labels of shape {tuple(labels.shape[1:])} a sample but the network gives {tuple(output.shape[1:])}"
        )
    return scores.reshape(math.prod(scores.shape[:-1]), scores.shape[-1]), labels.reshape(-1).long()
