"""Tasks that wait in a child: they move to an idle child, or do not run because they are cancelled.

The tasks wait for each other by shared arrays, so a test that fails ends at the time limit of a
task instead of depending on times.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

from pto_core import In, Out, Worker, task
from pto_core.errors import TaskPoisonedError

LIMIT_S = 20


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s, "what the task waits for did not happen"
        time.sleep(0.001)


def words_of(path: str) -> np.ndarray:
    """Return the words that tasks share beside the order that the engine gives them."""
    return np.memmap(path, np.float32, "r+")


@task
def until(path: str, place: int, value: float):
    words = words_of(path)
    wait_for(lambda: bool(words[place] >= value))


@task
def count(path: str, place: int):
    words_of(path)[place] += 1


@task
def fill(out: Out, value: float):
    out[:] = value


@task
def copy(x: In, out: Out):
    out[:] = x


@pytest.fixture
def worker():
    worker = Worker(level=3, num_sub_workers=2, task_timeout_s=2 * LIMIT_S)
    for function in (until, count, fill, copy, pause, note_process):
        worker.register(function)
    with worker:
        yield worker


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "words").write_bytes(bytes(4 * 512))
    return str(tmp_path / "words")


# Invariant: No child of a Worker is idle while a task that may run on it waits in another child
# behind a task that runs for long.
def test_tasks_behind_a_long_one_run_in_the_idle_child(worker: Worker, path: str) -> None:
    with worker.session() as s:
        s.submit(until, path, 0, 40.0)
        for _ in range(40):
            s.submit(count, path, 0)
    assert words_of(path)[0] == 40


def test_each_of_many_tasks_runs_once_while_tasks_move(worker: Worker, path: str) -> None:
    with worker.session() as s:
        for index in range(400):
            s.submit(pause, 0.0 if index % 50 else 0.02)
            s.submit(count, path, index)
    assert list(words_of(path)[:400]) == [1] * 400


@task
def pause(seconds: float):
    time.sleep(seconds)


def test_a_chain_behind_a_long_task_moves_with_its_order(worker: Worker, path: str) -> None:
    arrays = [worker.shared_array(1) for _ in range(4)]
    with worker.session() as s:
        s.submit(until, path, 0, 8.0)
        for _ in range(8):
            s.submit(fill, arrays[0], 5.0)
            for first, second in itertools.pairwise(arrays):
                s.submit(copy, first, second)
            s.submit(count, path, 0, after=[s.submit(copy, arrays[2], arrays[3])])
    assert [array[0] for array in arrays] == [5.0] * 4


def test_tasks_of_a_chosen_child_stay_there(worker: Worker, path: str) -> None:
    where = worker.shared_array(8, "int64")

    with worker.session() as s:
        s.submit(until, path, 0, 1.0, worker=0)
        handles = [s.submit(note_process, where[i : i + 1], worker=0) for i in range(8)]
        assert not handles[0].wait(0.2)
        s.submit(count, path, 0, worker=1)
    assert len(set(where)) == 1


@task
def note_process(out: Out):
    out[0] = os.getpid()


def test_after_an_error_in_the_block_waiting_tasks_do_not_run(worker: Worker, path: str) -> None:
    def program() -> None:
        with worker.session() as s:
            for _ in range(2):
                s.submit(until, path, 0, 1.0)
            for _ in range(40):
                s.submit(count, path, 1)
            threading.Timer(0.2, words_of(path).__setitem__, (0, 1.0)).start()
            raise KeyError

    with pytest.raises(KeyError):
        program()
    assert words_of(path)[1] == 0
    with worker.session() as s:  # the children skip what was withdrawn
        for _ in range(10):
            s.submit(count, path, 1, worker=0)
    assert words_of(path)[1] == 10


def test_a_cancelled_task_does_not_run_and_poisons_its_readers(worker: Worker, path: str) -> None:
    x, y, z = (worker.shared_array(1) for _ in range(3))
    with worker.session() as s:
        for _ in range(2):
            s.submit(until, path, 0, 1.0)
        cancelled = s.submit(fill, x, 7.0)
        reader = s.submit(copy, x, y)
        last = s.submit(copy, y, z)
        assert cancelled.cancel()
        words_of(path)[0] = 1
        with pytest.raises(TaskPoisonedError) as caught:
            last.result()
        assert not reader.cancel()
    assert caught.value.root == cancelled.task_slot
    assert [x[0], y[0], z[0]] == [0, 0, 0]


def test_a_task_in_a_chain_is_cancelled_before_it_may_run(worker: Worker, path: str) -> None:
    x, y = worker.shared_array(1), worker.shared_array(1)
    with worker.session() as s:
        s.submit(until, path, 0, 1.0)
        s.submit(until, path, 0, 1.0)
        first = s.submit(fill, x, 3.0)
        middle = s.submit(copy, x, y)
        assert middle.cancel()
        words_of(path)[0] = 1
        assert first.result()[0] == 3
        with pytest.raises(CancelledError):
            middle.result()
    assert y[0] == 0


def test_random_cancels_leave_the_rest_right(worker: Worker, path: str) -> None:
    seed = time.time_ns() % 2**32
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    cancelled = []
    with worker.session() as s:
        handles = []
        for index in range(400):
            if random.random() < 0.05:
                s.submit(pause, 0.002)
            handles.append(s.submit(count, path, index))
            victim = int(random.integers(max(0, index - 30), index + 1))
            if random.random() < 0.3 and handles[victim].cancel():
                cancelled.append(victim)
    expected = [0.0 if index in cancelled else 1.0 for index in range(400)]
    assert list(words_of(path)[:400]) == expected
