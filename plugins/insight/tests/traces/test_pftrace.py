"""The Perfetto file of a trace, parsed with the published schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from perfetto_messages import PerfettoMessages, check_fields

from pto_insight.traces import Event, Trace
from pto_insight.traces.details import ARGUMENT, SUBMIT, Details
from pto_insight.traces.pftrace import pftrace
from pto_insight.traces.records import RECORD, TASK

pytestmark = pytest.mark.toolchain

DrawArrows = Callable[[Iterable[tuple[Any, Any]]], list[tuple[Any, Any]]]


@pytest.fixture
def trace() -> Trace:
    """Return a trace with two runs, equal task numbers, a blocked submit, and an empty slice."""
    rows = [
        (0, 0, 0, -1, 0, 0, 0, 10, 20, 30, 130, 140, -1),
        (0, 1, 4, 0, 2, 1, 5, 140, 150, 160, 160, 170, -1),
        (0, 0, 8, 4, 0, 0, 6, 170, 180, 180, 200, 210, -1),
        (1, 1, 0, -1, 2, 1, 300, 310, 320, 330, 400, 410, -1),
        (1, 0, 4, -1, -1, -1, 301, -1, -1, -1, -1, -1, -1),
    ]
    records = [
        (0, 50, 0, 0, 1, Event.BUILD, 0, 0),
        (10, 40, 0, 1 + (2 << 8), 0, Event.BACK_PRESSURE, 0, 0),
        (20, 20, 1, 0, 0, Event.SCOPE_BEGIN, 0, 0),
        (12, 19, 0, 2, 0, Event.FILL, 1, 0),
        (130, 150, 0, 0, 0, Event.PARK, 5, 0),
    ]
    return Trace(
        np.array(records, RECORD),
        np.array(rows, TASK),
        ("load", "add"),
        {},
        2,
        "ns",
        1_000_000,
        2,
        "a2a3sim",
        "x",
    )


def test_no_field_is_unknown_to_the_schema(trace: Trace) -> None:
    check_fields(PerfettoMessages(pftrace(trace)).trace)


def test_slices_have_their_names_and_times(trace: Trace) -> None:
    parsed = PerfettoMessages(pftrace(trace))
    found = {(track.name, name, begin, end) for track, name, begin, end, _ in parsed.slices()}
    epoch = trace.epoch_ns
    assert found == {
        ("AIC 0", "load", epoch + 30, epoch + 130),
        ("AIV 0", "add", epoch + 160, epoch + 160),
        ("AIC 0", "load", epoch + 180, epoch + 200),
        ("AIV 0", "add", epoch + 330, epoch + 400),
        ("pool worker 0", "AIC 0", epoch + 30, epoch + 130),
        ("pool worker 1", "AIV 0", epoch + 160, epoch + 160),
        ("pool worker 0", "AIC 0", epoch + 180, epoch + 200),
        ("pool worker 1", "AIV 0", epoch + 330, epoch + 400),
        ("orchestrator", "build", epoch, epoch + 50),
        ("orchestrator", "wait: task ring 2", epoch + 10, epoch + 40),
        ("scheduler 0", "fill", epoch + 12, epoch + 19),
        ("pool worker 0", "park", epoch + 130, epoch + 150),
    }


def test_a_slice_has_its_processor_time_if_it_is_known(trace: Trace) -> None:
    tasks = trace.tasks.copy()
    tasks["processor"][0] = 40
    parsed = PerfettoMessages(pftrace(replace(trace, tasks=tasks)))
    notes = [note for *_, event in parsed.slices() for note in event.debug_annotations]
    assert [note.int_value for note in notes if note.name == "processor"] == [40]


def test_times_are_those_of_the_monotonic_clock(trace: Trace) -> None:
    parsed = PerfettoMessages(pftrace(trace))
    snapshot = parsed.trace.packet[0].clock_snapshot
    clocks = {clock.clock_id: clock.timestamp for clock in snapshot.clocks}
    assert clocks == {3: trace.epoch_ns, 6: trace.epoch_ns}
    assert parsed.trace.packet[1].trace_packet_defaults.timestamp_clock_id == 3
    times = [packet.timestamp for packet in parsed.events]
    assert times == sorted(times)


def test_arrows_lead_from_a_task_to_each_task_that_it_released(
    trace: Trace, draw_arrows: DrawArrows
) -> None:
    """Task 4 releases three tasks, one of which did not end, and task 12 releases one."""
    rows = [
        (0, 0, 12, 4, 3, 0, 6, 170, 180, 185, 220, 230, -1),
        (0, 0, 16, 4, 1, 1, 6, 170, 180, 190, -1, -1, -1),
        (0, 0, 20, 12, 1, 1, 6, 220, 230, 240, 250, 260, -1),
    ]
    tasks = np.concatenate([trace.tasks, np.array(rows, TASK)])
    parsed = PerfettoMessages(pftrace(replace(trace, tasks=tasks)))
    events = (
        ([note.int_value for note in event.debug_annotations[:2]], event)
        for event in (packet.track_event for packet in parsed.events)
        if event.type == event.TYPE_SLICE_BEGIN
    )
    assert sorted(draw_arrows(events)) == [
        ([0, 0], [4, 0]),
        ([4, 0], [8, 0]),
        ([4, 0], [12, 0]),
        ([12, 0], [20, 0]),
    ]


def counters_of(parsed: PerfettoMessages, epoch_ns: int) -> dict[str, list[tuple[int, int]]]:
    """Return the values of each counter, with their times after the epoch."""
    values: dict[str, list[tuple[int, int]]] = {}
    for packet in parsed.events:
        event = packet.track_event
        if event.type == event.TYPE_COUNTER:
            value = (packet.timestamp - epoch_ns, event.counter_value)
            values.setdefault(parsed.tracks[event.track_uuid].name, []).append(value)
    return values


def test_counters_follow_the_tasks(trace: Trace) -> None:
    values = counters_of(PerfettoMessages(pftrace(trace)), trace.epoch_ns)
    assert values["busy cores"] == [
        *[(30, 1), (130, 0), (160, 0), (180, 1), (200, 0)],
        *[(330, 1), (400, 0)],
    ]
    assert max(value for _, value in values["live tasks"]) == 3
    assert values["ready tasks"][-1][1] == 0


def test_the_process_states_what_the_times_mean(trace: Trace) -> None:
    (process,) = [
        track
        for track in PerfettoMessages(pftrace(trace)).tracks.values()
        if track.HasField("process")
    ]
    assert "host time on 2 threads, not the chip's" in process.process.process_name


def words(text: str) -> tuple[int, int]:
    """Return the first 16 bytes of a text as the two words of a record."""
    data = text.encode().ljust(16, b"\0")
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")


def test_ranges_copies_lines_and_the_use_of_rings_are_in_the_file(trace: Trace) -> None:
    records = [
        (1, 1, *words("prefill"), 0, Event.RANGE_BEGIN, 0, 0),
        (60, 60, 0, 0, 1, Event.RANGE_END, 0, 0),
        (2, 9, 0, 4096, 0, Event.COPY_IN, 67, 0),
        (5, 5, 1 | 2 << 56, 1024, 2, Event.RING, 0, 0),
        (6, 6, 2 | 2 << 56, 5 << 40, 3, Event.RING, 0, 0),
    ]
    submits = np.array([(task, task, task // 8, 0, 0, -1) for task in (0, 4, 8)], SUBMIT)
    details = Details(submits, np.zeros(0, ARGUMENT), ("graph.cpp:10", "graph.cpp:12"), (), ())
    parsed = PerfettoMessages(
        pftrace(replace(trace, records=np.array(records, RECORD), details=details))
    )
    slices = [(track.name, *rest) for track, *rest in parsed.slices()]
    epoch = trace.epoch_ns
    assert ("orchestrator", "prefill", epoch + 1, epoch + 60) in [row[:4] for row in slices]
    (copy,) = [row for row in slices if row[0] == "host"]
    assert copy[1:4] == ("copy in", epoch + 2, epoch + 9)
    assert [(note.name, note.int_value) for note in copy[4].debug_annotations] == [("bytes", 4096)]
    lines = {
        event.debug_annotations[0].int_value: note.string_value
        for track, _, _, _, event in slices
        for note in event.debug_annotations
        if track.startswith("AI") and note.name == "source"
    }
    assert lines == {0: "graph.cpp:10", 4: "graph.cpp:10", 8: "graph.cpp:12"}
    uses = counters_of(parsed, epoch)
    assert uses["ring 2, tasks"] == [(5, 1), (6, 2), (60, 0)]
    assert uses["ring 2, heap bytes"] == [(5, 1024), (6, 5 << 40), (60, 0)]


def test_an_empty_trace_is_a_valid_file(trace: Trace) -> None:
    empty = replace(trace, records=np.zeros(0, RECORD), tasks=np.zeros(0, TASK))
    assert PerfettoMessages(pftrace(empty)).events == []
