"""The summary of a Worker's trace as text."""

from __future__ import annotations

import numpy as np

from pto_core.trace import analysis
from pto_core.trace.records import FIRST_WORKER, RECORD, TASK, TIMES
from pto_core.trace.summary import aligned, share, summary_text, time_text
from pto_core.trace.trace import Trace
from pto_core.trace.worker_data import WorkerTraceData

_CAUSES = dict(
    zip(
        (wait[0] for wait in analysis.WAITS),
        (
            "for producers",
            "for space in the queue of a child",
            "in the queue of the child",
            "for the parent to see the end",
        ),
        strict=True,
    )
)


def worker_summary(trace: WorkerTraceData) -> str:
    """Return the summary of each Worker and each device, and of the user ranges."""
    parts = [[f"times: {trace.note}", *_gaps(trace)]]
    for path in trace.children:
        view = worker_view(trace, path)
        if len(view.tasks):
            parts += _worker_parts(path, trace.children[path], view)
    parts.append(_range_lines(trace))
    parts += [[f"device {path}", summary_text(trace.devices[path])] for path in trace.devices]
    return "\n\n".join("\n".join(lines).rstrip() for lines in parts if lines) + "\n"


def worker_view(trace: WorkerTraceData, path: str) -> Trace:
    """Return the tasks of one Worker as those of a device: its children are the cores."""
    number = trace.paths.index(path)
    mine = trace.tasks[trace.tasks["worker"] == number]
    children = trace.children[path]
    tasks = np.full(len(mine), -1, TASK)
    for name in ("run", "task", "released_by", *TIMES.values()):
        tasks[name] = mine[name]
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
    )


def _place(children: tuple[str, ...], path: str) -> int:
    return children.index(path) if path in children else -1


def _worker_parts(path: str, children: tuple[str, ...], view: Trace) -> list[list[str]]:
    length = analysis.run_time(view)
    runs = len(np.unique(view.tasks["run"]))
    functions = [
        (
            row.name,
            f"{row.count:,}",
            *(time_text(t, view) for t in (row.total, row.mean, row.p50, row.p99)),
            str(row.cores),
        )
        for row in analysis.kernel_rows(view)
    ]
    head = ("function", "tasks", "total", "mean", "p50", "p99", "children")
    columns = ("tasks waited", "tasks", "total", "mean", "p99")
    waits = [
        (
            _CAUSES[one.cause],
            f"{one.tasks:,}",
            *(time_text(t, view) for t in (one.total, one.mean, one.p99)),
        )
        for one in analysis.waits(view)
    ]
    return [
        [f"Worker {path}: {len(view.tasks):,} tasks in {time_text(length, view)}, {runs} runs"],
        aligned(head, functions),
        aligned(columns, waits),
        _child_lines(children, view, length),
        _path_lines(view),
    ]


def _child_lines(children: tuple[str, ...], view: Trace, length: int) -> list[str]:
    rows = []
    for number, path in enumerate(children):
        mine = view.tasks[(view.tasks["core"] == number) & (view.tasks["end"] >= 0)]
        busy = int((mine["end"] - mine["start"])[mine["start"] >= 0].sum())
        rows.append((path, f"{len(mine):,}", time_text(busy, view), share(busy, length)))
    return aligned(("child", "tasks", "busy", "share"), rows)


def _path_lines(view: Trace) -> list[str]:
    path = analysis.critical_path(view)
    if not path.rows:
        return []
    parts = {**path.kernels, "between tasks": path.waiting, "before the first task": path.before}
    longest_first = sorted(parts.items(), key=lambda item: -item[1])
    rows = [(name, share(ns, path.total), time_text(ns, view)) for name, ns in longest_first if ns]
    return [
        f"critical path: {len(path.rows)} tasks, {time_text(path.total, view)}",
        *aligned(("part", "share", "time"), rows),
    ]


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
