"""A Worker that is not closed ends with its last reference, on any thread."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import Any

import pytest

from pto_core import TaskArgs, TaskHandle, Worker

PROGRAM = """
import gc
import sys
import threading
import time
from pathlib import Path

from pto_core import Worker
from pto_core.worker.child_group import DriverHooks

is_ended, is_held = sys.argv[1] == "ended", sys.argv[2] == "held"
poll = DriverHooks.poll
polling, dropped = threading.Event(), threading.Event()


def poll_and_hold(self):
    if threading.current_thread() is threading.main_thread():
        return poll(self)
    children = self._group() if is_held else None
    poll(self)
    polling.set()
    if is_held:
        dropped.wait(20)


def begin():
    worker = Worker(3, num_sub_workers=1, heap_ring_size=1 << 20)
    handle = worker.register(lambda: time.sleep(0.2 if is_ended else 100))
    session = worker.session()
    session.__enter__()
    session.orchestrator.submit_sub(handle)
    assert polling.wait(20)
    if is_ended:
        session.__exit__(None, None, None)


def threads():
    return len(list(Path("/proc/self/task").iterdir()))


def is_mapped():
    return "pto-worker" in Path("/proc/self/maps").read_text()


DriverHooks.poll = poll_and_hold
begin()
dropped.set()
limit = time.monotonic() + 20
while (is_mapped() or threads() > 1) and time.monotonic() < limit:
    gc.collect()
print(is_mapped(), threads())
"""


# Invariant: If a Worker is not closed, its children, threads and mappings end with its last
# reference, on any thread.
@pytest.mark.parametrize("run", ["ended", "open"])
@pytest.mark.parametrize("reference", ["held", "free"])
def test_a_worker_that_is_not_closed_ends_with_its_last_reference(run, reference) -> None:
    """The reference is ``held`` if the driver's own thread owns the last one, during a poll."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, run, reference],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("False 1\n", "", 0)


class Program:
    """A program that keeps its Worker, and whose Worker has a function of it below."""

    def __init__(self) -> None:
        below = Worker(3, num_sub_workers=0)
        below.register(self.graph)
        self.top = Worker(4, heap_ring_size=1 << 20)
        self.top.add_worker(below)
        self.handle = self.top.register(self.graph)

    def graph(self, orch: Any, args: Any, config: Any) -> None:
        pass


# Invariant: A handle of a task that is kept does not keep the children of its Worker.
def test_functions_below_do_not_keep_their_worker() -> None:
    program = Program()
    handles: list[TaskHandle] = []

    def graph(orch: Any, args: Any, config: Any, handle: Any = program.handle) -> None:
        handles.append(orch.submit_next_level(handle, TaskArgs()))

    program.top.run(graph)
    kept = weakref.ref(program)
    del program
    gc.collect()
    assert kept() is None
    assert handles[0].done()
