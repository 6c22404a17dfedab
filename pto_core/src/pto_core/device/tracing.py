"""The traces of a device: its settings, its flight recorder, and the trace of its last run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pto_core.config import Config
from pto_core.device.report import RunReport
from pto_core.errors import UsageError
from pto_core.user_ranges import RangeRecorder

if TYPE_CHECKING:
    from pto_core.trace import Trace


class Tracing:
    """Converts native traces, and keeps the last one.

    ``can_trace``: whether the backend can trace a run. ``flight_recorder``: the prefix of the files
    that a failed run leaves, or None; it may be changed between runs. With a prefix, each run
    records the last events of every thread. If a run raises, they are written as a trace:
    ``PREFIX.trace.npz``, ``.pftrace`` and ``.html``. If the process crashes, they remain in
    ``PREFIX.flight``.
    """

    def __init__(self, config: Config, *, can_trace: bool) -> None:
        self.can_trace = can_trace
        self.last: Trace | None = None
        self.flight_recorder: Path | None = None
        if config["flight_recorder"] is not None:
            given = Path(config["flight_recorder"])
            self.flight_recorder = given.with_name(f"{given.name}.device{config['device']}")
        self._ranges = RangeRecorder(own_thread=True)
        self._names = (config["backend"], config["runtime"])
        self._limits = (
            1 << (config["trace_ring_records"] - 1).bit_length(),
            config["trace_records"],
            round(config["trace_after_s"] * 1e9),
            round((config["trace_for_s"] or 0) * 1e9),
        )

    def begin(self) -> tuple[int, int, int, int, str | None]:
        """Collect the ranges of a run; return its settings for the native device.

        Either :meth:`succeeded` or :meth:`failed` ends the run. Raises UsageError.
        """
        self._ranges.begin()
        if self.flight_recorder is None:
            return (*self._limits, None)
        folder = self.flight_recorder.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be written: {error}; use another folder for the files of a run",
                name="flight_recorder",
                value=str(folder),
            ) from error
        return (*self._limits, str(flight_file(self.flight_recorder)))

    def succeeded(self, traces: list[Any], report: RunReport) -> Trace | None:
        """Keep and return the trace of a run; ``traces`` is empty if it has none."""
        self._keep(traces, report)
        if self.flight_recorder is not None:
            flight_file(self.flight_recorder).unlink(missing_ok=True)
        return self.last

    def failed(self, traces: list[Any], error: BaseException) -> Trace | None:
        """Keep and return the trace of a run that failed, and write that of a flight recorder."""
        self._keep(traces, None)
        if self.flight_recorder is not None and self.last is not None:
            from pto_core.trace.files import write_trace

            try:
                files = write_trace(self.last, self.flight_recorder)
            except OSError as problem:
                error.add_note(f"the trace of the run was not written: {problem}")
            else:
                flight_file(self.flight_recorder).unlink(missing_ok=True)
                error.add_note(f"the last records of each thread are in {files[0]}")
        return self.last

    def _keep(self, traces: list[Any], report: RunReport | None) -> None:
        self.last = None
        ranges = self._ranges.end("")
        for native in traces:
            from pto_core.trace.trace import from_native

            statistics = None if report is None else report.statistics
            log = None if report is None else report.accesses
            self.last = from_native(native, *self._names, statistics, log, ranges)


def flight_file(prefix: Path) -> Path:
    """Return the file of a flight recorder."""
    return prefix.with_name(prefix.name + ".flight")
