"""The frames of a remote child on the parent's host: from the parent to the session, and back.

The relay receives frames ahead of time. A frame waits here until the frames of other children that
it requires have succeeded, and until the shadow may receive its content. All later frames wait
behind it. A requirement on a frame of the same child travels with the frame. Ends of frames arrive
in order; results are written to home memory first, then the parent is informed.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pto_core._hierarchy import ChildPort
from pto_core.errors import BufferLostError, ProtocolError
from pto_core.hierarchy.failures import Failure
from pto_core.interfaces.frame import FrameKind, Outcome
from pto_transport_zmq.remote.accesses import Access, accesses_of, tensor_count
from pto_transport_zmq.remote.address_space import PIECES_PER_STEP, Range
from pto_transport_zmq.remote.arrivals import Arrivals
from pto_transport_zmq.remote.buffer_relay import BUFFER_OPERATIONS, BufferRelay, Sending
from pto_transport_zmq.remote.failures import failure_from_bytes
from pto_transport_zmq.remote.home_memory import HomeMemory, Push, Result
from pto_transport_zmq.remote.inbox import Message
from pto_transport_zmq.remote.messages import (
    FRAMES_MAX,
    INLINE_BYTES,
    EndedFrame,
    MessageKind,
    TaskFrame,
    pack_content,
    pack_evicted,
    pack_numbered,
    pack_task,
    pack_tasks,
    unpack_changes,
    unpack_ended,
    unpack_numbered,
    unpack_started,
)
from pto_transport_zmq.remote.requests import decode_reply, result_of, to_request
from pto_transport_zmq.remote.values import encoded
from pto_transport_zmq.remote.wire import Part

_PENDING, _MET = 0, 1
_RECEIVE_MAX = 64
_BATCH_BYTES = 1 << 20  # a batch of frames with more bytes is sent
_NO_TENSORS = bytes(4)


class _Received(NamedTuple):
    """A frame from the parent. ``place``: its number in the progress table; 0 for a request."""

    kind: int
    place: int
    number: int
    callable: bytes
    config: int
    flags: int
    required_child: int
    required_count: int
    data: bytes


@dataclass
class _Departing:
    """A frame whose content is being sent. ``bulk``: the messages that are packed already."""

    received: _Received
    number: int
    required: int
    stale: deque[Range]
    bulk: deque[tuple[MessageKind, list[Part]]] = field(default_factory=deque)
    pushes: list[Push] = field(default_factory=list)
    after_bulk: int = 0


class _Beginning(NamedTuple):
    """A frame whose memory is being compared. ``required``: a frame in flight, or 0."""

    received: _Received
    required: int
    accesses: Sequence[Access]


class _Plain(NamedTuple):
    """Consecutive tasks from the parent without tensors and requirement, packed for the session."""

    place: int
    frames: int
    packed: bytes


class _InFlight(NamedTuple):
    """Consecutive frames that were sent, or one unsent frame that ended here, with number 0."""

    place: int
    number: int
    frames: int = 1
    is_plain: bool = True  # the frames use no memory
    failure: bytes = b""


class FrameRelay:
    """Passes frames to the other host, and their ends to the parent. One thread; no call blocks.

    ``child``: the child's index in the progress table. ``largest_answer``: bytes of data in the
    largest answer. ``inline_bytes``: the largest piece that travels with its frame.
    """

    def __init__(
        self,
        port: ChildPort,
        child: int,
        home: HomeMemory,
        session: Sending,
        buffers: BufferRelay,
        largest_answer: int,
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        self._port = port
        self._child = child
        self._home = home
        self._session = session
        self._largest_answer = largest_answer
        self._inline_bytes = inline_bytes
        self._waiting: deque[_Received | _Plain] = deque()
        self._beginning: _Beginning | None = None  # for the first entry of _waiting
        self._departing: _Departing | None = None
        self._batch: list[bytes] = []  # packed tasks; their numbers end at _left
        self._batch_count = self._batch_bytes = 0
        self._batch_after = 0
        self._left = 0  # number of the last frame that was added to the batch
        self._last_left = 0  # place of that frame in the progress table
        self._sent = 0  # number of the last frame that was admitted
        self._is_blocked = False  # the next frame waits until another one has ended
        self._in_flight: deque[_InFlight] = deque()
        self._answers: deque[tuple[int, Outcome, bytes]] = deque()
        self._replies: deque[tuple[int, bytes]] = deque()
        self._arrivals = Arrivals()
        self._buffers = buffers

    @property
    def is_idle(self) -> bool:
        """Whether no frame waits or is in flight."""
        return not (self._waiting or self._departing or self._in_flight or self._answers)

    def step(self) -> bool:
        """Move frames as far as possible; return whether the next step can continue at once.

        It can if the parent's queue may have more frames, or if more memory has to be compared.
        Raises EndpointClosedError when the parent has closed, and ProtocolError.
        """
        self._answer()
        has_more = self._receive()
        self._forward()
        self._answer()
        return has_more or self._home.is_hashing

    def handle(self, message: Message) -> None:
        """Handle a message of the gateway; raise ProtocolError."""
        kind = message.kind
        if kind == MessageKind.ENDED:
            for frame in unpack_ended(message.body):
                self._end(frame)
        elif kind == MessageKind.CHANGES:
            number, result = unpack_changes(message.body)
            self._arrivals.add(number, lambda: self._write(number, result))
        elif kind == MessageKind.STARTED:
            self._started(*unpack_started(message.body))
        elif kind == MessageKind.REPLY:
            self._reply(*unpack_numbered(message.body))
        elif kind == MessageKind.BUFFER:
            self._buffers.receive(message.body)
        else:
            raise ProtocolError(f"the remote host sent a message of the wrong kind {kind}")

    # ---- to the other host ----

    def _receive(self) -> bool:
        place, frames, packed, has_more = self._port.receive_plain(_RECEIVE_MAX)
        if frames:
            self._waiting.append(_Plain(place, frames, packed))
        elif has_more:
            self._waiting += map(_Received._make, self._port.receive(_RECEIVE_MAX))
        return has_more

    def _forward(self) -> None:
        while self._depart():
            is_full = self._batch_count + _RECEIVE_MAX > FRAMES_MAX
            if (is_full or self._batch_bytes > _BATCH_BYTES) and not self._send_batch():
                return
        self._send_batch()

    def _depart(self) -> bool:
        """Send more of a frame's content, or begin the next frame. Return False if it must wait."""
        if self._departing is not None:
            return self._send_content(self._departing)
        if not self._waiting:
            return False
        received = self._waiting[0]
        if isinstance(received, _Plain):
            self._waiting.popleft()
            self._sent += received.frames
            self._add_to_batch(*received, is_plain=True)
            return True
        if received.kind == FrameKind.CONTROL:
            return self._send_batch() and self._send_request(received)
        return self._begin(received)

    def _begin(self, received: _Received) -> bool:
        if self._is_blocked:
            return False
        return self._check(received) if self._beginning is None else self._admit(self._beginning)

    def _check(self, received: _Received) -> bool:
        """Check the requirement and the buffers of a frame; return False if it must wait."""
        required, count = received.required_child, received.required_count
        number = self._number_of(count) if required == self._child else 0
        if required >= 0 and not number:
            found = self._port.requirement(received.place, required, count)
            if found == _PENDING:
                return False
            if found != _MET:
                self._skip(received)
                return True
        accesses: list[Access] = []
        if received.data[:4] not in (b"", _NO_TENSORS):
            accesses = accesses_of(received.data)
            if len(accesses) < tensor_count(received.data) and not self._has_buffers(received):
                return True
        self._beginning = _Beginning(received, number, accesses)
        return True

    def _admit(self, beginning: _Beginning) -> bool:
        """Compare the memory of a frame; return False if it must wait, or if some is left."""
        admission = self._home.admit(self._sent + 1, beginning.accesses)
        if admission is None and self._home.is_hashing:
            return False
        self._beginning = None
        if admission is None:
            self._is_blocked = True
            return False
        self._waiting.popleft()
        self._sent += 1
        departing = _Departing(
            beginning.received, self._sent, beginning.required, deque(admission.stale)
        )
        for start in range(0, len(admission.evicted), PIECES_PER_STEP):
            blocks = admission.evicted[start : start + PIECES_PER_STEP]
            departing.bulk.append((MessageKind.EVICTED, pack_evicted(self._sent, blocks)))
        self._departing = departing
        return True

    def _has_buffers(self, received: _Received) -> bool:
        """Return whether the buffers of a frame are live; otherwise end the frame with an error."""
        try:
            self._buffers.live.check_tensors(received.data)
        except BufferLostError as error:
            self._skip(received, Failure.of(error).pack(self._largest_answer))
            return False
        return True

    def _number_of(self, place: int) -> int:
        """Return the number of the frame at ``place``; 0 if it is not in flight or ended here."""
        for one in reversed(self._in_flight):
            if one.place <= place < one.place + one.frames:
                return one.number and one.number + place - one.place
        return 0

    def _skip(self, received: _Received, failure: bytes = b"") -> None:
        self._waiting.popleft()
        self._in_flight.append(_InFlight(received.place, 0, failure=failure))
        self._end_skipped()

    def _send_content(self, departing: _Departing) -> bool:
        is_large = any(one.nbytes > self._inline_bytes for one in departing.stale)
        # Earlier frames must not wait for this content.
        if (is_large or departing.bulk) and not self._send_batch():
            return False
        while departing.bulk or departing.stale:
            if not departing.bulk:
                push = self._home.content(departing.stale.popleft())
                if push.place.nbytes <= self._inline_bytes:
                    departing.pushes.append(push)
                    continue
                departing.bulk.append((MessageKind.CONTENT, pack_content(departing.number, push)))
            sent = self._session.send_bulk(*departing.bulk[0])
            if sent is None:
                return False
            departing.bulk.popleft()
            departing.after_bulk = sent
        self._leave(departing)
        return True

    def _leave(self, departing: _Departing) -> None:
        received, number = departing.received, departing.number
        frame = TaskFrame(
            number,
            received.number,
            departing.required,
            received.config,
            received.flags,
            received.callable,
            received.data,
            departing.pushes,
        )
        self._batch_after = max(self._batch_after, departing.after_bulk)
        self._departing = None
        self._add_to_batch(received.place, 1, pack_task(frame), is_plain=False)

    def _add_to_batch(self, place: int, count: int, packed: bytes, *, is_plain: bool) -> None:
        self._in_flight.append(_InFlight(place, self._left + 1, count, is_plain))
        self._batch.append(packed)
        self._batch_count += count
        self._batch_bytes += len(packed)
        self._left += count
        self._last_left = place + count - 1

    def _send_batch(self) -> bool:
        """Send the frames that are ready; return whether none is left."""
        if not self._batch:
            return True
        self._port.left(self._last_left)
        count = self._batch_count
        body = pack_tasks(self._left - count + 1, count, self._batch)
        if self._session.send(MessageKind.TASKS, body, self._batch_after) is None:
            return False
        self._batch, self._batch_count = [], 0
        self._batch_bytes = self._batch_after = 0
        return True

    def _send_request(self, received: _Received) -> bool:
        operation, arguments = pickle.loads(received.data)
        try:
            if operation in BUFFER_OPERATIONS:
                if not self._buffers.send(received.number, operation, arguments):
                    return False
                self._waiting.popleft()
                return True
            request = encoded(to_request(operation, arguments))
        except Exception as error:  # noqa: BLE001 - the parent receives it
            self._replies.append((received.number, _refused(Failure.of(error))))
            self._waiting.popleft()
            return True
        body = pack_numbered(received.number, request)
        if self._session.send(MessageKind.REQUEST, body) is None:
            return False
        self._waiting.popleft()
        return True

    # ---- from the other host ----

    def _end(self, frame: EndedFrame) -> None:
        number = frame.number - frame.frames + 1
        while number <= frame.number:
            self._end_skipped()
            if not self._in_flight or self._in_flight[0].number != number:
                raise ProtocolError(f"frame {number} has ended, but it is not the next")
            number += self._end_first(frame)
        self._end_skipped()

    def _end_first(self, frame: EndedFrame) -> int:
        """End the oldest frames in flight, at most up to ``frame``; return how many."""
        self._is_blocked = False
        place, number, count, is_plain, _ = self._in_flight.popleft()
        ended = min(count, frame.number + 1 - number)
        if ended < count:
            rest = _InFlight(place + ended, number + ended, count - ended, is_plain)
            self._in_flight.appendleft(rest)
        failure = b""
        if frame.outcome is Outcome.SUCCEEDED:
            for result in frame.results:
                self._home.write(number, result)
            if not is_plain:
                self._home.finish(number)
        elif not is_plain:
            self._home.drop(number)
        if frame.outcome is Outcome.FAILED:
            failure = failure_from_bytes(frame.failure).pack(self._largest_answer)
        self._port.ended(frame.outcome is Outcome.SUCCEEDED, ended)
        self._arrivals.complete(number + ended - 1)
        self._answers.append((place + ended - 1, frame.outcome, failure))
        return ended

    def _end_skipped(self) -> None:
        """End the oldest frames that were skipped here."""
        while self._in_flight and self._in_flight[0].number == 0:
            self._port.ended(False)
            ended = self._in_flight.popleft()
            outcome = Outcome.FAILED if ended.failure else Outcome.SKIPPED
            self._answers.append((ended.place, outcome, ended.failure))

    def _write(self, number: int, result: Result) -> None:
        self._home.write(number, result)
        self._session.consumed(1)

    def _started(self, number: int, age_ns: int) -> None:
        first = self._in_flight[0] if self._in_flight else None
        if first and first.number <= number < first.number + first.frames:
            self._port.started(first.place + number - first.number, age_ns)

    def _reply(self, number: int, content: bytes) -> None:
        is_done, value = result_of(decode_reply(content))
        self._buffers.end(number, is_done=is_done)
        packed = pickle.dumps((True, value)) if is_done else _refused(value)
        self._replies.append((number, packed))

    # ---- to the parent ----

    def _answer(self) -> None:
        while self._replies:
            if not self._port.reply(*self._replies[0]):
                return
            self._replies.popleft()
        answers = self._answers
        while answers:
            while len(answers) > 1 and answers[0][1] is Outcome.SUCCEEDED:
                answers.popleft()  # the next answer also reports this success
            if not self._port.answer(*answers[0]):
                return
            answers.popleft()


def _refused(failure: Failure) -> bytes:
    return pickle.dumps((False, failure.pack()))
