"""Comparable times: the best of interleaved rounds, for a quiet machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["best_times", "interleaved", "predict", "torch_on_one_thread"]


def best_times(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Best seconds of each call. Rounds are interleaved, so that a slow moment does not affect one call only.

    Examples
    --------
    >>> from time import sleep
    >>> times = best_times({"short": lambda: sleep(0.001), "long": lambda: sleep(0.02)}, rounds=2)
    >>> times["short"] < times["long"]
    True
    """
    return {name: min(seconds) for name, seconds in interleaved(calls, rounds).items()}


def interleaved(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call in every round."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
    return seconds


@contextmanager
def torch_on_one_thread() -> Iterator[None]:
    """Run PyTorch on one thread: for small networks the time would otherwise be thread synchronisation."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def predict(network: Any, sample: Any) -> None:
    """One forward pass, for timing."""
    import torch

    with torch.inference_mode():
        network.eval()(sample)
