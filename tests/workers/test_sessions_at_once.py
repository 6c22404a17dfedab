"""Several sessions of one Worker are open at once; each has its own end and its own errors."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from thread_states import CallInThread

from pto_core import InOut, NoDep, Worker, task
from pto_core.errors import (
    DeadlockError,
    TaskFailedError,
    TaskPoisonedError,
    UsageError,
)

LIMIT_S = 60.0
RING_BYTES = 1 << 20


@task
def double(x: int) -> int:
    return 2 * x


@task
def hold(gate: NoDep) -> str:
    while not gate[0]:
        time.sleep(0.001)
    return "held"


@task
def fail(out: InOut) -> None:
    raise ZeroDivisionError("no luck")


@task
def add_one(out: InOut) -> None:
    out += 1


@pytest.fixture
def worker(make: Any) -> Worker:
    made: Worker = make(num_sub_workers=2, heap_ring_size=RING_BYTES)
    made.init()
    return made


def use(worker: Worker, x: int) -> int:
    with worker.session() as s:
        return int(s.submit(double, x).result(LIMIT_S))


# Invariant: The end of a session waits for its own tasks only, also if others are open.
def test_a_session_begins_and_ends_while_another_waits_for_a_task(worker: Worker) -> None:
    gate = worker.shared_array(1)
    with worker.session() as s:
        held = s.submit(hold, gate)
        assert CallInThread(lambda: use(worker, 4)).result() == 8
        assert CallInThread(lambda: worker.map(double, [1, 2])).result() == [2, 4]
        assert use(worker, 5) == 10  # on the same thread
        with worker.executor() as executor:
            assert executor.submit(pow, 2, 3).result(LIMIT_S) == 8
        assert not held.done()
        gate[0] = 1
    assert held.result() == "held"


def test_the_tasks_of_two_threads_need_each_other(worker: Worker) -> None:
    """Each session opens the gate on which a task of the other one waits."""
    gates = worker.shared_array((2, 1))

    def meet(mine: int) -> str:
        with worker.session() as s:
            held = s.submit(hold, gates[mine])
            gates[1 - mine][0] = 1
            return str(held.result(LIMIT_S))

    calls = [CallInThread(lambda mine=mine: meet(mine)) for mine in (0, 1)]  # type: ignore[misc]
    assert [call.result() for call in calls] == ["held", "held"]


def test_sessions_of_two_coroutines_overlap(worker: Worker) -> None:
    async def main() -> list[int]:
        inside = asyncio.Barrier(2)

        async def serve(x: int) -> int:
            async with worker.session() as s:
                await inside.wait()
                return int(await s.submit(double, x))

        return await asyncio.wait_for(asyncio.gather(serve(1), serve(2)), LIMIT_S)

    assert asyncio.run(main()) == [2, 4]


# Invariant: A failure in one session is not raised by another one that is open.
def test_each_session_raises_its_own_failures(worker: Worker) -> None:
    rows = worker.shared_array((2, 4))
    outer = worker.session()
    outer.__enter__()
    outer.submit(fail, rows[0])
    with worker.session() as s:
        s.submit(add_one, rows[1])
    assert (rows[1] == 1).all()
    with pytest.raises(ZeroDivisionError), worker.session() as s:
        s.submit(fail, rows[1])
    with worker.session() as s:
        s.submit(add_one, rows[1])  # the failure was raised, so it poisons no later task
    assert (rows[1] == 2).all()
    with pytest.raises(ZeroDivisionError) as caught:
        outer.__exit__(None, None, None)
    assert caught.value.failures == ()  # type: ignore[attr-defined]


def test_a_task_that_needs_a_failed_task_of_another_session_is_poisoned(worker: Worker) -> None:
    row = worker.shared_array(4)
    with worker.session() as s:
        failed = s.submit(fail, row)
        with (
            pytest.raises(TaskPoisonedError, match=r"because task 0 \(fail"),
            worker.session() as t,
        ):
            t.submit(add_one, row)
        assert isinstance(failed.exception(), TaskFailedError)


def test_an_exception_cancels_only_the_tasks_of_its_block(make: Any) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    with worker.session() as s:
        held, later = s.submit(hold, gate), s.submit(double, 2)
        block = worker.session()
        dropped = block.__enter__().submit(double, 3)
        block.__exit__(KeyError, KeyError(), None)
        assert dropped.cancelled()
        with pytest.raises(CancelledError, match=r"task 2 \(double, .*\) was cancelled"):
            dropped.exception(0)
        assert not held.done()
        gate[0] = 1
        assert later.result(LIMIT_S) == 4


def test_threads_send_requests_to_one_session(worker: Worker) -> None:
    with worker.session() as s, ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda x: s.submit(double, x).result(LIMIT_S), range(40)))
    assert answers == [2 * x for x in range(40)]


def test_runs_with_the_same_hazards_overlap_and_captures_are_refused(worker: Worker) -> None:
    with worker.session() as s:
        worker.run(lambda t: t.submit(double, 1), hazards="full")
        for refused in (
            lambda: worker.run(lambda t: None, hazards="raw"),
            lambda: worker.capture(lambda t: None),
        ):
            with pytest.raises(UsageError, match="which would wait for itself"):
                refused()
        assert s.submit(double, 2).result(LIMIT_S) == 4


# Invariant: A submit that waits for free space is a deadlock only if no open session can free it.
def test_a_submit_waits_for_the_memory_of_another_session(worker: Worker) -> None:
    most = RING_BYTES * 3 // 4

    def fill() -> None:
        with worker.session() as s:
            s.empty(most, "uint8")

    with worker.session() as s:
        s.empty(most, "uint8")
        waiting = CallInThread(fill)
        waiting.await_blocked()
        with pytest.raises(DeadlockError):
            s.empty(most, "uint8")  # both sessions wait
        waiting.await_blocked()
        assert waiting.thread.is_alive()
    waiting.result()


def test_close_ends_all_sessions(make: Any, tmp_path: Path) -> None:
    worker = make(num_sub_workers=1)
    gate = worker.shared_array(1)
    sessions = [worker.session() for _ in range(2)]
    for session in sessions:
        session.__enter__()
        session.submit(hold, gate)
    worker.close()
    for session in sessions:
        with pytest.raises(Exception, match="was closed"):
            session.__exit__(None, None, None)
