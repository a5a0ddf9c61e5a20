"""Tiles in parallel, each of them computed by one thread.

OpenBLAS rounds differently with one thread and with two. Here BLAS always has one, and parallel are the tiles: their
bits depend neither on how many threads there are nor on which process computes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

import numba
from threadpoolctl import threadpool_limits

from notsodeep.progress import Callback

__all__ = ["each", "executor", "one_thread_each"]

Item = TypeVar("Item")

_lock = threading.Lock()
_inside = 0
_limits: threadpool_limits | None = None


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Keep BLAS to one thread per caller until the last of overlapping callers has left."""
    global _inside, _limits
    with _lock:
        if _inside == 0:
            _limits = threadpool_limits(1, user_api="blas")
        _inside += 1
    before = numba.get_num_threads()
    numba.set_num_threads(1)  # of the calling thread alone
    try:
        yield
    finally:
        numba.set_num_threads(before)
        with _lock:
            _inside -= 1
            if _inside == 0 and _limits is not None:
                _limits.restore_original_limits()
                _limits = None


@contextmanager
def executor() -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of as many threads as Numba was told to use; a failure cancels what has not begun."""
    count = int(numba.get_num_threads())
    with one_thread_each(), ThreadPoolExecutor(count, initializer=numba.set_num_threads, initargs=(1,)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def each(function: Callable[[Item], object], items: Iterable[Item], report: Callback) -> None:
    """Call `function` on every item from the threads of a pool; the first failure stops the rest."""
    with executor() as pool:
        futures = [pool.submit(function, item) for item in items]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            report(done, len(futures))
