"""Retries: the exceptions after which a task runs again, the waits, and the number of attempts."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from lost_children import await_count

from pto_core import (
    ChipCallable,
    InOut,
    Out,
    Retries,
    attempt,
    task,
)
from pto_core.errors import (
    ChildHungError,
    TaskFailedError,
    TaskPoisonedError,
    UsageError,
    WorkerClosedError,
)

WAIT_S = 60
LONG_S = 300.0  # a test that waits so long has failed


class Busy(Exception):
    """An exception with an attribute, which the caller catches by its class."""

    def __init__(self, text: str, *, delay: int) -> None:
        super().__init__(text)
        self.delay = delay


class VeryBusy(Busy):
    pass


def note(log: Path) -> None:
    with log.open("a") as file:
        file.write(f"{attempt()} {time.monotonic()}\n")


def attempts(log: Path) -> list[int]:
    return [int(line.split()[0]) for line in log.read_text().splitlines()]


@task
def flaky(log: Path, kind: type[Exception], failures: int) -> int:
    """Raise in the first attempts, then return the number of the attempt."""
    note(log)
    if attempt() <= failures:
        raise kind("not yet")
    return attempt()


@task(retries=Retries(2, on=(OSError, TimeoutError)))
def declared(log: Path, kind: type[Exception]) -> None:
    note(log)
    raise kind("no luck today")


@task
def add_and_fail(x: InOut, failures: int) -> None:
    x += 1
    if attempt() <= failures:
        raise OSError("half-way")


@task
def raise_busy(log: Path) -> None:
    note(log)
    raise VeryBusy("come back later", delay=3)


@task(retries=1)
def busy_once(log: Path) -> int:
    note(log)
    if attempt() == 1:
        raise OSError("busy")
    return attempt()


@task
def fill(out: Out, value: int) -> None:
    out[:] = value


@task
def double(x: int) -> int:
    return 2 * x


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def await_true(is_true: Any) -> None:
    """Wait for an event of another process."""
    end = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.001)


def await_delay(worker: Any, log: Path, count: int = 1) -> None:
    """Wait until an attempt has failed, and the task waits outside of the child."""
    await_true(lambda: log.exists() and len(attempts(log)) == count)
    await_true(lambda: worker.statistics()["in_flight"] == 0)


# ---- which exceptions ----


# Invariant: A task runs again only after an exception of a class in `on`.
def test_only_the_named_exceptions_permit_another_attempt(make, log) -> None:
    worker = make(num_sub_workers=2)
    again = Retries(3, on=(OSError, TimeoutError))
    with worker.session() as s:
        assert s.submit(flaky, log, OSError, 2, retries=again).result() == 3
        assert attempts(log) == [1, 2, 3]
        log.unlink()
        assert s.submit(flaky, log, ConnectionError, 1, retries=again).result() == 2
        log.unlink()
        handle = s.submit(flaky, log, ValueError, 1, retries=again)
        with pytest.raises(ValueError, match="not yet"):
            handle.result()
        assert attempts(log) == [1], "a ValueError is final"
        log.unlink()
        error = s.submit(flaky, log, OSError, 9, retries=again).exception()
        assert isinstance(error, OSError)
        assert attempts(log) == [1, 2, 3, 4]


def test_a_task_states_its_retries_and_a_submit_overrides_them(make, log) -> None:
    worker = make(num_sub_workers=1)
    assert declared.retries == 2
    with worker.session() as s:
        for kind, options, expected in (
            (OSError, {}, [1, 2, 3]),
            (ValueError, {}, [1]),
            (ValueError, {"retries": 1}, [1, 2]),
            (OSError, {"retries": 0}, [1]),
            (ValueError, {"retries": Retries(1, on=ValueError)}, [1, 2]),
            (OSError, {"retries": Retries(1, on=())}, [1]),
        ):
            log.unlink(missing_ok=True)
            assert isinstance(s.submit(declared, log, kind, **options).exception(), kind)
            assert attempts(log) == expected


@task
def leave_the_interpreter(log: Path) -> None:
    note(log)
    if attempt() == 1:
        raise SystemExit("an exception of any class")


def test_a_number_permits_every_exception(make, log) -> None:
    worker = make(num_sub_workers=1)
    with worker.session() as s:
        s.submit(leave_the_interpreter, log, retries=1).result()
        assert attempts(log) == [1, 2]
        s.submit(leave_the_interpreter, log, retries=Retries(1)).result()


def test_the_number_is_1_without_retries_and_outside_of_a_task(make, log) -> None:
    worker = make(num_sub_workers=1)
    assert attempt() == 1
    assert flaky(log, OSError, 0) == 1
    with worker.session() as s:
        assert s.submit(flaky, log, OSError, 1, retries=2).result() == 2
        assert s.submit(flaky, log, OSError, 0).result() == 1, "the number of another task"


def test_a_final_failure_is_of_the_class_of_the_program(make, log) -> None:
    worker = make(num_sub_workers=1)
    with worker.session() as s:
        handle = s.submit(raise_busy, log, retries=Retries(3, on=OSError))
        reader = s.submit(double, handle)
        with pytest.raises(Busy, match="come back later") as caught:
            handle.result()
        error: Any = caught.value
        assert isinstance(error, TaskFailedError)
        assert (error.delay, type(error.__cause__)) == (3, VeryBusy)
        assert "raise_busy" in (error.remote_traceback or "")
        assert isinstance(reader.exception(), TaskPoisonedError)
    with pytest.raises(Busy), worker.session() as s:
        s.submit(raise_busy, log, retries=Retries(1, on=Busy))
    assert attempts(log) == [1, 1, 2]


class Unpicklable(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


@task
def raise_unpicklable(log: Path) -> None:
    note(log)
    raise Unpicklable("only its text remains")


def test_an_exception_that_cannot_be_pickled_is_compared_in_the_child(make, log) -> None:
    worker = make(num_sub_workers=1)
    with worker.session() as s:
        handle = s.submit(raise_unpicklable, log, retries=Retries(1, on=Unpicklable))
        error = handle.exception()
        assert type(error) is TaskFailedError
        assert "Unpicklable: only its text remains" in str(error)
        assert "raise_unpicklable" in (error.remote_traceback or "")
    assert attempts(log) == [1, 2]


PROGRAM = """
from pto_core import Retries, Worker, attempt, task

