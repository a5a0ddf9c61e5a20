"""Pools of threads; tiles run in parallel, each on one thread.

OpenBLAS rounds differently with one thread and with two. In :func:`pool` BLAS runs single-threaded and tiles run in
parallel, so results are bit-identical for any number of threads and processes.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
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

__all__ = [
    "Pool",
    "Scratch",
    "each",
    "lasting_pool",
    "plain_pool",
    "pool",
    "shared",
    "single_threaded",
    "single_threaded_blas",
    "thread_count",
]

Item = TypeVar("Item")

_lock = threading.Lock()
_inside = 0
_before: list[int] = []


@functools.cache
def _blas() -> list[Any]:
    """The loaded libraries of linear algebra; asking each of them costs less than threadpoolctl's own context."""
    found: list[Any] = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    return found


def _set_blas_threads(counts: Iterable[int]) -> None:
    """Set the threads of every library, from any thread of Python.

    threadpoolctl 3.8 obeys only the thread that set them first, until that is cleared, and silently ignores others.
    Here `_lock` keeps callers apart, and the last one restores what the first one found.
    """
    for library, count in zip(_blas(), counts, strict=True):
        clear = getattr(library, "clear_controlling_thread", None)
        if clear is not None:
            clear(force=True)
        library.set_num_threads(count)
        if clear is not None and not _inside:
            clear(force=True)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread until the last of overlapping callers has left."""
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = [library.get_num_threads() for library in _blas()]
        _inside += 1
        _set_blas_threads([1] * len(_blas()))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _set_blas_threads(_before)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Limit BLAS to one thread and, in the calling thread, Numba too."""
    before = numba.get_num_threads()
    with single_threaded_blas():
        numba.set_num_threads(1)
        try:
            yield
        finally:
            numba.set_num_threads(before)


class Scratch(threading.local):
    """Buffers that each thread reuses: this avoids page faults, which cost as much as a checksum."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An uninitialised array of this thread; the next call reuses its memory."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if self._bytes.size < size:
            self._bytes = np.empty(size, np.uint8)
        return self._bytes[:size].view(dtype).reshape(shape)


def thread_count() -> int:
    """Number of threads that Numba is set to use."""
    return int(numba.get_num_threads())


@contextmanager
def plain_pool(count: int | None = None) -> Iterator[ThreadPoolExecutor]:
    """Yield `count` threads (default: as many as Numba uses) without limiting BLAS; a failure cancels waiting tasks.

    ``np.errstate`` around it holds in the threads, too.
    """
    count = thread_count() if count is None else count
    with ThreadPoolExecutor(count, initializer=_begin, initargs=(np.geterr(),)) as threads:
        try:
            yield threads
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            raise


def _begin(errors: Any) -> None:
    numba.set_num_threads(1)
    np.seterr(**errors)


def lasting_pool() -> ThreadPoolExecutor:
    """As many threads as Numba uses, started once per process, for short tasks; a fork gets its own threads."""
    return _lasting(os.getpid(), thread_count())


def shared(work: Callable[[slice], object], size: int, least: int) -> None:
    """Call `work` on consecutive parts of range(size), at least `least` long: one in this thread, one in each other.

    BLAS and Numba run single-threaded in them. This suits work that takes a millisecond: a hand-over costs about
    50 µs, and threads of BLAS that have just finished a product would still be spinning.
    """
    count = max(1, min(thread_count(), size // least))
    if count == 1:
        work(slice(0, size))
        return
    edges = [size * part // count for part in range(count + 1)]
    first, *others = itertools.starmap(slice, itertools.pairwise(edges))
    threads = lasting_pool()
    with single_threaded():
        futures = [threads.submit(work, part) for part in others]
        try:
            work(first)
        finally:
            wait(futures)
    for future in futures:
        future.result()


@functools.lru_cache(maxsize=1)
def _lasting(process: int, count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, initializer=numba.set_num_threads, initargs=(1,))


@contextmanager
def pool() -> Iterator[Pool]:
    """Yield as many threads as Numba uses, each of them with one thread for BLAS and for Numba."""
    count = thread_count()
    with single_threaded(), plain_pool(count) as threads:  # in this order, BLAS stays limited until the last tile ends
        yield Pool(threads, count)


class Pool:
    """Threads that share tasks; an exception in one of them, or an interruption, ends all."""

    def __init__(self, threads: ThreadPoolExecutor, count: int) -> None:
        self.count = count
        self.submit = threads.submit
        self.map = threads.map

    def share(
        self, tasks: Sequence[Item], work: Callable[[Item, int], Any], done: Callable[[int], None] | None = None
    ) -> None:
        """Call work(task, worker) for every task.

        Worker w takes tasks w, w + count, …: sums kept per worker are then the same in every run.
        `done` is called with the number of finished tasks, from the calling thread.
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
            running |= {self.submit(follow, worker) for worker in range(self.count)}
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


def each(function: Callable[[Item], object], items: Iterable[Item], report: Callback) -> None:
    """Call `function` on every item, from the threads of a pool as they get free; the first failure stops the rest."""
    with pool() as threads:
        futures = [threads.submit(function, item) for item in items]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            report(done, len(futures))
