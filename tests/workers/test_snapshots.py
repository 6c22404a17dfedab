"""Copies of the arrays that tasks with retries change in place; their memory is limited."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from task_arguments import given

from pto_core import TaskArgs, TensorArgType
from pto_core.errors import CapacityError, ChildDiedError

ROWS, WORDS = 64, 128
ROW_BYTES = WORDS * 8
KEPT_ROWS = 4
"""The largest number of rows that can have copies at the same time."""


def inout(array: Any, *scalars: int) -> TaskArgs:
    return given((array, TensorArgType.INOUT), scalars=scalars)


def bump(args: Any) -> None:
    args.tensor(0)[:] += 1


def bump_slowly(args: Any) -> None:
    args.tensor(0)[:] += 1
    time.sleep(0.002)


@pytest.mark.parametrize("children", [1, 3])
def test_a_submit_waits_only_until_snapshots_have_free_space(make, children) -> None:
    worker = make(num_sub_workers=children, snapshot_limit=KEPT_ROWS * ROW_BYTES)
    rows = worker.shared_array((ROWS, WORDS), "int64")
    handle = worker.register(bump_slowly)
    most = 0

    def graph(orch: Any, args: Any, config: Any) -> None:
        nonlocal most
        for row in rows:
            orch.submit_sub(handle, inout(row), retries=1)
            counts = worker.statistics()
            most = max(most, counts["submitted"] - counts["finished"])

    worker.run(graph)
    assert (rows == 1).all()
    assert most <= KEPT_ROWS
    assert worker.statistics()["snapshot_peak_bytes"] <= KEPT_ROWS * ROW_BYTES
    assert worker.statistics()["snapshot_bytes"] == 0


def test_frames_that_have_not_begun_use_the_window_until_a_death(make) -> None:
    worker = make(
        num_sub_workers=2, on_worker_death="restart", snapshot_limit=KEPT_ROWS * ROW_BYTES
    )
    rows = worker.shared_array((ROWS, WORDS), "int64")
    died = worker.shared_array((ROWS,), "int64")

    def bump_or_die(args: Any) -> None:
        args.tensor(0)[: WORDS // 2] += 1
        number = args.scalar(0)
        if number % 16 == 0 and not died[number]:
            died[number] = 1
            os.kill(os.getpid(), signal.SIGKILL)
        args.tensor(0)[WORDS // 2 :] += 1

    handle = worker.register(bump_or_die)

    def graph(orch: Any, args: Any, config: Any) -> None:
        for number, row in enumerate(rows):
            orch.submit_sub(handle, inout(row, number), retries=1)

    worker.run(graph)
    assert (rows == 1).all(), "a row was not incremented exactly once"
    assert died.sum() == ROWS // 16
    assert worker.statistics()["snapshot_peak_bytes"] <= KEPT_ROWS * ROW_BYTES


def test_a_task_without_retries_left_releases_its_snapshot(make) -> None:
    worker = make(num_sub_workers=1, snapshot_limit=KEPT_ROWS * ROW_BYTES)
    rows = worker.shared_array((KEPT_ROWS, WORDS), "int64")

    def leave(args: Any) -> None:
        os._exit(3)

    fatal, handle = worker.register(leave), worker.register(bump)
    for _ in range(2):
        with pytest.raises(ChildDiedError):
            worker.run(
                lambda orch, args, config: [
                    orch.submit_sub(fatal, inout(row), retries=1) for row in rows
                ]
            )
    rows[:] = 0
    worker.run(
        lambda orch, args, config: [orch.submit_sub(handle, inout(r), retries=1) for r in rows]
    )
    assert (rows == 1).all()
    assert worker.statistics()["snapshot_bytes"] == 0


def test_a_snapshot_above_the_limit_is_refused_with_the_numbers(make) -> None:
    worker = make(num_sub_workers=1, snapshot_limit=KEPT_ROWS * ROW_BYTES)
    rows = worker.shared_array((ROWS, WORDS), "int64")
    handle = worker.register(bump_slowly)

    def graph(orch: Any, args: Any, config: Any) -> None:
        for row in rows[:KEPT_ROWS]:
            orch.submit_sub(handle, inout(row), retries=1)
        message = (
            f"{(KEPT_ROWS + 1) * ROW_BYTES} bytes in place.* at most {KEPT_ROWS * ROW_BYTES} bytes"
        )
        with pytest.raises(CapacityError, match=message):
            orch.submit_sub(handle, inout(rows[: KEPT_ROWS + 1]), retries=1)
        group = [inout(row) for row in rows[KEPT_ROWS : KEPT_ROWS + 1]]
        orch.submit_sub_group(handle, group, retries=1)

    worker.run(graph)
    assert (rows[: KEPT_ROWS + 1] == 1).all()


def test_a_retry_gets_all_arrays_of_its_task_back(make) -> None:
    """The copies of arrays of different sizes are adjacent in memory, but must not mix."""
    worker = make(num_sub_workers=1)
    sizes = (3, 8, 130)
    arrays = [worker.shared_array(size, "int64") for size in sizes]
    attempts = worker.shared_array(1, "int64")
    for number, array in enumerate(arrays):
        array[:] = range(1000 * number, 1000 * number + len(array))

    def change_and_fail_once(args: Any) -> None:
        for place in range(len(sizes)):
            args.tensor(place)[:] += 5
        args.tensor(len(sizes))[0] += 1
        if args.tensor(len(sizes))[0] == 1:
            raise ValueError("the first attempt")

    handle = worker.register(change_and_fail_once)
    given_arrays = [(array, TensorArgType.INOUT) for array in arrays]
    args_of_task = given(*given_arrays, (attempts, TensorArgType.NO_DEP))
    worker.run(lambda orch, args, config: orch.submit_sub(handle, args_of_task, retries=1))
    assert attempts[0] == 2
    for number, array in enumerate(arrays):
        assert list(array) == [1000 * number + 5 + place for place in range(len(array))]


def test_a_group_keeps_a_copy_for_each_member(make) -> None:
    worker = make(num_sub_workers=2, snapshot_limit=KEPT_ROWS * ROW_BYTES)
    rows = worker.shared_array((2, WORDS), "int64")
    handle = worker.register(bump)
    worker.run(
        lambda orch, args, config: orch.submit_sub_group(
            handle, [inout(row) for row in rows], retries=1
        )
    )
    assert (rows == 1).all()
    assert worker.statistics()["snapshot_peak_bytes"] == 2 * ROW_BYTES
