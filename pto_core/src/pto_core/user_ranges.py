"""User ranges: ``with pto_core.range("prefill"):`` marks a part of a program in traces."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import NamedTuple

_RANGES_MAX = 1_000_000

Window = tuple[int, int]
"""The times of a trace: from the first one to before the second one, in ns of CLOCK_MONOTONIC."""
FOREVER = 2**64 - 1
ALWAYS: Window = (0, FOREVER)


class Range(NamedTuple):
    """A range that ended while its process was traced.

    ``path``: the Worker or child whose process executed it. ``start`` and ``end`` are nanoseconds
    since the ``epoch_ns`` of the trace. ``depth``: the number of ranges around it on its thread.
    ``thread``: the name of the thread, and ``thread_id`` its number in the operating system.
    """

    name: str
    path: str
    thread: str
    depth: int
    start: int
    end: int
    thread_id: int = 0


class RangeRecorder:
    """Collects the ranges of this process that begin and end between two calls.

    ``own_thread``: collect only the ranges of the thread that called :meth:`begin`. ``ranges_max``:
    the maximum number of ranges; further ranges are counted in ``lost``.
    """

    def __init__(self, *, own_thread: bool = False, ranges_max: int = _RANGES_MAX) -> None:
        self._own_thread = own_thread
        self._ranges_max = ranges_max
        self._thread = 0
        self._since = 0
        self._window = ALWAYS
        self._found: list[tuple[str, str, int, int, int, int]] = []
        self.lost = 0

    def begin(self, window: Window = ALWAYS) -> None:
        """Collect the ranges that begin from now on, and drop those collected before.

        Ranges that are completely outside of the window are dropped.
        """
        self._thread = threading.get_ident()
        self._window = window
        self._since = time.monotonic_ns()
        self._found = []
        self.lost = 0
        if self not in _recorders:
            _recorders.append(self)

    def end(self, path: str) -> tuple[Range, ...]:
        """Stop; return the ranges, with times of CLOCK_MONOTONIC. A second call returns none."""
        if self in _recorders:
            _recorders.remove(self)
        found, self._found = self._found, []
        return tuple(Range(one[0], path, *one[1:]) for one in found)

    def add(self, name: str, thread: threading.Thread, depth: int, start: int, end: int) -> None:
        """Add a range of the current thread; if there are too many, count it as lost."""
        is_other = self._own_thread and threading.get_ident() != self._thread
        if is_other or start < self._since or end < self._window[0] or start >= self._window[1]:
            return
        if len(self._found) < self._ranges_max:
            number = thread.native_id or 0
            self._found.append((name, thread.name, depth, start, end, number))
        else:
            self.lost += 1


# Devices on several threads change this list. Its methods are atomic.
_recorders: list[RangeRecorder] = []
_depth = threading.local()


def forget_inherited_recorders() -> None:
    """Record no ranges for the traces of the parent, in a forked process."""
    _recorders.clear()
    _depth.value = 0


class range:  # noqa: N801 - the public name is pto_core.range
    """Mark a part of the program in the traces that are being recorded.

    Ranges may be nested, and every thread and every child may use them. Outside of a trace, a
    range only tests one variable::

        with pto_core.range("prefill"):
            ...

    """

    __slots__ = ("_name", "_starts")

    def __init__(self, name: str) -> None:
        self._name = name
        self._starts: list[int] = []  # of the blocks of this object that are being recorded

    def __enter__(self) -> None:
        if _recorders:
            _depth.value = getattr(_depth, "value", 0) + 1
            self._starts.append(time.monotonic_ns())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._starts:
            return
        end = time.monotonic_ns()
        start = self._starts.pop()
        _depth.value -= 1
        thread = threading.current_thread()
        for recorder in tuple(_recorders):
            recorder.add(self._name, thread, _depth.value, start, end)
