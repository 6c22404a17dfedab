"""Ctrl-C while Python code of a policy or run is executed; runs whose owner is gone."""

# Invariant of this file: No handler of SIGINT, SIGTERM or SIGHUP runs inside a policy. It runs
# after the policy has returned.

from __future__ import annotations

import signal
import threading
from typing import Any

import numpy as np
import pytest

from pto_core import In, Out, task
from pto_core.errors import UsageError


@task
def write(value: int, out: Out) -> None:
    out[:] = value


@task
def copy(x: In, out: Out) -> None:
    out[:] = x


def one_run(worker: Any, rows: Any) -> None:
    with worker.session() as s, s.scope():
        first = s.submit(write, 3, s.empty((8,), np.float64))
        for row in rows:
            s.submit(write, 3, row, after=[first])


def test_an_interrupt_in_a_policy_cancels_the_run(make) -> None:
    """The handler runs after the policy has returned."""
    went_on: list[bool] = []

    def policy(candidates: Any, preferred: int) -> int:
        if threading.current_thread() is threading.main_thread() and not went_on:
            signal.raise_signal(signal.SIGINT)
            went_on.append(True)
        return int(candidates[0][0])

    worker = make(num_sub_workers=2, policy=policy)
    worker.init()
    rows = worker.shared_array((20, 8))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        while not went_on:  # repeat: the driver's own thread may call the policy first
            one_run(worker, rows)
    rows[:] = 0
    one_run(worker, rows)
    assert (rows == 3).all()


def test_an_array_of_a_task_lives_on_after_its_submit_was_interrupted(make) -> None:
    """The submit has the only reference to the array. Without a reference, its memory is zeroed."""
    met: list[bool] = []

    def policy(candidates: Any, preferred: int) -> int:
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)
            met.append(True)
        return int(candidates[0][0])

    worker = make(num_sub_workers=2, policy=policy)
    worker.register(copy)
    worker.init()
    out = worker.shared_array(8)
    was_interrupted = False
    while not met:  # repeat: the driver's own thread may call the policy first
        x = worker.shared_array(8)
        x[:] = 5
        out[:] = 0
        with worker.session() as s:
            try:
                s.submit(copy, x, out)
            except KeyboardInterrupt:
                was_interrupted = True
            del x
    assert was_interrupted
    assert (out == 5).all()


def test_a_run_without_an_owner_is_ended_by_the_next_one(make) -> None:
    worker = make(num_sub_workers=1)
    worker.register(write)
    rows = worker.shared_array((2, 8))
    session = worker.session()
    session.__enter__()
    left = session.submit(write, 1, rows[0])
    with pytest.raises(UsageError, match="inside a run of the same Worker and thread"):
        worker.capture(lambda orch, args, config: None)
    del session
    one_run(worker, rows[1:])
    assert left.done()
    assert (rows[1] == 3).all()
