"""Tiles in parallel, each of them computed by one thread.

OpenBLAS rounds differently with one thread and with two. Here BLAS always has one, and parallel are the tiles: their
bits depend neither on how many threads there are nor on which process computes them.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import numba
import numpy as np
import threadpoolctl
from numpy.typing import DTypeLike, NDArray

from notsodeep.progress import Callback

__all__ = ["Scratch", "Workers", "each", "executor", "one_thread", "one_thread_each", "workers"]

Item = TypeVar("Item")

_lock = threading.Lock()
_inside = 0
_limits: Any = None


@functools.cache
def _controller() -> Any:
    return threadpoolctl.ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold BLAS to one thread until the last of overlapping callers has left."""
    global _inside, _limits
    with _lock:
        if _inside == 0:
            _limits = _controller().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limits.restore_original_limits()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """The same for BLAS and, in the calling thread, for Numba."""
    before = numba.get_num_threads()
    with one_thread():
        numba.set_num_threads(1)
        try:
            yield
        finally:
            numba.set_num_threads(before)


class Scratch(threading.local):
    """Memory that each thread keeps from tile to tile: fresh pages cost as much as a checksum."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array of this thread with any content; the next call takes its memory back."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if self._bytes.size < size:
            self._bytes = np.empty(size, np.uint8)
        return self._bytes[:size].view(dtype).reshape(shape)


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


class Workers:
    """Threads that share a list of tasks; an exception in one, or an interruption, ends all of them."""

    def __init__(self, pool: ThreadPoolExecutor, count: int) -> None:
        self.count = count
        self._pool = pool

    def each(
        self, tasks: Sequence[Item], work: Callable[[Item, int], Any], done: Callable[[int], None] | None = None
    ) -> None:
        """Call work(task, worker) for every task.

        Worker w takes tasks w, w + count, …: sums kept per worker are then the same in every run.
        `done` is told how many have ended, from the calling thread.
        """
        if len(tasks) == 1 or self.count == 1:
            for index, task in enumerate(tasks):
                work(task, 0)
                if done is not None:
                    done(index + 1)
            return
        stop = threading.Event()
        finished = [0] * self.count

        def follow(worker: int) -> None:
            for task in tasks[worker :: self.count]:
                if stop.is_set():
                    return
                work(task, worker)
                finished[worker] += 1

        running: set[Future[None]] = set()
        try:
            running |= {self._pool.submit(follow, worker) for worker in range(self.count)}
            while running:
                ended, running = wait(running, timeout=0.2 if done is not None else None, return_when=FIRST_COMPLETED)
                for future in ended:
                    future.result()
                if done is not None:
                    done(sum(finished))
        except BaseException:
            stop.set()
            wait(running)
            raise


@contextmanager
def workers() -> Iterator[Workers]:
    """As many workers as Numba has threads, while BLAS and Numba are held to one thread in each."""
    count = int(numba.get_num_threads())
    with one_thread(), ThreadPoolExecutor(count, initializer=numba.set_num_threads, initargs=(1,)) as pool:
        yield Workers(pool, count)
