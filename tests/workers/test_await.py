"""``await handle`` blocks no thread, in any number of event loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core import In, InOut, Out, Worker, task
from pto_core.errors import (
    ChildDiedError,
    PtoError,
    TaskFailedError,
    TaskPoisonedError,
    UsageError,
    WorkerClosedError,
)

LIMIT_S = 60.0


@task
def write(value: int, out: Out) -> None:
    out[:] = value


@task
def write_when_open(gate: In, value: int, out: Out) -> None:
    while not gate[0]:
        time.sleep(0.001)
    out[:] = value


@task
def fail(out: InOut) -> None:
    raise ValueError("no luck")


@task
def copy(x: In, out: Out) -> None:
    out[:] = x


@task
def die(out: InOut) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(main: Any) -> Any:
    """Run a coroutine in a new event loop, for at most ``LIMIT_S``."""
    return asyncio.run(asyncio.wait_for(main, LIMIT_S))


def gated(worker: Any, count: int) -> tuple[Any, Any]:
    """Return an array that is a closed gate (0), and rows to which tasks write."""
    return worker.shared_array(1), worker.shared_array((count, 8))


def event_descriptors() -> int:
    """Return the number of open eventfds of this process."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of this listing
            count += os.readlink(descriptor) == "anon_inode:[eventfd]"
    return count


