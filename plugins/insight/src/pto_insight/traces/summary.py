"""The summary of a trace as text, and the comparison of two traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pto_insight.traces import analysis
from pto_insight.traces.records import TraceData

_PARTS = 10
_SETTINGS = {
    "tasks": "use a larger --set pto2.task_window, or smaller scopes",
    "heap": "use a larger --set pto2.heap, or smaller scopes",
    "pool": "use a larger --set pto2.dep_pool",
    "tensor_map": "use a larger --set pto2.tensor_map_pool, or smaller scopes",
    "clusters": "free clusters earlier, or use a larger block_dim",
}
"""What to change if submits wait for a resource."""

Limits = Mapping[str, tuple[str, str]]
"""For each of ``analysis.LIMITS`` its name in a summary, and its meaning."""

_LIMITS: Limits = {name: (name, meaning) for name, meaning in analysis.LIMITS.items()}


def summary_text(trace: TraceData, *, names_bound: bool = True) -> str:
    """Return the summary of a trace: kernels, waiting, limits, critical path, peaks.

    ``names_bound``: state what the run was bound by. One summary states it once.
    """
    runs = int(trace.tasks["run"].max(initial=0)) + 1
    parts = [
        [
            f"{counted(len(trace.tasks), 'task')} in "
            + time_text(analysis.run_time(trace), trace)
            + (f", {runs} runs" if runs > 1 else ""),
            f"times: {trace.note}",
            *_lost_lines(trace),
        ],
        kernel_table(trace),
    ]
    if len(trace.tasks):
        parts += [
            _wait_table(trace),
            [bound_line(trace, "the run", _LIMITS)] if names_bound else [],
            limit_lines(trace, _LIMITS),
            busy_lines(trace, "cores", 3 * trace.blocks),
            path_lines(trace, {}),
        ]
    parts.append(_peak_lines(trace))
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def kernel_table(
    trace: TraceData, names: tuple[str, str, str] = ("kernel", "tasks", "cores")
) -> list[str]:
    """Return the table of kernels as lines. ``names``: the words for them, tasks and cores.

    It has a column with the processor time if the trace has it.
    """
    kernel, tasks, cores = names
    found = analysis.kernel_rows(trace)
    has_processor = any(row.processor is not None for row in found)

    def processor_time(row: analysis.KernelRow) -> list[str]:
        if not has_processor:
            return []
        return ["-" if row.processor is None else time_text(row.processor, trace)]

    rows = [
        (
            row.name,
            f"{row.count:,}",
            time_text(row.total, trace),
            *processor_time(row),
            time_text(row.mean, trace),
            time_text(row.p50, trace),
            time_text(row.p99, trace),
            time_text(row.max, trace),
            str(row.cores),
            "-" if row.gb_per_s is None else f"{row.gb_per_s:.3g}",
        )
        for row in found
    ]
    total = ("total", "processor") if has_processor else ("total",)
    return aligned((kernel, tasks, *total, "mean", "p50", "p99", "max", cores, "GB/s"), rows)


def difference_text(before: TraceData, after: TraceData) -> str:
    """Return a comparison of two traces: the whole, each kernel, and the limits."""
    whole, *tables = difference_parts("whole run", before, after, "kernel", _LIMITS)
    head = [
        *whole,
        f"times: {before.note}; {after.note}",
        *_lost_lines(before),
        *_lost_lines(after),
    ]
    return "\n\n".join("\n".join(lines) for lines in (head, *tables)) + "\n"


def difference_parts(
    title: str, before: TraceData, after: TraceData, kernel: str, limits: Limits
) -> list[list[str]]:
    """Return the comparison of two traces: a line for the whole, the kernels, and the limits.

    ``kernel``: the word for a kernel.
    """
    spans = [analysis.run_time(trace) for trace in (before, after)]
    lengths = time_text(spans[0], before), time_text(spans[1], after)
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
                time_text(a.mean, before) if a else "",
                time_text(b.mean, after) if b else "",
                _change(a.total, b.total) if a and b else ("only after" if b else "only before"),
            )
        )
    columns = (kernel, "tasks before", "after", "mean before", "after", "total")
    times = zip(analysis.limits(before).items(), analysis.limits(after).values(), strict=True)
    bounds = [
        (limits[name][0], share(a, spans[0]), share(b, spans[1]))
        for (name, a), b in times
        if (a or b) and name != "outside"
    ]
    return [
        [f"{title}: {lengths[0]} -> {lengths[1]} {_change(*spans)}"],
        aligned(columns, rows),
        aligned(("limited by", "before", "after"), bounds),
    ]


def _weight(*rows: analysis.KernelRow | None) -> int:
    return max(row.total for row in rows if row is not None)


def _lost_lines(trace: TraceData) -> list[str]:
    if not trace.lost_total:
        return []
    tracks = ", ".join(f"{name} {count:,}" for name, count in trace.lost.items())
    return [
        f"{trace.lost_total:,} records were dropped ({tracks}), so figures are incomplete; use a "
        "larger --set trace_ring_records, or a lower level"
    ]


def _wait_table(trace: TraceData) -> list[str]:
    rows = [
        (
            wait.cause,
            f"{wait.tasks:,}",
            *(time_text(t, trace) for t in (wait.total, wait.mean, wait.p99, wait.max)),
        )
        for wait in analysis.waits(trace)
    ]
    return aligned(("tasks waited", "tasks", "total", "mean", "p99", "max"), rows)


def bound(trace: TraceData) -> str | None:
    """Return the one of ``analysis.LIMITS`` that limited a run most; None if nothing did."""
    found = _limits_inside(trace)
    return max(found, key=lambda name: found[name]) if found else None


def bound_line(trace: TraceData, title: str, limits: Limits) -> str:
    """Return the sentence that names the bound of a run; ``title`` names what was limited."""
    largest = bound(trace)
    if largest is None:
        return f"{title} was bound by nothing that the trace shows"
    found = _limits_inside(trace)
    name, meaning = limits[largest]
    part = share(found[largest], sum(found.values()))
    return f"{title} was bound by {name}: {meaning} in {part} of the time"


def _limits_inside(trace: TraceData) -> dict[str, int]:
    times = analysis.limits(trace).items()
    return {name: time for name, time in times if time and name != "outside"}


def limit_lines(trace: TraceData, limits: Limits) -> list[str]:
    """Return what limited a run, the longest time first."""
    found = _limits_inside(trace)
    inside = sum(found.values())
    if not found:
        return []
    rows = [
        (limits[name][0], share(time, inside), time_text(time, trace), limits[name][1])
        for name, time in sorted(found.items(), key=lambda item: -item[1])
    ]
    return aligned(("limited by", "share", "time", "meaning"), rows)


def busy_lines(trace: TraceData, cores: str, count: int) -> list[str]:
    """Return the use of the cores over time; ``cores``: the word for them, ``count``: all."""
    busy = analysis.busy_cores(trace, _PARTS)
    return [
        f"{cores} busy: {sum(busy) / len(busy):.2f} on average of {count}; "
        f"in each tenth of the run: {' '.join(f'{number:.1f}' for number in busy)}"
    ]


def path_lines(trace: TraceData, causes: Mapping[str, str]) -> list[str]:
    """Return the parts of the critical path. ``causes``: other words for causes of waits."""
    path = analysis.critical_path(trace)
    if not path.rows:
        return []
    waits = {f"waiting {causes.get(cause, cause)}": time for cause, time in path.waits.items()}
    parts = {**path.kernels, **waits}
    rows = [
        (name, share(time, path.total), time_text(time, trace))
        for name, time in sorted(parts.items(), key=lambda item: -item[1])
        if time
    ]
    return [
        f"critical path: {counted(len(path.rows), 'task')}, {time_text(path.total, trace)}",
        *aligned(("part", "share", "time"), rows),
    ]


def _peak_lines(trace: TraceData) -> list[str]:
    peaks = {
        name: value for name, value in (trace.statistics or {}).items() if name.endswith("_peak")
    }
    if not peaks:
        return []
    rows = [(name, f"{value:,}") for name, value in peaks.items() if value]
    return [*aligned(("peak", "value"), rows), *_advice_lines(trace)]


def _advice_lines(trace: TraceData) -> list[str]:
    """Return the settings for which submits waited, the longest wait first."""
    counts = trace.statistics or {}
    waited = {name: counts.get(f"blocked_on_{name}_ns", 0) for name in _SETTINGS}
    lines = [
        f"submits waited {counted(counts.get(f'blocked_on_{name}', 0), 'time')}, "
        f"{_nanoseconds(time)}, for "
        f"{name.replace('_', ' ')}: {_SETTINGS[name]}"
        for name, time in sorted(waited.items(), key=lambda item: -item[1])
        if time
    ]
    if lines:
        return [*lines, "docs/sizing-rings.md explains these settings"]
    has_rings = "blocked_on_tasks_ns" in counts
    free = "no submit waited for space; larger rings would not shorten the run"
    return [free] if has_rings else []


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
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


def counted(number: int, what: str) -> str:
    """Return a number with its noun, such as ``1 task`` and ``2 tasks``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def time_text(value: float, trace: TraceData) -> str:
    """Return a time with its unit."""
    return f"{value:,.0f} steps" if trace.unit == "steps" else _nanoseconds(value)


def _nanoseconds(value: float) -> str:
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.0f} ns"


def share(part: float, whole: float) -> str:
    """Return a part of a whole in percent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _change(before: float, after: float) -> str:
    return f"{100 * (after - before) / before:+.1f} %" if before else "-"
