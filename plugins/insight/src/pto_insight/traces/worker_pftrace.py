"""Write the trace of a Worker for Perfetto: a process for each Worker and child."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pto_insight.traces.analysis import counters
from pto_insight.traces.data import WorkerTraceData
from pto_insight.traces.lanes import Lane, Slice, TaskName, apart, lanes
from pto_insight.traces.wire import field, tag, text, varint

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

_Place = tuple[int, int]
"""The place of a slice: the position of its lane, and its position in the lane."""


class _Counter(NamedTuple):
    """A counter of a process."""

    process: str
    name: str
    times: NDArray[np.int64]
    values: NDArray[np.int64]


class _Arrows(NamedTuple):
    """The numbers of the arrows that begin or end at each slice, or begin at the submit of a task.

    Perfetto calls an arrow a flow. The first slice that terminates a flow ends it, so each arrow
    has its own number.
    """

    submits: dict[TaskName, list[int]]
    begins: dict[_Place, list[int]]
    ends: dict[_Place, list[int]]


def worker_pftrace(trace: WorkerTraceData) -> bytes:
    """Return the content of a ``.pftrace`` file."""
    return b"".join(field(1, packet) for packet in _Writer(trace).packets())


class _Writer:
    """Builds the packets of one trace."""

    def __init__(self, trace: WorkerTraceData) -> None:
        self._trace = trace
        self._lanes = list(_tracks(lanes(trace)))
        self._arrows = _arrows(self._lanes)
        self._counters = list(_counters(trace))
        self._names: dict[str, int] = {}
        processes = dict.fromkeys(lane.process for lane in self._lanes)
        self._process_track = {path: number for number, path in enumerate(processes, 1)}

    def packets(self) -> Iterator[bytes]:
        """Yield every packet; the first ones describe clocks, names and tracks."""
        first = len(self._process_track) + 1
        items = [
            item
            for position, lane in enumerate(self._lanes)
            for item in self._lane_items(first + position, position, lane)
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

    def _lane_items(self, track: int, position: int, lane: Lane) -> Iterator[_Item]:
        for submit in lane.submits:
            name = self._name(f"submit {submit.name}")
            message = (
                varint(9, _INSTANT) + varint(11, track) + name + _note("task", submit.task.task)
            )
            arrows = self._arrows.submits.get(submit.task, [])
            yield (submit.time, _BEGIN, 0), message + _fixed(_FLOWS, arrows)
        for number, one in enumerate(lane.slices):
            yield (one.start, _BEGIN, -one.end), self._begin(track, (position, number), one)
            stop = varint(9, _SLICE_END) + varint(11, track)
            # A slice without a length ends after its begin.
            rank = _END if one.end > one.start else _BEGIN
            yield (one.end, rank, -one.start if rank == _END else -one.end), stop

    def _begin(self, track: int, place: _Place, one: Slice) -> bytes:
        notes = b"".join(_note(key, value) for key, value in one.notes.items())
        head = varint(9, _SLICE_BEGIN) + varint(11, track) + self._name(one.name)
        begins, ends = self._arrows.begins.get(place, []), self._arrows.ends.get(place, [])
        return head + notes + _fixed(_FLOWS, begins) + _fixed(_ENDED_FLOWS, ends)

    def _name(self, name: str) -> bytes:
        """Return a reference to a name."""
        return varint(10, self._names.setdefault(name, len(self._names) + 1))


def _tracks(found: list[Lane]) -> Iterator[Lane]:
    """Yield the lanes; if slices of a lane overlap without nesting, yield it in several parts."""
    for lane in found:
        first, *others = list(apart(lane.slices, may_nest=True)) or [[]]
        yield lane._replace(slices=first)
        yield from (lane._replace(slices=part, submits=[]) for part in others)


def _arrows(tracks: list[Lane]) -> _Arrows:
    """Return the arrows from each submit to the slices of its task, and those between tasks.

    A task is released by the last member of a group to end, and by the last attempt.
    """
    places: dict[TaskName, list[_Place]] = {}
    for position, lane in enumerate(tracks):
        for number, one in enumerate(lane.slices):
            if one.task is not None:
                places.setdefault(one.task, []).append((position, number))

    def slice_at(place: _Place) -> Slice:
        return tracks[place[0]].slices[place[1]]

    last = {name: max(mine, key=lambda each: slice_at(each).end) for name, mine in places.items()}
    numbers = itertools.count(1)
    arrows = _Arrows({}, {}, {})
    submitted = {submit.task for lane in tracks for submit in lane.submits}
    for name, mine in places.items():
        for place in mine:
            ends = arrows.ends.setdefault(place, [])
            if name in submitted:
                ends.append(next(numbers))
                arrows.submits.setdefault(name, []).append(ends[-1])
            after = slice_at(place).after
            if after is not None and after in last:
                ends.append(next(numbers))
                arrows.begins.setdefault(last[after], []).append(ends[-1])
    return arrows


def _counters(trace: WorkerTraceData) -> Iterator[_Counter]:
    """Yield the counters of each Worker and of each device."""
    for path, view in trace.views().items():
        for name, (times, values) in counters(view).items():
            shown = name.replace("cores", "children") if path in trace.children else name
            if len(times):
                yield _Counter(path, shown, times, values)


def _counter_items(track: int, counter: _Counter) -> Iterator[_Item]:
    head = varint(9, _COUNTER) + varint(11, track)
    for time, value in zip(counter.times.tolist(), counter.values.tolist(), strict=True):
        yield (time, _VALUE, 0), head + varint(30, max(value, 0))


def _pids(trace: WorkerTraceData) -> dict[str, int]:
    """Return the process of each path; the last one, if a child was restarted."""
    known = trace.tasks[trace.tasks["pid"] > 0]
    found = {
        trace.path(child): pid
        for child, pid in zip(known["child"].tolist(), known["pid"].tolist(), strict=True)
    }
    return {**found, **trace.pids}


def _descriptor(track: int, name: str, more: bytes) -> bytes:
    descriptor = varint(1, track) + text(2, name) + more
    return field(_TRACK_DESCRIPTOR, descriptor) + _ONLY_SEQUENCE


def _note(name: str, value: int | str) -> bytes:
    content = text(6, value) if isinstance(value, str) else varint(4, value)
    return field(4, text(10, name) + content)


def _fixed(number: int, values: list[int]) -> bytes:
    return b"".join(tag(number, 1) + struct.pack("<Q", value) for value in values)
