"""Write a trace as one HTML page that needs no network: ``page.html`` with ``page.js`` inside.

The trace of a device has a lane for each core and thread; that of a Worker also for each child.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_insight.traces.analysis import critical_path, edges, recorded_counters, rows_of
from pto_insight.traces.data import TraceData, WorkerTraceData
from pto_insight.traces.details import ARGUMENT, rows_of_members
from pto_insight.traces.lanes import Lane, Slice, TaskNumber, apart, lanes as lanes_of
from pto_insight.traces.records import (
    FIRST_WORKER,
    HOST,
    RECORD,
    TASK,
    WITH_DURATION,
    Event,
    by_cluster,
    cluster_of,
    event_name,
    track_name,
    without_worker,
)
from pto_insight.traces.summary import summary_text, worker_summary

ITEM = np.dtype([("start", "<f8"), ("end", "<f8"), ("name", "<u2"), ("task", "<i4")])
"""A rectangle of a lane. ``name``: an index into the names; ``task``: a row of the tasks, or -1."""
_TIMES = ("submitted", "ready", "dispatched")


def page(trace: TraceData) -> str:
    """Return the page."""
    title = f"{len(trace.tasks):,} tasks on {trace.backend}, {trace.runtime}"
    return _document(title, trace.note, summary_text(trace), _device_content(trace))


def worker_page(trace: WorkerTraceData) -> str:
    """Return the page."""
    workers = ", ".join(trace.children)
    title = f"{trace.task_count:,} tasks of {workers}"
    return _document(title, trace.note, worker_summary(trace), _worker_content(trace))


def _document(title: str, note: str, summary: str, shown: Mapping[str, Any]) -> str:
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


def _content(
    shown: TraceData,
    cores: list[str],
    lanes: list[dict[str, Any]],
    items: NDArray[Any],
    names: list[str],
    rings: list[dict[str, Any]],
    details: dict[str, Any],
) -> dict[str, Any]:
    """Return what the script needs: lanes of items, and the tasks to which the items refer."""
    return {
        "unit": shown.unit,
        "total": float(max(items["end"].max(initial=1), 1)),
        "kernels": [*shown.kernels, "?"],
        "names": names,
        "cores": cores,
        "lanes": lanes,
        "items": {name: _column(items[name]) for name in ITEM.names or ()},
        "tasks": task_columns(shown),
        "edges": _edge_columns(shown),
        "rings": rings,
        **details,
    }


def device_lanes(trace: TraceData) -> tuple[list[dict[str, Any]], NDArray[Any], list[str]]:
    """Return the lanes of a device's trace, their items in order of time, and the names."""
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
    return lanes, np.concatenate(parts) if parts else np.zeros(0, ITEM), list(names)


def worker_lanes(trace: WorkerTraceData) -> tuple[list[dict[str, Any]], NDArray[Any], list[str]]:
    """Return the lanes of a Worker's trace, their items in order of time, and the names."""
    shown = _Shown(lanes_of(trace))
    return shown.lanes, np.array(shown.items, ITEM), list(shown.names)


def _device_content(trace: TraceData) -> dict[str, Any]:
    """Return what the script needs of the trace of a device."""
    lanes, items, names = device_lanes(trace)
    cores = [trace.core_name(core) for core in range(3 * trace.blocks)]
    return _content(trace, cores, lanes, items, names, _rings(trace), _details(trace))


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
        columns[name] = _column(since.astype("<f4"))
    is_complete = (tasks["complete"] >= 0) & (tasks["end"] >= 0)
    after = np.where(is_complete, tasks["complete"] - tasks["end"], -1)
    columns["complete"] = _column(after.astype("<f4"))
    columns["processor"] = _column(tasks["processor"].astype("<f4"))
    columns["task"] = _column(trace.task_numbers(tasks["task"]).astype("<f8"))
    columns["run"] = _column(tasks["run"].astype("<i4"))
    columns["core"] = _column(tasks["core"].astype("<i4"))
    kernels = np.where(tasks["kernel"] < 0, len(trace.kernels), tasks["kernel"])
    columns["kernel"] = _column(kernels.astype("<u2"))
    producers = rows_of(tasks, tasks["run"], tasks["released_by"])
    columns["producer"] = _column(producers.astype("<i4"))
    critical = np.zeros(len(tasks), "<u2")
    critical[list(critical_path(trace).rows)] = 1
    columns["critical"] = _column(critical)
    return columns


def _edge_columns(trace: TraceData) -> dict[str, list[str]]:
    """Return the dependencies as two columns of rows of tasks."""
    pairs = edges(trace).astype("<i4")
    return {"from": _column(pairs[:, 0]), "to": _column(pairs[:, 1])}


