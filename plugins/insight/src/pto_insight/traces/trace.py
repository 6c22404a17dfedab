"""The class Trace, and the functions that build one from native records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.user_ranges import Range
from pto_insight.graphs.log import AccessLog
from pto_insight.traces.details import Details
from pto_insight.traces.ranges import ranges_of, with_user_ranges
from pto_insight.traces.records import (
    FIRST_WORKER,
    NATIVE,
    RECORD,
    STEPS,
    TASK,
    TIMES,
    WITH_DURATION,
    Event,
    core_name,
    track_name,
)
from pto_insight.traces.summary import summary_text

_CORE_MASK = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class Trace:
    """The records of one run, or of several runs in sequence.

    ``records``: a structured array, ordered by time. Times are nanoseconds from the first record,
    or steps if ``unit`` is ``"steps"``. ``tasks``: a structured array with one row for each task:
    its kernel (an index into ``kernels``), its core, the pool worker that ran it, the task whose
    completion made it ready, and the time of each event of its life; -1 is unknown. ``lost``: the
    number of records that were dropped because a ring was full, by track name. ``epoch_ns``: time
    0 on the monotonic clock of the host. ``details``: source lines and arguments, if a run kept its
    access log.
    """

    records: NDArray[Any]
    tasks: NDArray[Any]
    kernels: tuple[str, ...]
    lost: Mapping[str, int]
    blocks: int
    unit: str
    epoch_ns: int
    threads: int
    backend: str = ""
    runtime: str = ""
    statistics: Mapping[str, int] | None = None
    details: Details | None = None

    @property
    def lost_total(self) -> int:
        """The number of dropped records of all tracks."""
        return sum(self.lost.values())

    @property
    def note(self) -> str:
        """A sentence that states what the times of this trace mean."""
        if self.unit == "steps":
            return "order of a deterministic run in steps; steps are no times"
        if self.backend.endswith("sim"):
            threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
            return f"host time on {threads}, not the chip's"
        return "device time"

    @cached_property
    def _named_ranges(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        return ranges_of(self.records)

    @property
    def ranges(self) -> NDArray[Any]:
        """The ranges that the program marked, ordered by start; an array of ``RANGE``."""
        return self._named_ranges[0]

    @property
    def range_names(self) -> tuple[str, ...]:
        """The names to which ``ranges`` refers."""
        return self._named_ranges[1]

    @property
    def tracks(self) -> list[int]:
        """The numbers of all tracks that have a record or ran a task."""
        workers = self.tasks["worker"][self.tasks["worker"] >= 0] + FIRST_WORKER
        found: list[int] = np.union1d(self.records["track"], workers).astype(int).tolist()
        return found

    def core_name(self, core: int) -> str:
        """Return the name of a core, such as ``AIV 7``."""
        return core_name(core, self.blocks)

    def task_numbers(self, tasks: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of tasks in the order of the submits, which ``pto why`` takes.

        ``tasks``: numbers of the runtime, as in ``tasks["task"]``; without details, they are
        returned unchanged.
        """
        if self.details is None:
            return tasks
        found = self.details.numbers(self.details.rows(tasks))
        return np.where(found >= 0, found, tasks)

    def kernel_name(self, kernel: int) -> str:
        """Return the name of a kernel of ``tasks``, or ``"?"`` if its record was dropped."""
        return self.kernels[kernel] if kernel >= 0 else "?"

    def table(self) -> str:
        """Return the table of kernels and the summary as text."""
        return summary_text(self)

    def __repr__(self) -> str:
        lost = f", {self.lost_total} lost" if self.lost_total else ""
        return f"<Trace: {len(self.tasks)} tasks, {len(self.records)} records{lost}, {self.note}>"


def from_native(
    native: Any,
    backend: str,
    runtime: str,
    statistics: Mapping[str, int] | None,
    log: AccessLog | None = None,
    ranges: Sequence[Range] = (),
) -> Trace:
    """Convert the result of the native ``Device.take_trace``.

    ``ranges``: those of a Python orchestration. A trace in steps does not contain them.
    """
    (data, lost, clock, first, last, workers), names, blocks = native
    raw = np.frombuffer(data, NATIVE)
    ids = sorted(names)
    records, epoch_ns = converted(raw, clock, first, last)
    if clock != STEPS:
        records, epoch_ns = with_user_ranges(records, epoch_ns, ranges)
    order = np.lexsort((records["number"], records["track"], records["end"]))
    return Trace(
        records=records[order],
        tasks=_tasks(records[order], np.array(ids, "<i8")),
        kernels=tuple(names[func_id] for func_id in ids),
        lost={track_name(track): count for track, count in enumerate(lost) if count},
        blocks=blocks,
        unit="steps" if clock == STEPS else "ns",
        epoch_ns=epoch_ns,
        threads=max(workers, 1),
        backend=backend,
        runtime=runtime,
        statistics=statistics,
        details=None if log is None else Details.of(log),
    )


