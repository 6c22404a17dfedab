"""The frames of a remote child: from its parent to the Worker on another host, and their ends back.

::

    parent --> FrameRelay --- frames, content ---> FrameGateway --> Worker
           <--            <-- ends, results ------              <--
            parent's host                           remote host

- *Relay*: frames arrive ahead of time. A frame waits until the frames of other children that it
  requires have succeeded, and until the shadow may receive its content. All later frames wait
  behind it. A requirement on a frame of the same child travels with the frame. Ends of frames
  arrive in order; results are written to home memory first, then the parent is informed.
- *Gateway*: the Worker's process sees a local parent. Frames enter its queue in the order of their
  arrival. A frame that may write the same bytes as an earlier one waits until the earlier one has
  ended, because the results of a frame are the differences from the content before it.

Neither side has a socket; one thread calls each side in steps that do not block.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pto_core._worker import ChildPort, ParentPort
from pto_core.errors import BufferLostError, CapacityError, ProtocolError
from pto_core.interfaces.frame import AnswerKind, FrameKind, Outcome
from pto_core.toolchain.source_folders import SourceFolders
from pto_core.worker.failures import Failure
from pto_transport_zmq.remote.address_space import (
    PIECES_PER_STEP,
    Access,
    Range,
    accesses_of,
    tensor_count,
)
from pto_transport_zmq.remote.buffers import BUFFER_OPERATIONS, BufferGateway, BufferRelay, Sending
from pto_transport_zmq.remote.lease import now_ns
from pto_transport_zmq.remote.memory import HomeMemory, Push, Result, ShadowMemory
from pto_transport_zmq.remote.messages import (
    FRAMES_MAX,
    INLINE_BYTES,
    Arrivals,
    EndedFrame,
    MessageKind,
    PlainTasks,
    TaskFrame,
    pack_changes,
    pack_content,
    pack_ended,
    pack_evicted,
    pack_numbered,
    pack_started,
    pack_task,
    pack_tasks,
    unpack_changes,
    unpack_content,
    unpack_ended,
    unpack_evicted,
    unpack_numbered,
    unpack_started,
    unpack_tasks,
)
from pto_transport_zmq.remote.program_modules import check_used
from pto_transport_zmq.remote.requests import (
    BufferRequest,
    CompareModules,
    Configure,
    Request,
    decode_reply,
    decode_request,
    relayed_reply,
    result_of,
    to_refusal,
    to_reply,
    to_request,
)
from pto_transport_zmq.remote.values import encoded, failure_from_bytes, packed_to_record
from pto_transport_zmq.remote.wire import Message, Part

# ---- the relay ----

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


class _PackedTasks(NamedTuple):
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
        self._waiting: deque[_Received | _PackedTasks] = deque()
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
        """Move all frames that can move now; return whether to call this again without waiting.

        That is the case if the parent's queue may have more frames, or if memory is still to be
        compared.
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
            self._waiting.append(_PackedTasks(place, frames, packed))
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
        if isinstance(received, _PackedTasks):
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
        """End the oldest frames in flight, at most up to ``frame``; return their number."""
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


# ---- the gateway ----

_EMPTY_CALLABLE = bytes(32)
_REPORT_NS = 50_000_000  # the shortest time between two reports of a start
# The maximum number of ends in a message; below FRAMES_MAX, because it also has the results.
_ENDS_MAX = 64

Permit = Callable[[Request], Request]


@dataclass
class _Task:
    """A frame that waits for the Worker. ``is_begun``: whether its memory was copied."""

    frame: TaskFrame
    accesses: list[Access]
    is_begun: bool = False


@dataclass
class _PlainTasks:
    """Tasks without memory that wait for the Worker; tasks before ``offset`` were passed on."""

    tasks: PlainTasks
    sent: int = 0
    offset: int = 0


class _Flying(NamedTuple):
    """Consecutive frames in the Worker."""

    first: int
    last: int
    is_plain: bool


@dataclass
class _Ended:
    """A frame whose end is being sent."""

    frame: EndedFrame
    results: Iterator[Result] | None
    is_plain: bool
    packed: list[Part] | None = None
    inline: list[Result] = field(default_factory=list)
    after_bulk: int = 0


