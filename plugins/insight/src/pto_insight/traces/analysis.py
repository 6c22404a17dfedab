"""Figures about a trace: kernels, waiting, limits of the run, critical path."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_insight.traces.data import TraceData
from pto_insight.traces.records import Event


@dataclass(frozen=True)
class KernelRow:
    """The tasks of one kernel. Times have the unit of the trace."""

    name: str
    count: int
    total: int
    mean: float
    p50: float
    p99: float
    max: int
    cores: int
    gb_per_s: float | None
    """The bytes that the arguments declare, divided by the total time; None if not known."""
    processor: int | None
    """The time in which a processor ran the kernel; None if not known for all tasks."""


@dataclass(frozen=True)
class Wait:
    """How long tasks waited for one cause. ``tasks``: those for which the times are known."""

    cause: str
    tasks: int
    total: int
    mean: float
    p99: float
    max: int


@dataclass(frozen=True)
class CriticalPath:
    """The chain of tasks that determined the end of the last run, from its first to its last task.

    ``rows`` are rows of ``Trace.tasks``. ``kernels``: the time in each kernel of the chain.
    ``waits``: the remaining time of the path, by cause. It begins with the first submit of the run.
    """

    rows: tuple[int, ...]
    kernels: dict[str, int]
    waits: dict[str, int]

    @property
    def total(self) -> int:
        """The length of the path."""
        return sum(self.kernels.values()) + sum(self.waits.values())


FOR_SUBMIT = "for the submit"
FOR_PRODUCERS = "for producers"
FOR_CORE = "for a free core"
FOR_DISPATCH = "for the dispatch"
FOR_THREAD = "for a thread that runs the core"
FOR_END = "for the scheduler to see the end"
FOR_UNKNOWN = "for an unrecorded cause"

WAITS = (
    (FOR_SUBMIT, "submit", "ready"),
    (FOR_PRODUCERS, "submit", "ready"),
    (FOR_CORE, "ready", "dispatch"),
    (FOR_DISPATCH, "ready", "dispatch"),
    (FOR_THREAD, "dispatch", "start"),
    (FOR_END, "end", "complete"),
)
"""The causes, each with the times between which tasks wait for it. :func:`_moments` divides them.

