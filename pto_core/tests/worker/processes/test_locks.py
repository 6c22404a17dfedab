"""Threads that supervise children, end them and fork never deadlock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial

import pytest

from pto_core.worker.processes.child_process import ChildProcess
from pto_core.worker.processes.parking import ForkLock, fork_lock

PATIENCE_S = 10


def ended_child() -> ChildProcess:
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return ChildProcess(0, "L3/sub0", pid)


def test_closing_a_descriptor_and_forking_do_not_deadlock() -> None:
    """A forking thread waits for drivers' own threads, which close descriptors of children."""
    process = ended_child()
    descriptor = process.pidfd
    with fork_lock():
        for _ in range(2):
            asking = threading.Thread(target=process.poll, daemon=True)
            asking.start()
            asking.join(PATIENCE_S)
            assert not asking.is_alive()
        os.fstat(descriptor)  # the descriptor stays open while this thread may fork
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert process.exit is not None
    assert process.exit.exit_code == 3
    assert process.pidfd == -1


def test_deferred_actions_run_at_the_last_release_of_the_lock() -> None:
    lock, done = ForkLock(), []
    with lock:
        with lock:
            elsewhere(lambda: lock.call(lambda: done.append("waited")))
            assert done == []
        assert done == ["waited"]  # this thread still has the lock
        lock.call(lambda: done.append("at once"))
        assert done == ["waited", "at once"]
        elsewhere(lambda: lock.call(lambda: done.append("last")))
    assert done == ["waited", "at once", "last"]


def test_deferred_actions_run_in_the_order_of_their_calls() -> None:
    lock, done = ForkLock(), []
    with lock:
        for number in range(3):
            elsewhere(partial(lock.call, partial(done.append, number)))
    assert done == [0, 1, 2]


def elsewhere(act: Callable[[], object]) -> None:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
