"""Kill children of a Worker, and wait until its counters show the effect."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psutil

from pto_core import Worker

LIMIT_S = 20
CHECK_INTERVAL_S = 0.06
"""A pause after which the next run checks all children. It must be at least 50 ms."""


def child_pids() -> list[int]:
    """Return the process ids of all children of this process, the oldest child first."""
    children = psutil.Process().children()
    return [each.pid for each in sorted(children, key=lambda each: (each.create_time(), each.pid))]


def kill(pid: int) -> None:
    """Kill a child and wait until it has exited; the Worker notices that later."""
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # the driver's thread has reaped it
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def await_count(worker: Worker, name: str, wanted: int) -> int:
    """Wait until a counter reaches a value, or a time limit; return it. For use between runs."""
    limit = time.monotonic() + LIMIT_S
    while (found := int(worker.statistics()[name])) < wanted and time.monotonic() < limit:
        check_children(worker)
        time.sleep(CHECK_INTERVAL_S)
    return found


def await_count_in_run(worker: Worker, name: str, wanted: int) -> int:
    """Do the same as :func:`await_count`, while a run is open."""
    limit = time.monotonic() + LIMIT_S
    while (found := int(worker.statistics()[name])) < wanted and time.monotonic() < limit:
        time.sleep(0.001)
    return found


def check_children(worker: Worker) -> None:
    """Run an empty session, whose start detects exits of children and advances restarts."""
    with worker.session():
        pass


def await_sent(worker: Worker) -> None:
    """Wait until a child has received a task that has not ended."""
    assert await_count_in_run(worker, "in_flight", 1) >= 1
