"""The interface of local transports: they carry frames to a child of a Worker, and answers back.

A transport is native (:class:`NativeTransport`: a library with the table of ``pto/abi/endpoint.h``)
or plain Python (:class:`PythonTransport`). ``pto new plugin transport NAME``
writes a complete one in Python. A transport to other hosts is a plugin of the same family
with other members: a ``pto_transport_zmq.LinkTransport``, which takes links of any fabric.

The core forks the child, owns the memory that both sides share, waits and reads the clock. A
transport only moves bytes: it starts no thread, holds no lock during a fork, and none of its calls
blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from pto_core.interfaces.plugin import Plugin


@dataclass(frozen=True)
class Connection:
    """The parameters of one connection of a Python transport.

    ``child``: the path of the child, for messages (``"L4/worker0/chip1"``). ``queue_frames``: the
    number of frames, each with 64 bytes of data, that must fit in the queue at once.
    ``queue_bytes``: the total size, with heads, of ``queue_frames`` frames that must also fit in
    the queue at once. It is also the size of the largest frame, and at most the transport's
    ``frame_limit``. The data of an answer are at least 64 bytes smaller than this.
    """

    child: str
    queue_frames: int
    queue_bytes: int


class Endpoint(Protocol):
    """The Worker's end of the connection to one child.

    Only one thread at a time uses it, but the thread may change. A frame is one ``bytes`` object:
    its head, a ``pto_frame`` of ``pto/abi/endpoint.h``, and its data. An answer has the same form;
    see :mod:`pto_core.interfaces.frame`. Tasks and control requests are frames of different kinds,
    so a transport does not need to interpret them. For a Python transport, the core
    rings the doorbells. The core polls an endpoint before it sleeps, and at least every 50 ms while
    it sleeps. So an endpoint may begin its work in one call and finish it in a later call.
    """

    def submit(self, frames: Sequence[bytes]) -> int:
        """Accept frames in order and return their number; fewer than offered if there is no space.

        A frame that was accepted arrives once and complete, after all frames accepted before. Never
        blocks. Raises :class:`~pto_core.errors.EndpointClosedError` if the transport detects that
        the child's end is closed or its process is gone; in this case no frame was accepted. No
        frame is larger than the connection's ``queue_bytes``: the core has checked that.
        """

    def poll(self, limit: int) -> Sequence[bytes]:
        """Return up to ``limit`` answers, in the order in which the child sent them; often none.

        Never blocks. Answers that the child sent before it closed or died still arrive. After them,
        raises :class:`~pto_core.errors.EndpointClosedError` if the transport can detect the end.
        Raises :class:`~pto_core.errors.ProtocolError` with a reason if it finds bytes that no
        child's end sends; every later call then raises this error again.
        """

    def close(self) -> None:
        """Release everything, even while frames are in flight. The child's end detects this.

        May be called twice. No other method is called afterwards.
        """

    def abandon(self) -> None:
        """Release the child's copy of the parent's end directly after the fork; send no message.

        The method must close its descriptors: otherwise the child cannot detect the parent's death.
        """


class ChildEnd(Protocol):
    """The child's end of one connection. One thread at a time uses it, in the child's process."""

    def receive(self, limit: int) -> Sequence[bytes]:
        """Return up to ``limit`` frames in the order of submits; often none.

        Never blocks. Frames that were submitted before the parent closed still arrive. After them,
        raises :class:`~pto_core.errors.EndpointClosedError`. Raises
        :class:`~pto_core.errors.ProtocolError` as :meth:`Endpoint.poll` does.
        """

    def answer(self, answer: bytes) -> bool:
        """Accept one answer. Return False if there is no free space until the parent polls.

        Never blocks. Raises :class:`~pto_core.errors.EndpointClosedError` if the parent's end is
        closed and the transport can detect that. The core has checked the size.
        """

    def close(self) -> None:
        """Release everything. Answers that were sent before still arrive. May be called twice."""

    def abandon(self) -> None:
        """Release the parent's copy after the fork; see :meth:`Endpoint.abandon`."""


@runtime_checkable
class Transport(Plugin, Protocol):
    """The members of both kinds of local transports. Connections are independent of each other.

    Capabilities: ``in_order``: frames of one child arrive in order; required. ``same_addresses``:
    both sides see the Worker's memory at the same addresses, so addresses in frames are valid. A
    Worker refuses a transport without it, because the arguments of tasks are addresses.
    """

    @property
    def frame_limit(self) -> int:
        """The size of the largest possible frame in bytes, including its header."""


@runtime_checkable
class NativeTransport(Transport, Protocol):
    """A transport whose ends are native. It runs no Python code for a frame."""

    def library(self) -> Path:
        """Return the path of the native library that exports ``pto_transport_entry``."""


@runtime_checkable
class PythonTransport(Transport, Protocol):
    """A transport whose ends are Python objects. The core calls them with batches of frames."""

    def connect(self, connection: Connection) -> tuple[Endpoint, ChildEnd]:
        """Return both ends of a new connection.

        Called in the parent before it forks the child: in ``init()``, and again for a child that is
        restarted. It may open descriptors. It must not start a thread or process, and must not
        block. After the fork, the child abandons the parent's end, and the parent abandons the
        child's end. Raises ``OSError`` if the system has no resources left.
        """
