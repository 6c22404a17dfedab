"""The lanes of a Worker's trace, from which its files are written."""

from __future__ import annotations

import tracemalloc

import numpy as np

from pto_insight.traces import Event
from pto_insight.traces.lanes import Slice, TaskNumber, apart, lanes
from pto_insight.traces.records import WORKER_RECORD, WORKER_TASK
from pto_insight.traces.worker_trace import WorkerTrace


def test_a_task_that_is_repeated_is_submitted_once(pod: WorkerTrace) -> None:
    pod.tasks = np.array(
        [
            (0, 0, 0, 0, 0, -1, 2, 21, 1, 5, 6, 7, 10, -1, -1, -1),
            (0, 0, 0, 0, 0, -1, 2, 25, 0, 5, 6, 40, 50, 80, 85, -1),
        ],
        WORKER_TASK,
    )
    found = {(lane.process, lane.name): lane for lane in lanes(pod)}
    (submit,) = found["L4", "orchestrator"].submits
    assert submit == (5, "near", TaskNumber(0, 0, 0))
    slices = [one[:3] for one in found["L4/host1", "tasks"].slices]
    assert slices == [(10, 40, "near (lost)"), (50, 80, "near")]


def test_an_end_that_was_not_recorded_is_no_loss(pod: WorkerTrace) -> None:
    pod.tasks = np.array([(0, 0, 0, 0, 0, -1, 2, 21, 0, 5, 6, 7, 10, -1, 45, -1)], WORKER_TASK)
    (lane,) = [lane for lane in lanes(pod) if lane.process == "L4/host1"]
    assert [one[:3] for one in lane.slices] == [(10, 45, "near (end not recorded)")]


def test_records_without_a_duration_take_little_memory(pod: WorkerTrace) -> None:
    pod.records = np.zeros(400_000, WORKER_RECORD)
    pod.records["event"] = Event.EDGE
    tracemalloc.start()
    try:
        lanes(pod)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < pod.records.nbytes / 2


def spans(slices: list[Slice], *, may_nest: bool) -> list[list[tuple[int, int]]]:
    return [[one[:2] for one in part] for part in apart(slices, may_nest=may_nest)]


def test_slices_that_overlap_are_in_different_parts() -> None:
    times = [(0, 10), (5, 12), (2, 5), (10, 10), (10, 20), (12, 14)]
    slices = [Slice(start, end, "", {}) for start, end in times]
    assert spans(slices, may_nest=True) == [
        [(0, 10), (2, 5), (10, 20), (10, 10), (12, 14)],
        [(5, 12)],
    ]
    assert spans(slices, may_nest=False) == [
        [(0, 10), (10, 20)],
        [(2, 5), (5, 12), (12, 14)],
        [(10, 10)],
    ]
