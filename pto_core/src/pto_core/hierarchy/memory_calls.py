"""The calls of a Worker for memory that only one child has: memory of chips, and remote buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_core.errors import UsageError
from pto_core.hierarchy.child_memory import ChildMemory
from pto_core.hierarchy.remote_memory import RemoteMemory
from pto_core.hierarchy.worker_node import WorkerNode

if TYPE_CHECKING:
    from pto_core.hierarchy.child_group import ChildGroup
    from pto_core.hierarchy.remote_buffers import RemoteBuffer, RemoteTensorRef


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
        return self._child_memory("malloc").malloc(worker, nbytes)

    def free(self, address: int, worker: int = 0) -> None:
        """Free memory of a chip. Raises UsageError while a task that names it has not ended."""
        self._child_memory("free").free(worker, address)

    def copy_to(self, address: int, source: Any, worker: int = 0) -> None:
        """Copy a contiguous array or bytes to memory of a chip."""
        self._child_memory("copy_to").copy_to(worker, address, source)

    def copy_from(self, target: Any, address: int, worker: int = 0) -> None:
        """Fill a contiguous, writable array from memory of a chip."""
        self._child_memory("copy_from").copy_from(worker, target, address)

    # ---- buffers on other hosts ----

    def remote_malloc(self, nbytes: int, worker: int) -> RemoteBuffer:
        """Allocate a buffer of zeros on the host of the remote child ``worker``.

        Tasks of that child name it by a :class:`RemoteTensorRef` in a :class:`RemoteTaskArgs`. Its
        bytes stay there: only the calls below copy them. It is lost if its child is lost. Raises
        UsageError for another child, CapacityError if there are no addresses left, and ControlError
        if the host refuses.
        """
        return self._remote_memory("remote_malloc").malloc(nbytes, worker)

    def remote_free(self, buffer: RemoteBuffer) -> None:
        """Free a remote buffer. For a lost buffer, this does nothing.

        Raises UsageError while a task that names it has not ended.
        """
        self._remote_memory("remote_free").free(buffer)

    def remote_copy_to(self, buffer: RemoteBuffer, source: Any, offset: int = 0) -> None:
        """Copy a contiguous array or bytes to a remote buffer, ``offset`` bytes from its start.

        Tasks that are submitted afterwards see the content. The call does not wait for tasks: the
        content is undefined if a task uses the same bytes meanwhile. Raises BufferLostError if the
        child of the buffer was lost, and UsageError.
        """
        self._remote_memory("remote_copy_to").copy_to(buffer, source, offset)

    def remote_copy_from(self, target: Any, buffer: RemoteBuffer, offset: int = 0) -> None:
        """Fill a contiguous, writable array from a remote buffer.

        It contains the results of all tasks that have ended. Raises as :meth:`remote_copy_to`
        does; then the content of ``target`` is undefined.
        """
        self._remote_memory("remote_copy_from").copy_from(target, buffer, offset)

    def remote_copy(self, target: RemoteTensorRef, source: RemoteTensorRef) -> None:
        """Copy the bytes of one remote tensor to another one, on the same or on another host.

        Between two other hosts, the bytes travel directly, not through this host: the host of
        ``source`` connects to the host of ``target``, at the name by which this Worker reaches it.
        Both must have the same number of bytes. Raises as :meth:`remote_copy_to` does, and
        ControlError if a host refuses or cannot reach the other one; then the content of ``target``
        is undefined.
        """
        self._remote_memory("remote_copy").copy(target, source)

    def _child_memory(self, call: str) -> ChildMemory:
        self._node.life.check_open()
        if not self._node.settings.device_ids:
            raise UsageError(f"{call} is for the memory of a chip, and this Worker has no chips")
        return ChildMemory(self._children(call))

    def _remote_memory(self, call: str) -> RemoteMemory:
        self._node.life.check_open()
        return RemoteMemory(self._children(call))

    def _children(self, call: str) -> ChildGroup:
        runs = self._node.runs
        if runs is not None and runs.is_capturing:
            raise UsageError(
                f"{call} was called during a capture; call it before or after the capture"
            )
        return self._node.started_children()
