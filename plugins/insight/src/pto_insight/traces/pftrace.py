"""Write a trace for Perfetto (ui.perfetto.dev): the protobuf wire format, without a library.

The field numbers are those of ``perfetto/trace/trace.proto`` and the files that it imports. A test
parses the result with the published schema.

:func:`pftrace` writes the trace of a device, which may have millions of tasks. The packets of one
kind have equal lengths, because their integers are padded to the longest one, so NumPy writes all
of them at once. :func:`worker_pftrace` writes the lanes of a Worker, a process for each Worker and
child.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pto_insight.traces.analysis import counters, rows_of
from pto_insight.traces.data import TraceData, WorkerTraceData
from pto_insight.traces.lanes import Lane, Slice, TaskNumber, apart, lanes
from pto_insight.traces.records import (
    FIRST_WORKER,
    WITH_DURATION,
    Event,
    event_name,
    track_name,
)

# ---- the wire format of Protocol Buffers ----

_SMALL = [bytes([value]) for value in range(0x80)]


def varint(number: int, value: int) -> bytes:
    """Return a field with an integer that is not negative."""
    return tag(number, 0) + base128(value)


def field(number: int, content: bytes) -> bytes:
    """Return a field with bytes or a message."""
    return tag(number, 2) + base128(len(content)) + content


def text(number: int, content: str) -> bytes:
    """Return a field with a text."""
    return field(number, content.encode(errors="backslashreplace"))


@cache
def tag(number: int, kind: int) -> bytes:
    """Return the head of a field."""
    return base128(number << 3 | kind)


def base128(value: int) -> bytes:
    """Return an integer that is not negative, seven bits in each byte."""
    if value <= 0x7F:
        return _SMALL[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


# ---- the packets of a trace ----

# TracePacket
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED = 6, 8, 10, 11, 12
_FLAGS, _CLOCK_ID, _DEFAULTS, _TRACK_DESCRIPTOR = 13, 58, 59, 60
_INCREMENTAL_STATE_CLEARED, _NEEDS_INCREMENTAL_STATE = 1, 2
_BOOTTIME, _MONOTONIC = 6, 3
# TrackEvent
_SLICE_BEGIN, _SLICE_END, _INSTANT, _COUNTER = 1, 2, 3, 4
_FLOWS, _ENDED_FLOWS = 47, 48
# A field of each packet, and one of the descriptor of a counter.
_ONLY_SEQUENCE = varint(_SEQUENCE, 1)
_IS_COUNTER = field(8, b"")

_PROCESS, _CORES, _POOL, _COUNTERS = 1, 2, 3, 4
_FIRST_TRACK, _FIRST_CORE, _FIRST_COUNTER = 100, 1000, 2000

# The order of events at the same time: slices end before others begin.
_END, _BEGIN, _VALUE = 0, 1, 2

_Column = NDArray[np.int64]
# A part of the packets of one kind: bytes that are equal in all, or one row of bytes for each.
_Piece = bytes | NDArray[np.uint8]

_ROWS_AT_ONCE = 1 << 15

# A message, with the key that orders it: the time, and at the same time ends before begins, and
# outer slices around inner ones.
_Item = tuple[tuple[int, int, int], bytes]

_Place = tuple[int, int]
"""The place of a slice: the position of its lane, and its position in the lane."""


def pftrace(trace: TraceData) -> bytes:
    """Return the content of a ``.pftrace`` file of a device."""
    writer = _DeviceWriter(trace)
    content = writer.packets()
    return b"".join(field(1, packet) for packet in writer.head()) + content


def worker_pftrace(trace: WorkerTraceData) -> bytes:
    """Return the content of a ``.pftrace`` file of a Worker."""
    return b"".join(field(1, packet) for packet in _WorkerWriter(trace).packets())


class _DeviceWriter:
    """Builds the packets of the trace of a device."""

    def __init__(self, trace: TraceData) -> None:
        self._trace = trace
        self._names: dict[str, int] = {}
        self._parts: list[tuple[_Column, int, _Column, NDArray[np.uint8]]] = []
        self._counters = counters(trace)

    def packets(self) -> bytes:
        """Return the packets of all events, ordered by time."""
        self._add_tasks()
        self._add_records()
        self._add_counters()
        if not self._parts:
            return b""
        times = np.concatenate([part[0] for part in self._parts])
        ranks = np.repeat([part[1] for part in self._parts], [len(p[0]) for p in self._parts])
        keys = np.concatenate([part[2] for part in self._parts])
        lengths = np.repeat(
            [part[3].shape[1] for part in self._parts], [len(p[0]) for p in self._parts]
        )
        order = np.lexsort((keys, ranks, times))
        places = np.empty(len(order), "<i8")
        places[order] = np.cumsum(lengths[order]) - lengths[order]
        out = np.empty(int(lengths.sum()), "u1")
        first = 0
        for _, _, _, rows in self._parts:
            for begin in range(0, len(rows), _ROWS_AT_ONCE):
                some = rows[begin : begin + _ROWS_AT_ONCE]
                where = places[first + begin : first + begin + len(some), None]
                out[where + np.arange(rows.shape[1])] = some
            first += len(rows)
        return out.tobytes()

    def head(self) -> Iterator[bytes]:
        """Yield the packets that describe clocks, names and tracks; call it after packets()."""
        yield from _clocks_and_names(self._trace.epoch_ns, self._names)
        yield from self._descriptors()

    def _descriptors(self) -> Iterator[bytes]:
        trace = self._trace
        title = f"{trace.backend} {trace.runtime}: {trace.note}".strip()
        process = varint(1, 1) + text(6, title)
        yield _descriptor(_PROCESS, title, field(3, process))
        yield _descriptor(_CORES, "cores", _below(_PROCESS))
        yield _descriptor(_POOL, "threads", _below(_PROCESS))
        yield _descriptor(_COUNTERS, "counters", _below(_PROCESS))
        for track in trace.tracks:
            yield _descriptor(_FIRST_TRACK + track, track_name(track), _below(_POOL))
        for core in np.unique(trace.tasks["core"]):
            if core >= 0:
                name = trace.core_name(int(core))
                yield _descriptor(_FIRST_CORE + int(core), name, _below(_CORES))
        for number, name in enumerate(self._counters):
            yield _descriptor(_FIRST_COUNTER + number, name, _below(_COUNTERS) + _IS_COUNTER)

    def _add_tasks(self) -> None:
        """Add a slice on the core and one on the pool worker for each task that ended."""
        trace = self._trace
        tasks = trace.tasks[(trace.tasks["start"] >= 0) & (trace.tasks["end"] >= 0)]
        kernels = np.array([*map(self._name, trace.kernels), self._name("?")], "<i8")
        cores = np.array([self._name(trace.core_name(n)) for n in range(3 * trace.blocks)], "<i8")
        arrows = _Arrows(tasks)
        shown = tasks.copy()
        for name in ("task", "released_by"):
            shown[name] = trace.task_numbers(tasks[name])
        names = ("worker", "submit", "ready", "processor", "released_by")
        known = np.stack([tasks[name] >= 0 for name in names], axis=1)
        shapes = [arrows.producers >= 0, arrows.counts, _places(trace, tasks["task"])]
        kinds = np.concatenate([known, np.stack(shapes, axis=1)], axis=1)
        found, kind_of = np.unique(kinds, axis=0, return_inverse=True)
        for number, kind in enumerate(found.tolist()):
            mine = np.flatnonzero(kind_of.reshape(-1) == number)
            rows = shown[mine]
            more = [*_task_notes(rows, *map(bool, kind[:5])), arrows.pieces(mine)]
            if kind[-1] >= 0 and trace.details is not None:
                more.append([_one_note("source", trace.details.places[kind[-1]])])
            self._add_slices(
                rows, _FIRST_CORE + _column(rows, "core"), kernels[rows["kernel"]], more
            )
        on_pool = shown[tasks["worker"] >= 0]
        self._add_slices(
            on_pool,
            _FIRST_TRACK + FIRST_WORKER + _column(on_pool, "worker"),
            cores[on_pool["core"]],
            [_note("task", _column(on_pool, "task"))],
        )

    def _add_records(self) -> None:
        """Add the slices and instants of schedulers, orchestrator and pool workers."""
        records = self._trace.records
        for event in WITH_DURATION:
            mine = records[records["event"] == event]
            values, of_value = np.unique(
                mine["b"] if event is Event.BACK_PRESSURE else np.zeros(len(mine), "<u8"),
                return_inverse=True,
            )
            numbers = np.array([self._name(event_name(event, int(b))) for b in values], "<i8")
            notes = []
            if Event.COLLECT <= event <= Event.RETIRE:
                notes.append(_note("tasks", _column(mine, "b")))
            elif event in (Event.COPY_IN, Event.COPY_OUT):
                notes.append(_note("bytes", _column(mine, "b")))
            if len(mine):
                track = _FIRST_TRACK + _column(mine, "track")
                self._add_slices(mine, track, numbers[of_value.reshape(-1)], notes)
        for event in (Event.SCOPE_BEGIN, Event.SCOPE_END):
            mine = records[records["event"] == event]
            instant = [
                varint(9, _INSTANT),
                _number(11, _FIRST_TRACK + _column(mine, "track")),
                varint(10, self._name(event_name(event, 0))),
                *_note("depth", _column(mine, "a")),
                *_note("ring", _column(mine, "b")),
            ]
            self._add(_column(mine, "end"), _BEGIN, _column(mine, "end"), instant)
        for row in self._trace.ranges.tolist():
            name, track, start, end = row
            one = np.array([(start, end)], [("start", "<i8"), ("end", "<i8")])
            number = np.array([self._name(self._trace.range_names[name])])
            self._add_slices(one, np.array([_FIRST_TRACK + track]), number, [])

    def _add_slices(
        self,
        rows: NDArray[np.void],
        tracks: _Column,
        names: _Column,
        more: Sequence[Sequence[_Piece]],
    ) -> None:
        """Add slices. One without a length is a single item, so that it encloses no other."""
        start, end = _column(rows, "start"), _column(rows, "end")
        begin: list[_Piece] = [
            varint(9, _SLICE_BEGIN),
            _number(11, tracks),
            _number(10, names),
            *itertools.chain.from_iterable(more),
        ]
        stop: list[_Piece] = [varint(9, _SLICE_END), _number(11, tracks)]
        is_empty = start == end
        long = ~is_empty
        self._add(start[long], _BEGIN, -end[long], _some(begin, long))
        self._add(end[long], _END, -start[long], _some(stop, long))
        self._add(
            *(start[is_empty], _BEGIN, -end[is_empty]),
            *(_some(begin, is_empty), _some(stop, is_empty)),
        )

    def _add_counters(self) -> None:
        for number, (times, values) in enumerate(self._counters.values()):
            event = [varint(9, _COUNTER) + varint(11, _FIRST_COUNTER + number)]
            self._add(times, _VALUE, times, [*event, _number(30, np.maximum(values, 0))])

    def _add(self, times: _Column, rank: int, keys: _Column, *events: Sequence[_Piece]) -> None:
        """Add a packet for each time; with several ``events``, as many packets beside each other.

        ``keys`` orders packets of the same time and rank.
        """
        if not len(times):
            return
        stamp = _number(_TIMESTAMP, self._trace.epoch_ns + times)
        tail = varint(_FLAGS, _NEEDS_INCREMENTAL_STATE) + _ONLY_SEQUENCE
        pieces: list[_Piece] = []
        for event in events:
            pieces += _message(1, [stamp, *_message(_TRACK_EVENT, event), tail])
        rows = np.empty((len(times), sum(map(_length, pieces))), "u1")
        at = 0
        for piece in pieces:
            rows[:, at : at + _length(piece)] = (
                np.frombuffer(piece, "u1") if isinstance(piece, bytes) else piece
            )
            at += _length(piece)
        self._parts.append((times, rank, keys, rows))

    def _name(self, name: str) -> int:
        """Return the number by which packets refer to a name."""
        return self._names.setdefault(name, len(self._names) + 1)


class _Arrows:
    """The arrows from each task to the tasks that it released, by row of ``tasks``.

    Perfetto calls an arrow a flow. The first slice that terminates a flow ends it, so each arrow
    has its own number: that of the row at its end, from 1.
    """

    def __init__(self, tasks: NDArray[Any]) -> None:
        self.producers = rows_of(tasks, tasks["run"], tasks["released_by"])
        ends = np.flatnonzero(self.producers >= 0)
        self.counts = np.bincount(self.producers[ends], minlength=len(tasks))
        self._firsts = np.cumsum(self.counts) - self.counts
        self._ends = ends[np.argsort(self.producers[ends], kind="stable")]

    def pieces(self, rows: _Column) -> list[_Piece]:
        """Return the arrows of rows that begin equally many arrows, and end equally many."""
        places = self._firsts[rows, None] + np.arange(self.counts[rows[0]])
        pieces: list[_Piece] = [_fixed(_FLOWS, self._ends[places] + 1)]
        if self.producers[rows[0]] >= 0:
            pieces.append(_fixed(_ENDED_FLOWS, rows[:, None] + 1))
        return pieces


def _places(trace: TraceData, tasks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the source line of each task, or -1."""
    details = trace.details
    if details is None or not len(details.submits):
        return np.full(len(tasks), -1)
    rows = details.rows(tasks)
    return np.where(rows >= 0, details.submits["place"][rows], -1)


