"""Write a trace as one HTML page that needs no network: ``page.html`` with ``page.js`` inside."""

from __future__ import annotations

import base64
import html
import json
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.trace.analysis import critical_path
from pto_core.trace.pftrace import event_name
from pto_core.trace.records import FIRST_WORKER, WITH_DURATION, track_name
from pto_core.trace.summary import summary_text
from pto_core.trace.trace import Trace

_ITEM = np.dtype([("start", "<f8"), ("end", "<f8"), ("name", "<u2"), ("task", "<i4")])


def page(trace: Trace) -> str:
    """Return the page."""
    title = f"{len(trace.tasks):,} tasks on {trace.backend}, {trace.runtime}"
    folder = files("pto_core.trace")
    text = (folder / "page.html").read_text()
    data = json.dumps(_data(trace), separators=(",", ":")).replace("</", "<\\/")
    for place, content in (
        ("@TITLE@", html.escape(title)),
        ("@NOTE@", html.escape("times: " + trace.note)),
        ("@SUMMARY@", html.escape(summary_text(trace))),
        ("@SCRIPT@", (folder / "page.js").read_text()),
        ("@DATA@", data),
    ):
        text = text.replace(place, content)
    return text


def _data(trace: Trace) -> dict[str, Any]:
    """Return what the script needs: lanes of items, and the tasks to which the items refer."""
    names: dict[str, int] = {}
    lanes: list[dict[str, Any]] = []
    parts: list[NDArray[Any]] = []

    def add(name: str, kind: str, items: NDArray[Any]) -> None:
        first = sum(map(len, parts))
        lanes.append({"name": name, "kind": kind, "first": first, "end": first + len(items)})
        parts.append(items[np.argsort(items["start"], kind="stable")])

    kernels = [names.setdefault(name, len(names)) for name in trace.kernels]
    unknown = names.setdefault(trace.kernel_name(-1), len(names))
    name_of_kernel = np.array([*kernels, unknown], "<u2")
    rows = np.flatnonzero((trace.tasks["start"] >= 0) & (trace.tasks["end"] >= 0))
    for core in np.unique(trace.tasks["core"][rows]):
        mine = rows[trace.tasks["core"][rows] == core]
        add(trace.core_name(int(core)), "core", _task_items(trace, mine, name_of_kernel))
    for track in trace.tracks:
        pieces = [_thread_items(trace, track, names)]
        if track >= FIRST_WORKER:
            mine = rows[trace.tasks["worker"][rows] == track - FIRST_WORKER]
            pieces.append(_task_items(trace, mine, name_of_kernel))
        add(track_name(track), "thread", _apart(np.concatenate(pieces)))
    items = np.concatenate(parts) if parts else np.zeros(0, _ITEM)
    return {
        "unit": trace.unit,
        "total": float(max(items["end"].max(initial=1), 1)),
        "kernels": [*trace.kernels, "?"],
        "names": list(names),
        "cores": [trace.core_name(core) for core in range(3 * trace.blocks)],
        "lanes": lanes,
        "items": {name: _column(items[name]) for name in _ITEM.names or ()},
        "tasks": _task_columns(trace),
    }


def _task_items(trace: Trace, rows: NDArray[Any], names: NDArray[Any]) -> NDArray[Any]:
    items = np.zeros(len(rows), _ITEM)
    items["start"], items["end"] = trace.tasks["start"][rows], trace.tasks["end"][rows]
    items["name"] = names[trace.tasks["kernel"][rows]]
    items["task"] = rows
    return items


def _thread_items(trace: Trace, track: int, names: dict[str, int]) -> NDArray[Any]:
    durations = [int(event) for event in WITH_DURATION]
    mine = trace.records[
        (trace.records["track"] == track) & np.isin(trace.records["event"], durations)
    ]
    items = np.zeros(len(mine), _ITEM)
    items["start"], items["end"], items["task"] = mine["start"], mine["end"], -1
    items["name"] = [
        names.setdefault(event_name(event, b), len(names))
        for event, b in zip(mine["event"].tolist(), mine["b"].tolist(), strict=True)
    ]
    return items


def _apart(items: NDArray[Any]) -> NDArray[Any]:
    """Cut items that contain later ones into pieces, because the items of a lane do not overlap."""
    items = items[np.lexsort((-items["end"], items["start"]))]
    pieces: list[Any] = []
    opened: list[Any] = []

    def close(until: float) -> None:
        while opened and opened[-1][1] <= until:
            item = opened.pop()
            pieces.append(item)
            if opened:
                opened[-1] = (item[1], *opened[-1][1:])

    for item in items.tolist():
        close(item[0])
        if opened and opened[-1][0] < item[0]:
            pieces.append((opened[-1][0], item[0], *opened[-1][2:]))
        opened.append(item)
    close(float("inf"))
    return np.array([piece for piece in pieces if piece[0] <= piece[1]], _ITEM)


def _task_columns(trace: Trace) -> dict[str, list[str]]:
    """Return the columns of the tasks; times before the start are distances from the start."""
    tasks = trace.tasks
    known = tasks["start"] >= 0
    columns: dict[str, list[str]] = {}
    for name in ("submit", "ready", "dispatch"):
        since = np.where(known & (tasks[name] >= 0), tasks["start"] - tasks[name], -1)
        columns[name] = _column(since.astype("<f4"))
    columns["task"] = _column(tasks["task"].astype("<f8"))
    columns["run"] = _column(tasks["run"].astype("<i4"))
    columns["core"] = _column(tasks["core"].astype("<i4"))
    kernels = np.where(tasks["kernel"] < 0, len(trace.kernels), tasks["kernel"])
    columns["kernel"] = _column(kernels.astype("<u2"))
    columns["producer"] = _column(_producers(trace))
    critical = np.zeros(len(tasks), "<u2")
    critical[list(critical_path(trace).rows)] = 1
    columns["critical"] = _column(critical)
    return columns


def _producers(trace: Trace) -> NDArray[Any]:
    """Return the row of the task that released each task, or -1."""
    tasks = trace.tasks
    row_of = {
        key: row
        for row, key in enumerate(zip(tasks["run"].tolist(), tasks["task"].tolist(), strict=True))
    }
    keys = zip(tasks["run"].tolist(), tasks["released_by"].tolist(), strict=True)
    return np.array([row_of.get(key, -1) for key in keys], "<i4")


def _column(values: NDArray[Any]) -> list[str]:
    """Return the type and the bytes of a column in base64."""
    return [values.dtype.str[1:], base64.b64encode(values.tobytes()).decode()]
