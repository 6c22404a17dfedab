"""Write the trace of a Worker as one HTML page, with a lane for each child, core and thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_insight.traces.data import TraceData, WorkerTraceData
from pto_insight.traces.details import ARGUMENT
from pto_insight.traces.lanes import Lane, Slice, TaskName, apart, lanes
from pto_insight.traces.page import (
    ITEM,
    column,
    detail_columns,
    document,
    edge_columns,
    ring_columns,
    task_columns,
)
from pto_insight.traces.records import RECORD, TASK, Event, without_worker
from pto_insight.traces.summary import worker_summary
from pto_insight.traces.worker_details import rows_of_members

_TIMES = ("submitted", "ready", "dispatched")


def worker_page(trace: WorkerTraceData) -> str:
    """Return the page."""
    workers = ", ".join(trace.children)
    title = f"{trace.task_count:,} tasks of {workers}"
    return document(title, trace.note, worker_summary(trace), _content(trace))


def _content(trace: WorkerTraceData) -> dict[str, Any]:
    """Return what the script of the page needs."""
    shown = _Shown(lanes(trace))
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
    items = np.array(shown.items, ITEM)
    return {
        "unit": "ns",
        "total": float(max(items["end"].max(initial=1), 1)),
        "kernels": [*shown.names, "?"],
        "names": list(shown.names),
        "cores": [lane["name"] for lane in shown.lanes],
        "lanes": shown.lanes,
        "items": {name: column(items[name]) for name in ITEM.names or ()},
        "tasks": task_columns(tasks),
        "edges": edge_columns(tasks),
        "rings": [
            ring for path, part in trace.views().items() for ring in ring_columns(part, f"{path} ")
        ],
        **_details(trace, shown),
    }


def _details(trace: WorkerTraceData, shown: _Shown) -> dict[str, Any]:
    """Return source lines and arguments of the tasks of all Workers, as ``page.py`` does."""
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
    return detail_columns(list(columns), np.concatenate(arguments), (places, texts, buffers))


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

    def _add_task(self, one: Slice, task: TaskName, number: int) -> int:
        run = self.runs.setdefault((task.part, task.run), len(self.runs))
        after = -1 if one.after is None else one.after.task
        times = [one.notes.get(key, -1) for key in _TIMES]
        place = (len(self.lanes), -1)
        complete = one.notes.get("completed", -1)
        self.keys.append((task.part, task.task, int(one.notes.get("member", 0))))
        self.tasks.append(
            (run, number, task.task, after, *place, *times, one.start, one.end, complete, -1)
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
