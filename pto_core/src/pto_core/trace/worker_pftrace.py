"""Write the trace of a Worker for Perfetto: a process for each Worker and child."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pto_core.trace.analysis import counters
from pto_core.trace.lanes import Lane, Slice, TaskName, lanes
from pto_core.trace.wire import field, tag, text, varint
from pto_core.trace.worker_data import WorkerTraceData
from pto_core.trace.worker_summary import worker_view

# The field numbers are those of perfetto/trace/trace.proto; see pftrace.py.
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED = 6, 8, 10, 11, 12
_FLAGS, _CLOCK_ID, _DEFAULTS, _TRACK_DESCRIPTOR = 13, 58, 59, 60
_INCREMENTAL_STATE_CLEARED, _NEEDS_INCREMENTAL_STATE = 1, 2
_BOOTTIME, _MONOTONIC = 6, 3
_SLICE_BEGIN, _SLICE_END, _INSTANT, _COUNTER = 1, 2, 3, 4
_FLOWS, _ENDED_FLOWS = 47, 48
_ONLY_SEQUENCE = varint(_SEQUENCE, 1)

# A message, with the key that orders it: the time, and at the same time ends before begins, and
# outer slices around inner ones.
_Item = tuple[tuple[int, int, int], bytes]
_END, _BEGIN, _VALUE = 0, 1, 2


class _Counter(NamedTuple):
    """A counter of a process."""

    process: str
    name: str
    times: NDArray[np.int64]
    values: NDArray[np.int64]


def worker_pftrace(trace: WorkerTraceData) -> bytes:
    """Return the content of a ``.pftrace`` file."""
    return b"".join(field(1, packet) for packet in _Writer(trace).packets())


class _Writer:
    """Builds the packets of one trace."""

    def __init__(self, trace: WorkerTraceData) -> None:
        self._trace = trace
        self._lanes = lanes(trace)
        self._counters = list(_counters(trace))
        self._names: dict[str, int] = {}
        processes = dict.fromkeys(lane.process for lane in self._lanes)
        self._process_track = {path: number for number, path in enumerate(processes, 1)}

    def packets(self) -> Iterator[bytes]:
        """Yield every packet; the first ones describe clocks, names and tracks."""
        first = len(self._process_track) + 1
        items = [
            item
            for track, lane in enumerate(self._lanes, first)
            for item in self._lane_items(track, lane)
        ]
        for track, counter in enumerate(self._counters, first + len(self._lanes)):
            items += _counter_items(track, counter)
        items.sort(key=lambda item: item[0])
        epoch = self._trace.epoch_ns
        clocks = (varint(1, clock) + varint(2, epoch) for clock in (_BOOTTIME, _MONOTONIC))
        yield field(_CLOCK_SNAPSHOT, b"".join(field(1, clock) for clock in clocks)) + _ONLY_SEQUENCE
        interned = (varint(1, number) + text(2, name) for name, number in self._names.items())
        yield (
            field(_DEFAULTS, varint(_CLOCK_ID, _MONOTONIC))
            + field(_INTERNED, b"".join(field(2, one) for one in interned))
            + varint(_FLAGS, _INCREMENTAL_STATE_CLEARED)
            + _ONLY_SEQUENCE
        )
        yield from self._descriptors(first)
        tail = varint(_FLAGS, _NEEDS_INCREMENTAL_STATE) + _ONLY_SEQUENCE
        for (time, *_), message in items:
            yield varint(_TIMESTAMP, epoch + time) + field(_TRACK_EVENT, message) + tail

    def _descriptors(self, first: int) -> Iterator[bytes]:
        pids = _pids(self._trace)
        for number, (path, track) in enumerate(self._process_track.items(), 1):
            title = f"{path} ({self._trace.note})" if number == 1 else path
            process = varint(1, pids.get(path, number)) + text(6, title)
            yield _descriptor(track, title, field(3, process))
        for track, lane in enumerate(self._lanes, first):
            above = varint(5, self._process_track[lane.process])
            yield _descriptor(track, lane.name, above)
        for track, counter in enumerate(self._counters, first + len(self._lanes)):
            above = varint(5, self._process_track[counter.process])
            yield _descriptor(track, counter.name, above + field(8, b""))

    def _lane_items(self, track: int, lane: Lane) -> Iterator[_Item]:
        for submit in lane.submits:
            name = self._name(f"submit {submit.name}")
            message = (
                varint(9, _INSTANT) + varint(11, track) + name + _note("task", submit.task.task)
            )
            yield (submit.time, _BEGIN, 0), message + _fixed(_FLOWS, _flow(submit.task, 0))
        for one in lane.slices:
            yield (one.start, _BEGIN, -one.end), self._begin(track, one)
            stop = varint(9, _SLICE_END) + varint(11, track)
            # A slice without a length ends after its begin.
            rank = _END if one.end > one.start else _BEGIN
            yield (one.end, rank, -one.start if rank == _END else -one.end), stop

    def _begin(self, track: int, one: Slice) -> bytes:
        flows = b""
        if one.task is not None:
            flows = _fixed(_ENDED_FLOWS, _flow(one.task, 0)) + _fixed(_FLOWS, _flow(one.task, 1))
        if one.after is not None:
            flows += _fixed(_ENDED_FLOWS, _flow(one.after, 1))
        notes = b"".join(_note(key, value) for key, value in one.notes.items())
        return varint(9, _SLICE_BEGIN) + varint(11, track) + self._name(one.name) + notes + flows

    def _name(self, name: str) -> bytes:
        """Return a reference to a name."""
        return varint(10, self._names.setdefault(name, len(self._names) + 1))


def _counters(trace: WorkerTraceData) -> Iterator[_Counter]:
    """Yield the counters of each Worker and of each device."""
    views = {path: worker_view(trace, path) for path in trace.children}
    for path, view in {**views, **trace.devices}.items():
        for name, (times, values) in counters(view).items():
            shown = name.replace("cores", "children") if path in views else name
            if len(times):
                yield _Counter(path, shown, times, values)


def _counter_items(track: int, counter: _Counter) -> Iterator[_Item]:
    head = varint(9, _COUNTER) + varint(11, track)
    for time, value in zip(counter.times.tolist(), counter.values.tolist(), strict=True):
        yield (time, _VALUE, 0), head + varint(30, max(value, 0))


def _pids(trace: WorkerTraceData) -> dict[str, int]:
    """Return the process of each path; the last one, if a child was restarted."""
    found = dict(trace.pids)
    known = trace.tasks[trace.tasks["pid"] > 0]
    for child, pid in zip(known["child"].tolist(), known["pid"].tolist(), strict=True):
        found.setdefault(trace.path(child), pid)
    return found


def _descriptor(track: int, name: str, more: bytes) -> bytes:
    descriptor = varint(1, track) + text(2, name) + more
    return field(_TRACK_DESCRIPTOR, descriptor) + _ONLY_SEQUENCE


def _flow(name: TaskName, kind: int) -> int:
    """Return the number of a flow: from the submit (0) or the end (1) of a task."""
    return name.part << 53 | (name.run & 0xFFFFF) << 33 | (name.task & 0xFFFFFFFF) << 1 | kind


def _note(name: str, value: int) -> bytes:
    return field(4, text(10, name) + varint(4, value))


def _fixed(number: int, value: int) -> bytes:
    return tag(number, 1) + struct.pack("<Q", value & (2**64 - 1))