class Mine(Exception):
    pass

@task(retries=Retries(1, on=Mine))
def once():
    if attempt() == 1:
        raise Mine("the first time")
    return attempt()

@task
def twice():
    raise Mine(f"attempt {attempt()}")

if __name__ == "__main__":
    with Worker(3, num_sub_workers=1, start_method="METHOD") as worker:
        with worker.session() as s:
            print(s.submit(once).result())
            try:
                s.submit(twice, retries=Retries(1, on=(Mine,))).result()
            except Mine as error:
                print(type(error.__cause__).__name__, error.args)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_classes_of_a_program_are_known_in_its_children(tmp_path, method) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("METHOD", method))
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.stdout == "2\nMine ('attempt 2',)\n", done.stderr


# ---- arrays, groups, lost children ----


@pytest.mark.parametrize("backoff_s", [0, 0.01])
def test_arrays_are_restored_before_each_attempt(make, backoff_s) -> None:
    worker = make(num_sub_workers=2)
    x = worker.shared_array(8)
    x[:] = 5
    with worker.session() as s:
        s.submit(add_and_fail, x, 2, retries=Retries(2, on=OSError, backoff_s=backoff_s))
        s.submit(add_and_fail, x, 0)
    assert (x == 7).all()


def test_a_group_is_repeated_as_one_task(make) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((2, 4))
    with worker.session() as s:
        members = [(row, failures) for row, failures in zip(rows, (2, 0), strict=True)]
        s.submit_group(
            add_and_fail, members, retries=Retries(2, on=OSError, backoff_s=0.01)
        ).result()
        assert (rows == 1).all()
        handle = s.submit_group(add_and_fail, members, retries=Retries(2, on=ValueError))
        assert isinstance(handle.exception(), OSError)


@task
def die_or_hang(log: Path, hangs: bool) -> int:
    note(log)
    if attempt() < 3:
        if hangs:
            time.sleep(LONG_S)
        os.kill(os.getpid(), signal.SIGKILL)
    return attempt()


def test_the_death_of_a_child_permits_another_attempt(make, log) -> None:
    worker = make(num_sub_workers=1, on_worker_death="restart")
    with worker.session() as s:
        retries = Retries(2, on=ValueError, backoff_s=LONG_S)
        assert s.submit(die_or_hang, log, False, retries=retries).result() == 3
        assert attempts(log) == [1, 2, 3]
    assert await_count(worker, "deaths", 2) == 2


def test_a_time_limit_counts_for_each_attempt(make, log) -> None:
    worker = make(num_sub_workers=1, on_worker_death="restart")
    with worker.session() as s:
        handle = s.submit(die_or_hang, log, True, retries=Retries(2, on=()), timeout_s=0.2)
        assert handle.result() == 3
        log.unlink()
        handle = s.submit(die_or_hang, log, True, retries=Retries(1, on=()), timeout_s=0.2)
        assert isinstance(handle.exception(), ChildHungError)
        assert attempts(log) == [1, 2]


