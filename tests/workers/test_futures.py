"""Task handles are futures of ``concurrent.futures``: callbacks, waits, event loops, cancelling."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import re
import threading
import time
import weakref
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from pto_core import In, Out, TaskHandle, task
from pto_core.errors import TaskFailedError, TaskPoisonedError, UsageError
from pto_core.worker.processes.child_process import ChildProcess

WAIT_S = 30


@task
def double(x, seconds=0.0):
    time.sleep(seconds)
    return 2 * x


@task
def fail(x):
    raise ValueError(x)


@task
def wait_for(gate: In) -> None:
    """Occupy the child until the test opens the gate."""
    while not gate[0]:
        time.sleep(0.001)


@task
def hold(gate: In, began: Out) -> None:
    """Say that the task has begun, and wait until the test opens the gate."""
    began[:] = 1
    while not gate[0]:
        time.sleep(0.001)


@task
def mark(path, text="x"):
    with Path(path).open("a") as file:
        file.write(text)
    return text


@task
def block(path):
    mark(path)
    time.sleep(1000)


@task
def block_until(began, may_end):
    mark(began)
    while not may_end.exists():
        time.sleep(0.001)
    return 1


@pytest.fixture
def make(make):
    """Create Workers whose children inherit the tasks, so that no delivery waits for a child."""

    def worker(**settings: Any) -> Any:
        made = make(**settings)
        for one in (double, fail, wait_for, hold, mark, block):
            made.register(one)
        return made

    return worker


def future_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pto futures"]


def await_true(is_true: Any) -> None:
    """Wait for an event of another process or thread."""
    end = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_handle_is_a_future(make) -> None:
    with make(num_sub_workers=1).session() as s:
        handle = s.submit(double, 3)
        assert isinstance(handle, TaskHandle)
        assert isinstance(handle, concurrent.futures.Future)
        name = rf"<TaskHandle of task 0 \(double, {__file__}:\d+\), "
        assert re.fullmatch(rf"{name}(waiting|running|ended)>", repr(handle))
        assert handle.result(WAIT_S) == 6
        assert repr(handle).endswith(", ended>")
        assert handle.done()
        assert not handle.running()
        assert not handle.cancelled()
        assert not handle.cancel()
        assert handle.exception() is None
        assert future_threads() == []
        with pytest.raises(AttributeError, match=r"'get'; write handle\.result\(\) for its"):
            handle.get  # noqa: B018
    with pytest.raises(TypeError, match="cannot create"):
        TaskHandle()


def test_a_forked_process_can_print_a_handle(make) -> None:
    with make(num_sub_workers=1).session() as s:
        handle = s.submit(double, 3)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = (
                    repr(handle) != "<TaskHandle of task 0, of the process that forked this one>"
                )
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


def test_a_handle_is_not_done_before_its_end(make) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    with worker.session() as s:
        handle = s.submit(wait_for, gate)
        await_true(handle.running)
        assert not handle.done()
        assert concurrent.futures.wait([handle], timeout=0).not_done == {handle}
        for short in (0, -1, -0.5):
            with pytest.raises(TimeoutError):
                handle.result(short)
        for wrong in ("1", float("nan")):
            with pytest.raises(UsageError, match=f"timeout is {wrong!r}; pass a number of sec"):
                handle.result(wrong)
        gate[0] = 1
        handle.result(WAIT_S)
        assert handle.done()
        assert concurrent.futures.wait([handle], timeout=0).done == {handle}


def test_the_waits_of_concurrent_futures_return_at_the_first_ends(make) -> None:
    worker = make(num_sub_workers=2)
    gate = worker.shared_array(1)
    with worker.session() as s:
        held, quick = s.submit(wait_for, gate, worker=0), s.submit(double, 1, worker=1)
        completed = concurrent.futures.as_completed([held, quick, held], WAIT_S)
        assert next(completed) is quick
        done, rest = concurrent.futures.wait(
            [held, quick], WAIT_S, return_when=concurrent.futures.FIRST_COMPLETED
        )
        assert (done, rest) == ({quick}, {held})
        failed = s.submit(fail, 2, worker=1)
        done, rest = concurrent.futures.wait(
            [held, quick, failed], WAIT_S, return_when=concurrent.futures.FIRST_EXCEPTION
        )
        assert (done, rest) == ({quick, failed}, {held})
        gate[0] = 1
        assert list(completed) == [held]
        assert concurrent.futures.wait([held, quick], WAIT_S).not_done == set()
        assert isinstance(failed.exception(), ValueError)
        with pytest.raises(TimeoutError):
            list(concurrent.futures.as_completed([s.submit(double, 1, 0.5)], timeout=0.01))


def test_waiting_does_not_take_a_failure(make) -> None:
    """A failure that the program has not seen is raised at the end of the block."""
    worker = make(num_sub_workers=1)
    s = worker.session().__enter__()
    handle = s.submit(fail, 1)
    assert concurrent.futures.wait([handle], WAIT_S).done == {handle}
    with pytest.raises(ValueError, match="1"):
        s.__exit__(None, None, None)


def test_callbacks_are_called_once_in_order(make) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    called: list[Any] = []
    with worker.session() as s:
        handle = s.submit(wait_for, gate)
        for number in range(3):
            handle.add_done_callback(
                lambda one, n=number: called.append((n, one, threading.current_thread().name))
            )
        assert called == []
        gate[0] = 1
        await_true(lambda: len(called) == 3)
        assert called == [(number, handle, "pto futures") for number in range(3)]
        handle.add_done_callback(lambda one: called.append(threading.current_thread()))
        assert called[3:] == [threading.current_thread()]
    await_true(lambda: not future_threads())


def test_the_thread_exists_while_callbacks_wait(make) -> None:
    worker = make(num_sub_workers=2)
    gate = worker.shared_array(1)
    with worker.session() as s:
        held, quick = s.submit(wait_for, gate, worker=0), s.submit(double, 1, 0.05, worker=1)
        called = threading.Event()
        held.add_done_callback(lambda one: called.set())
        quick.add_done_callback(lambda one: None)
        assert len(future_threads()) == 1
        quick.result()
        assert len(future_threads()) == 1
        gate[0] = 1
        assert called.wait(WAIT_S)
        await_true(lambda: not future_threads())
        called.clear()
        s.submit(double, 1, 0.05).add_done_callback(lambda one: called.set())
        assert called.wait(WAIT_S)


def test_exceptions_in_callbacks_are_logged(make, caplog) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    called = threading.Event()
    with worker.session() as s:
        handle = s.submit(wait_for, gate)
        handle.add_done_callback(lambda one: 1 / 0)
        handle.add_done_callback(lambda one: called.set())
        gate[0] = 1
        assert called.wait(WAIT_S)
        assert [record.name for record in caplog.records] == ["concurrent.futures"]
        handle.add_done_callback(lambda one: 1 / 0)
        assert len(caplog.records) == 2


def test_a_callback_that_raises_system_exit_does_not_stop_the_others(make) -> None:
    worker = make(num_sub_workers=2)
    gate = worker.shared_array(1)
    called = threading.Event()

    def leave(handle: Any) -> None:
        raise SystemExit

    with worker.session() as s:
        first, second = (s.submit(wait_for, gate, worker=i) for i in range(2))
        first.add_done_callback(leave)
        second.add_done_callback(lambda one: called.set())
        gate[0] = 1
        assert called.wait(WAIT_S)


def test_callbacks_may_submit(make) -> None:
    worker = make(num_sub_workers=1)
    handles: list[Any] = []
    called = threading.Event()
    with worker.session() as s:

        def go_on(handle: Any) -> None:
            handles.append(s.submit(double, handle.result()))
            called.set()

        s.submit(double, 1, 0.05).add_done_callback(go_on)
        assert called.wait(WAIT_S)
        assert handles[0].result() == 4


def test_callbacks_of_a_closed_worker_are_called(make) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    called: list[Any] = []
    s = worker.session()
    s.__enter__()
    handle = s.submit(wait_for, gate)
    handle.add_done_callback(called.append)
    worker.close()
    assert called == [handle]
    assert handle.done()
    assert future_threads() == []


def test_callbacks_see_the_death_and_restart_of_a_child(make, tmp_path) -> None:
    worker = make(num_sub_workers=2, on_worker_death="restart")
    called = threading.Event()
    with worker.session() as s:
        handle = s.submit(task(os._exit), 3)
        handle.add_done_callback(lambda one: called.set())
        assert called.wait(WAIT_S)
        assert handle.exception() is not None
        assert s.submit(double, 2).result(WAIT_S) == 4


def test_an_unused_handle_with_callbacks_is_freed(make) -> None:
    worker = make(num_sub_workers=1)
    with worker.session() as s:
        handle = s.submit(double, 1)
        handle.result()
        handle.add_done_callback(print)
        handle.itself = handle
        gone = weakref.ref(handle)
        del handle
        s.submit(double, 1).result()  # the Worker keeps a task until it sees its end at a submit
        s.submit(double, 1).result()
        gc.collect()
        assert gone() is None


def test_an_event_loop_wraps_and_awaits_handles(make) -> None:
    worker = make(num_sub_workers=1)

    async def main() -> list[Any]:
        async with worker.session() as s:
            handles = [s.submit(double, n, 0.01) for n in range(3)]
            wrapped = [asyncio.wrap_future(handle) for handle in handles]
            assert await asyncio.gather(*wrapped) == [0, 2, 4]
            failed = asyncio.wrap_future(s.submit(fail, 1))
            with pytest.raises(ValueError):
                await failed
            return [await handle for handle in handles]

    assert asyncio.run(main()) == [0, 2, 4]


# ---- cancel ----


def test_a_task_that_has_not_begun_is_cancelled(make, tmp_path) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    called: list[Any] = []
    with worker.session() as s:
        s.submit(wait_for, gate)
        handle = s.submit(mark, tmp_path / "ran")
        handle.add_done_callback(called.append)
        assert handle.cancel()
        assert called == [handle]
        assert handle.cancelled()
        assert handle.done()
        assert not handle.running()
        assert handle.cancel()
        assert concurrent.futures.wait([handle], WAIT_S).done == {handle}
        for take in (handle.result, handle.exception):
            with pytest.raises(CancelledError, match=r"task 1 \(mark, .*\) was cancelled"):
                take()
        gate[0] = 1
    assert called == [handle]
    assert not (tmp_path / "ran").exists()
    assert handle.cancelled()
    with pytest.raises(CancelledError):
        handle.result()


def test_tasks_that_need_a_cancelled_one_do_not_run(make, tmp_path) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    with worker.session() as s:
        s.submit(wait_for, gate)
        first = s.submit(double, 1)
        second = s.submit(mark, tmp_path / "ran", first)
        assert first.cancel()
        gate[0] = 1
        error = second.exception()
        assert isinstance(error, TaskPoisonedError)
        assert "task 1 (double" in str(error)
        assert "on which it depends, was cancelled" in str(error)
        assert not second.cancelled()
        s.submit(double, s.submit(double, first))  # nothing takes these errors
    assert not (tmp_path / "ran").exists()


def test_a_failure_beside_a_cancelled_task_is_raised(make) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    s = worker.session().__enter__()
    s.submit(wait_for, gate)
    assert s.submit(double, 1).cancel()
    s.submit(fail, 5)
    gate[0] = 1
    with pytest.raises(TaskFailedError, match="ValueError: 5") as raised:
        s.__exit__(None, None, None)
    assert raised.value.failures == ()


def test_a_task_that_has_begun_is_not_cancelled(make, tmp_path) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    with worker.session() as s:
        handle = s.submit(hold, gate, began := worker.shared_array(1))
        await_true(lambda: began[0])
        assert not handle.cancel()
        assert not handle.cancelled()
        gate[0] = 1
        handle.result(WAIT_S)


def test_cancel_returns_true_for_a_task_that_an_exception_cancelled(make) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    s = worker.session().__enter__()
    running = s.submit(hold, gate, began := worker.shared_array(1))
    await_true(lambda: began[0])
    handle = s.submit(double, 1)
    threading.Timer(0.05, lambda: gate.fill(1)).start()
    s.__exit__(KeyError, KeyError(), None)
    assert handle.cancel()
    assert handle.cancelled()
    assert not running.cancel()


def test_waiters_see_a_cancelled_task(make) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    with worker.session() as s:
        s.submit(wait_for, gate)
        handle = s.submit(double, 1)
        found: list[Any] = []
        waiting = threading.Thread(
            target=lambda: found.extend(concurrent.futures.wait([handle], WAIT_S).done)
        )
        waiting.start()
        await_true(lambda: future_threads())
        assert handle.cancel()
        waiting.join(WAIT_S)
        assert found == [handle]
        gate[0] = 1


def test_a_cancelled_task_ends_the_await(make) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)

    async def main() -> None:
        async with worker.session() as s:
            s.submit(wait_for, gate)
            handle = s.submit(double, 1)
            wrapped = asyncio.wrap_future(handle)
            assert handle.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wrapped
            with pytest.raises(CancelledError):
                await handle
            other = asyncio.wrap_future(last := s.submit(double, 2))
            other.cancel()
            await asyncio.sleep(0)
            assert last.cancelled()
            gate[0] = 1

    asyncio.run(main())


def test_another_thread_cancels(make) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    with worker.session() as s:
        s.submit(wait_for, gate)
        handles = [s.submit(double, n) for n in range(20)]
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.extend(h.cancel() for h in handles))
        thread.start()
        thread.join()
        assert all(answers)
        gate[0] = 1


def test_force_ends_the_child(make, tmp_path) -> None:
    worker = make(num_sub_workers=1, on_worker_death="restart")
    began = tmp_path / "began"
    with worker.session() as s:
        handle = s.submit(block, began, retries=2)
        later = s.submit(double, 4)
        needs = s.submit(double, handle)
        await_true(lambda: began.exists() and began.read_text() == "x")
        assert handle.cancel(force=True)
        assert handle.cancelled()
        with pytest.raises(CancelledError):
            handle.result()
        assert later.result(WAIT_S) == 8
        assert isinstance(needs.exception(), TaskPoisonedError)
        assert s.submit(double, 1).result(WAIT_S) == 2
    assert worker.statistics()["deaths"] == 1
    assert began.read_text() == "x"


def test_force_does_not_end_a_task_that_has_ended(make) -> None:
    worker = make(num_sub_workers=1, on_worker_death="restart")
    with worker.session() as s:
        for _ in range(50):
            handle, next_one = s.submit(double, 1), s.submit(double, 2)
            if handle.cancel(force=True):
                assert handle.cancelled()
            else:
                assert handle.result() == 2
            assert next_one.result(WAIT_S) == 4


def test_force_needs_restarts(make) -> None:
    worker = make(num_sub_workers=2)
    gate = worker.shared_array(1)
    with worker.session() as s:
        handle = s.submit(wait_for, gate)
        with pytest.raises(UsageError, match='on_worker_death="restart"'):
            handle.cancel(force=True)
        gate[0] = 1


def test_force_refuses_a_group_that_has_begun(make) -> None:
    worker = make(num_sub_workers=2, on_worker_death="restart")
    gate = worker.shared_array(1)
    with worker.session() as s:
        both = [worker.shared_array(1) for _ in range(2)]
        handle = s.submit_group(hold, [(gate, began) for began in both])
        await_true(lambda: all(began[0] for began in both))
        with pytest.raises(UsageError, match="a group"):
            handle.cancel(force=True)
        gate[0] = 1
        handle.result(WAIT_S)


def test_a_task_of_an_earlier_run_is_not_cancelled(make) -> None:
    worker = make(num_sub_workers=1)
    with worker.session() as s:
        handle = s.submit(double, 1)
    with worker.session() as s:
        last = s.submit(double, 1)
        assert not handle.cancel()
        assert last.result() == 2


def test_force_may_end_a_child_many_times(make, tmp_path) -> None:
    worker = make(num_sub_workers=1, on_worker_death="restart")
    with worker.session() as s:
        for number in range(8):
            began = tmp_path / str(number)
            handle = s.submit(block, began)
            await_true(began.exists)
            assert handle.cancel(force=True)
        assert s.submit(double, 4).result(WAIT_S) == 8


def test_force_ends_no_other_task_when_its_own_task_fails(make) -> None:
    worker = make(num_sub_workers=1, on_worker_death="restart")
    with worker.session() as s:
        for _ in range(100):
            failing, next_one = s.submit(fail, 1), s.submit(double, 2)
            if not failing.cancel(force=True):
                assert isinstance(failing.exception(), ValueError)
            assert next_one.result(WAIT_S) == 4


def test_an_interrupted_force_leaves_no_stopped_child(make, tmp_path, monkeypatch) -> None:
    worker = make(num_sub_workers=1, on_worker_death="restart")
    began, may_end = tmp_path / "began", tmp_path / "may_end"
    with worker.session() as s:
        handle = s.submit(block_until, began, may_end)
        await_true(began.exists)
        suspend = ChildProcess.suspend

        def interrupted(self: Any) -> None:
            suspend(self)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(ChildProcess, "suspend", interrupted)
            with pytest.raises(KeyboardInterrupt):
                handle.cancel(force=True)
        may_end.touch()
        assert handle.wait(WAIT_S)


def test_a_cancel_wakes_those_who_wait_although_a_producer_runs(make, tmp_path) -> None:
    worker = make(num_sub_workers=1)
    began, may_end = tmp_path / "began", tmp_path / "may_end"
    with worker.session() as s:
        producer = s.submit(block_until, began, may_end)
        waiting = s.submit(double, producer)
        await_true(began.exists)
        errors: list[BaseException | None] = []

        def wait() -> None:
            with pytest.raises(CancelledError):
                waiting.result()
            errors.append(None)

        async def suspended() -> None:
            with pytest.raises(CancelledError):
                await waiting
            errors.append(None)

        threads = [threading.Thread(target=act) for act in (wait, lambda: asyncio.run(suspended()))]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        assert waiting.cancel()
        for thread in threads:
            thread.join(WAIT_S)
        assert errors == [None, None]
        assert waiting.wait(0.01)
        assert not producer.done()
        may_end.touch()
