"""The ranges of a trace that the program marked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.trace.records import RANGE, Event

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
