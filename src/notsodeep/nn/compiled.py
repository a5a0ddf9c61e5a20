"""Cells behind ``torch.compile``, whose graphs solves differentiate more than once.

A compiled backward pass may write into what its graph saved ("donated buffers"), and then runs once at most. An
adjoint solve runs it once per product, so graphs compiled during a solve keep what they save. A graph that was compiled
elsewhere, by a call of the cell outside a solve, may donate all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

__all__ = ["compiled_functions", "donates", "keeping_buffers", "nodes"]

_COMPILED = "CompiledFunction"  # of torch._functorch.aot_autograd


@contextmanager
def keeping_buffers() -> Iterator[None]:
    """Graphs that are compiled inside may run backward again and again."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled
        yield
        return
    from torch._functorch import config

    if not getattr(config, "donated_buffer", False):
        yield
        return
    config.donated_buffer = False  # in a third of the time of config.patch
    try:
        yield
    finally:
        config.donated_buffer = True


def nodes(tensor: Tensor, beyond: Iterable[Any] = ()) -> Iterator[Any]:
    """All nodes of the graph behind a tensor, each once, without those `beyond` and what is behind these alone."""
    waiting: list[Any] = [tensor.grad_fn]
    seen = {None, *beyond}
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [following for following, _ in node.next_functions]


def compiled_functions(image: Tensor, leaves: Iterable[Tensor], beyond: Iterable[Any] = ()) -> list[Any]:
    """The compiled functions between an image and the leaves of its graph."""
    if "torch._dynamo" not in sys.modules:
        return []
    graph = list(nodes(image, beyond))
    compiled = [node for node in graph if getattr(getattr(node, "_forward_cls", None), "__name__", "") == _COMPILED]
    if not compiled:
        return []
    own = {id(leaf) for leaf in leaves}
    before: dict[Any, list[Any]] = {}
    for node in graph:
        for following, _ in node.next_functions:
            before.setdefault(following, []).append(node)
    waiting, reaching = [node for node in graph if id(getattr(node, "variable", None)) in own], set()
    while waiting:
        node = waiting.pop()
        if node not in reaching:
            reaching.add(node)
            waiting += before.get(node, [])
    return [node._forward_cls for node in compiled if node in reaching]


def donates(image: Tensor, leaves: Iterable[Tensor], beyond: Iterable[Any] = ()) -> bool:
    """Whether the graph between an image and its leaves may run backward once only."""
    found = compiled_functions(image, leaves, beyond)
    # a backward pass that is not compiled before it runs is compiled for the way in which it runs first
    ready = [one for one in found if getattr(one, "compiled_bw", "unknown") is not None]
    return any(getattr(getattr(one, "metadata", None), "bw_donated_idxs", ["unknown"]) for one in ready)