A task that no other task released waits for the submit until it is ready: for its own submit, and
for the rest of the graph if the runtime starts no task before. A task waits for a free core while
its core runs the task before it.
"""

COPIES = (Event.COPY_IN, Event.COPY_OUT)

COUNTERS = (
    ("ready tasks", "ready", "dispatch"),
    ("busy cores", "start", "end"),
    ("live tasks", "submit", "complete"),
)
"""The counters that follow from the tasks, with the times that raise and lower them."""

LIMITS = {
    "kernels": "every thread that runs kernels is busy",
    "dependencies": "the remaining tasks wait for tasks that run",
    "scheduling": "tasks are ready or finished, and no scheduler has handled them",
    "pool": "tasks are dispatched, and no thread has started them",
    "back-pressure": "the orchestration waits for space in a ring",
    "copies": "data is copied between host and device",
    "submit": "the orchestration has not submitted more tasks",
    "outside": "no task is waiting or running: before, between and after the runs",
}
"""What limits a run at a moment, in the order of the checks."""


def kernel_rows(trace: TraceData) -> list[KernelRow]:
    """Return one row for each kernel that ran, the longest total first."""
    tasks = _finished(trace)
    rows = []
    for kernel in np.unique(tasks["kernel"]):
        mine = tasks[tasks["kernel"] == kernel]
        times = mine["end"] - mine["start"]
        rows.append(
            KernelRow(
                name=trace.kernel_name(int(kernel)),
                count=len(mine),
                total=int(times.sum()),
                mean=float(times.mean()),
                p50=float(np.percentile(times, 50)),
                p99=float(np.percentile(times, 99)),
                max=int(times.max()),
                cores=len(np.unique(mine["core"])),
                gb_per_s=_rate(trace, mine["task"], int(times.sum())),
                processor=_processor_time(mine),
            )
        )
    return sorted(rows, key=lambda row: -row.total)


def _processor_time(tasks: NDArray[Any]) -> int | None:
    times = tasks["processor"]
    return int(times.sum()) if (times >= 0).all() else None


def _rate(trace: TraceData, tasks: NDArray[Any], total_ns: int) -> float | None:
    details = trace.details
    if details is None or trace.unit == "steps" or not total_ns:
        return None
    rows = details.rows(tasks)
    if (rows < 0).any():
        return None
    moved = details.submits["bytes"][rows]
    if (moved < 0).any():
        return None
    return float(moved.sum() / total_ns)


def waits(trace: TraceData) -> list[Wait]:
    """Return how long the tasks waited, by cause."""
    tasks = trace.tasks
    until_end = np.maximum(tasks["complete"] - tasks["end"], 0)
    lengths = [*np.diff(_moments(tasks), axis=0), until_end]
    is_released = tasks["released_by"] >= 0
    found = []
    for (cause, begin, end), length in zip(WAITS, lengths, strict=True):
        is_known = (tasks[begin] >= 0) & (tasks[end] >= 0)
        if cause in (FOR_SUBMIT, FOR_PRODUCERS):
            is_known &= is_released == (cause == FOR_PRODUCERS)
        times = length[is_known]
        mean, p99 = (float(times.mean()), float(np.percentile(times, 99))) if len(times) else (0, 0)
        longest = int(times.max(initial=0))
        found.append(Wait(cause, len(times), int(times.sum()), mean, p99, longest))
    return found


def _moments(tasks: NDArray[Any]) -> NDArray[np.int64]:
    """Return the submit of each task, and when each wait before its start ended, as rows."""
    start = tasks["start"]
    is_released = tasks["released_by"] >= 0
    ends = [
        tasks["submit"],
        np.where(is_released, -1, tasks["ready"]),
        tasks["ready"],
        _ends_before(tasks),
        tasks["dispatch"],
        start,
    ]
    latest = np.where(start < 0, np.iinfo("<i8").max, start)
    moments: NDArray[np.int64] = np.minimum(np.maximum.accumulate(ends), latest)
    return moments


def _ends_before(tasks: NDArray[Any]) -> NDArray[np.int64]:
    """Return the end of the task before each task on its core; -1 if it is not known."""
    order = np.lexsort((tasks["start"], tasks["core"]))
    core, start, end = (tasks[name][order] for name in ("core", "start", "end"))
    found = np.full(len(tasks), -1, "<i8")
    found[order[1:]] = np.where((core[1:] == core[:-1]) & (start[1:] >= 0), end[:-1], -1)
    return found


def span(trace: TraceData) -> tuple[int, int]:
    """Return the first submit, start or copy, and the last end of a kernel or copy.

    Without tasks the result is (0, 0).
    """
    tasks = _finished(trace)
    if not len(tasks):
        return 0, 0
    begins = np.where(tasks["submit"] >= 0, tasks["submit"], tasks["start"])
    copies = _copies(trace)
    return (
        int(np.concatenate([begins, copies[0]]).min()),
        int(np.concatenate([tasks["end"], copies[1]]).max()),
    )


def run_time(trace: TraceData) -> int:
    """Return the time in which a task was alive or data was copied: all runs without the gaps."""
    begin, end = span(trace)
    return end - begin - limits(trace)["outside"]


def limits(trace: TraceData) -> dict[str, int]:
    """Return for each of ``LIMITS`` how long it limited the run, within :func:`span`."""
    tasks = trace.tasks
    times, counts = _sweep(
        [
            _known(tasks, "start", "end"),
            _known(tasks, "ready", "dispatch"),
            _known(tasks, "dispatch", "start"),
            _known(tasks, "end", "complete"),
            _durations(trace, Event.BACK_PRESSURE),
            _copies(trace),
            _durations(trace, Event.BUILD),
            _alive(tasks),
        ]
    )
    if len(times) < 2:
        return dict.fromkeys(LIMITS, 0)
    begin, end = span(trace)
    lengths = np.diff(np.clip(times, begin, end))
    running, ready, dispatched, ended, blocked, copying, building, alive = (
        count[:-1] for count in counts
    )
    conditions = {
        "kernels": running >= trace.threads,
        "pool": dispatched > 0,
        "scheduling": (ready > 0) | ((ended > 0) & (running == 0)),
        "back-pressure": blocked > 0,
        "copies": (copying > 0) & (running == 0),
        "submit": building > 0,
        "dependencies": alive > 0,
        "outside": np.ones(len(lengths), bool),
    }
    result = dict.fromkeys(LIMITS, 0)
    free = np.ones(len(lengths), bool)
    for name, condition in conditions.items():
        result[name] = int(lengths[free & condition].sum())
        free &= ~condition
    return result


def busy_cores(trace: TraceData, parts: int) -> list[float]:
    """Return the mean number of busy cores in each of ``parts`` equal parts of the run."""
    begin, end = span(trace)
    tasks = _finished(trace)
    edges = np.linspace(begin, max(end, begin + 1), parts + 1)
    starts, ends = np.sort(tasks["start"]), np.sort(tasks["end"])

    def busy_until(time: float) -> float:
        """Return the busy time of all cores before ``time``."""
        started = starts[: np.searchsorted(starts, time)]
        ended = ends[: np.searchsorted(ends, time)]
        return float((time - started).sum() - (time - ended).sum())

    totals = [busy_until(time) for time in edges]
    return [(b - a) / (edges[1] - edges[0]) for a, b in itertools.pairwise(totals)]


def critical_path(trace: TraceData) -> CriticalPath:
    """Follow the tasks backwards from the last one, each time to the task that released it."""
    tasks = trace.tasks
    finished = np.flatnonzero((tasks["start"] >= 0) & (tasks["end"] >= 0))
    if not len(finished):
        return CriticalPath((), {}, {})
    last = int(finished[np.argmax(tasks["end"][finished])])
    run = tasks["run"][last]
    row_of = {int(tasks["task"][row]): int(row) for row in finished if tasks["run"][row] == run}
    path = [last]
    while True:
        producer = row_of.get(int(tasks["released_by"][path[-1]]))
        if producer is None or tasks["end"][producer] > tasks["start"][path[-1]]:
            break
        path.append(producer)
    path.reverse()
    kernels: Counter[str] = Counter()
    for row in tasks[path]:
        kernels[trace.kernel_name(int(row["kernel"]))] += int(row["end"] - row["start"])
    return CriticalPath(tuple(path), dict(kernels), _path_waits(tasks, path))


def _path_waits(tasks: NDArray[Any], path: list[int]) -> dict[str, int]:
    """Return how long the tasks of a path waited after the task before them, by cause."""
    mine = tasks[(tasks["run"] == tasks["run"][path[0]]) & (tasks["submit"] >= 0)]
    now = int(mine["submit"].min() if len(mine) else tasks["start"][path[0]])
    found: Counter[str] = Counter()
    for row, moments in zip(path, _moments(tasks)[1:, path].T.tolist(), strict=True):
        # All tasks but the first one became ready by the end of the task before.
        causes = [FOR_SUBMIT, FOR_END if row != path[0] else FOR_PRODUCERS]
        causes += [FOR_CORE, FOR_DISPATCH, FOR_THREAD]
        if tasks["ready"][row] < 0:
            causes[1:4] = [FOR_UNKNOWN] * 3
        for cause, moment in zip(causes, moments, strict=True):
            found[cause] += max(moment - now, 0)
            now = max(moment, now)
        now = int(tasks["end"][row])
    return {cause: time for cause, time in found.items() if time}


def _finished(trace: TraceData) -> NDArray[Any]:
    tasks = trace.tasks
    return tasks[(tasks["start"] >= 0) & (tasks["end"] >= 0)]


def _known(tasks: NDArray[Any], begin: str, end: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both times of the tasks for which both are known."""
    known = tasks[(tasks[begin] >= 0) & (tasks[end] >= 0)]
    return known[begin], known[end]


