"""A Worker that is closed while it is used: all waits return with an error."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest
from lost_children import await_count_in_run, child_pids, kill
from task_arguments import given
from thread_states import CallInThread

from pto_core import InOut, TensorArgType, task
from pto_core.errors import PtoError, WorkerClosedError
from pto_core.worker.child_group import DriverHooks
from pto_core.worker.processes import ChildProcesses

SOON_S = 40.0


@task
def add_slowly(x: InOut) -> None:
    time.sleep(0.02)
    x += 1


@task
def sleep_long(x: InOut) -> None:
    time.sleep(100)


def wait_long(args: Any) -> None:
    time.sleep(100)


def mark_and_wait_long(args: Any) -> None:
    args.tensor(0)[0] = 1
    time.sleep(100)


def test_close_inside_a_session_ends_its_tasks(make: Any) -> None:
    worker = make(num_sub_workers=2)
    x = worker.shared_array(4)

    def block() -> None:
        with worker.session() as s:
            handles = [s.submit(add_slowly, x) for _ in range(300)]
            worker.close()
            assert all(handle.done() and handle.wait(0) for handle in handles)
            assert handles[-1].cancelled()
            with pytest.raises(WorkerClosedError):
                s.submit(add_slowly, x)
            with pytest.raises(WorkerClosedError):
                s.scope().__enter__()

    with pytest.raises(WorkerClosedError):
        block()


def test_close_inside_a_graph_ends_the_run(make: Any) -> None:
    worker = make(num_sub_workers=2)
    handle = worker.register(wait_long)
    x = worker.shared_array(4)

    def graph(orch: Any, args: Any, config: Any) -> None:
        for _ in range(100):
            orch.submit_sub(handle, given((x, TensorArgType.INOUT)))
        worker.close()
        with pytest.raises(WorkerClosedError):
            orch.submit_sub(handle, given((x, TensorArgType.INOUT)))

    with pytest.raises(WorkerClosedError):
        worker.run(graph)
    with pytest.raises(WorkerClosedError):
        worker.run(graph)


def test_the_exception_of_a_block_after_close_is_raised(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array(4)

    def block() -> None:
        with worker.session() as s:
            s.submit(add_slowly, x)
            worker.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()


@pytest.mark.parametrize("tasks", [1, 30])
def test_close_while_another_thread_waits_for_a_task(make: Any, tasks: int) -> None:
    worker = make(num_sub_workers=2)
    x = worker.shared_array(4)

    def block() -> None:
        with worker.session() as s:
            handles = [s.submit(sleep_long, x) for _ in range(tasks)]
            waiting = CallInThread(handles[-1].wait)
            waiting.await_blocked()
            worker.close()
            assert waiting.await_end() is None
            # a task that has begun fails, and those that need it do not run
            assert handles[-1].cancelled() or isinstance(handles[-1].exception(), PtoError)

    with pytest.raises(WorkerClosedError):
        block()


def test_close_while_another_thread_is_in_a_run(make: Any) -> None:
    worker = make(num_sub_workers=2)
    handle = worker.register(wait_long)
    is_submitted = threading.Event()

    def graph(orch: Any, args: Any, config: Any) -> None:
        for _ in range(10):
            orch.submit_sub(handle, given((x, TensorArgType.INOUT)))
        is_submitted.set()

    x = worker.shared_array(4)
    running = CallInThread(lambda: worker.run(graph))
    assert is_submitted.wait(SOON_S)
    worker.close()
    assert isinstance(running.await_end(), WorkerClosedError)


def test_a_run_that_ends_during_a_close_raises_that_the_worker_is_closed(make: Any) -> None:
    worker = make(num_sub_workers=1)
    handle = worker.register(wait_long)
    x = worker.shared_array(4)

    def graph(orch: Any, args: Any, config: Any) -> None:
        for pid in child_pids():
            os.kill(pid, signal.SIGSTOP)  # close() now waits until it kills the child
        closing = CallInThread(worker.close)
        closing.await_blocked()
        orch.submit_sub(handle, given((x, TensorArgType.INOUT)))

    with pytest.raises(WorkerClosedError):
        worker.run(graph)


def hooks_of(worker: Any, monkeypatch: pytest.MonkeyPatch) -> DriverHooks:
    """Return the hooks of the driver of a Worker."""
    found: list[DriverHooks] = []
    begin_run = DriverHooks.begin_run

    def recording(hooks: DriverHooks, *, is_alone: bool) -> None:
        found.append(hooks)
        begin_run(hooks, is_alone=is_alone)

    worker.init()
    with monkeypatch.context() as patched:
        patched.setattr(DriverHooks, "begin_run", recording)
        with worker.session():
            pass
    (hooks,) = found
    return hooks


def test_a_connection_found_broken_after_a_close_ended_the_child(make: Any, monkeypatch) -> None:
    worker = make(num_sub_workers=1)
    hooks = hooks_of(worker, monkeypatch)
    end, checks = ChildProcesses.end, []

    def end_and_check(*args: Any, **named: Any) -> None:
        end(*args, **named)
        checks.append(CallInThread(lambda: hooks.child_broken(0, "late")).await_end())

    monkeypatch.setattr(ChildProcesses, "end", end_and_check)
    worker.close()
    assert checks == [None]


def test_tasks_that_a_close_ends_fail_for_the_close_not_for_an_exit(make: Any, monkeypatch) -> None:
    """Another thread checks the children while close() ends them."""
    worker = make(num_sub_workers=1)
    handle = worker.register(mark_and_wait_long)
    x = worker.shared_array(4)
    hooks = hooks_of(worker, monkeypatch)
    found: list[object] = []

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle, given((x, TensorArgType.INOUT)))

    end = ChildProcesses.end

    def check_and_end(*args: Any, **named: Any) -> None:
        kill(*child_pids())
        found.append(CallInThread(hooks.poll).await_end())
        found.append(running.thread.is_alive())
        end(*args, **named)

    monkeypatch.setattr(ChildProcesses, "end", check_and_end)
    running = CallInThread(lambda: worker.run(graph))
    end_s = time.monotonic() + SOON_S
    while x[0] == 0 and time.monotonic() < end_s:
        time.sleep(0.001)
    worker.close()
    assert found == [None, True]
    assert isinstance(running.await_end(), WorkerClosedError)


def test_close_while_another_thread_submits(make: Any) -> None:
    worker = make(num_sub_workers=2)
    x = worker.shared_array(4)
    is_begun = threading.Event()

    def submit_for_ever() -> None:
        with worker.session() as s:
            while True:
                s.submit(add_slowly, x)
                is_begun.set()

    submitting = CallInThread(submit_for_ever)
    assert is_begun.wait(SOON_S)
    assert await_count_in_run(worker, "submitted", 20) >= 20
    worker.close()
    assert isinstance(submitting.await_end(), WorkerClosedError)
