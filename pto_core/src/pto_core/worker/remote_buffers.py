"""Buffers on other hosts, as the program and its Worker see them.

The Worker's process reserves the addresses of the buffers, without memory. No other memory has
these addresses, so the engine can order tasks on parts of a buffer by address, as for any memory.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

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
    UsageError,
    WorkerClosedError,
)
from pto_core.errors.values import shown
from pto_core.kernels.data_type import DataType
from pto_core.worker.memory.arena import FreeList, reserved

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from pto_core.worker.memory import SharedArena

_SETTING = "remote_buffer_bytes"
_LEAST_BYTES = 1 << 26
_PAGE = mmap.PAGESIZE
_PIECE_BYTES = 1 << 23


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


@dataclass(frozen=True)
class RemoteTensorRef:
    """A tensor in a remote buffer, ``offset`` bytes from its start.

    Raises UsageError for a part that is not inside the buffer.
    """

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
        self._refuse()

    def __dlpack__(self, **_: Any) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UsageError(
            f"the tensor is in memory of {self.buffer.path}, which this process does not have; "
            "pass it to a task of that child in a RemoteTaskArgs, or copy it with "
            "Worker.remote_copy_from",
            name="tensor",
        )


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


_Bytes = npt.NDArray[np.uint8]


@dataclass
class _Staging:
    """The shared memory for copies to and from one child. ``lock`` guards ``memory``."""

    lock: Lock = field(default_factory=Lock)
    memory: _Bytes | None = None


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
        self._interrupted: list[_Bytes] = []
        self._lock = Lock()
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
                    self._give_back(buffer)
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
            self._give_back(buffer)

    def cancel(self, buffer: RemoteBuffer) -> None:
        """Free the addresses of a buffer that was never added, so no task can have named them."""
        with self._lock:
            self._give_back(buffer)
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
            raise lost_error(buffer)
        if buffer not in self._live:
            raise UsageError(
                f"{shown(buffer)} was freed; allocate another one with remote_malloc", name="buffer"
            )

    def close(self) -> None:
        """Refuse all further calls, and release the shared memory for copies."""
        self.is_closed = True
        self._staging.clear()
        self._interrupted.clear()

    @contextmanager
    def staging(self, worker: int) -> Iterator[_Bytes]:
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

    def _give_back(self, buffer: RemoteBuffer) -> None:
        self._free.give_back(buffer.address - self._reserved.address, _pages(buffer.nbytes))


def lost_error(buffer: RemoteBuffer) -> BufferLostError:
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
