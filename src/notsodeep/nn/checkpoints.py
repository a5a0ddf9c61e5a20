"""Checkpoints of a training: everything that a run holds, as one file that is checked when it is read."""

from __future__ import annotations

import copy
import hashlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from notsodeep import files
from notsodeep.checks import InputError, count
from notsodeep.nn.epochs import Epoch, History
from notsodeep.nn.export import finite, packed, unpacked
from notsodeep.nn.training_run import Run

__all__ = ["fingerprint", "restore", "write"]

_MOST_STEPS = 2 * 10**6  # of the optimiser, as a file may count them: each is repeated by the scheduler


def write(run: Run, path: str | Path) -> None:
    """Write everything as one safetensors file, atomically."""
    tensors = {f"net/{name}": value for name, value in run.net.state_dict().items()}
    tensors |= {f"best/{name}": value for name, value in (run.best or {}).items()}
    for index, slots in run.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{index}/{name}": value for name, value in slots.items() if value is not None}
    if any(not isinstance(value, Tensor) for value in tensors.values()):
        raise InputError(f"checkpoint= cannot keep the state of {type(run.optimizer).__name__}; train without one")
    tensors["rng"] = torch.get_rng_state()
    state = {
        "settings": run.settings,
        "epochs": [asdict(epoch) for epoch in run.history.epochs],
        "best": run.history.best,
        "stopped_early": run.history.stopped_early,
        "steps": run.steps,
    }
    files.write(path, packed(tensors, "training", state))


def restore(run: Run, path: str | Path) -> None:
    """Continue from a file written by :func:`write`."""
    tensors, state = unpacked(path, "training")
    if state is None:
        raise InputError(f"checkpoint={str(path)!r} holds no training state; pass another path")
    try:
        found = dict(state["settings"])
        history = _history(state)
        steps = 0 if run.scheduler is None else count(state["steps"], "steps")
        if steps > _MOST_STEPS:
            raise ValueError(f"it counts {steps} steps")
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"checkpoint={str(path)!r} is damaged ({error}); pass another path") from None
    for name, value in run.settings.items():
        if found.get(name) != value:
            what = {"data": "other data", "network": "another network"}.get(name, f"{name}={found.get(name)!r:.60}")
            raise InputError(
                f"checkpoint={str(path)!r} belongs to a training with {what}; use the same settings or another path"
            )
    weights, best, slots = (_under(part, tensors) for part in ("net/", "best/", "optimizer/"))
    try:
        for one in (weights, *([best] if best or run.patience is not None else [])):
            if one.keys() != run.net.state_dict().keys():
                raise ValueError("its weights are not those of the network")
            for name, value in run.net.state_dict().items():
                _like(one[name], value, name)
        torch.set_rng_state(_like(tensors["rng"], torch.get_rng_state(), "rng"))
        run.optimizer.load_state_dict({**run.optimizer.state_dict(), "state": _slots(run, slots)})
        run.net.load_state_dict(weights)
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"checkpoint={str(path)!r} is damaged ({reason}); pass another path") from None
    run.best, run.history, run.steps = best or None, history, steps
    _replay(run)


def _replay(run: Run) -> None:
    """Bring a new scheduler to where it was: its state may hold anything, so that no file sets it."""
    with warnings.catch_warnings(action="ignore"):  # that the optimiser has taken no step yet
        for epoch in run.history.epochs:
            run.schedule(epoch.judged)
        for _ in range(run.steps if run.per_step else 0):
            run.scheduler.step()


def _slots(run: Run, tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """The optimizer's state of each parameter: as after a step, with other numbers."""
    parameters = [one for group in run.optimizer.param_groups for one in group["params"]]
    usual = _after_a_step(run.optimizer)
    slots: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        place, _, key = name.partition("/")
        index = count(int(place), "index", minimum=0)
        if place != str(index):  # one name for each: "+0" and other digits are numbers too
            raise ValueError(f"optimizer/{place!r} is no place")
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


def fingerprint(tensors: Sequence[Tensor]) -> str:
    """A digest of the data, by which a checkpoint knows it."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(str((tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
