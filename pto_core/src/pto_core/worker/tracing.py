"""Trace a Worker: its driver, its children, and the records that children write themselves."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pto_core._native import integer
from pto_core.errors import (
    AbortedError,
    ControlError,
    ProtocolError,
    PtoError,
    UsageError,
    WorkerClosedError,
)
from pto_core.errors.values import shown
from pto_core.plugins import insight
from pto_core.user_ranges import ALWAYS, FOREVER, Range, RangeRecorder, Window
from pto_core.worker.control import Lost

if TYPE_CHECKING:
    from pto_core._worker import Driver
    from pto_core.config import Config
    from pto_core.worker.child_specs import ChildSpec
    from pto_core.worker.control import Control
    from pto_insight.traces.data import WorkerTraceData
    from pto_insight.traces.worker_parts import ClockOffset

LEVELS = (1, 2, 3, 4)


class WorkerTracing:
    """The trace of one Worker, from :meth:`begin` to :meth:`end`, and its flight recorder.

    The flight recorder records the driver and the children while there is no trace. The settings
    of traces are in ``config``; ``trace_records`` limits the records of the Worker and its
    children, and a chip has its own limit.

    A child writes its ring while the driver records. The driver stops before the children receive
    ``trace_end``, so a child that has replied does not write any more. The memory of the rings is
    freed by ``release_memory`` after these replies, and prepared after the replies to
    ``trace_begin``.
    """

    def __init__(
        self,
        driver: Driver,
        control: Control,
        children: Sequence[ChildSpec],
        release_memory: Callable[[], None],
        path: str,
        config: Config,
    ) -> None:
        self._driver, self._control, self._specs = driver, control, children
        self._release_memory = release_memory
        self._path = path
        self._records_max: int = config["trace_records"]
        self._times_s = config["trace_after_s"], config["trace_for_s"]
        self._flight = _flight_prefix(config, path)
        if self._flight is not None:
            insight.require()
        self._window = ALWAYS
        self._ranges = RangeRecorder()
        self._level = 0
        self._missing: dict[int, str] = {}  # by child
        self._offsets: dict[int, ClockOffset] = {}
        self._ending = threading.RLock()  # one thread at a time ends the trace
        self._is_closing = False
        self._ended: WorkerTraceData | None = None  # the trace that close() ended
        self._begin_flight()

    @property
    def is_on(self) -> bool:
        """Whether the Worker is being traced."""
        return self._level > 0

    def begin(self, level: int, window: Window | None = None) -> None:
        """Record the tasks that children receive from now on.

        ``window``: the window of the parent's trace; None: the window in the settings. Raises
        UsageError during a trace. The trace states which children cannot be traced.
        """
        check_level(level)
        if self.is_on:
            raise UsageError("this Worker is being traced already; end that trace first")
        if self._flight is not None:
            self._driver.trace_end()
        self._level, self._missing, self._offsets, self._ended = level, {}, {}, None
        try:
            self._window = window or window_from_now(*self._times_s)
            self._measure_offsets()
            self._begin_children()
            self._ranges.begin(self._window)
            self._driver.trace_begin(level, self._records_max, self._window, None)
        except BaseException:
            self._stop()
            for child in self._children:
                with contextlib.suppress(PtoError):
                    self._control.send(child, "trace_end")
            self._begin_flight()
            raise

    def end(self, is_cancelled: Callable[[], bool] = lambda: False) -> WorkerTraceData:
        """Stop, and return the trace. The Worker may be inside a run, or closed.

        This waits for the tasks that children have received. When ``is_cancelled()`` is true, it
        stops waiting. The trace then lacks the own records of the remaining children.
        """
        with self._ending:
            ended, self._ended = self._ended, None
            if ended is not None:
                return ended
            return self._collect(lambda: self._is_closing or is_cancelled())

    def close(self, is_cancelled: Callable[[], bool]) -> None:
        """End an open trace before its Worker closes; :meth:`end` will return it."""
        self._is_closing = True
        with self._ending:
            if self.is_on:
                self._ended = self._collect(is_cancelled)

    def run_failed(self, error: BaseException) -> None:
        """Write the last records of each track, if there is a flight recorder and no trace."""
        if self._flight is None or self.is_on or isinstance(error, WorkerClosedError):
            return
        last = self._of_driver(self._driver.trace_end(), ())
        self._begin_flight()
        try:
            files = insight.write_worker_data(last, self._flight)
        except OSError as problem:
            error.add_note(f"the last records of each track were not written: {problem}")
        else:
            error.add_note(f"the last records of each track are in {files[0]}")

    def _begin_flight(self) -> None:
        """Record the last events of each track until the next trace, or the end of the Worker."""
        if self._flight is not None and not self._is_closing:
            with contextlib.suppress(WorkerClosedError):
                paths = [spec.path for spec in self._specs]
                text = json.dumps({"path": self._path, "children": paths, "pid": os.getpid()})
                self._driver.trace_begin(1, self._records_max, ALWAYS, text)

    def _begin_children(self) -> None:
        """Request traces from the children. Times of another host are on its clock."""
        by_window: dict[Window, list[int]] = {}
        for child in self._children:
            by_window.setdefault(self._window_in(child), []).append(child)
        for window, children in by_window.items():
            replies = self._ask_all("trace_begin", self._level, window, children=children)
            for child, reply in zip(children, replies, strict=True):
                if isinstance(reply, ControlError):
                    self._lack(child, reply)

    def _window_in(self, child: int) -> Window:
        """Return the window on the clock of a child."""
        by = self._offsets[child].ns if child in self._offsets else 0
        begin, end = self._window
        return max(begin - by, 0), end if end == FOREVER else max(end - by, 0)

    def _stop(self) -> tuple[tuple[Any, ...], tuple[Range, ...]]:
        """Stop the driver. Return its records, and the ranges of this process."""
        self._level = 0
        ranges = self._ranges.end(self._path)
        return self._driver.trace_end(), ranges

    def _collect(self, is_cancelled: Callable[[], bool]) -> WorkerTraceData:
        """Stop recording everywhere, and return the trace."""
        native, ranges = self._stop()
        children = self._children
        replies = self._ask_all("trace_end", children=children, is_cancelled=is_cancelled)
        if None not in replies:
            self._release_memory()
        self._begin_flight()
        self._measure_offsets(is_cancelled)
        own = self._of_driver(native, ranges, self._window)
        answers = zip(children, replies, strict=True)
        parts = [self._part(child, reply, is_cancelled) for child, reply in answers]
        below = [part for part in parts if part is not None]
        return insight.merged(own, below, list(self._missing.values()))

    def _of_driver(
        self, native: tuple[Any, ...], ranges: tuple[Range, ...], window: Window = ALWAYS
    ) -> WorkerTraceData:
        """Return the trace of the Worker without the own records of its children."""
        recorded = insight.Recorded(native, window, ranges, self._ranges.lost)
        paths = [spec.path for spec in self._specs]
        return insight.from_driver(
            recorded, self._path, paths, os.getpid(), self._driver.trace_place
        )

    @property
    def _children(self) -> list[int]:
        return [child for child, spec in enumerate(self._specs) if not spec.is_empty]

    def _ask_all(
        self, operation: str, *arguments: Any, children: Sequence[int], **options: Any
    ) -> list[Any]:
        """Send a request to children; return the results of ``Control.ask_all``."""
        try:
            return self._control.ask_all(children, operation, *arguments, **options)
        except PtoError as error:  # another thread has closed the driver
            return [ControlError(str(error)) for _ in children]

    def _part(
        self, child: int, reply: Any, is_cancelled: Callable[[], bool]
    ) -> WorkerTraceData | None:
        """Return the own records of a child. ``reply``: its reply to ``trace_end``."""
        try:
            found = insight.unpacked(self._fetch(child, reply, is_cancelled))
        except PtoError as error:
            self._lack(child, error)
            return None
        if self._specs[child].remote is None:
            return found
        # Without an offset, the times of the other host have no meaning here.
        return insight.on_this_host(found, self._offsets[child]) if child in self._offsets else None

    def _fetch(self, child: int, reply: Any, is_cancelled: Callable[[], bool]) -> bytes:
        """Return the packed trace of a child. Raises PtoError."""
        length = _checked(reply)
        content = bytearray()
        while len(content) < length:
            piece = self._ask(child, is_cancelled, "trace_piece", len(content))
            if not piece:
                raise ProtocolError("it sent only a part of its trace, because it was restarted")
            content += piece
        return bytes(content)

    def _ask(
        self, child: int, is_cancelled: Callable[[], bool] | None, operation: str, *arguments: Any
    ) -> Any:
        """Return the reply of a child. Raises PtoError."""
        control = self._control
        (reply,) = control.ask_all([child], operation, *arguments, is_cancelled=is_cancelled)
        return _checked(reply)

    def _measure_offsets(self, is_cancelled: Callable[[], bool] | None = None) -> None:
        """Measure the offset of the clock of each child on another host."""
        for child, spec in enumerate(self._specs):
            if spec.remote is None:
                continue
            ask = partial(self._ask, child, is_cancelled, "trace_clock")
            try:
                now = insight.ClockOffset.measured(ask)
            except PtoError as error:
                self._lack(child, error)
            else:
                self._offsets[child] = self._offsets.get(child, now).joined(now)

    def _lack(self, child: int, error: PtoError) -> None:
        """Note in the trace why records of a child are missing; one reason for each child."""
        self._missing.setdefault(child, f"{self._specs[child].path}: {error}")

    def child_lost(self, child: int) -> None:
        """State that the own records of a child are missing, because its process has exited."""
        if self.is_on:
            self._missing.setdefault(
                child,
                f"{self._specs[child].path}: its process exited during the trace; the times "
                "of its tasks are here, its ranges and what ran inside it before are not",
            )

    def child_restarted(self, child: int) -> None:
        """Trace the process that replaced a lost child."""
        if self.is_on:
            self._control.send(child, "trace_begin", self._level, self._window_in(child))


def _checked(reply: Any) -> Any:
    """Return a result of ``Control.ask_all``; raise the error that it stands for."""
    if isinstance(reply, Lost):
        raise reply.error
    if isinstance(reply, ControlError):
        raise reply
    if reply is None:
        raise AbortedError("the end of the trace was interrupted, or the Worker was closed")
    return reply


def _flight_prefix(config: Config, path: str) -> Path | None:
    """Return the prefix of the files of a Worker's flight recorder, or None if there is none."""
    if config["flight_recorder"] is None:
        return None
    given = Path(config["flight_recorder"])
    return given.with_name(f"{given.name}.{path.replace('/', '.')}")


def flight_file(config: Config, path: str) -> Path | None:
    """Return the file in which the records of a Worker lie, or None without a flight recorder."""
    prefix = _flight_prefix(config, path)
    return None if prefix is None else prefix.with_name(prefix.name + ".flight")


def window_from_now(after_s: float, for_s: float | None) -> Window:
    """Return the window of a trace that begins now."""
    if not after_s and for_s is None:
        return ALWAYS
    begin = time.monotonic_ns() + round(after_s * 1e9)
    return begin, FOREVER if for_s is None else begin + round(for_s * 1e9)


def check_level(level: object) -> None:
    """Raise UsageError unless ``level`` is the level of a trace."""
    if integer(level, min(LEVELS), max(LEVELS)) is None:
        raise UsageError(
            f"the level of the trace is {shown(level)}; pass 1, 2, 3 or 4",
            name="level",
            value=level,
            expected="1 to 4",
        )
