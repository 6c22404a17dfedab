"""Read a Perfetto file with the public schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class PerfettoMessages:
    """The messages of a Perfetto file: tracks, names of events, and events."""

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

    def slices(self) -> Iterator[tuple[Any, str, int, int, Any]]:
        """Yield track, name, begin, end and the first event of each slice; require nesting."""
        opened: dict[int, list[Any]] = {}
        for packet in self.events:
            event = packet.track_event
            stack = opened.setdefault(event.track_uuid, [])
            if event.type == event.TYPE_SLICE_BEGIN:
                stack.append(packet)
            elif event.type == event.TYPE_SLICE_END:
                first = stack.pop()
                name = self.names[first.track_event.name_iid]
                track = self.tracks[event.track_uuid]
                yield track, name, first.timestamp, packet.timestamp, first.track_event
        assert not any(opened.values())


def check_fields(message: Any) -> None:
    """Check that the schema knows each field of a message and of its parts."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in value if field.is_repeated else [value]:
                check_fields(one)
