"""The events, arrays and marked ranges of a trace. ``pto/abi/trace.h`` defines the events."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.user_ranges import Range


class Event(IntEnum):
    """The events of a trace. Their group is the hexadecimal digit before the last.

    FINISH, WITHDRAW, ARGUMENT, REQUIRE and PROCESSOR occur in the traces of Workers only.
    """

    SUBMIT = 0x01
    READY = 0x02
    DISPATCH = 0x03
    START = 0x04
    END = 0x05
    COMPLETE = 0x06
    FINISH = 0x07
    BUILD = 0x08
    COPY_IN = 0x09
    COPY_OUT = 0x0A
    RANGE_BEGIN = 0x0B
    RANGE_TEXT = 0x0C
    RANGE_END = 0x0D
    WITHDRAW = 0x0E
    COUNTER = 0x0F
    COLLECT = 0x10
    WIRE = 0x11
    FILL = 0x12
    RETIRE = 0x13
    SCOPE_BEGIN = 0x14
    SCOPE_END = 0x15
    RING = 0x16
    ARGUMENT = 0x17
    BACK_PRESSURE = 0x20
    PARK = 0x21
    REQUIRE = 0x22
    PROCESSOR = 0x23
    EDGE = 0x30
    RELEASE = 0x31


WITH_DURATION = (
    Event.BUILD,
    Event.COPY_IN,
    Event.COPY_OUT,
    Event.COLLECT,
    Event.WIRE,
    Event.FILL,
    Event.RETIRE,
    Event.BACK_PRESSURE,
    Event.PARK,
    Event.REQUIRE,
)

ORCHESTRATOR = 0
FIRST_SCHEDULER = 1
FIRST_WORKER = 5
HOST = 67
"""The track of the thread that called ``run``."""
TRACKS = 68

STEPS = 3
"""The clock of a deterministic run, ``PTO_CLOCK_STEPS``."""

NATIVE = np.dtype(
    [
        ("clock", "<u8"),
        ("a", "<u8"),
        ("b", "<u8"),
        ("number", "<u4"),
        ("event", "<u2"),
        ("track", "<u2"),
    ]
)
"""``pto_trace_record``."""

RECORD = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("a", "<u8"),
        ("b", "<u8"),
        ("number", "<u4"),
        ("event", "<u2"),
        ("track", "<u2"),
        ("run", "<u4"),
    ]
)
"""A record of :attr:`Trace.records`. An event without a duration has ``start == end``."""

_TIMES = [
    (name, "<i8")
    for name in ("submit", "ready", "dispatch", "start", "end", "complete", "processor")
]
TASK = np.dtype(
    [
        ("run", "<u4"),
        ("kernel", "<i4"),
        ("task", "<i8"),
        ("released_by", "<i8"),
        ("core", "<i2"),
        ("worker", "<i2"),
        *_TIMES,
    ]
)
"""A row of :attr:`Trace.tasks`. An unknown value is -1.

``processor``: the time in which a processor ran the kernel, from level 3 on. The kernel waited, or
another program had the processor, in the rest of the time from ``start`` to ``end``.
"""

COUNTERS = (
    "task-clock",
    "page-faults",
    "context-switches",
    "cycles",
    "instructions",
    "cache-misses",
    "branch-misses",
)
"""The names of PTO_COUNTER_*."""

WORKER_RECORD = np.dtype([*RECORD.descr, ("worker", "<u2")])
"""A record of :attr:`WorkerTrace.records`; ``worker`` is an index into ``paths``."""

WORKER_TASK = np.dtype(
    [
        ("worker", "<u2"),
        ("run", "<u4"),
        ("callable", "<i4"),
        ("task", "<i8"),
        ("member", "<i4"),
        ("released_by", "<i8"),
        ("child", "<i4"),
        ("pid", "<i8"),
        ("result", "<i1"),
        *_TIMES,
    ]
)
"""A row of :attr:`WorkerTrace.tasks`. An unknown value is -1.

