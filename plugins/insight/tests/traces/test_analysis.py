"""The analysis of a trace, checked on traces with known results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pto_insight.traces import Event, Trace, joined
from pto_insight.traces.analysis import (
    busy_cores,
    critical_path,
    kernel_rows,
    limits,
    span,
    waits,
)
from pto_insight.traces.details import ARGUMENT, SUBMIT, Details
from pto_insight.traces.records import RECORD, TASK
from pto_insight.traces.summary import difference_text, kernel_table, summary_text

KERNELS = ("load", "add")


def task(number: int, kernel: int, core: int, times: Any, released_by: int = -1) -> Any:
    """Return a row; ``times`` are submit, ready, dispatch, start, end, complete."""
    return (0, kernel, number, released_by, core, core % 2, *times, -1)


def make(tasks: list[Any], records: list[Any] = [], **changes: Any) -> Trace:  # noqa: B006
    values: dict[str, Any] = {
        "records": np.array(records, RECORD),
        "tasks": np.array(tasks, TASK),
        "kernels": KERNELS,
        "lost": {},
        "blocks": 2,
        "unit": "ns",
        "epoch_ns": 1_000,
        "threads": 2,
        "backend": "a2a3sim",
        "runtime": "host_build_graph",
    }
    return Trace(**{**values, **changes})


@pytest.fixture
def chain() -> Trace:
    """Return a trace of two parallel loads, and an addition that the second load released."""
    return make(
        [
            task(0, 0, 2, (0, 10, 20, 30, 130, 140)),
            task(1, 0, 3, (5, 10, 20, 40, 240, 250)),
            task(2, 1, 2, (8, 250, 260, 300, 400, 410), released_by=1),
        ],
        [(0, 12, 0, 0, 0, Event.BUILD, 0, 0)],
    )


def test_the_table_of_kernels(chain: Trace) -> None:
    rows = kernel_rows(chain)
    assert [(row.name, row.count, row.total, row.cores) for row in rows] == [
        ("load", 2, 300, 2),
        ("add", 1, 100, 1),
    ]
    assert (rows[0].mean, rows[0].p50, rows[0].p99) == (150, 150, pytest.approx(199))
    assert rows[0].max == 200


def test_the_waiting_of_tasks_by_cause(chain: Trace) -> None:
    assert [(wait.cause, wait.total) for wait in waits(chain)] == [
        ("for the submit", 10 + 5),
        ("for producers", 242),
        ("for a free core", 0),
        ("for the dispatch", 10 + 10 + 10),
        ("for a thread that runs the core", 10 + 20 + 40),
        ("for the scheduler to see the end", 10 + 10 + 10),
    ]


def test_the_critical_path(chain: Trace) -> None:
    path = critical_path(chain)
    assert path.rows == (1, 2)
    assert path.kernels == {"load": 200, "add": 100}
    assert path.waits == {
        "for the submit": 10,
        "for the scheduler to see the end": 10,
        "for the dispatch": 10 + 10,
        "for a thread that runs the core": 20 + 40,
    }
    assert path.total == 400


def test_the_critical_path_contains_a_task_that_starts_when_its_producer_ends() -> None:
    trace = make(
        [
            task(0, 0, 2, (5, 10, 20, 40, 240, 240)),
            task(1, 1, 3, (6, 240, 240, 240, 450, 460), released_by=0),
        ]
    )
    assert critical_path(trace).rows == (0, 1)


def test_a_task_on_the_critical_path_waits_for_a_core_that_runs_another_task() -> None:
    trace = make(
        [
            task(0, 0, 2, (0, 10, 20, 30, 130, 140)),
            task(1, 1, 2, (5, 10, 150, 160, 260, 270)),
        ]
    )
    path = critical_path(trace)
    assert path.rows == (1,)
    assert path.waits == {
        "for the submit": 10,
        "for a free core": 130 - 10,
        "for the dispatch": 150 - 130,
        "for a thread that runs the core": 10,
    }
    assert path.total == 260
    assert {wait.cause: wait.total for wait in waits(trace)}["for a free core"] == 130 - 10
    rows = [line.split() for line in summary_text(trace).splitlines()]
    assert ["waiting", "for", "a", "free", "core", "46.2", "%", "120", "ns"] in rows


def test_a_task_on_the_critical_path_is_submitted_after_its_producer_ended() -> None:
    trace = make(
        [
            task(0, 0, 2, (5, 10, 20, 40, 240, 330)),
            task(1, 1, 3, (300, 330, 340, 350, 450, 460), released_by=0),
        ]
    )
    assert critical_path(trace).waits == {
        "for the submit": (10 - 5) + (300 - 240),
        "for the scheduler to see the end": 330 - 300,
        "for the dispatch": 10 + 10,
        "for a thread that runs the core": 20 + 10,
    }


def test_the_critical_path_may_begin_with_a_task_whose_producer_is_not_in_the_trace() -> None:
    times = (0, 10, 20, 30, 40, 50)
    assert critical_path(make([task(0, 0, 2, times, released_by=9)])).waits == {
        "for producers": 10,
        "for the dispatch": 10,
        "for a thread that runs the core": 10,
    }
    assert critical_path(make([task(0, 0, 2, (0, -1, *times[2:]), released_by=9)])).waits == {
        "for an unrecorded cause": 20,
        "for a thread that runs the core": 10,
    }


def test_each_moment_has_one_limit(chain: Trace) -> None:
    found = limits(chain)
    assert sum(found.values()) == 400
    # The limit at each time in ns: 0-10 submit, 10-20 scheduling, 20-40 pool, 40-130 both threads,
    # 130-240 a dependency, 240-260 scheduling, 260-300 pool, 300-400 a dependency.
    assert found == {
        "kernels": 90,
        "dependencies": 210,
        "scheduling": 30,
        "pool": 60,
        "back-pressure": 0,
        "copies": 0,
        "submit": 10,
        "outside": 0,
    }


def test_back_pressure_is_a_limit(chain: Trace) -> None:
    blocked = (0, 9, 0, 1, 1, Event.BACK_PRESSURE, 0, 0)
    build = (0, 12, 0, 0, 0, Event.BUILD, 0, 0)
    found = limits(make(chain.tasks.tolist(), [build, blocked]))
    assert (found["back-pressure"], found["submit"]) == (9, 1)


def test_the_use_of_cores_over_time(chain: Trace) -> None:
    assert span(chain) == (0, 400)
    assert busy_cores(chain, 4) == pytest.approx([1.3, 1.3, 0.4, 1.0])


def test_the_summary_names_the_limit_and_the_meaning_of_times(chain: Trace) -> None:
    text = summary_text(chain)
    assert "host time on 2 threads, not the chip's" in text
    assert "the run was bound by dependencies" in text
    assert "critical path: 2 tasks, 400 ns" in text
    assert chain.table() == text


def test_the_table_of_kernels_has_the_processor_time(chain: Trace) -> None:
    assert "processor" not in summary_text(chain)
    tasks = chain.tasks.copy()
    tasks["processor"] = [40 if row["kernel"] == 0 else -1 for row in tasks]
    head, *rows = kernel_table(replace(chain, tasks=tasks))
    assert head.split()[:5] == ["kernel", "tasks", "total", "processor", "mean"]
    found = {row.split()[0]: row.split()[4] for row in rows}
    assert found == {"load": str(40 * int((tasks["kernel"] == 0).sum())), "add": "-"}


def test_copies_without_running_kernels_are_a_limit(chain: Trace) -> None:
    copies = [(0, 8, 0, 64, 0, Event.COPY_IN, 67, 0), (380, 460, 0, 64, 1, Event.COPY_OUT, 67, 0)]
    found = limits(make(chain.tasks.tolist(), [*chain.records.tolist(), *copies]))
    assert (found["copies"], found["submit"]) == (8 + 50, 2)
    assert found["scheduling"] == 30 + 10, "the scheduler sees the end of the last task at 410"


def test_the_summary_states_peaks_and_the_settings_for_which_submits_waited(chain: Trace) -> None:
    peaks = {"ring0_tasks_peak": 0, "ring1_tasks_peak": 12_345, "blocked_on_tasks_ns": 0}
    free = summary_text(make(chain.tasks.tolist(), statistics=peaks))
    assert "ring1_tasks_peak  12,345" in free
    assert "ring0_tasks_peak" not in free
    assert "no submit waited for space; larger rings would not shorten the run" in free
    waited = {"blocked_on_tasks": 2, "blocked_on_tasks_ns": 3_000}
    waited |= {"blocked_on_heap": 1, "blocked_on_heap_ns": 4_000_000, "blocked_on_pool_ns": 0}
    lines = summary_text(make(chain.tasks.tolist(), statistics=peaks | waited)).splitlines()
    assert [line for line in lines if line.startswith("submits waited")] == [
        "submits waited 1 time, 4 ms, for heap: use a larger --set pto2.heap, or smaller scopes",
        "submits waited 2 times, 3 us, for tasks: use a larger --set pto2.task_window, or smaller "
        "scopes",
    ]
    assert "docs/sizing-rings.md" in lines[-1]


def test_the_rate_of_a_kernel_needs_the_bytes_of_all_its_tasks(chain: Trace) -> None:
    def rates(*submits: tuple[int, int]) -> list[float | None]:
        rows = np.array([(number, number, -1, 0, 0, moved) for number, moved in submits], SUBMIT)
        details = Details(rows, np.zeros(0, ARGUMENT), (), (), ())
        return [row.gb_per_s for row in kernel_rows(make(chain.tasks.tolist(), details=details))]

    assert rates((0, 100), (1, 200), (2, 50)) == [1.0, 0.5]
    assert rates((0, 100), (1, 200)) == [1.0, None]
    assert rates((0, -1), (1, 200), (2, 50)) == [None, 0.5]
    assert [row.gb_per_s for row in kernel_rows(chain)] == [None, None]


def test_the_summary_states_dropped_records(chain: Trace) -> None:
    lossy = make(chain.tasks.tolist(), lost={"scheduler 0": 7})
    assert "7 records were dropped (scheduler 0 7)" in summary_text(lossy)
    assert "7 records were dropped" in difference_text(chain, lossy)


def test_the_difference_of_two_traces(chain: Trace) -> None:
    slower = [(*row[:10], row[10] + 100, row[11] + 100, -1) for row in chain.tasks.tolist()]
    text = difference_text(chain, make(slower))
    assert "whole run: 400 ns -> 500 ns +25.0 %" in text
    assert next(line for line in text.splitlines() if line.startswith("add")).endswith("+100.0 %")


def test_an_empty_trace_has_a_summary() -> None:
    empty = make([])
    assert "0 tasks" in summary_text(empty)
    assert critical_path(empty).rows == ()
    assert sum(limits(empty).values()) == 0
    assert "whole run" in difference_text(empty, empty)


def test_joined_traces_in_steps_follow_each_other(chain: Trace) -> None:
    records = [(0, 410, 0, 0, 0, Event.BUILD, 0, 0)]
    part = make(chain.tasks.tolist(), records, unit="steps")
    whole = joined([part, part])
    assert whole.tasks["run"].tolist() == [0, 0, 0, 1, 1, 1]
    assert whole.tasks["start"].tolist() == [30, 40, 300, 441, 451, 711]
    assert "steps are no times" in summary_text(whole)


def test_the_time_between_runs_does_not_count(chain: Trace) -> None:
    """The second run begins 600 ns after the end of the first."""
    whole = joined([chain, make(chain.tasks.tolist(), chain.records.tolist(), epoch_ns=2_010)])
    assert span(whole) == (0, 1_410)
    text = summary_text(whole)
    assert "6 tasks in 810 ns, 2 runs" in text
    assert "wait for tasks that run in 51.9 % of the time" in text
    difference = difference_text(chain, whole)
    assert "whole run: 400 ns -> 810 ns +102.5 %" in difference
    assert "outside" not in difference


def test_joined_traces_share_their_kernels(chain: Trace) -> None:
    other = make(chain.tasks.tolist(), kernels=("add", "mul"), epoch_ns=5_000, lost={"a": 1})
    whole = joined([chain, other])
    assert whole.kernels == ("load", "add", "mul")
    names = [whole.kernel_name(kernel) for kernel in whole.tasks["kernel"]]
    assert names == ["load", "load", "add", "add", "add", "mul"]
    assert whole.tasks["start"].tolist()[3] == 30 + 4_000
    assert whole.lost == {"a": 1}