def joined(traces: Sequence[Trace]) -> Trace:
    """Return one trace of several runs on one clock.

    If the clock counts steps, each trace begins where the one before it ends. All runs execute the
    same program, so the details of the first one describe every run.
    """
    kernels = tuple(dict.fromkeys(name for trace in traces for name in trace.kernels))
    epoch_ns = min(trace.epoch_ns for trace in traces)
    lost: dict[str, int] = {}
    records, tasks = [], []
    run, shift = 0, 0
    for trace in traces:
        if trace.unit == "ns":
            shift = trace.epoch_ns - epoch_ns
        records.append(_shifted(trace.records, ("start", "end"), shift, run))
        moved = _shifted(trace.tasks, tuple(TIMES.values()), shift, run)
        number = np.array([kernels.index(name) for name in trace.kernels] + [-1], "<i4")
        moved["kernel"] = number[moved["kernel"]]
        tasks.append(moved)
        run += 1 + int(trace.records["run"].max(initial=0))
        if trace.unit == "steps":
            shift += int(trace.records["end"].max(initial=0)) + 1
        for track, count in trace.lost.items():
            lost[track] = lost.get(track, 0) + count
    return replace(
        traces[-1],
        records=np.concatenate(records),
        tasks=np.concatenate(tasks),
        kernels=kernels,
        lost=lost,
        epoch_ns=epoch_ns,
        threads=max(trace.threads for trace in traces),
        details=next((trace.details for trace in traces if trace.details is not None), None),
    )


def _shifted(array: NDArray[Any], times: Sequence[str], shift: int, run: int) -> NDArray[Any]:
    moved = array.copy()
    for name in times:
        column = moved[name]
        moved[name] = np.where(column < 0, column, column + shift)
    moved["run"] += np.uint32(run)
    return moved


def converted(
    raw: NDArray[Any], clock: int, first: tuple[int, int], last: tuple[int, int]
) -> tuple[NDArray[Any], int]:
    """Return the records with times from the first one, and the time of the first one."""
    records = np.zeros(len(raw), RECORD)
    for name in ("a", "b", "number", "event", "track"):
        records[name] = raw[name]
    has_duration = np.isin(raw["event"], [int(event) for event in WITH_DURATION])
    begins = np.where(has_duration, raw["a"], raw["clock"])
    records["a"][has_duration] = 0
    if not len(raw):
        return records, first[1]
    # A worker may have fallen asleep before the run; the copy of its arguments belongs to the run.
    copied = raw["a"][raw["event"] == Event.COPY_IN]
    origin = int(np.concatenate([raw["clock"], copied]).min())
    ticks = max(last[0] - first[0], 1)
    rate = 1.0 if clock == STEPS or last[0] == first[0] else (last[1] - first[1]) / ticks

    def converted(values: NDArray[Any]) -> NDArray[Any]:
        since = (values - np.uint64(origin)).astype("<i8")
        return np.rint(since * rate).astype("<i8") if rate != 1.0 else since

    records["end"] = converted(raw["clock"])
    records["start"] = np.maximum(converted(begins), 0)
    return records, first[1] + round((origin - first[0]) * rate)


def _tasks(records: NDArray[Any], func_ids: NDArray[Any]) -> NDArray[Any]:
    """Return one row for each task of one run."""
    is_task = np.isin(records["event"], [int(event) for event in TIMES])
    found = records[is_task]
    ids, rows = np.unique(found["a"].astype("<i8"), return_inverse=True)
    tasks = np.full(len(ids), -1, TASK)
    tasks["run"] = 0
    tasks["task"] = ids
    for event, name in TIMES.items():
        of_event = found["event"] == event
        tasks[name][rows[of_event]] = found["end"][of_event]
        values = found["b"][of_event]
        if event is Event.SUBMIT:
            tasks["kernel"][rows[of_event]] = _kernels(values.astype("<i8"), func_ids)
        elif event is Event.END:
            processor = (values >> np.uint64(16)).astype("<i8")
            tasks["processor"][rows[of_event]] = np.where(processor > 0, processor, -1)
        elif event is Event.READY:
            tasks["released_by"][rows[of_event]] = values.astype("<i8") - 1
        elif event is Event.START:
            tasks["core"][rows[of_event]] = values & _CORE_MASK
            tasks["worker"][rows[of_event]] = found["track"][of_event] - FIRST_WORKER
            tasks["kernel"][rows[of_event]] = _kernels(
                (values >> np.uint64(32)).astype("<i8"), func_ids
            )
    return tasks[np.argsort(tasks["start"], kind="stable")]


def _kernels(values: NDArray[Any], func_ids: NDArray[Any]) -> NDArray[Any]:
    """Return the position of each func_id in ``func_ids``, or -1."""
    if not len(func_ids):
        return np.full(len(values), -1)
    places = np.minimum(np.searchsorted(func_ids, values), len(func_ids) - 1)
    return np.where(func_ids[places] == values, places, -1)
