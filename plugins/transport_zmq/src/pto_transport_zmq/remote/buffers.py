"""Remote buffers: memory of a remote host that the parent's host allocates and copies.

``BufferRelay`` handles the requests on the parent's host, ``BufferGateway`` on the host of the
buffers. Both know the live buffers of the session.

A copy goes through shared memory of the parent. For a write, the relay sends the content of that
memory to the other host in bulk messages. For a read, it writes the content that arrives to that
memory. The parent uses the memory again after the reply. Copies between two remote hosts do not
pass through the parent's host (:mod:`pto_transport_zmq.remote.peer_copies`).

The gateway maps the memory of all buffers before the Worker's process starts.
"""

from __future__ import annotations

import itertools
import mmap
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pto_core.errors import BufferLostError, CapacityError, ProtocolError, UsageError
from pto_core.worker.failures import Failure
from pto_core.worker.memory import Availability, available
from pto_transport_zmq.remote.address_space import (
    PIECES_PER_STEP,
    AddressSpace,
    Range,
    buffer_tensors,
    pieces_of,
)
from pto_transport_zmq.remote.memory import Push
from pto_transport_zmq.remote.messages import (
    MessageKind,
    pack_content,
    pack_numbered,
    unpack_content,
)
from pto_transport_zmq.remote.peer_copies import PeerCopies, PeerCopy
from pto_transport_zmq.remote.requests import (
    BUFFER_REQUESTS,
    AllocateBuffer,
    AnyReply,
    BufferRequest,
    CancelReceive,
    CopyBuffer,
    FreeBuffer,
    ReadBuffer,
    ReceiveBuffer,
    SendBuffer,
    WriteBuffer,
    to_refusal,
    to_reply,
    to_request,
)
from pto_transport_zmq.remote.values import encoded
from pto_transport_zmq.remote.wire import Part


class BufferRanges:
    """The ranges of the buffers that a session has allocated. They do not overlap."""

    def __init__(self) -> None:
        self._ranges: list[Range] = []

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def add(self, place: Range) -> None:
        """Add a buffer."""
        insort(self._ranges, place)

    def remove(self, address: int) -> Range | None:
        """Remove the buffer at an address, and return its range; None if there is none."""
        found = self._at(address)
        if found is None or found.start != address:
            return None
        self._ranges.remove(found)
        return found

    def overlaps(self, place: Range) -> bool:
        """Return whether a buffer has a byte of this range."""
        return any(one.overlaps(place) for one in self._ranges)

    def check(self, place: Range) -> None:
        """Raise BufferLostError unless one buffer contains the range."""
        found = self._at(place.start)
        if found is None or place.end > found.end:
            raise BufferLostError(
                f"{place.nbytes} bytes at {place.start:#x} are in no remote buffer that this "
                "session of the child has; the buffer was freed, or lost with an earlier session",
                address=place.start,
            )

    def check_tensors(self, blob: bytes) -> None:
        """Raise BufferLostError if a tensor of a task is in a remote buffer that is not live."""
        for _, place in buffer_tensors(blob):
            self.check(place)

    def _at(self, address: int) -> Range | None:
        index = bisect_right(self._ranges, address, key=lambda one: one.start) - 1
        return self._ranges[index] if index >= 0 else None


# ---- on the parent's host ----

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


# ---- on the host of the buffers ----

Measure = Callable[[], Availability]
_PAGE = mmap.PAGESIZE


@dataclass
class _Answer:
    """A reply, and the pieces to send before it."""

    number: int
    reply: AnyReply
    pieces: Iterator[Range] = field(default_factory=lambda: iter(()))
    piece: Range | None = None  # the piece that is sent next; it waits for free space
    after_bulk: int = 0


@dataclass
class _Work:
    """A copy on this host or a release of memory, which performs one action on each piece.

    ``places``: all memory that the work uses.
    """

    number: int
    places: Sequence[Range]
    pieces: Iterator[Range]
    perform: Callable[[Range], None]


