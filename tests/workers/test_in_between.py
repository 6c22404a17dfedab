"""Actions of another thread during a call, or a fork during a call, do not affect the call."""

# Invariant of this file: A call uses the run, configuration and graph with which it began, even if
# another thread changes them. No lock of the C++ library is held while Python code runs.

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
import time
from typing import Any

import pytest
from task_arguments import given
from thread_states import await_blocked

from pto_core import CallConfig, In, InOut, Out, TensorArgType, Worker, task
from pto_core.errors import UsageError
from pto_core.worker.child_group import close_driver
from pto_core.worker.processes.parking import fork_lock

SOON_S = 60


@task
def add_when(told: In, x: InOut) -> None:
    while not told[0]:
        time.sleep(1e-4)
    x += 1


@task
def write(value: int, out: Out) -> None:
    out[:] = value


def block_dim(orch: Any, args: Any, config: CallConfig) -> None:
    args.tensor(0)[0] = config.block_dim


def test_a_run_that_ends_in_a_submit_has_its_task(make: Any) -> None:
    """The run ends while the submitting thread waits for the GIL."""
    worker = make(num_sub_workers=1, snapshot_limit=1 << 13, on_worker_death="restart")
    for _ in range(20):
        if submits_while_its_run_ends(worker):
            break


def submits_while_its_run_ends(worker: Worker) -> bool:
    """Submit on a thread and end the run; return whether the submit was waiting for the GIL."""
    told, x = worker.shared_array(1, "int64"), worker.shared_array(1 << 10, "int64")
    handles: list[Any] = []

    def submit() -> None:
        with contextlib.suppress(UsageError):  # the run has ended
            handles.append(session.submit(add_when, told, x, retries=1))

    submitting = threading.Thread(target=submit)
    interval = sys.getswitchinterval()
    try:
        with worker.session() as session:
            session.submit(add_when, told, x, retries=1)
            submitting.start()  # its submit waits for the first snapshot's release
            await_blocked(submitting.native_id)
            sys.setswitchinterval(SOON_S)
            told[0] = 1
            spin_until(lambda: x[0] == 1)
            # Meanwhile the child reports the end, so there is space for the second snapshot.
            spin_until(lambda: False, 0.005)
        was_waiting = not handles
    finally:
        sys.setswitchinterval(interval)
    submitting.join(SOON_S)
    assert not submitting.is_alive()
    with worker.session() as session:
        session.submit(write, 7, x)
    assert all(handle.done() for handle in handles)
    return was_waiting and len(handles) == 1


def spin_until(is_met: Any, limit_s: float = 0.3) -> None:
    """Wait in a busy loop, which does not release the GIL on request."""
    until = time.monotonic() + limit_s
    while not is_met() and time.monotonic() < until:
        pass


@pytest.fixture
def hosts(make: Any) -> Worker:
    pod: Worker = make(level=4)
    pod.add_worker(Worker(3, num_sub_workers=1, heap_ring_size=1 << 24))
    return pod


def submit_block_dim(pod: Worker, orch: Any, row: Any, value: int) -> Any:
    handle = pod.register(block_dim)
    args = given((row, TensorArgType.OUTPUT_EXISTING))
    return orch.submit_next_level(handle, args, CallConfig(block_dim=value))


def test_a_configuration_that_two_threads_send_at_once_reaches_the_child(
    hosts, monkeypatch
) -> None:
    rows = hosts.shared_array((2, 1), "int64")
    begun, gone = threading.Event(), threading.Event()
    dumps = pickle.dumps

    def slowly(value: Any) -> bytes:
        if isinstance(value, tuple) and value[0] == "config" and not begun.is_set():
            begun.set()
            assert gone.wait(SOON_S)
        return dumps(value)

    def graph(orch: Any, args: Any, config: Any) -> None:
        def other() -> None:
            assert begun.wait(SOON_S)
            submit_block_dim(hosts, orch, rows[1], 5).wait()
            gone.set()

        thread = threading.Thread(target=other)
        thread.start()
        submit_block_dim(hosts, orch, rows[0], 5)
        thread.join(SOON_S)

    hosts.init()
    monkeypatch.setattr(pickle, "dumps", slowly)
    hosts.run(graph)
    assert rows.tolist() == [[5], [5]]


