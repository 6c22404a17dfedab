"""A child restarts while everything else continues."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pto_core import Out, task
from pto_core.errors import ChildHungError, ChildStartError, TaskFailedError
from pto_core.hierarchy.children import ChipBody, SubBody

PATIENCE_S = 20


@task
def write(value: int, out: Out) -> None:
    out[:] = value


@task
def hang(out: Out) -> None:
    while True:
        time.sleep(1)


class Gate:
    """Holds back each child that is started from now on, in front of its body."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._reading, self._writing = os.pipe()
        for kind in (SubBody, ChipBody):
            monkeypatch.setattr(kind, "__call__", self._held(kind.__call__))

    def _held(self, real: Callable[..., None]) -> Callable[..., None]:
        def body(post: Any, start: Any) -> None:
            start.doing("waiting at the gate")
            os.read(self._reading, 1)
            real(post, start)

        return body

    def let_in(self, count: int) -> None:
        os.write(self._writing, bytes(count))

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Gate]]:
    gates: list[Gate] = []

    def make_gate() -> Gate:
        gates.append(Gate(monkeypatch))
        return gates[-1]

    yield make_gate
    for one in gates:
        one.close()


def kill(worker: Any, child: int = 0) -> int:
    """Kill a child, and let the Worker see it; gives who it was."""
    pid = kill_unseen(worker, child)
    worker._node.children.hooks.poll()
    return pid


def kill_unseen(worker: Any, child: int = 0) -> int:
    """Kill a child, and wait for its end, which the Worker is left to take; gives who it was."""
    pid = int(worker._node.children.processes[child].pid)
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # the thread of the driver has taken the exit
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def restarts(worker: Any, wanted: int) -> int:
    limit = time.monotonic() + PATIENCE_S
    while (found := worker.statistics()["restarts"]) < wanted and time.monotonic() < limit:
        worker._node.children.hooks.poll()
    return int(found)


def still_works(worker: Any) -> None:
    rows = worker.shared_array((4, 8))
    with worker.session() as s:
        for row in rows:
            s.submit(write, 3, row)
    assert (rows == 3).all()


# Invariant: Only the tasks and calls that need a restarting child wait for it. A child that dies
# before it is ready is restarted, and its failure is reported.
def test_answers_deadlines_and_deaths_are_seen_while_a_child_starts(make, gate) -> None:
    worker = make(num_sub_workers=2, child_start_timeout_s=PATIENCE_S)
    out = worker.shared_array(8)
    worker.init()
    entrance = gate()
    kill(worker)
    still_works(worker)  # on the other one
    with pytest.raises(ChildHungError), worker.session() as s:
        s.submit(hang, out, timeout_s=0.1)
    assert worker.statistics()["deaths"] == 2
    assert worker.statistics()["restarts"] == 0, "both stand at the gate"
    entrance.let_in(2)
    assert restarts(worker, 2) == 2
    still_works(worker)


def test_one_that_is_killed_while_it_starts_is_tried_again(make, gate) -> None:
    worker = make(num_sub_workers=1)
    worker.init()
    entrance = gate()
    pids = {kill(worker) for _ in range(4)}
    assert len(pids) == 4
    assert worker.statistics()["restarts"] == 0
    entrance.let_in(1)
    still_works(worker)
    assert restarts(worker, 1) == 1


def test_one_that_never_comes_as_far_is_given_up_and_says_why(make, gate) -> None:
    worker = make(num_sub_workers=1)
    out = worker.shared_array(8)
    worker.init()
    gate()
    for _ in range(6):
        kill(worker)
    words = r"L3/sub0: process \d+ was ended by SIGKILL .* while .*, before it was ready"
    with pytest.raises(TaskFailedError, match=words) as caught, worker.session() as s:
        s.submit(write, 1, out)
    assert isinstance(caught.value.__cause__, ChildStartError)
    assert psutil.Process().children() == []


@pytest.mark.parametrize("fault", ["is too slow", "raises"])
def test_one_that_fails_to_start_is_given_up_at_once(make, gate, monkeypatch, fault) -> None:
    worker = make(num_sub_workers=1)
    out = worker.shared_array(8)
    worker.init()
    words = "was not ready after 0.2 s: it was .*; find out what it waits for"
    if fault == "raises":
        words = "could not start: ValueError: not today"
        monkeypatch.setattr(SubBody, "__call__", raising)
    else:
        worker._node.children.processes._timeout_s = (
            0.2  # not of the first start, on a busy machine
        )
        gate()
    kill(worker)
    with pytest.raises(TaskFailedError, match=words), worker.session() as s:
        s.submit(write, 1, out)
    assert psutil.Process().children() == []
    assert worker.statistics()["restarts"] == 0


def raising(post: Any, start: Any) -> None:
    raise ValueError("not today")


@pytest.mark.parametrize("place", ["connect", "plan", "attach", "replace", "check_start"])
def test_an_interrupt_lets_a_child_come_back_all_the_same(make, monkeypatch, place) -> None:
    worker = make(num_sub_workers=2)
    worker.init()
    children = worker._node.children
    owner = children if hasattr(children, place) else children.processes
    real = getattr(owner, place)

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(owner, place, real)
        os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(owner, place, interrupted)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - in one of the looks
        kill(worker)
        restarts(worker, 1)
    assert restarts(worker, 1) == 1
    still_works(worker)


def test_closing_waits_for_nobody_who_starts(make, gate) -> None:
    worker = make(num_sub_workers=2)
    worker.init()
    gate()
    kill(worker)
    started = worker._node.children.processes[0]
    worker.close()
    assert started.exit.signal == signal.SIGKILL, "it had no time to end, and was not asked to"


@pytest.mark.parametrize("kill", [kill, kill_unseen])
def test_who_needs_a_chip_that_starts_waits_for_it(make, gate, kill) -> None:
    worker = make(device_ids=[0], platform="a2a3sim", runtime="tensormap_and_ringbuffer")
    worker.init()
    entrance = gate()
    kill(worker)
    opener = threading.Timer(0.05, entrance.let_in, [1])
    opener.start()
    address = worker.malloc(64)
    opener.join()
    worker.free(address)
    assert worker.statistics()["restarts"] == 1


def test_each_exit_is_reported_once_also_after_an_error(make) -> None:
    worker = make(num_sub_workers=2)
    worker.init()
    failing = worker._node.children.driver = FailingDriver(worker._node.children.driver)
    kill_unseen(worker, 0)
    with pytest.raises(MemoryError):
        kill(worker, 1)
    assert restarts(worker, 2) == 2
    assert failing.reports == 2
    still_works(worker)


class FailingDriver:
    """A driver that raises an error after the report of an exit."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.reports = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def child_lost(self, *arguments: Any) -> None:
        self.reports += 1
        self._driver.child_lost(*arguments)
        raise MemoryError


def test_neither_a_child_nor_one_in_its_place_has_a_pipe_of_its_parent(make) -> None:
    worker = make(num_sub_workers=1)
    before = pipes(os.getpid())
    still_works(worker)  # it has closed what it told its start with
    found = [pipes(worker._node.children.processes[0].pid) - before]
    kill(worker)
    still_works(worker)
    found.append(pipes(worker._node.children.processes[0].pid) - before)
    assert found == [set(), set()]


def pipes(pid: int) -> set[str]:
    found = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found.add(os.readlink(one))
    return {name for name in found if name.startswith("pipe:")}
