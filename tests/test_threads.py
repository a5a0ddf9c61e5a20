"""Pools of threads: every task once, one BLAS thread each, and an end when one task fails."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import numba
import numpy as np
import pytest
import threadpoolctl

from notsodeep import threads

PATIENCE = 60.0  # seconds within which another thread must get its turn


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"}


@contextmanager
def two_blas_threads() -> Iterator[None]:
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield


@pytest.fixture(params=[1, 2, 3])
def count(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(threads, "thread_count", lambda: request.param)
    return int(request.param)


@pytest.mark.parametrize("tasks", [1, 2, 10])
def test_shared_tasks_go_to_the_same_worker_in_every_run(count: int, tasks: int) -> None:
    seen: list[tuple[int, int]] = []
    told: list[int] = []
    with threads.pool() as crew:
        assert crew.count == count
        crew.share(range(tasks), lambda task, worker: seen.append((task, worker)), told.append)
    expected = {(task, task % count if tasks > 1 else 0) for task in range(tasks)}
    assert set(seen) == expected
    assert len(seen) == tasks
    assert told == sorted(told)
    assert told[-1] == tasks


def test_a_failing_task_ends_the_others(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, wait, done = threading.Event(), threads.wait, []

    def told(futures: set[Future[None]], **options: object) -> object:
        if not options:  # all are told to stop, and their current tasks waited for
            stopped.set()
        return wait(futures, **options)  # type: ignore[call-overload]

    def work(task: int, worker: int) -> None:
        if task == 0:
            raise ZeroDivisionError("the first")
        assert stopped.wait(PATIENCE)
        done.append(task)

    monkeypatch.setattr(threads, "wait", told)
    with threads.pool() as crew, pytest.raises(ZeroDivisionError, match="the first"):
        crew.share(range(100), work)
    assert set(done) <= set(range(1, count))  # of each other thread the first task, if it had begun


def test_each_item_once_and_the_first_failure_is_told(count: int) -> None:
    seen: list[int] = []
    told: list[tuple[int, int]] = []
    threads.each(seen.append, range(20), lambda *call: told.append(call))
    assert sorted(seen) == list(range(20))
    assert told == [(done, 20) for done in range(1, 21)]
    with pytest.raises(KeyError):
        threads.each({1: 1}.__getitem__, [1, 2], lambda *_: None)


def test_threads_of_a_pool_have_one_thread_for_blas_and_numba() -> None:
    before = numba.get_num_threads()
    with two_blas_threads():
        with threads.pool() as crew:
            assert crew.submit(lambda: (numba.get_num_threads(), blas_threads())).result() == (1, {1})
            assert (numba.get_num_threads(), blas_threads()) == (1, {1})
        assert (numba.get_num_threads(), blas_threads()) == (before, {2})
        with threads.plain_pool() as plain:
            assert plain.submit(lambda: (numba.get_num_threads(), blas_threads())).result() == (1, {2})


def test_threads_of_a_pool_take_over_what_numpy_does_about_overflow() -> None:
    """Warnings from threads would be a second line beside the error."""
    with np.errstate(over="ignore", invalid="raise"), threads.plain_pool(2) as plain:
        assert plain.submit(np.geterr).result() == np.geterr()


def test_overlapping_callers_hold_blas_until_the_last_has_left() -> None:
    with two_blas_threads():
        first, second = threads.single_threaded_blas(), threads.single_threaded_blas()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {2}


def test_every_thread_can_limit_blas() -> None:
    """threadpoolctl 3.8 obeys only the thread that was first; workers of a cluster are others."""

    def limited() -> set[int]:
        with threads.single_threaded_blas():
            return blas_threads()

    with two_blas_threads(), ThreadPoolExecutor(1) as crew, threads.plain_pool(1) as others:
        for pool in (crew, others, crew):
            assert limited() == {1}
            assert pool.submit(limited).result() == {1}
            assert blas_threads() == {2}
        outer = threads.single_threaded_blas()
        outer.__enter__()
        assert crew.submit(limited).result() == {1}
        crew.submit(outer.__exit__, None, None, None).result()  # the last to leave is another thread
        assert blas_threads() == {2}
    with two_blas_threads():  # others can set the number afterwards
        assert blas_threads() == {2}


def test_a_limit_that_was_lifted_meanwhile_is_set_again() -> None:
    with two_blas_threads(), threads.single_threaded_blas():
        for library in threads._blas():
            library.set_num_threads(2)
        with threads.single_threaded_blas():
            assert blas_threads() == {1}


def test_a_tile_that_ends_after_a_failure_still_has_one_blas_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bits may be written to a store, and must be those of any other run."""
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    ending = threading.Event()
    shutdown = threads.ThreadPoolExecutor.shutdown

    def told(self: threads.ThreadPoolExecutor, *arguments: object, **options: object) -> None:
        ending.set()
        shutdown(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(threads.ThreadPoolExecutor, "shutdown", told)
    found = []

    def late() -> None:
        assert ending.wait(PATIENCE)  # the failure of the other task has ended the block
        found.append(blas_threads())

    def fail() -> None:
        with threads.pool() as crew:
            crew.submit(late)
            crew.submit(lambda: 1 / 0).result()

    with two_blas_threads(), pytest.raises(ZeroDivisionError):
        fail()
    assert found == [{1}]


def test_scratch_is_kept_by_its_thread() -> None:
    scratch = threads.Scratch()
    first = scratch.array((4, 3), np.float64)
    assert (first.shape, first.dtype) == ((4, 3), np.float64)
    assert np.shares_memory(first, scratch.array((5,), np.float32))
    with threads.plain_pool(1) as other:
        elsewhere = other.submit(scratch.array, (4, 3), np.float64).result()
    assert not np.shares_memory(first, elsewhere)


def test_a_lasting_pool_belongs_to_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    first = threads.lasting_pool()
    assert threads.lasting_pool() is first
    monkeypatch.setattr(threads.os, "getpid", lambda: -1)  # as in a fork, where the threads are gone
    other = threads.lasting_pool()
    assert other is not first
    assert list(other.map(abs, [-1, 2])) == [1, 2]


@pytest.mark.parametrize(("size", "least", "parts"), [(1000, 10, 3), (25, 10, 2), (9, 10, 1), (0, 10, 1)])
def test_work_is_shared_in_consecutive_parts(
    size: int, least: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    seen: list[tuple[int, int, int]] = []
    threads.shared(lambda part: seen.append((part.start, part.stop, numba.get_num_threads())), size, least)
    ends = sorted(seen)
    assert len(ends) == parts
    assert [ends[0][0], ends[-1][1]] == [0, size]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ends))
    assert parts == 1 or {count for *_, count in seen} == {1}


def test_a_failure_in_a_shared_part_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "thread_count", lambda: 2)

    def fail(part: slice) -> None:
        assert blas_threads() <= {1}
        if part.start:
            raise ZeroDivisionError

    with two_blas_threads():
        with pytest.raises(ZeroDivisionError):
            threads.shared(fail, 10, 1)
        assert blas_threads() == {2}
