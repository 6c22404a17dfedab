"""Buffers on other hosts, as the program and its Worker see them.

The Worker's process reserves the addresses of the buffers, without memory. No other memory has
these addresses, so the engine can order tasks on parts of a buffer by address, as for any memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, NoReturn, cast

from pto_core._native import integer
from pto_core._worker import (
    AddressReservation,
    ContinuousTensor,
    Driver,
    TaskArgs,
    TensorArgType,
)
from pto_core.errors import (
    BufferLostError,
    CapacityError,
    ControlError,
    PtoError,
    UsageError,
    WorkerClosedError,
)
from pto_core.errors.values import shown
from pto_core.kernels.data_type import DataType
from pto_core.worker.memory.arena import FreeList, reserved
from pto_core.worker.memory_calls import Bytes, check_unused, pieces
from pto_core.worker.tasks import ChildTensor

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from pto_core.worker.child_group import ChildGroup
    from pto_core.worker.memory import SharedArena
    from pto_transport_zmq.remote.remote_child import AgentPeer, RelayedChild

_SETTING = "remote_buffer_bytes"
_LEAST_BYTES = 1 << 26
_PAGE = mmap.PAGESIZE
_PIECE_BYTES = 1 << 23
_TOKEN_BYTES = 16


class RemoteBuffer:
    """Memory on the host of a remote child; ``Worker.remote_malloc`` returns it.

    It exists until ``Worker.remote_free``, or until its child is lost. Tasks of that child name it
    by a :class:`RemoteTensorRef`.
    """

    def __init__(
        self, table: BufferTable, worker: int, path: str, address: int, nbytes: int
    ) -> None:
        self.worker = worker
        """The id of the child."""
        self.address = address
        """The address of the buffer in all processes of that host."""
        self.nbytes = nbytes
        self.path = path
        """The path of the child, such as ``L4/host0``."""
        self._table = table
        self._is_lost = False  # set by the table of buffers

    @property
    def is_lost(self) -> bool:
        """Whether the memory is gone because its child was lost."""
        return self._table.is_lost(self)

    def check(self) -> None:
        """Raise BufferLostError if its child was lost, UsageError if it was freed.

        Raises WorkerClosedError if its Worker is closed.
        """
        self._table.check(self)

    def __repr__(self) -> str:
        return f"<RemoteBuffer of {self.path}, {self.nbytes} bytes at {self.address:#x}>"


class RemoteTaskArgs(TaskArgs):
    """Arguments of a task of a remote child: a TaskArgs that also accepts a RemoteTensorRef.

    The task runs on the child that has the buffers. Submitting it to another child is an error.
    """

    __slots__ = ()

    def add_tensor(self, tensor: object, tag: TensorArgType = TensorArgType.INPUT) -> None:
        """Add an array as ``TaskArgs.add_tensor`` does, or a RemoteTensorRef.

        Raises BufferLostError for a buffer whose child was lost, and UsageError for an invalid
        argument.
        """
        super().add_tensor(tensor.tensor() if isinstance(tensor, RemoteTensorRef) else tensor, tag)


@dataclass(frozen=True)
class RemoteTensorRef(ChildTensor):
    """A tensor in a remote buffer, ``offset`` bytes from its start.

    Raises UsageError for a part that is not inside the buffer.
    """

    args_class = RemoteTaskArgs
    buffer: RemoteBuffer
    shape: int | Sequence[int]
    dtype: DTypeLike | DataType = "float32"
    offset: int = 0
    _place: ContinuousTensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        buffer, offset = self.buffer, integer(self.offset, 0, 2**63 - 1)
        if offset is None:
            raise UsageError(
                f"offset is {shown(self.offset)}; pass a number of bytes from 0", name="offset"
            )
        place = ContinuousTensor.from_pointer(
            buffer.address + offset, self.shape, self.dtype, child_memory=True
        )
        if offset + place.nbytes > buffer.nbytes:
            raise UsageError(
                f"a tensor of {place.nbytes} bytes at offset {offset} does not fit a remote buffer "
                f"of {buffer.nbytes} bytes; pass a part that is inside the buffer",
                name="offset",
                value=offset,
            )
        object.__setattr__(self, "_place", place)

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self._place.nbytes

    @property
    def address(self) -> int:
        """The address of the tensor in all processes of its host."""
        return self._place.address

    def tensor(self) -> ContinuousTensor:
        """Return the tensor for arguments of a task; raise the errors of ``RemoteBuffer.check``."""
        self.buffer.check()
        return self._place

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise UsageError(
            f"the tensor is in memory of {self.buffer.path}, which this process does not have; "
            "pass it to a task of that child in a RemoteTaskArgs, or copy it with "
            "Worker.remote_copy_from",
            name="tensor",
        )

    __dlpack__ = __array__


@dataclass
class _Staging:
    """The shared memory for copies to and from one child. ``lock`` guards ``memory``."""

    lock: Lock = field(default_factory=Lock)
    memory: Bytes | None = None


class BufferTable:
    """The live buffers of one Worker, and their addresses. Any thread may call the methods.

    Tasks name a buffer by its address, so an address is not used again soon: each allocation
    continues after the last one. Until all addresses have been used once, arguments and captured
    graphs that name a freed or lost buffer are refused. Addresses of lost buffers are not used
    again during a run.
    """

    def __init__(self, driver: Driver, arena: SharedArena, nbytes: int) -> None:
        self._driver = driver
        self._arena = arena
        kind, least = AddressReservation, _LEAST_BYTES
        self._reserved = reserved(kind, nbytes, least, "remote buffers", _SETTING)
        self._free = FreeList(self._reserved.nbytes)
        self._next = 0  # the offset after the last allocation
        self._live: set[RemoteBuffer] = set()
        self._lost: set[RemoteBuffer] = set()
        self._staging: dict[int, _Staging] = {}
        # memory of interrupted copies, which the relay may still use
        self._interrupted: list[Bytes] = []
        self._lock = RLock()
        self.is_closed = False

    @property
    def place(self) -> tuple[int, int]:
        """The first reserved address, and the number of reserved bytes."""
        return self._reserved.address, self._reserved.nbytes

    def take(self, worker: int, path: str, nbytes: int) -> RemoteBuffer:
        """Return a buffer with free addresses; raise CapacityError."""
        with self._lock:
            self._find_lost(list(self._live))
            if not self._driver.is_running:
                for buffer in self._lost:
                    self.give_back(buffer)
                self._lost.clear()
            offset = self._free.take_from(self._next, _pages(nbytes))
            if offset is not None:
                self._next = offset + _pages(nbytes)
        if offset is None:
            raise CapacityError(
                f"a remote buffer of {nbytes} bytes needs addresses in one piece, and the largest "
                f"free piece has {self._free.largest} of {self._reserved.nbytes} bytes; free "
                f"buffers, or set a larger {_SETTING} before init",
                name=_SETTING,
                value=nbytes,
                limit=self._free.largest,
            )
        return RemoteBuffer(self, worker, path, self._reserved.address + offset, nbytes)

    def add(self, buffer: RemoteBuffer) -> None:
        """Add a buffer that its host has allocated; from now on, tasks may name it."""
        with self._lock:
            self._driver.add_child_memory(buffer.worker, buffer.address, buffer.nbytes)
            self._live.add(buffer)

    def remove(self, buffer: RemoteBuffer) -> None:
        """Remove a live buffer: tasks may no longer name it."""
        with self._lock:
            self._driver.remove_child_memory(buffer.worker, buffer.address)
            self._live.discard(buffer)

    def give_back(self, buffer: RemoteBuffer) -> None:
        """Free the addresses of a buffer that no longer exists on its host."""
        with self._lock:
            self._free.give_back(buffer.address - self._reserved.address, _pages(buffer.nbytes))

    def cancel(self, buffer: RemoteBuffer) -> None:
        """Free the addresses of a buffer that was never added, so no task can have named them."""
        with self._lock:
            self.give_back(buffer)
            start = buffer.address - self._reserved.address
            if self._next == start + _pages(buffer.nbytes):
                self._next = start

    def is_lost(self, buffer: RemoteBuffer) -> bool:
        """Return whether the child of a buffer was lost before it was freed."""
        with self._lock:
            self._find_lost([buffer])
            return buffer._is_lost

    def check(self, buffer: RemoteBuffer) -> None:
        """Raise the errors of :meth:`RemoteBuffer.check`."""
        if not isinstance(buffer, RemoteBuffer) or buffer._table is not self:
            raise UsageError(
                f"{shown(buffer)} is not a buffer of this Worker; pass a result of its "
                "remote_malloc",
                name="buffer",
                value=buffer,
            )
        if self.is_closed:
            raise WorkerClosedError("the Worker of this remote buffer is closed")
        if self.is_lost(buffer):
            raise _lost_error(buffer)
        if buffer not in self._live:
            raise UsageError(
                f"{shown(buffer)} was freed; allocate another one with remote_malloc", name="buffer"
            )

    def calls(self, group: ChildGroup) -> BufferCalls:
        """Return the calls of a Worker for its buffers. ``group``: its children."""
        return BufferCalls(self, group)

    def close(self) -> None:
        """Refuse all further calls, and release the shared memory for copies."""
        self.is_closed = True
        self._staging.clear()
        self._interrupted.clear()

    @contextlib.contextmanager
    def staging(self, worker: int) -> Iterator[Bytes]:
        """Lock and yield the shared memory for copies to and from a child.

        The relay may still use the memory of an interrupted copy. So that memory exists until the
        Worker is closed, and the next copy gets other memory.
        """
        with self._lock:
            found = self._staging.setdefault(worker, _Staging())
        with found.lock:
            if found.memory is None:
                found.memory = self._arena.array(_PIECE_BYTES, "uint8")
            try:
                yield found.memory
            except (BufferLostError, ControlError):
                raise  # the relay no longer uses the memory: it has replied, or has exited
            except BaseException:
                self._interrupted.append(found.memory)
                found.memory = None
                raise

    def _find_lost(self, buffers: Iterable[RemoteBuffer]) -> None:
        """Mark the buffers that are lost: the driver has dropped them with their child."""
        for buffer in self._live.intersection(buffers):
            if not self._driver.has_child_memory(buffer.worker, buffer.address):
                self._live.discard(buffer)
                self._lost.add(buffer)
                buffer._is_lost = True


@dataclass(frozen=True)
class BufferCalls:
    """The calls ``remote_*`` of :class:`pto_core.Worker`, which has their documentation."""

    table: BufferTable
    group: ChildGroup

    def allocate(self, child: int, nbytes: object) -> RemoteBuffer:
        """Allocate a buffer on the host of a child."""
        count = integer(nbytes, 1, 2**63 - 1)
        if count is None:
            raise UsageError(
                f"remote_malloc was called for {shown(nbytes)} bytes; pass a positive number",
                name="nbytes",
            )
        buffer = self.table.take(child, self.group.children[child].path, count)
        try:
            self.group.ask(child, "allocate_buffer", buffer.address, count)
        except PtoError:
            self.table.cancel(buffer)
            raise
        self.table.add(buffer)
        return buffer

    def free(self, buffer: RemoteBuffer) -> None:
        """Free a buffer."""
        try:
            self.table.check(buffer)
        except BufferLostError:
            return  # nothing to free on the host; the table frees the addresses
        check_unused(self.group, buffer.worker, buffer.address, f"remote_free of {shown(buffer)}")
        self.table.remove(buffer)
        # The child is lost: its host freed the buffer when the session ended.
        with contextlib.suppress(BufferLostError):
            self._ask(buffer, "free_buffer", buffer.address)
        self.table.give_back(buffer)

    def write(self, buffer: RemoteBuffer, content: Bytes, offset: int) -> None:
        """Copy bytes to a part of a buffer."""
        begin = self._checked_address(buffer, content, offset)
        with self.table.staging(buffer.worker) as shared:
            for place, piece in pieces(content, shared.nbytes, begin):
                shared[: piece.nbytes] = piece
                self._ask(buffer, "write_buffer", place, piece.nbytes, shared.ctypes.data)

    def read(self, content: Bytes, buffer: RemoteBuffer, offset: int) -> None:
        """Copy a part of a buffer to ``content``."""
        begin = self._checked_address(buffer, content, offset)
        with self.table.staging(buffer.worker) as shared:
            for place, piece in pieces(content, shared.nbytes, begin):
                self._ask(buffer, "read_buffer", place, piece.nbytes, shared.ctypes.data)
                piece[:] = shared[: piece.nbytes]

    def copy(self, target: RemoteTensorRef, source: RemoteTensorRef) -> None:
        """Copy a remote tensor to another one."""
        for one in (target, source):
            if not isinstance(one, RemoteTensorRef):
                raise UsageError(
                    f"{shown(one)} is not a RemoteTensorRef; use remote_copy_to and "
                    "remote_copy_from for arrays of this process",
                    name="target" if one is target else "source",
                )
            self.table.check(one.buffer)
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
        try:
            common = target.nbytes, token, max(to.lease_ns, by.lease_ns)
            port = self._ask(target.buffer, "receive_buffer", target.address, *common, by.key)
            self._ask(source.buffer, "send_buffer", source.address, *common, to.key, to.at(port))
        except BaseException as error:
            # Otherwise the source could continue to write to the target. The request can fail:
            # after a loss of the child, the target has no memory.
            with contextlib.suppress(PtoError):
                self._ask(target.buffer, "cancel_receive", token)
            if isinstance(error, ControlError):
                # Raises BufferLostError if the child is lost, which explains more.
                self.table.check(target.buffer)
            raise

    def _peer(self, tensor: RemoteTensorRef) -> AgentPeer:
        return cast("RelayedChild", self.group.children[tensor.buffer.worker].remote).peer()

    def _checked_address(self, buffer: RemoteBuffer, content: Bytes, offset: int) -> int:
        """Return the address of a part. Raise UsageError if it does not fit, and as ``check``."""
        self.table.check(buffer)
        place = integer(offset, 0, buffer.nbytes - content.nbytes)
        if place is None:
            raise UsageError(
                f"a copy of {content.nbytes} bytes at offset {shown(offset)} does not fit "
                f"{shown(buffer)}; pass a part that is inside the buffer",
                name="offset",
                value=offset,
            )
        return buffer.address + place

    def _ask(self, buffer: RemoteBuffer, operation: str, *arguments: Any) -> Any:
        """Send a request to the child of a buffer; raise BufferLostError if the child is lost."""
        try:
            return self.group.ask(buffer.worker, operation, *arguments)
        except ControlError as error:
            if isinstance(error.__cause__, BufferLostError) or error.remote_traceback is None:
                raise _lost_error(buffer) from error
            raise


def _lost_error(buffer: RemoteBuffer) -> BufferLostError:
    """Return the error for the use of a lost buffer."""
    return BufferLostError(
        f"{buffer.path}: the remote buffer of {buffer.nbytes} bytes at {buffer.address:#x} was "
        "lost with the session of its child; allocate another one with remote_malloc, and copy "
        "its content again",
        child=buffer.worker,
        path=buffer.path,
        address=buffer.address,
    )


def _pages(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE
