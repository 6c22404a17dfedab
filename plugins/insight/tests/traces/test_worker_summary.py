"""The summary of a Worker's trace, and the comparison of two."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import numpy as np
import pytest

from pto_core.cli.main import main
from pto_insight.traces.analysis import limits, waits
from pto_insight.traces.files import write_trace
from pto_insight.traces.records import WORKER_TASK, Event
from pto_insight.traces.summary import worker_difference, worker_summary
from pto_insight.traces.worker_trace import WorkerTrace


def test_the_summary_states_what_limited_each_worker(pod: WorkerTrace) -> None:
    lines = worker_summary(pod).splitlines()
    assert (
        "Worker L4 was bound by submit: the program has not submitted more tasks in 81.3 % of the "
        "time"
    ) in lines
    pod.records = pod.records[pod.records["event"] != Event.BUILD]
    assert (
        "Worker L4 was bound by dependencies: the remaining tasks wait for tasks that run in "
        "81.3 % of the time"
    ) in worker_summary(pod).splitlines()


def test_busy_children_limit_a_worker(pod: WorkerTrace) -> None:
    times = {"ready": 8, "dispatch": 9, "start": 10, "end": 75}
    for name, time in times.items():
        pod.tasks[name][:2] = time
    pod.tasks["end"][1] = 76
    text = worker_summary(pod)
    assert "every child is busy" in text
    # of the busy children, host0 and its chip were busiest
    assert [line for line in text.splitlines() if "was bound by" in line] == [
        "device L4/host0/chip0 was bound by kernels: every thread that runs kernels is busy in "
        "40.0 % of the time"
    ]


def test_the_summary_has_the_use_of_children_over_time(pod: WorkerTrace) -> None:
    assert (
        "children busy: 0.80 on average of 2; in each tenth of the run: "
        "0.3 1.0 1.0 1.0 0.7 0.0 1.0 1.0 1.0 1.0"
    ) in worker_summary(pod).splitlines()


def test_a_task_that_is_sent_early_waits_for_its_producer(pod: WorkerTrace) -> None:
    """The child starts it before the parent records that it is ready."""
    for name, time in {"dispatch": 9, "ready": 45, "start": 42}.items():
        pod.tasks[name][1] = time
    view = pod.view("L4")
    assert limits(view)["pool"] == 10 - 7, "the wait of the other task"
    found = {one.cause: one.total for one in waits(view)}
    assert found["for producers"] == 42 - 8
    assert found["for a thread that runs the core"] == 10 - 7


def test_a_task_waits_for_a_child_that_runs_another_task(pod: WorkerTrace) -> None:
    changes = {"child": 2, "released_by": -1, "ready": 9, "dispatch": 9, "start": 42}
    for name, value in changes.items():
        pod.tasks[name][1] = value
    rows = [line.split() for line in worker_summary(pod).splitlines()]
    assert ["waiting", "for", "a", "free", "child", "41.3", "%", "31", "ns"] in rows
    assert ["waiting", "for", "the", "start", "in", "the", "child", "2.7", "%", "2", "ns"] in rows


def attempts(pod: WorkerTrace) -> WorkerTrace:
    """Return a trace of a task whose first attempt lost its child, and of a group of two."""
    pod.tasks = np.array(
        [
            (0, 0, 0, 4, 0, -1, 2, 21, 1, 5, 6, 7, 10, -1, -1, -1),
            (0, 0, 0, 4, 0, -1, 2, 25, 0, 5, 6, 50, 60, 65, 66, -1),
            (0, 0, 1, 5, 0, 4, 1, 22, 0, 8, 66, 67, 70, 80, 85, -1),
            (0, 0, 1, 5, 1, 4, 2, 25, 0, 8, 66, 67, 70, 80, 85, -1),
        ],
        WORKER_TASK,
    )
    return pod


def test_a_lost_task_is_in_the_summary(pod: WorkerTrace) -> None:
    lines = worker_summary(attempts(pod)).splitlines()
    assert (
        "lost: near, task 4, after at most 40 ns in process 21 of L4/host1, which exited"
    ) in lines


def test_the_summary_counts_tasks_and_calls(pod: WorkerTrace) -> None:
    text = worker_summary(attempts(pod))
    assert "Worker L4: 2 tasks in " in text
    table = [line.split()[:2] for line in text.splitlines()]
    assert ["function", "calls"] in table
    assert ["near", "1"] in table
    assert ["far", "2"] in table
    assert repr(pod).startswith("<WorkerTrace of L4: 2 tasks, ")


def longer(pod: WorkerTrace) -> WorkerTrace:
    """Return the trace with a longer last task."""
    after = copy(pod)
    after.tasks = pod.tasks.copy()
    after.tasks["end"][1], after.tasks["complete"][1] = 95, 96
    return after


def test_a_comparison_contains_each_worker_and_each_device(pod: WorkerTrace) -> None:
    after = longer(pod)
    after.lost = {"L4 scheduler": 3}
    after.missing = ("L4/host1: its process exited",)
    after.paths = (*pod.paths, "L4/host0/sub0")
    text = worker_difference(pod, after)
    lines = text.splitlines()
    assert lines[0] == f"times: {pod.note}; {after.note}"
    assert lines[0].startswith("times: host time; a2a3sim: host time on 1 thread, not the chip's;")
    assert lines[1] == "after: missing: L4/host1: its process exited"
    assert lines[2].startswith("after: 3 records were dropped (L4 scheduler 3)")
    assert "only after: L4/host0/sub0" in lines
    assert "Worker L4: 75 ns -> 90 ns +20.0 %" in lines
    assert "Worker L4/host0: 15 ns -> 15 ns +0.0 %" in lines
    assert "device L4/host0/chip0" in lines
    table = [line.split() for line in lines]
    assert ["far", "1", "1", "30", "ns", "45", "ns", "+50.0", "%"] in table
    assert ["submit", "81.3", "%", "78.9", "%"] in table
    assert "device time" not in text


def test_traces_of_two_kinds_are_not_compared(
    pod: WorkerTrace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worker, *_ = pod.write(tmp_path / "worker")
    device, *_ = write_trace(pod.devices["L4/host0/chip0"], tmp_path / "device")
    assert main(["trace", "diff", str(worker), str(worker)]) == 0
    assert "Worker L4: 75 ns -> 75 ns +0.0 %" in capsys.readouterr().out
    assert main(["trace", "diff", str(worker), str(device)]) == 2
    text = capsys.readouterr().err
    assert "A is a trace of a Worker, and B one of a device; pass two traces of one kind" in text