def _task_notes(
    rows: NDArray[np.void],
    worker: bool,
    submit: bool,
    ready: bool,
    processor: bool,
    released: bool,
) -> list[Sequence[_Piece]]:
    """Return the annotations of tasks; the flags state which values are known."""
    task, run = _column(rows, "task"), _column(rows, "run")
    notes: list[Sequence[_Piece]] = [_note("task", task), _note("run", run)]
    if worker:
        notes.append(_note("pool worker", _column(rows, "worker")))
    if submit:
        notes.append(_note("submitted", _column(rows, "submit")))
    if ready:
        notes.append(_note("ready", _column(rows, "ready")))
    if processor:
        notes.append(_note("processor", _column(rows, "processor")))
    if released:
        notes.append(_note("released by", _column(rows, "released_by")))
    return notes


def _column(rows: NDArray[np.void], name: str) -> _Column:
    return rows[name].astype("<i8")


def _some(pieces: Sequence[_Piece], rows: NDArray[np.bool_]) -> list[_Piece]:
    return [piece if isinstance(piece, bytes) else piece[rows] for piece in pieces]


def _length(piece: _Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.shape[1]


def _message(number: int, pieces: Sequence[_Piece]) -> list[_Piece]:
    return [tag(number, 2) + base128(sum(map(_length, pieces))), *pieces]


def _number(number: int, values: _Column) -> NDArray[np.uint8]:
    """Return a field with an integer that is not negative, of the same width for all values."""
    width = max((int(values.max(initial=0)).bit_length() + 6) // 7, 1)
    shifts = 7 * np.arange(width)
    groups = (values[:, None] >> shifts & 0x7F).astype("u1")
    groups[:, :-1] |= 0x80
    head = np.frombuffer(tag(number, 0), "u1")
    return np.concatenate([np.broadcast_to(head, (len(values), len(head))), groups], axis=1)


def _fixed(number: int, values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a field for each value in a row, for all rows of ``values``."""
    head = np.frombuffer(tag(number, 1), "u1")
    heads = np.broadcast_to(head, (*values.shape, len(head)))
    content = np.ascontiguousarray(values, "<i8")[..., None].view("u1")
    return np.concatenate([heads, content], axis=2).reshape(len(values), -1)


def _note(name: str, values: _Column) -> list[_Piece]:
    return _message(4, [text(10, name), _number(4, values)])


class _Counter(NamedTuple):
    """A counter of a process."""

    process: str
    name: str
    times: NDArray[np.int64]
    values: NDArray[np.int64]


class _LaneArrows(NamedTuple):
    """The numbers of the arrows that begin or end at each slice, or begin at the submit of a task.

    Perfetto calls an arrow a flow. The first slice that terminates a flow ends it, so each arrow
    has its own number.
    """

    submits: dict[TaskNumber, list[int]]
    begins: dict[_Place, list[int]]
    ends: dict[_Place, list[int]]


class _WorkerWriter:
    """Builds the packets of the trace of a Worker."""

    def __init__(self, trace: WorkerTraceData) -> None:
        self._trace = trace
        self._lanes = list(_tracks(lanes(trace)))
        self._arrows = _lane_arrows(self._lanes)
        self._counters = list(_worker_counters(trace))
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
        yield from _clocks_and_names(epoch, self._names)
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
            yield _descriptor(track, lane.name, _below(self._process_track[lane.process]))
        for track, counter in enumerate(self._counters, first + len(self._lanes)):
            above = _below(self._process_track[counter.process])
            yield _descriptor(track, counter.name, above + _IS_COUNTER)

    def _lane_items(self, track: int, position: int, lane: Lane) -> Iterator[_Item]:
        for submit in lane.submits:
            name = self._name(f"submit {submit.name}")
            message = (
                varint(9, _INSTANT) + varint(11, track) + name + _one_note("task", submit.task.task)
            )
            arrows = self._arrows.submits.get(submit.task, [])
            yield (submit.time, _BEGIN, 0), message + _each_fixed(_FLOWS, arrows)
        for number, one in enumerate(lane.slices):
            yield (one.start, _BEGIN, -one.end), self._begin(track, (position, number), one)
            stop = varint(9, _SLICE_END) + varint(11, track)
            # A slice without a length ends after its begin.
            rank = _END if one.end > one.start else _BEGIN
            yield (one.end, rank, -one.start if rank == _END else -one.end), stop

    def _begin(self, track: int, place: _Place, one: Slice) -> bytes:
        notes = b"".join(_one_note(key, value) for key, value in one.notes.items())
        head = varint(9, _SLICE_BEGIN) + varint(11, track) + self._name(one.name)
        begins, ends = self._arrows.begins.get(place, []), self._arrows.ends.get(place, [])
        return head + notes + _each_fixed(_FLOWS, begins) + _each_fixed(_ENDED_FLOWS, ends)

    def _name(self, name: str) -> bytes:
        """Return a reference to a name."""
        return varint(10, self._names.setdefault(name, len(self._names) + 1))


def _tracks(found: list[Lane]) -> Iterator[Lane]:
    """Yield the lanes; if slices of a lane overlap without nesting, yield it in several parts."""
    for lane in found:
        first, *others = list(apart(lane.slices, may_nest=True)) or [[]]
        yield lane._replace(slices=first)
        yield from (lane._replace(slices=part, submits=[]) for part in others)


def _lane_arrows(tracks: list[Lane]) -> _LaneArrows:
    """Return the arrows from each submit to the slices of its task, and those between tasks.

    A task is released by the last member of a group to end, and by the last attempt.
    """
    places: dict[TaskNumber, list[_Place]] = {}
    for position, lane in enumerate(tracks):
        for number, one in enumerate(lane.slices):
            if one.task is not None:
                places.setdefault(one.task, []).append((position, number))

    def slice_at(place: _Place) -> Slice:
        return tracks[place[0]].slices[place[1]]

    last = {name: max(mine, key=lambda each: slice_at(each).end) for name, mine in places.items()}
    numbers = itertools.count(1)
    arrows = _LaneArrows({}, {}, {})
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


def _worker_counters(trace: WorkerTraceData) -> Iterator[_Counter]:
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


def _one_note(name: str, value: int | str) -> bytes:
    content = text(6, value) if isinstance(value, str) else varint(4, value)
    return field(4, text(10, name) + content)


def _each_fixed(number: int, values: list[int]) -> bytes:
    return b"".join(tag(number, 1) + struct.pack("<Q", value) for value in values)


def _clocks_and_names(epoch_ns: int, names: Mapping[str, int]) -> Iterator[bytes]:
    """Yield the first packets. ``names``: the number by which packets refer to each name."""
    clocks = (varint(1, clock) + varint(2, epoch_ns) for clock in (_BOOTTIME, _MONOTONIC))
    yield field(_CLOCK_SNAPSHOT, b"".join(field(1, clock) for clock in clocks)) + _ONLY_SEQUENCE
    interned = (varint(1, number) + text(2, name) for name, number in names.items())
    yield (
        field(_DEFAULTS, varint(_CLOCK_ID, _MONOTONIC))
        + field(_INTERNED, b"".join(field(2, one) for one in interned))
        + varint(_FLAGS, _INCREMENTAL_STATE_CLEARED)
        + _ONLY_SEQUENCE
    )


def _descriptor(track: int, name: str, more: bytes) -> bytes:
    descriptor = varint(1, track) + text(2, name) + more
    return field(_TRACK_DESCRIPTOR, descriptor) + _ONLY_SEQUENCE


def _below(track: int) -> bytes:
    """Return the field of a descriptor that names the track around it."""
    return varint(5, track)
