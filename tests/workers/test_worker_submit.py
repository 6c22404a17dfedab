"""``worker.submit()`` submits to a session that begins by itself and ends with the Worker."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from thread_states import CallInThread

from pto_core import InOut, Out, Worker, task
from pto_core.errors import (
    TaskFailedError,
    TaskPoisonedError,
    UsageError,
    WorkerClosedError,
)

LIMIT_S = 60.0


@task
def double(x: Any, *, times: int = 1) -> Any:
    return 2 * x * times


@task
def inverse(x: float) -> float:
    return 1 / x


@task
def hold(gate: Path) -> str:
    while not gate.exists():
        time.sleep(0.001)
    return "held"


@task
def mark(path: Path) -> None:
    path.touch()


@task
def add_one(out: InOut) -> None:
    out += 1


@task
def fail_with(out: InOut) -> None:
    raise KeyError


@task
def repaired(out: Out) -> None:
    """Do nothing: the program has repaired the array."""


@pytest.fixture
def worker(make: Any) -> Worker:
    made: Worker = make(num_sub_workers=2)
    return made


def test_submits_need_no_block(worker: Worker) -> None:
    first = worker.submit(double, "a", times=2)
    assert worker.submit(double, [first]).result(LIMIT_S) == ["aaaa"] * 2
    slow = worker.options(timeout_s=LIMIT_S)
    assert slow.submit(double, 3, times=3).result(LIMIT_S) == 18
    x = worker.array([1.0, 2.0])
    for _ in range(3):
        last = worker.submit(add_one, x)
    assert last.result(LIMIT_S).tolist() == [4.0, 5.0]
    with worker.session() as s:  # beside it; a result passes between both
        mixed = worker.submit(double, s.submit(double, 1))
        assert worker.map(len, ["a"]) == [1]
        assert s.submit(double, mixed).result(LIMIT_S) == 8


def test_the_errors_are_those_of_a_session(worker: Worker) -> None:
    for wrong in (
        lambda s: s.submit(double(1)),
        lambda s: s.submit(len, "a"),
        lambda s: s.submit(double, 1, wrong=2),
        lambda s: s.submit(double, (worker.shared_array(1),), 3),
        lambda s: s.submit(add_one, 3),
    ):
        with pytest.raises(UsageError) as ours:
            wrong(worker)
        with pytest.raises(UsageError) as others, worker.session() as s:
            wrong(s)
        assert str(ours.value) == str(others.value)
    failed = worker.submit(inverse, 0)
    assert isinstance(worker.submit(double, failed).exception(LIMIT_S), TaskPoisonedError)
    with pytest.raises(ZeroDivisionError):
        failed.result(LIMIT_S)


# Invariant: The end of the Worker waits for all tasks and raises a failure that was not taken.
@pytest.mark.parametrize("is_block", [True, False])
def test_the_end_of_the_worker_waits_and_raises(make: Any, tmp_path: Path, is_block: bool) -> None:
    worker = make(num_sub_workers=1)
    gate = tmp_path / "gate"
    assert isinstance(worker.submit(inverse, 0).exception(), TaskFailedError)
    held, _ = worker.submit(hold, gate), worker.submit(double, 2)
    worker.submit(inverse, 0)
    end = CallInThread((lambda: worker.__exit__(None, None, None)) if is_block else worker.close)
    end.await_blocked()
    assert end.thread.is_alive()
    gate.touch()
    with pytest.raises(ZeroDivisionError, match="task 3"):
        end.result()
    assert held.result() == "held"
    with pytest.raises(WorkerClosedError):
        worker.submit(double, 1)
    worker.close()


def test_an_exception_in_the_block_of_the_worker_cancels(worker: Worker, tmp_path: Path) -> None:
    gate, path = tmp_path / "gate", tmp_path / "mark"
    seen: list[bool] = []
    for _ in range(2):
        worker.submit(hold, gate)
    marked = worker.submit(mark, path)
    marked.add_done_callback(lambda handle: seen.append(handle.cancelled()))
    opened = CallInThread(lambda: (marked.wait(LIMIT_S), gate.touch()))
    worker.__exit__(KeyError, KeyError(), None)
    opened.result()
    assert concurrent.futures.wait([marked]).done == {marked}
    assert marked.cancelled()
    assert seen == [True]
    with pytest.raises(CancelledError):
        marked.result()
    assert not path.exists()


# Invariant: A call that cannot run beside the session ends it first, and a submit begins another.
def test_a_call_that_needs_the_worker_alone_waits_for_the_tasks(
    worker: Worker, tmp_path: Path
) -> None:
    row, handle = worker.shared_array(4), worker.register(print)

    def program(s: Any) -> None:
        s.submit(add_one, row)

    captured = worker.capture(program)
    calls = (
        lambda: worker.capture(program),
        lambda: worker.graph(program),
        lambda: worker.replay(captured),
        lambda: worker.run(lambda orch, args, config: None),
        lambda: worker.run(program, hazards="raw"),
        lambda: worker.session(hazards="check").__enter__().__exit__(None, None, None),
        lambda: worker.unregister(handle),
    )
    for number, call in enumerate(calls):
        gate = tmp_path / f"{number}"
        held = worker.submit(hold, gate)
        made = CallInThread(call)
        made.await_blocked()
        assert not held.done()
        gate.touch()
        made.result()
        assert held.done()
    assert (row == 2).all()
    worker.submit(inverse, 0)
    with pytest.raises(ZeroDivisionError):
        worker.capture(program)
    held = worker.submit(hold, tmp_path / "last")
    worker.run(program)  # with full hazards, so it does not wait
    assert not held.done()
    (tmp_path / "last").touch()
    with pytest.raises(UsageError, match="inside a capture"):
        worker.capture(lambda s: worker.submit(double, 1))


def test_an_array_of_a_failed_task_is_usable_after_a_task_that_writes_it(worker: Worker) -> None:
    x = worker.array([1.0, 2.0])
    assert isinstance(worker.submit(fail_with, x).exception(), KeyError)
    with worker.session() as s:  # beside the session of the failed task
        for submitter in (worker, s):
            error = submitter.submit(add_one, x).exception()
            assert isinstance(error, TaskPoisonedError)
            assert str(error).endswith("a task that has the array as Out can replace it")
        x[:] = 5
        s.submit(repaired, x)
        assert s.submit(add_one, x).result(LIMIT_S).tolist() == [6, 6]
    assert worker.submit(add_one, x).result(LIMIT_S).tolist() == [7, 7]


def test_threads_and_coroutines_submit(worker: Worker, tmp_path: Path) -> None:
    calls = [
        CallInThread(lambda: [worker.submit(double, n).result(LIMIT_S) for n in range(50)])
        for _ in range(4)
    ]
    assert [call.result() for call in calls] == [[2 * n for n in range(50)]] * 4

    gate = tmp_path / "gate"

    async def main() -> list[Any]:
        async with Worker(3, num_sub_workers=1) as made:
            found = await asyncio.gather(*(made.submit(double, n) for n in range(3)))
            held = made.submit(hold, gate)
            asyncio.get_running_loop().call_later(0.01, gate.touch)
        return [*found, held.result(0)]  # the end of the block did not stop the event loop

    assert asyncio.run(main()) == [0, 2, 4, "held"]