def _rings(trace: TraceData, prefix: str = "") -> list[dict[str, Any]]:
    """Return the recorded counters; ``prefix`` begins their names."""
    return [
        {"name": prefix + name, "times": _column(times.astype("<f8")), "values": _integers(values)}
        for name, (times, values) in recorded_counters(trace).items()
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
    return _detail_columns((place, first, count), arguments, names)


def _worker_content(trace: WorkerTraceData) -> dict[str, Any]:
    """Return what the script needs of the trace of a Worker."""
    shown = _Shown(lanes_of(trace))
    tasks = TraceData(
        records=_dependencies(trace, shown.runs),
        tasks=np.array(shown.tasks, TASK),
        kernels=tuple(shown.names),
        lost={},
        blocks=0,
        unit="ns",
        epoch_ns=trace.epoch_ns,
        threads=1,
    )
    lanes = shown.lanes
    cores = [lane["name"] for lane in lanes]
    rings = [ring for path, part in trace.views().items() for ring in _rings(part, f"{path} ")]
    names = list(shown.names)
    details = _worker_details(trace, shown)
    return _content(tasks, cores, lanes, np.array(shown.items, ITEM), names, rings, details)


def _worker_details(trace: WorkerTraceData, shown: _Shown) -> dict[str, Any]:
    """Return source lines and arguments of the tasks of all Workers, as :func:`_details` does."""
    columns = np.zeros((3, len(shown.tasks)), "<i4")  # place, first argument, arguments
    columns[0] = -1
    arguments = [np.zeros(0, ARGUMENT)]
    places: list[str] = []
    texts: list[str] = []
    buffers: list[str] = []
    for path, details in trace.details.items():
        part = trace.paths.index(path)
        mine = np.array([row for row, key in enumerate(shown.keys) if key[0] == part], "<i8")
        keys = np.array([shown.keys[row] for row in mine], "<i8").reshape(-1, 3)
        rows = rows_of_members(details, keys[:, 1], keys[:, 2])
        mine, submits = mine[rows >= 0], details.submits[rows[rows >= 0]]
        known = submits["place"] >= 0
        columns[0, mine] = np.where(known, submits["place"] + len(places), -1)
        columns[1, mine] = submits["first"] + sum(map(len, arguments))
        columns[2, mine] = submits["count"]
        row_of = {task: row for row, task in zip(mine, keys[rows >= 0, 1].tolist(), strict=True)}
        moved = details.arguments.copy()
        owners = [row_of.get(task, len(shown.tasks)) for task in moved["owner"].tolist()]
        moved["text"] += len(texts)
        moved["buffer"] = np.where(
            moved["owner"] >= 0, -1 - np.array(owners, "<i8"), moved["buffer"] + len(buffers)
        )
        arguments.append(moved)
        places += details.places
        texts += details.texts
        buffers += details.buffers
    return _detail_columns(list(columns), np.concatenate(arguments), (places, texts, buffers))


class _Shown:
    """The lanes, items, tasks and names of the page. Each task has a number of its run in it."""

    def __init__(self, found: list[Lane]) -> None:
        self.lanes: list[dict[str, Any]] = []
        self.items: list[tuple[int, int, int, int]] = []
        self.tasks: list[tuple[Any, ...]] = []
        self.keys: list[tuple[int, int, int]] = []  # part, task and member of each task
        self.names: dict[str, int] = {}
        self.runs: dict[tuple[int, int], int] = {}
        for lane in found:
            for part in apart(lane.slices, may_nest=False):
                first = len(self.items)
                for one in part:
                    self._add(one)
                name = f"{lane.process} {lane.name}"
                place = {"first": first, "end": len(self.items)}
                self.lanes.append({"name": name, "kind": lane.kind, "group": lane.group, **place})

    def _add(self, one: Slice) -> None:
        number = self.names.setdefault(one.name, len(self.names))
        row = -1 if one.task is None else self._add_task(one, one.task, number)
        self.items.append((one.start, one.end, number, row))

    def _add_task(self, one: Slice, task: TaskNumber, number: int) -> int:
        run = self.runs.setdefault((task.part, task.run), len(self.runs))
        after = -1 if one.after is None else one.after.task
        times = [one.notes.get(key, -1) for key in _TIMES]
        place = (len(self.lanes), -1)
        after_times = [one.notes.get(key, -1) for key in ("completed", "processor")]
        self.keys.append((task.part, task.task, int(one.notes.get("member", 0))))
        self.tasks.append(
            (run, number, task.task, after, *place, *times, one.start, one.end, *after_times)
        )
        return len(self.tasks) - 1


def _dependencies(trace: WorkerTraceData, runs: Mapping[tuple[int, int], int]) -> NDArray[Any]:
    """Return the records of all dependencies, with the runs of the page."""
    parts = [
        (number, trace.records[trace.records["worker"] == number])
        for number in range(len(trace.paths))
    ]
    parts += [
        (len(trace.paths) + number, device.records)
        for number, device in enumerate(trace.timed_devices.values())
    ]
    found = []
    for part, records in parts:
        mine = records[records["event"] == Event.EDGE]
        for run in np.unique(mine["run"]).tolist():
            if (part, run) in runs:
                linked = mine[mine["run"] == run]
                moved = without_worker(linked)
                moved["run"] = runs[part, run]
                found.append(moved)
    return np.concatenate(found) if found else np.zeros(0, RECORD)


def _detail_columns(
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
            "place": _column(place.astype("<i4")),
            "first": _column(first.astype("<i4")),
            "count": _column(count.astype("<u2")),
        },
        "arguments": {
            "text": _integers(arguments["text"]),
            "buffer": _column(arguments["buffer"].astype("<i4")),
            "offset": _integers(arguments["offset"]),
        },
        "places": places,
        "texts": texts,
        "buffers": buffers,
    }


def _integers(values: NDArray[np.int64]) -> list[str]:
    """Return a column of integers that are not negative, in four bytes each if they fit."""
    return _column(values.astype("<u4" if values.max(initial=0) < 2**32 else "<f8"))


def _column(values: NDArray[Any]) -> list[str]:
    """Return the type and the bytes of a column in base64."""
    return [values.dtype.str[1:], base64.b64encode(values.tobytes()).decode()]
