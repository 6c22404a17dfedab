"""Trace a Worker: its driver, its children, and what its children record themselves."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pto_core.errors import ControlError, ProtocolError, UsageError
from pto_core.user_ranges import RangeRecorder

if TYPE_CHECKING:
    from pto_core._hierarchy import Driver
    from pto_core.hierarchy.control import Control
    from pto_core.trace.clock_offset import ClockOffset
    from pto_core.trace.worker_data import WorkerTraceData

LEVELS = (1, 2, 3, 4)


class TracedChild(Protocol):
    """The parts of a child spec that a trace uses."""

    @property
    def path(self) -> str:
        """The path of the child."""

    @property
    def remote(self) -> object | None:
        """The sessions of a child on another host, or None."""


class TracedGroup(Protocol):
    """The parts of a child group that a trace uses."""

    driver: Driver
    control: Control

    @property
    def specs(self) -> Sequence[TracedChild]:
        """The children."""

    def ask(self, child: int, operation: str, *arguments: Any) -> Any:
        """Return the reply of a child to a request, after its restart; raise ControlError."""

    def release_trace_memory(self) -> None:
        """Free the pages of the trace rings."""


class Tracing:
    """The trace of one Worker, from :meth:`begin` to :meth:`end`.

    ``records_max``: the most records of the Worker and its children; a chip has its own limit.
    """

    def __init__(self, group: TracedGroup, path: str, records_max: int) -> None:
        self._group: TracedGroup = weakref.proxy(group)
        self._path = path
        self._records_max = records_max
        self._ranges = RangeRecorder()
        self._level = 0
        self._missing: list[str] = []
        self._offsets: dict[int, ClockOffset] = {}

    @property
    def is_on(self) -> bool:
        """Whether the Worker is being traced."""
        return self._level > 0

    def begin(self, level: int) -> None:
        """Record the later runs. Raises UsageError during a run or a trace, and ControlError."""
        check_level(level)
        self._group.driver.trace_begin(level, self._records_max)
        self._level = level
        self._missing = []
        self._ranges.begin()
        try:
            for child in range(len(self._group.specs)):
                self._group.control.require(child, "trace_begin", level)
            self._offsets = {child: self._offset(child) for child in self._remote()}
        except BaseException:
            self.end()
            raise

    def end(self) -> WorkerTraceData:
        """Stop, and return the trace. Raises UsageError during a run."""
        from pto_core.trace.worker_parts import from_driver, merged, on_this_host, unpacked

        native = self._group.driver.trace_end()
        ranges = self._ranges.end(self._path)
        self._level = 0
        self._group.release_trace_memory()
        paths = [spec.path for spec in self._group.specs]
        own = from_driver(native, self._path, paths, os.getpid(), ranges, self._ranges.lost)
        below = []
        for child, path in enumerate(paths):
            try:
                found = unpacked(self._fetch(child))
                if child in self._offsets:
                    offset = self._offsets[child].joined(self._offset(child))
                    found = on_this_host(found, offset)
                below.append(found)
            except ControlError as error:
                if not any(text.startswith(f"{path}: ") for text in self._missing):
                    self._missing.append(f"{path}: {error}")
        return merged(own, below, self._missing)

    def _remote(self) -> list[int]:
        """Return the children on other hosts."""
        specs = enumerate(self._group.specs)
        return [child for child, spec in specs if spec.remote is not None]

    def _offset(self, child: int) -> ClockOffset:
        """Measure the offset of the clock of a child on another host; raise ControlError."""
        from pto_core.trace.clock_offset import ClockOffset

        return ClockOffset.measured(lambda: int(self._group.ask(child, "trace_clock")))

    def child_lost(self, child: int) -> None:
        """State that the own records of a child are missing, because its process has exited."""
        if self.is_on:
            self._missing.append(
                f"{self._group.specs[child].path}: its process exited during the trace; the times "
                "of its tasks are here, its ranges and what ran inside it before are not"
            )

    def child_restarted(self, child: int) -> None:
        """Trace the process that replaced a lost child."""
        if self.is_on:
            self._group.control.send(child, "trace_begin", self._level)

    def _fetch(self, child: int) -> bytes:
        """Return what a child has recorded itself."""
        ask = self._group.ask
        length = ask(child, "trace_end")
        content = bytearray()
        while len(content) < length:
            piece = ask(child, "trace_piece", len(content))
            if not piece:
                raise ProtocolError(f"child {child} sent only a part of its trace")
            content += piece
        return bytes(content)


def check_level(level: object) -> None:
    """Raise UsageError unless ``level`` is the level of a trace."""
    if isinstance(level, bool) or level not in LEVELS:
        raise UsageError(
            f"the level of the trace is {level!r}; pass 1, 2, 3 or 4",
            name="level",
            value=level,
            expected="1 to 4",
        )
