"""The report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pto_core.notebooks import html_table

if TYPE_CHECKING:
    from pto_insight.graphs import AccessLog
    from pto_insight.traces import Trace

CoreUsage = tuple[str, int, int]
"""One core of a run: type (``"aic"`` or ``"aiv"``), number of tasks, busy nanoseconds."""


class Activity(NamedTuple):
    """A kernel that is running now: its name, its task, its core and its func_id."""

    kernel: str
    task: int
    core: int
    func_id: int


class DeviceProcess(NamedTuple):
    """The process on the device that runs the runtime variant.

    ``label``: "device", or for tests the name of its substitute, such as "fake device".
    ``number``: the number that the device has given it. ``machine``: the number of the processor in
    the ELF files that it runs, such as 183 for AArch64.
    """

    label: str
    number: int
    machine: int


class RunReport(NamedTuple):
    """Counts and times of one run.

    ``build_ns``: the duration of the orchestration. ``run_ns``: the time from the first scheduler
    step to the last completion. ``copy_ns``, ``bytes_in``, ``bytes_out``, ``copies_in``,
    ``copies_out``: the copies between host and device, including those of the arguments.
    ``trace_hash``: 0 if the backend computes no hash. ``peak_bytes``: the largest use of device
    memory. ``cores``: one entry per core, AIC cores first; busy times are 0 unless timing is on.
    ``statistics``: the counters of the runtime, by name. ``accesses``: the access log, if the run
    kept one. ``trace``: the trace, if the run was traced. ``device``: the process on the device;
    None if the runtime ran in the host process, as in the simulator. ``dumps``: the files with the
    arrays of tasks, if the run was dumped.
    """

    tasks: int
    build_ns: int
    run_ns: int
    copy_ns: int
    bytes_in: int
    bytes_out: int
    copies_in: int
    copies_out: int
    trace_hash: int
    peak_bytes: int
    cores: list[CoreUsage]
    statistics: dict[str, int]
    accesses: AccessLog | None = None
    trace: Trace | None = None
    device: DeviceProcess | None = None
    dumps: tuple[Path, ...] = ()

    def _repr_html_(self) -> str:
        rows = [
            ("tasks", f"{self.tasks:,}"),
            ("cores", f"{_used(self.cores)} of {len(self.cores)}"),
            ("build", f"{self.build_ns / 1000:,.1f} us"),
            ("run", f"{self.run_ns / 1000:,.1f} us"),
            ("copies", f"{self.bytes_in:,} bytes in, {self.bytes_out:,} bytes out"),
            ("largest use of device memory", f"{self.peak_bytes:,} bytes"),
        ]
        table = html_table("RunReport", rows)
        return table if self.trace is None else table + self.trace._repr_html_()

    def __repr__(self) -> str:
        return (
            f"<RunReport: {self.tasks} tasks on {_used(self.cores)} of "
            f"{len(self.cores)} cores, built in {self.build_ns / 1000:.1f} us, "
            f"run in {self.run_ns / 1000:.1f} us, {self.bytes_in} bytes in, "
            f"{self.bytes_out} bytes out{f', on a {self.device.label}' if self.device else ''}>"
        )


def _used(cores: list[CoreUsage]) -> int:
    """Return the number of cores that ran a task."""
    return sum(tasks > 0 for _, tasks, _ in cores)