def _durations(trace: TraceData, event: Event) -> tuple[NDArray[Any], NDArray[Any]]:
    mine = trace.records[trace.records["event"] == event]
    return mine["start"], mine["end"]


def _copies(trace: TraceData) -> tuple[NDArray[Any], NDArray[Any]]:
    starts, ends = zip(*(_durations(trace, event) for event in COPIES), strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def _alive(tasks: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return when tasks were submitted and completed, as far as it is known."""
    ended = tasks[tasks["end"] >= 0]
    begins = np.where(ended["submit"] >= 0, ended["submit"], ended["start"])
    return begins, np.maximum(ended["end"], ended["complete"])


def counters(trace: TraceData) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the counters of a trace: the times at which each changes, and its values from then.

    Ready tasks, busy cores and live tasks follow from the tasks. The use of each ring, as the
    submits saw it, is recorded from level 2 on. The performance counters of kernels are totals.
    """
    found = {}
    for name, begin, end in COUNTERS:
        known = trace.tasks[(trace.tasks[begin] >= 0) & (trace.tasks[end] >= 0)]
        times = np.concatenate([known[begin], known[end]])
        order = np.argsort(times, kind="stable")
        values = np.cumsum(np.repeat((1, -1), len(known))[order])
        last = np.flatnonzero(np.diff(times[order], append=np.iinfo("<i8").max))
        found[name] = (times[order][last].astype("<i8"), values[last].astype("<i8"))
    return {**found, **recorded_counters(trace)}


def recorded_counters(trace: TraceData) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the use of rings, and for each performance counter the total of the kernels so far."""
    found = _ring_counters(trace)
    order = np.argsort(trace.tasks["end"], kind="stable")
    for name, values in trace.counters.items():
        known = order[values[order] >= 0]
        found[name] = (trace.tasks["end"][known], np.cumsum(values[known]))
    return found


def _ring_counters(trace: TraceData) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the tasks and the heap bytes in each ring that was used; 0 after the end of a run."""
    uses = trace.records[trace.records["event"] == Event.RING]
    rings = uses["a"] >> np.uint64(56)
    found = {}
    for ring in np.unique(rings):
        mine = uses[rings == ring]
        runs = np.unique(mine["run"])
        ends = [trace.records["end"][trace.records["run"] == run].max() for run in runs]
        times = np.concatenate([mine["end"], ends])
        order = np.argsort(times, kind="stable")
        tasks = (mine["a"] & np.uint64(2**56 - 1)).astype("<i8")
        for name, values in (("tasks", tasks), ("heap bytes", mine["b"].astype("<i8"))):
            if values.any():
                padded = np.concatenate([values, np.zeros(len(runs), "<i8")])
                found[f"ring {ring}, {name}"] = (times[order].astype("<i8"), padded[order])
    return found


def rows_of(tasks: NDArray[Any], runs: NDArray[Any], numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Return the row in ``tasks`` of each task, given by run and number; -1 if there is none."""
    if not len(tasks):
        return np.full(len(numbers), -1)
    step = int(max(tasks["task"].max(), numbers.max(initial=0))) + 2
    keys = tasks["run"].astype("<i8") * step + tasks["task"]
    order = np.argsort(keys)
    wanted = runs.astype("<i8") * step + np.where(numbers < 0, -1, numbers)
    places = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
    rows = order[places]
    return np.where((keys[rows] == wanted) & (numbers >= 0), rows, -1)


def edges(trace: TraceData) -> NDArray[np.int64]:
    """Return the dependencies as pairs of rows of tasks: the earlier and the later one.

    At level 4 these are all that the run linked, below it only the one that released each task.
    """
    tasks = trace.tasks
    released = np.flatnonzero(tasks["released_by"] >= 0)
    linked = trace.records[trace.records["event"] == Event.EDGE]
    runs = np.concatenate([tasks["run"][released], linked["run"]])
    first = np.concatenate([tasks["released_by"][released], linked["a"].astype("<i8")])
    second = np.concatenate([tasks["task"][released], linked["b"].astype("<i8")])
    pairs = np.stack([rows_of(tasks, runs, first), rows_of(tasks, runs, second)], axis=1)
    known: NDArray[np.int64] = np.unique(pairs[(pairs >= 0).all(axis=1)], axis=0)
    return known


def _sweep(
    pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]],
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Return all times in order, and after each time the number of open pairs of each kind."""
    times = np.concatenate([time for pair in pairs for time in pair])
    order = np.argsort(times, kind="stable")
    counts = []
    offset = 0
    for begins, ends in pairs:
        change = np.zeros(len(times), "<i8")
        change[offset : offset + len(begins)] = 1
        offset += len(begins)
        change[offset : offset + len(ends)] = -1
        offset += len(ends)
        counts.append(np.cumsum(change[order]))
    return times[order], counts
