"""The traces of a device: its settings, its flight recorder, and the trace of its last run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pto_core.config import Config
from pto_core.device.report import RunReport
from pto_core.errors import UsageError
from pto_core.plugins import insight
from pto_core.user_ranges import Range, RangeRecorder

if TYPE_CHECKING:
    from pto_insight.graphs import AccessLog
    from pto_insight.traces import Trace

_RECORD_BYTES = 32


class RunTrace(NamedTuple):
    """The trace of a run before its conversion, which takes time.

    ``native``: the result of the native ``Device.take_trace``. ``ranges``: the user ranges of a
    Python orchestration; ``lost_ranges``: the number of dropped ranges.
    """

    native: Any
    names: tuple[str, str]
    ranges: tuple[Range, ...]
    lost_ranges: int

    @property
    def size(self) -> int:
        """The number of records and ranges."""
        return len(self.native[0][0]) // _RECORD_BYTES + len(self.ranges)

    @property
    def lost(self) -> int:
        """The number of records and ranges that were dropped."""
        records: int = sum(self.native[0][1])
        return records + self.lost_ranges

    def converted(
        self, statistics: Mapping[str, int] | None = None, log: AccessLog | None = None
    ) -> Trace:
        """Return the trace. ``statistics`` and ``log``: from the report of the run."""
        trace = insight.from_native(self.native, *self.names, statistics, log, self.ranges)
        if self.lost_ranges:
            trace = replace(trace, lost={**trace.lost, "ranges": self.lost_ranges})
        return trace


class DeviceTracing:
    """Converts native traces, and keeps the last trace.

    ``can_trace``: whether the backend can trace a run. ``flight_recorder``: the prefix of the files
    that a failed run leaves, or None; it may be changed between runs. With a prefix, each run
    records the last events of every thread. If a run raises, they are written as a trace:
    ``PREFIX.trace.npz``, ``.pftrace`` and ``.html``. If the process crashes, they remain in
    ``PREFIX.flight``. ``receiver``: if it is set, it gets the trace of each run, unconverted, and
    the trace is not converted for the report. Only the files of a flight recorder need it.
    ``window_ns``: the window of the next runs, in nanoseconds after their start, and its length,
    or 0.
    """

    def __init__(self, config: Config, *, can_trace: bool) -> None:
        self.can_trace = can_trace
        self.last: Trace | None = None
        self.receiver: Callable[[RunTrace], None] | None = None
        self.flight_recorder: Path | None = None
        if config["flight_recorder"] is not None:
            given = Path(config["flight_recorder"])
            self.flight_recorder = given.with_name(f"{given.name}.device{config['device']}")
        self._device: int = config["device"]
        self._ranges = RangeRecorder(own_thread=True, ranges_max=config["trace_records"])
        self._names = (config["backend"], config["runtime"])
        self._limits = (
            1 << (config["trace_ring_records"] - 1).bit_length(),
            config["trace_records"],
        )
        self.configured_window_ns = (
            round(config["trace_after_s"] * 1e9),
            round((config["trace_for_s"] or 0) * 1e9),
        )
        self.window_ns = self.configured_window_ns

    def numbered(self, prefix: str, run: int) -> str:
        """Return a prefix that names the device and one of its runs."""
        return f"{prefix}.device{self._device}.run{run}"

    def begin(self) -> tuple[int, int, int, int, str | None]:
        """Collect the ranges of a run with a trace; return its settings for the native device.

        Called for a run that is traced, and for each run if there is a flight recorder. Either
        :meth:`succeeded` or :meth:`failed` ends the run. Raises UsageError, and
        PluginError without the package for traces.
        """
        insight.require()
        self._ranges.begin()
        if self.flight_recorder is None:
            return (*self._limits, *self.window_ns, None)
        folder = self.flight_recorder.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be written: {error}; use another folder for the files of a run",
                name="flight_recorder",
                value=str(folder),
            ) from error
        return (*self._limits, *self.window_ns, str(flight_file(self.flight_recorder)))

    def succeeded(self, traces: list[Any], report: RunReport) -> Trace | None:
        """Keep and return the trace of a run; ``traces`` is empty if it has none."""
        run = self._end(traces)
        if run is not None and self.receiver is None:
            self.last = run.converted(report.statistics, report.accesses)
        if self.flight_recorder is not None:
            flight_file(self.flight_recorder).unlink(missing_ok=True)
        return self.last

    def failed(self, traces: list[Any], error: BaseException) -> Trace | None:
        """Keep and return the trace of a failed run, and write the trace of a flight recorder.

        With a receiver, the trace is converted only for these files.
        """
        run = self._end(traces)
        self.last = None
        if run is not None and (self.receiver is None or self.flight_recorder is not None):
            self.last = run.converted()
        if self.flight_recorder is not None and self.last is not None:
            try:
                files = insight.write_trace(self.last, self.flight_recorder)
            except OSError as problem:
                error.add_note(f"the trace of the run was not written: {problem}")
            else:
                flight_file(self.flight_recorder).unlink(missing_ok=True)
                error.add_note(f"the last records of each thread are in {files[0]}")
        return self.last

    def _end(self, traces: list[Any]) -> RunTrace | None:
        """Stop recording, and pass the trace of the run to the receiver."""
        ranges = self._ranges.end("")
        if not traces:
            return None
        run = RunTrace(traces[0], self._names, ranges, self._ranges.lost)
        if self.receiver is not None:
            self.receiver(run)
        return run


def flight_file(prefix: Path) -> Path:
    """Return the file of a flight recorder."""
    return prefix.with_name(prefix.name + ".flight")
