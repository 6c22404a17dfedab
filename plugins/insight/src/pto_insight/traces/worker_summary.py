"""The summary of a Worker's trace as text."""

from __future__ import annotations

import numpy as np

from pto_insight.traces import analysis
from pto_insight.traces.records import FIRST_WORKER, RECORD, TASK, TIMES, Event
from pto_insight.traces.summary import (
    Limits,
    aligned,
    bound,
    bound_line,
    busy_lines,
    counted,
    difference_parts,
    difference_text,
    kernel_table,
    limit_lines,
    path_lines,
    share,
    summary_text,
    time_text,
)
from pto_insight.traces.trace import Trace
from pto_insight.traces.worker_data import WorkerTraceData
from pto_insight.traces.worker_details import argument_texts, by_task, place_text
from pto_insight.traces.worker_records import FAILED, visible_ends

_LOST_SHOWN = 10
_PLACES_SHOWN = 10

_CAUSES = {
    analysis.FOR_CORE: "for a free child",
    analysis.FOR_THREAD: "for the start in the child",
    analysis.FOR_END: "for the parent to see the end",
}

_LIMITS: Limits = {
    **{name: (name, meaning) for name, meaning in analysis.LIMITS.items()},
    "kernels": ("functions", "every child is busy"),
    "pool": ("queues", "tasks are in the queue of a child, and it has not started them"),
    "scheduling": (
        "scheduling",
        "tasks are ready or finished, and the parent has not handled them",
    ),
    "back-pressure": ("back-pressure", "the program waits for space for the next task"),
    "submit": ("submit", "the program has not submitted more tasks"),
}


def worker_summary(trace: WorkerTraceData) -> str:
    """Return the summary of each Worker and each device, and of the user ranges."""
    parts = [[f"times: {trace.note}", *_gaps(trace)], _bound_lines(trace)]
    for path in trace.children:
        view = worker_view(trace, path)
        if len(view.tasks):
            parts += _worker_parts(trace, path, view)
    parts.append(_range_lines(trace))
    parts += [
        [f"device {path}", summary_text(device, names_bound=False)]
        for path, device in trace.devices.items()
    ]
    return _joined(parts)


def _bound_lines(trace: WorkerTraceData) -> list[str]:
    """Return the sentence that names what bound the program.

    If all children of a Worker were busy most of the time, the bound of the busiest child counts.
    """
    path = next((path for path in trace.children if len(worker_view(trace, path).tasks)), None)
    if path is None:
        return []
    while True:
        view = worker_view(trace, path)
        child = _busiest(trace.children[path], view)
        if bound(view) != "kernels" or child is None:
            return [bound_line(view, f"Worker {path}", _LIMITS)]
        device = trace.devices.get(child)
        if device is not None and len(device.tasks):
            limits = {name: (name, meaning) for name, meaning in analysis.LIMITS.items()}
            return [bound_line(device, f"device {child}", limits)]
        if child not in trace.children or not len(worker_view(trace, child).tasks):
            return [bound_line(view, f"Worker {path}", _LIMITS)]
        path = child


def _busiest(children: tuple[str, ...], view: Trace) -> str | None:
    if not children:
        return None
    busy = [_busy_time(view, number) for number in range(len(children))]
    return children[busy.index(max(busy))]


def _busy_time(view: Trace, child: int) -> int:
    mine = view.tasks[(view.tasks["core"] == child) & (view.tasks["end"] >= 0)]
    return int((mine["end"] - mine["start"])[mine["start"] >= 0].sum())


def worker_difference(before: WorkerTraceData, after: WorkerTraceData) -> str:
    """Return a comparison of two traces: each Worker and each device that is in both."""
    parts = [
        [
            f"times: {before.note}; {after.note}",
            *(f"before: {line}" for line in _gaps(before)),
            *(f"after: {line}" for line in _gaps(after)),
            *(f"only before: {path}" for path in before.paths if path not in after.paths),
            *(f"only after: {path}" for path in after.paths if path not in before.paths),
        ]
    ]
    for path in before.children:
        if path in after.children:
            views = worker_view(before, path), worker_view(after, path)
            if any(len(view.tasks) for view in views):
                parts += difference_parts(f"Worker {path}", *views, "function", _LIMITS)
    for path, device in before.devices.items():
        if path in after.devices:
            parts.append([f"device {path}", difference_text(device, after.devices[path])])
    return _joined(parts)


