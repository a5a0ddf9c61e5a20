"""Labels and real targets by which replacements are measured, and which of both they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from notsodeep.checks import InputError, choice

__all__ = ["checked_targets", "labels_or_values", "task_of"]


def labels_or_values(y: Any, rows: int, name: str) -> Tensor | None:
    if y is None:
        return None
    try:
        target = torch.as_tensor(np.asarray(y.cpu() if isinstance(y, Tensor) else y))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} must hold numbers; number the classes 0, 1, … first") from None
    if target.is_floating_point() and not bool(target.isfinite().all()):
        raise InputError(f"{name} holds NaN or infinite values; remove those samples")
    if target.shape[:1] != (rows,):
        raise InputError(f"{name} has shape {tuple(target.shape)} for {rows} samples")
    return target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target


def task_of(task: str | None, outputs: Tensor, targets: Tensor | None) -> str:
    """What is given; otherwise classes for whole numbers, of a single output for 0 and 1 if it looks like a logit."""
    if task is not None:
        return choice(task, ("classes", "values"), "task")
    if targets is None:
        return "classes" if outputs.shape[1] > 1 else "values"
    if outputs.shape[1] > 1:
        vector = targets.ndim == 1 or not targets.is_floating_point()
        return "classes" if vector and _whole(targets) else "values"
    binary = targets.ndim == 1 and bool(((targets == 0) | (targets == 1)).all()) and bool((outputs < 0).any())
    return "classes" if binary else "values"


def _whole(targets: Tensor) -> bool:
    return not targets.is_floating_point() or bool((targets == targets.round()).all())


def checked_targets(targets: Tensor | None, outputs: Tensor, classes: bool, name: str) -> Tensor | None:
    """The targets as classes, or as numbers of the shape of the outputs."""
    if targets is None:
        return None
    if not classes:
        if targets.shape[1:] != (outputs.shape[1:] if outputs.shape[1] > 1 else ()):
            raise InputError(
                f"{name} has shape {tuple(targets.shape)} but the module returns {outputs.shape[1]} outputs a sample"
            )
        return targets
    if targets.ndim != 1 or not _whole(targets):
        raise InputError(f"{name} must be a vector of labels 0, 1, … for task='classes'")
    last = max(outputs.shape[1], 2) - 1  # one logit tells two classes
    if int(targets.min()) < 0 or int(targets.max()) > last:
        raise InputError(f"{name} holds labels outside 0 … {last}, the outputs of the module")
    return targets.long()
