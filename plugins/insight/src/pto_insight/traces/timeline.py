"""Draw a trace as one picture that a notebook shows: SVG without a script.

Rectangles that would be narrower than a few pixels share one path for each name and lane, so the
size of the picture does not depend on the number of tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_insight.traces.data import TraceData, WorkerTraceData
from pto_insight.traces.page import device_lanes, worker_lanes
from pto_insight.traces.summary import nanoseconds

_LABEL = 150
_CHART = 750
_LANE = 18
_TOP = 20  # of the first lane, below the axis
_LANES_MAX = 24
_TICKS = 5
_NARROW = 3.0  # narrower rectangles have no text of their own
_CHARACTER = 6.2


def device_timeline(trace: TraceData) -> str:
    """Return the picture of a device's trace."""
    return _picture(*device_lanes(trace), trace.unit, trace.note)


def worker_timeline(trace: WorkerTraceData) -> str:
    """Return the picture of a Worker's trace."""
    return _picture(*worker_lanes(trace), "ns", trace.note)


def _picture(
    lanes: list[dict[str, Any]], items: NDArray[Any], names: list[str], unit: str, note: str
) -> str:
    used = [lane for lane in lanes if lane["first"] < lane["end"]]
    used.sort(key=lambda lane: bool(lane["kind"] == "thread"))  # if lanes are omitted, then these
    begin, end = items["start"].min(initial=2**62), items["end"].max(initial=0)
    begin = min(begin, end)
    scale = _CHART / max(end - begin, 1)
    shown = used[:_LANES_MAX]
    bottom = _TOP + _LANE * len(shown)
    parts = list(_axis(float(end - begin), unit, bottom))
    for number, lane in enumerate(shown):
        mine = items[lane["first"] : lane["end"]]
        top = _TOP + _LANE * number
        parts.append(f"<text x='0' y='{top + 13}'>{escape(lane['name'])}</text>")
        left = (mine["start"] - begin) * scale + _LABEL
        width = (mine["end"] - mine["start"]) * scale
        parts += _wide(mine, names, left, width, top, unit)
        parts += _narrow(mine, names, left, width, top)
    if omitted := len(used) - len(shown):
        note += f"; {omitted} more lanes are not shown"
    parts.append(f"<text x='0' y='{bottom + 15}'>{escape(f'times: {note}')}</text>")
    width, height = _LABEL + _CHART + 30, bottom + 20
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"width='{width}' style='max-width: 100%; background: #fff' font-family='sans-serif' "
        f"font-size='11' fill='#1d2b36'>{''.join(parts)}</svg>"
    )


def _axis(length: float, unit: str, bottom: int) -> Iterator[str]:
    for tick in range(_TICKS):
        part = tick / (_TICKS - 1)
        x = _LABEL + _CHART * part
        yield f"<path d='M{x:.1f} {_TOP - 4}V{bottom}' stroke='#d5dde3'/>"
        yield f"<text x='{x:.1f}' y='11' text-anchor='middle'>{_time(length * part, unit)}</text>"


def _wide(
    items: NDArray[Any],
    names: list[str],
    left: NDArray[Any],
    width: NDArray[Any],
    top: int,
    unit: str,
) -> Iterator[str]:
    """Yield the rectangles that have a tooltip, with the name if there is space for it."""
    for row in np.flatnonzero(width >= _NARROW).tolist():
        item, name = items[row], names[items["name"][row]]
        tip = f"{name}: {_time(float(item['end'] - item['start']), unit)}"
        yield (
            f"<rect x='{left[row]:.1f}' y='{top + 2}' width='{width[row]:.1f}' "
            f"height='{_LANE - 4}' fill='{_colour(int(item['name']))}'>"
            f"<title>{escape(tip)}</title></rect>"
        )
        if len(name) * _CHARACTER < width[row]:
            x = left[row] + 3
            yield f"<text x='{x:.1f}' y='{top + 13}' pointer-events='none'>{escape(name)}</text>"


def _narrow(
    items: NDArray[Any], names: list[str], left: NDArray[Any], width: NDArray[Any], top: int
) -> Iterator[str]:
    """Yield one path for each name: at most one rectangle in each column of pixels."""
    rows = np.flatnonzero(width < _NARROW)
    rows = rows[np.unique(left[rows].astype("<i8"), return_index=True)[1]]
    for name in np.unique(items["name"][rows]).tolist():
        mine = rows[items["name"][rows] == name]
        path = "".join(
            f"M{x:.1f} {top + 2}h{max(w, 0.6):.1f}v{_LANE - 4}h-{max(w, 0.6):.1f}z"
            for x, w in zip(left[mine].tolist(), width[mine].tolist(), strict=True)
        )
        yield f"<path d='{path}' fill='{_colour(name)}'><title>{escape(names[name])}</title></path>"


def _time(value: float, unit: str) -> str:
    return f"{value:,.0f} steps" if unit == "steps" else nanoseconds(value)


def _colour(number: int) -> str:
    """Return the colour that the page of a trace has for this number."""
    return f"hsl({number * 137.508 % 360:.0f} 60% 62%)"
