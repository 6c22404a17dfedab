"""Build the data of a Worker's trace from its parts, and send it between processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pto_core.errors import ProtocolError
from pto_core.user_ranges import ALWAYS, Range, Window
from pto_insight.traces.data import TraceData, WorkerTraceData
from pto_insight.traces.details import ARGUMENT, SUBMIT, Details, PlaceOf, worker_details
from pto_insight.traces.records import (
    RECORD,
    TASK,
    WORKER_RECORD,
    WORKER_TASK,
    shifted,
    track_name,
)
from pto_insight.traces.trace import Trace
from pto_insight.traces.worker_records import DriverTrace, worker_arrays

DETAIL_FIELDS = ("places", "texts", "buffers")
DEVICE_FIELDS = ("kernels", "lost", "blocks", "unit", "epoch_ns", "threads", "backend", "runtime")
"""What a file contains of the details, and of the trace of a device, besides their arrays."""
_READINGS = 8


class Recorded(NamedTuple):
    """What the process of a Worker recorded.

    ``native``: the result of the native ``Driver.trace_end``. ``window``: the records outside are
    dropped. ``lost_ranges``: the number of further ranges.
    """

    native: tuple[Any, ...]
    window: Window = ALWAYS
    ranges: tuple[Range, ...] = ()
    lost_ranges: int = 0


def from_driver(
    recorded: Recorded, path: str, children: Sequence[str], pid: int, place_of: PlaceOf
) -> WorkerTraceData:
    """Return the trace of a Worker without what its children recorded themselves."""
    driver = DriverTrace(*recorded.native)
    records, tasks, epoch_ns = worker_arrays(driver, recorded.window)
    sent = tasks["child"] >= 0
    tasks["child"][sent] += 1  # paths begin with the Worker
    tracks = (f"{path} orchestrator", f"{path} scheduler", *children, f"{path} ranges")
    lost = zip(tracks, [*driver.lost, recorded.lost_ranges], strict=True)
    return WorkerTraceData(
        paths=(path, *children),
        children={path: tuple(children)},
        pids={path: pid},
        tasks=tasks,
        records=records,
        callables=_distinct(driver.callables),
        ranges=_since(recorded.ranges, epoch_ns),
        devices={},
        lost={name: count for name, count in lost if count},
        missing=(),
        clocks={},
        epoch_ns=epoch_ns,
        details={path: worker_details(records, driver.kinds, place_of)},
    )


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Number the callables that have the name of an earlier one, such as lambdas."""
    counts: dict[str, int] = {}
    found = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        found.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return tuple(found)


def of_child(
    path: str, ranges: tuple[Range, ...], devices: Mapping[str, TraceData], lost_ranges: int
) -> WorkerTraceData:
    """Return the trace of a child that is not a Worker."""
    starts = [trace.epoch_ns for trace in devices.values() if trace.unit == "ns"]
    starts += [one.start for one in ranges]
    epoch_ns = min(starts, default=0)
    return WorkerTraceData(
        paths=(path,),
        children={},
        pids={},
        tasks=np.zeros(0, WORKER_TASK),
        records=np.zeros(0, WORKER_RECORD),
        callables=(),
        ranges=_since(ranges, epoch_ns),
        devices=dict(devices),
        lost={f"{path} ranges": lost_ranges} if lost_ranges else {},
        missing=(),
        clocks={},
        epoch_ns=epoch_ns,
    )


def ranges_of_device(path: str, device: TraceData) -> list[Range]:
    """Return the ranges that the orchestrations of a device marked, with times of the host."""
    found: list[Range] = []
    opened: dict[int, list[int]] = {}  # the ends of the ranges around the current one, by track
    for name, track, start, end in device.ranges.tolist():
        around = opened.setdefault(track, [])
        while around and around[-1] <= start:
            around.pop()
        times = device.epoch_ns + start, device.epoch_ns + end
        one = (device.range_names[name], path, track_name(track), len(around))
        found.append(Range(*one, *times, track))
        around.append(end)
    return found


