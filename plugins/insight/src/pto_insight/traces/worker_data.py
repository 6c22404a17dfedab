"""The data of a Worker's trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core.user_ranges import Range
from pto_insight.traces.details import Details
from pto_insight.traces.records import FIRST_WORKER
from pto_insight.traces.trace import Trace
from pto_insight.traces.worker_details import argument_texts, place_text, rows_of_members


@dataclass
class WorkerTraceData:
    """The records of a Worker's runs and of everything below it, on one clock.

    ``paths``: the Worker, and each child at every level. ``children``: the children of each
    Worker. ``tasks``: a structured array with one
    row for each time that a task, or a member of a group, was sent to a child, and one row for
    each task that was not sent: ``worker`` and ``child`` are indices into ``paths``, ``callable``
    is one into ``callables``; ``pid`` is the process that ran it; ``result`` is 0 completed, 1
    failed or its process exited, 2 not run because another task failed or the run was cancelled;
    then follow the times. -1 is unknown. ``records``: every record of the Workers. Times are
    nanoseconds since ``epoch_ns`` of the monotonic clock of the host. ``ranges``: the user ranges.
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
    devices: Mapping[str, Trace]
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
    def timed_devices(self) -> dict[str, Trace]:
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
