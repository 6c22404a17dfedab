"""A Worker that is closed while it is used: all waits return with an error."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from task_arguments import given

from pto_core import InOut, TensorArgType, task
from pto_core.errors import PtoError, WorkerClosedError

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


class Elsewhere:
    """Calls something on a thread of its own, and keeps what it raised."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.error: BaseException | None = None
        self._act = act
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def end(self) -> BaseException | None:
        self._thread.join(SOON_S)
        assert not self._thread.is_alive()
        return self.error


def test_close_inside_a_session_ends_its_tasks(make: Any) -> None:
    worker = make(num_sub_workers=2)
    x = worker.shared_array(4)

    def block() -> None:
        with worker.session() as s:
            handles = [s.submit(add_slowly, x) for _ in range(300)]
            worker.close()
            assert all(handle.done and handle.wait(0) for handle in handles)
            assert isinstance(handles[-1].exception(), PtoError)
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


def test_what_a_block_raised_after_close_is_what_comes_out(make: Any) -> None:
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
            waiting = Elsewhere(handles[-1].wait)
            time.sleep(0.2)
            worker.close()
            assert waiting.end() is None
            assert isinstance(handles[-1].exception(), PtoError)

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
    running = Elsewhere(lambda: worker.run(graph))
    assert is_submitted.wait(SOON_S)
    worker.close()
    assert isinstance(running.end(), WorkerClosedError)


def test_who_looks_after_children_that_a_close_has_ended_finds_them(make: Any) -> None:
    worker = make(num_sub_workers=1)
    worker.init()
    children = worker._node.children
    end, looks = children.processes.end, []

    def end_and_look(*args: Any, **named: Any) -> None:
        end(*args, **named)
        looks.append(Elsewhere(lambda: children.hooks.child_broken(0, "late")).end())

    children.processes.end = end_and_look
    worker.close()
    assert looks == [None]


def test_a_run_that_a_close_ends_is_not_ended_by_who_looks_after_children_meanwhile(
    make: Any,
) -> None:
    """The close ended them: their tasks fail for the close, and not for a death."""
    worker = make(num_sub_workers=1)
    handle = worker.register(wait_long)
    x = worker.shared_array(4)
    worker.init()
    children = worker._node.children
    end, is_submitted, found = children.processes.end, threading.Event(), []

    def graph(orch: Any, args: Any, config: Any) -> None:
        orch.submit_sub(handle, given((x, TensorArgType.INOUT)))
        is_submitted.set()

    def look_and_end(*args: Any, **named: Any) -> None:
        os.kill(children.processes[0].pid, signal.SIGKILL)
        os.waitid(os.P_PID, children.processes[0].pid, os.WEXITED | os.WNOWAIT)
        found.append(Elsewhere(children.hooks.poll).end())
        found.append(children.driver.is_running)
        end(*args, **named)

    children.processes.end = look_and_end
    running = Elsewhere(lambda: worker.run(graph))
    assert is_submitted.wait(SOON_S)
    worker.close()
    assert found == [None, True]
    assert isinstance(running.end(), WorkerClosedError)


def test_close_while_another_thread_submits(make: Any) -> None:
    worker = make(num_sub_workers=2)
    x = worker.shared_array(4)
    is_begun = threading.Event()

    def submit_for_ever() -> None:
        with worker.session() as s:
            while True:
                s.submit(add_slowly, x)
                is_begun.set()

    submitting = Elsewhere(submit_for_ever)
    assert is_begun.wait(SOON_S)
    time.sleep(0.1)
    worker.close()
    assert isinstance(submitting.end(), WorkerClosedError)
