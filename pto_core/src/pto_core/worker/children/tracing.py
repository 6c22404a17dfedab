"""Trace a child in its own process: its ranges, its device, or the tree below it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from pto_core.plugins import insight
from pto_core.user_ranges import ALWAYS, FOREVER, Range, RangeRecorder, Window

if TYPE_CHECKING:
    from pto_core.device import Device
    from pto_core.device.tracing import RunTrace
    from pto_insight.traces.data import WorkerTraceData
    from pto_insight.traces.trace import Trace

_PIECE_BYTES_MAX = 1 << 18  # the maximum size of a reply between hosts


class Traced(Protocol):
    """Records what runs inside a child."""

    def begin(self, level: int, window: Window = ALWAYS) -> None:
        """Record the later tasks inside the window. No trace is being recorded."""

    def end(self) -> WorkerTraceData:
        """Stop, and return the trace."""


class TraceOperations:
    """The requests with which a parent traces a child, in the process of the child.

    ``traced`` records what runs inside the child; None: only ranges. ``largest``: the maximum size
    of a reply in bytes.
    """

    def __init__(self, path: str, largest: int, traced: Traced | None) -> None:
        self._traced = traced or RangesOnly(path)
        self._piece_bytes = min(largest // 2, _PIECE_BYTES_MAX)
        self._is_on = False
        self._packed = b""
        self.operations: dict[str, Callable[..., Any]] = {
            "trace_begin": self._begin,
            "trace_end": self._end,
            "trace_piece": self._piece,
            "trace_clock": time.monotonic_ns,
        }

    def _begin(self, level: int, window: Window = ALWAYS) -> None:
        """Begin a trace. Drop an earlier trace that the parent did not end."""
        self._packed = b""
        if self._is_on:
            self._is_on = False
            self._traced.end()
        self._traced.begin(level, window)
        self._is_on = True

    def _end(self) -> int:
        """Return the number of bytes that :meth:`_piece` will return in pieces."""
        self._is_on = False
        self._packed = insight.packed(self._traced.end())
        return len(self._packed)

    def _piece(self, begin: int) -> bytes:
        """Return a piece of the trace; free the trace after the last piece."""
        end = begin + self._piece_bytes
        piece = self._packed[begin:end]
        if end >= len(self._packed):
            self._packed = b""
        return piece


class RangesOnly:
    """The trace of a SUB child: its ranges."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ranges = RangeRecorder()

    def begin(self, level: int, window: Window = ALWAYS) -> None:
        """Record the later ranges."""
        self._ranges.begin(window)

    def end(self) -> WorkerTraceData:
        """Stop, and return the ranges."""
        return insight.of_child(self._path, self._ranges.end(self._path), {}, self._ranges.lost)


class ChipTracing:
    """The trace of a chip child: one trace of its device for each task.

    The traces of all tasks together have at most ``trace_records`` records. The first trace that
    exceeds this limit is dropped, and so are all later ones; their records are counted.
    """

    def __init__(self, path: str, device: Device) -> None:
        self._path = path
        self._device = device
        self._limit: int = device.config["trace_records"]
        self._level = 0
        self._window = ALWAYS
        self._runs: list[RunTrace] = []
        self._size = 0
        self._lost = 0

    def begin(self, level: int, window: Window = ALWAYS) -> None:
        """Trace the later tasks, if the backend can trace a run."""
        if self._device.tracing.can_trace:
            self._level, self._window = level, window
            self._device.tracing.receiver = self._keep

    def level_of_task(self) -> int | None:
        """Return the level of the trace of a task that begins now; set its window.

        None: the configuration of the task decides.
        """
        if not self._level or self._window == ALWAYS:
            return self._level or None
        now = time.monotonic_ns()
        begin, end = max(self._window[0], now), self._window[1]
        if begin >= end:
            return 0
        self._device.tracing.window_ns = begin - now, 0 if end == FOREVER else end - begin
        return self._level

    def _keep(self, run: RunTrace) -> None:
        """Keep the trace of a task. It is converted at the end, because that takes time."""
        is_above = bool(self._runs) and self._size + run.size > self._limit
        if self._lost or is_above:
            self._lost += run.size + run.lost
            return
        self._size += run.size
        self._runs.append(run)

    def end(self) -> WorkerTraceData:
        """Stop, and return the traces of the device. Free all memory."""
        self._level = 0
        self._device.tracing.receiver = None
        self._device.tracing.window_ns = self._device.tracing.configured_window_ns
        runs, self._runs, self._size = self._runs, [], 0
        lost, self._lost = self._lost, 0
        devices: dict[str, Trace] = {}
        ranges: list[Range] = []
        missing: list[str] = []
        if runs:
            devices[self._path] = device = insight.joined([run.converted() for run in runs])
            if device.unit == "ns":
                ranges = insight.ranges_of_device(self._path, device)
            else:
                missing.append(
                    f"{self._path}: its device is in deterministic mode, so its times are steps; "
                    "they are not on the timeline"
                )
        if not self._device.tracing.can_trace:
            missing.append(f"{self._path}: its backend cannot trace a run")
        trace = insight.of_child(self._path, tuple(ranges), devices, 0)
        losses = {f"{self._path} device": lost} if lost else {}
        return replace(trace, lost=losses, missing=tuple(missing))
