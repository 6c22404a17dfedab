"""The data of traces: that of a device, and that of a Worker with all devices below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.user_ranges import Range
from pto_insight.traces.details import (
    Details,
    argument_texts,
    by_task,
    place_text,
    rows_of_members,
)
from pto_insight.traces.records import (
    COUNTERS,
    FIRST_WORKER,
    TASK,
    TIMES,
    Event,
    core_name,
    ranges_of,
    without_worker,
)

_VALUE = np.uint64((1 << 56) - 1)


@dataclass(frozen=True)
class TraceData:
    """The records of one run, or of several runs in sequence.

    ``records``: a structured array, ordered by time. Times are nanoseconds from the first record,
    or steps if ``unit`` is ``"steps"``. ``tasks``: a structured array with one row for each task:
    its kernel (an index into ``kernels``), its core, the pool worker that ran it, the task whose
    completion made it ready, and the time of each event of its life; -1 is unknown. A task on
    several cores has another row, without the other times, for each further core. ``lost``: the
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

    @cached_property
    def counters(self) -> dict[str, NDArray[Any]]:
        """The performance counters of the rows of ``tasks``, by name; -1 is unknown.

        A trace of a run with ``enable_pmu`` has those that the system of the host permits.
        """
        found = self.records[self.records["event"] == Event.COUNTER]
        kinds = (found["b"] >> np.uint64(56)).astype(int)
        names = ("run", "task", "worker")
        keys = {tuple(row): number for number, row in enumerate(self.tasks[[*names]].tolist())}
        tracks = found["track"].astype(int) - FIRST_WORKER
        places = zip(found["run"].tolist(), found["a"].tolist(), tracks.tolist(), strict=True)
        rows = np.array([keys.get(place, -1) for place in places], int)
        counters = {}
        for kind in np.unique(kinds):
            mine = (kinds == kind) & (rows >= 0)
            values = np.full(len(self.tasks), -1)
            values[rows[mine]] = found["b"][mine] & _VALUE
            counters[COUNTERS[kind]] = values
        return counters

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


