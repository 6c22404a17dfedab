"""Groups start soon though single tasks never stop coming, also when a child is killed.

`.ci/nightly` does it with 10,000 groups.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

import numpy as np
import psutil
import pytest

from pto_core import TaskArgs
from pto_core.errors import ChildDiedError

CHILDREN, WINDOW = 4, 8
SOON = 100
"""The dispatches to its children within which a group that is ready has to start.

Other children have dispatches as well meanwhile: how many is up to the operating system, which may
let one of the group's children stand still for as long as it likes.
"""
BACKLOG = 2000
REMEMBERED = 1 << 16
"""Single tasks that wait for a child, at least, whenever a group comes."""


@pytest.fixture
def engine() -> str:
    return "native"


@pytest.fixture
def groups(request: pytest.FixtureRequest) -> int:
    return 10_000 if request.config.getoption("--full") else 300


class Starts:
    """When and in which process each task began; the children write it down, nobody counts."""

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

    def passed(self, ready_ns: int, members: range, singles: list[int]) -> int:
        """How many single tasks a group that was ready let begin on its children before it."""
        places = np.array(singles) % REMEMBERED
        at, pid = self.at[places], self.pid[places]
        own = np.arange(members.start, members.stop) % REMEMBERED
        return sum(
            int(((pid == self.pid[m]) & (at > ready_ns) & (at < self.at[m])).sum()) for m in own
        )


class Stream:
    """Keeps single tasks waiting, in a run that is open."""

    def __init__(self, worker: Any, orch: Any, starts: Starts) -> None:
        self._worker, self._orch, self._starts = worker, orch, starts
        self.numbers: list[int] = []

    def top_up(self) -> None:
        counts = self._worker.statistics()
        for _ in range(BACKLOG - (counts["submitted"] - counts["finished"])):
            self.numbers.append(self._starts.submitted)
            self._orch.submit_sub(self._starts.handle, self._starts.args(), retries=1)


def submit_group(orch: Any, starts: Starts, pins: list[int]) -> tuple[Any, int, range]:
    first = starts.submitted
    args = [starts.args() for _ in pins]
    ready_ns = time.monotonic_ns()
    handle = orch.submit_sub_group(starts.handle, args, workers=pins)
    return handle, ready_ns, range(first, starts.submitted)


def run_groups(
    worker: Any, starts: Starts, count: int, passed: list[int], kill_at: int | None = None
) -> None:
    """Note for each group that could run how many single tasks it let pass."""
    chosen = random.Random(count)
    dead: set[int] = set()

    def graph(orch: Any, args: Any, config: Any) -> None:
        stream = Stream(worker, orch, starts)
        for number in range(count):
            stream.top_up()
            if number == kill_at:
                psutil.Process().children()[CHILDREN - 1].kill()
                dead.add(CHILDREN - 1)
            pins = chosen.sample(range(CHILDREN), chosen.randint(2, CHILDREN))
            handle, ready_ns, members = submit_group(orch, starts, pins)
            assert handle.wait(60)
            error = handle.exception()
            assert (error is not None) == bool(dead & set(pins)), (pins, error)
            if error is None:
                passed.append(starts.passed(ready_ns, members, stream.numbers[-3 * BACKLOG :]))

    worker.run(graph)


def test_groups_start_within_a_hundred_dispatches(make, groups) -> None:
    worker = make(num_sub_workers=CHILDREN, child_window=WINDOW)
    starts = Starts(worker)
    passed: list[int] = []
    run_groups(worker, starts, groups, passed)
    assert len(passed) == groups
    assert max(passed) <= SOON + CHILDREN * WINDOW  # what had been sent before counts, too


def test_groups_start_as_soon_with_a_child_killed(make, groups) -> None:
    worker = make(num_sub_workers=CHILDREN, child_window=WINDOW, on_worker_death="reroute")
    starts = Starts(worker)
    passed: list[int] = []
    with pytest.raises(ChildDiedError):
        run_groups(worker, starts, groups, passed, kill_at=groups // 2)
    assert len(passed) > groups // 2
    assert max(passed) <= SOON + CHILDREN * WINDOW
    counts = worker.statistics()
    assert (counts["deaths"], counts["restarts"]) == (1, 0)