def test_a_configuration_that_was_not_sent_is_sent_with_the_next_submit(hosts, monkeypatch) -> None:
    rows = hosts.shared_array((2, 1), "int64")
    dumps = pickle.dumps
    refused: list[Any] = []

    def refuse_first(value: Any) -> bytes:
        if isinstance(value, tuple) and value[0] == "config" and not refused:
            refused.append(value)
            raise InterruptedError
        return dumps(value)

    def graph(orch: Any, args: Any, config: Any) -> None:
        with pytest.raises(InterruptedError):
            submit_block_dim(hosts, orch, rows[0], 5)
        submit_block_dim(hosts, orch, rows[0], 5)
        submit_block_dim(hosts, orch, rows[1], 6)

    hosts.init()
    monkeypatch.setattr(pickle, "dumps", refuse_first)
    hosts.run(graph)
    assert rows.tolist() == [[5], [6]]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda worker: worker.close(), "called inside another call of it"),
        (
            lambda worker: worker.register("math:sqrt"),
            "called the Worker that waits for its decision",
        ),
        # Invariant: A thread inside a call of the driver, in a policy or a signal handler, gets an
        # error from a call that would deadlock: `close()`, a fork for another Worker, a reply.
    ],
    ids=["close", "register"],
)
def test_a_policy_that_would_wait_for_itself_is_refused_and_its_worker_is_open(
    make: Any, ask: Any, message: str
) -> None:
    refused: list[str] = []

    def policy(candidates: Any, preferred: int) -> int:
        with pytest.raises(UsageError) as caught:
            ask(worker)
        time.sleep(
            0.01
        )  # slow, so that the driver's own thread, which wakes every millisecond, drives as well
        refused.append(str(caught.value))
        return int(candidates[0][0])

    worker = make(num_sub_workers=2, policy=policy)
    rows = worker.shared_array((20, 8))
    with worker.session() as session:
        for row in rows:
            session.submit(write, 1, row)
    assert (rows == 1).all()
    assert refused
    assert set(refused) == {refused[0]}
    assert message in refused[0]


def test_a_policy_call_that_would_deadlock_with_a_fork_is_refused(make: Any) -> None:
    """The thread that forks may wait for the driver, and the policy runs inside the driver."""
    other = make(num_sub_workers=1)
    forking, was_called = threading.Event(), threading.Event()
    refused: list[str] = []

    def fork() -> None:
        with fork_lock():
            forking.set()
            assert was_called.wait(SOON_S)

    def policy(candidates: Any, preferred: int) -> int:
        if not refused:
            with pytest.raises(UsageError) as caught:
                other.shared_array(8)
            refused.append(str(caught.value))
            was_called.set()
        return int(candidates[0][0])

    worker = make(num_sub_workers=2, policy=policy)
    rows = worker.shared_array((20, 8))
    thread = threading.Thread(target=fork)
    worker.init()
    thread.start()
    assert forking.wait(SOON_S)
    with worker.session() as session:
        for row in rows:
            session.submit(write, 1, row)
    thread.join(SOON_S)
    assert "called inside another call of it" in refused[0]
    assert (rows == 1).all()


def test_a_policy_that_starts_another_worker_is_refused(make: Any) -> None:
    def policy(candidates: Any, preferred: int) -> int:
        time.sleep(
            0.01
        )  # slow, so that the driver's own thread, which wakes every millisecond, drives as well
        make(num_sub_workers=1).init()
        return int(candidates[0][0])

    worker = make(num_sub_workers=2, policy=policy)
    rows = worker.shared_array((20, 8))
    message = "called inside another call of it"
    with pytest.raises(UsageError, match=message), worker.session() as session:  # noqa: PT012
        for row in rows:
            session.submit(write, 1, row)


def test_a_driver_that_is_dropped_inside_a_call_of_it_is_closed_by_another_thread() -> None:
    inside, closed = threading.get_ident(), threading.Event()

    class Called:
        def close(self) -> None:
            if threading.get_ident() == inside:
                raise UsageError("inside a call")
            closed.set()

    close_driver(Called())
    assert closed.wait(SOON_S)