async def pause() -> None:
    """Yield to the event loop, so that every coroutine runs until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_asyncio_wait_is_refused_because_it_would_not_return(make) -> None:
    async def main(handle: Any) -> Any:
        with pytest.raises(UsageError, match=r"asyncio\.wrap_future"):
            await asyncio.wait([handle])
        done, _ = await asyncio.wait([asyncio.wrap_future(handle)])
        return [await one for one in (*done, *asyncio.as_completed([handle]))]

    worker = make(num_sub_workers=1)
    out = worker.shared_array(1)
    with worker.session() as s:
        assert run(main(s.submit(write, 3, out))) == [3, 3]


def test_awaiting_uses_no_thread_of_the_executor(make) -> None:
    worker = make(num_sub_workers=1)
    gate, rows = gated(worker, 64)

    async def main() -> list[Any]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        with worker.session() as s:
            threads = threading.active_count()
            waiting = [
                asyncio.ensure_future(wait_for(s.submit(write_when_open, gate, i, row)))
                for i, row in enumerate(rows)
            ]
            await pause()
            assert threading.active_count() == threads
            try:
                assert await asyncio.wait_for(asyncio.to_thread(int, "7"), 10) == 7
            finally:
                gate[0] = 1
            return await asyncio.gather(*waiting)

    async def wait_for(handle: Any) -> Any:
        return await handle

    assert [row[0] for row in run(main())] == list(range(64))


def test_a_cancelled_await_leaves_nothing_waiting(make) -> None:
    worker = make(num_sub_workers=1)
    gate, rows = gated(worker, 1)

    async def main() -> Any:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        with worker.session() as s:
            handle = s.submit(write_when_open, gate, 3, rows[0])
            try:
                for _ in range(3):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(_result(handle), 0.02)
                assert await asyncio.wait_for(asyncio.to_thread(int, "7"), 10) == 7
            finally:
                gate[0] = 1
            return await handle

    assert run(main())[0] == 3


async def _result(handle: Any) -> Any:
    return await handle


def test_a_loop_that_ends_while_a_task_runs_leaves_the_task_alone(make) -> None:
    worker = make(num_sub_workers=1)
    gate, rows = gated(worker, 1)
    with worker.session() as s:
        handle = s.submit(write_when_open, gate, 3, rows[0])

        async def give_up() -> None:
            waiting = asyncio.ensure_future(_result(handle))
            await pause()
            assert not waiting.done()

        try:
            asyncio.run(give_up())
            assert not handle.done()
        finally:
            gate[0] = 1
        assert run(_result(handle))[0] == 3


def test_loops_of_several_threads_await_the_same_tasks(make) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((40, 8))
    found: list[list[int]] = []

    def wait_for(handles: list[Any]) -> None:
        async def main() -> list[Any]:
            return await asyncio.gather(*handles)

        found.append([int(row[0]) for row in run(main())])

    with worker.session() as s:
        handles = [s.submit(write, i, row) for i, row in enumerate(rows)]
        threads = [threading.Thread(target=wait_for, args=(handles,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
    assert found == [list(range(40))] * 4


def test_a_blocked_loop_does_not_delay_another_loop(make) -> None:
    worker = make(num_sub_workers=1)
    gate, rows = gated(worker, 2)
    waits, is_done = threading.Event(), threading.Event()

    def block() -> None:
        async def main() -> Any:
            second = asyncio.ensure_future(_result(handles[1]))
            await pause()
            waits.set()
            assert is_done.wait(LIMIT_S)  # blocks the loop, which awaits a task
            return await second

        assert run(main())[0] == 2

    with worker.session() as s:
        handles = [s.submit(write_when_open, gate, i + 1, row) for i, row in enumerate(rows)]
        thread = threading.Thread(target=block)
        thread.start()
        assert waits.wait(LIMIT_S)
        gate[0] = 1
        assert run(_result(handles[0]))[0] == 1
        assert run(_result(handles[1]))[0] == 2
        is_done.set()
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def test_tasks_that_have_ended_can_be_awaited(make) -> None:
    worker = make(num_sub_workers=1)
    row = worker.shared_array(8)
    with worker.session() as s:
        handle = s.submit(write, 4, row)
    for _ in range(2):
        assert run(_result(handle))[0] == 4
    worker.close()
    assert run(_result(handle))[0] == 4


def test_failures_are_raised_by_await(make) -> None:
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((2, 8))

    async def main() -> None:
        async with worker.session() as s:
            with pytest.raises(TaskFailedError, match="no luck"):
                await s.submit(fail, rows[0])
        async with worker.session() as s:
            s.submit(fail, rows[0])
            with pytest.raises(TaskPoisonedError):
                await s.submit(copy, rows[0], rows[1])

    run(main())  # the failures are handled


def test_a_child_that_dies_ends_the_await(make) -> None:
    worker = make(num_sub_workers=1)
    row = worker.shared_array(8)

    async def main(submitted: Any, *args: Any) -> Any:
        with worker.session() as s:
            return await s.submit(submitted, *args)

    with pytest.raises(ChildDiedError):
        run(main(die, row))
    assert run(main(write, 5, row))[0] == 5


def test_closing_the_worker_ends_the_await(make) -> None:
    worker = make(num_sub_workers=1)
    gate, rows = gated(worker, 8)
    ends: list[BaseException | None] = []

    async def main(handles: list[Any]) -> list[Any]:
        closer = threading.Timer(0.1, worker.close)
        closer.start()
        found = await asyncio.gather(*handles, return_exceptions=True)
        await asyncio.to_thread(closer.join)
        return found

    def block() -> None:
        with worker.session() as s:
            handles = [s.submit(write_when_open, gate, i, row) for i, row in enumerate(rows)]
            ends.extend(run(main(handles)))

    with pytest.raises(PtoError):
        block()
    assert len(ends) == len(rows)
    assert all(isinstance(end, PtoError | CancelledError) for end in ends), ends
    assert any(isinstance(end, WorkerClosedError) or "closed" in str(end) for end in ends)


def test_a_policy_that_fails_ends_the_await(make) -> None:
    worker = make(num_sub_workers=2, policy=lambda candidates, preferred: 1 // 0)
    row = worker.shared_array(8)

    async def main() -> None:
        with worker.session() as s:
            await s.submit(write, 1, row)

    with pytest.raises(UsageError, match="raised ZeroDivisionError"):
        run(main())


def test_a_worker_has_one_descriptor_for_all_awaits(make) -> None:
    worker = make(num_sub_workers=1)
    gate, rows = gated(worker, 32)

    async def main() -> None:
        with worker.session() as s:
            handles = [s.submit(write_when_open, gate, i, row) for i, row in enumerate(rows)]
            before = event_descriptors()
            waiting = [asyncio.ensure_future(_result(handle)) for handle in handles]
            await pause()
            found = event_descriptors()
            gate[0] = 1
            await asyncio.gather(*waiting)
            assert (before, found) == (0, 1)
            assert event_descriptors() == 0

    for _ in range(2):
        gate[0] = 0
        run(main())


def test_many_awaits_cost_no_more_than_their_tasks(make) -> None:
    """The end of each task wakes only its own coroutine, not all that wait."""
    worker = make(num_sub_workers=1)
    rows = worker.shared_array((3000, 1))

    async def main() -> np.ndarray:
        with worker.session() as s:
            handles = [s.submit(write, i, row) for i, row in enumerate(rows)]
            return np.array(await asyncio.gather(*handles))

    assert (run(main())[:, 0] == np.arange(len(rows))).all()


def test_a_worker_starts_and_ends_without_blocking_the_loop(make, monkeypatch) -> None:
    worker = make(num_sub_workers=1)
    row = worker.shared_array(8)
    may_go_on, called = threading.Event(), []

    def held(name: str) -> None:
        act = getattr(Worker, name)

        def call(self: Worker, *given: Any) -> Any:
            assert may_go_on.wait(10)
            may_go_on.clear()
            called.append(name)
            return act(self, *given)

        patched.setattr(Worker, name, call)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, may_go_on.set)
        async with worker:
            async with worker.session() as s:
                await s.submit(write, 7, row)
            loop.call_later(0.01, may_go_on.set)

    with monkeypatch.context() as patched:
        held("init")
        held("__exit__")
        run(main())
    assert called == ["init", "__exit__"]
    with pytest.raises(WorkerClosedError):
        worker.session().__enter__()


def test_a_session_starts_its_worker_without_blocking_the_loop(make) -> None:
    worker = make(num_sub_workers=1)
    row = worker.shared_array(8)

    async def main() -> int:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0)

        beating = asyncio.ensure_future(beat())
        async with worker.session() as s:
            before_submit = beats
            await s.submit(write, 7, row)
        beating.cancel()
        return before_submit

    assert run(main()) > 2
    assert (row == 7).all()


def test_a_cancelled_start_closes_the_worker(make) -> None:
    worker = make(num_sub_workers=2)

    async def main() -> None:
        start = asyncio.ensure_future(worker.__aenter__())
        await asyncio.sleep(0.005)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await asyncio.to_thread(worker.close)

    run(main())
    with pytest.raises(WorkerClosedError):
        worker.init()
