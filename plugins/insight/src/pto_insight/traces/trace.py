"""The class Trace, and the functions that build one from native records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.user_ranges import Range
from pto_insight.graphs.log import AccessLog
from pto_insight.traces.data import TraceData
from pto_insight.traces.details import Details
from pto_insight.traces.records import (
    FIRST_WORKER,
    NATIVE,
    STEPS,
    TASK,
    TIMES,
    Event,
    converted,
    shifted,
    track_name,
    with_user_ranges,
)
from pto_insight.traces.summary import summary_text
from pto_insight.traces.timeline import device_timeline

_CORE_MASK = np.uint64(0xFFFFFFFF)


class Trace(TraceData):
    """The trace of a device; :class:`TraceData` describes its content."""

    def table(self) -> str:
        """Return the table of kernels and the summary as text."""
        return summary_text(self)

    def _repr_html_(self) -> str:
        return device_timeline(self)

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
        records.append(_of_run(trace.records, shift, run))
        moved = _of_run(trace.tasks, shift, run)
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


def _of_run(array: NDArray[Any], shift: int, run: int) -> NDArray[Any]:
    """Return a copy with all times moved, and with the numbers of later runs."""
    moved = shifted(array, shift)
    moved["run"] += np.uint32(run)
    return moved


def _tasks(records: NDArray[Any], func_ids: NDArray[Any]) -> NDArray[Any]:
    """Return one row for each task of one run, and for each core of a task on several."""
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
    tasks = np.concatenate([tasks, _other_lanes(tasks, found, func_ids)])
    return tasks[np.argsort(tasks["start"], kind="stable")]


def _other_lanes(tasks: NDArray[Any], found: NDArray[Any], func_ids: NDArray[Any]) -> NDArray[Any]:
    """Return a row for each core of a task on several cores, except the one that started first.

    The row of the task becomes that of the first core. The other rows have no time but their start
    and end. ``found``: the records of tasks. If some were lost, there are no such rows.
    """
    begun, ended = (
        records[np.lexsort((records["end"], records["track"], records["a"]))]
        for records in (found[found["event"] == event] for event in (Event.START, Event.END))
    )
    is_paired = len(begun) == len(ended) and (begun[["a", "track"]] == ended[["a", "track"]]).all()
    if not is_paired or len(np.unique(begun["a"])) == len(begun):
        return tasks[:0]
    order = np.lexsort((begun["end"], begun["a"]))
    begun, ended = begun[order], ended[order]
    is_first = np.append(True, begun["a"][1:] != begun["a"][:-1])
    lanes = np.full(len(begun), -1, TASK)
    lanes["run"] = 0
    lanes["task"] = begun["a"]
    lanes["start"], lanes["end"] = begun["end"], ended["end"]
    lanes["core"] = begun["b"] & _CORE_MASK
    lanes["worker"] = begun["track"] - FIRST_WORKER
    lanes["kernel"] = _kernels((begun["b"] >> np.uint64(32)).astype("<i8"), func_ids)
    processor = (ended["b"] >> np.uint64(16)).astype("<i8")
    lanes["processor"] = np.where(processor > 0, processor, -1)
    rows = np.searchsorted(tasks["task"], lanes["task"][is_first])
    for name in ("start", "end", "core", "worker", "kernel", "processor"):
        tasks[name][rows] = lanes[name][is_first]
    others: NDArray[Any] = lanes[~is_first]
    return others


def _kernels(values: NDArray[Any], func_ids: NDArray[Any]) -> NDArray[Any]:
    """Return the position of each func_id in ``func_ids``, or -1."""
    if not len(func_ids):
        return np.full(len(values), -1)
    places = np.minimum(np.searchsorted(func_ids, values), len(func_ids) - 1)
    return np.where(func_ids[places] == values, places, -1)
