"""Signals in the middle of an event of the reference engine, and while a policy is asked."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_arguments import given

from pto_core import In, Out, TensorArgType, Worker, hierarchy, task
from pto_core.hierarchy.engine import events


@task
def write(value: int, out: Out) -> None:
    out[:] = value


def one_run(worker: Any, rows: Any) -> None:
    with worker.session() as s, s.scope():
        first = s.submit(write, 3, s.empty((8,), np.float64))
        for row in rows:
            s.submit(write, 3, row, after=[first])


@pytest.fixture
def engine() -> str:
    return "reference"


@pytest.mark.parametrize(
    "kind",
    [
        "RunBegin",
        "ScopeBegin",
        "Allocate",
        "Submit",
        "AddDependency",
        "Dispatch",
        "Completion",
        "ScopeEnd",
        "RunEnd",
    ],
)
def test_an_interrupt_inside_an_event_is_raised_behind_it(make, monkeypatch, kind) -> None:
    worker = make(num_sub_workers=1)
    worker.init()
    rows = worker.shared_array((20, 8))
    engine = hierarchy.engine.ReferenceEngine
    handle = engine.handle
    met: list[bool] = []

    def interrupted(self: Any, event: Any) -> Any:
        if type(event) is not getattr(events, kind) or met:
            return handle(self, event)
        met.append(False)
        instructions = handle(self, event)
        signal.raise_signal(signal.SIGINT)
        met[0] = True
        return instructions

    monkeypatch.setattr(engine, "handle", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one_run(worker, rows)
    assert met == [True]  # it went on behind the signal
    rows[:] = 0
    one_run(worker, rows)
    assert (rows == 3).all()


@pytest.fixture
def handler() -> Iterator[None]:
    def interrupted(number: int, frame: Any) -> None:
        raise InterruptedError("by the handler")

    before = signal.signal(signal.SIGUSR1, interrupted)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_a_signal_while_a_policy_is_asked_reaches_the_policy(make, handler, engine) -> None:
    raised: list[str] = []

    def policy(candidates: Any, preferred: int) -> int:
        if threading.current_thread() is threading.main_thread():
            try:
                signal.raise_signal(signal.SIGUSR1)
                raised.append("nothing")
            except InterruptedError as error:
                raised.append(str(error))
        return int(candidates[0][0])

    worker = make(num_sub_workers=2, policy=policy)
    worker.init()
    rows = worker.shared_array((20, 8))
    for _ in range(100):  # the driver's own thread may be quicker than this one
        one_run(worker, rows)
        if raised:
            break
    assert set(raised) == {"by the handler"}
    assert (rows == 3).all()
    with pytest.raises(InterruptedError, match="by the handler"):
        signal.raise_signal(signal.SIGUSR1)


def test_a_signal_that_waited_is_told_once_and_changes_no_system_call(make, monkeypatch) -> None:
    engine = hierarchy.engine.ReferenceEngine
    handle = engine.handle
    handled: list[int] = []
    told, tells = socket.socketpair()

    def signalled(self: Any, event: Any) -> Any:
        if isinstance(event, events.Submit) and not handled:
            signal.raise_signal(signal.SIGUSR1)
        return handle(self, event)

    worker = make(num_sub_workers=1)
    worker.init()
    rows = worker.shared_array((1, 8))
    monkeypatch.setattr(engine, "handle", signalled)
    with told, tells, contextlib.ExitStack() as after:
        before = signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(number))
        after.callback(signal.signal, signal.SIGUSR1, before)
        signal.siginterrupt(signal.SIGUSR1, False)
        course = course_of(signal.SIGUSR1)
        tells.setblocking(False)
        after.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(tells.fileno()))
        one_run(worker, rows)
        assert told.recv(64).count(signal.SIGUSR1) == len(handled) > 0
        assert course_of(signal.SIGUSR1) == course


def course_of(number: int) -> bytes:
    """What the system does at a signal: handler, mask and flags of the C library's sigaction."""
    course = ctypes.create_string_buffer(152)
    assert ctypes.CDLL(None).sigaction(number, None, course) == 0
    return course.raw[:16] + course.raw[136:140]


def caught_here(orch: Any, args: Any, config: Any) -> None:
    """Write whether a handler of this process catches SIGUSR1, after events of its engine."""
    caught = Path("/proc/self/status").read_text().partition("SigCgt:")[2].split()[0]
    args.tensor(0)[:] = int(caught, 16) >> (signal.SIGUSR1 - 1) & 1


def test_a_host_takes_up_no_handler_of_its_parent(make, handler, engine) -> None:
    worker = make(level=4)
    graph = worker.register(caught_here)
    worker.add_worker(Worker(3, num_sub_workers=1, engine=engine, heap_ring_size=1 << 24))
    caught = worker.shared_array(1)
    caught[:] = 7
    arguments = given((caught, TensorArgType.INOUT))
    worker.run(lambda orch, args, config: orch.submit_next_level(graph, arguments))
    assert caught[0] == 0


@task
def copy(x: In, out: Out) -> None:
    out[:] = x


def test_what_a_task_reads_stays_where_its_submit_raises(make, handler, monkeypatch) -> None:
    """Only the submit has the array, which would be zeroed with the last reference to it."""
    engine = hierarchy.engine.ReferenceEngine
    handle = engine.handle
    sent: list[int] = []

    def signalled(self: Any, event: Any) -> Any:
        if isinstance(event, events.Submit) and not sent:
            sent.append(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
        return handle(self, event)

    worker = make(num_sub_workers=1)
    worker.init()
    x, out = worker.shared_array(8), worker.shared_array(8)
    x[:] = 5
    monkeypatch.setattr(engine, "handle", signalled)
    is_raised = False
    with worker.session() as s:
        try:
            s.submit(copy, x, out)
        except InterruptedError:
            is_raised = True
        del x
    assert is_raised
    assert (out == 5).all()