class FrameGateway:
    """Passes frames to the Worker, and their ends to the relay. One thread; no call blocks.

    ``permit`` returns the permitted part of a request, or raises an exception of the error tree.
    Files of callables are written to ``folders``. ``tasks``: the maximum number of tasks in flight;
    None: no limit. ``imports``: the modules that may define imported functions; None: every module.
    """

    def __init__(
        self,
        port: ParentPort,
        shadow: ShadowMemory,
        session: Sending,
        buffers: BufferGateway,
        permit: Permit,
        folders: SourceFolders,
        inline_bytes: int = INLINE_BYTES,
        *,
        tasks: int | None = None,
        imports: tuple[str, ...] | None = None,
    ) -> None:
        self._tasks = tasks
        self._imports = imports
        self._port = port
        self._shadow = shadow
        self._session = session
        self._buffers = buffers
        self._permit = permit
        self._folders = folders
        self._inline_bytes = inline_bytes
        self._arrivals = Arrivals()
        self._received = 0  # number of the last frame that arrived
        self._left = 0  # number of the last frame that the Worker has ended
        self._waiting: deque[_Task | _PlainTasks | tuple[int, bytes]] = deque()
        self._flying: deque[_Flying] = deque()  # frames in the Worker, oldest first
        self._ended: deque[_Ended] = deque()
        self._pieces_left = 1  # pieces that the current step may still compare
        self._batch: list[EndedFrame] = []
        self._batch_after = 0
        self._replies: deque[tuple[int, bytes]] = deque()
        # The last frame whose start was reported, and the time of the report.
        self._reported = (0, 0)

    @property
    def is_busy(self) -> bool:
        """Whether a frame is in the Worker."""
        return bool(self._flying)

    @property
    def has_work(self) -> bool:
        """Whether the next step can continue at once: a step copies and compares few pieces."""
        return self._shadow.is_copying or self._buffers.has_work or not self._pieces_left

    @property
    def has_answers(self) -> bool:
        """Whether an answer of the Worker is not sent yet."""
        return bool(self._ended or self._batch or self._replies)

    def handle(self, message: Message) -> None:
        """Handle a message of the relay; raise ProtocolError, and CapacityError above a limit."""
        kind = message.kind
        if kind == MessageKind.TASKS:
            for frame in unpack_tasks(message.body):
                self._add(frame)
            self._check_tasks()
        elif kind == MessageKind.CONTENT:
            number, push = unpack_content(message.body)
            self._arrivals.add(number, lambda: self._write(push))
        elif kind == MessageKind.EVICTED:
            number, blocks = unpack_evicted(message.body)
            self._arrivals.add(number, lambda: self._evict(blocks))
        elif kind == MessageKind.REQUEST:
            self._request(*unpack_numbered(message.body))
        elif kind == MessageKind.BUFFER:
            self._buffers.write(message.body)
        else:
            raise ProtocolError(f"the parent's host sent a message of the wrong kind {kind}")

    def step(self, now: int) -> None:
        """Move all frames that can move now. Raises ProtocolError if the Worker broke a rule."""
        self._pieces_left = self._shadow.pieces_per_step
        self._poll()
        self._submit_all()
        self._send_ended()
        self._submit_all()  # frames can wait until results were sent
        self._send_replies()
        self._buffers.step(now)
        self._report_start(now)

    # ---- from the other host ----

    def _add(self, frame: TaskFrame | PlainTasks) -> None:
        if frame.number != self._received + 1:
            raise ProtocolError(f"frame {frame.number} arrived after frame {self._received}")
        if isinstance(frame, PlainTasks):
            self._received += frame.frames
            self._waiting.append(_PlainTasks(frame))
            self._arrivals.complete(self._received)
            return
        self._received = frame.number
        for push in frame.pushes:
            self._shadow.write(push)
        has_tensors = frame.data[:4] not in (b"", _NO_TENSORS)
        accesses = accesses_of(frame.data) if has_tensors else []
        if has_tensors and len(accesses) < tensor_count(frame.data):
            frame = frame._replace(data=self._buffers.opened(frame.data))
        self._waiting.append(_Task(frame, accesses))
        self._arrivals.complete(frame.number)

    def _check_tasks(self) -> None:
        count = self._received - self._left
        if self._tasks is not None and count > self._tasks:
            raise CapacityError(
                f"the session has {count} tasks in flight; it declared at most {self._tasks}",
                name="tasks",
                value=count,
                limit=self._tasks,
            )

    def _write(self, push: Push) -> None:
        self._shadow.write(push)
        self._session.consumed(1)

    def _evict(self, blocks: list[int]) -> None:
        for block in blocks:
            self._shadow.evict(block)
        self._session.consumed(1)

    def _request(self, number: int, content: bytes) -> None:
        request = decode_request(content)
        try:
            permitted = self._permit(request)
            if isinstance(permitted, BufferRequest):
                self._buffers.handle(number, permitted, now_ns())
                return
            if isinstance(permitted, CompareModules):
                check_used(permitted.uses)
                self._replies.append((number, encoded(to_reply(None))))
                return
            arguments = permitted.arguments(self._folders, self._imports)
        except Exception as error:  # noqa: BLE001 - the parent receives it
            if not isinstance(request, Configure):
                self._replies.append((number, encoded(to_refusal(Failure.of(error)))))
                return
            # The parent does not wait for the reply, so the tasks with this configuration fail.
            self._to_worker(number, "config_refused", (request.number, Failure.of(error).pack()))
            return
        self._to_worker(number, request.operation, arguments)

    def _to_worker(self, number: int, operation: str, arguments: tuple[Any, ...]) -> None:
        self._waiting.append((number, pickle.dumps((operation, arguments))))

    # ---- to the Worker and back ----

    def _submit_all(self) -> None:
        while self._submit():
            pass

    def _submit(self) -> bool:
        """Pass the next frame to the Worker; return False if it has to wait."""
        if not self._waiting:
            return False
        first = self._waiting[0]
        if isinstance(first, _Task):
            is_sent = self._submit_task(first)
        elif isinstance(first, _PlainTasks):
            is_sent = self._submit_plain(first)
        else:
            number, content = first
            is_sent = self._port.submit(
                FrameKind.CONTROL, number, _EMPTY_CALLABLE, 0, 0, 0, content
            )
        if is_sent:
            self._waiting.popleft()
        return is_sent

    def _submit_task(self, task: _Task) -> bool:
        frame = task.frame
        if not task.is_begun:
            task.is_begun = self._shadow.begin(frame.number, task.accesses)
        if not task.is_begun or not self._port.submit(
            FrameKind.TASK,
            frame.task,
            frame.callable,
            frame.config,
            frame.flags,
            frame.required,
            frame.data,
        ):
            return False
        self._flying.append(_Flying(frame.number, frame.number, is_plain=False))
        return True

    def _submit_plain(self, plain: _PlainTasks) -> bool:
        tasks = plain.tasks
        count, nbytes = self._port.submit_plain(tasks.packed, plain.offset)
        if count:
            first = tasks.number + plain.sent
            self._flying.append(_Flying(first, first + count - 1, is_plain=True))
            plain.sent += count
            plain.offset += nbytes
        return plain.sent == tasks.frames

    def _poll(self) -> None:
        for kind, number, outcome, data in self._port.poll():
            if kind == AnswerKind.REPLY:
                self._replies.append((number, encoded(relayed_reply(data))))
            elif outcome == Outcome.SUCCEEDED:
                self._succeed(number)
            else:
                self._succeed(number - 1)
                self._fail(number, Outcome(outcome), data)
        if self._flying:
            self._succeed(self._port.succeeded(self._flying[0].first - 1))

    def _succeed(self, number: int) -> None:
        while self._flying and self._flying[0].first <= number:
            first, last, is_plain = self._end_flying(number)
            frame = EndedFrame(last, Outcome.SUCCEEDED, frames=last + 1 - first)
            results = None if is_plain else self._shadow.results(last)
            self._ended.append(_Ended(frame, results, is_plain))

    def _end_flying(self, number: int) -> _Flying:
        """Remove and return the frames of the oldest entry up to ``number``; keep the later."""
        first, last, is_plain = self._flying.popleft()
        if last > number:
            self._flying.appendleft(_Flying(number + 1, last, is_plain))
        self._left = min(last, number)
        return _Flying(first, self._left, is_plain)

    def _fail(self, number: int, outcome: Outcome, data: bytes) -> None:
        if not self._flying or self._flying[0].first != number:
            raise ProtocolError(f"the Worker ended frame {number}, which is not the next")
        is_plain = self._end_flying(number).is_plain
        failure = encoded(packed_to_record(data)) if outcome is Outcome.FAILED else b""
        self._ended.append(_Ended(EndedFrame(number, outcome, failure), None, is_plain))

    # ---- to the other host ----

    def _send_ended(self) -> None:
        while self._ended:
            if not self._send_results(self._ended[0]):
                return
            ended = self._ended.popleft()
            if not ended.is_plain:
                self._shadow.end(ended.frame.number)
            self._batch.append(ended.frame._replace(results=ended.inline))
            self._batch_after = max(self._batch_after, ended.after_bulk)
            if len(self._batch) == _ENDS_MAX and not self._send_batch():
                return
        self._send_batch()

    def _send_results(self, ended: _Ended) -> bool:
        """Send large results of a frame; return False if some are left for a later step."""
        if ended.results is None:
            return True
        number = ended.frame.number
        while True:
            if ended.packed is None:
                if not self._pieces_left:
                    return False
                result = next(ended.results, None)
                if result is None:
                    return True
                if result.place.nbytes <= self._inline_bytes:
                    ended.inline.append(result)
                    continue
                self._pieces_left -= 1
                ended.packed = pack_changes(number, result)
            if not self._send_batch():  # the ends of earlier frames must not wait for these results
                return False
            sent = self._session.send_bulk(MessageKind.CHANGES, ended.packed)
            if sent is None:
                return False
            ended.packed, ended.after_bulk = None, sent

    def _send_batch(self) -> bool:
        """Send the ends that are ready; return whether none is left."""
        if not self._batch:
            return True
        body = pack_ended(self._batch)
        if self._session.send(MessageKind.ENDED, body, self._batch_after) is None:
            return False
        self._batch, self._batch_after = [], 0
        return True

    def _send_replies(self) -> None:
        while self._replies:
            if self._session.send(MessageKind.REPLY, pack_numbered(*self._replies[0])) is None:
                return
            self._replies.popleft()

    def _report_start(self, now: int) -> None:
        """Report the newest frame while it runs: the parent needs its start for time limits."""
        if not self._flying:
            return
        started = self._port.started
        number, sent_ns = self._reported
        first, last, _ = self._flying[0]
        if not first <= started <= last or started == number or now - sent_ns < _REPORT_NS:
            return
        body = pack_started(started, self._port.started_age_ns)
        if self._session.send(MessageKind.STARTED, body) is not None:
            self._reported = (started, now)