# ---- the wait before an attempt ----


def test_each_wait_is_twice_as_long(make, log) -> None:
    worker = make(num_sub_workers=2)
    with worker.session() as s:
        retries = Retries(3, on=OSError, backoff_s=0.05)
        s.submit(flaky, log, OSError, 3, retries=retries, timeout_s=WAIT_S).result()
    times = [float(line.split()[1]) for line in log.read_text().splitlines()]
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert len(waits) == 3
    assert all(wait >= least for wait, least in zip(waits, (0.05, 0.1, 0.2), strict=True))


@pytest.mark.parametrize(
    ("number", "expected"), [(1, 250), (2, 500), (3, 1000), (13, 600_000), (10**6, 600_000)]
)
def test_a_wait_has_a_bound(number, expected) -> None:
    assert Retries(9, backoff_s=0.25).wait_ms(OSError(), number) == expected


def test_a_trace_has_each_attempt(make, log) -> None:
    worker = make(num_sub_workers=1)
    with worker.trace() as trace, worker.session() as s:
        s.submit(flaky, log, OSError, 2, retries=Retries(2, on=OSError, backoff_s=0.05))
    assert trace.missing == ()
    rows = trace.tasks
    assert rows["result"].tolist() == [1, 1, 0]
    assert (rows["start"][1:] - rows["end"][:-1] >= 50_000_000).all()


# Invariant: A task that waits before its next attempt occupies no child, and the program can cancel
# it.
def test_other_tasks_run_during_the_wait_which_a_cancel_ends(make, log) -> None:
    worker = make(num_sub_workers=1)
    for _ in range(8):
        log.unlink(missing_ok=True)
        begin = time.monotonic()
        with worker.session() as s:
            handle = s.submit(flaky, log, OSError, 9, retries=Retries(9, backoff_s=LONG_S))
            reader = s.submit(double, handle)
            others = [s.submit(double, n) for n in range(20)]
            assert [one.result(WAIT_S) for one in others] == [2 * n for n in range(20)]
            await_delay(worker, log)
            assert not handle.done()
            assert handle.cancel()
            assert handle.cancelled()
            assert handle.done()
            with pytest.raises(CancelledError):
                handle.result()
            with pytest.raises(TaskPoisonedError):
                reader.result(WAIT_S)
        assert attempts(log) == [1]
        assert time.monotonic() - begin < LONG_S / 2


def test_an_error_of_the_block_ends_the_wait(make, log) -> None:
    worker = make(num_sub_workers=1)
    begin = time.monotonic()
    for _ in range(8):
        log.unlink(missing_ok=True)
        with pytest.raises(KeyError), worker.session() as s:  # noqa: PT012
            s.submit(flaky, log, OSError, 9, retries=Retries(9, backoff_s=LONG_S))
            await_delay(worker, log)
            raise KeyError("the program has failed")
        assert attempts(log) == [1]
    assert time.monotonic() - begin < LONG_S / 2
    with worker.session() as s:
        assert s.submit(double, 4).result() == 8


def test_close_ends_the_wait(make, log) -> None:
    worker = make(num_sub_workers=1)
    with pytest.raises(WorkerClosedError), worker.session() as s:  # noqa: PT012
        s.submit(flaky, log, OSError, 9, retries=Retries(9, backoff_s=LONG_S))
        await_delay(worker, log)
        worker.close()


def test_a_task_runs_again_while_the_program_does_not_wait(make, log) -> None:
    worker = make(num_sub_workers=1)
    ended = threading.Event()
    with worker.session() as s:
        handle = s.submit(flaky, log, OSError, 3, retries=Retries(3, backoff_s=0.02))
        await_true(lambda: log.exists() and len(attempts(log)) == 4)
        handle.add_done_callback(lambda _: ended.set())
        assert ended.wait(WAIT_S)


def test_a_blocked_submit_waits_for_a_task_that_waits(make) -> None:
    worker = make(num_sub_workers=1, heap_ring_size=1 << 20)
    with worker.session() as s:
        for _ in range(3):
            with s.scope():
                large = s.empty(150_000)
                s.submit(add_and_fail, fill_first(s, large), 1, retries=Retries(1, backoff_s=0.05))


def fill_first(s: Any, array: Any) -> Any:
    s.submit(fill, array, 1)
    return array


