"""Threads that share tiles: every task once, the same bits, one BLAS thread each, and an end after a failure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numba
import numpy as np
import pytest
import threadpoolctl

from notsodeep import threads
from notsodeep.threads import Scratch, each, one_thread, one_thread_each, workers


@pytest.fixture(params=[1, 2])
def count(request: pytest.FixtureRequest) -> Iterator[int]:
    """As many threads as Numba may use, on every machine that has them."""
    before = numba.get_num_threads()
    numba.set_num_threads(min(request.param, numba.config.NUMBA_NUM_THREADS))
    yield numba.get_num_threads()
    numba.set_num_threads(before)


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}


def test_each_calls_every_item_once_and_counts(count: int) -> None:
    seen: list[int] = []
    reports: list[tuple[int, int]] = []
    each(seen.append, range(20), lambda *call: reports.append(call))
    assert sorted(seen) == list(range(20))
    assert reports == [(done, 20) for done in range(1, 21)]


def test_each_of_nothing() -> None:
    each(pytest.fail, [], pytest.fail)  # type: ignore[arg-type]


def test_each_holds_blas_and_numba_to_one_thread(count: int) -> None:
    inside: list[tuple[set[int], int]] = []
    before = blas_threads(), numba.get_num_threads()
    each(lambda _: inside.append((blas_threads(), numba.get_num_threads())), range(6), lambda *_: None)
    assert all(found == ({1}, 1) for found in inside)
    assert (blas_threads(), numba.get_num_threads()) == before


def test_the_first_failure_ends_the_rest(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items that have not begun when the failure is noticed never begin; the others wait here for that moment."""
    begun: list[int] = []
    noticed = threading.Event()
    shutdown = ThreadPoolExecutor.shutdown

    def observed(pool: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False) -> None:
        shutdown(pool, wait=False, cancel_futures=cancel_futures)
        noticed.set()
        shutdown(pool, wait=wait)

    def work(item: int) -> None:
        begun.append(item)
        if item == 0:
            raise ZeroDivisionError("a tile")
        assert noticed.wait(60)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", observed)
    with pytest.raises(ZeroDivisionError, match="a tile"):
        each(work, range(500), lambda *_: None)
    assert len(begun) <= count + 1


def test_an_interrupted_report_ends_the_work(count: int) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        each(lambda _: None, range(50), stop)
    assert threading.active_count() == before


def test_workers_share_tasks_in_a_fixed_way(count: int) -> None:
    """Sums kept per worker are the same in every run."""
    with workers() as crew:
        assert crew.count == count
        taken: list[list[int]] = [[] for _ in range(crew.count)]
        told: list[int] = []
        crew.each(range(11), lambda task, worker: taken[worker].append(task), told.append)
    assert taken == [list(range(11))[worker::count] for worker in range(count)]
    assert told[-1] == 11
    assert told == sorted(told)


def test_a_failing_worker_stops_the_others(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker takes another task once the failure is noticed; each waits here for that moment in its first one."""
    begun: list[int] = []
    noticed = threading.Event()

    def observed(futures: Any, **options: Any) -> Any:
        if not options:  # the last look, after the workers were told to stop
            noticed.set()
        return wait(futures, **options)

    def work(task: int, worker: int) -> None:
        begun.append(task)
        if task == 0:
            raise ValueError("tile 0")
        assert noticed.wait(60)

    monkeypatch.setattr(threads, "wait", observed)
    with workers() as crew, pytest.raises(ValueError, match="tile 0"):
        crew.each(range(1000), work)
    assert len(begun) <= count


def test_blas_is_released_by_the_last_of_overlapping_callers() -> None:
    before = blas_threads()
    first, second = one_thread(), one_thread_each()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads() == {1}  # the second is still inside
    second.__exit__(None, None, None)
    assert blas_threads() == before


def test_scratch_keeps_its_memory_and_no_thread_shares_it() -> None:
    scratch = Scratch()
    large = scratch.array((4, 5), np.float64)
    small = scratch.array((3, 2), np.float32)
    assert small.shape == (3, 2)
    assert small.dtype == np.float32
    assert np.shares_memory(small, large)
    assert not np.shares_memory(scratch.array((40, 50), np.float64), large)  # more than there was
    mine, others = scratch.array((2, 2), np.float64), []
    thread = threading.Thread(target=lambda: others.append(scratch.array((2, 2), np.float64)))
    thread.start()
    thread.join()
    assert not np.shares_memory(mine, others[0])
