"""Groups start soon despite endless single tasks, even when a child is killed.

`.ci/nightly` runs the test with 10,000 groups.
"""

from __future__ import annotations

import os
import random
import time
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest

from pto_core import TaskArgs

CHILDREN, WINDOW = 4, 8
OVERLAPPING = 3
"""The number of groups in flight; more than one, so that groups also wait for each other."""
SOON = 100
"""The maximum number of dispatches to a ready group's children between its turn and its start.

These dispatches include up to CHILDREN * WINDOW frames that were in flight before.

Dispatches to other children do not count. Their number depends on the operating system, which may
stop one of the group's children for any length of time.
"""
BACKLOG = 2000
"""The minimum number of single tasks that wait for a child whenever a group is submitted."""
REMEMBERED = 1 << 16
"""The number of the last tasks whose start is recorded."""


@pytest.fixture
def groups(request: pytest.FixtureRequest) -> int:
    return 10_000 if request.config.getoption("--full") else 300


class Starts:
    """The time and the process in which each task began; the children record them."""

    def __init__(self, worker: Any) -> None:
        self.at, self.pid = worker.shared_array((2, REMEMBERED), "int64")
        self.handle = worker.register(self._begin)
        self.submitted = 0

    def _begin(self, args: Any) -> None:
        number = args.scalar(0)
        self.pid[number] = os.getpid()
        self.at[number] = time.monotonic_ns()

    def args(self) -> TaskArgs:
        made = TaskArgs()
        made.add_scalar(self.submitted % REMEMBERED)
        self.submitted += 1
        return made

    def passed(self, since_ns: int, members: range, singles: list[int]) -> int:
        """Count the single tasks that a group's children began between its turn and its start."""
        places = np.array(singles) % REMEMBERED
        at, pid = self.at[places], self.pid[places]
        return sum(
            int(((pid == self.pid[m]) & (at > since_ns) & (at < self.at[m])).sum())
            for m in self._places(members)
        )

    def first_ns(self, members: range) -> int:
        return int(self.at[self._places(members)].min())

    def _places(self, members: range) -> Any:
        return np.arange(members.start, members.stop) % REMEMBERED


class Stream:
    """Submits single tasks in an open run, so that some of them always wait for a child."""

    def __init__(self, worker: Any, orch: Any, starts: Starts) -> None:
        self._worker, self._orch, self._starts = worker, orch, starts
        self.numbers: list[int] = []

    def top_up(self) -> None:
        counts = self._worker.statistics()
        for _ in range(BACKLOG - (counts["submitted"] - counts["finished"])):
            self.submit()

    def submit(self) -> None:
        self.numbers.append(self._starts.submitted)
        self._orch.submit_sub(self._starts.handle, self._starts.args(), retries=1)


class Group(NamedTuple):
    """A submitted group, its children, and whether all of them were alive at the submit."""

    handle: Any
    pins: list[int]
    could_run: bool
    ready_ns: int
    members: range


def submit_group(
    orch: Any, stream: Stream, starts: Starts, pins: list[int], could_run: bool
) -> Group:
    first = starts.submitted
    args = [starts.args() for _ in pins]
    members = range(first, starts.submitted)
    handle = orch.submit_sub_group(starts.handle, args, workers=pins)
    return Group(handle, pins, could_run, time.monotonic_ns(), members)


def run_groups(
    worker: Any, starts: Starts, count: int, passed: list[int], kill_at: int | None = None
) -> None:
    """Submit groups; for each that could run, record how many single tasks ran before it."""
    chosen = random.Random(count)
    dead: set[int] = set()
    in_flight: deque[Group] = deque()
    others_until_ns = 0  # an upper bound of the time when the last earlier group was sent

    def graph(orch: Any, args: Any, config: Any) -> None:
        stream = Stream(worker, orch, starts)

        def wait_for_first() -> None:
            nonlocal others_until_ns
            group = in_flight.popleft()
            assert group.handle.wait(60)
            error = group.handle.exception()
            if group.could_run and not dead & set(group.pins):
                assert error is None
            assert group.could_run or error is not None, group.pins
            if error is None:
                singles = stream.numbers[-(OVERLAPPING + 2) * BACKLOG :]
                since_ns = max(group.ready_ns, others_until_ns)
                passed.append(starts.passed(since_ns, group.members, singles))
                others_until_ns = max(others_until_ns, starts.first_ns(group.members))

        for number in range(count):
            stream.top_up()
            if number == kill_at:
                psutil.Process().children()[CHILDREN - 1].kill()
                dead.add(CHILDREN - 1)
            pins = chosen.sample(range(CHILDREN), chosen.randint(2, CHILDREN))
            in_flight.append(submit_group(orch, stream, starts, pins, not dead & set(pins)))
            if len(in_flight) == OVERLAPPING:
                wait_for_first()
        while in_flight:
            wait_for_first()

    worker.run(graph)


def test_groups_start_within_a_hundred_dispatches(make, groups) -> None:
    worker = make(num_sub_workers=CHILDREN, child_window=WINDOW)
    starts = Starts(worker)
    passed: list[int] = []
    run_groups(worker, starts, groups, passed)
    assert len(passed) == groups
    assert max(passed) <= SOON


def test_groups_start_as_soon_with_a_child_killed(make, groups) -> None:
    worker = make(num_sub_workers=CHILDREN, child_window=WINDOW, on_worker_death="reroute")
    starts = Starts(worker)
    passed: list[int] = []
    # The program takes each failure of a group, so that the run does not raise it.
    run_groups(worker, starts, groups, passed, kill_at=groups // 2)
    assert len(passed) > groups // 2
    assert max(passed) <= SOON
    counts = worker.statistics()
    assert (counts["deaths"], counts["restarts"]) == (1, 0)


def rest(args: Any) -> None:
    """Sleep for a short time, without using a processor."""
    time.sleep(5e-3)


def test_a_parent_whose_groups_wait_uses_little_processor_time(make) -> None:
    """The processor time of the parent must be close to zero; a busy machine does not increase it.

    A parent that spins would use as much processor time as the machine allows.
    """
    worker = make(num_sub_workers=CHILDREN, child_window=WINDOW)
    handle = worker.register(rest)
    chosen = random.Random(4)

    def graph(orch: Any, args: Any, config: Any) -> None:
        for _ in range(20):
            for _ in range(15):
                orch.submit_sub(handle, TaskArgs())
            pins = chosen.sample(range(CHILDREN), chosen.randint(2, CHILDREN))
            orch.submit_sub_group(handle, [TaskArgs() for _ in pins], workers=pins)

    worker.init()
    begin_s, used_s = time.monotonic(), time.process_time()
    worker.run(graph)
    wall_s, used_s = time.monotonic() - begin_s, time.process_time() - used_s
    assert wall_s > 300 * 5e-3 / CHILDREN
    assert used_s < wall_s / 4, f"{used_s:.3f} s of processor time in {wall_s:.3f} s"
