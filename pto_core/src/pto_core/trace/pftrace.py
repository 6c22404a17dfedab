"""Write a trace for Perfetto (ui.perfetto.dev): the protobuf wire format, without a library.

The field numbers are those of ``perfetto/trace/trace.proto`` and the files that it imports. A test
parses the result with the published schema.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache

import numpy as np

from pto_core.trace.records import (
    FIRST_WORKER,
    RESOURCES,
    WITH_DURATION,
    Event,
    track_name,
)
from pto_core.trace.trace import Trace

# TracePacket
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED = 6, 8, 10, 11, 12
_FLAGS, _CLOCK_ID, _DEFAULTS, _TRACK_DESCRIPTOR = 13, 58, 59, 60
_INCREMENTAL_STATE_CLEARED, _NEEDS_INCREMENTAL_STATE = 1, 2
_BOOTTIME, _MONOTONIC = 6, 3
# TrackEvent
_SLICE_BEGIN, _SLICE_END, _INSTANT, _COUNTER = 1, 2, 3, 4
_SMALL = [bytes([value]) for value in range(0x80)]
# The only packet sequence of the file.
_ONLY_SEQUENCE = 1

_PROCESS, _CORES, _POOL, _COUNTERS = 1, 2, 3, 4
_FIRST_TRACK, _FIRST_CORE, _FIRST_COUNTER = 100, 1000, 2000
_COUNTER_NAMES = ("ready tasks", "busy cores", "live tasks")


def pftrace(trace: Trace) -> bytes:
    """Return the content of a ``.pftrace`` file."""
    writer = _Writer(trace)
    return b"".join(_field(1, packet) for packet in writer.packets())


# What happens on a track: the time, the rank among events at the same time (slices end before
# others begin), and the messages. A slice without a length is one item, so it encloses no other.
_Item = tuple[int, int, tuple[bytes, ...]]


class _Writer:
    """Builds the packets of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._names: dict[str, int] = {}

    def packets(self) -> Iterator[bytes]:
        """Yield every packet; the first ones describe clocks, names and tracks."""
        items = [*self._task_items(), *self._thread_items(), *self._counter_items()]
        items.sort(key=lambda item: item[:2])
        epoch = self._trace.epoch_ns
        clocks = (_varint(1, clock) + _varint(2, epoch) for clock in (_BOOTTIME, _MONOTONIC))
        snapshot = b"".join(_field(1, clock) for clock in clocks)
        yield _field(_CLOCK_SNAPSHOT, snapshot) + _varint(_SEQUENCE, _ONLY_SEQUENCE)
        yield (
            _field(_DEFAULTS, _varint(_CLOCK_ID, _MONOTONIC))
            + _field(_INTERNED, b"".join(map(_interned, self._names.items())))
            + _varint(_FLAGS, _INCREMENTAL_STATE_CLEARED)
            + _varint(_SEQUENCE, _ONLY_SEQUENCE)
        )
        yield from self._descriptors()
        tail = _varint(_FLAGS, _NEEDS_INCREMENTAL_STATE) + _varint(_SEQUENCE, _ONLY_SEQUENCE)
        for time, _, messages in items:
            head = _varint(_TIMESTAMP, epoch + time)
            for message in messages:
                yield head + _field(_TRACK_EVENT, message) + tail

    def _descriptors(self) -> Iterator[bytes]:
        trace = self._trace
        title = f"{trace.backend} {trace.runtime}: {trace.note}".strip()
        process = _varint(1, 1) + _text(6, title)
        yield self._track(_PROCESS, None, title, _field(3, process))
        yield self._track(_CORES, _PROCESS, "cores")
        yield self._track(_POOL, _PROCESS, "threads")
        yield self._track(_COUNTERS, _PROCESS, "counters")
        for track in trace.tracks:
            yield self._track(_FIRST_TRACK + track, _POOL, track_name(track))
        for core in np.unique(trace.tasks["core"]):
            if core >= 0:
                yield self._track(_FIRST_CORE + int(core), _CORES, trace.core_name(int(core)))
        for number, name in enumerate(_COUNTER_NAMES):
            yield self._track(_FIRST_COUNTER + number, _COUNTERS, name, _field(8, b""))

    def _track(self, uuid: int, parent: int | None, name: str, more: bytes = b"") -> bytes:
        above = b"" if parent is None else _varint(5, parent)
        descriptor = _varint(1, uuid) + _text(2, name) + above + more
        return _field(_TRACK_DESCRIPTOR, descriptor) + _varint(_SEQUENCE, _ONLY_SEQUENCE)

    def _task_items(self) -> Iterator[_Item]:
        tasks = self._trace.tasks
        for row in tasks[(tasks["start"] >= 0) & (tasks["end"] >= 0)].tolist():
            run, kernel, task, released_by, core, worker, submit, ready, *_, start, end, _done = row
            notes = (
                *(("task", task), ("run", run), ("pool worker", worker)),
                *(("submitted", submit), ("ready", ready), ("released by", released_by)),
            )
            more = b"".join(_note(key, value) for key, value in notes if value >= 0)
            # A task starts a flow to the tasks that it released, and ends the flow to itself.
            more += _fixed(47, _flow(run, task))
            if released_by >= 0:
                more += _fixed(48, _flow(run, released_by))
            name = self._trace.kernel_name(kernel)
            yield from self._slice(_FIRST_CORE + core, start, end, name, more)

    def _thread_items(self) -> Iterator[_Item]:
        """Yield the slices of schedulers, orchestrator and pool workers."""
        durations = {int(event) for event in WITH_DURATION}
        for start, end, a, b, _, event, track, _ in self._trace.records.tolist():
            uuid = _FIRST_TRACK + track
            if event in durations:
                has_tasks = Event.COLLECT <= event <= Event.RETIRE
                more = _note("tasks", b) if has_tasks else b""
                yield from self._slice(uuid, start, end, event_name(event, b), more)
            elif event in (Event.SCOPE_BEGIN, Event.SCOPE_END):
                name = event_name(event, b)
                instant = _varint(9, _INSTANT) + _varint(11, uuid) + self._name(name)
                yield end, 1, (instant + _note("depth", a) + _note("ring", b),)
        for row in self._trace.tasks.tolist():
            _, _, task, _, core, worker, *_, start, end, _done = row
            if start >= 0 and end >= 0:
                uuid = _FIRST_TRACK + FIRST_WORKER + worker
                name = self._trace.core_name(core)
                yield from self._slice(uuid, start, end, name, _note("task", task))

    def _slice(self, uuid: int, start: int, end: int, name: str, more: bytes) -> Iterator[_Item]:
        begin = _varint(9, _SLICE_BEGIN) + _varint(11, uuid) + self._name(name) + more
        stop = _varint(9, _SLICE_END) + _varint(11, uuid)
        if start == end:
            yield start, 1, (begin, stop)
        else:
            yield start, 1, (begin,)
            yield end, 0, (stop,)

    def _counter_items(self) -> Iterator[_Item]:
        tasks = self._trace.tasks
        pairs = (("ready", "dispatch"), ("start", "end"), ("submit", "complete"))
        for number, (begin, end) in enumerate(pairs):
            known = tasks[(tasks[begin] >= 0) & (tasks[end] >= 0)]
            times = np.concatenate([known[begin], known[end]])
            order = np.argsort(times, kind="stable")
            values = np.cumsum(np.repeat((1, -1), len(known))[order])
            last = np.flatnonzero(np.diff(times[order], append=np.iinfo("<i8").max))
            head = _varint(9, _COUNTER) + _varint(11, _FIRST_COUNTER + number)
            for time, value in zip(times[order][last].tolist(), values[last].tolist(), strict=True):
                yield time, 2, (head + _varint(30, max(value, 0)),)

    def _name(self, name: str) -> bytes:
        """Return a reference to a name."""
        return _varint(10, self._names.setdefault(name, len(self._names) + 1))


