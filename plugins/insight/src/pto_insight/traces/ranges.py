"""The ranges of a trace that the program marked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.user_ranges import Range
from pto_insight.traces.records import HOST, RANGE, RECORD, Event

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
