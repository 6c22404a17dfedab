"""Connections to children over any transport, native or Python.

An end is an address and so is the table of functions that it is used through; the native driver and
the native loop of a child take both and know no kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pto_core import _hierarchy
from pto_core.interfaces import (
    ChildEnd,
    Connection,
    Endpoint,
    NativeTransport,
    PythonTransport,
)

# A Python transport takes none of the core's memory, but a part of a mapping has to have some.
_PYTHON_MEMORY_BYTES = 4096


@dataclass(frozen=True)
class OpenedEnd:
    """One end in the process that uses it; whoever gets it closes it, through ``table``."""

    table: int
    end: int
    largest_frame_bytes: int
    is_python: bool


class Opener:
    """Makes the connections of a Worker; used on the thread that starts children."""

    def __init__(
        self, transport: NativeTransport | PythonTransport, queue_frames: int, queue_bytes: int
    ) -> None:
        self._transport = transport
        self._queue_frames = queue_frames
        self._queue_bytes = min(queue_bytes, transport.frame_limit)
        self._table = _table(transport)

    @property
    def memory_bytes(self) -> int:
        """How much shared, zeroed memory each connection has to be given; aligned to 4096."""
        if not isinstance(self._transport, NativeTransport):
            return _PYTHON_MEMORY_BYTES
        return _hierarchy.connection_memory(self._table, self._queue_frames, self._queue_bytes)

    def connect(
        self, path: str, memory: tuple[int, int], parent_bell: int, child_bell: int
    ) -> ChildConnection:
        """Connect one child, before it is forked; ``memory`` is an address and its bytes.

        For a child that takes the place of one that is gone: again, with memory that is zero.
        """
        numbers = (*memory, parent_bell, child_bell, self._queue_frames, self._queue_bytes)
        if isinstance(self._transport, NativeTransport):
            return _native_endpoint(str(self._transport.library()), self._transport.name, numbers)
        place = _hierarchy.ConnectionPlace(*numbers)
        ends = self._transport.connect(Connection(path, self._queue_frames, self._queue_bytes))
        return ChildConnection(self._table, self._queue_bytes, place, ends)


class ChildConnection:
    """One connection: either of its ends can be opened, once, each in its own process."""

    def __init__(
        self,
        table: int,
        queue_bytes: int,
        place: _hierarchy.ConnectionPlace,
        ends: tuple[Endpoint, ChildEnd] | None,
        origin: tuple[str, str, tuple[int, ...]] | None = None,
    ) -> None:
        self._table = table
        self._queue_bytes = queue_bytes
        self._place = place
        self.ends = ends
        """Of a transport in Python its own objects, as it made them."""
        self._origin = origin
        self._is_opened = False  # in this process

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a child that is started anew have its end: it loads the library itself."""
        if self._origin is None:
            raise TypeError("a connection of a transport in Python exists in forked children only")
        return _native_endpoint, self._origin

    def open_parent(self) -> OpenedEnd:
        """Open the parent's end, after the fork and in the parent.

        Raises ``MemoryError`` when memory is exhausted.
        """
        if self.ends is None:
            return self._opened(_hierarchy.open_parent(self._table, self._place))
        parent, child = self.ends
        child.abandon()
        return self._opened(_hierarchy.open_python_parent(parent, self._place))

    def open_child(self) -> OpenedEnd:
        """Open the child's end, in the child. Raises ``MemoryError`` when memory is exhausted."""
        if self.ends is None:
            return self._opened(_hierarchy.open_child(self._table, self._place))
        parent, child = self.ends
        parent.abandon()
        return self._opened(_hierarchy.open_python_child(child, self._place))

    def open_both(self) -> tuple[OpenedEnd, OpenedEnd]:
        """Open parent's and child's end in this process, where both sides are threads of it."""
        if self.ends is None:
            opened = (
                _hierarchy.open_parent(self._table, self._place),
                _hierarchy.open_child(self._table, self._place),
            )
        else:
            parent, child = self.ends
            opened = (
                _hierarchy.open_python_parent(parent, self._place),
                _hierarchy.open_python_child(child, self._place),
            )
        return self._opened(opened[0]), self._opened(opened[1])

    def discard(self) -> None:
        """Release a connection whose child could not be started; nothing where an end is open."""
        if self._is_opened:
            return
        for end in self.ends or ():
            end.abandon()

    def _opened(self, end: int) -> OpenedEnd:
        self._is_opened = True
        return OpenedEnd(self._table, end, self._queue_bytes, self.ends is not None)


def _native_endpoint(library: str, name: str, numbers: tuple[int, ...]) -> ChildConnection:
    """Make a connection from what is the same in the parent and in the child."""
    table = _hierarchy.transport_table(library, name)
    place = _hierarchy.ConnectionPlace(*numbers)
    return ChildConnection(table, numbers[-1], place, None, (library, name, numbers))


def _table(transport: NativeTransport | PythonTransport) -> int:
    if isinstance(transport, NativeTransport):
        return _hierarchy.transport_table(str(transport.library()), transport.name)
    return _hierarchy.python_transport_table()
