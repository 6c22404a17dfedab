"""Trace a child in its own process: its ranges, its device, or the tree below it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from pto_core.user_ranges import RangeRecorder

if TYPE_CHECKING:
    from pto_core.trace.trace import Trace
    from pto_core.trace.worker_data import WorkerTraceData

_PIECE_BYTES_MAX = 1 << 18  # the most bytes of a reply between hosts


class Traced(Protocol):
    """Records what runs inside a child."""

    def begin(self, level: int) -> None:
        """Record the later tasks."""

    def end(self) -> WorkerTraceData:
        """Stop, and return the trace."""


class TraceOperations:
    """The requests with which a parent traces a child, in the process of the child.

    ``traced`` records what runs inside the child; None: only ranges. ``largest``: the most bytes
    of a reply.
    """

    def __init__(self, path: str, largest: int, traced: Traced | None) -> None:
        self._traced = traced or RangesOnly(path)
        self._piece_bytes = min(largest // 2, _PIECE_BYTES_MAX)
        self._packed = b""
        self.operations: dict[str, Callable[..., Any]] = {
            "trace_begin": self._traced.begin,
            "trace_end": self._end,
            "trace_piece": self._piece,
            "trace_clock": time.monotonic_ns,
        }

    def _end(self) -> int:
        """Return the number of bytes that :meth:`_piece` will return in pieces."""
        from pto_core.trace.worker_parts import packed

        self._packed = packed(self._traced.end())
        return len(self._packed)

    def _piece(self, begin: int) -> bytes:
        return self._packed[begin : begin + self._piece_bytes]


class RangesOnly:
    """The trace of a SUB child: its ranges."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ranges = RangeRecorder()

    def begin(self, level: int) -> None:
        """Record the later ranges."""
        self._ranges.begin()

    def end(self) -> WorkerTraceData:
        """Stop, and return the ranges."""
        from pto_core.trace.worker_parts import of_child

        return of_child(self._path, self._ranges.end(self._path), {}, self._ranges.lost)


class ChipTracing:
    """The trace of a chip child: one trace of its device for each task."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.level = 0
        self._traces: list[Trace] = []

    def begin(self, level: int) -> None:
        """Trace the later tasks."""
        import_module("pto_core.trace.trace")  # an import during a task would lengthen the task
        self.level = level
        self._traces.clear()

    def keep(self, trace: Trace | None) -> None:
        """Keep the trace of a task; None if the task failed before its start."""
        if trace is not None:
            self._traces.append(trace)

    def end(self) -> WorkerTraceData:
        """Stop, and return the traces of the device."""
        from pto_core.trace.trace import joined
        from pto_core.trace.worker_parts import of_child, ranges_of_device

        self.level = 0
        devices = {self._path: joined(self._traces)} if self._traces else {}
        ranges = (ranges_of_device(*device) for device in devices.items())
        return of_child(self._path, tuple(itertools.chain(*ranges)), devices, 0)
