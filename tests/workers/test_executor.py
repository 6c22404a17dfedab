"""``worker.executor()`` is an Executor of ``concurrent.futures``."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from thread_states import await_blocked

from pto_core import InOut, Out, attempt, task
from pto_core.errors import ChildDiedError, TaskFailedError, UsageError

WAIT_S = 30


def double(x: Any) -> Any:
    return 2 * x


def mark(path: Path) -> None:
    with path.open("a") as file:
        file.write("x")


def hold(gate: Path, began: Path) -> str:
    """Say that the call has begun, and wait until the test creates the gate."""
    mark(began)
    while not gate.exists():
        time.sleep(0.001)
    return "held"


def options(*args: int, **keywords: int) -> tuple[tuple[int, ...], dict[str, int]]:
    return args, keywords


def await_true(is_true: Any) -> None:
    end = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture
def worker(make) -> Any:
    return make(num_sub_workers=2)


@pytest.fixture
def held(worker, tmp_path) -> Any:
    """Create an executor whose only child is held by a call until ``gate`` is called."""
    executor = worker.executor()
    gate = tmp_path / "gate"
    executor.gate = gate.touch
    executor.first = [executor.submit(hold, gate, tmp_path / f"began{n}") for n in range(2)]
    await_true(lambda: all((tmp_path / f"began{n}").exists() for n in range(2)))
    yield executor
    gate.touch()
    executor.shutdown()


def test_calls_run_in_children(worker) -> None:
    with worker.executor() as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        handle = executor.submit(double, 4)
        assert isinstance(handle, concurrent.futures.Future)
        assert handle.result(WAIT_S) == 8
        assert executor.submit(os.getpid).result(WAIT_S) != os.getpid()
        assert executor.submit(options, 1, 2, fn=3, worker=4, self=5).result(WAIT_S) == (
            (1, 2),
            {"fn": 3, "worker": 4, "self": 5},
        )


def test_the_results_remain_after_the_shutdown(worker) -> None:
    with worker.executor() as executor:
        handles = [executor.submit(double, n) for n in range(100)]
    assert [handle.result(0) for handle in handles] == [2 * n for n in range(100)]


def test_a_handle_is_an_argument(worker) -> None:
    with worker.executor() as executor:
        first = executor.submit(double, np.arange(3))
        assert executor.submit(sum, [executor.submit(double, 1), 3]).result(WAIT_S) == 5
        assert np.array_equal(executor.submit(double, first).result(WAIT_S), [0, 4, 8])


def test_a_failure_is_in_its_handle_only(worker) -> None:
    with worker.executor() as executor:
        failed = executor.submit(divmod, 1, 0)
        assert executor.submit(double, 1).result(WAIT_S) == 2
    with pytest.raises(ZeroDivisionError):
        failed.result()
    with worker.executor() as executor:
        died = executor.submit(os._exit, 3)
    assert isinstance(died.exception(), ChildDiedError)


def test_what_cannot_be_pickled_is_refused_at_the_submit(worker) -> None:
    with worker.executor() as executor:
        with pytest.raises(UsageError, match="cannot be pickled"):
            executor.submit(double, threading.Lock())
        assert executor.submit(double, 1).result(WAIT_S) == 2


def test_map_returns_results_in_order(worker) -> None:
    with worker.executor() as executor:
        for chunksize in (1, 3, 100):
            found = executor.map(pow, range(10), range(20), chunksize=chunksize)
            assert list(found) == [n**n for n in range(10)]
            assert list(executor.map(double, [], chunksize=chunksize)) == []
        found = executor.map(divmod, [1, 1, 1, 1], [1, 1, 0, 1], chunksize=1)
        assert [next(found), next(found)] == [(1, 0), (1, 0)]
        with pytest.raises(ZeroDivisionError):
            next(found)


def test_map_refuses_a_chunksize_below_one(worker) -> None:
    with worker.executor() as executor, pytest.raises(ValueError, match="pass 1 or more"):
        executor.map(double, [1], chunksize=0)


def test_map_raises_timeout_error_and_cancels(held, tmp_path) -> None:
    found = held.map(mark, [tmp_path / "ran"] * 3, timeout=0.05)
    with pytest.raises(TimeoutError):
        next(found)
    held.gate()
    held.shutdown()
    assert not (tmp_path / "ran").exists()


def test_map_raises_timeout_error_if_the_program_asks_after_the_time_limit(worker) -> None:
    with worker.executor() as executor:
        found = executor.map(time.sleep, [0, 1], timeout=0.2)
        assert next(found) is None
        time.sleep(0.3)
        with pytest.raises(TimeoutError):
            next(found)


def test_submits_after_the_shutdown_are_refused(worker) -> None:
    unused = worker.executor()
    unused.shutdown()
    for executor in (unused, worker.executor()):
        executor.shutdown()
        executor.shutdown(wait=False)
        with pytest.raises(RuntimeError, match="shut down"):
            executor.submit(double, 1)


def test_shutdown_without_wait_lets_the_calls_end(held) -> None:
    later = held.submit(double, 3)
    held.shutdown(wait=False)
    assert not later.done()
    held.gate()
    assert later.result(WAIT_S) == 6
    held.shutdown()
    assert [one.result(0) for one in held.first] == ["held", "held"]


def test_shutdown_cancels_what_has_not_begun(held, tmp_path) -> None:
    handles = [held.submit(mark, tmp_path / "ran") for _ in range(200)]
    held.shutdown(wait=False, cancel_futures=True)
    assert all(one.cancelled() for one in handles)
    held.gate()
    held.shutdown()
    assert [one.result() for one in held.first] == ["held", "held"]
    with pytest.raises(CancelledError):
        handles[0].result()
    assert not (tmp_path / "ran").exists()


def test_sessions_run_beside_an_executor_and_captures_after_it(worker) -> None:
    with worker.executor() as executor:
        executor.submit(double, 1)
        with pytest.raises(UsageError, match="inside a run"):
            worker.capture(lambda session: None)
        assert worker.map(double, [1]) == [2]
    worker.capture(lambda session: None)
    with worker.executor() as executor:
        assert executor.submit(double, 1).result(WAIT_S) == 2


def test_threads_share_an_executor(worker) -> None:
    with worker.executor() as executor:
        sums: list[int] = []

        def use() -> None:
            sums.append(sum(executor.map(double, range(50))))

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert sums == [2450] * 4


def test_an_event_loop_uses_the_executor(worker) -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        with worker.executor() as executor:
            calls = [loop.run_in_executor(executor, double, n) for n in range(10)]
            return await asyncio.gather(*calls)

    assert asyncio.run(main()) == [2 * n for n in range(10)]


def test_a_closed_worker_ends_the_executor(worker, tmp_path) -> None:
    executor = worker.executor()
    handle = executor.submit(hold, tmp_path / "gate", tmp_path / "began")
    worker.close()
    executor.shutdown()
    assert handle.exception() is not None


def test_as_completed_of_the_worker(worker) -> None:
    with worker.executor() as executor:
        handles = [executor.submit(double, n) for n in range(10)]
        found = list(worker.as_completed(handles, timeout=WAIT_S))
        assert set(found) == set(handles)
        assert list(worker.as_completed(handles[::-1] + handles)) == handles[::-1]
        with pytest.raises(TimeoutError):
            list(worker.as_completed([executor.submit(time.sleep, 0.5)], timeout=0.01))


def test_a_second_shutdown_waits_for_the_calls_too(make, tmp_path) -> None:
    executor = make(num_sub_workers=1).executor()
    may_end = tmp_path / "may_end"
    call = executor.submit(hold, may_end, tmp_path / "began")
    executor.shutdown(wait=False)
    second = threading.Thread(target=executor.shutdown)
    second.start()
    second.join(0.1)
    assert second.is_alive()
    may_end.touch()
    second.join(WAIT_S)
    assert not second.is_alive()
    assert call.done()


def test_a_thread_with_a_session_does_not_wait_for_a_thread_that_needs_its_end(
    make, monkeypatch
) -> None:
    monkeypatch.setattr("pto_core.worker.session._PATIENCE_S", 0.2)
    worker = make(num_sub_workers=1)
    executor = worker.executor()
    results = []
    first = threading.Thread(target=lambda: results.append(executor.submit(abs, -1).result()))
    with worker.session(hazards="raw"):  # with other hazards than the executor
        first.start()
        await_blocked(first.native_id)
        with pytest.raises(UsageError, match="another thread waits to begin the session"):
            executor.submit(abs, -2)
    first.join(WAIT_S)
    executor.shutdown()
    assert results == [1]


def fail(item: int) -> None:
    raise ValueError(item)


def made(item: int) -> Any:
    return threading.Lock()


def test_tasks_have_the_name_of_the_function_of_the_program(worker) -> None:
    with pytest.raises(TaskFailedError, match=r"the value that made returned"):
        worker.map(made, [1])
    with worker.trace() as trace:
        with pytest.raises(TaskFailedError, match=r"in task 1 \(fail, "):
            worker.map(fail, [1], chunksize=1)
        assert worker.map(double, [1]) == [2]
        with worker.executor() as executor:
            assert executor.submit(hold, Path("/"), Path(os.devnull)).result() == "held"
            assert list(executor.map(double, [1, 2], chunksize=2)) == [2, 4]
    names = {name.partition(" ")[0] for name in trace.callables}
    assert names == {"made", "fail", "double", "hold"}


def test_calls_of_an_executor_that_no_variable_keeps_run(make) -> None:
    worker = make(num_sub_workers=1)
    handles = [worker.executor().submit(pow, 2, number) for number in range(20)]
    assert [handle.result() for handle in handles] == [2**number for number in range(20)]


@task
def add_one(x: InOut) -> None:
    x += 1


@task
def fill(value: float, out: Out) -> None:
    out[:] = value


@task
def fill_with_options(out: Out, *, retries: int, **more: int) -> None:
    out[:] = retries, more["worker"]


@task(retries=1)
def fail_first(x: int, *, more: int = 0) -> tuple[int, int]:
    if attempt() == 1:
        raise OSError
    return x, more


def test_tasks_of_map_and_executors_write_arrays_and_run_again(worker) -> None:
    x, y = worker.array([1.0, 2.0]), worker.array([3.0, 4.0])
    first, second = worker.map(add_one, [x, y])
    assert (first is x, second is y, x.tolist(), y.tolist()) == (True, True, [2, 3], [4, 5])
    with pytest.raises(UsageError, match=r"add_one is a @task .* parameter Out or InOut"):
        worker.map(add_one, [x, y], chunksize=2)
    with pytest.raises(UsageError, match=r"Worker.shared_array\(shape") as refused:
        worker.map(add_one, [x, np.ones(2)])
    assert refused.value.__notes__ == ["items[1] of map is array([1., 1.])"]
    with worker.executor() as executor:
        assert executor.submit(fill_with_options, x, retries=7, worker=9).result(WAIT_S)[1] == 9
        assert executor.submit(fill, 7, out=x).result(WAIT_S).tolist() == [7, 7]
        assert len(list(executor.map(add_one, [x, y], chunksize=2))) == 2
        assert executor.submit(fail_first, 3).result(WAIT_S) == (3, 0)
        keywords = functools.partial(fail_first, more=4)
        assert list(executor.map(keywords, [1, 2], chunksize=2)) == [(1, 4), (2, 4)]
    assert (x.tolist(), y.tolist()) == ([8, 8], [5, 6])


def fails_for_7(item: int, more: int = 0) -> int:
    if item == 7:
        raise ValueError("no")
    return item + more


def test_the_item_for_which_map_fails_has_its_number_in_the_whole_sequence(worker) -> None:
    with pytest.raises(UsageError, match=r"^items\[17\]\[0\] is <unlocked"):
        worker.map(len, [[1]] * 17 + [[threading.Lock()]])
    with worker.executor() as executor:
        for call in (
            lambda: worker.map(fails_for_7, range(20)),
            lambda: worker.map(task(fails_for_7, retries=1), range(20)),
            lambda: list(executor.map(fails_for_7, range(20), range(20), chunksize=3)),
        ):
            with pytest.raises(ValueError, match="no") as caught:
                call()
            assert "items[7] of map is" in "".join(caught.value.__notes__)