``processor``: as in a row of :attr:`Trace.tasks`, for the functions that SUB children run.
"""

FAILED = 1
"""The ``result`` of a task that raised, or whose child exited while it ran."""

RANGE = np.dtype([("name", "<i4"), ("track", "<i4"), ("start", "<i8"), ("end", "<i8")])
"""A range that the program marked. ``name`` is an index into :attr:`Trace.range_names`."""

TIMES = {
    Event.SUBMIT: "submit",
    Event.READY: "ready",
    Event.DISPATCH: "dispatch",
    Event.START: "start",
    Event.END: "end",
    Event.COMPLETE: "complete",
}
"""The event that determines each time of a task."""

RESOURCES = {
    1: "task ring",
    2: "heap ring",
    3: "dependency pool",
    4: "tensor map",
    5: "clusters",
}
"""The resources for which a submit waits, by ``PTO_RESOURCE_*``."""


def event_name(event: int, b: int) -> str:
    """Return the name under which an event is shown."""
    name = Event(event).name.lower().replace("_", " ")
    if event == Event.BACK_PRESSURE:
        resource, ring = b & 0xFF, b >> 8
        return f"wait: {RESOURCES.get(resource, 'space')} {ring}"
    return name


def track_name(track: int) -> str:
    """Return the name of a track."""
    if track == ORCHESTRATOR:
        return "orchestrator"
    if track == HOST:
        return "host"
    if track < FIRST_WORKER:
        return f"scheduler {track - FIRST_SCHEDULER}"
    return f"pool worker {track - FIRST_WORKER}"


def core_name(core: int, blocks: int) -> str:
    """Return the name of a core, such as ``AIV 7``."""
    return f"AIC {core}" if core < blocks else f"AIV {core - blocks}"


def cluster_of(core: int, blocks: int) -> int:
    """Return the cluster of a core: cluster n has AIC n, AIV 2n and AIV 2n + 1."""
    return core if core < blocks else (core - blocks) // 2


def by_cluster(cores: Iterable[int], blocks: int) -> list[int]:
    """Return cores in the order of their clusters, the AIC of each first."""
    return sorted(cores, key=lambda core: (cluster_of(core, blocks), core))


def converted(
    raw: NDArray[Any], clock: int, first: tuple[int, int], last: tuple[int, int]
) -> tuple[NDArray[Any], int]:
    """Return the records with times from the first one, and the time of the first one."""
    records = np.zeros(len(raw), RECORD)
    for name in ("a", "b", "number", "event", "track"):
        records[name] = raw[name]
    has_duration = np.isin(raw["event"], [int(event) for event in WITH_DURATION])
    begins = np.where(has_duration, raw["a"], raw["clock"])
    records["a"][has_duration] = 0
    if not len(raw):
        return records, first[1]
    # A worker may have fallen asleep before the run; the copy of its arguments belongs to the run.
    copied = raw["a"][raw["event"] == Event.COPY_IN]
    origin = int(np.concatenate([raw["clock"], copied]).min())
    ticks = max(last[0] - first[0], 1)
    rate = 1.0 if clock == STEPS or last[0] == first[0] else (last[1] - first[1]) / ticks

    def converted(values: NDArray[Any]) -> NDArray[Any]:
        since = (values - np.uint64(origin)).astype("<i8")
        return np.rint(since * rate).astype("<i8") if rate != 1.0 else since

    records["end"] = converted(raw["clock"])
    records["start"] = np.maximum(converted(begins), 0)
    return records, first[1] + round((origin - first[0]) * rate)


def shifted(array: NDArray[Any], by: int) -> NDArray[Any]:
    """Return a copy of records or tasks with all known times moved."""
    moved = array.copy()
    for name in set(TIMES.values()) & set(array.dtype.names or ()):
        column = moved[name]
        moved[name] = np.where(column < 0, column, column + by)
    return moved


def without_worker(records: NDArray[Any]) -> NDArray[Any]:
    """Return records of Workers as an array of ``RECORD``."""
    plain = np.zeros(len(records), RECORD)
    for name in RECORD.names or ():
        plain[name] = records[name]
    return plain


# ---- the ranges that the program marked ----

_EVENTS = (Event.RANGE_BEGIN, Event.RANGE_TEXT, Event.RANGE_END)


def ranges_of(records: NDArray[Any]) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return the ranges of all tracks, and their names.

    A range that has no end ends with the last record of its run.
    """
    mine = records[np.isin(records["event"], [int(event) for event in _EVENTS])]
    names: dict[str, int] = {}
    found: list[tuple[int, int, int, int]] = []
    opened: dict[tuple[int, int], list[tuple[bytes, int]]] = {}
    order = np.lexsort((mine["number"], mine["track"], mine["run"]))

    def close(key: tuple[int, int], end: int) -> None:
        text, start = opened[key].pop()
        name = text.rstrip(b"\0").decode(errors="replace")
        found.append((names.setdefault(name, len(names)), key[1], start, end))

    for row in mine[order]:
        key = (int(row["run"]), int(row["track"]))
        stack = opened.setdefault(key, [])
        text = row["a"].tobytes() + row["b"].tobytes()
        if row["event"] == Event.RANGE_BEGIN:
            stack.append((text, int(row["end"])))
        elif stack and row["event"] == Event.RANGE_TEXT:
            stack[-1] = (stack[-1][0] + text, stack[-1][1])
        elif stack:
            close(key, int(row["end"]))
    for key, stack in opened.items():
        while stack:
            close(key, int(records["end"][records["run"] == key[0]].max()))
    found.sort(key=lambda row: (row[2], -row[3]))
    return np.array(found, RANGE), tuple(names)


def with_user_ranges(
    records: NDArray[Any], epoch_ns: int, ranges: Iterable[Range]
) -> tuple[NDArray[Any], int]:
    """Add the ranges of a Python orchestration to the records of its run.

    They have the track of the thread that called ``run``. ``ranges`` has times of CLOCK_MONOTONIC.
    Return all records, and the time of the first one.
    """
    rows = list(_events(ranges))
    if not rows:
        return records, epoch_ns
    first_ns = min(epoch_ns, *(row[0] for row in rows))
    number = int(records["number"][records["track"] == HOST].max(initial=0)) + 1
    added = np.array(
        [
            (time - first_ns, time - first_ns, a, b, number + place, event, HOST, 0)
            for place, (time, event, a, b) in enumerate(rows)
        ],
        RECORD,
    )
    moved = records.copy()
    moved["start"] += epoch_ns - first_ns
    moved["end"] += epoch_ns - first_ns
    return np.concatenate([moved, added]), first_ns


def _events(ranges: Iterable[Range]) -> Iterable[tuple[int, Event, int, int]]:
    """Yield time, event, a and b of each record, in the order in which one thread writes them."""
    opened: list[Range] = []
    for one in sorted(ranges, key=lambda each: (each.start, each.depth)):
        while opened and opened[-1].depth >= one.depth:
            yield opened.pop().end, Event.RANGE_END, 0, 0
        opened.append(one)
        text = one.name.encode(errors="backslashreplace")
        for at in range(0, max(len(text), 1), 16):
            words = (text[at + half : at + half + 8] for half in (0, 8))
            a, b = (int.from_bytes(word, "little") for word in words)
            yield one.start, Event.RANGE_TEXT if at else Event.RANGE_BEGIN, a, b
    while opened:
        yield opened.pop().end, Event.RANGE_END, 0, 0
