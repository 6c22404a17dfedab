"""The remote buffers of a child on the parent's host: requests, and the content of copies.

A copy goes through shared memory of the parent. For a write, the relay sends the content of that
memory to the other host in bulk messages. For a read, it writes the content that arrives to that
memory. The parent uses the memory again after the reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pto_core.errors import ProtocolError
from pto_transport_zmq.remote.address_space import AddressSpace, Range, pieces_of
from pto_transport_zmq.remote.buffer_ranges import BufferRanges
from pto_transport_zmq.remote.home_memory import Push
from pto_transport_zmq.remote.messages import (
    MessageKind,
    pack_content,
    pack_numbered,
    unpack_content,
)
from pto_transport_zmq.remote.requests import (
    BUFFER_REQUESTS,
    AllocateBuffer,
    BufferRequest,
    FreeBuffer,
    ReadBuffer,
    WriteBuffer,
    to_request,
)
from pto_transport_zmq.remote.values import encoded
from pto_transport_zmq.remote.wire import Part

BUFFER_OPERATIONS = frozenset(str(kind.__struct_config__.tag) for kind in BUFFER_REQUESTS)
_COPIES = ("read_buffer", "write_buffer")  # their last argument is the address of shared memory


class Sending(Protocol):
    """The methods of a session that send."""

    def send(self, kind: int, parts: list[Part], after_bulk: int = 0) -> int | None:
        """Queue a control message; return its number, or None if there is no space."""

    def send_bulk(self, kind: int, parts: list[Part]) -> int | None:
        """Queue a bulk message."""

    def consumed(self, count: int) -> None:
        """Grant credits for bulk messages."""


@dataclass
class _Reading:
    """A part of a buffer that is arriving: its place, the memory for it, the bytes received."""

    place: Range
    target: int
    arrived: int = 0


class BufferRelay:
    """Sends the requests of the parent about buffers. One thread; no call blocks.

    ``home``: the shared memory of the parent. ``live``: the buffers of this session.
    """

    def __init__(self, home: AddressSpace, session: Sending) -> None:
        self._home = home
        self._session = session
        self.live = BufferRanges()
        self._allocations: dict[int, Range] = {}  # requested buffers, by the number of the request
        self._readings: dict[int, _Reading] = {}
        self._next = 0  # of a write that is being sent: the address of the next byte to send
        self._after_bulk = 0

    def send(self, number: int, operation: str, arguments: Sequence[Any]) -> bool:
        """Send a request. Return False if there is no free space: the call must then be repeated.

        Raises BufferLostError if a part is in no live buffer, and UsageError.
        """
        *members, shared = arguments if operation in _COPIES else (*arguments, 0)
        request = to_request(operation, tuple(members))
        assert isinstance(request, BufferRequest)
        for address, nbytes in request.places():
            place = Range(address, address + nbytes)
            self.live.check(place)
            if isinstance(request, WriteBuffer) and not self._send_content(number, place, shared):
                return False
        body = pack_numbered(number, encoded(request))
        if self._session.send(MessageKind.REQUEST, body, self._after_bulk) is None:
            return False
        self._next = self._after_bulk = 0
        self._note(number, request, shared)
        return True

    def receive(self, body: Sequence[Part]) -> None:
        """Write a piece that arrived for a request; raise ProtocolError."""
        number, (place, content) = unpack_content(body)
        reading = self._readings.get(number)
        if reading is None or place.start != reading.place.start + reading.arrived:
            raise ProtocolError(
                f"{place.nbytes} bytes of a buffer arrived for request {number}, which does not "
                "expect them"
            )
        start = reading.target + reading.arrived
        reading.arrived += place.nbytes
        if reading.arrived > reading.place.nbytes:
            raise ProtocolError(f"too many bytes of a buffer arrived for request {number}")
        self._home.memory(Range(start, start + place.nbytes))[:] = content
        self._session.consumed(1)

    def end(self, number: int, *, is_done: bool) -> None:
        """Handle the reply to a request; raise ProtocolError if content is missing."""
        allocated = self._allocations.pop(number, None)
        if is_done and allocated is not None:
            self.live.add(allocated)
        reading = self._readings.pop(number, None)
        if is_done and reading is not None and reading.arrived < reading.place.nbytes:
            raise ProtocolError(
                f"request {number} for {reading.place.nbytes} bytes of a buffer was answered after "
                f"{reading.arrived} bytes"
            )

    def _send_content(self, number: int, place: Range, shared: int) -> bool:
        left = Range(max(place.start, self._next), place.end)
        for piece in pieces_of(left):
            start = shared + piece.start - place.start
            content = self._home.memory(Range(start, start + piece.nbytes))
            sent = self._session.send_bulk(
                MessageKind.BUFFER, pack_content(number, Push(piece, content))
            )
            if sent is None:
                return False
            self._next, self._after_bulk = piece.end, sent
        return True

    def _note(self, number: int, request: BufferRequest, shared: int) -> None:
        if isinstance(request, AllocateBuffer):
            end = request.address + request.nbytes
            self._allocations[number] = Range(request.address, end)
        elif isinstance(request, FreeBuffer):
            self.live.remove(request.address)
        elif isinstance(request, ReadBuffer):
            place = Range(request.address, request.address + request.nbytes)
            self._readings[number] = _Reading(place, shared)