@task
def roll(numbers: InOut, seed: int) -> int:
    """Add 1; fail, fail for good, or succeed, as a random number decides."""
    numbers += 1
    chosen = random.Random(f"{seed} {attempt()}").random()
    if chosen < 0.4:
        raise OSError("again")
    if chosen < 0.5:
        raise ValueError("final")
    return attempt()


def expected_end(seed: int, retries: int) -> int | type[Exception]:
    for number in range(1, retries + 2):
        chosen = random.Random(f"{seed} {number}").random()
        if 0.4 <= chosen < 0.5:
            return ValueError
        if chosen >= 0.5:
            return number
    return OSError


@pytest.mark.parametrize("seed", range(8))
def test_many_tasks_with_waits_end_as_their_attempts_decide(make, seed) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((60, 4))
    retries = Retries(3, on=OSError, backoff_s=0.003)
    with worker.session() as s:
        handles = [
            s.submit(roll, row, 1000 * seed + number, retries=retries)
            for number, row in enumerate(rows)
        ]
        for number, handle in enumerate(handles):
            expected = expected_end(1000 * seed + number, 3)
            if isinstance(expected, int):
                assert handle.result(WAIT_S) == expected
                assert (rows[number] == 1).all()
            else:
                assert isinstance(handle.exception(WAIT_S), expected)


@pytest.mark.parametrize("seed", range(8))
def test_tasks_are_cancelled_at_any_time(make, seed) -> None:
    worker = make(num_sub_workers=2)
    rows = worker.shared_array((40, 4))
    chosen = random.Random(seed)
    with worker.session() as s:
        for number, row in enumerate(rows):
            handle = s.submit(
                roll, row, 1000 * seed + number, retries=Retries(9, on=OSError, backoff_s=0.002)
            )
            time.sleep(chosen.choice((0, 0.0005, 0.002)))
            if handle.cancel():
                with pytest.raises(CancelledError):
                    handle.result(WAIT_S)
            else:
                with contextlib.suppress(TaskFailedError, CancelledError):
                    handle.result(WAIT_S)
    with worker.session() as s:
        assert s.submit(double, 4).result() == 8


# ---- what is refused ----


@pytest.mark.parametrize(
    ("make_retries", "message"),
    [
        (lambda: Retries(-1), "retries is -1; set how often"),
        (lambda: Retries("3"), "retries is '3'; set how often"),
        (lambda: Retries(3, on=[OSError]), r"on contains \[<class 'OSError'>\].*pass one class"),
        (lambda: Retries(3, on=(OSError, "x")), "on contains 'x', which is not an exception class"),
        (lambda: Retries(3, on=int), "is not an exception class; pass one class or a tuple"),
        (lambda: Retries(3, backoff_s=-1), "backoff_s is -1; pass the seconds .* from 0 to 600"),
        (lambda: Retries(3, backoff_s=601), "backoff_s is 601; pass the seconds"),
        (lambda: Retries(3, backoff_s=float("nan")), "backoff_s is nan; pass the seconds"),
        (lambda: Retries(3, backoff_s="1s"), "backoff_s is '1s'; pass the seconds"),
        (lambda: Retries(3, delay_s=1), r"Retries has no parameter 'delay_s'; write Retries\(3"),
        (lambda: task(retries="two")(len), r"retries is 'two'; .*pto_core.Retries\(3"),
    ],
)
def test_a_mistake_names_what_to_write(make_retries, message) -> None:
    with pytest.raises(UsageError, match=message):
        make_retries()


def on_chip(orch: Any, args: Any, config: Any) -> None:
    pass


def test_only_a_task_of_python_takes_retries_with_conditions(make) -> None:
    chip = ChipCallable(on_chip)
    worker = make(num_sub_workers=1, device_ids=[0])
    with worker.session() as s:
        with pytest.raises(UsageError, match="retries is 'x'"):
            s.submit(double, 1, retries="x")
        with pytest.raises(UsageError, match=r"on_chip is not a @task.*pass retries=2, which"):
            s.submit(chip, retries=Retries(2))
        with pytest.raises(UsageError, match=r"on_chip is not a @task.*pass retries=2, which"):
            s.submit_group(chip, [()], retries=Retries(2))


def test_a_map_repeats_the_call_that_failed(make, tmp_path) -> None:
    worker = make(num_sub_workers=2)
    logs = [tmp_path / str(number) for number in range(5)]
    assert worker.map(busy_once, logs) == [2] * 5
    assert [attempts(log) for log in logs] == [[1, 2]] * 5
    with pytest.raises(UsageError, match="a @task with retries, or with a parameter Out"):
        worker.map(busy_once, logs, chunksize=2)
