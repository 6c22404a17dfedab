"""Two Workers of one process are independent, whatever happens to one of them."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import psutil
import pytest

from pto_core import InOut, Out, Worker, task
from pto_core._worker import Driver
from pto_core.errors import ChildDiedError, TaskFailedError

RUNS = 20


@task
def bump(x: InOut) -> None:
    x += 1


@task
def fail(out: Out) -> None:
    raise ValueError("only mine")


@task
def die(out: Out) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@task
def pid_of(out: Out) -> None:
    out[:] = os.getpid()


def bump_often(worker: Worker, times: int) -> None:
    array = worker.shared_array((8,), "int64")
    for _ in range(times):
        with worker.session() as s:
            for _ in range(10):
                s.submit(bump, array)
    assert (array == 10 * times).all()


def children_of(worker: Worker, count: int) -> list[int]:
    found = worker.shared_array((count,), "int64")
    with worker.session() as s:
        for child in range(count):
            s.submit(pid_of, found[child : child + 1], worker=child)
    return [int(pid) for pid in found]


def test_a_failure_of_one_worker_during_a_run_of_the_other(make) -> None:
    ours, others = make(num_sub_workers=2), make(num_sub_workers=2)
    array, out = others.shared_array((8,), "int64"), ours.shared_array((8,), "int64")
    with others.session() as s:
        s.submit(bump, array)
        for task_, error in [(fail, TaskFailedError), (die, ChildDiedError)]:
            with pytest.raises(error), ours.session() as t:
                t.submit(task_, out)
            s.submit(bump, array)
    assert (array == 3).all()
    assert others.statistics()["deaths"] == 0
    bump_often(ours, 2)


def test_failures_in_one_thread_do_not_affect_another(make) -> None:
    troubled, quiet = make(num_sub_workers=2), make(num_sub_workers=2)
    quiet.init(), troubled.init()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            bump_often(quiet, 5 * RUNS)
        except BaseException as error:  # noqa: BLE001 - the test reports it
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    out = troubled.shared_array((8,), "int64")
    for number in range(RUNS):
        error, task_ = [(TaskFailedError, fail), (ChildDiedError, die)][number % 2]
        with pytest.raises(error), troubled.session() as s:
            s.submit(task_, out)
    thread.join(120)
    assert not thread.is_alive()
    assert problems == []
    assert quiet.statistics()["deaths"] == 0
    assert troubled.statistics()["deaths"] == RUNS // 2
    bump_often(troubled, 2)


def test_the_end_of_one_worker_does_not_affect_the_other(make) -> None:
    first, second = make(num_sub_workers=1), make(num_sub_workers=1)
    (kept,) = children_of(second, 1)
    (gone,) = children_of(first, 1)
    array = second.shared_array((8,), "int64")
    with second.session() as s:
        s.submit(bump, array)
        first.close()
        s.submit(bump, array)
    assert (array == 2).all()
    assert not psutil.pid_exists(gone)
    assert children_of(second, 1) == [kept]


def test_children_of_a_later_worker_outlive_those_of_an_earlier_one(make) -> None:
    first = make(num_sub_workers=2)
    before = children_of(first, 2)
    second = make(num_sub_workers=2)
    between = children_of(second, 2)
    os.kill(before[0], signal.SIGKILL)
    bump_often(first, 1)
    after = children_of(first, 2)
    assert after[1] == before[1]
    assert set(after) & set(between) == set()
    for pid in between:
        os.kill(pid, signal.SIGKILL)
    bump_often(second, 1)
    second.close()
    bump_often(first, 1)
    assert children_of(first, 2) == after


def test_the_driver_of_a_worker_is_parked_while_another_worker_forks(make, monkeypatch) -> None:
    first, second = make(num_sub_workers=1), make(num_sub_workers=2)
    array = first.shared_array((8,), "int64")
    parked: list[Driver] = []
    at_forks: list[list[Driver]] = []
    drivers: list[Driver] = []
    park, unpark, fork = Driver.park, Driver.unpark, os.fork
    statistics = Driver.statistics

    def noting_statistics(driver: Driver) -> dict[str, Any]:
        drivers.append(driver)
        return statistics(driver)

    def noting_park(driver: Driver) -> None:
        park(driver)
        parked.append(driver)

    def noting_unpark(driver: Driver) -> None:
        parked.remove(driver)
        unpark(driver)

    def noting_fork() -> int:
        at_forks.append(list(parked))
        return fork()

    with first.session() as s:
        s.submit(bump, array)
        with monkeypatch.context() as patched:
            patched.setattr(Driver, "statistics", noting_statistics)
            first.statistics()
        with monkeypatch.context() as patched:
            patched.setattr(Driver, "park", noting_park)
            patched.setattr(Driver, "unpark", noting_unpark)
            patched.setattr(os, "fork", noting_fork)
            second.init()
        s.submit(bump, array)
    assert len(at_forks) == 2
    assert all(drivers[0] in parked_then for parked_then in at_forks)
    assert parked == []
    assert (array == 2).all()