def merged(
    own: WorkerTraceData, below: Sequence[WorkerTraceData], missing: Sequence[str]
) -> WorkerTraceData:
    """Return one trace of a Worker and of what its children recorded; time 0 is the earliest."""
    parts = [own, *below]
    used = [part for part in parts if len(part.records) or part.ranges or part.timed_devices]
    epoch_ns = min((part.epoch_ns for part in used), default=own.epoch_ns)
    paths = list(dict.fromkeys(path for part in parts for path in part.paths))
    callables = list(dict.fromkeys(name for part in parts for name in part.callables))
    tasks, records, ranges = [], [], []
    for part in parts:
        by = part.epoch_ns - epoch_ns
        path_of = np.array([paths.index(path) for path in part.paths] + [-1], "<i4")
        callable_of = np.array([callables.index(name) for name in part.callables] + [-1], "<i4")
        moved = shifted(part.tasks, by)
        moved["worker"] = path_of[moved["worker"]]
        moved["child"] = path_of[moved["child"]]
        moved["callable"] = callable_of[moved["callable"]]
        tasks.append(moved)
        moved = shifted(part.records, by)
        moved["worker"] = path_of[moved["worker"]]
        records.append(moved)
        ranges += [one._replace(start=one.start + by, end=one.end + by) for one in part.ranges]
    all_tasks, all_records = np.concatenate(tasks), np.concatenate(records)
    return WorkerTraceData(
        paths=tuple(paths),
        children={path: names for part in parts for path, names in part.children.items()},
        pids={path: pid for part in parts for path, pid in part.pids.items()},
        tasks=all_tasks[np.argsort(all_tasks["start"], kind="stable")],
        records=all_records[np.argsort(all_records["end"], kind="stable")],
        callables=tuple(callables),
        ranges=tuple(sorted(ranges, key=lambda one: one.start)),
        devices={
            path: _since_epoch(device, epoch_ns)
            for part in parts
            for path, device in part.devices.items()
        },
        lost={track: count for part in parts for track, count in part.lost.items()},
        missing=(*(text for part in parts for text in part.missing), *missing),
        clocks={path: ns for part in parts for path, ns in part.clocks.items()},
        details={path: one for part in parts for path, one in part.details.items()},
        epoch_ns=epoch_ns,
    )


