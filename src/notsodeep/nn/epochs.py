"""What a training did, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Epoch", "History"]


@dataclass(frozen=True)
class Epoch:
    """Means over one epoch; `accuracy` is None for the squared loss.

    `iterations` are those of all solves of a batch together, None for explicit networks.
    """

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
