"""Ctrl-C during the block of a session, and during the wait at its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from typing import Any

import pytest
from lost_children import await_sent

from pto_core import Out, task
from pto_core._worker import Driver
from pto_core.errors import UsageError
from pto_core.worker.child_group import DriverHooks
from pto_core.worker.failures import Failure
from pto_core.worker.processes import ChildProcesses
from pto_core.worker.runs import Runs


@task
def write(value: int, out: Out) -> None:
    out[:] = value


@task
def hang(out: Out) -> None:
    out[0] = -1
    while True:
        time.sleep(1)


@task
def die(out: Out) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def still_works(worker: Any) -> None:
    out = worker.shared_array(8)
    with worker.session() as s:
        s.submit(write, 4, out)
    assert (out == 4).all()


def interrupted_in(worker: Any, body: Any) -> float:
    """Interrupt the block of a session; return the time until the exception was raised.

    ``body`` may start the timer of another interrupt.
    """
    began = ended = 0.0
    with pytest.raises(KeyboardInterrupt), contextlib.ExitStack() as after:  # noqa: PT012
        try:
            with worker.session() as s:
                another = body(s)
                if another is not None:
                    after.callback(another.join)  # the signal must arrive before this block ends
                began = time.monotonic()
                raise KeyboardInterrupt
        finally:
            ended = time.monotonic()
    return ended - began


def test_an_interrupt_in_the_block_waits_briefly_for_running_tasks(make) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((2, 8))
    worker.register(write)  # register it now: a child that hangs receives no callable

    def submit(s: Any) -> None:
        s.submit(hang, rows[0])
        s.submit(write, 1, rows[1])
        deadline = time.monotonic() + 20
        while rows[0, 0] != -1 and time.monotonic() < deadline:  # before it begins, it is cancelled
            time.sleep(0.001)

    assert 1 < interrupted_in(worker, submit) < 20
    assert rows[1, 0] == 0
    still_works(worker)


def test_another_interrupt_ends_that_wait(make) -> None:
    """One of three attempts must be in time, because a machine may be busy."""
    worker = make(num_sub_workers=4, on_worker_death="reroute")
    out = worker.shared_array(8)

    def submit(s: Any) -> threading.Timer:
        s.submit(hang, out)
        await_sent(worker)
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        return timer

    assert any(interrupted_in(worker, submit) < 1.9 for _ in range(3))
    still_works(worker)


def test_an_interrupt_at_the_begin_leaves_no_run_open(make, monkeypatch) -> None:
    worker = make(num_sub_workers=1)
    worker.init()
    with monkeypatch.context() as patched:
        patched.setattr(DriverHooks, "begin_run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            worker.run(lambda orch, args, config: None)
    assert not is_running(worker)
    still_works(worker)


def test_an_interrupt_while_a_run_is_abandoned_leaves_no_run_open(make, monkeypatch) -> None:
    worker = make(num_sub_workers=1)
    worker.init()
    with monkeypatch.context() as patched:
        patched.setattr(Failure, "of", interrupt)
        with pytest.raises(KeyboardInterrupt):
            worker.run(fail)
    assert not is_running(worker)
    still_works(worker)


# Invariant: After a run or session raised the exception of a signal handler, its run is over. A run
# whose session was dropped is cancelled, and the next run waits for its end. The exit of a child is
# not lost.
@pytest.mark.parametrize("raised", [KeyboardInterrupt, InterruptedError])
@pytest.mark.parametrize(("owner", "what"), [(Runs, "end"), (Driver, "run_end")])
def test_an_interrupt_just_before_the_end_leaves_no_run_open(
    make, monkeypatch, owner, what, raised
) -> None:
    """The run raises the exception of the program's signal handler."""
    worker = make(num_sub_workers=1)
    captured = worker.capture(nothing)

    def session() -> None:
        with worker.session():
            pass

    for act in (
        lambda: worker.run(nothing),
        lambda: worker.run(fail),
        session,
        lambda: worker.replay(captured),
    ):
        found, interrupts = getattr(owner, what), [raised]

        def first_interrupted(
            *args: Any, found: Any = found, interrupts: Any = interrupts, **keywords: Any
        ) -> Any:
            if interrupts:
                raise interrupts.pop()
            return found(*args, **keywords)

        with monkeypatch.context() as patched:
            patched.setattr(owner, what, first_interrupted)
            with pytest.raises((raised, ZeroDivisionError)):
                act()
        assert not is_running(worker)
        still_works(worker)


def test_an_interrupt_while_an_exit_is_detected_loses_no_exit(make, monkeypatch) -> None:
    worker = make(num_sub_workers=1)
    poll, signals = ChildProcesses.poll, [signal.SIGINT]

    def interrupted(processes: ChildProcesses) -> Any:
        found = poll(processes)
        if found and signals:
            os.kill(os.getpid(), signals.pop())
        return found

    monkeypatch.setattr(ChildProcesses, "poll", interrupted)
    out = worker.shared_array(8)
    with pytest.raises(KeyboardInterrupt), worker.session() as s:
        s.submit(die, out)
    assert worker.statistics()["deaths"] == 1
    still_works(worker)


def interrupt(*args: Any, **keywords: Any) -> None:
    raise KeyboardInterrupt


def is_running(worker: Any) -> bool:
    """Return whether a run is open. Unregistering a handle fails in this case."""
    handle = worker.register("math:sqrt")
    try:
        worker.unregister(handle)
    except UsageError:
        return True
    return False


def nothing(orch: Any, args: Any, config: Any) -> None:
    pass


def fail(orch: Any, args: Any, config: Any) -> None:
    raise ZeroDivisionError


def test_a_cancelled_wait_for_the_end_of_a_block_ends_the_run(make) -> None:
    worker = make(num_sub_workers=1)
    out = worker.shared_array(8)

    async def block() -> None:
        async with worker.session() as s:
            s.submit(hang, out)

    async def main() -> None:
        running = asyncio.ensure_future(block())
        limit = time.monotonic() + 20
        while worker.statistics()["in_flight"] == 0 and time.monotonic() < limit:
            await asyncio.sleep(0.001)
        running.cancel()
        await running

    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert time.monotonic() - began < 20
    still_works(worker)
