"""The child that runs a task: the policy of a Worker, hints and pins."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from pto_core import In, Out, Worker, task
from pto_core.interfaces import Candidate, PlacedTask

CHILDREN = 3
PATIENCE_S = 30


@task
def report(out: Out) -> None:
    out[:] = os.getpid()


@task
def report_and_wait(gate: In, out: Out) -> None:
    """Report the process of this task at once, and wait until the gate opens."""
    out[:] = os.getpid()
    deadline = time.monotonic() + PATIENCE_S
    while not gate[0] and time.monotonic() < deadline:
        time.sleep(0.001)


def await_all(found: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not found.all():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def pids(worker: Worker) -> list[int]:
    """Return the process of each child, by its number."""
    found = worker.shared_array((CHILDREN,), "int64")
    with worker.session() as s:
        for child in range(CHILDREN):
            s.submit(report, found[child : child + 1], worker=child)
    return [int(pid) for pid in found]


def last(candidates: Sequence[tuple[int, int]], preferred: int) -> int:
    return candidates[-1][0]


def test_a_pin_names_the_child(make) -> None:
    found = pids(make(num_sub_workers=CHILDREN))
    assert len(set(found)) == CHILDREN


def test_a_policy_picks_among_children_with_free_space(make) -> None:
    asked: list[tuple[list[tuple[int, int]], int]] = []

    def policy(candidates: Sequence[tuple[int, int]], preferred: int) -> int:
        asked.append((list(candidates), preferred))
        return last(candidates, preferred)

    worker = make(num_sub_workers=CHILDREN, policy=policy, child_window=2)
    known = pids(worker)
    assert asked == [], "the policy was called for a pinned task"
    gate, out = worker.shared_array((1,), "int64"), worker.shared_array((40,), "int64")
    with worker.session() as s:
        for index in range(6):
            s.submit(report_and_wait, gate, out[index : index + 1])
        for index in range(6, 40):
            s.submit(report, out[index : index + 1])
        await_all(out[0:6:2])
        gate[0] = 1
    used = [known.index(pid) for pid in out]
    assert used[:6] == [2, 2, 1, 1, 0, 0], "the policy's choices were not followed"
    for candidates, _ in asked:
        numbers = [child for child, _ in candidates]
        assert numbers == sorted(set(numbers))
        assert all(0 <= load < 2 for _, load in candidates)


def test_a_policy_receives_the_child_of_the_last_producer(make) -> None:
    wishes: list[int] = []

    def policy(candidates: Sequence[tuple[int, int]], preferred: int) -> int:
        wishes.append(preferred)
        return preferred if preferred in dict(candidates) else candidates[0][0]

    worker = make(num_sub_workers=CHILDREN, policy=policy)
    known = pids(worker)
    gate, out = worker.shared_array((2, 1), "int64")
    with worker.session() as s:
        s.submit(report_and_wait, gate, out, worker=2)
        # the tensor only adds an edge, so this task is not sent before its producer has ended
        s.submit(report, out)
        gate[0] = 1
    assert wishes == [2]
    assert known.index(out[0]) == 2


def test_a_hint_is_followed_if_the_child_has_free_space_and_delays_nothing(make) -> None:
    worker = make(num_sub_workers=CHILDREN, child_window=1)
    known = pids(worker)
    gate, out = worker.shared_array((1,), "int64"), worker.shared_array((3,), "int64")
    with worker.session() as s:
        for index in range(3):
            s.submit(report_and_wait, gate, out[index : index + 1], worker=1, hint=True)
        await_all(out)
        gate[0] = 1
    assert known.index(out[0]) == 1
    assert {known.index(pid) for pid in out[1:]} == {0, 2}, (
        "the other tasks did not run on the idle children"
    )
    with worker.session() as s:
        for index in range(3):
            s.submit(report, out[index : index + 1], worker=1)
    assert {known.index(pid) for pid in out} == {1}, "a pin waits"


def test_a_policy_receives_the_task_and_the_bytes_that_each_child_has(make) -> None:
    asked: list[tuple[list[Candidate], int, PlacedTask]] = []

    class Last:
        def pick(self, candidates: Sequence[Candidate], preferred: int, task: PlacedTask) -> int:
            asked.append((list(candidates), preferred, task))
            return candidates[-1].child

    worker = make(num_sub_workers=CHILDREN, policy=Last())
    known = pids(worker)
    gate, out = worker.shared_array((1024,), "int64"), worker.shared_array((2,), "int64")
    gate[:] = 1
    with worker.session() as s:
        first = s.submit(report_and_wait, gate, out[:1])
        second = s.submit(report, out[1:])
    assert {known.index(pid) for pid in out} == {CHILDREN - 1}
    tasks = [task for _, _, task in asked]
    assert [task.number for task in tasks] == [first.task_slot, second.task_slot]
    assert [task.callable.split(":")[-1] for task in tasks] == ["report_and_wait", "report"]
    assert [task.input_bytes for task in tasks] == [gate.nbytes, 0]
    for candidates, _, placed in asked:
        assert [each.child for each in candidates] == list(range(CHILDREN))
        assert all(each.held_bytes == placed.input_bytes for each in candidates)