@dataclass
class WorkerTraceData:
    """The records of a Worker's runs and of everything below it, on one clock.

    ``paths``: the Worker, and each child at every level. ``children``: the children of each
    Worker. ``tasks``: a structured array with one
    row for each time that a task, or a member of a group, was sent to a child, and one row for
    each task that was not sent: ``worker`` and ``child`` are indices into ``paths``, ``callable``
    is one into ``callables``; ``pid`` is the process that ran it; ``result`` is 0 completed, 1
    failed or its process exited, 2 not run because another task failed or the run was cancelled;
    then follow the times and ``processor``. -1 is unknown. ``records``: each record of the Workers.
    Times are nanoseconds since ``epoch_ns`` of the monotonic clock of the host. ``ranges``: the
    user ranges.
    ``devices``: the trace of each chip, by path. ``details``: the source lines of the submits of
    each Worker, and from level 2 on the arguments; :meth:`submitted` reads them. ``lost``: the
    number of records that were dropped because a ring was full, by track. ``missing``: what the
    trace does not contain, and why. ``clocks``: for each Worker on another host, the largest error
    of its times on the clock of this host.
    """

    paths: tuple[str, ...]
    children: Mapping[str, tuple[str, ...]]
    pids: Mapping[str, int]
    tasks: NDArray[Any]
    records: NDArray[Any]
    callables: tuple[str, ...]
    ranges: tuple[Range, ...]
    devices: Mapping[str, TraceData]
    lost: Mapping[str, int]
    missing: tuple[str, ...]
    clocks: Mapping[str, int]
    epoch_ns: int
    details: Mapping[str, Details] = field(default_factory=dict)

    @property
    def lost_total(self) -> int:
        """The number of dropped records, also of the devices."""
        below = sum(device.lost_total for device in self.devices.values())
        return sum(self.lost.values()) + below

    @property
    def task_count(self) -> int:
        """The number of tasks. A group, and a task with several attempts, count once."""
        return len(np.unique(self.tasks["worker"].astype("<i8") << 48 | self.tasks["task"]))

    @property
    def timed_devices(self) -> dict[str, TraceData]:
        """The devices whose traces have times. In deterministic mode, a device counts steps."""
        return {path: device for path, device in self.devices.items() if device.unit == "ns"}

    @property
    def note(self) -> str:
        """A sentence that states what the times of this trace mean."""
        devices = sorted({f"{trace.backend}: {trace.note}" for trace in self.devices.values()})
        clocks = [
            f"{path}: clock of another host, +- {ns / 1000:,.0f} us"
            for path, ns in self.clocks.items()
        ]
        return "; ".join(["host time", *devices, *clocks])

    def path(self, number: int) -> str:
        """Return the path of a Worker or child of ``tasks``, or ``"?"`` for -1."""
        return self.paths[number] if number >= 0 else "?"

    def callable_name(self, number: int) -> str:
        """Return the name of a callable of ``tasks``, or ``"?"`` if its record was dropped."""
        return self.callables[number] if number >= 0 else "?"

    def submitted(self, row: Any) -> tuple[str, list[str]]:
        """Return the source line and the arguments of the submit of a row of ``tasks``.

        The line is ``"?"`` if it is unknown. Below level 2, there are no arguments.
        """
        details = self.details.get(self.path(int(row["worker"])))
        if details is None:
            return "?", []
        (found,) = rows_of_members(details, [row["task"]], [row["member"]]).tolist()
        return place_text(details, found), list(argument_texts(details, found))

    def submit_rows(self) -> Iterator[tuple[int, int, Details]]:
        """Yield each row of ``tasks`` with a known submit, and the row and table of its details."""
        for path, details in self.details.items():
            mine = np.flatnonzero(self.tasks["worker"] == self.paths.index(path))
            tasks = self.tasks[mine]
            rows = rows_of_members(details, tasks["task"], tasks["member"])
            for number, row in zip(mine.tolist(), rows.tolist(), strict=True):
                if row >= 0:
                    yield number, row, details

    def child_path(self, worker: int, track: int) -> str:
        """Return the path of the child whose track this is in the records of a Worker."""
        return self.children[self.paths[worker]][track - FIRST_WORKER]

    def view(self, path: str) -> TraceData:
        """Return the tasks of one Worker as those of a device: its children are the cores.

        A task waits in the queue of its child from the time at which it is both dispatched and
        ready. The child may start it before the parent has recorded that it is ready.
        """
        number = self.paths.index(path)
        mine = self.tasks[self.tasks["worker"] == number]
        children = self.children[path]
        tasks = np.full(len(mine), -1, TASK)
        for name in ("run", "task", "released_by", *TIMES.values(), "processor"):
            tasks[name] = mine[name]
        latest = np.where(tasks["start"] < 0, np.iinfo("<i8").max, tasks["start"])
        tasks["ready"] = np.minimum(tasks["ready"], latest)
        sent = np.clip(tasks["dispatch"], tasks["ready"], latest)
        tasks["dispatch"] = np.where(tasks["dispatch"] < 0, -1, sent)
        tasks["kernel"] = mine["callable"]
        core_of = {child: core for core, child in enumerate(children)}
        cores = np.array([*(core_of.get(one, -1) for one in self.paths), -1], "<i2")
        tasks["core"] = cores[mine["child"]]
        records = self.records[self.records["worker"] == number]
        return TraceData(
            records=without_worker(records[records["track"] < FIRST_WORKER]),
            tasks=tasks,
            kernels=self.callables,
            lost={},
            blocks=0,
            unit="ns",
            epoch_ns=self.epoch_ns,
            threads=max(len(children), 1),
            details=by_task(self.details[path]) if path in self.details else None,
        )

    def views(self) -> dict[str, TraceData]:
        """Return :meth:`view` of each Worker, and each device whose trace has times, by path."""
        return {**{path: self.view(path) for path in self.children}, **self.timed_devices}
