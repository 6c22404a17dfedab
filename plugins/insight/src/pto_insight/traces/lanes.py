"""The lanes of a Worker's trace: what each process did, side by side, for all writers of files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pto_insight.traces.data import TraceData, WorkerTraceData
from pto_insight.traces.details import argument_texts, place_text
from pto_insight.traces.records import (
    FAILED,
    ORCHESTRATOR,
    WITH_DURATION,
    Event,
    by_cluster,
    cluster_of,
    event_name,
    track_name,
)
from pto_insight.traces.worker_records import visible_ends

_DURATIONS = [int(event) for event in WITH_DURATION]


class TaskNumber(NamedTuple):
    """The name of a task in its Worker or device; ``part`` numbers Workers and devices."""

    part: int
    run: int
    task: int


class Slice(NamedTuple):
    """Something that lasted. ``task``: the task that ran; ``after``: the task that released it."""

    start: int
    end: int
    name: str
    notes: Mapping[str, int | str]
    task: TaskNumber | None = None
    after: TaskNumber | None = None


class LaneSubmit(NamedTuple):
    """The submit of a task."""

    time: int
    name: str
    task: TaskNumber


class Lane(NamedTuple):
    """The slices of a thread, of a core, or of a child; :func:`apart` separates them.

    Slices of a lane may overlap: two threads wait, or two coroutines are in a range.
    ``kind``: ``"core"`` for tasks, ``"range"`` or ``"thread"``. ``group``: the cluster of a core.
    """

    process: str
    name: str
    kind: str
    slices: list[Slice]
    submits: list[LaneSubmit]
    group: str = ""


class _Lanes(Protocol):
    def __call__(self, process: str, name: str, kind: str, group: str = "") -> Lane:
        """Return the lane of a process with a name."""


def lanes(trace: WorkerTraceData) -> list[Lane]:
    """Return the lanes, in the order of the paths."""
    found: dict[tuple[str, str], Lane] = {}

    def lane(process: str, name: str, kind: str, group: str = "") -> Lane:
        return found.setdefault((process, name), Lane(process, name, kind, [], [], group))

    lane(trace.paths[0], "orchestrator", "thread")
    for path in trace.paths[1:]:  # a process without an event has a lane, too
        lane(path, "tasks", "core")
    _add_tasks(trace, lane)
    _add_records(trace, lane)
    threads = {(one.path, one.thread, one.thread_id) for one in trace.ranges}
    numbers = Counter((path, name) for path, name, _ in threads)
    for one in trace.ranges:
        is_only = numbers[one.path, one.thread] == 1
        thread = one.thread if is_only else f"{one.thread} ({one.thread_id})"
        mine = lane(one.path, f"ranges of {thread}", "range")
        mine.slices.append(Slice(one.start, one.end, one.name, {"depth": one.depth}))
    for number, (path, device) in enumerate(trace.timed_devices.items()):
        _add_device(len(trace.paths) + number, path, device, lane)
    order = {path: number for number, path in enumerate(trace.paths)}
    return sorted(found.values(), key=lambda one: order[one.process])


def _add_tasks(trace: WorkerTraceData, lane: _Lanes) -> None:
    submitted = set()
    ends = visible_ends(trace.tasks, trace.records).tolist()
    submits = _submit_notes(trace)
    for row, visible_end, more in zip(trace.tasks.tolist(), ends, submits, strict=True):
        worker, run, number, task, member, released_by, child, pid, result, *times = row
        submit, ready, dispatch, start, end, complete, processor = times
        name = TaskNumber(worker, run, task)
        title = trace.callable_name(number)
        if submit >= 0 and name not in submitted:
            submitted.add(name)
            mine = lane(trace.path(worker), "orchestrator", "thread")
            mine.submits.append(LaneSubmit(submit, title, name))
        if start < 0:
            continue
        if end < 0:
            title += " (lost)" if result == FAILED and complete < 0 else " (end not recorded)"
        notes = {
            "task": task,
            "run": run,
            "member": member,
            "pid": pid,
            "result": result,
            "submitted": submit,
            "ready": ready,
            "dispatched": dispatch,
            "completed": complete,
            "processor": processor,
            "released by": released_by,
        }
        known = {key: value for key, value in notes.items() if value >= 0} | more
        after = TaskNumber(worker, run, released_by) if released_by >= 0 else None
        mine = lane(trace.path(child), "tasks", "core")
        mine.slices.append(Slice(start, visible_end, title, known, name, after))


def _submit_notes(trace: WorkerTraceData) -> list[dict[str, Any]]:
    """Return the source line and the arguments of each row of the tasks, as far as known."""
    found: list[dict[str, Any]] = [{} for _ in trace.tasks]
    for number, row, details in trace.submit_rows():
        place = place_text(details, row)
        if place != "?":
            found[number]["source"] = place
        arguments = "; ".join(argument_texts(details, row))
        if arguments:
            found[number]["arguments"] = arguments
    return found


def _add_records(trace: WorkerTraceData, lane: _Lanes) -> None:
    columns = ["start", "end", "b", "event", "track", "worker"]
    for start, end, b, event, track, worker in _with_duration(trace.records)[columns].tolist():
        path = trace.path(worker)
        if track <= 1:
            name = "orchestrator" if track == ORCHESTRATOR else "scheduler"
            waits = event in (Event.BACK_PRESSURE, Event.PARK)
            mine = lane(path, f"{name} waits" if waits else name, "thread")
        else:
            mine = lane(trace.child_path(worker, track), "waits", "thread")
        title = "wait for space" if event == Event.BACK_PRESSURE else event_name(event, b)
        mine.slices.append(Slice(start, end, title, {}))


def _add_device(part: int, path: str, device: TraceData, lane: _Lanes) -> None:
    for core in by_cluster(set(device.tasks["core"].tolist()) - {-1}, device.blocks):
        lane(path, device.core_name(core), "core", f"cluster {cluster_of(core, device.blocks)}")
    columns = ["run", "kernel", "task", "released_by", "core", "start", "end"]
    times = ["submit", "ready", "dispatch", "complete", "processor"]
    for row in device.tasks[[*columns, *times]].tolist():
        run, kernel, task, released_by, core, start, end, *more = row
        if start < 0 or end < 0:
            continue
        name = TaskNumber(part, run, task)
        after = TaskNumber(part, run, released_by) if released_by >= 0 else None
        keys = ("submitted", "ready", "dispatched", "completed", "processor")
        named = zip(keys, more, strict=True)
        notes = {"task": task, "run": run, **{key: time for key, time in named if time >= 0}}
        mine = lane(path, device.core_name(core), "core")
        mine.slices.append(Slice(start, end, device.kernel_name(kernel), notes, name, after))
    columns = ["start", "end", "b", "event", "track"]
    for start, end, b, event, track in _with_duration(device.records)[columns].tolist():
        mine = lane(path, track_name(track), "thread")
        mine.slices.append(Slice(start, end, event_name(event, b), {}))


def _with_duration(records: NDArray[Any]) -> NDArray[Any]:
    return records[np.isin(records["event"], _DURATIONS)]


def apart(slices: list[Slice], *, may_nest: bool) -> Iterator[list[Slice]]:
    """Yield the slices of a lane in parts whose slices do not overlap, the outer ones first.

    ``may_nest``: a part may contain a slice inside of another one.
    """
    parts: list[list[Slice]] = []
    opened: list[list[Slice]] = []  # of each part: the slices around the last one, and that one
    for one in sorted(slices, key=lambda each: (each.start, -each.end)):
        for part, around in zip(parts, opened, strict=True):
            while around and around[-1].end <= one.start:
                around.pop()
            if not around or (may_nest and one.end <= around[-1].end):
                part.append(one)
                around.append(one)
                break
        else:
            parts.append([one])
            opened.append([one])
    yield from parts
