"""The buffers of a run whose tasks declare nothing: their names, and the bytes that are copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pto_insight.graphs.byte_set import ByteSet
from pto_insight.graphs.log import (
    ALLOCATED,
    CALL,
    COPIED_IN,
    COPIED_OUT,
    AccessLog,
    HostArray,
    Rows,
)


class Copy(NamedTuple):
    """Bytes of device memory that the orchestration copied from or to an argument of the run."""

    array: HostArray
    offset: int
    begin: int
    end: int

    @property
    def name(self) -> str:
        """The name of the argument, and the bytes unless all of it was copied."""
        size = self.end - self.begin
        if size == self.array.bytes:
            return self.array.name
        return f"{self.array.name}[bytes {self.offset}:{self.offset + size}]"


class RunBuffers:
    """The buffers of a run. Arguments have names; other buffers are "memory n" by first use.

    A buffer that the orchestration allocated has the name of the argument that it is copied to or
    from. Its content is undefined at first, except for the bytes that were copied in.
    """

    def __init__(self, log: AccessLog) -> None:
        self._known = {buffer.address: buffer for buffer in log.buffers}
        self._arrays = log.host_arrays
        rows = log.measured
        calls = np.flatnonzero(rows["kind"] == CALL)
        after_first_call = int(calls[0]) if len(calls) else 0
        self._allocated = {int(row["begin"]) for row in rows[rows["kind"] == ALLOCATED]}
        self._in = list(self._copies(rows[rows["kind"] == COPIED_IN]))
        # A copy before the first task returns no result.
        results = rows[after_first_call:]
        self._out = list(self._copies(results[results["kind"] == COPIED_OUT]))
        self._bytes_in = ByteSet(copy[2:4] for copy in self._in)
        self._bytes_out = ByteSet(copy[2:4] for copy in self._out)
        self._numbers: dict[int, int] = {}

    def name(self, begin: int, end: int) -> str:
        """Return the name of a buffer."""
        if begin in self._known:
            return self._known[begin].name
        for copy in (*self._out, *self._in):
            if begin <= copy.begin < end:
                return copy.name
        return f"memory {self._numbers.setdefault(begin, len(self._numbers))}"

    def undefined(self, begin: int, end: int) -> ByteSet:
        """Return the bytes of a buffer that have no content before the first task."""
        if begin in self._known:
            return ByteSet() if self._known[begin].is_copied_in else ByteSet([(begin, end)])
        if begin not in self._allocated:
            return ByteSet()
        return ByteSet(self._bytes_in.missing(begin, end))

    def is_input(self, begin: int, end: int) -> bool:
        """Return whether a buffer is copied in and not copied back."""
        if begin in self._known:
            return self._known[begin].is_copied_in and not self._known[begin].is_copied_back
        is_copied_back = bool(self._bytes_out.within(begin, end))
        return bool(self._bytes_in.within(begin, end)) and not is_copied_back

    def outputs(self) -> Iterator[tuple[str, int, ByteSet]]:
        """Yield the name and address of each result, and its bytes that were not copied in."""
        for buffer in self._known.values():
            if buffer.is_copied_back and not buffer.is_copied_in:
                end = buffer.address + buffer.bytes
                yield buffer.name, buffer.address, ByteSet([(buffer.address, end)])
        for copy in self._out:
            yield copy.name, copy.begin, ByteSet(self._bytes_in.missing(copy.begin, copy.end))

    def _copies(self, rows: Rows) -> Iterator[Copy]:
        for row in rows:
            host = int(row["task"])
            for array in self._arrays:
                if array.address <= host < array.address + array.bytes:
                    yield Copy(array, host - array.address, int(row["begin"]), int(row["end"]))
                    break
