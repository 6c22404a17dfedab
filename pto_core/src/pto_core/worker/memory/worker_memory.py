"""The layout of the shared memory of a Worker."""

from __future__ import annotations

import contextlib
import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

from pto_core._worker import SharedMapping
from pto_core.errors import CapacityError, UsageError
from pto_core.worker.memory.arena import SharedArena, default_capacity, reserved
from pto_core.worker.processes.parking import parent_only_mapping
from pto_core.worker.values import ValueMemory, main_module


class TraceFile:
    """A mapped file of zeros. It remains if the process crashes; otherwise it is removed.

    Raises UsageError if the file cannot be written.
    """

    def __init__(self, path: Path, nbytes: int) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.mapping = parent_only_mapping(SharedMapping(nbytes, str(path)))
        except OSError as error:
            raise UsageError(
                f"the file of the flight recorder, {path}, cannot be written: {error.strerror}; "
                "use another path",
                name="flight_recorder",
                value=str(path),
            ) from error
        state = os.fstat(self.mapping.descriptor)
        # The end of the program removes the file of a Worker that was not closed.
        self.remove = weakref.finalize(self, _remove, path, state, os.getpid())


def _remove(path: Path, state: os.stat_result, process: int) -> None:
    """Remove the file, unless a later Worker has replaced it or this is a forked process."""
    with contextlib.suppress(OSError):
        if os.getpid() == process and os.path.samestat(path.stat(), state):
            path.unlink()


RING_COUNT = 4
_PAGE = mmap.PAGESIZE
_GRANT = 64 << 20
_HEAP_SETTING = "heap_ring_size"


class WorkerMemory:
    """The mapping for the progress table, the connections and the heap rings; and the arena.

    All memory contains zeros at first and has the same address in every child. It is reserved
    before any child starts. ``progress_table_bytes``: the size of the progress table with its
    doorbells. ``connection_bytes``: the size of each child's connection. ``digest_bytes``: the
    size of the table that the relays of remote children share. ``trace_bytes``: the size of the
    traces. ``trace_file``: a file for the traces, which exists until :meth:`close`, and
    afterwards if this process crashes. ``arena``: an existing arena, which stays open; its budget
    also covers the heap rings. ``sub_children``: the number of SUB children, whose tasks receive
    and return values. ``is_forking``: whether they are forked. Only the parent manages the memory;
    a forked process only reads and writes it.
    """

    def __init__(
        self,
        *,
        progress_table_bytes: int,
        connection_bytes: Sequence[int],
        digest_bytes: int = 0,
        trace_bytes: int = 0,
        trace_file: Path | None = None,
        heap_ring_size: int = 1 << 30,
        arena: SharedArena | None = None,
        sub_children: int = 0,
        is_forking: bool = False,
    ) -> None:
        self.arena = arena or SharedArena()
        self._owns_arena = arena is None
        self._heap_ring_size = _pages(heap_ring_size)
        rings = [heap_ring_size] * RING_COUNT
        in_memory = trace_bytes if trace_file is None else 0
        sizes = [progress_table_bytes, *connection_bytes, digest_bytes, in_memory, *rings]
        self._parts = _laid_out(sizes)
        self._connections = len(connection_bytes)
        self._mapping = _reserved(sum(self._parts[-1]), heap_ring_size)
        self._trace_file = None if trace_file is None else TraceFile(trace_file, trace_bytes)
        self.arena.budget.add_backing(self._mapping)
        self._granted = [0] * RING_COUNT
        self.values: ValueMemory | None = None
        if sub_children:
            capacity = default_capacity(self.arena.budget)
            inherited = main_module() if is_forking else {}
            self.values = ValueMemory(sub_children, capacity, self.arena.mapping, inherited)

    @property
    def own_mappings(self) -> tuple[SharedMapping, ...]:
        """The mappings without the arena."""
        parts = (self._trace_file, self.values)
        return self._mapping, *(part.mapping for part in parts if part is not None)

    @property
    def mappings(self) -> tuple[SharedMapping, ...]:
        """The mappings that a spawned child must attach."""
        return *self.own_mappings, self.arena.mapping

    @property
    def descriptor(self) -> int:
        """The descriptor of the file that has the progress table at its beginning."""
        return self._mapping.descriptor

    @property
    def progress_table(self) -> int:
        """The address of the progress table and its doorbells."""
        return self._mapping.address

    def connection(self, child: int) -> tuple[int, int]:
        """Return the address and the size of a child's connection."""
        offset, nbytes = self._parts[1 + child]
        return self._mapping.address + offset, nbytes

    def reset_connection(self, child: int) -> None:
        """Fill the memory of a connection with zeros, for a restarted child."""
        self._mapping.zero(*self._parts[1 + child])

    @property
    def digests(self) -> int:
        """The address of the table that relays share."""
        offset, _ = self._parts[1 + self._connections]
        return self._mapping.address + offset

    @property
    def traces(self) -> int:
        """The address of the memory for the traces."""
        if self._trace_file is not None:
            return self._trace_file.mapping.address
        offset, _ = self._parts[2 + self._connections]
        return self._mapping.address + offset

    def release_traces(self) -> None:
        """Free the pages of the traces."""
        if self._trace_file is not None:
            self._trace_file.mapping.zero(0, self._trace_file.mapping.nbytes)
            return
        self._mapping.zero(*self._parts[2 + self._connections])

    @property
    def rings(self) -> list[tuple[int, int]]:
        """The address and the size of each heap ring."""
        parts = self._parts[3 + self._connections :]
        return [(self._mapping.address + offset, nbytes) for offset, nbytes in parts]

    def grant(self, ring: int, nbytes: int) -> int:
        """Permit a heap ring to use its first ``nbytes``; return the size that it may use now.

        The driver calls this method before a ring uses more memory than it may use. Raises
        CapacityError if there is too little memory; the granted size is unchanged in this case.
        """
        granted = self._granted[ring]
        if nbytes <= granted:
            return granted
        self.arena.settle()
        wanted = min(max(nbytes, granted + _GRANT), self._heap_ring_size)
        try:
            self.arena.budget.take(wanted - granted, f"heap ring {ring}")
        except CapacityError:
            # not enough memory to grant more in advance, so grant only the bytes needed now
            wanted = nbytes
            self.arena.budget.take(wanted - granted, f"heap ring {ring}")
        self._granted[ring] = wanted
        return wanted

    def close(self) -> None:
        """Release the memory, except arrays that exist. Called after the children have exited.

        The pages are released even if children of another Worker have inherited the mapping. The
        addresses are released when this object is destroyed.
        """
        self.arena.budget.give_back(sum(self._granted))
        self._granted = [0] * RING_COUNT
        self._mapping.zero(0, self._mapping.nbytes)
        if self.values is not None:
            self.values.close()
        if self._trace_file is not None:
            self.release_traces()
            self._trace_file.remove()
        if self._owns_arena:
            self.arena.close()


def _laid_out(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the offset and the size of each part; sizes are rounded up to whole pages."""
    parts, offset = [], 0
    for size in sizes:
        parts.append((offset, _pages(size)))
        offset += _pages(size)
    return parts


def _pages(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


def _reserved(nbytes: int, heap_ring_size: int) -> SharedMapping:
    if heap_ring_size <= 0:
        raise UsageError(
            f"{_HEAP_SETTING} is {heap_ring_size}; set a positive number of bytes",
            name=_HEAP_SETTING,
            value=heap_ring_size,
        )
    purpose = f"{RING_COUNT} heap rings of {heap_ring_size}"
    return parent_only_mapping(reserved(SharedMapping, nbytes, nbytes, purpose, _HEAP_SETTING))