def _joined(parts: list[list[str]]) -> str:
    return "\n\n".join("\n".join(lines).rstrip() for lines in parts if lines) + "\n"


def worker_view(trace: WorkerTraceData, path: str) -> Trace:
    """Return the tasks of one Worker as those of a device: its children are the cores.

    A task waits in the queue of its child from the time at which it is both dispatched and ready.
    The child may start it before the parent has recorded that it is ready.
    """
    number = trace.paths.index(path)
    mine = trace.tasks[trace.tasks["worker"] == number]
    children = trace.children[path]
    tasks = np.full(len(mine), -1, TASK)
    for name in ("run", "task", "released_by", *TIMES.values()):
        tasks[name] = mine[name]
    latest = np.where(tasks["start"] < 0, np.iinfo("<i8").max, tasks["start"])
    tasks["ready"] = np.minimum(tasks["ready"], latest)
    sent = np.clip(tasks["dispatch"], tasks["ready"], latest)
    tasks["dispatch"] = np.where(tasks["dispatch"] < 0, -1, sent)
    tasks["kernel"] = mine["callable"]
    child_of = np.array([_place(children, one) for one in trace.paths] + [-1], "<i2")
    tasks["core"] = child_of[mine["child"]]
    records = trace.records[trace.records["worker"] == number]
    plain = np.zeros(len(records), RECORD)
    for name in RECORD.names or ():
        plain[name] = records[name]
    return Trace(
        records=plain[plain["track"] < FIRST_WORKER],
        tasks=tasks,
        kernels=trace.callables,
        lost={},
        blocks=0,
        unit="ns",
        epoch_ns=trace.epoch_ns,
        threads=max(len(children), 1),
        details=by_task(trace.details[path]) if path in trace.details else None,
    )


def worker_views(trace: WorkerTraceData) -> dict[str, Trace]:
    """Return :func:`worker_view` of each Worker, by path."""
    return {path: worker_view(trace, path) for path in trace.children}


def _place(children: tuple[str, ...], path: str) -> int:
    return children.index(path) if path in children else -1


def _worker_parts(trace: WorkerTraceData, path: str, view: Trace) -> list[list[str]]:
    children = trace.children[path]
    length = analysis.run_time(view)
    count, runs = len(np.unique(view.tasks["task"])), len(np.unique(view.tasks["run"]))
    columns = ("tasks waited", "tasks", "total", "mean", "p99", "max")
    waits = [
        (
            _CAUSES.get(one.cause, one.cause),
            f"{one.tasks:,}",
            *(time_text(t, view) for t in (one.total, one.mean, one.p99, one.max)),
        )
        for one in analysis.waits(view)
    ]
    time = time_text(length, view)
    return [
        [f"Worker {path}: {counted(count, 'task')} in {time}, {counted(runs, 'run')}"],
        kernel_table(view, ("function", "calls", "children")),
        _source_lines(trace, path, view),
        _lost_lines(trace, path, view),
        aligned(columns, waits),
        limit_lines(view, _LIMITS),
        busy_lines(view, "children", len(children)) if length else [],
        _child_lines(children, view, length),
        path_lines(view, _CAUSES),
        _peak_lines(view),
    ]


def _source_lines(trace: WorkerTraceData, path: str, view: Trace) -> list[str]:
    """Return the source lines that submitted the tasks, the longest total first."""
    mine = np.flatnonzero(trace.tasks["worker"] == trace.paths.index(path))
    submits = {number: (row, details) for number, row, details in trace.submit_rows()}
    lengths: dict[tuple[str, str], list[int]] = {}
    arguments: dict[tuple[str, str], str] = {}
    for number in mine[(view.tasks["start"] >= 0) & (view.tasks["end"] >= 0)].tolist():
        if number not in submits:
            continue
        row, details = submits[number]
        one = trace.tasks[number]
        key = place_text(details, row), trace.callable_name(int(one["callable"]))
        lengths.setdefault(key, []).append(int(one["end"] - one["start"]))
        if key not in arguments:
            arguments[key] = ", ".join(argument_texts(details, row, has_memory=False))
    most = sorted(lengths.items(), key=lambda item: -sum(item[1]))[:_PLACES_SHOWN]
    head = ("submitted at", "function", "calls", "total", "mean", "arguments of the first call")
    rows = [
        (
            *key,
            f"{len(times):,}",
            *(time_text(time, view) for time in (sum(times), _mean(times))),
            arguments[key] or "-",
        )
        for key, times in most
        if key[0] != "?"
    ]
    return aligned(head, rows) if rows else []


def _lost_lines(trace: WorkerTraceData, path: str, view: Trace) -> list[str]:
    """Return the tasks that ran when their child exited."""
    mine = trace.tasks["worker"] == trace.paths.index(path)
    rows, ends = trace.tasks[mine], visible_ends(trace.tasks, trace.records)[mine]
    is_lost = (rows["start"] >= 0) & (rows["end"] < 0) & (rows["complete"] < 0)
    places = np.flatnonzero(is_lost & (rows["result"] == FAILED)).tolist()
    lines = [
        f"lost: {trace.callable_name(one['callable'])}, task {one['task']}, after at most "
        f"{time_text(end - one['start'], view)} in process {one['pid']} of "
        f"{trace.path(one['child'])}, which exited"
        for one, end in zip(rows[places], ends[places], strict=True)
    ]
    if len(lines) > _LOST_SHOWN:
        lines[_LOST_SHOWN:] = [f"lost: {len(lines) - _LOST_SHOWN:,} more tasks"]
    return lines


def _child_lines(children: tuple[str, ...], view: Trace, length: int) -> list[str]:
    rows = []
    for number, path in enumerate(children):
        calls = np.count_nonzero((view.tasks["core"] == number) & (view.tasks["end"] >= 0))
        busy = _busy_time(view, number)
        rows.append((path, f"{calls:,}", time_text(busy, view), share(busy, length)))
    return aligned(("child", "calls", "busy", "share"), rows)


def _peak_lines(view: Trace) -> list[str]:
    """Return the peaks of tasks and of memory, and what avoids waits for space."""
    rows = [
        (name.replace("cores", "children"), f"{int(values.max()):,}")
        for name, (_, values) in analysis.counters(view).items()
        if values.max(initial=0) > 0
    ]
    lines = aligned(("peak", "value"), rows) if rows else []
    waits = view.records[view.records["event"] == Event.BACK_PRESSURE]
    if len(waits):
        time = time_text(int((waits["end"] - waits["start"]).sum()), view)
        lines.append(
            f"submits waited {counted(len(waits), 'time')}, {time}, for space: use a larger "
            "heap_ring_size, or smaller scopes; for tasks with retries, a larger snapshot_limit"
        )
    elif (view.records["event"] >= Event.BACK_PRESSURE).any():  # the trace contains waits
        lines.append("no submit waited for space; larger rings would not shorten the run")
    return lines


def _range_lines(trace: WorkerTraceData) -> list[str]:
    if not trace.ranges:
        return []
    lengths: dict[tuple[str, str], list[int]] = {}
    for one in trace.ranges:
        lengths.setdefault((one.name, one.path), []).append(one.end - one.start)
    view = worker_view(trace, next(iter(trace.children), trace.paths[0]))
    rows = [
        (name, path, f"{len(times):,}", time_text(sum(times), view), time_text(_mean(times), view))
        for (name, path), times in lengths.items()
    ]
    return aligned(("range", "process", "count", "total", "mean"), rows)


def _mean(times: list[int]) -> float:
    return sum(times) / len(times)


def _gaps(trace: WorkerTraceData) -> list[str]:
    """Return what the trace does not contain."""
    lines = [f"missing: {text}" for text in trace.missing]
    if trace.lost:
        tracks = ", ".join(f"{name} {count:,}" for name, count in trace.lost.items())
        lines.append(
            f"{sum(trace.lost.values()):,} records were dropped ({tracks}), so figures are "
            "incomplete; use a larger trace_ring_records or trace_records, or a lower level"
        )
    return lines
