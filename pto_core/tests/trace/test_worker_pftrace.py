"""The Perfetto file of a Worker's trace, parsed with the published schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pto_core.trace.worker_pftrace import worker_pftrace
from pto_core.trace.worker_trace import WorkerTrace

EPOCH = 1_000_000
TOP = "L4 (host time; a2a3sim: host time on 1 thread, not the chip's)"


class Parsed:
    """The messages of a file, by their meaning."""

    def __init__(self, content: bytes) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2

        self.trace = perfetto_trace_pb2.Trace()
        self.trace.ParseFromString(content)
        self.tracks: dict[int, Any] = {}
        self.names: dict[int, str] = {}
        for packet in self.trace.packet:
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            for name in packet.interned_data.event_names:
                self.names[name.iid] = name.name
        self.events = [packet for packet in self.trace.packet if packet.HasField("track_event")]

    def lane(self, uuid: int) -> tuple[str, str]:
        """Return the process and the name of a track."""
        track = self.tracks[uuid]
        return self.tracks[track.parent_uuid].process.process_name, track.name

    def slices(self) -> Iterator[tuple[tuple[str, str], str, int, int, Any]]:
        """Yield lane, name, begin, end and the first event of each slice; require nesting."""
        opened: dict[int, list[Any]] = {}
        for packet in self.events:
            event = packet.track_event
            stack = opened.setdefault(event.track_uuid, [])
            if event.type == event.TYPE_SLICE_BEGIN:
                stack.append(packet)
            elif event.type == event.TYPE_SLICE_END:
                first = stack.pop()
                name = self.names[first.track_event.name_iid]
                times = first.timestamp - EPOCH, packet.timestamp - EPOCH
                yield self.lane(event.track_uuid), name, *times, first.track_event
        assert not any(opened.values())


@pytest.mark.toolchain
def test_no_field_is_unknown_to_the_schema(pod: WorkerTrace) -> None:
    from google.protobuf.unknown_fields import UnknownFieldSet

    def check(message: Any) -> None:
        assert len(UnknownFieldSet(message)) == 0, message
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                for one in value if field.is_repeated else [value]:
                    check(one)

    check(Parsed(worker_pftrace(pod)).trace)


@pytest.mark.toolchain
def test_each_process_has_its_lanes_on_one_clock(pod: WorkerTrace) -> None:
    parsed = Parsed(worker_pftrace(pod))
    found = {(*lane, name, begin, end) for lane, name, begin, end, _ in parsed.slices()}
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


@pytest.mark.toolchain
def test_flows_lead_over_processes(pod: WorkerTrace) -> None:
    parsed = Parsed(worker_pftrace(pod))
    begins = {
        (lane, event.debug_annotations[0].int_value): event
        for lane, _, _, _, event in parsed.slices()
        if event.flow_ids
    }
    submits = {}
    for packet in parsed.events:
        event = packet.track_event
        if event.type == event.TYPE_INSTANT:
            lane = parsed.lane(event.track_uuid)[0], event.debug_annotations[0].int_value
            submits[lane] = (packet.timestamp - EPOCH, list(event.flow_ids))
    first = begins[("L4/host1", "tasks"), 0]
    second = begins[("L4/host0", "tasks"), 1]
    (time, flows) = submits[TOP, 1]
    assert time == 8
    assert list(second.terminating_flow_ids) == [*flows, *first.flow_ids]
    flows = [flow for event in begins.values() for flow in event.flow_ids]
    assert len(set(flows)) == len(flows) == 4
