"""Frames that were sent to a child and had not begun when it was killed."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import psutil
import pytest

from pto_core import In, Out, task
from pto_core.errors import ChildDiedError

LIMIT_S = 30
POLICIES = ["restart", "reroute"]


@task
def write(value: int, out: Out) -> None:
    out[:] = value


@task
def add_one(x: In, out: Out) -> None:
    out[:] = x + 1


@task
def write_when_told(entrance: int, out: Out) -> None:
    os.read(entrance, 1)
    out[:] = 1


class Stopped:
    """Children that are stopped, so that they receive no frame before they are killed."""

    def __init__(self, worker: Any, *numbers: int) -> None:
        for each in (write, add_one, write_when_told):
            worker.register(each)
        worker.init()
        self._pids = [worker._node.children.processes[number].pid for number in numbers]
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)
            while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
                time.sleep(0.001)

    def kill(self) -> None:
        while self._pids:
            os.kill(self._pids.pop(), signal.SIGKILL)


def wait_for_sent(worker: Any, frames: int) -> None:
    limit = time.monotonic() + LIMIT_S
    while worker.statistics()["in_flight"] < frames:
        assert time.monotonic() < limit
        time.sleep(0.001)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_single_task_is_sent_again(make, policy: str) -> None:
    worker = make(num_sub_workers=2, on_worker_death=policy)
    rows = worker.shared_array((2, 8))
    stopped = Stopped(worker, 0)
    with worker.session() as s:
        for number, row in enumerate(rows):
            s.submit(write, 5, row, worker=0, hint=True, retries=number)
        wait_for_sent(worker, 2)
        stopped.kill()
    assert (rows == 5).all()
    assert worker.statistics()["deaths"] == 1


def test_a_task_that_was_sent_early_is_sent_again(make, pipe: tuple[int, int]) -> None:
    worker = make(num_sub_workers=2, on_worker_death="restart")
    rows = worker.shared_array((2, 8))
    stopped = Stopped(worker, 1)
    with worker.session() as s:
        s.submit(write_when_told, pipe[0], rows[0], worker=0)
        s.submit(add_one, rows[0], rows[1], worker=1)
        wait_for_sent(worker, 2)
        stopped.kill()
        os.write(pipe[1], b"!")
    assert (rows[1] == 2).all()


def test_a_group_is_sent_again_if_no_member_had_begun(make) -> None:
    worker = make(num_sub_workers=2, on_worker_death="restart")
    rows = worker.shared_array((2, 8))
    stopped = Stopped(worker, 0, 1)
    with worker.session() as s:
        s.submit_group(write, [(7, row) for row in rows])
        wait_for_sent(worker, 2)
        stopped.kill()
    assert (rows == 7).all()


def test_with_the_policy_fail_it_fails_with_the_death_of_the_child(make) -> None:
    worker = make(num_sub_workers=1)
    row = worker.shared_array(8)
    stopped = Stopped(worker, 0)
    with pytest.raises(ChildDiedError) as caught, worker.session() as s:  # noqa: PT012
        s.submit(write, 5, row, retries=3)
        wait_for_sent(worker, 1)
        stopped.kill()
    assert caught.value.task == 0
    assert (row == 0).all()
