"""The Perfetto file of a Worker's trace, parsed with the published schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from perfetto_messages import PerfettoMessages, check_fields

from pto_insight.traces import Event
from pto_insight.traces.pftrace import worker_pftrace
from pto_insight.traces.records import WORKER_RECORD, WORKER_TASK
from pto_insight.traces.worker_trace import WorkerTrace

DrawArrows = Callable[[Iterable[tuple[Any, Any]]], list[tuple[Any, Any]]]
EPOCH = 1_000_000
TOP = "L4 (host time; a2a3sim: host time on 1 thread, not the chip's)"


class Parsed(PerfettoMessages):
    """The messages of the Perfetto file of a Worker."""

    def lane(self, uuid: int) -> tuple[str, str]:
        """Return the process and the name of a track."""
        track = self.tracks[uuid]
        return self.tracks[track.parent_uuid].process.process_name, track.name

    def lane_slices(self) -> Iterator[tuple[tuple[str, str], str, int, int]]:
        """Yield lane, name, begin and end of each slice."""
        for track, name, begin, end, _ in self.slices():
            yield self.lane(track.uuid), name, begin - EPOCH, end - EPOCH


@pytest.mark.toolchain
def test_no_field_is_unknown_to_the_schema(pod: WorkerTrace) -> None:
    check_fields(Parsed(worker_pftrace(pod)).trace)


@pytest.mark.toolchain
def test_each_process_has_its_lanes_on_one_clock(pod: WorkerTrace) -> None:
    parsed = Parsed(worker_pftrace(pod))
    found = {(*lane, name, begin, end) for lane, name, begin, end in parsed.lane_slices()}
    assert found == {
        (TOP, "orchestrator", "build", 0, 90),
        (TOP, "scheduler", "fill", 7, 9),
        (TOP, "ranges of MainThread", "all", 0, 95),
        (TOP, "ranges of MainThread", "part", 0, 50),
        (TOP, "ranges of MainThread", "empty", 60, 60),
        ("L4/host1", "tasks", "near", 10, 40),
        ("L4/host0", "tasks", "far", 50, 80),
        ("L4/host0", "waits", "require", 11, 12),
        ("L4/host0/chip0", "tasks", "near", 58, 70),
        ("L4/host0/chip0", "AIV 0", "load", 64, 66),
        ("L4/host0/chip0", "orchestrator", "build", 60, 69),
    }
    processes = {
        track.process.process_name: track.process.pid
        for track in parsed.tracks.values()
        if track.HasField("process")
    }
    assert processes["L4/host0"] == 22
    assert processes["L4/host1"] == 21
    assert len(set(processes.values())) == 4
    snapshot = parsed.trace.packet[0].clock_snapshot
    assert {clock.clock_id: clock.timestamp for clock in snapshot.clocks} == {3: EPOCH, 6: EPOCH}
    times = [packet.timestamp for packet in parsed.events]
    assert times == sorted(times)


@pytest.mark.toolchain
def test_counters_of_workers_and_devices(pod: WorkerTrace) -> None:
    parsed = Parsed(worker_pftrace(pod))
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for packet in parsed.events:
        event = packet.track_event
        if event.type == event.TYPE_COUNTER:
            assert parsed.tracks[event.track_uuid].HasField("counter")
            steps = found.setdefault(parsed.lane(event.track_uuid), [])
            steps.append((packet.timestamp - EPOCH, event.counter_value))
    assert found[TOP, "busy children"] == [(10, 1), (40, 0), (50, 1), (80, 0)]
    assert found[TOP, "live tasks"] == [(5, 1), (8, 2), (45, 1), (85, 0)]
    assert found["L4/host0", "ready tasks"] == [(56, 1), (57, 0)]
    assert found["L4/host0/chip0", "busy cores"] == [(64, 1), (66, 0)]
    assert len(found) == 9


def named_events(parsed: Parsed) -> Iterator[tuple[tuple[str, int], Any]]:
    """Yield the name, the time and the event of each slice and instant."""
    for packet in parsed.events:
        event = packet.track_event
        if event.type in (event.TYPE_SLICE_BEGIN, event.TYPE_INSTANT):
            yield (parsed.names[event.name_iid], packet.timestamp - EPOCH), event


@pytest.mark.toolchain
def test_arrows_lead_over_processes(pod: WorkerTrace, draw_arrows: DrawArrows) -> None:
    found = draw_arrows(named_events(Parsed(worker_pftrace(pod))))
    assert sorted(found) == [
        (("near", 10), ("far", 50)),
        (("submit far", 8), ("far", 50)),
        (("submit near", 5), ("near", 10)),
        (("submit near", 55), ("near", 58)),
    ]


@pytest.mark.toolchain
def test_each_consumer_member_and_attempt_has_its_arrows(
    pod: WorkerTrace, draw_arrows: DrawArrows
) -> None:
    """Tasks 1 and 2 run after a group of two members; the first attempt of task 2 is lost."""
    pod.tasks = np.array(
        [
            (0, 0, 0, 0, 0, -1, 2, 21, 0, 1, 2, 3, 10, 40, 41, -1),
            (0, 0, 0, 0, 1, -1, 1, 22, 0, 1, 2, 3, 12, 50, 51, -1),
            (0, 0, 1, 1, 0, 0, 2, 21, 0, 4, 51, 52, 60, 70, 71, -1),
            (0, 0, 1, 2, 0, 0, 1, 22, 1, 5, 51, 52, 61, -1, -1, -1),
            (0, 0, 1, 2, 0, 0, 1, 24, 0, 5, 51, 80, 90, 95, 96, -1),
        ],
        WORKER_TASK,
    )
    pod.devices = {}
    found = draw_arrows(named_events(Parsed(worker_pftrace(pod))))
    last = ("near", 12)
    assert sorted(found) == [
        (last, ("far", 60)),
        (last, ("far", 90)),
        (last, ("far (lost)", 61)),
        (("submit far", 4), ("far", 60)),
        (("submit far", 5), ("far", 90)),
        (("submit far", 5), ("far (lost)", 61)),
        (("submit near", 1), ("near", 10)),
        (("submit near", 1), ("near", 12)),
    ]


@pytest.mark.toolchain
def test_slices_that_overlap_are_on_different_tracks(pod: WorkerTrace) -> None:
    waits = [
        (5, 20, 0, 0, 3, Event.PARK, 0, 0, 0),
        (10, 30, 0, 0, 4, Event.PARK, 0, 0, 0),
    ]
    pod.records = np.concatenate([pod.records, np.array(waits, WORKER_RECORD)])
    parsed = Parsed(worker_pftrace(pod))
    found = [
        (lane, begin, end) for lane, name, begin, end in parsed.lane_slices() if name == "park"
    ]
    lane = (TOP, "orchestrator waits")
    assert found == [(lane, 5, 20), (lane, 10, 30)]
    names = [track.name for track in parsed.tracks.values()]
    assert names.count("orchestrator waits") == 2
    assert names.count("ranges of MainThread") == 1, "ranges that nest share a track"


@pytest.mark.toolchain
def test_a_restarted_child_has_the_number_of_its_last_process(pod: WorkerTrace) -> None:
    again = pod.tasks[:1].copy()
    again["pid"], again["start"], again["end"] = 25, 90, 95
    pod.tasks = np.concatenate([pod.tasks, again])
    parsed = Parsed(worker_pftrace(pod))
    (pid,) = {
        track.process.pid
        for track in parsed.tracks.values()
        if track.process.process_name == "L4/host1"
    }
    assert pid == 25
