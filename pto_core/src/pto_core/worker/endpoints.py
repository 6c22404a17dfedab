"""Connections to children over any transport, native or in Python.

An end of a connection consists of two addresses: of the end, and of its function table. The native
driver and the native loop of a child call this table, so they do not depend on the transport.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pto_core import _worker
from pto_core.interfaces import (
    ChildEnd,
    Connection,
    Endpoint,
    NativeTransport,
    PythonTransport,
)

# The size for a Python transport, which needs no shared memory: a mapping must not be empty.
_PYTHON_MEMORY_BYTES = 4096


@dataclass(frozen=True)
class OpenedEnd:
    """One end of a connection, in the process that uses it. A function of ``table`` closes it."""

    table: int
    end: int
    largest_frame_bytes: int
    is_python: bool


class Opener:
    """Creates the connections of a Worker, on the thread that starts children."""

    def __init__(
        self, transport: NativeTransport | PythonTransport, queue_frames: int, queue_bytes: int
    ) -> None:
        self._transport = transport
        self._queue_frames = queue_frames
        self._queue_bytes = min(queue_bytes, transport.frame_limit)
        self._table = _table(transport)

    @property
    def memory_bytes(self) -> int:
        """The size of the zeroed shared memory that each connection needs; a multiple of 4096."""
        if not isinstance(self._transport, NativeTransport):
            return _PYTHON_MEMORY_BYTES
        return _worker.connection_memory(self._table, self._queue_frames, self._queue_bytes)

    def connect(
        self, path: str, memory: tuple[int, int], parent_bell: int, child_bell: int
    ) -> ChildConnection:
        """Create the connection of a child before it starts. ``memory``: an address and its size.

        A restarted child receives a new connection, whose memory is zeroed again.
        """
        numbers = (*memory, parent_bell, child_bell, self._queue_frames, self._queue_bytes)
        if isinstance(self._transport, NativeTransport):
            return _native_endpoint(str(self._transport.library()), self._transport.name, numbers)
        place = _worker.ConnectionPlace(*numbers)
        ends = self._transport.connect(Connection(path, self._queue_frames, self._queue_bytes))
        return ChildConnection(self._table, self._queue_bytes, place, ends)


class ChildConnection:
    """A connection. Each end is opened once, in the process that uses it."""

    def __init__(
        self,
        table: int,
        queue_bytes: int,
        place: _worker.ConnectionPlace,
        ends: tuple[Endpoint, ChildEnd] | None,
        origin: tuple[str, str, tuple[int, ...]] | None = None,
    ) -> None:
        self._table = table
        self._queue_bytes = queue_bytes
        self._place = place
        self.ends = ends
        """The objects of both ends of a transport in Python; None for a native transport."""
        self._origin = origin
        self._is_opened = False  # whether this process has opened an end

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the connection for a spawned child, which loads the transport's library itself."""
        if self._origin is None:
            raise TypeError("a connection of a transport in Python exists in forked children only")
        return _native_endpoint, self._origin

    def open_parent(self) -> OpenedEnd:
        """Open the parent's end, in the parent after the fork. Raises MemoryError."""
        if self.ends is not None:
            self.ends[1].abandon()
        return self._parent()

    def open_child(self) -> OpenedEnd:
        """Open the child's end, in the child. Raises MemoryError."""
        if self.ends is not None:
            self.ends[0].abandon()
        return self._child()

    def open_both(self) -> tuple[OpenedEnd, OpenedEnd]:
        """Open both ends in this process, for a child that is a thread."""
        return self._parent(), self._child()

    def discard(self) -> None:
        """Release a connection whose child did not start, unless this process opened an end."""
        if self._is_opened:
            return
        for end in self.ends or ():
            end.abandon()

    def _parent(self) -> OpenedEnd:
        if self.ends is None:
            return self._opened(_worker.open_parent(self._table, self._place))
        return self._opened(_worker.open_python_parent(self.ends[0], self._place))

    def _child(self) -> OpenedEnd:
        if self.ends is None:
            return self._opened(_worker.open_child(self._table, self._place))
        return self._opened(_worker.open_python_child(self.ends[1], self._place))

    def _opened(self, end: int) -> OpenedEnd:
        self._is_opened = True
        return OpenedEnd(self._table, end, self._queue_bytes, self.ends is not None)


def _native_endpoint(library: str, name: str, numbers: tuple[int, ...]) -> ChildConnection:
    """Create a connection from values that are equal in parent and child."""
    table = _worker.transport_table(library, name)
    place = _worker.ConnectionPlace(*numbers)
    return ChildConnection(table, numbers[-1], place, None, (library, name, numbers))


def _table(transport: NativeTransport | PythonTransport) -> int:
    if isinstance(transport, NativeTransport):
        return _worker.transport_table(str(transport.library()), transport.name)
    return _worker.python_transport_table()
