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
from lost_children import CHECK_INTERVAL_S, await_count, check_children, child_pids, kill

from pto_core import Out, task
from pto_core._worker import Driver
from pto_core.errors import ChildHungError, ChildStartError, TaskFailedError
from pto_core.worker.child_group import Child
from pto_core.worker.children import ChipBody, SubBody
from pto_core.worker.processes import ChildProcesses

PATIENCE_S = 20


@task
def write(value: int, out: Out) -> None:
    out[:] = value


@task
def hang(out: Out) -> None:
    while True:
        time.sleep(1)


class Gate:
    """A gate at which each child that is started from now on waits, before its body runs."""

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
    kill(child_pids()[0])
    still_works(worker)  # on the other child
    with pytest.raises(ChildHungError), worker.session() as s:
        s.submit(hang, out, timeout_s=0.1)
    assert worker.statistics()["deaths"] == 2
    assert worker.statistics()["restarts"] == 0, "a new child did not wait at the gate"
    entrance.let_in(2)
    assert await_count(worker, "restarts", 2) == 2
    still_works(worker)


def test_a_child_that_is_killed_during_its_start_is_restarted(make, gate) -> None:
    worker = make(num_sub_workers=1)
    worker.init()
    entrance = gate()
    for _ in range(4):
        kill_starting(worker)
    assert worker.statistics()["restarts"] == 0
    entrance.let_in(1)
    still_works(worker)
    assert await_count(worker, "restarts", 1) == 1


def test_a_child_that_never_becomes_ready_is_no_longer_restarted(make, gate) -> None:
    worker = make(num_sub_workers=1)
    out = worker.shared_array(8)
    worker.init()
    gate()
    for _ in range(6):
        kill_starting(worker)
    message = r"L3/sub0: process \d+ was ended by SIGKILL .* while .*, before it was ready"
    with pytest.raises(TaskFailedError, match=message) as caught, worker.session() as s:
        s.submit(write, 1, out)
    assert isinstance(caught.value.__cause__, ChildStartError)
    assert psutil.Process().children() == []


def kill_starting(worker: Any) -> None:
    """Kill the only child, and check the children until the Worker has started another one."""
    (pid,) = child_pids()
    kill(pid)
    limit = time.monotonic() + PATIENCE_S
    while child_pids() == [pid] and time.monotonic() < limit:
        check_children(worker)
        time.sleep(CHECK_INTERVAL_S)


@pytest.mark.parametrize("fault", ["is too slow", "raises"])
def test_a_child_that_fails_to_start_is_not_started_again(make, gate, monkeypatch, fault) -> None:
    worker = make(num_sub_workers=1, child_start_timeout_s=3)
    out = worker.shared_array(8)
    worker.init()
    message = "was not ready after 3 s: it was .*; find out what it waits for"
    if fault == "raises":
        message = "could not start: ValueError: not today"
        monkeypatch.setattr(SubBody, "__call__", raising)
    else:
        gate()
    kill(child_pids()[0])
    with pytest.raises(TaskFailedError, match=message), worker.session() as s:
        s.submit(write, 1, out)
    assert psutil.Process().children() == []
    assert worker.statistics()["restarts"] == 0


def raising(*arguments: Any) -> None:
    raise ValueError("not today")


def test_a_child_that_cannot_be_connected_after_its_restart_is_ended(make, monkeypatch) -> None:
    worker = make(num_sub_workers=1)
    out = worker.shared_array(8)
    worker.init()
    monkeypatch.setattr(Child, "attach", raising)
    kill(child_pids()[0])
    with pytest.raises(TaskFailedError, match="not today"), worker.session() as s:
        s.submit(write, 1, out)
    assert [one for one in psutil.Process().children() if not has_ended(one)] == []


def has_ended(process: psutil.Process) -> bool:
    """Return whether a killed process ends, or has ended and was not collected."""
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(CHECK_INTERVAL_S)
    return False


@pytest.mark.parametrize(
    ("owner", "place"),
    [
        (Child, "connect"),
        (Child, "plan"),
        (Child, "attach"),
        (ChildProcesses, "replace"),
        (ChildProcesses, "check_start"),
    ],
)
def test_an_interrupted_restart_is_finished(make, monkeypatch, owner, place) -> None:
    worker = make(num_sub_workers=2)
    worker.init()
    real = getattr(owner, place)

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(owner, place, real)
        os.kill(os.getpid(), signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(owner, place, interrupted)
    kill(child_pids()[0])
    with pytest.raises(KeyboardInterrupt):
        await_count(worker, "restarts", 1)
    assert await_count(worker, "restarts", 1) == 1
    still_works(worker)


def test_closing_kills_a_child_that_is_starting_at_once(make, gate, monkeypatch) -> None:
    worker = make(num_sub_workers=2)
    worker.init()
    gate()
    started, replace = [], ChildProcesses.replace

    def recording(processes: ChildProcesses, index: int, plan: Any) -> None:
        replace(processes, index, plan)
        started.append(processes[index])

    monkeypatch.setattr(ChildProcesses, "replace", recording)
    kill(child_pids()[0])
    check_children(worker)
    worker.close()
    (child,) = started
    assert child.exit.signal == signal.SIGKILL, "the starting child was not killed at once"


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_call_for_a_chip_waits_for_its_restart(make, gate, is_noticed) -> None:
    worker = make(device_ids=[0], platform="a2a3sim", runtime="tensormap_and_ringbuffer")
    worker.init()
    entrance = gate()
    kill(child_pids()[0])
    if is_noticed:
        check_children(worker)
    opener = threading.Timer(0.05, entrance.let_in, [1])
    opener.start()
    address = worker.malloc(64)
    opener.join()
    worker.free(address)
    assert worker.statistics()["restarts"] == 1


def test_each_exit_is_reported_once_also_after_an_error(make, monkeypatch) -> None:
    worker = make(num_sub_workers=2)
    worker.init()
    reported, child_lost = [], Driver.child_lost

    def failing(driver: Driver, child: int, *arguments: Any) -> None:
        reported.append(child)
        child_lost(driver, child, *arguments)
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(Driver, "child_lost", failing)
        for pid in child_pids():
            kill(pid)
        with pytest.raises(MemoryError):
            check_children(worker)
        assert await_count(worker, "restarts", 2) == 2
    assert sorted(reported) == [0, 1]
    still_works(worker)


def test_neither_a_child_nor_its_replacement_has_a_pipe_of_its_parent(make) -> None:
    worker = make(num_sub_workers=1)
    before = pipes(os.getpid())
    still_works(worker)  # this shows that the child has closed its start-up pipe
    found = [pipes(*child_pids()) - before]
    kill(*child_pids())
    assert await_count(worker, "restarts", 1) == 1
    still_works(worker)
    found.append(pipes(*child_pids()) - before)
    assert found == [set(), set()]


def pipes(pid: int) -> set[str]:
    found = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            found.add(os.readlink(one))
    return {name for name in found if name.startswith("pipe:")}
