"""The calls of a Worker for memory that only one child has: memory of chips, and remote buffers.

A copy to or from a chip goes in pieces through the arena, so it can be larger than the arena.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pto_core._native import integer
from pto_core.errors import UsageError
from pto_core.errors.values import invalid_value, shown
from pto_core.worker.failures import place_of
from pto_core.worker.worker_node import WorkerNode

if TYPE_CHECKING:
    from pto_core.worker.child_group import ChildGroup
    from pto_transport_zmq.remote.worker_buffers import BufferCalls, RemoteBuffer, RemoteTensorRef

Bytes = npt.NDArray[np.uint8]

_PIECE_BYTES = 1 << 22
_NONE = -1


class MemoryCalls:
    """A part of :class:`pto_core.Worker`."""

    _node: WorkerNode

    # ---- memory of a chip ----

    def malloc(self, nbytes: int, worker: int = 0) -> int:
        """Allocate ``nbytes`` on the chip of child ``worker`` and return their address.

        Two chips may return the same address. A task that names the memory, as a ContinuousTensor
        with ``child_memory``, runs on that chip. The memory is lost if the child dies. Raises
        UsageError if there is no such chip, and ControlError if the chip refuses.
        """
        group, child = self._chip("malloc", worker)
        count = integer(nbytes, 1, 2**63 - 1)
        if count is None:
            raise UsageError(
                f"malloc of {shown(nbytes)} bytes; pass a positive number", name="nbytes"
            )
        address = int(group.ask(child, "malloc", count))
        group.driver.add_child_memory(child, address, count)
        return address

    def free(self, address: int, worker: int = 0) -> None:
        """Free memory of a chip. Raises UsageError while a task that names it has not ended."""
        group, child = self._chip("free", worker)
        address = _address(address)
        check_unused(group, child, address, f"free of {address:#x} on chip {child}")
        group.driver.remove_child_memory(child, address)
        group.ask(child, "free", address)

    def copy_to(self, address: int, source: Any, worker: int = 0) -> None:
        """Copy a contiguous array or bytes to memory of a chip."""
        group, child = self._chip("copy_to", worker)
        address, content = _address(address), _bytes_of(source, writable=False)
        staging = _staging(group, content)
        for place, piece in pieces(content, _PIECE_BYTES, address):
            staging[: piece.nbytes] = piece
            group.ask(child, "copy_to", place, staging.ctypes.data, piece.nbytes)

    def copy_from(self, target: Any, address: int, worker: int = 0) -> None:
        """Fill a contiguous, writable array from memory of a chip."""
        group, child = self._chip("copy_from", worker)
        address, content = _address(address), _bytes_of(target, writable=True)
        staging = _staging(group, content)
        for place, piece in pieces(content, _PIECE_BYTES, address):
            group.ask(child, "copy_from", staging.ctypes.data, place, piece.nbytes)
            piece[:] = staging[: piece.nbytes]

    def _chip(self, call: str, worker: object) -> tuple[ChildGroup, int]:
        """Return the child group, and the number of a chip. Chips are the first children."""
        self._node.life.check_open()
        chips = len(self._node.settings.device_ids)
        if not chips:
            raise UsageError(f"{call} is for the memory of a chip, and this Worker has no chips")
        group = self._group(call)
        child = integer(worker, 0, chips - 1)
        if child is None:
            raise UsageError(
                f"there is no chip child {shown(worker)}; this Worker has chips 0 to {chips - 1}",
                name="worker",
                value=worker,
                expected=f"0 to {chips - 1}",
            )
        return group, child

    # ---- buffers on other hosts ----

    def remote_malloc(self, nbytes: int, worker: int) -> RemoteBuffer:
        """Allocate a buffer of zeros on the host of the remote child ``worker``.

        Tasks of that child name it by a :class:`RemoteTensorRef` in a :class:`RemoteTaskArgs`. Its
        bytes stay there: only the calls below copy them. It is lost if its child is lost. Raises
        UsageError for another child, CapacityError if there are no addresses left, and ControlError
        if the host refuses.
        """
        child = self._node.remote_child(worker)
        return self._buffers("remote_malloc").allocate(child, nbytes)

    def remote_free(self, buffer: RemoteBuffer) -> None:
        """Free a remote buffer. For a lost buffer, this does nothing.

        Raises UsageError while a task that names it has not ended.
        """
        self._buffers("remote_free").free(buffer)

    def remote_copy_to(self, buffer: RemoteBuffer, source: Any, offset: int = 0) -> None:
        """Copy a contiguous array or bytes to a remote buffer, ``offset`` bytes from its start.

        Tasks that are submitted afterwards see the content. The call does not wait for tasks: the
        content is undefined if a task uses the same bytes meanwhile. Raises BufferLostError if the
        child of the buffer was lost, and UsageError.
        """
        self._buffers("remote_copy_to").write(buffer, _bytes_of(source, writable=False), offset)

    def remote_copy_from(self, target: Any, buffer: RemoteBuffer, offset: int = 0) -> None:
        """Fill a contiguous, writable array from a remote buffer.

        It contains the results of all tasks that have ended. Raises as :meth:`remote_copy_to`
        does; then the content of ``target`` is undefined.
        """
        self._buffers("remote_copy_from").read(_bytes_of(target, writable=True), buffer, offset)

    def remote_copy(self, target: RemoteTensorRef, source: RemoteTensorRef) -> None:
        """Copy the bytes of one remote tensor to another one, on the same or on another host.

        Between two other hosts, the bytes travel directly, not through this host: the host of
        ``source`` connects to the host of ``target``, at the name by which this Worker reaches it.
        Both must have the same number of bytes. Raises as :meth:`remote_copy_to` does, and
        ControlError if a host refuses or cannot reach the other one; then the content of ``target``
        is undefined.
        """
        self._buffers("remote_copy").copy(target, source)

    def _buffers(self, call: str) -> BufferCalls:
        group = self._group(call)
        if group.buffers is None:
            raise UsageError(
                "this Worker has no children on other hosts, so it has no remote buffers"
            )
        return group.buffers.calls(group)

    def _group(self, call: str) -> ChildGroup:
        self._node.life.check_open()
        runs = self._node.runs
        if runs is not None and runs.is_capturing:
            raise UsageError(
                f"{call} was called during a capture; call it before or after the capture"
            )
        return self._node.started_children()


def _staging(group: ChildGroup, content: Bytes) -> Bytes:
    return group.arena.array(max(1, min(content.nbytes, _PIECE_BYTES)), "uint8")


def _address(given: object) -> int:
    address = integer(given, 0, 2**63 - 1)
    if address is None:
        raise invalid_value("address", given, "pass an address that malloc returned")
    return address


def check_unused(group: ChildGroup, child: int, address: int, call: str) -> None:
    """Raise UsageError while a task that names the memory of a child has not ended."""
    task = group.driver.child_memory_user(child, address)
    if task != _NONE:
        name = place_of(task, group.driver.task(task)).name
        raise UsageError(
            f"{call} while {name}, which names it, has not ended; wait for the task, or repeat the "
            "call when the run is over",
            name="address",
            value=address,
        )


def _bytes_of(array: object, *, writable: bool) -> Bytes:
    """Return the bytes of a contiguous array or another object with a buffer; raise UsageError."""
    found = np.asarray(array) if not isinstance(array, bytes) else np.frombuffer(array, np.uint8)
    if not found.flags.c_contiguous or (writable and not found.flags.writeable):
        if writable:
            raise UsageError(
                "the array to copy to is not contiguous and writable; pass such an array, and copy "
                "its content to this array"
            )
        raise UsageError("the array to copy from is not contiguous; pass a contiguous copy of it")
    return found.reshape(-1).view(np.uint8)


def pieces(content: Bytes, piece_bytes: int, address: int) -> Iterator[tuple[int, Bytes]]:
    """Yield the address and content of each piece of a copy."""
    for first in range(0, content.nbytes, piece_bytes):
        yield address + first, content[first : first + piece_bytes]