class BufferGateway:
    """Handles the requests about buffers. One thread; no call blocks.

    ``space``: the mapped addresses for buffers. ``release``: frees the memory of whole pages, which
    read as zeros afterwards. ``peers``: the copies from and to other hosts. ``limit``: the maximum
    size of all buffers in bytes, in whole pages; None: no limit. ``measure``: returns the free
    memory of this host.
    """

    def __init__(
        self,
        space: AddressSpace,
        release: Callable[[Range], None],
        session: Sending,
        peers: PeerCopies,
        limit: int | None = None,
        measure: Measure = available,
    ) -> None:
        self._space = space
        self._release = release
        self._session = session
        self.peers = peers
        self._limit = limit
        self._measure = measure
        self._live = BufferRanges()
        self._answers: deque[_Answer] = deque()
        self._work: deque[_Work] = deque()

    @property
    def has_work(self) -> bool:
        """Whether a copy on this host, or a release of memory, is not complete."""
        return bool(self._work)

    def handle(self, number: int, request: BufferRequest, now: int) -> None:
        """Perform a request; :meth:`step` sends the reply."""
        try:
            for address, nbytes in request.places():
                self._live.check(Range(address, address + nbytes))
            self._perform(number, request, now)
        except Exception as error:  # noqa: BLE001 - the parent receives it
            self._answers.append(_Answer(number, to_refusal(Failure.of(error))))

    def _perform(self, number: int, request: BufferRequest, now: int) -> None:
        if isinstance(request, CopyBuffer):
            self._copy(number, *(Range(one, one + nbytes) for one, nbytes in request.places()))
        elif isinstance(request, FreeBuffer):
            self._free(number, request.address, now)
        elif isinstance(request, SendBuffer):

            def reply(result: AnyReply) -> None:
                self._answers.append(_Answer(number, result))

            place = Range(request.address, request.address + request.nbytes)
            copy = PeerCopy(place, request.token, request.lease_ns, request.key)
            self.peers.send(copy, request.host, now, reply)
        else:
            self._answers.append(self._answer_of(number, request, now))

    def _answer_of(self, number: int, request: BufferRequest, now: int) -> _Answer:
        if isinstance(request, CancelReceive):
            self.peers.cancel(request.token, now)
            return _Answer(number, to_reply(None))
        assert isinstance(request, AllocateBuffer | ReadBuffer | WriteBuffer | ReceiveBuffer)
        place = Range(request.address, request.address + request.nbytes)
        if isinstance(request, AllocateBuffer):
            self._allocate(place)
        if isinstance(request, ReceiveBuffer):
            copy = PeerCopy(place, request.token, request.lease_ns, request.key)
            port = self.peers.receive(copy, now)
            return _Answer(number, to_reply(port))
        if isinstance(request, ReadBuffer):
            return _Answer(number, to_reply(None), pieces_of(place))
        return _Answer(number, to_reply(None))

    def write(self, body: Sequence[Part]) -> None:
        """Write a piece that arrived; raise ProtocolError if it is in no buffer."""
        _, (place, content) = unpack_content(body)
        self._check(place)
        self._space.memory(place)[:] = content
        self._session.consumed(1)

    def step(self, now: int) -> None:
        """Continue the current work; send content and replies while there is free space."""
        self.peers.step(now)
        if self._work and self._continue(self._work[0]):
            self._answers.append(_Answer(self._work.popleft().number, to_reply(None)))
        while self._answers and self._send(self._answers[0]):
            self._answers.popleft()

    def opened(self, blob: bytes) -> bytes:
        """Return the arguments of a task for the Worker, which treats buffers as shared memory.

        Raises ProtocolError for a tensor in no buffer.
        """
        made = bytearray(blob)
        for offset, place in buffer_tensors(blob):
            self._check(place)
            made[offset] = 0
        return bytes(made)

    def _check(self, place: Range) -> None:
        try:
            self._live.check(place)
        except BufferLostError as error:
            raise ProtocolError(
                f"the parent's host named memory outside all buffers: {error}"
            ) from None

    def _allocate(self, place: Range) -> None:
        self._space.memory(place)
        in_use = (one for work in self._work for one in work.places)
        if self._live.overlaps(place) or any(one.overlaps(place) for one in in_use):
            raise UsageError(f"there is a buffer at {place.start:#x} already", name="address")
        free = self._measure()
        nbytes = _pages(place).nbytes
        if nbytes > free.nbytes:
            raise self._beyond(
                place,
                free.nbytes,
                f"{free.limited_by} leaves {free.nbytes} bytes there; free buffers, or use another "
                "host",
            )
        held = sum(_pages(one).nbytes for one in self._live)
        if self._limit is not None and held + nbytes > self._limit:
            raise self._beyond(
                place,
                self._limit - held,
                f"the session has {held} bytes of buffers and declared at most {self._limit}; free "
                "buffers, or set a larger remote_buffer_limit of that Worker",
            )
        self._live.add(place)

    def _beyond(self, place: Range, left: int, reason: str) -> CapacityError:
        pages = _pages(place).nbytes
        text = f"a remote buffer of {place.nbytes} bytes needs {pages} bytes of whole pages"
        return CapacityError(f"{text}: {reason}", name="nbytes", value=place.nbytes, limit=left)

    def _continue(self, work: _Work) -> bool:
        """Perform a part of the work; return whether it is complete."""
        pieces = list(itertools.islice(work.pieces, PIECES_PER_STEP))
        for piece in pieces:
            work.perform(piece)
        return len(pieces) < PIECES_PER_STEP

    def _copy(self, number: int, target: Range, source: Range) -> None:
        distance = source.start - target.start

        def perform(piece: Range) -> None:
            content = self._space.memory(Range(piece.start + distance, piece.end + distance))
            self._space.memory(piece)[:] = content

        self._work.append(_Work(number, (target, source), pieces_of(target), perform))

    def _free(self, number: int, address: int, now: int) -> None:
        place = self._live.remove(address)
        if place is None:
            self._answers.append(_Answer(number, to_reply(None)))
            return
        self.peers.free(place, now)
        self._end_copies(place)
        pages = Range(place.start, _pages(place).end)
        self._work.append(_Work(number, (pages,), pieces_of(pages), self._release))

    def _end_copies(self, freed: Range) -> None:
        for work in list(self._work):
            if any(place.overlaps(freed) for place in work.places):
                self._work.remove(work)
                error = BufferLostError("a buffer of a copy was freed", address=freed.start)
                self._answers.append(_Answer(work.number, to_refusal(Failure.of(error))))

    def _send(self, answer: _Answer) -> bool:
        while (piece := answer.piece or next(answer.pieces, None)) is not None:
            answer.piece = piece
            body = pack_content(answer.number, Push(piece, self._space.memory(piece)))
            sent = self._session.send_bulk(MessageKind.BUFFER, body)
            if sent is None:
                return False
            answer.piece, answer.after_bulk = None, sent
        body = pack_numbered(answer.number, encoded(answer.reply))
        return self._session.send(MessageKind.REPLY, body, answer.after_bulk) is not None


def _pages(place: Range) -> Range:
    """Return the whole pages of a range."""
    return Range(place.start // _PAGE * _PAGE, -(-place.end // _PAGE) * _PAGE)
