"""The calls of a Worker for memory that only one child has: memory of chips, and remote buffers.

A copy goes in pieces: for a chip through the arena, for another host through shared memory of the
relay. So a copy can be larger than that memory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pto_core._native import integer
from pto_core.errors import BufferLostError, ControlError, PtoError, UsageError
from pto_core.errors.values import shown
from pto_core.worker.failures import place_of
from pto_core.worker.remote_buffers import BufferTable, RemoteBuffer, RemoteTensorRef, lost_error
from pto_core.worker.worker_node import WorkerNode

if TYPE_CHECKING:
    from pto_core.worker.child_group import ChildGroup
    from pto_core.worker.remote_transport import HostPeer

_PIECE_BYTES = 1 << 22
_TOKEN_BYTES = 16
_NONE = -1

_Bytes = npt.NDArray[np.uint8]


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
        _check_unused(group, child, address, f"free of {address:#x} on chip {child}")
        group.driver.remove_child_memory(child, address)
        group.ask(child, "free", address)

    def copy_to(self, address: int, source: Any, worker: int = 0) -> None:
        """Copy a contiguous array or bytes to memory of a chip."""
        group, child = self._chip("copy_to", worker)
        address, content = _address(address), _bytes_of(source, writable=False)
        staging = _staging(group, content)
        for place, piece in _pieces(content, _PIECE_BYTES, address):
            staging[: piece.nbytes] = piece
            group.ask(child, "copy_to", place, staging.ctypes.data, piece.nbytes)

    def copy_from(self, target: Any, address: int, worker: int = 0) -> None:
        """Fill a contiguous, writable array from memory of a chip."""
        group, child = self._chip("copy_from", worker)
        address, content = _address(address), _bytes_of(target, writable=True)
        staging = _staging(group, content)
        for place, piece in _pieces(content, _PIECE_BYTES, address):
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
        group = self._group("remote_malloc")
        known = [child.number for child in group.children if child.remote is not None]
        number = integer(worker, 0, 2**31 - 1)
        if number not in known:
            raise UsageError(
                f"worker {shown(worker)} is not a Worker on another host; pass one of {known}",
                name="worker",
                value=worker,
            )
        assert number is not None
        count = integer(nbytes, 1, 2**63 - 1)
        if count is None:
            raise UsageError(
                f"remote_malloc was called for {shown(nbytes)} bytes; pass a positive number",
                name="nbytes",
            )
        table = _table(group)
        buffer = table.take(number, group.children[number].path, count)
        try:
            group.ask(number, "allocate_buffer", buffer.address, count)
        except PtoError:
            table.cancel(buffer)
            raise
        table.add(buffer)
        return buffer

    def remote_free(self, buffer: RemoteBuffer) -> None:
        """Free a remote buffer. For a lost buffer, this does nothing.

        Raises UsageError while a task that names it has not ended.
        """
        group = self._group("remote_free")
        table = _table(group)
        try:
            table.check(buffer)
        except BufferLostError:
            return  # nothing to free on the host; the table frees the addresses
        call = f"remote_free of {shown(buffer)}"
        _check_unused(group, buffer.worker, buffer.address, call)
        table.remove(buffer)
        # The child is lost: its host freed the buffer when the session ended.
        with contextlib.suppress(BufferLostError):
            _ask(group, buffer, "free_buffer", buffer.address)
        table.give_back(buffer)

    def remote_copy_to(self, buffer: RemoteBuffer, source: Any, offset: int = 0) -> None:
        """Copy a contiguous array or bytes to a remote buffer, ``offset`` bytes from its start.

        Tasks that are submitted afterwards see the content. The call does not wait for tasks: the
        content is undefined if a task uses the same bytes meanwhile. Raises BufferLostError if the
        child of the buffer was lost, and UsageError.
        """
        group, content = self._group("remote_copy_to"), _bytes_of(source, writable=False)
        begin = _checked_address(group, buffer, content, offset)
        with _table(group).staging(buffer.worker) as shared:
            for place, piece in _pieces(content, shared.nbytes, begin):
                shared[: piece.nbytes] = piece
                _ask(group, buffer, "write_buffer", place, piece.nbytes, shared.ctypes.data)

    def remote_copy_from(self, target: Any, buffer: RemoteBuffer, offset: int = 0) -> None:
        """Fill a contiguous, writable array from a remote buffer.

        It contains the results of all tasks that have ended. Raises as :meth:`remote_copy_to`
        does; then the content of ``target`` is undefined.
        """
        group, content = self._group("remote_copy_from"), _bytes_of(target, writable=True)
        begin = _checked_address(group, buffer, content, offset)
        with _table(group).staging(buffer.worker) as shared:
            for place, piece in _pieces(content, shared.nbytes, begin):
                _ask(group, buffer, "read_buffer", place, piece.nbytes, shared.ctypes.data)
                piece[:] = shared[: piece.nbytes]

    def remote_copy(self, target: RemoteTensorRef, source: RemoteTensorRef) -> None:
        """Copy the bytes of one remote tensor to another one, on the same or on another host.

        Between two other hosts, the bytes travel directly, not through this host: the host of
        ``source`` connects to the host of ``target``, at the name by which this Worker reaches it.
        Both must have the same number of bytes. Raises as :meth:`remote_copy_to` does, and
        ControlError if a host refuses or cannot reach the other one; then the content of ``target``
        is undefined.
        """
        group = self._group("remote_copy")
        for one in (target, source):
            if not isinstance(one, RemoteTensorRef):
                raise UsageError(
                    f"{shown(one)} is not a RemoteTensorRef; use remote_copy_to and "
                    "remote_copy_from for arrays of this process",
                    name="target" if one is target else "source",
                )
            _table(group).check(one.buffer)
        nbytes = target.nbytes
        if source.nbytes != nbytes:
            raise UsageError(
                f"the source has {source.nbytes} bytes, the target {nbytes}; pass equal sizes",
                name="source",
            )
        if target.buffer.worker == source.buffer.worker:
            if abs(target.address - source.address) < nbytes:
                raise UsageError("the source and the target of a copy overlap", name="source")
            _ask(group, target.buffer, "copy_buffer", target.address, source.address, nbytes)
        else:
            _copy_between_hosts(group, target, source)

    def _group(self, call: str) -> ChildGroup:
        self._node.life.check_open()
        runs = self._node.runs
        if runs is not None and runs.is_capturing:
            raise UsageError(
                f"{call} was called during a capture; call it before or after the capture"
            )
        return self._node.started_children()


def _staging(group: ChildGroup, content: _Bytes) -> _Bytes:
    return group.arena.array(max(1, min(content.nbytes, _PIECE_BYTES)), "uint8")


def _address(given: object) -> int:
    address = integer(given, 0, 2**63 - 1)
    if address is None:
        raise UsageError(
            f"address is {shown(given)}; pass an address that malloc returned",
            name="address",
            value=given,
        )
    return address


def _check_unused(group: ChildGroup, child: int, address: int, call: str) -> None:
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


def _bytes_of(array: object, *, writable: bool) -> _Bytes:
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


def _copy_between_hosts(
    group: ChildGroup, target: RemoteTensorRef, source: RemoteTensorRef
) -> None:
    to, by = _peer(group, target), _peer(group, source)
    if to.transport != by.transport or (to.key is None) != (by.key is None):
        raise UsageError(
            f"{source.buffer.path} uses the transport {by.transport}, and "
            f"{target.buffer.path} the transport {to.transport}, or only one of them has keys; "
            "use the same transport for both, with keys or without",
            name="target",
        )
    token = os.urandom(_TOKEN_BYTES)
    nbytes = target.nbytes
    try:
        common = nbytes, token, max(to.lease_ns, by.lease_ns)
        port = _ask(group, target.buffer, "receive_buffer", target.address, *common, by.key)
        place = to.at(port)
        _ask(group, source.buffer, "send_buffer", source.address, *common, to.key, place)
    except BaseException as error:
        # Otherwise the source could continue to write to the target. The request can fail:
        # after a loss of the child, the target has no memory.
        with contextlib.suppress(PtoError):
            _ask(group, target.buffer, "cancel_receive", token)
        if isinstance(error, ControlError):
            # Raises BufferLostError if the child is lost, which explains more.
            _table(group).check(target.buffer)
        raise


def _peer(group: ChildGroup, tensor: RemoteTensorRef) -> HostPeer:
    remote = group.children[tensor.buffer.worker].remote
    assert remote is not None
    return remote.peer()


def _checked_address(group: ChildGroup, buffer: RemoteBuffer, content: _Bytes, offset: int) -> int:
    """Return the address of a part. Raise UsageError if it does not fit, and as ``check``."""
    _table(group).check(buffer)
    place = integer(offset, 0, buffer.nbytes - content.nbytes)
    if place is None:
        raise UsageError(
            f"a copy of {content.nbytes} bytes at offset {shown(offset)} does not fit "
            f"{shown(buffer)}; pass a part that is inside the buffer",
            name="offset",
            value=offset,
        )
    return buffer.address + place


def _table(group: ChildGroup) -> BufferTable:
    """Return the table; raise UsageError for a Worker without children on other hosts."""
    table = group.buffers
    if table is None:
        raise UsageError("this Worker has no children on other hosts, so it has no remote buffers")
    return table


def _ask(group: ChildGroup, buffer: RemoteBuffer, operation: str, *arguments: Any) -> Any:
    """Send a request to the child of a buffer; raise BufferLostError if the child is lost."""
    try:
        return group.ask(buffer.worker, operation, *arguments)
    except ControlError as error:
        if isinstance(error.__cause__, BufferLostError) or error.remote_traceback is None:
            raise lost_error(buffer) from error
        raise


def _pieces(content: _Bytes, piece_bytes: int, address: int) -> Iterator[tuple[int, _Bytes]]:
    """Yield the address and content of each piece of a copy."""
    for first in range(0, content.nbytes, piece_bytes):
        yield address + first, content[first : first + piece_bytes]