class ClockOffset(NamedTuple):
    """What to add to a time of another host, and the largest error of the sum, in nanoseconds."""

    ns: int
    uncertainty_ns: int

    @classmethod
    def measured(cls, read: Callable[[], int]) -> ClockOffset:
        """Read the clock of the other host several times; keep the most precise reading.

        The other host reads its clock between the request and the reply, so the error of one
        reading is at most half of the round trip.
        """
        readings = []
        for _ in range(_READINGS):
            before = time.monotonic_ns()
            there = read()
            after = time.monotonic_ns()
            readings.append(cls((before + after) // 2 - there, (after - before + 1) // 2))
        return min(readings, key=lambda one: one.uncertainty_ns)

    def joined(self, later: ClockOffset) -> ClockOffset:
        """Return an offset that holds from this measurement to a later one, with even drift."""
        low = min(one.ns - one.uncertainty_ns for one in (self, later))
        high = max(one.ns + one.uncertainty_ns for one in (self, later))
        return ClockOffset((low + high) // 2, (high - low + 1) // 2)


def on_this_host(trace: WorkerTraceData, offset: ClockOffset) -> WorkerTraceData:
    """Return the trace of another host with times of this host.

    Errors of the clocks of hosts below it add up.
    """
    devices = {
        path: replace(device, epoch_ns=device.epoch_ns + offset.ns)
        for path, device in trace.devices.items()
    }
    return replace(
        trace,
        epoch_ns=trace.epoch_ns + offset.ns,
        devices=devices,
        clocks={
            trace.paths[0]: offset.uncertainty_ns,
            **{path: ns + offset.uncertainty_ns for path, ns in trace.clocks.items()},
        },
    )


def arrays_of(trace: WorkerTraceData) -> dict[str, NDArray[Any]]:
    """Return the arrays of a trace by name; :func:`described` has everything else."""
    arrays = {"tasks": trace.tasks, "records": trace.records}
    for number, device in enumerate(trace.devices.values()):
        arrays[f"device{number}_tasks"] = device.tasks
        arrays[f"device{number}_records"] = device.records
    for number, details in enumerate(trace.details.values()):
        arrays[f"details{number}_submits"] = details.submits
        arrays[f"details{number}_arguments"] = details.arguments
    return arrays


def described(trace: WorkerTraceData) -> dict[str, Any]:
    """Return everything except the arrays, as plain data."""
    return {
        "paths": trace.paths,
        "children": dict(trace.children),
        "pids": dict(trace.pids),
        "callables": trace.callables,
        "ranges": trace.ranges,
        "lost": dict(trace.lost),
        "missing": trace.missing,
        "clocks": dict(trace.clocks),
        "epoch_ns": trace.epoch_ns,
        "devices": [
            {"path": path, **{name: getattr(device, name) for name in DEVICE_FIELDS}}
            for path, device in trace.devices.items()
        ],
        "details": [
            {"path": path, **{name: getattr(one, name) for name in DETAIL_FIELDS}}
            for path, one in trace.details.items()
        ],
    }


def from_parts(
    description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> WorkerTraceData:
    """Return the trace of :func:`described` and :func:`arrays_of`.

    Raises ValueError, KeyError or TypeError for other data.
    """
    devices = {}
    for number, one in enumerate(description["devices"]):
        fields = {name: one[name] for name in DEVICE_FIELDS}
        fields["kernels"] = tuple(fields["kernels"])
        devices[str(one["path"])] = Trace(
            records=_checked(arrays[f"device{number}_records"], RECORD),
            tasks=_checked(arrays[f"device{number}_tasks"], TASK),
            **fields,
        )
    details = {}
    for number, one in enumerate(description["details"]):
        details[str(one["path"])] = Details(
            _checked(arrays[f"details{number}_submits"], SUBMIT),
            _checked(arrays[f"details{number}_arguments"], ARGUMENT),
            **{name: tuple(one[name]) for name in DETAIL_FIELDS},
        )
    return WorkerTraceData(
        paths=tuple(description["paths"]),
        children={path: tuple(below) for path, below in description["children"].items()},
        pids=dict(description["pids"]),
        tasks=_checked(arrays["tasks"], WORKER_TASK),
        records=_checked(arrays["records"], WORKER_RECORD),
        callables=tuple(description["callables"]),
        ranges=tuple(Range(*one) for one in description["ranges"]),
        devices=devices,
        lost=dict(description["lost"]),
        missing=tuple(description["missing"]),
        clocks=dict(description["clocks"]),
        epoch_ns=int(description["epoch_ns"]),
        details=details,
    )


def packed(trace: WorkerTraceData) -> bytes:
    """Return a trace as bytes: the description as JSON, and the arrays."""
    arrays = arrays_of(trace)
    sizes = {name: array.nbytes for name, array in arrays.items()}
    head = json.dumps({**described(trace), "sizes": sizes}).encode()
    content = [array.tobytes() for array in arrays.values()]
    return b"".join([len(head).to_bytes(8, "little"), head, *content])


def unpacked(content: bytes) -> WorkerTraceData:
    """Return the trace of :func:`packed`. Raises ProtocolError for other bytes."""
    try:
        begin = 8 + int.from_bytes(content[:8], "little")
        description = json.loads(content[8:begin])
        arrays = {}
        for name, size in description["sizes"].items():
            arrays[name] = np.frombuffer(content[begin : begin + size], _dtype_of(name))
            begin += size
        return from_parts(description, arrays)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(f"a child sent an invalid trace: {error}") from error


def _dtype_of(name: str) -> np.dtype[Any]:
    if name.startswith("details"):
        return SUBMIT if name.endswith("_submits") else ARGUMENT
    if name.startswith("device"):
        return TASK if name.endswith("_tasks") else RECORD
    return WORKER_TASK if name == "tasks" else WORKER_RECORD


def _checked(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if array.dtype != dtype:
        raise ValueError("an array has another type")
    return array


def _since(ranges: tuple[Range, ...], epoch_ns: int) -> tuple[Range, ...]:
    return tuple(one._replace(start=one.start - epoch_ns, end=one.end - epoch_ns) for one in ranges)


def _since_epoch(device: TraceData, epoch_ns: int) -> TraceData:
    if device.unit != "ns":
        return device  # in deterministic mode, it has no times
    by = device.epoch_ns - epoch_ns
    return replace(
        device,
        records=shifted(device.records, by),
        tasks=shifted(device.tasks, by),
        epoch_ns=epoch_ns,
    )
