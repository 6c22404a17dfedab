"""Requests for remote buffers: allocate, free, and copy.

Copies between the program and another host go through shared memory of the relay, one piece at a
time. So a copy can be larger than that shared memory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pto_core._native import integer
from pto_core.errors import BufferLostError, ControlError, PtoError, UsageError
from pto_core.errors.values import shown
from pto_core.hierarchy.child_group import ChildGroup
from pto_core.hierarchy.child_memory import bytes_of, check_unused
from pto_core.hierarchy.remote_buffers import BufferTable, RemoteBuffer, RemoteTensorRef, lost_error
from pto_core.hierarchy.remote_transport import HostPeer

_TOKEN_BYTES = 16

_Bytes = npt.NDArray[np.uint8]


class RemoteMemory:
    """Sends requests for buffers to the remote children of a Worker."""

    def __init__(self, children: ChildGroup) -> None:
        self._children = children

    def malloc(self, nbytes: int, child: int) -> RemoteBuffer:
        """Allocate a zeroed buffer.

        Raises ControlError if the host refuses it, and CapacityError if no addresses are free.
        """
        children = self._children
        known = [one.number for one in children.children if one.remote is not None]
        number = integer(child, 0, 2**31 - 1)
        if number not in known:
            raise UsageError(
                f"worker {shown(child)} is not a Worker on another host; pass one of {known}",
                name="worker",
                value=child,
            )
        assert number is not None
        count = integer(nbytes, 1, 2**63 - 1)
        if count is None:
            raise UsageError(
                f"remote_malloc was called for {shown(nbytes)} bytes; pass a positive number",
                name="nbytes",
            )
        table = self._table()
        buffer = table.take(number, children.children[number].path, count)
        try:
            children.ask(number, "allocate_buffer", buffer.address, count)
        except PtoError:
            table.cancel(buffer)
            raise
        table.add(buffer)
        return buffer

    def free(self, buffer: RemoteBuffer) -> None:
        """Free a buffer; raise UsageError while a task that names it has not ended."""
        table = self._table()
        try:
            table.check(buffer)
        except BufferLostError:
            return  # nothing to free on the host; the table frees the addresses
        check_unused(
            self._children, buffer.worker, buffer.address, f"remote_free of {shown(buffer)}"
        )
        table.remove(buffer)
        # The child is lost: its host freed the buffer when the session ended.
        with contextlib.suppress(BufferLostError):
            self._ask(buffer, "free_buffer", buffer.address)
        table.give_back(buffer)

    def copy_to(self, buffer: RemoteBuffer, source: object, offset: int) -> None:
        """Copy from any object with a buffer to a remote buffer."""
        content = bytes_of(source, writable=False)
        offset = self._check_part(buffer, content, offset)
        with self._table().staging(buffer.worker) as shared:
            for place, piece in _pieces(content, shared.nbytes, buffer.address + offset):
                shared[: piece.nbytes] = piece
                self._ask(buffer, "write_buffer", place, piece.nbytes, shared.ctypes.data)

    def copy_from(self, target: object, buffer: RemoteBuffer, offset: int) -> None:
        """Copy from a remote buffer to any object with a writable buffer."""
        content = bytes_of(target, writable=True)
        offset = self._check_part(buffer, content, offset)
        with self._table().staging(buffer.worker) as shared:
            for place, piece in _pieces(content, shared.nbytes, buffer.address + offset):
                self._ask(buffer, "read_buffer", place, piece.nbytes, shared.ctypes.data)
                piece[:] = shared[: piece.nbytes]

    def copy(self, target: RemoteTensorRef, source: RemoteTensorRef) -> None:
        """Copy between two remote tensors, directly between their hosts."""
        for one in (target, source):
            if not isinstance(one, RemoteTensorRef):
                raise UsageError(
                    f"{shown(one)} is not a RemoteTensorRef; use remote_copy_to and "
                    "remote_copy_from for arrays of this process",
                    name="target" if one is target else "source",
                )
            self._table().check(one.buffer)
        nbytes = target.nbytes
        if source.nbytes != nbytes:
            raise UsageError(
                f"the source has {source.nbytes} bytes, the target {nbytes}; pass equal sizes",
                name="source",
            )
        if target.buffer.worker == source.buffer.worker:
            if abs(target.address - source.address) < nbytes:
                raise UsageError("the source and the target of a copy overlap", name="source")
            self._ask(target.buffer, "copy_buffer", target.address, source.address, nbytes)
        else:
            self._copy_between_hosts(target, source)

    def _copy_between_hosts(self, target: RemoteTensorRef, source: RemoteTensorRef) -> None:
        to, by = self._peer(target), self._peer(source)
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
            port = self._ask(target.buffer, "receive_buffer", target.address, *common, by.key)
            place = to.at(port)
            self._ask(source.buffer, "send_buffer", source.address, *common, to.key, place)
        except BaseException as error:
            # Otherwise the source could continue to write to the target. The request can fail:
            # after a loss of the child, the target has no memory.
            with contextlib.suppress(PtoError):
                self._ask(target.buffer, "cancel_receive", token)
            if isinstance(error, ControlError):
                # Raises BufferLostError if the child is lost, which explains more.
                self._table().check(target.buffer)
            raise

    def _peer(self, tensor: RemoteTensorRef) -> HostPeer:
        remote = self._children.children[tensor.buffer.worker].remote
        assert remote is not None
        return remote.peer()

    def _check_part(self, buffer: RemoteBuffer, content: _Bytes, offset: int) -> int:
        """Return the offset. Raise UsageError if the content does not fit, and as ``check``."""
        self._table().check(buffer)
        place = integer(offset, 0, buffer.nbytes - content.nbytes)
        if place is None:
            raise UsageError(
                f"a copy of {content.nbytes} bytes at offset {shown(offset)} does not fit "
                f"{shown(buffer)}; pass a part that is inside the buffer",
                name="offset",
                value=offset,
            )
        return place

    def _table(self) -> BufferTable:
        """Return the table; raise UsageError for a Worker without children on other hosts."""
        table = self._children.buffers
        if table is None:
            raise UsageError(
                "this Worker has no children on other hosts, so it has no remote buffers"
            )
        return table

    def _ask(self, buffer: RemoteBuffer, operation: str, *arguments: Any) -> Any:
        """Send a request to the child of a buffer; raise BufferLostError if the child is lost."""
        try:
            return self._children.ask(buffer.worker, operation, *arguments)
        except ControlError as error:
            if isinstance(error.__cause__, BufferLostError) or error.remote_traceback is None:
                raise lost_error(buffer) from error
            raise


def _pieces(content: _Bytes, piece_bytes: int, address: int) -> Iterator[tuple[int, _Bytes]]:
    """Yield the address and content of each piece of a copy."""
    for first in range(0, content.nbytes, piece_bytes):
        yield address + first, content[first : first + piece_bytes]