def _interned(item: tuple[str, int]) -> bytes:
    name, number = item
    return _field(2, _varint(1, number) + _text(2, name))


def _flow(run: int, task: int) -> int:
    return run << 40 | task << 1 | 1


def event_name(event: int, b: int) -> str:
    """Return the name under which an event is shown."""
    name = Event(event).name.lower().replace("_", " ")
    if event == Event.BACK_PRESSURE:
        resource, ring = b & 0xFF, b >> 8
        return f"wait: {RESOURCES.get(resource, 'space')} {ring}"
    return name


def _note(name: str, value: int) -> bytes:
    content = _note_name(name) + _varint(4, value)
    return _tag(4, 2) + _base128(len(content)) + content


@cache
def _note_name(name: str) -> bytes:
    return _text(10, name)


def _varint(number: int, value: int) -> bytes:
    """Return a field with an integer that is not negative."""
    return _tag(number, 0) + _base128(value)


def _fixed(number: int, value: int) -> bytes:
    return _tag(number, 1) + struct.pack("<Q", value)


def _field(number: int, content: bytes) -> bytes:
    return _tag(number, 2) + _base128(len(content)) + content


@cache
def _tag(number: int, kind: int) -> bytes:
    return _base128(number << 3 | kind)


def _text(number: int, content: str) -> bytes:
    return _field(number, content.encode())


def _base128(value: int) -> bytes:
    if value <= 0x7F:
        return _SMALL[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
