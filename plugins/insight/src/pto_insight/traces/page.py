"""Write a trace as one HTML page that needs no network: ``page.html`` with ``page.js`` inside."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_insight.traces.analysis import critical_path, edges, ring_counters, rows_of
from pto_insight.traces.data import TraceData
from pto_insight.traces.records import (
    FIRST_WORKER,
    HOST,
    WITH_DURATION,
    by_cluster,
    cluster_of,
    event_name,
    track_name,
)
from pto_insight.traces.summary import summary_text

ITEM = np.dtype([("start", "<f8"), ("end", "<f8"), ("name", "<u2"), ("task", "<i4")])
"""A rectangle of a lane. ``name``: an index into the names; ``task``: a row of the tasks, or -1."""


def page(trace: TraceData) -> str:
    """Return the page."""
    title = f"{len(trace.tasks):,} tasks on {trace.backend}, {trace.runtime}"
    return document(title, trace.note, summary_text(trace), _data(trace))


def document(title: str, note: str, summary: str, shown: Mapping[str, Any]) -> str:
    """Return a page. ``note``: the meaning of its times. ``shown``: what the script needs."""
    folder = files("pto_insight.traces")
    text = (folder / "page.html").read_text("utf-8")
    data = json.dumps(shown, separators=(",", ":")).replace("</", "<\\/")
    for place, content in (
        ("@TITLE@", html.escape(title)),
        ("@NOTE@", html.escape("times: " + note)),
        ("@SUMMARY@", html.escape(summary)),
        ("@SCRIPT@", (folder / "page.js").read_text("utf-8")),
        ("@DATA@", data),
    ):
        text = text.replace(place, content)
    return text


def _data(trace: TraceData) -> dict[str, Any]:
    """Return what the script needs: lanes of items, and the tasks to which the items refer."""
    names: dict[str, int] = {}
    lanes: list[dict[str, Any]] = []
    parts: list[NDArray[Any]] = []

    def add(name: str, kind: str, items: NDArray[Any], group: str = "") -> None:
        first = sum(map(len, parts))
        place = {"first": first, "end": first + len(items)}
        lanes.append({"name": name, "kind": kind, "group": group, **place})
        parts.append(items[np.argsort(items["start"], kind="stable")])

    kernels = [names.setdefault(name, len(names)) for name in trace.kernels]
    unknown = names.setdefault(trace.kernel_name(-1), len(names))
    name_of_kernel = np.array([*kernels, unknown], "<u2")
    for number, items in enumerate(_range_items(trace, names)):
        add(f"ranges {number}" if number else "ranges", "range", items)
    rows = np.flatnonzero((trace.tasks["start"] >= 0) & (trace.tasks["end"] >= 0))
    for core in by_cluster(np.unique(trace.tasks["core"][rows]).tolist(), trace.blocks):
        mine = rows[trace.tasks["core"][rows] == core]
        items = _task_items(trace, mine, name_of_kernel)
        add(trace.core_name(core), "core", items, f"cluster {cluster_of(core, trace.blocks)}")
    for track in trace.tracks:
        pieces = [_thread_items(trace, track, names)]
        if FIRST_WORKER <= track < HOST:
            mine = rows[trace.tasks["worker"][rows] == track - FIRST_WORKER]
            pieces.append(_task_items(trace, mine, name_of_kernel))
        add(track_name(track), "thread", _apart(np.concatenate(pieces)))
    items = np.concatenate(parts) if parts else np.zeros(0, ITEM)
    return {
        "unit": trace.unit,
        "total": float(max(items["end"].max(initial=1), 1)),
        "kernels": [*trace.kernels, "?"],
        "names": list(names),
        "cores": [trace.core_name(core) for core in range(3 * trace.blocks)],
        "lanes": lanes,
        "items": {name: column(items[name]) for name in ITEM.names or ()},
        "tasks": task_columns(trace),
        "edges": edge_columns(trace),
        "rings": ring_columns(trace),
        **_details(trace),
    }


def _task_items(trace: TraceData, rows: NDArray[Any], names: NDArray[Any]) -> NDArray[Any]:
    items = np.zeros(len(rows), ITEM)
    items["start"], items["end"] = trace.tasks["start"][rows], trace.tasks["end"][rows]
    items["name"] = names[trace.tasks["kernel"][rows]]
    items["task"] = rows
    return items


def _thread_items(trace: TraceData, track: int, names: dict[str, int]) -> NDArray[Any]:
    durations = [int(event) for event in WITH_DURATION]
    mine = trace.records[
        (trace.records["track"] == track) & np.isin(trace.records["event"], durations)
    ]
    items = np.zeros(len(mine), ITEM)
    items["start"], items["end"], items["task"] = mine["start"], mine["end"], -1
    items["name"] = [
        names.setdefault(event_name(event, b), len(names))
        for event, b in zip(mine["event"].tolist(), mine["b"].tolist(), strict=True)
    ]
    return items


def _range_items(trace: TraceData, names: dict[str, int]) -> list[NDArray[Any]]:
    """Return the ranges in lanes: each lane has ranges that do not overlap."""
    lanes: list[list[tuple[float, float, int, int]]] = []
    for name, _, start, end in trace.ranges.tolist():
        number = names.setdefault(trace.range_names[name], len(names))
        lane = next((lane for lane in lanes if lane[-1][1] <= start), None)
        if lane is None:
            lanes.append(lane := [])
        lane.append((start, end, number, -1))
    return [np.array(lane, ITEM) for lane in lanes]


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
    return np.array([piece for piece in pieces if piece[0] <= piece[1]], ITEM)


def task_columns(trace: TraceData) -> dict[str, list[str]]:
    """Return the columns of the tasks; times before the start are distances from the start."""
    tasks = trace.tasks
    known = tasks["start"] >= 0
    columns: dict[str, list[str]] = {}
    for name in ("submit", "ready", "dispatch"):
        since = np.where(known & (tasks[name] >= 0), tasks["start"] - tasks[name], -1)
        columns[name] = column(since.astype("<f4"))
    is_complete = (tasks["complete"] >= 0) & (tasks["end"] >= 0)
    after = np.where(is_complete, tasks["complete"] - tasks["end"], -1)
    columns["complete"] = column(after.astype("<f4"))
    columns["processor"] = column(tasks["processor"].astype("<f4"))
    columns["task"] = column(trace.task_numbers(tasks["task"]).astype("<f8"))
    columns["run"] = column(tasks["run"].astype("<i4"))
    columns["core"] = column(tasks["core"].astype("<i4"))
    kernels = np.where(tasks["kernel"] < 0, len(trace.kernels), tasks["kernel"])
    columns["kernel"] = column(kernels.astype("<u2"))
    producers = rows_of(tasks, tasks["run"], tasks["released_by"])
    columns["producer"] = column(producers.astype("<i4"))
    critical = np.zeros(len(tasks), "<u2")
    critical[list(critical_path(trace).rows)] = 1
    columns["critical"] = column(critical)
    return columns


def edge_columns(trace: TraceData) -> dict[str, list[str]]:
    """Return the dependencies as two columns of rows of tasks."""
    pairs = edges(trace).astype("<i4")
    return {"from": column(pairs[:, 0]), "to": column(pairs[:, 1])}


def ring_columns(trace: TraceData, prefix: str = "") -> list[dict[str, Any]]:
    """Return the counters of the rings; ``prefix`` begins their names."""
    return [
        {"name": prefix + name, "times": column(times.astype("<f8")), "values": integers(values)}
        for name, (times, values) in ring_counters(trace).items()
    ]


def _details(trace: TraceData) -> dict[str, Any]:
    """Return source lines and arguments, and the columns that relate them to the tasks."""
    details = trace.details
    if details is None:
        return {"details": None}
    rows = details.rows(trace.tasks["task"])
    submits = details.submits[rows] if len(details.submits) else details.submits
    arguments = details.arguments
    owners = rows_of(trace.tasks, np.zeros(len(arguments)), arguments["owner"])
    # A buffer that a task allocated is -1 - row; one of which the task is unknown is -1 - count.
    allocated = -1 - np.where(owners < 0, len(trace.tasks), owners)
    buffers = np.where(arguments["owner"] < 0, arguments["buffer"], allocated)
    known = rows >= 0
    place = np.where(known, submits["place"], -1)
    first, count = (np.where(known, submits[name], 0) for name in ("first", "count"))
    arguments = arguments.copy()
    arguments["buffer"] = buffers
    names = details.places, details.texts, details.buffers
    return detail_columns((place, first, count), arguments, names)


def detail_columns(
    submits: Sequence[NDArray[Any]],
    arguments: NDArray[Any],
    names: tuple[Sequence[str], Sequence[str], Sequence[str]],
) -> dict[str, Any]:
    """Return what the script needs to show source lines and arguments.

    ``submits``: place, first argument and number of arguments of each task. ``arguments``: of
    ``ARGUMENT``; the buffer -1 - row was allocated by this task. ``names``: places, texts, buffers.
    """
    place, first, count = submits
    places, texts, buffers = names
    return {
        "details": {
            "place": column(place.astype("<i4")),
            "first": column(first.astype("<i4")),
            "count": column(count.astype("<u2")),
        },
        "arguments": {
            "text": integers(arguments["text"]),
            "buffer": column(arguments["buffer"].astype("<i4")),
            "offset": integers(arguments["offset"]),
        },
        "places": places,
        "texts": texts,
        "buffers": buffers,
    }


def integers(values: NDArray[np.int64]) -> list[str]:
    """Return a column of integers that are not negative, in four bytes each if they fit."""
    return column(values.astype("<u4" if values.max(initial=0) < 2**32 else "<f8"))


def column(values: NDArray[Any]) -> list[str]:
    """Return the type and the bytes of a column in base64."""
    return [values.dtype.str[1:], base64.b64encode(values.tobytes()).decode()]
