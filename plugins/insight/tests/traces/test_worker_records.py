"""The tasks of a Worker's trace, from the records of its driver and of its children."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pto_insight.traces import Event
from pto_insight.traces.records import NATIVE
from pto_insight.traces.worker_records import DriverTrace, visible_ends, worker_arrays

SCHEDULER = 1
FAILED = 1


class Log:
    """Writes records, each one nanosecond after the one before it."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []

    def add(self, event: Event, task: int, b: int, track: int) -> int:
        """Add a record and return its time."""
        number = len(self._rows)
        self._rows.append((number, task, b, number, event, track))
        return number

    def send(self, task: int, child: int, count: int, member: int = 0) -> int:
        return self.add(Event.DISPATCH, task, child << 48 | member << 32 | count, SCHEDULER)

    def start(self, task: int, child: int, count: int) -> int:
        return self.add(Event.START, task, 77 << 32 | count, 5 + child)

    def end(self, task: int, child: int, count: int, outcome: int = 0) -> int:
        return self.add(Event.END, task, outcome << 32 | count, 5 + child)

    def complete(self, task: int, child: int, count: int, member: int = 0) -> int:
        return self.add(Event.COMPLETE, task, child << 48 | member << 32 | count, SCHEDULER)

    def finish(self, task: int, result: int) -> int:
        return self.add(Event.FINISH, task, result, SCHEDULER)

    def arrays(self) -> tuple[Any, Any]:
        """Return the records, and the tasks in the order of their dispatch."""
        raw = np.array(self._rows, NATIVE).tobytes()
        native = DriverTrace(raw, [0, 0, 0, 0], 1, (0, 0), (1, 1), [(0, 0)], ["f"], b"")
        records, tasks, _ = worker_arrays(native)
        return records, np.sort(tasks, order="dispatch")


@pytest.fixture
def log() -> Log:
    return Log()


def test_an_attempt_that_lost_its_child_has_failed(log: Log) -> None:
    log.send(0, child=0, count=1)
    log.start(0, child=0, count=1)
    log.send(0, child=0, count=2)
    log.start(0, child=0, count=2)
    log.end(0, child=0, count=2)
    log.complete(0, child=0, count=2)
    log.finish(0, 0)
    assert log.arrays()[1]["result"].tolist() == [FAILED, 0]


def test_when_a_later_attempt_became_ready_is_unknown(log: Log) -> None:
    ready = log.add(Event.READY, 0, 0, SCHEDULER)
    log.send(0, child=0, count=1, member=0)
    log.send(0, child=1, count=1, member=1)
    log.send(0, child=0, count=2, member=0)
    assert log.arrays()[1]["ready"].tolist() == [ready, ready, -1]


def test_an_attempt_that_raised_has_failed(log: Log) -> None:
    for count, outcome in ((1, 1), (2, 0)):
        log.send(0, child=0, count=count)
        log.start(0, child=0, count=count)
        log.end(0, child=0, count=count, outcome=outcome)
        log.complete(0, child=0, count=count)
    log.finish(0, 0)
    assert log.arrays()[1]["result"].tolist() == [FAILED, 0]


def test_each_member_of_a_failed_group_has_its_own_result(log: Log) -> None:
    for child in (0, 1):
        log.send(0, child=child, count=1, member=child)
        log.start(0, child=child, count=1)
        log.end(0, child=child, count=1, outcome=child)
        log.complete(0, child=child, count=1, member=child)
    log.finish(0, FAILED)
    assert log.arrays()[1]["result"].tolist() == [0, FAILED]


def test_results_of_attempts_without_all_records(log: Log) -> None:
    log.send(0, child=0, count=1)
    log.start(0, child=0, count=1)
    log.complete(0, child=0, count=1)  # the record of the end was dropped
    log.finish(0, 0)
    log.send(1, child=0, count=2)  # the child exited before it began this frame
    log.send(1, child=1, count=1)
    log.start(1, child=1, count=1)
    log.end(1, child=1, count=1)
    log.complete(1, child=1, count=1)
    log.finish(1, 0)
    log.send(2, child=1, count=2)
    log.start(2, child=1, count=2)  # it still runs at the end of the trace
    assert log.arrays()[1]["result"].tolist() == [0, -1, 0, -1]


def test_a_lost_task_is_visible_until_the_parent_handled_the_loss(log: Log) -> None:
    log.send(0, child=0, count=1)
    log.send(1, child=1, count=1)
    log.start(0, child=0, count=1)
    log.start(1, child=1, count=1)
    again = log.send(0, child=0, count=2)
    log.start(0, child=0, count=2)
    end = log.end(0, child=0, count=2)
    log.complete(0, child=0, count=2)
    finish = log.finish(1, FAILED)
    log.send(2, child=0, count=3)
    log.start(2, child=0, count=3)
    last = log.finish(0, 0)
    records, tasks = log.arrays()
    assert visible_ends(tasks, records).tolist() == [again, finish, end, last]
    assert tasks["end"].tolist() == [-1, -1, end, -1], "the recorded end stays unknown"


def test_a_task_without_an_end_does_not_cover_the_next_task_of_its_child(log: Log) -> None:
    log.send(0, child=0, count=1)
    log.send(1, child=0, count=2)
    log.start(0, child=0, count=1)
    following = log.start(1, child=0, count=2)
    log.complete(0, child=0, count=1)
    seen = log.complete(1, child=0, count=2)
    records, tasks = log.arrays()
    assert visible_ends(tasks, records).tolist() == [following, seen]
