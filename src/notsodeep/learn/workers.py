"""A pool of threads that each use one BLAS thread: independent tiles instead of threads inside one call."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import numba
import threadpoolctl

__all__ = ["Workers", "one_thread", "workers"]

Task = TypeVar("Task")


class Workers:
    """Threads that share a list of tasks; an exception in one, or an interruption, ends all of them."""

    def __init__(self, pool: ThreadPoolExecutor, count: int) -> None:
        self.count = count
        self._pool = pool

    def each(
        self, tasks: Sequence[Task], work: Callable[[Task, int], Any], done: Callable[[int], None] | None = None
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

        running: set[Future[None]] = {self._pool.submit(follow, worker) for worker in range(self.count)}
        try:
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


@functools.cache
def _controller() -> Any:
    return threadpoolctl.ThreadpoolController()


def one_thread() -> Any:
    """Hold BLAS to one thread: for matrices so small that waking others costs more than it saves."""
    return _controller().limit(limits=1, user_api="blas")


@contextmanager
def workers() -> Iterator[Workers]:
    """As many workers as Numba has threads, while BLAS is held to one thread per call."""
    count = int(numba.get_num_threads())
    with one_thread(), ThreadPoolExecutor(count) as pool:
        yield Workers(pool, count)
