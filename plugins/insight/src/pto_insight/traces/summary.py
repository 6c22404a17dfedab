"""The summary of a trace as text, and the comparison of two traces, of a device or a Worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pto_insight.traces import analysis
from pto_insight.traces.data import TraceData, WorkerTraceData
from pto_insight.traces.details import argument_texts, place_text
from pto_insight.traces.records import FAILED, Event
from pto_insight.traces.worker_records import visible_ends

_PARTS = 10
_LOST_SHOWN = 10
_PLACES_SHOWN = 10
_SETTINGS = {
    "tasks": "use a larger --set pto2.task_window, or smaller scopes",
    "heap": "use a larger --set pto2.heap, or smaller scopes",
    "pool": "use a larger --set pto2.dep_pool",
    "tensor_map": "use a larger --set pto2.tensor_map_pool, or smaller scopes",
    "clusters": "free clusters earlier, or use a larger block_dim",
}
"""What to change if submits wait for a resource."""


class _Words(NamedTuple):
    """The words of a summary.

    ``limits``: for each of ``analysis.LIMITS`` its name, and its meaning. ``causes``: other words
    for causes of waits. ``settings``: those that avoid dropped records.
    """

    kernel: str
    tasks: str
    cores: str
    limits: Mapping[str, tuple[str, str]]
    causes: Mapping[str, str]
    settings: str


_LIMITS = {name: (name, meaning) for name, meaning in analysis.LIMITS.items()}
_OF_DEVICE = _Words("kernel", "tasks", "cores", _LIMITS, {}, "--set trace_ring_records")
_OF_WORKER = _Words(
    "function",
    "calls",
    "children",
    {
        **_LIMITS,
        "kernels": ("functions", "every child is busy"),
        "pool": ("queues", "tasks are in the queue of a child, and it has not started them"),
        "scheduling": (
            "scheduling",
            "tasks are ready or finished, and the parent has not handled them",
        ),
        "back-pressure": ("back-pressure", "the program waits for space for the next task"),
        "submit": ("submit", "the program has not submitted more tasks"),
    },
    {
        analysis.FOR_CORE: "for a free child",
        analysis.FOR_THREAD: "for the start in the child",
        analysis.FOR_END: "for the parent to see the end",
    },
    "trace_ring_records or trace_records",
)


def summary_text(trace: TraceData, *, names_bound: bool = True) -> str:
    """Return the summary of a trace: kernels, waiting, limits, critical path, peaks.

    ``names_bound``: state what the run was bound by. One summary states it once.
    """
    runs = int(trace.tasks["run"].max(initial=0)) + 1
    parts = [
        [
            f"{_counted(len(np.unique(trace.tasks[['run', 'task']])), 'task')} in "
            + _time_text(analysis.run_time(trace), trace)
            + (f", {runs} runs" if runs > 1 else ""),
            f"times: {trace.note}",
            *_dropped_lines(trace.lost, _OF_DEVICE),
        ],
        kernel_table(trace),
        counter_table(trace),
    ]
    if len(trace.tasks):
        parts += [
            _wait_table(trace, _OF_DEVICE),
            [_bound_line(trace, "the run", _OF_DEVICE)] if names_bound else [],
            _limit_lines(trace, _OF_DEVICE),
            _busy_lines(trace, _OF_DEVICE, 3 * trace.blocks),
            _path_lines(trace, _OF_DEVICE),
        ]
    parts.append(_peak_lines(trace))
    return _joined(parts)


def worker_summary(trace: WorkerTraceData) -> str:
    """Return the summary of each Worker and each device, and of the user ranges."""
    parts = [[f"times: {trace.note}", *_gaps(trace)], _bound_lines(trace)]
    for path in trace.children:
        view = trace.view(path)
        if len(view.tasks):
            parts += _worker_parts(trace, path, view)
    parts.append(_range_lines(trace))
    parts += [
        [f"device {path}", summary_text(device, names_bound=False)]
        for path, device in trace.devices.items()
    ]
    return _joined(parts)


def kernel_table(trace: TraceData, words: _Words = _OF_DEVICE) -> list[str]:
    """Return the table of kernels as lines.

    It has a column with the processor time if the trace has it.
    """
    found = analysis.kernel_rows(trace)
    has_processor = any(row.processor is not None for row in found)

    def processor_time(row: analysis.KernelRow) -> list[str]:
        if not has_processor:
            return []
        return ["-" if row.processor is None else _time_text(row.processor, trace)]

    rows = [
        (
            row.name,
            f"{row.count:,}",
            _time_text(row.total, trace),
            *processor_time(row),
            _time_text(row.mean, trace),
            _time_text(row.p50, trace),
            _time_text(row.p99, trace),
            _time_text(row.max, trace),
            str(row.cores),
            "-" if row.gb_per_s is None else f"{row.gb_per_s:.3g}",
        )
        for row in found
    ]
    total = ("total", "processor") if has_processor else ("total",)
    columns = (words.kernel, words.tasks, *total, "mean", "p50", "p99", "max", words.cores, "GB/s")
    return _aligned(columns, rows)


def counter_table(trace: TraceData) -> list[str]:
    """Return the mean counters of the tasks of each kernel; no lines if the trace has none."""
    names = list(trace.counters)
    rows = []
    for row in analysis.kernel_rows(trace) if names else ():
        is_mine = [trace.kernel_name(kernel) == row.name for kernel in trace.tasks["kernel"]]
        known = [values[is_mine & (values >= 0)] for values in trace.counters.values()]
        means = [f"{values.mean():,.1f}" if len(values) else "-" for values in known]
        rows.append((row.name, f"{row.count:,}", *means))
    return (
        ["counters, mean of a task", *_aligned(("kernel", "tasks", *names), rows)] if rows else []
    )


def difference_text(before: TraceData, after: TraceData) -> str:
    """Return a comparison of two traces: the whole, each kernel, and the limits."""
    whole, *tables = _difference_parts("whole run", before, after, _OF_DEVICE)
    head = [
        *whole,
        f"times: {before.note}; {after.note}",
        *_dropped_lines(before.lost, _OF_DEVICE),
        *_dropped_lines(after.lost, _OF_DEVICE),
    ]
    return _joined([head, *tables])


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
            views = before.view(path), after.view(path)
            if any(len(view.tasks) for view in views):
                parts += _difference_parts(f"Worker {path}", *views, _OF_WORKER)
    for path, device in before.devices.items():
        if path in after.devices:
            parts.append([f"device {path}", difference_text(device, after.devices[path])])
    return _joined(parts)


def _difference_parts(
    title: str, before: TraceData, after: TraceData, words: _Words
) -> list[list[str]]:
    """Return the comparison of two traces: a line for the whole, the kernels, and the limits."""
    spans = [analysis.run_time(trace) for trace in (before, after)]
    lengths = _time_text(spans[0], before), _time_text(spans[1], after)
    old = {row.name: row for row in analysis.kernel_rows(before)}
    new = {row.name: row for row in analysis.kernel_rows(after)}
    rows = []
    for name in sorted({*old, *new}, key=lambda name: -_weight(old.get(name), new.get(name))):
        a, b = old.get(name), new.get(name)
        rows.append(
            (
                name,
                f"{a.count if a else 0:,}",
                f"{b.count if b else 0:,}",
                _time_text(a.mean, before) if a else "",
                _time_text(b.mean, after) if b else "",
                _change(a.total, b.total) if a and b else ("only after" if b else "only before"),
            )
        )
    columns = (words.kernel, "tasks before", "after", "mean before", "after", "total")
    times = zip(analysis.limits(before).items(), analysis.limits(after).values(), strict=True)
    bounds = [
        (words.limits[name][0], _share(a, spans[0]), _share(b, spans[1]))
        for (name, a), b in times
        if (a or b) and name != "outside"
    ]
    return [
        [f"{title}: {lengths[0]} -> {lengths[1]} {_change(*spans)}"],
        _aligned(columns, rows),
        _aligned(("limited by", "before", "after"), bounds),
    ]


def _weight(*rows: analysis.KernelRow | None) -> int:
    return max(row.total for row in rows if row is not None)


def _dropped_lines(lost: Mapping[str, int], words: _Words) -> list[str]:
    """Return how many records of each track were dropped."""
    if not any(lost.values()):
        return []
    tracks = ", ".join(f"{name} {count:,}" for name, count in lost.items())
    return [
        f"{sum(lost.values()):,} records were dropped ({tracks}), so figures are incomplete; use a "
        f"larger {words.settings}, or a lower level"
    ]


def _wait_table(trace: TraceData, words: _Words) -> list[str]:
    rows = [
        (
            words.causes.get(wait.cause, wait.cause),
            f"{wait.tasks:,}",
            *(_time_text(t, trace) for t in (wait.total, wait.mean, wait.p99, wait.max)),
        )
        for wait in analysis.waits(trace)
    ]
    return _aligned(("tasks waited", "tasks", "total", "mean", "p99", "max"), rows)


def _bound(trace: TraceData) -> str | None:
    """Return the one of ``analysis.LIMITS`` that limited a run most; None if nothing did."""
    found = _limits_inside(trace)
    return max(found, key=lambda name: found[name]) if found else None


def _bound_line(trace: TraceData, title: str, words: _Words) -> str:
    """Return the sentence that names the bound of a run; ``title`` names what was limited."""
    largest = _bound(trace)
    if largest is None:
        return f"{title} was bound by nothing that the trace shows"
    found = _limits_inside(trace)
    name, meaning = words.limits[largest]
    part = _share(found[largest], sum(found.values()))
    return f"{title} was bound by {name}: {meaning} in {part} of the time"


def _limits_inside(trace: TraceData) -> dict[str, int]:
    times = analysis.limits(trace).items()
    return {name: time for name, time in times if time and name != "outside"}


def _limit_lines(trace: TraceData, words: _Words) -> list[str]:
    """Return what limited a run, the longest time first."""
    found = _limits_inside(trace)
    inside = sum(found.values())
    if not found:
        return []
    rows = [
        (
            words.limits[name][0],
            _share(time, inside),
            _time_text(time, trace),
            words.limits[name][1],
        )
        for name, time in sorted(found.items(), key=lambda item: -item[1])
    ]
    return _aligned(("limited by", "share", "time", "meaning"), rows)


def _busy_lines(trace: TraceData, words: _Words, count: int) -> list[str]:
    """Return the use of the cores over time; ``count``: the number of all cores."""
    busy = analysis.busy_cores(trace, _PARTS)
    return [
        f"{words.cores} busy: {sum(busy) / len(busy):.2f} on average of {count}; "
        f"in each tenth of the run: {' '.join(f'{number:.1f}' for number in busy)}"
    ]


def _path_lines(trace: TraceData, words: _Words) -> list[str]:
    """Return the parts of the critical path."""
    path = analysis.critical_path(trace)
    if not path.rows:
        return []
    waits = {
        f"waiting {words.causes.get(cause, cause)}": time for cause, time in path.waits.items()
    }
    parts = {**path.kernels, **waits}
    rows = [
        (name, _share(time, path.total), _time_text(time, trace))
        for name, time in sorted(parts.items(), key=lambda item: -item[1])
        if time
    ]
    return [
        f"critical path: {_counted(len(path.rows), 'task')}, {_time_text(path.total, trace)}",
        *_aligned(("part", "share", "time"), rows),
    ]


def _peak_lines(trace: TraceData) -> list[str]:
    peaks = {
        name: value for name, value in (trace.statistics or {}).items() if name.endswith("_peak")
    }
    if not peaks:
        return []
    rows = [(name, f"{value:,}") for name, value in peaks.items() if value]
    return [*_aligned(("peak", "value"), rows), *_advice_lines(trace)]


def _advice_lines(trace: TraceData) -> list[str]:
    """Return the settings for which submits waited, the longest wait first."""
    counts = trace.statistics or {}
    waited = {name: counts.get(f"blocked_on_{name}_ns", 0) for name in _SETTINGS}
    lines = [
        f"submits waited {_counted(counts.get(f'blocked_on_{name}', 0), 'time')}, "
        f"{nanoseconds(time)}, for "
        f"{name.replace('_', ' ')}: {_SETTINGS[name]}"
        for name, time in sorted(waited.items(), key=lambda item: -item[1])
        if time
    ]
    if lines:
        return [*lines, "docs/sizing-rings.md explains these settings"]
    has_rings = "blocked_on_tasks_ns" in counts
    free = "no submit waited for space; larger rings would not shorten the run"
    return [free] if has_rings else []


def _bound_lines(trace: WorkerTraceData) -> list[str]:
    """Return the sentence that names what bound the program.

    If all children of a Worker were busy most of the time, the bound of the busiest child counts.
    """
    path = next((path for path in trace.children if len(trace.view(path).tasks)), None)
    if path is None:
        return []
    while True:
        view = trace.view(path)
        child = _busiest(trace.children[path], view)
        if _bound(view) != "kernels" or child is None:
            return [_bound_line(view, f"Worker {path}", _OF_WORKER)]
        device = trace.devices.get(child)
        if device is not None and len(device.tasks):
            return [_bound_line(device, f"device {child}", _OF_DEVICE)]
        if child not in trace.children or not len(trace.view(child).tasks):
            return [_bound_line(view, f"Worker {path}", _OF_WORKER)]
        path = child


def _busiest(children: tuple[str, ...], view: TraceData) -> str | None:
    if not children:
        return None
    busy = [_busy_time(view, number) for number in range(len(children))]
    return children[busy.index(max(busy))]


def _busy_time(view: TraceData, child: int) -> int:
    mine = view.tasks[(view.tasks["core"] == child) & (view.tasks["end"] >= 0)]
    return int((mine["end"] - mine["start"])[mine["start"] >= 0].sum())


def _worker_parts(trace: WorkerTraceData, path: str, view: TraceData) -> list[list[str]]:
    children = trace.children[path]
    length = analysis.run_time(view)
    count, runs = len(np.unique(view.tasks["task"])), len(np.unique(view.tasks["run"]))
    time = nanoseconds(length)
    return [
        [f"Worker {path}: {_counted(count, 'task')} in {time}, {_counted(runs, 'run')}"],
        kernel_table(view, _OF_WORKER),
        _source_lines(trace, path, view),
        _lost_lines(trace, path),
        _wait_table(view, _OF_WORKER),
        _limit_lines(view, _OF_WORKER),
        _busy_lines(view, _OF_WORKER, len(children)) if length else [],
        _child_lines(children, view, length),
        _path_lines(view, _OF_WORKER),
        _worker_peak_lines(view),
    ]


def _source_lines(trace: WorkerTraceData, path: str, view: TraceData) -> list[str]:
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
            *(nanoseconds(time) for time in (sum(times), _mean(times))),
            arguments[key] or "-",
        )
        for key, times in most
        if key[0] != "?"
    ]
    return _aligned(head, rows) if rows else []


def _lost_lines(trace: WorkerTraceData, path: str) -> list[str]:
    """Return the tasks that ran when their child exited."""
    mine = trace.tasks["worker"] == trace.paths.index(path)
    rows, ends = trace.tasks[mine], visible_ends(trace.tasks, trace.records)[mine]
    is_lost = (rows["start"] >= 0) & (rows["end"] < 0) & (rows["complete"] < 0)
    places = np.flatnonzero(is_lost & (rows["result"] == FAILED)).tolist()
    lines = [
        f"lost: {trace.callable_name(one['callable'])}, task {one['task']}, after at most "
        f"{nanoseconds(end - one['start'])} in process {one['pid']} of "
        f"{trace.path(one['child'])}, which exited"
        for one, end in zip(rows[places], ends[places], strict=True)
    ]
    if len(lines) > _LOST_SHOWN:
        lines[_LOST_SHOWN:] = [f"lost: {len(lines) - _LOST_SHOWN:,} more tasks"]
    return lines


def _child_lines(children: tuple[str, ...], view: TraceData, length: int) -> list[str]:
    rows = []
    for number, path in enumerate(children):
        calls = np.count_nonzero((view.tasks["core"] == number) & (view.tasks["end"] >= 0))
        busy = _busy_time(view, number)
        rows.append((path, f"{calls:,}", nanoseconds(busy), _share(busy, length)))
    return _aligned(("child", "calls", "busy", "share"), rows)


def _worker_peak_lines(view: TraceData) -> list[str]:
    """Return the peaks of tasks and of memory, and what avoids waits for space."""
    rows = [
        (name.replace("cores", "children"), f"{int(values.max()):,}")
        for name, (_, values) in analysis.counters(view).items()
        if values.max(initial=0) > 0
    ]
    lines = _aligned(("peak", "value"), rows) if rows else []
    waits = view.records[view.records["event"] == Event.BACK_PRESSURE]
    if len(waits):
        time = nanoseconds(int((waits["end"] - waits["start"]).sum()))
        lines.append(
            f"submits waited {_counted(len(waits), 'time')}, {time}, for space: use a larger "
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
    rows = [
        (
            name,
            path,
            f"{len(times):,}",
            nanoseconds(sum(times)),
            nanoseconds(_mean(times)),
        )
        for (name, path), times in lengths.items()
    ]
    return _aligned(("range", "process", "count", "total", "mean"), rows)


def _mean(times: list[int]) -> float:
    return sum(times) / len(times)


def _gaps(trace: WorkerTraceData) -> list[str]:
    """Return what the trace does not contain."""
    missing = [f"missing: {text}" for text in trace.missing]
    return [*missing, *_dropped_lines(trace.lost, _OF_WORKER)]


def _joined(parts: list[list[str]]) -> str:
    return "\n\n".join("\n".join(lines).rstrip() for lines in parts if lines) + "\n"


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns: the first and the last text to the left, numbers to the right."""
    cells = [list(columns), *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    is_text = [i == 0 or columns[i] == "meaning" for i in range(len(columns))]
    return [
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(row, widths, is_text, strict=True)
        ).rstrip()
        for row in cells
    ]


def _counted(number: int, what: str) -> str:
    """Return a number with its noun, such as ``1 task`` and ``2 tasks``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _time_text(value: float, trace: TraceData) -> str:
    """Return a time with its unit."""
    return f"{value:,.0f} steps" if trace.unit == "steps" else nanoseconds(value)


def nanoseconds(value: float) -> str:
    """Return a time with a unit that suits it."""
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.0f} ns"


def _share(part: float, whole: float) -> str:
    """Return a part of a whole in percent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _change(before: float, after: float) -> str:
    return f"{100 * (after - before) / before:+.1f} %" if before else "-"
